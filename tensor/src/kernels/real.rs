//! The element types that kernels are compiled for.

use super::gemm::Gemm;
use crate::element::Float;
use crate::simd::{Kernel, Level, dispatch_f32, dispatch_f64};

/// A differentiable element type: `f32`, in vectors of 16 lanes, or `f64`, one lane at a time.
pub trait Real: Float + Gemm {
    /// Runs `k` with the vectors of `level`; `f64` has one lane on every level.
    ///
    /// # Panics
    /// If this CPU does not support the level.
    ///
    /// # Example
    /// ```
    /// use retrograd_tensor::Real;
    /// use retrograd_tensor::settings::level;
    /// use retrograd_tensor::simd::{Kernel, Lanes};
    ///
    /// struct Total<'a>(&'a [f32]);
    /// impl Kernel<f32> for Total<'_> {
    ///     type Out = f32;
    ///     #[inline(always)]
    ///     fn run<S: Lanes<f32>>(self, s: S) -> f32 {
    ///         let mut total = s.splat(0.0);
    ///         let chunks = self.0.chunks_exact(S::N);
    ///         let rest = s.load_or(chunks.remainder(), 0.0);
    ///         for x in chunks {
    ///             total = s.add(total, s.load(x));
    ///         }
    ///         s.sum(s.add(total, rest))
    ///     }
    /// }
    /// assert_eq!(f32::dispatch(level(), Total(&[1.0; 20])), 20.0);
    /// ```
    fn dispatch<K: Kernel<Self>>(level: Level, k: K) -> K::Out;
}

impl Real for f32 {
    #[inline]
    fn dispatch<K: Kernel<f32>>(level: Level, k: K) -> K::Out {
        dispatch_f32(level, k)
    }
}

impl Real for f64 {
    #[inline]
    fn dispatch<K: Kernel<f64>>(level: Level, k: K) -> K::Out {
        dispatch_f64(level, k)
    }
}
