//! Settings of a thread, changed by scopes that hold while a closure runs.
//!
//! There are five scopes: [`with_level`], [`with_matmul_precision`], [`with_grad_enabled`]
//! (`no_grad` of the autograd crate is the common case),
//! [`par::single_threaded`](crate::par::single_threaded) and [`with_observer`]. A scope applies to the thread that enters
//! it and to the work that tensor operations, [`par`](crate::par) and
//! [`with_threads`](crate::with_threads) distribute from inside it. It ends when its closure
//! returns or panics.
//!
//! # Rayon tasks
//!
//! A thread that is blocked until its distributed work is done may execute other tasks of its pool
//! in the meantime. It does so in the default settings: gradients enabled, precision `F32`, the
//! level from `RETROGRAD_SIMD` or the CPU. So a scope never affects unrelated tasks.
//!
//! A program that calls rayon itself (`par_iter`, `join`, `scope`, `spawn`) must enter scopes
//! *inside* its tasks, not around the call:
//!
//! * A task starts in the default settings, not in the settings of the thread that spawned it. Only the
//!   tasks that the spawning thread executes itself run in its settings.
//! * A thread that is blocked in a rayon call keeps its settings. Any task that it executes
//!   meanwhile runs in them.
//!
//! [`par::map`](crate::par::map), [`par::each`](crate::par::each) and
//! [`par::shards`](crate::par::shards) have neither limitation.

use crate::observe::{self, Observer, ObserverId};
use crate::precision::MatmulPrecision;
use crate::simd::Level;
use std::cell::Cell;
use std::sync::{Arc, OnceLock};

/// All settings, in one value, so that distributed work inherits every one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    /// `None` is the default level of the process.
    pub(crate) level: Option<Level>,
    pub(crate) precision: MatmulPrecision,
    /// Whether operations on variables are recorded. Only the autograd crate reads it.
    pub(crate) grad: bool,
    /// Whether the thread distributes no work.
    pub(crate) single_threaded: bool,
    /// The number of shards that share the threads, this one included.
    pub(crate) sharing: usize,
    /// The observer of this thread, whose variable is in the layer below.
    pub(crate) observer: Option<ObserverId>,
}

thread_local! {
    static CURRENT: Cell<Settings> = const { Cell::new(Settings::DEFAULT) };
}

impl Settings {
    /// The initial settings of a thread.
    pub(crate) const DEFAULT: Settings = Settings {
        level: None,
        precision: MatmulPrecision::F32,
        grad: true,
        single_threaded: false,
        sharing: 1,
        observer: None,
    };

    /// The settings of this thread.
    #[inline]
    pub(crate) fn current() -> Settings {
        Settings { observer: observe::current_id(), ..CURRENT.get() }
    }

    /// Runs `f` in these settings and restores the previous ones, also if `f` panics.
    pub(crate) fn run<R>(self, f: impl FnOnce() -> R) -> R {
        struct Restore(Settings);
        impl Drop for Restore {
            fn drop(&mut self) {
                CURRENT.set(self.0);
                observe::set_current(self.0.observer);
            }
        }
        let _restore = Restore(Settings::current());
        CURRENT.set(self);
        observe::set_current(self.observer);
        f()
    }
}

/// The SIMD level of this thread: the level of the innermost [`with_level`], else the default of the
/// process, [`Level::from_environment`], which is read once.
///
/// Tensor operations pass it on to the threads that they distribute work to. Threads and rayon
/// tasks that a program starts itself begin with the default; see [`settings`](self).
///
/// # Panics
/// If [`Level::from_environment`] is an error. A program that reports this error itself calls that
/// function first.
pub fn level() -> Level {
    static DEFAULT: OnceLock<Level> = OnceLock::new();
    let default = || Level::from_environment().unwrap_or_else(|error| panic!("{error}"));
    CURRENT.get().level.unwrap_or_else(|| *DEFAULT.get_or_init(default))
}

/// Runs `f` with kernels of another SIMD level; for tests and comparisons. See [`settings`](self)
/// for rayon tasks.
///
/// # Panics
/// If this CPU does not support the level.
///
/// # Example
/// ```
/// use retrograd::tensor::{settings::{level, with_level}, simd::Level};
/// assert_eq!(with_level(Level::Scalar, level), Level::Scalar);
/// ```
#[track_caller]
pub fn with_level<R>(level: Level, f: impl FnOnce() -> R) -> R {
    if let Err(error) = level.supported() {
        panic!("with_level: {error}");
    }
    Settings { level: Some(level), ..Settings::current() }.run(f)
}

/// The precision of `f32` matrix multiplication on this thread: set by the innermost
/// [`with_matmul_precision`], else `F32`.
pub fn matmul_precision() -> MatmulPrecision {
    CURRENT.get().precision
}

/// Runs `f` with `f32` matrices multiplied in `precision` where it is supported, including those of
/// backward passes that run inside. See [`settings`](self) for threads and rayon tasks that `f`
/// starts itself.
///
/// ```
/// use retrograd::prelude::*;
/// let a: Tensor<f32> = Tensor::randn([64, 64], &mut Rng::new(1));
/// let exact = a.cast::<f64>().matmul(&a.cast());
/// let b = with_matmul_precision(MatmulPrecision::Bf16x6, || a.matmul(&a));
/// assert!(b.cast::<f64>().sub(&exact).abs().max(..).item() < 1e-5);
/// ```
pub fn with_matmul_precision<R>(precision: MatmulPrecision, f: impl FnOnce() -> R) -> R {
    Settings { precision, ..Settings::current() }.run(f)
}

/// Whether operations on variables are recorded on this thread: the value of the innermost
/// [`with_grad_enabled`], else true.
#[inline]
pub fn grad_enabled() -> bool {
    CURRENT.get().grad
}

/// Runs `f` with recording of operations on variables enabled or disabled: PyTorch's
/// `torch.set_grad_enabled(enabled)` as a context manager. Scopes nest; a panic restores the
/// previous value.
///
/// The autograd crate reads this setting. It is defined here, so that distributed work inherits it
/// like every other setting.
///
/// ```
/// use retrograd::tensor::settings::{grad_enabled, with_grad_enabled};
/// assert!(grad_enabled());
/// with_grad_enabled(false, || {
///     assert!(!grad_enabled());
///     assert!(with_grad_enabled(true, grad_enabled));
/// });
/// ```
pub fn with_grad_enabled<R>(enabled: bool, f: impl FnOnce() -> R) -> R {
    Settings { grad: enabled, ..Settings::current() }.run(f)
}

/// Runs `f`, and passes its events to `observer`: on this thread, and on all threads that work is distributed to.
/// Observers of scopes around it are told as well.
pub fn with_observer<R>(observer: Arc<dyn Observer>, f: impl FnOnce() -> R) -> R {
    let open = observe::Open::new(observer);
    Settings { observer: Some(open.id()), ..Settings::current() }.run(f)
}
