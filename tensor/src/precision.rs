//! How exactly products of `f32` matrices are made.

use crate::settings::Settings;
use std::fmt;
use std::str::FromStr;

/// What a product of `f32` matrices may be made of.
///
/// Some CPUs multiply matrices of `bf16` (the upper half of an `f32`, 8 significant bits) many
/// times faster than those of `f32`. An `f32` is the sum of three such terms, of which the second
/// is what rounding to the first has left, and so on. So the product of two is a sum of products
/// of terms, and those of the smallest terms can be left out. What is added up is always `f32`.
///
/// | precision | terms | products | error of a product of factors, relative, at most | PyTorch's name |
/// |---|---|---|---|---|
/// | `F32` | | | none: it is fused into the sum | `"highest"` |
/// | `Bf16x6` | 3 | 6 | 2⁻²⁴ | |
/// | `Bf16x3` | 2 | 3 | 2⁻¹⁵ | `"high"` |
/// | `Bf16` | 1 | 1 | 2⁻⁷ | `"medium"` |
///
/// With three terms results are as near to the exact ones as with `F32`; their bits differ. A row
/// of a product depends neither on threads nor on other rows.
///
/// The range is smaller: whatever is below 2⁻¹²⁶ counts as 0, be it a factor, a term or a sum, so
/// factors below 2⁻¹¹⁰ lose terms; and rounding up can overflow within 2⁻⁷ of the largest number.
/// Factors that are not finite give what they give with `F32`.
///
/// It is a permission: made so are products with at least 16 columns and 16 terms in a sum, on an
/// x86-64 CPU with AMX, under Linux, at level [`Avx512`](crate::simd::Level::Avx512); all others,
/// and attention in tiles, remain `F32`. See [`MatmulPrecision::is_supported`].
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
    /// All, from the most exact on.
    pub const ALL: [MatmulPrecision; 4] = [
        MatmulPrecision::F32,
        MatmulPrecision::Bf16x6,
        MatmulPrecision::Bf16x3,
        MatmulPrecision::Bf16,
    ];

    /// Its name in lower case.
    pub fn name(self) -> &'static str {
        match self {
            MatmulPrecision::F32 => "f32",
            MatmulPrecision::Bf16x6 => "bf16x6",
            MatmulPrecision::Bf16x3 => "bf16x3",
            MatmulPrecision::Bf16 => "bf16",
        }
    }

    /// Whether products are made so here and now, or as with `F32`.
    ///
    /// The first question (or product) asks Linux for room for tile registers, for as long as the
    /// process lives. From then on signal stacks (`sigaltstack`) of less than about 12 KB are
    /// refused; where there is one already, so is the room. Rust's own are large enough.
    pub fn is_supported(self) -> bool {
        self == MatmulPrecision::F32 || crate::gemm::has_bf16()
    }
}

impl fmt::Display for MatmulPrecision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Not the name of a [`MatmulPrecision`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownPrecision(String);

impl fmt::Display for UnknownPrecision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown precision {:?}; there are", self.0)?;
        MatmulPrecision::ALL.iter().try_for_each(|p| write!(f, " {p}"))
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

/// The precision in force: that of the innermost [`with_matmul_precision`], else `F32`.
pub fn matmul_precision() -> MatmulPrecision {
    Settings::here().precision
}

/// Runs `f` with products of `f32` matrices made as `precision` allows; those of backward passes,
/// too, if they run inside. It holds for this thread, and for work that tensor operations share
/// out; threads and rayon tasks that `f` starts itself begin with `F32`, see
/// [`settings`](crate::settings).
///
/// ```
/// use retrograd_tensor::random::Rng;
/// use retrograd_tensor::{MatmulPrecision, Tensor, with_matmul_precision};
/// let a: Tensor<f32> = Tensor::randn([64, 64], &mut Rng::new(1));
/// let exact = a.cast::<f64>().matmul(&a.cast());
/// let b = with_matmul_precision(MatmulPrecision::Bf16x6, || a.matmul(&a));
/// assert!(b.cast::<f64>().sub(&exact).abs().max(..).item() < 1e-5);
/// ```
pub fn with_matmul_precision<R>(precision: MatmulPrecision, f: impl FnOnce() -> R) -> R {
    Settings { precision, ..Settings::here() }.run(f)
}
