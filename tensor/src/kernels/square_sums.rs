//! Sums of squares of many tensors in one pass, for gradient norms.

use crate::cost::Cost;
use crate::kernels::{Real, level_of};
use crate::observe::{self, KernelCall};
use crate::par;
use crate::settings;
use crate::shape::Shape;
use crate::simd::{Kernel, Lanes};
use crate::tensor::Tensor;

/// Elements that are summed in `T`; the sums of blocks are added in f64.
const BLOCK: usize = 8192;
/// Elements per task.
const CHUNK: usize = 8 * BLOCK;

/// `Σ x²` of each tensor. Squares are summed in `T` within blocks of 8192 elements, and blocks in
/// f64, always in the same order. All tensors are distributed to threads at once.
///
/// Non-finite if an element is, or if a sum in `T` overflows.
///
/// ```
/// use retrograd::prelude::*;
/// use retrograd::tensor::kernels::square_sums;
/// let (a, b) = (Tensor::from([3.0f32, 4.0]), Tensor::<f32>::zeros([0]));
/// assert_eq!(square_sums(&[&a, &b]), [25.0, 0.0]);
/// ```
#[inline(never)]
pub fn square_sums<T: Real>(tensors: &[&Tensor<T>]) -> Vec<f64> {
    let (call, level) = (observe::begin(), settings::level());
    let tensors: Vec<Tensor<T>> = tensors.iter().map(|t| t.contiguous()).collect();
    let mut chunks: Vec<(usize, &[T])> = Vec::new();
    for (i, t) in tensors.iter().enumerate() {
        chunks.extend(t.as_slice().chunks(CHUNK).map(|chunk| (i, chunk)));
    }
    let elements: usize = chunks.iter().map(|(_, chunk)| chunk.len()).sum();
    let each = elements.div_ceil(chunks.len().max(1));
    let parts = par::map(chunks.len(), each, Cost::MOVE, |i| {
        let blocks = chunks[i].1.chunks(BLOCK);
        blocks.map(|x| T::dispatch(level, SquareSum(x)).to_f64()).sum::<f64>()
    });
    let mut sums = vec![0.0; tensors.len()];
    for ((i, _), part) in chunks.iter().zip(parts) {
        sums[*i] += part;
    }
    observe::end(call, || KernelCall {
        detail: format!("{} tensors", tensors.len()),
        level: level_of::<T>(level),
        flops: 2 * elements as u64,
        read: (elements * size_of::<T>()) as u64,
        written: size_of_val(&sums[..]) as u64,
        ..KernelCall::new("square_sums", "blocks", T::DTYPE, Shape::from([elements]))
    });
    sums
}

struct SquareSum<'a, T>(&'a [T]);

impl<T: Real> Kernel<T> for SquareSum<'_, T> {
    type Out = T;

    #[inline(always)]
    fn run<S: Lanes<T>>(self, s: S) -> T {
        let mut sums = [s.splat(T::ZERO); 4];
        let wide = self.0.chunks_exact(4 * S::N);
        let rest = wide.remainder();
        for four in wide {
            for k in 0..4 {
                let x = s.load(&four[k * S::N..]);
                sums[k] = s.fma(x, x, sums[k]);
            }
        }
        for (k, x) in rest.chunks(S::N).enumerate() {
            let x = s.load_or(x, T::ZERO);
            sums[k] = s.fma(x, x, sums[k]);
        }
        s.sum(s.add(s.add(sums[0], sums[1]), s.add(sums[2], sums[3])))
    }
}
