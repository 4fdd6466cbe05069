//! Comparisons and conversions between element types.

use crate::element::{Element, Float};
use crate::kernels::elementwise::{map_slices, map_with, zip_with};
use crate::ops::binary::TensorOrNumber;
use crate::settings;
use crate::simd::{inlined, vectorized};
use crate::tensor::Tensor;

/// # Comparisons
///
/// Comparisons with a tensor or a number, elementwise and broadcast. As in IEEE 754, NaN is unequal to everything and
/// neither smaller nor larger.
impl<T: Element> Tensor<T> {
    /// `a == b`
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let (a, b) = (Tensor::from([1.0f32, 2.0, f32::NAN]), Tensor::from([2.0, 2.0, 2.0]));
    /// assert_eq!(a.eq(&b).to_vec(), [false, true, false]);
    /// ```
    #[track_caller]
    pub fn eq(&self, other: impl TensorOrNumber<T>) -> Tensor<bool> {
        zip_with("eq", self, &other.into_tensor(), |a, b| a == b)
    }

    /// `a != b`
    #[track_caller]
    pub fn ne(&self, other: impl TensorOrNumber<T>) -> Tensor<bool> {
        zip_with("ne", self, &other.into_tensor(), |a, b| a != b)
    }

    /// `a < b`
    #[track_caller]
    pub fn lt(&self, other: impl TensorOrNumber<T>) -> Tensor<bool> {
        zip_with("lt", self, &other.into_tensor(), |a, b| a < b)
    }

    /// `a <= b`
    #[track_caller]
    pub fn le(&self, other: impl TensorOrNumber<T>) -> Tensor<bool> {
        zip_with("le", self, &other.into_tensor(), |a, b| a <= b)
    }

    /// `a > b`
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let (a, b) = (Tensor::from([1.0f32, 2.0, f32::NAN]), Tensor::from([2.0, 2.0, 2.0]));
    /// assert_eq!(a.gt(&b).to_vec(), [false, false, false]);
    /// assert_eq!(a.gt(1.0).to_vec(), [false, true, false]); // or a number
    /// ```
    #[track_caller]
    pub fn gt(&self, other: impl TensorOrNumber<T>) -> Tensor<bool> {
        zip_with("gt", self, &other.into_tensor(), |a, b| a > b)
    }

    /// `a >= b`
    #[track_caller]
    pub fn ge(&self, other: impl TensorOrNumber<T>) -> Tensor<bool> {
        zip_with("ge", self, &other.into_tensor(), |a, b| a >= b)
    }

    /// The elements as another type, by the rules of Rust's `as`: floats to integers cut
    /// towards zero and saturate; to `bool`, "not zero"; from `bool`, 0 and 1.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let x = Tensor::from([1.9f32, -2.5]);
    /// assert_eq!(x.cast::<i64>().to_vec(), [1, -2]);
    /// ```
    #[track_caller]
    pub fn cast<U: Element>(&self) -> Tensor<U>
    where
        T: Cast<U>,
    {
        map_slices("cast", self, &T::cast_all)
    }
}

/// # Kinds of floats
impl<T: Float> Tensor<T> {
    /// Where elements are NaN.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let x = Tensor::from([1.0f32, f32::NAN, f32::INFINITY]);
    /// assert_eq!(x.isnan().to_vec(), [false, true, false]);
    /// ```
    #[doc(alias = "is_nan")]
    #[track_caller]
    pub fn isnan(&self) -> Tensor<bool> {
        map_with("isnan", self, T::is_nan)
    }

    /// Where elements are infinite, of either sign.
    #[doc(alias = "is_infinite")]
    #[track_caller]
    pub fn isinf(&self) -> Tensor<bool> {
        map_with("isinf", self, |x| x == T::INFINITY || x == T::NEG_INFINITY)
    }

    /// Where elements are finite: neither NaN nor infinite.
    #[doc(alias = "is_finite")]
    #[track_caller]
    pub fn isfinite(&self) -> Tensor<bool> {
        map_with("isfinite", self, |x| T::NEG_INFINITY < x && x < T::INFINITY)
    }
}

/// A conversion between element types, see [`Tensor::cast`].
pub trait Cast<U>: Copy {
    /// The converted value.
    fn cast(self) -> U;

    /// Converts the elements of a slice.
    fn cast_all(x: &[Self], out: &mut [U]) {
        for (y, &x) in out.iter_mut().zip(x) {
            *y = x.cast();
        }
    }
}

macro_rules! casts {
    ($($from:ty => $($to:ident $(by $all:ident)?),+;)+) => {$($(
        impl Cast<$to> for $from {
            fn cast(self) -> $to {
                self as $to
            }

            $(fn cast_all(x: &[$from], out: &mut [$to]) {
                $all(x, out);
            })?
        }
    )+
        impl Cast<bool> for $from {
            fn cast(self) -> bool {
                self != <$from as Element>::ZERO
            }
        }

        impl Cast<$from> for bool {
            fn cast(self) -> $from {
                if self { <$from as Element>::ONE } else { <$from as Element>::ZERO }
            }
        }
    )+};
}

casts! {
    f32 => f32, f64, i64 by cast_floats, u32;
    f64 => f32, f64, i64 by cast_floats, u32;
    i64 => f32, f64, i64, u32;
    u32 => f32, f64, i64, u32;
}

/// The integer part of a number whose magnitude is below 2⁵¹, in arithmetic that every CPU has for vectors.
#[inline(always)]
fn truncated(x: f64) -> i64 {
    // The sum has no bits for the fraction, so it is rounded to the nearest integer.
    const SHIFT: f64 = 6_755_399_441_055_744.0; // 1.5 · 2⁵²
    let sum = x + SHIFT;
    let (nearest, as_float) = (sum.to_bits().wrapping_sub(SHIFT.to_bits()) as i64, sum - SHIFT);
    let above = i64::from((as_float > x) & (x > 0.0));
    let below = i64::from((as_float < x) & (x < 0.0));
    nearest - above + below
}

/// Casts floats, which are usually so small that the loop can be vectorised.
fn cast_floats<F: Float + Cast<i64>>(x: &[F], out: &mut [i64]) {
    let limit = F::from_f64(2_251_799_813_685_248.0); // 2⁵¹
    let are_small = vectorized(
        settings::level(),
        inlined!(|| {
            let (x, mut all) = (&x[..out.len()], true);
            for i in 0..out.len() {
                all &= (-limit < x[i]) & (x[i] < limit);
            }
            if all {
                for i in 0..out.len() {
                    out[i] = truncated(x[i].to_f64());
                }
            }
            all
        }),
    );
    if !are_small {
        out.iter_mut().zip(x).for_each(|(y, &x)| *y = x.cast());
    }
}

impl Cast<bool> for bool {
    fn cast(self) -> bool {
        self
    }
}
