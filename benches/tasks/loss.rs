//! Cross-entropy, alone and together with the language-model head.

use super::{Work, digests, indices, numbers, operand, timed};
use retrograd::prelude::{CrossEntropy, Var};

/// `cross_entropy fwd+bwd ROWS CLASSES`, from logits; `head_loss fwd+bwd ROWS WIDTH CLASSES`,
/// from the inputs of the head.
pub fn work(words: &[&str]) -> Option<Work> {
    match words {
        ["cross_entropy", "fwd+bwd", sizes @ ..] => cross_entropy(numbers(sizes)?),
        ["head_loss", "fwd+bwd", sizes @ ..] => head_loss(numbers(sizes)?),
        _ => None,
    }
}

fn cross_entropy([rows, classes]: [usize; 2]) -> Option<Work> {
    let bytes = 4.0 * 3.0 * (rows * classes) as f64;
    Work::new(0.0, bytes, move || {
        let logits = Var::leaf(operand::<f32>(0, &[rows, classes]));
        let (targets, of) = (indices(rows, classes), [logits.clone()]);
        timed(
            move || logits.cross_entropy(&targets, CrossEntropy::default()).backward(),
            move |grads| digests(grads, &of),
        )
    })
}

/// Only rows, weight and their gradients have to be moved; the logits can stay in the cache.
fn head_loss([rows, width, classes]: [usize; 3]) -> Option<Work> {
    let flops = 3.0 * 2.0 * (rows * width * classes) as f64;
    let bytes = 4.0 * 3.0 * (rows * width + classes * width) as f64;
    Work::new(flops, bytes, move || {
        let x = Var::leaf(operand::<f32>(0, &[rows, width]));
        let w = Var::leaf(operand::<f32>(1, &[classes, width]).mul_scalar(0.02));
        let (targets, how) = (indices(rows, classes), CrossEntropy::default());
        let of = [x.clone(), w.clone()];
        timed(
            move || x.linear_cross_entropy(&w, &targets, how).backward(),
            move |grads| digests(grads, &of),
        )
    })
}
