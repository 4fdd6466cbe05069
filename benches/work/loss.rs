//! Cross-entropy, alone and with the head before it.

use super::{Work, numbers, timed};
use retrograd::prelude::{CrossEntropy, Rng, Tensor, Var};

/// `cross_entropy fwd+bwd ROWS CLASSES`, from logits; `head_loss fwd+bwd ROWS WIDTH CLASSES`,
/// from what the head multiplies by its weight.
pub fn work(words: &[&str]) -> Option<Work> {
    match words {
        ["cross_entropy", "fwd+bwd", sizes @ ..] => cross_entropy(numbers(sizes)?),
        ["head_loss", "fwd+bwd", sizes @ ..] => head_loss(numbers(sizes)?),
        _ => None,
    }
}

fn targets(rows: usize, classes: usize) -> Tensor<i64> {
    Tensor::randint(0, classes as i64, [rows], &mut Rng::new(2))
}

fn cross_entropy([rows, classes]: [usize; 2]) -> Option<Work> {
    let bytes = 4.0 * 3.0 * (rows * classes) as f64;
    Work::new(0.0, bytes, move || {
        let logits = Var::leaf(Tensor::<f32>::randn([rows, classes], &mut Rng::new(1)));
        let targets = targets(rows, classes);
        timed(move || logits.cross_entropy(&targets, CrossEntropy::default()).backward())
    })
}

/// Logits need not move: what must are rows, weight and their gradients.
fn head_loss([rows, width, classes]: [usize; 3]) -> Option<Work> {
    let flops = 3.0 * 2.0 * (rows * width * classes) as f64;
    let bytes = 4.0 * 3.0 * (rows * width + classes * width) as f64;
    Work::new(flops, bytes, move || {
        let mut rng = Rng::new(1);
        let x = Var::leaf(Tensor::<f32>::randn([rows, width], &mut rng));
        let w = Var::leaf(Tensor::<f32>::randn([classes, width], &mut rng).mul_scalar(0.02));
        let targets = targets(rows, classes);
        let how = CrossEntropy::default();
        timed(move || x.matmul(&w.t()).cross_entropy(&targets, how).backward())
    })
}
