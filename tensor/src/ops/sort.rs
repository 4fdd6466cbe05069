//! Sorting along an axis.
//!
//! NaN counts as larger than every number, and zeros of either sign are equal. Equal elements
//! keep their order, so ties go to the lower index in both directions.

use crate::cost::Cost;
use crate::element::Element;
use crate::error::{ErrorKind, OrPanic, assert};
use crate::observe::{self, KernelCall};
use crate::par;
use crate::settings;
use crate::simd::{inlined, vectorized};
use crate::tensor::Tensor;
use std::cmp::Ordering;

/// # Sorting
impl<T: Element> Tensor<T> {
    /// The elements in order along an axis, and the index each came from. Stable; NaN is last
    /// if ascending and first if descending.
    ///
    /// # Panics
    /// If the axis does not exist.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let (values, from) = Tensor::from([2.0f32, f32::NAN, 1.0]).sort(-1, false);
    /// assert_eq!(from.to_vec(), [2, 0, 1]);
    /// assert_eq!(values.to_vec()[..2], [1.0, 2.0]);
    /// ```
    #[track_caller]
    pub fn sort(&self, axis: isize, descending: bool) -> (Tensor<T>, Tensor<i64>) {
        let axis = self.shape().axis("sort", axis).or_panic();
        first_in_order("sort", self, axis, self.shape()[axis], descending)
    }

    /// The indices that put an axis in order: the second result of [`Tensor::sort`].
    ///
    /// # Panics
    /// If the axis does not exist.
    #[track_caller]
    pub fn argsort(&self, axis: isize, descending: bool) -> Tensor<i64> {
        self.sort(axis, descending).1
    }

    /// The `k` largest elements along an axis in descending order, or the `k` smallest in
    /// ascending order, and their indices. NaN counts as largest; ties go to the lower index.
    ///
    /// The axis has size `k` in both results.
    ///
    /// # Panics
    /// If the axis does not exist or has fewer than `k` elements.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let (values, from) = Tensor::from([3.0f32, 5.0, 5.0, 1.0]).topk(0, 2, true);
    /// assert_eq!(values.to_vec(), [5.0, 5.0]);
    /// assert_eq!(from.to_vec(), [1, 2]);
    /// ```
    #[track_caller]
    pub fn topk(&self, axis: isize, k: usize, largest: bool) -> (Tensor<T>, Tensor<i64>) {
        let axis = self.shape().axis("topk", axis).or_panic();
        let size = self.shape()[axis];
        assert(k <= size, "topk", ErrorKind::Value, || {
            format!("k = {k} is more than {size}, axis {axis} of {:?}", self.shape())
        });
        first_in_order("topk", self, axis, k, largest)
    }
}

/// NaN is equal to itself and above every number.
#[allow(clippy::eq_op)]
fn in_order<T: Element>(a: T, b: T, descending: bool) -> Ordering {
    let ascending = a.partial_cmp(&b).unwrap_or_else(|| (a != a).cmp(&(b != b)));
    if descending { ascending.reverse() } else { ascending }
}

/// Whether `a` comes before `b` in order, by value.
#[inline(always)]
#[allow(clippy::eq_op)]
fn precedes<T: Element>(a: T, b: T, descending: bool) -> bool {
    // Without branches, so that the compiler vectorises loops of it.
    match descending {
        true => (a > b) | (a != a) & (b == b),
        false => (a < b) | (a == a) & (b != b),
    }
}

/// Replaces the elements of `firsts` by those of the following rows that precede them.
#[inline(always)]
fn keep_firsts<T: Element>(firsts: &mut [T], rows: &[T], precedes: impl Fn(T, T) -> bool) {
    for row in rows.chunks(firsts.len()) {
        let firsts = &mut firsts[..row.len()];
        for j in 0..row.len() {
            firsts[j] = if precedes(row[j], firsts[j]) { row[j] } else { firsts[j] };
        }
    }
}

/// Lines of at least so many times the selected elements are divided into columns.
const FEW: usize = 8;

/// The first `k` elements of a line in order, among others. The line is read as a matrix: the first elements of
/// `k` columns bound the last element that is selected, so other columns than those need not be searched.
fn select_few<T: Element>(
    line: &[T],
    k: usize,
    descending: bool,
    firsts: &mut Vec<T>,
    pairs: &mut Vec<(T, i64)>,
) {
    // As many columns as elements that are searched.
    let columns = (k * line.len()).isqrt().next_multiple_of(64).min(line.len());
    firsts.clear();
    firsts.extend_from_slice(&line[..columns]);
    vectorized(
        settings::level(),
        inlined!(|| match descending {
            true => keep_firsts(firsts, &line[columns..], inlined!(|a, b| precedes(a, b, true))),
            false => keep_firsts(firsts, &line[columns..], inlined!(|a, b| precedes(a, b, false))),
        }),
    );
    firsts.extend_from_within(..);
    let (firsts, sorted) = firsts.split_at_mut(columns);
    let by_value = |a: &T, b: &T| in_order(*a, *b, descending);
    let last = *sorted.select_nth_unstable_by(k - 1, by_value).1;
    for j in (0..columns).filter(|&j| !precedes(last, firsts[j], descending)) {
        for i in (j..line.len()).step_by(columns) {
            if !precedes(last, line[i], descending) {
                pairs.push((line[i], i as i64));
            }
        }
    }
}

/// The first `k` of each line in order, with their indices.
#[inline(never)]
#[track_caller]
fn first_in_order<T: Element>(
    op: &'static str,
    x: &Tensor<T>,
    axis: usize,
    k: usize,
    descending: bool,
) -> (Tensor<T>, Tensor<i64>) {
    let call = observe::begin();
    let lines = x.view_moved_last(axis).contiguous();
    let data = lines.as_slice();
    let len = x.shape()[axis];
    let shape = lines.shape().with(x.rank() - 1, k).or_panic();
    let order = |a: &(T, i64), b: &(T, i64)| in_order(a.0, b.0, descending).then(a.1.cmp(&b.1));
    let (values, from) = Tensor::build2(op, shape, shape, |values, from| {
        if values.is_empty() {
            return;
        }
        let each = Cost::sort(len, k);
        let lines = each.units_per_chunk(k);
        par::fill2((values, lines * k), (from, lines * k), each, |chunk, values, from| {
            let (mut pairs, mut firsts) = (Vec::new(), Vec::new());
            let outputs = values.chunks_exact_mut(k).zip(from.chunks_exact_mut(k));
            for (line, (values, from)) in (chunk * lines..).zip(outputs) {
                pairs.clear();
                let line = &data[line * len..][..len];
                if FEW * k <= len {
                    select_few(line, k, descending, &mut firsts, &mut pairs);
                } else {
                    pairs.extend(line.iter().copied().zip(0..));
                }
                // Indices make all pairs different, so an unstable sort is as good.
                if k < pairs.len() {
                    pairs.select_nth_unstable_by(k, order);
                }
                pairs[..k].sort_unstable_by(order);
                for (i, &(value, index)) in pairs[..k].iter().enumerate() {
                    (values[i], from[i]) = (value, index);
                }
            }
        });
    });
    observe::end(call, || {
        let kernel = if k < len { "partial sort" } else { "sort" };
        let of_values = values.moved(op, kernel, lines.distinct_bytes());
        KernelCall { written: of_values.written + from.distinct_bytes(), ..of_values }
    });
    (values.view_moved_back(axis), from.view_moved_back(axis))
}
