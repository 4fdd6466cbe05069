//! The statistics of a tensor's elements, in one line.

use crate::display::number;
use crate::element::{DType, Element, Integer};
use crate::kernels::{Case, Number, Real, case};
use crate::shape::Shape;
use crate::tensor::Tensor;
use std::fmt::{self, Display, Formatter};

/// Statistics of the elements of a tensor, by [`Tensor::describe`].
///
/// Printed, it is one line, in which counts of 0 are left out; a precision, as in `{:.2}`, is the number of
/// digits after the point, 4 by default.
#[derive(Clone, Debug, PartialEq)]
pub struct Description {
    /// The sizes of the axes.
    pub shape: Shape,
    /// The element type.
    pub dtype: DType,
    /// The smallest finite element; NaN if there is none.
    pub min: f64,
    /// The largest finite element; NaN if there is none.
    pub max: f64,
    /// The mean of the finite elements; NaN if there is none.
    pub mean: f64,
    /// The standard deviation of the finite elements, with a correction of 1 as in [`Tensor::std`]; NaN if there
    /// are fewer than two.
    pub std: f64,
    /// The number of elements that are 0.
    pub zeros: usize,
    /// The number of elements that are NaN.
    pub nan: usize,
    /// The number of elements that are `∞` or `-∞`.
    pub infinite: usize,
}

/// # Statistics
impl<T: Number> Tensor<T> {
    /// Shape, element type, minimum, maximum, mean and standard deviation of the finite elements, and the numbers
    /// of zeros, NaN and infinities; to be printed. Computed in `f64`.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let x = Tensor::from([[1.0f32, -2.0, 0.0], [4.0, f32::NAN, f32::INFINITY]]);
    /// let d = x.describe();
    /// assert_eq!((d.min, d.max, d.mean, d.nan), (-2.0, 4.0, 0.75, 1));
    /// assert_eq!(
    ///     d.to_string(),
    ///     "f32 [2, 3]: min -2.0000, max 4.0000, mean 0.7500, std 2.5000, 1 zero, 1 NaN, 1 infinite"
    /// );
    /// assert_eq!(format!("{:.1}", Tensor::from([1i64, 3]).describe()), "i64 [2]: min 1.0, max 3.0, mean 2.0, std 1.4");
    /// ```
    #[doc(alias = "summary")]
    pub fn describe(&self) -> Description {
        T::case(Describe(self))
    }
}

struct Describe<'a, T: Element>(&'a Tensor<T>);

case! {
    <T> Describe<'_, T> => Description, |this|
    real describe(this.0, T::to_f64),
    integer describe(this.0, |x| x.to_i128() as f64)
}

#[inline(never)]
fn describe<T: Element>(x: &Tensor<T>, to_f64: impl Fn(T) -> f64) -> Description {
    let data = x.contiguous();
    let all = || data.as_slice().iter().map(|&x| to_f64(x));
    let finite = || all().filter(|x| x.is_finite());
    let (mut count, mut sum, mut zeros, mut nan) = (0usize, 0.0, 0, 0);
    let (mut min, mut max) = (f64::NAN, f64::NAN);
    for x in all() {
        if x.is_finite() {
            (count, sum) = (count + 1, sum + x);
            // The first of zeros of both signs.
            min = if x < min || min.is_nan() { x } else { min };
            max = if x > max || max.is_nan() { x } else { max };
            zeros += usize::from(x == 0.0);
        }
        nan += usize::from(x.is_nan());
    }
    // A sum beyond the largest f64 is that of fractions.
    let n = count as f64;
    let mean = if sum.is_finite() { sum / n } else { finite().map(|x| x / n).sum() };
    let squares: f64 = finite().map(|x| (x - mean).powi(2)).sum();
    let std = if count > 1 { (squares / (n - 1.0)).sqrt() } else { f64::NAN };
    let infinite = x.numel() - count - nan;
    Description { shape: *x.shape(), dtype: T::DTYPE, min, max, mean, std, zeros, nan, infinite }
}

impl Display for Description {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: ", self.dtype, self.shape)?;
        let mut parts = Vec::new();
        if !self.mean.is_nan() {
            let numbers =
                [("min", self.min), ("max", self.max), ("mean", self.mean), ("std", self.std)];
            let shown = numbers.iter().filter(|(_, x)| !x.is_nan());
            parts.extend(shown.map(|&(name, x)| format!("{name} {}", number(x, f.precision()))));
        }
        let zeros = if self.zeros == 1 { "zero" } else { "zeros" };
        let counts = [(self.zeros, zeros), (self.nan, "NaN"), (self.infinite, "infinite")];
        let counted = counts.iter().filter(|(count, _)| *count > 0);
        parts.extend(counted.map(|(count, what)| format!("{count} {what}")));
        if parts.is_empty() {
            parts.push("no elements".to_owned());
        }
        f.write_str(&parts.join(", "))
    }
}
