//! Attention.

use super::{Pass, Work, numbers};
use retrograd::nn::attention::{Mask, Spec, attend};
use retrograd::prelude::Pass as Training;

/// `attention fwd|fwd+bwd BATCH HEADS LENGTH SIZE full|causal|windowW DROPOUT`: the last `W` keys, the
/// query's own position included.
pub fn work(words: &[&str]) -> Option<Work> {
    let ["attention", pass, b, h, t, d, mask, dropout] = words else { return None };
    let (pass, [b, h, t, d]) = (Pass::named(pass)?, numbers(&[b, h, t, d])?);
    let dropout: f64 = dropout.parse().ok()?;
    let (mask, pairs) = match *mask {
        "full" => (Mask::full(), t * t),
        "causal" => (Mask::causal(), t * (t + 1) / 2),
        window => {
            let w: usize = window.strip_prefix("window")?.parse().ok().filter(|&w| w > 0)?;
            (Mask::causal() & Mask::window(w - 1, 0), (1..=t).map(|i| i.min(w)).sum())
        }
    };
    // Two matrix multiplications forward, four backward; recomputation does not count.
    let flops = pass.pick(2.0, 6.0) * 2.0 * (b * h * pairs * d) as f64;
    let bytes = 4.0 * pass.pick(4.0, 12.0) * (b * h * t * d) as f64;
    let shapes = vec![vec![b, h, t, d]; 3];
    Work::pass(pass, (flops, bytes), shapes, move |x| {
        let spec = Spec::new().mask(mask.clone()).dropout(dropout, &mut Training::train(1));
        attend(&x[0], &x[1], &x[2], &spec)
    })
}
