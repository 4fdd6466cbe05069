//! Matrix products, ours and those of other crates.

mod peers;

use super::{Work, numbers, timed};
use retrograd::prelude::{Rng, Tensor};

/// `gemm FORM M K N`: a product `[m, k] · [k, n]`, where the form says which operands are
/// transposed views (`nn`, `nt` as in a linear layer's forward pass, `tn` as in the gradient of
/// its weight, `tt`). `gemm@matrixmultiply`, `gemm@gemm-avx2` and `gemm@gemm-avx512` are the same
/// by other crates, and `bmm FORM B M K N` is `b` products at once.
pub fn work(words: &[&str]) -> Option<Work> {
    let (op, form, sizes) = match words {
        [op, form, sizes @ ..] => (*op, *form, sizes),
        _ => return None,
    };
    let [b, m, k, n] = match op {
        "bmm" => numbers(sizes)?,
        _ => numbers(sizes).map(|[m, k, n]| [1, m, k, n])?,
    };
    let transposed = match form {
        "nn" => [false, false],
        "nt" => [false, true],
        "tn" => [true, false],
        "tt" => [true, true],
        _ => return None,
    };
    let flops = 2.0 * (b * m * k * n) as f64;
    let bytes = 4.0 * (b * (m * k + k * n + m * n)) as f64;
    match op {
        "gemm" | "bmm" => Work::new(flops, bytes, move || {
            let mut rng = Rng::new(1);
            let mut operand = |rows, cols, transposed| {
                let stored = if transposed { [b, cols, rows] } else { [b, rows, cols] };
                let x = Tensor::<f32>::randn(stored, &mut rng);
                let x = if transposed { x.transpose(-1, -2) } else { x };
                if b == 1 { x.squeeze(0) } else { x }
            };
            let (x, y) = (operand(m, k, transposed[0]), operand(k, n, transposed[1]));
            timed(move || x.matmul(&y))
        }),
        _ => {
            let product = peers::named(op.strip_prefix("gemm@")?)?;
            Work::new(flops, bytes, move || {
                let mut rng = Rng::new(1);
                let mut values = |n: usize| Tensor::<f32>::randn([n], &mut rng).to_vec();
                let (x, y, mut out) = (values(m * k), values(k * n), vec![0.0; m * n]);
                timed(move || {
                    let x = peers::Matrix::new(&x, [m, k], transposed[0]);
                    let y = peers::Matrix::new(&y, [k, n], transposed[1]);
                    product(x, y, &mut out);
                })
            })
        }
    }
}
