//! Which instruction set to use: detected once, lowered by `RETROGRAD_SIMD` or for one thread.

use crate::settings::Settings;
use std::fmt::{self, Display};
use std::str::FromStr;
use std::sync::OnceLock;

/// An instruction set that kernels are compiled for, from plainest to widest.
///
/// [`Level::Avx2`] stands for AVX2 and FMA; [`Level::Avx512`] for these and AVX-512 F, BW, DQ
/// and VL. Results on all levels but [`Level::Scalar`] have equal bits, unless another
/// [`MatmulPrecision`](crate::MatmulPrecision) than `F32` is allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// Portable code, left to the compiler; multiplies and adds are not fused.
    Scalar,
    /// 64-bit Arm.
    Neon,
    /// x86-64 with AVX2 and FMA.
    Avx2,
    /// x86-64 with AVX-512 F, BW, DQ and VL.
    Avx512,
}

impl Level {
    const ALL: [Level; 4] = [Level::Scalar, Level::Neon, Level::Avx2, Level::Avx512];

    /// The name used by `RETROGRAD_SIMD`: `scalar`, `neon`, `avx2` or `avx512`.
    pub fn name(self) -> &'static str {
        match self {
            Level::Scalar => "scalar",
            Level::Neon => "neon",
            Level::Avx2 => "avx2",
            Level::Avx512 => "avx512",
        }
    }

    /// Whether this CPU can run the level.
    pub fn is_available(self) -> bool {
        match self {
            Level::Scalar => true,
            #[cfg(target_arch = "aarch64")]
            Level::Neon => super::neon::Neon::detect().is_some(),
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => super::avx2::Avx2::detect().is_some(),
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => super::avx512::Avx512::detect().is_some(),
            _ => false,
        }
    }

    /// All levels this CPU can run, [`Level::Scalar`] first and the best last.
    pub fn available() -> Vec<Level> {
        Level::ALL.into_iter().filter(|l| l.is_available()).collect()
    }
}

impl Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The text names no level, or one that this CPU does not have.
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

/// `level` if it is among `available`, else the message that says what is.
fn require(level: Level, available: &[Level]) -> Result<Level, LevelError> {
    if available.contains(&level) {
        return Ok(level);
    }
    Err(LevelError(format!("{level} is not supported by this CPU (has: {})", list(available))))
}

/// The level for a value of `RETROGRAD_SIMD`: the best one if it is unset or empty.
fn choose(request: Option<&str>, available: &[Level]) -> Result<Level, LevelError> {
    match request.map(str::trim) {
        None | Some("") => Ok(available.iter().copied().max().unwrap_or(Level::Scalar)),
        Some(text) => Level::from_str(text)
            .and_then(|level| require(level, available))
            .map_err(|LevelError(why)| LevelError(format!("RETROGRAD_SIMD={why}"))),
    }
}

/// The level in force: that of the innermost [`with_level`] on this thread, else the best one
/// the CPU has, lowered by the environment variable `RETROGRAD_SIMD`
/// (`scalar`, `neon`, `avx2` or `avx512`), which is read once.
///
/// Tensor operations take it along to the threads that they share work out to. Threads and rayon
/// tasks that a program starts itself begin with the default; see [`settings`](crate::settings).
///
/// # Panics
/// If `RETROGRAD_SIMD` names no level, or one that this CPU does not have.
pub fn level() -> Level {
    static DEFAULT: OnceLock<Level> = OnceLock::new();
    Settings::here().level.unwrap_or_else(|| {
        *DEFAULT.get_or_init(|| {
            let request =
                std::env::var_os("RETROGRAD_SIMD").map(|v| v.to_string_lossy().into_owned());
            choose(request.as_deref(), &Level::available()).unwrap_or_else(|e| panic!("{e}"))
        })
    })
}

/// Runs `f` with [`level`] answering `level` on this thread; for tests and comparisons. See
/// [`settings`](crate::settings) for what this means in rayon tasks.
///
/// # Panics
/// If this CPU does not have the level.
///
/// # Example
/// ```
/// use retrograd_tensor::simd::{Level, level, with_level};
/// assert_eq!(with_level(Level::Scalar, level), Level::Scalar);
/// ```
#[track_caller]
pub fn with_level<R>(level: Level, f: impl FnOnce() -> R) -> R {
    if let Err(e) = require(level, &Level::available()) {
        panic!("with_level: {e}");
    }
    Settings { level: Some(level), ..Settings::here() }.run(f)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        for l in Level::ALL {
            assert_eq!(l.name().parse(), Ok(l));
            assert_eq!(l.to_string(), l.name());
        }
        assert!("sse9".parse::<Level>().is_err());
    }

    #[test]
    fn the_environment_lowers_and_never_raises() {
        let has = [Level::Scalar, Level::Avx2];
        assert_eq!(choose(None, &has), Ok(Level::Avx2));
        assert_eq!(choose(Some(" "), &has), Ok(Level::Avx2));
        assert_eq!(choose(Some("scalar"), &has), Ok(Level::Scalar));
        let text = |r: &str| choose(Some(r), &has).unwrap_err().to_string();
        assert_eq!(
            text("avx512"),
            "RETROGRAD_SIMD=avx512 is not supported by this CPU (has: scalar, avx2)"
        );
        assert_eq!(
            text("fast"),
            "RETROGRAD_SIMD=fast is not a SIMD level (one of: scalar, neon, avx2, avx512)"
        );
    }

    #[test]
    fn overrides_nest_and_end_with_a_panic() {
        let before = level();
        for l in Level::available() {
            with_level(l, || {
                assert_eq!(level(), l);
                with_level(Level::Scalar, || assert_eq!(level(), Level::Scalar));
                assert_eq!(level(), l);
            });
        }
        let panicked = std::panic::catch_unwind(|| with_level(Level::Scalar, || panic!("inside")));
        assert!(panicked.is_err());
        assert_eq!(level(), before);
    }

    #[test]
    fn a_missing_level_is_refused() {
        let absent = if cfg!(target_arch = "x86_64") { Level::Neon } else { Level::Avx2 };
        let refused = std::panic::catch_unwind(|| with_level(absent, || ()));
        let text = *refused.unwrap_err().downcast::<String>().unwrap();
        assert!(text.contains("is not supported by this CPU (has: scalar"), "{text}");
    }
}
