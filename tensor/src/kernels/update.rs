//! Elementwise updates in place: gradient accumulation and optimizer steps. All parameters are divided
//! into chunks, which are distributed together.

use super::lane_arrays;
use crate::cost::Cost;
use crate::error::{ErrorKind, assert};
use crate::formula::{Algebra, Expr};
use crate::kernels::{Real, level_of};
use crate::observe::{self, KernelCall};
use crate::par;
use crate::settings;
use crate::shape::Shape;
use crate::simd::{
    Kernel, Lanes, PREFETCH_DISTANCE, exceeds_private_caches, prefetch_l1, prefetch_l2,
};
use crate::tensor::Tensor;

/// A formula that replaces `W` numbers, from these and `R` others.
pub trait Update<T: Real, const W: usize, const R: usize>: Copy + Send + Sync {
    /// Estimated time per element.
    const COST: Cost;
    /// The new values. Mark it `#[inline(always)]`.
    fn f<A: Algebra<T>>(self, w: [Expr<T, A>; W], r: [Expr<T, A>; R]) -> [Expr<T, A>; W];
}

/// An update of one parameter: the formula with its constants, the tensors that it replaces, and
/// the tensors that it reads.
pub struct Item<'a, T: Real, U, const W: usize, const R: usize> {
    /// The formula.
    pub op: U,
    /// The replaced tensors: in place where their storage is not shared.
    pub w: [&'a mut Tensor<T>; W],
    /// The tensors that are only read.
    pub r: [&'a Tensor<T>; R],
}

/// Replaces the elements of `w` (in place where their storage is not shared); all shapes are equal.
#[track_caller]
pub(crate) fn update<T: Real, U: Update<T, W, R>, const W: usize, const R: usize>(
    name: &'static str,
    op: U,
    w: [&mut Tensor<T>; W],
    r: [&Tensor<T>; R],
) {
    update_all(name, vec![Item { op, w, r }]);
}

/// Updates many parameters at once: small tensors share the threads with large ones.
///
/// # Panics
/// If the shapes of an item differ; in this case no tensor has been changed.
#[inline(never)]
#[track_caller]
pub fn update_all<T: Real, U: Update<T, W, R>, const W: usize, const R: usize>(
    name: &'static str,
    items: Vec<Item<'_, T, U, W, R>>,
) {
    for Item { w, r, .. } in &items {
        let shape = w[0].shape();
        for other in w.iter().map(|t| t.shape()).chain(r.iter().map(|t| t.shape())) {
            assert(other == shape, name, ErrorKind::Mismatch, || {
                format!("{shape:?} cannot be updated with {other:?}")
            });
        }
    }
    let (call, tensors) = (observe::begin(), items.len());
    let op = items.first().map(|item| item.op);
    let level = settings::level();
    let len = U::COST.chunk_len();
    let elements: usize = items.iter().map(|item| item.w[0].numel()).sum();
    let read: Vec<[Tensor<T>; R]> =
        items.iter().map(|item| item.r.map(|t| t.contiguous())).collect();
    // For tensors that are read and written, software prefetching pays on every CPU.
    let prefetches = exceeds_private_caches::<T>(W + R, elements);
    let mut chunks = Vec::new();
    for (Item { op, w, .. }, r) in items.into_iter().zip(&read) {
        let n = w[0].numel();
        let mut parts = w.map(|t| t.make_mut().chunks_mut(len));
        for start in (0..n).step_by(len) {
            let w = parts.each_mut().map(|p| p.next().expect("equal lengths"));
            let end = start + w[0].len();
            let r = std::array::from_fn(|k| &r[k].as_slice()[start..end]);
            chunks.push(Chunk { op, w, r, prefetches });
        }
    }
    let each = elements.div_ceil(chunks.len().max(1));
    par::each(chunks, each, U::COST, |chunk| T::dispatch(level, chunk));
    observe::end(call, || KernelCall {
        detail: if tensors == 1 { String::new() } else { format!("{tensors} tensors") },
        level: level_of::<T>(level),
        flops: op.and_then(|op| T::operations(OnOnes { op })).unwrap_or(1) * elements as u64,
        read: ((W + R) * elements * size_of::<T>()) as u64,
        written: (W * elements * size_of::<T>()) as u64,
        ..KernelCall::new(name, "in place", T::DTYPE, Shape::from([elements]))
    });
}

/// The formula on one vector of ones for each tensor, to count its operations.
struct OnOnes<U, const W: usize, const R: usize> {
    op: U,
}

impl<T: Real, U: Update<T, W, R>, const W: usize, const R: usize> Kernel<T> for OnOnes<U, W, R> {
    type Out = ();

    #[inline(always)]
    fn run<S: Lanes<T>>(self, s: S) {
        let one = lane_arrays::splat(s, T::ONE);
        self.op.f([one; W], [one; R]);
    }
}

struct Chunk<'a, T: Real, U, const W: usize, const R: usize> {
    op: U,
    w: [&'a mut [T]; W],
    r: [&'a [T]; R],
    /// Whether to prefetch.
    prefetches: bool,
}

impl<T: Real, U: Update<T, W, R>, const W: usize, const R: usize> Kernel<T>
    for Chunk<'_, T, U, W, R>
{
    type Out = ();

    #[inline(always)]
    fn run<S: Lanes<T>>(self, s: S) {
        let Chunk { op, w, r, prefetches } = self;
        let n = w[0].len();
        let full = n / S::N * S::N;
        let mut i = 0;
        while i < full {
            if prefetches {
                for k in 0..W {
                    prefetch_l1(w[k].as_ptr().wrapping_add(i + PREFETCH_DISTANCE));
                }
                for k in 0..R {
                    prefetch_l2(r[k].as_ptr().wrapping_add(i + PREFETCH_DISTANCE));
                }
            }
            let old = lane_arrays::load(s, &w, i);
            let given = lane_arrays::load(s, &r, i);
            let new = op.f(old, given);
            for k in 0..W {
                s.store(new[k].value(), &mut w[k][i..]);
            }
            i += S::N;
        }
        if full < n {
            let old = lane_arrays::load_rest(s, &w, full, [T::ONE; W]);
            let given = lane_arrays::load_rest(s, &r, full, [T::ONE; R]);
            let new = op.f(old, given);
            for k in 0..W {
                s.store_part(new[k].value(), &mut w[k][full..]);
            }
        }
    }
}
