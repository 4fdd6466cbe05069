//! The settings of a thread: what scopes change for as long as a closure runs.
//!
//! There are four scopes: [`with_level`](crate::simd::with_level),
//! [`with_matmul_precision`](crate::with_matmul_precision), [`with_grad_enabled`], of which
//! `no_grad` of the autograd crate is the common case, and [`par::alone`](crate::par::alone). A scope
//! holds for the thread that enters it and for the work that tensor operations,
//! [`par`](crate::par) and [`with_threads`](crate::with_threads) share out from inside. The scope ends
//! when its closure returns or panics.
//!
//! # Rayon tasks
//!
//! A thread that waits for work that it shared out may run other tasks of its pool in the meantime.
//! It does so in the default settings: gradients enabled, precision `F32`, the level that
//! `RETROGRAD_SIMD` or the CPU gives. So a scope never reaches the tasks of somebody else.
//!
//! A program that calls rayon itself (`par_iter`, `join`, `scope`, `spawn`) enters scopes *inside*
//! its tasks, not around the call:
//!
//! * A task begins in the default settings, not in those of the thread that made it. Only the thread
//!   that made the tasks runs its share of them in its own settings.
//! * A thread that waits in a call of rayon keeps its settings. Any task that it runs meanwhile runs
//!   in them.
//!
//! [`par::map`](crate::par::map), [`par::each`](crate::par::each) and
//! [`par::shards`](crate::par::shards) have neither problem.

use crate::precision::MatmulPrecision;
use crate::simd::Level;
use std::cell::Cell;

/// All settings. They are one value, so that none is forgotten where they are handed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    /// `None` is the level of the process.
    pub(crate) level: Option<Level>,
    pub(crate) precision: MatmulPrecision,
    /// Whether operations on variables are recorded. Nothing in this crate reads it.
    pub(crate) grad: bool,
    /// Whether the thread does all work itself.
    pub(crate) alone: bool,
}

thread_local! {
    static HERE: Cell<Settings> = const { Cell::new(Settings::DEFAULT) };
}

impl Settings {
    /// What a thread begins with.
    pub(crate) const DEFAULT: Settings =
        Settings { level: None, precision: MatmulPrecision::F32, grad: true, alone: false };

    /// Those of this thread.
    #[inline]
    pub(crate) fn here() -> Settings {
        HERE.get()
    }

    /// Runs `f` in these settings, and then restores those that were in force, also if `f` panics.
    pub(crate) fn run<R>(self, f: impl FnOnce() -> R) -> R {
        struct Restore(Settings);
        impl Drop for Restore {
            fn drop(&mut self) {
                HERE.set(self.0);
            }
        }
        let _restore = Restore(HERE.replace(self));
        f()
    }
}

/// Whether operations on variables on this thread are recorded: what the innermost
/// [`with_grad_enabled`] says, else true.
#[inline]
pub fn grad_enabled() -> bool {
    Settings::here().grad
}

/// Runs `f` with operations on variables recorded, or not recorded, whatever was in force before:
/// PyTorch's `torch.set_grad_enabled(enabled)` as a context manager. May be nested; a panic
/// restores what was in force.
///
/// The autograd crate reads the setting. It is kept here, so that threads that share work pass it on
/// like every other.
///
/// ```
/// use retrograd_tensor::settings::{grad_enabled, with_grad_enabled};
/// assert!(grad_enabled());
/// with_grad_enabled(false, || {
///     assert!(!grad_enabled());
///     assert!(with_grad_enabled(true, grad_enabled));
/// });
/// ```
pub fn with_grad_enabled<R>(enabled: bool, f: impl FnOnce() -> R) -> R {
    Settings { grad: enabled, ..Settings::here() }.run(f)
}
