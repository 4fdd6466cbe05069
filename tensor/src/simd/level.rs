//! SIMD levels: the instruction sets that kernels are compiled for.

use std::fmt::{self, Display};
use std::str::FromStr;

/// An instruction set that kernels are compiled for, from the narrowest to the widest.
///
/// [`Level::Avx2`] stands for AVX2 and FMA; [`Level::Avx512`] for these and AVX-512 F, BW, DQ
/// and VL. Results on these and [`Level::Neon`] have equal bits, unless another
/// [`MatmulPrecision`](crate::MatmulPrecision) than `F32` is allowed; so have those on [`Level::Scalar`] and
/// [`Level::Wasm128`], whose multiply-adds are not fused. (The bits of
/// a NaN may differ, and in `f64` the elementary functions are those of the target.)
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// Portable code; multiply-adds are not fused.
    Scalar,
    /// WebAssembly with `simd128`, if the module is compiled for it.
    Wasm128,
    /// 64-bit Arm.
    Neon,
    /// x86-64 with AVX2 and FMA.
    Avx2,
    /// x86-64 with AVX-512 F, BW, DQ and VL.
    Avx512,
}

impl Level {
    const ALL: [Level; 5] =
        [Level::Scalar, Level::Wasm128, Level::Neon, Level::Avx2, Level::Avx512];

    /// The name used by `RETROGRAD_SIMD`: `scalar`, `wasm128`, `neon`, `avx2` or `avx512`.
    pub fn name(self) -> &'static str {
        match self {
            Level::Scalar => "scalar",
            Level::Wasm128 => "wasm128",
            Level::Neon => "neon",
            Level::Avx2 => "avx2",
            Level::Avx512 => "avx512",
        }
    }

    /// Whether this CPU can run the level.
    pub fn is_available(self) -> bool {
        match self {
            Level::Scalar => true,
            Level::Wasm128 => cfg!(all(target_arch = "wasm32", target_feature = "simd128")),
            #[cfg(target_arch = "aarch64")]
            Level::Neon => super::neon::Neon::detect().is_some(),
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => super::avx2::Avx2::detect().is_some(),
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => super::avx512::Avx512::detect().is_some(),
            _ => false,
        }
    }

    /// Whether multiply-adds are fused: rounded once, and not after the multiplication, too.
    ///
    /// ```
    /// use retrograd::tensor::simd::Level;
    /// assert!(Level::Avx2.is_fused() && !Level::Scalar.is_fused());
    /// ```
    pub fn is_fused(self) -> bool {
        !matches!(self, Level::Scalar | Level::Wasm128)
    }

    /// All levels this CPU can run, [`Level::Scalar`] first and the best last.
    pub fn available() -> Vec<Level> {
        Level::ALL.into_iter().filter(|l| l.is_available()).collect()
    }

    /// The level that the environment variable `RETROGRAD_SIMD` (a [name](Level::name)) selects; the best one of this CPU if the variable is unset or empty.
    ///
    /// ```
    /// use retrograd::tensor::simd::Level;
    /// assert!(Level::from_environment().is_ok_and(Level::is_available));
    /// ```
    ///
    /// # Errors
    /// If the variable is not the name of a level, or names one that this CPU does not support.
    pub fn from_environment() -> Result<Level, LevelError> {
        let request = std::env::var_os("RETROGRAD_SIMD");
        let request = request.map(|value| value.to_string_lossy().into_owned());
        choose(request.as_deref(), &Level::available())
    }

    /// The level itself if this CPU supports it.
    pub(crate) fn supported(self) -> Result<Level, LevelError> {
        require(self, &Level::available())
    }
}

impl Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A text that is not the name of a level, or a level that this CPU does not support.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LevelError(String);

impl Display for LevelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for LevelError {}

impl FromStr for Level {
    type Err = LevelError;

    fn from_str(text: &str) -> Result<Level, LevelError> {
        Level::ALL.into_iter().find(|l| l.name() == text).ok_or_else(|| {
            LevelError(format!("{text} is not a SIMD level (one of: {})", list(&Level::ALL)))
        })
    }
}

fn list(levels: &[Level]) -> String {
    levels.iter().map(|l| l.name()).collect::<Vec<_>>().join(", ")
}

/// `level` if it is among `available`, else an error that lists the available ones.
fn require(level: Level, available: &[Level]) -> Result<Level, LevelError> {
    if available.contains(&level) {
        return Ok(level);
    }
    Err(LevelError(format!("{level} is not supported by this CPU (has: {})", list(available))))
}

/// The level for a value of `RETROGRAD_SIMD`: the best one if it is unset or empty.
pub fn choose(request: Option<&str>, available: &[Level]) -> Result<Level, LevelError> {
    match request.map(str::trim) {
        None | Some("") => Ok(available.iter().copied().max().unwrap_or(Level::Scalar)),
        Some(text) => Level::from_str(text)
            .and_then(|level| require(level, available))
            .map_err(|LevelError(why)| LevelError(format!("RETROGRAD_SIMD={why}"))),
    }
}
