//! The precision of `f32` matrix multiplication.

use std::fmt;
use std::str::FromStr;

/// The precision in which `f32` matrices may be multiplied.
///
/// Some CPUs multiply `bf16` matrices (`bf16` is the upper half of an `f32`, with 8 significant
/// bits) many times faster than `f32` matrices. An `f32` is the sum of three `bf16` terms, each the
/// rounding error of the terms before it. The product of two `f32` numbers is then a sum of
/// products of terms, from which the smallest can be omitted (split precision). Sums are always
/// accumulated in `f32`.
///
/// | precision | terms | products | relative error of a product of two factors | PyTorch's name |
/// |---|---|---|---|---|
/// | `F32` | | | none: it is fused into the sum | `"highest"` |
/// | `Bf16x6` | 3 | 6 | at most 2⁻²⁴ | |
/// | `Bf16x3` | 2 | 3 | at most 2⁻¹⁵ | `"high"` |
/// | `Bf16` | 1 | 1 | at most 2⁻⁷ | `"medium"` |
///
/// With three terms results are as accurate as with `F32`; their bits differ. A row of a product
/// depends neither on threads nor on other rows.
///
/// The range is smaller than that of `F32`: factors, terms and sums below 2⁻¹²⁶ are flushed to 0,
/// so factors below 2⁻¹¹⁰ lose terms; and rounding up can overflow within 2⁻⁷ of the largest
/// number. Non-finite factors give the same results as with `F32`.
///
/// The precision is a permission. It applies to products with at least 16 columns and 16 terms per
/// sum, on an x86-64 CPU with AMX, under Linux, at level [`Avx512`](crate::simd::Level::Avx512).
/// All other products, and tiled attention, are computed in `F32`. See
/// [`MatmulPrecision::is_supported`].
///
/// Reference: Henry, Tang and Heinecke 2019, Leveraging the bfloat16 Artificial Intelligence
/// Datatype For Higher-Precision Computations, arXiv 1904.06376.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MatmulPrecision {
    /// Fused multiply-adds of `f32`: equal bits on all CPUs that have them.
    #[default]
    F32,
    /// Three terms, the six largest products.
    Bf16x6,
    /// Two terms, the three largest products.
    Bf16x3,
    /// Factors rounded to `bf16`.
    Bf16,
}

impl MatmulPrecision {
    /// All precisions, from the highest to the lowest.
    pub const ALL: [MatmulPrecision; 4] = [
        MatmulPrecision::F32,
        MatmulPrecision::Bf16x6,
        MatmulPrecision::Bf16x3,
        MatmulPrecision::Bf16,
    ];

    /// The name, in lower case.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// assert_eq!(MatmulPrecision::F32.name(), "f32");
    /// ```
    pub fn name(self) -> &'static str {
        match self {
            MatmulPrecision::F32 => "f32",
            MatmulPrecision::Bf16x6 => "bf16x6",
            MatmulPrecision::Bf16x3 => "bf16x3",
            MatmulPrecision::Bf16 => "bf16",
        }
    }
}

impl fmt::Display for MatmulPrecision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A text that is not the name of a [`MatmulPrecision`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownPrecision(String);

impl fmt::Display for UnknownPrecision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = MatmulPrecision::ALL.iter().map(|p| p.name()).collect();
        write!(f, "{:?} is not a matmul precision (one of: {})", self.0, names.join(", "))
    }
}

impl std::error::Error for UnknownPrecision {}

impl FromStr for MatmulPrecision {
    type Err = UnknownPrecision;

    fn from_str(text: &str) -> Result<Self, UnknownPrecision> {
        let named = MatmulPrecision::ALL.into_iter().find(|p| p.name() == text);
        named.ok_or_else(|| UnknownPrecision(text.to_owned()))
    }
}
