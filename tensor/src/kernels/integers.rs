//! Arithmetic on integers, one element at a time.
//!
//! Formulas are functions of `i128`, which holds every sum and product of two elements, and return
//! `None` where there is no result. A result that does not fit the element type is an error: integers
//! do not wrap around.

use super::elementwise::common_nest;
use super::reduce::reduce_with;
use crate::cost::Cost;
use crate::element::Integer;
use crate::error::{ErrorKind, OrPanic, require};
use crate::observe::{self, KernelCall};
use crate::par;
use crate::shape::{AxisSet, Shape};
use crate::tensor::Tensor;
use std::sync::atomic::{AtomicUsize, Ordering};

/// `f(x₀[i], x₁[i], ..)` over the common shape.
///
/// # Panics
/// If the shapes do not broadcast, or a result does not exist or does not fit.
#[inline(never)]
#[track_caller]
pub fn elementwise<I: Integer, const K: usize>(
    name: &'static str,
    x: [&Tensor<I>; K],
    f: impl Fn([i128; K]) -> Option<i128> + Send + Sync,
) -> Tensor<I> {
    let (shape, nest) = common_nest(name, x.map(|t| t.layout()));
    let data = x.map(|t| t.data());
    let failed = First::default();
    let call = observe::begin();
    let out = Tensor::build(name, shape, |out| {
        par::fill(out, Cost::SCALAR.chunk_len(), Cost::SCALAR, |first, out| {
            let mut cursor = nest.cursor(first);
            for (i, y) in out.iter_mut().enumerate() {
                let (_, at) = cursor.next(1);
                let operands = std::array::from_fn(|k| data[k][at[k]].to_i128());
                *y = f(operands).and_then(I::checked_from).unwrap_or_else(|| {
                    failed.record(first + i);
                    I::ZERO
                });
            }
        });
    });
    observe::end(call, || KernelCall {
        flops: shape.numel() as u64,
        read: x.iter().map(|x| x.distinct_bytes()).sum(),
        written: (shape.numel() * size_of::<I>()) as u64,
        ..KernelCall::new(name, "element by element", I::DTYPE, shape)
    });
    if let Some(at) = failed.get() {
        let (_, places) = nest.cursor(at).next(1);
        let operands: Vec<String> =
            data.iter().zip(places).map(|(data, place)| data[place].to_string()).collect();
        let operands = operands.join(" and ");
        require(false, name, ErrorKind::Value, || {
            format!(
                "the result of {operands} at index {:?} is no {}",
                index_of(at, &shape),
                I::DTYPE
            )
        })
        .map_err(|error| error.hint("cast::<f64>() has a larger range"))
        .or_panic();
    }
    out
}

/// `f(.. f(f(start, x₀), x₁) ..)` over axes, which are removed.
///
/// # Panics
/// If a result does not fit; if `start` is `None` and there is nothing to start from.
#[inline(never)]
#[track_caller]
pub fn fold<I: Integer>(
    name: &'static str,
    x: &Tensor<I>,
    axes: AxisSet,
    start: Option<i128>,
    f: impl Fn(i128, i128) -> Option<i128> + Send + Sync,
) -> Tensor<I> {
    let failed = First::default();
    let out = reduce_with(name, x, axes, start.is_none(), |line| {
        let mut numbers = line.map(I::to_i128);
        let first = start.or_else(|| numbers.next()).unwrap_or(0);
        let result = numbers.try_fold(first, &f).and_then(I::checked_from);
        result.unwrap_or_else(|| {
            failed.record(0);
            I::ZERO
        })
    });
    require(failed.get().is_none(), name, ErrorKind::Value, || {
        format!(
            "a result over axes {:?} of {:?} is no {}",
            axes.iter().collect::<Vec<_>>(),
            x.shape(),
            I::DTYPE
        )
    })
    .map_err(|error| error.hint("cast::<f64>() has a larger range"))
    .or_panic();
    out
}

/// The smallest of the positions that several threads record.
struct First(AtomicUsize);

impl Default for First {
    fn default() -> First {
        First(AtomicUsize::new(usize::MAX))
    }
}

impl First {
    fn record(&self, at: usize) {
        self.0.fetch_min(at, Ordering::Relaxed);
    }

    fn get(&self) -> Option<usize> {
        Some(self.0.load(Ordering::Relaxed)).filter(|&at| at != usize::MAX)
    }
}

/// The index of an element by its position in row-major order.
pub fn index_of(mut position: usize, shape: &Shape) -> Vec<usize> {
    let mut index = vec![0; shape.rank()];
    for (i, &size) in index.iter_mut().zip(shape.iter()).rev() {
        *i = position % size;
        position /= size;
    }
    index
}
