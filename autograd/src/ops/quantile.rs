//! Order statistics: selections from sorted elements.

use crate::graph::Var;
#[cfg(doc)]
use retrograd_tensor::Tensor;
use retrograd_tensor::error::{ErrorKind, OrPanic, assert};
use retrograd_tensor::ops::histogram::Between;
use retrograd_tensor::{Axes, Real};

/// # Order statistics
impl<T: Real> Var<T> {
    /// As [`Tensor::quantile`]; the gradient goes to the two elements between which the quantile lies.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let x = Var::leaf(Tensor::from([4.0f32, 1.0, 2.0]));
    /// let y = x.quantile(.., 0.25);
    /// assert_eq!(y.item(), 1.5);
    /// assert_eq!(y.backward().get(&x).unwrap().to_vec(), [0.0, 0.5, 0.5]);
    /// ```
    #[doc(alias = "percentile")]
    #[track_caller]
    pub fn quantile(&self, axes: impl Axes, q: f64) -> Var<T> {
        let lines = self.sorted_lines("quantile", axes);
        let Between { below, above, part } = Between::of(q, lines.size(-1)).or_panic();
        let (a, b) = (lines.select(-1, below), lines.select(-1, above));
        let y = match part < 0.5 {
            true => a.add(&b.sub(&a).mul_scalar(T::from_f64(part))),
            false => b.sub(&b.sub(&a).mul_scalar(T::from_f64(1.0 - part))),
        };
        nan_where_last_is(&lines, &y)
    }

    /// As [`Tensor::median`]; the gradient goes to this element.
    #[track_caller]
    pub fn median(&self, axes: impl Axes) -> Var<T> {
        let lines = self.sorted_lines("median", axes);
        nan_where_last_is(&lines, &lines.select(-1, (lines.size(-1) - 1) / 2))
    }

    /// The elements over axes in ascending order, along the last axis.
    #[track_caller]
    fn sorted_lines(&self, op: &'static str, axes: impl Axes) -> Var<T> {
        let axes = axes.resolve(op, self.shape()).or_panic();
        let count = self.value().count(axes);
        assert(count > 0, op, ErrorKind::Empty, || {
            format!("an axis of {:?} is empty, so it has no such element", self.shape())
        });
        let mut dims = self.shape().reduced(axes, false).to_vec();
        dims.push(count);
        self.permute(axes.moved_last(self.rank())).reshape(dims).sort(-1, false).0
    }
}

/// `y`, and NaN where the last element in order is, which is the largest.
#[track_caller]
fn nan_where_last_is<T: Real>(lines: &Var<T>, y: &Var<T>) -> Var<T> {
    let last = lines.select(-1, lines.size(-1) - 1);
    Var::where_(&last.value().isnan(), &last, y)
}
