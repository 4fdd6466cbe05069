//! Matrix multiplication, by retrograd and by other crates.

#[cfg(feature = "peers")]
mod peers;

#[cfg(feature = "peers")]
use super::data;
use super::{Work, digest, numbers, operand, timed};

/// `gemm FORM M K N`: a product `[m, k] · [k, n]`, where the form says which operands are
/// transposed views (`nn`, `nt` as in a linear layer's forward pass, `tn` as in the gradient of
/// its weight, `tt`). `gemm FORM M K N A B` is the same with row strides `A` and `B` of the stored
/// operands. `gemm@matrixmultiply`, `gemm@gemm-avx2`, `gemm@gemm-avx512` and `gemm@gemmkit` are the same
/// with other crates (if there is the feature `peers`), and `bmm FORM B M K N` is a batch of `B` products.
pub fn work(words: &[&str]) -> Option<Work> {
    let (op, form, sizes) = match words {
        [op, form, sizes @ ..] => (*op, *form, sizes),
        _ => return None,
    };
    let (sizes, distances) = match sizes {
        [sizes @ .., a, b] if op == "gemm" && sizes.len() == 3 => (sizes, numbers(&[*a, *b])?),
        _ => (sizes, [0, 0]),
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
        "gemm" | "bmm" => {
            let op = op.to_string();
            Work::new(flops, bytes, move || {
                let operand = |i: usize, rows, cols| {
                    let [rows, cols] = if transposed[i] { [cols, rows] } else { [rows, cols] };
                    let shape = [b, rows, cols.max(distances[i])];
                    let x = operand::<f32>(i, &shape).narrow(2, 0, cols);
                    let x = if transposed[i] { x.transpose(-1, -2) } else { x };
                    if op == "gemm" { x.squeeze(0) } else { x }
                };
                let (x, y) = (operand(0, m, k), operand(1, k, n));
                timed(move || x.matmul(&y), digest)
            })
        }
        #[cfg(feature = "peers")]
        _ => {
            let product = peers::named(op.strip_prefix("gemm@")?)?;
            Work::new(flops, bytes, move || {
                let (x, y) = (data::numbers(1, m * k), data::numbers(2, k * n));
                let mut out = vec![0.0; m * n];
                Box::new(move |check| {
                    let x = peers::Matrix::new(&x, [m, k], transposed[0]);
                    let y = peers::Matrix::new(&y, [k, n], transposed[1]);
                    product(x, y, &mut out);
                    if check { data::digest(&out).to_vec() } else { Vec::new() }
                })
            })
        }
        #[cfg(not(feature = "peers"))]
        _ => None,
    }
}
