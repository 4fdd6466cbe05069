//! Recurrences with a state.

use super::{Pass, Work, numbers};
use retrograd::autograd::Recurrence;
use retrograd::prelude::Var;

/// `recurrence fwd|fwd+bwd BATCH HEADS LENGTH SIZE decay|delta kernel|steps|weights`: of decays of channels, or of the delta rule
/// after decays of heads; by the kernel, by ordinary operations for each token, or by the matrix of weights.
pub fn work(words: &[&str]) -> Option<Work> {
    let ["recurrence", pass, b, h, t, d, rule, form] = words else { return None };
    let (pass, [b, h, t, d]) = (Pass::named(pass)?, numbers(&[b, h, t, d])?);
    let is_delta = match *rule {
        "decay" => false,
        "delta" => true,
        _ => return None,
    };
    let form = ["kernel", "steps", "weights"].iter().position(|name| name == form)?;
    let flops = if is_delta { pass.pick(5.0, 18.0) } else { pass.pick(3.0, 11.0) };
    let flops = 2.0 * flops * (b * h * t * d * d) as f64;
    let rows = vec![b, h, t, d];
    let decays = if is_delta { vec![b, h, t, 1] } else { rows.clone() };
    let shapes = vec![rows.clone(), rows.clone(), rows, decays];
    Work::pass(pass, (flops, 0.0), shapes, move |x| {
        let (k, decay) = (x[1].rms_norm(None, 1e-6) / (d as f32).sqrt(), x[3].sigmoid());
        let low_rank = is_delta.then(|| [k.mul(&decay), k.neg()]);
        let of = Recurrence { decay: Some(decay), low_rank, ..Recurrence::new(&x[0], &k, &x[2]) };
        let by = |form: fn(&Recurrence, Option<&Var>) -> [Var; 2]| {
            let [y, _] = form(&of, None);
            y
        };
        match form {
            0 => by(Recurrence::run),
            1 => by(Recurrence::steps),
            _ => of.weights().matmul(&of.v),
        }
    })
}
