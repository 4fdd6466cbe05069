//! Observation of a computation: what is told of the memory that it uses and the kernels that it runs.
//!
//! An [`Observer`] is called by the thread that does the work, while a closure runs in
//! [`with_observer`](crate::settings::with_observer). It does not change any result. If the process has
//! no observer, a report costs one read of a static variable.

mod kernel;

pub use kernel::{KernelCall, RunningCall, Size};

use std::any::Any;
use std::cell::Cell;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

/// What is told of a computation. Every method does nothing by default.
///
/// A method may compute with tensors: it is called without an observer, so that is not reported.
pub trait Observer: Any + Send + Sync {
    /// A block of so many bytes at an address is used from now on. The size is that of the block's class,
    /// as in [`PoolStats::live`](crate::storage::PoolStats::live).
    fn allocated(&self, _address: usize, _bytes: usize) {}

    /// A block is no longer used.
    fn freed(&self, _address: usize, _bytes: usize) {}

    /// The driver of a kernel was called, and has ended.
    fn kernel(&self, _call: &KernelCall) {}
}

/// The observer of a scope that has not ended: its place in [`SCOPES`], plus 1; or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ObserverId(NonZeroUsize);

impl ObserverId {
    /// Nothing is reported, not even to the observer of the process.
    const NONE: ObserverId = ObserverId(NonZeroUsize::MAX);
}

/// The observer of a scope, and those of the scopes around it.
struct Scope {
    observer: Arc<dyn Observer>,
    outer: Option<Arc<Scope>>,
    /// Whether it began where nothing is reported, so that only its own observer is told.
    is_isolated: bool,
}

/// The scopes that have not ended.
static SCOPES: RwLock<Vec<Option<Arc<Scope>>>> = RwLock::new(Vec::new());
/// The observer of threads without one of their own.
static DEFAULT: OnceLock<Arc<dyn Observer>> = OnceLock::new();
/// The number of observers in the process; 1 more until the environment has been read, which may request
/// one.
static OBSERVERS: AtomicUsize = AtomicUsize::new(1);

thread_local! {
    /// The observer of the scope that this thread is in.
    static CURRENT: Cell<Option<ObserverId>> = const { Cell::new(None) };
}

/// Sets the observer of threads that are in no scope of [`with_observer`](crate::settings::with_observer),
/// once in a process; `false` if it was set before. It is for observers that an environment variable
/// requests.
///
/// ```standalone_crate
/// use retrograd_tensor::observe::{Observer, is_observed, set_default_observer};
/// use std::sync::Arc;
/// struct Nothing;
/// impl Observer for Nothing {}
/// assert!(set_default_observer(Arc::new(Nothing)) && is_observed());
/// assert!(!set_default_observer(Arc::new(Nothing)));
/// ```
pub fn set_default_observer(observer: Arc<dyn Observer>) -> bool {
    let is_first = DEFAULT.set(observer).is_ok();
    OBSERVERS.fetch_add(usize::from(is_first), Relaxed);
    is_first
}

/// Whether the observer of the process was set.
pub(crate) fn has_default_observer() -> bool {
    DEFAULT.get().is_some()
}

/// Whether this thread has an observer.
///
/// ```
/// assert!(!retrograd_tensor::observe::is_observed());
/// ```
#[inline]
pub fn is_observed() -> bool {
    OBSERVERS.load(Relaxed) > 0 && has_observer()
}

#[cold]
fn has_observer() -> bool {
    match CURRENT.get() {
        Some(id) => id != ObserverId::NONE,
        None => has_default_observer(),
    }
}

/// Whether there may be an observer: the process has one, or the environment has not been read.
#[inline]
pub(crate) fn may_be_observed() -> bool {
    OBSERVERS.load(Relaxed) > 0
}

/// Notes that the environment has been read, and its observer set. To be called once.
pub(crate) fn environment_was_read() {
    OBSERVERS.fetch_sub(1, Relaxed);
}

/// Notes that the kernel that is running on this thread has distributed its work to so many threads.
#[inline]
pub(crate) fn distributed(threads: impl FnOnce() -> usize) {
    if may_be_observed() {
        kernel::distributed(threads());
    }
}

/// Tells the observers of this thread, if there are any: the innermost first, and that of the process last.
///
/// ```
/// use retrograd_tensor::observe::{KernelCall, report};
/// use retrograd_tensor::{DType, Shape, trace::trace};
/// let call = KernelCall::new("mine", "loop", DType::F32, Shape::from([2]));
/// let (_, trace) = trace(|| report(|observer| observer.kernel(&call)));
/// assert_eq!(trace.calls()[0].operation, "mine");
/// ```
#[inline]
pub fn report(f: impl Fn(&dyn Observer)) {
    if is_observed() {
        report_to_all(f);
    }
}

#[cold]
fn report_to_all(f: impl Fn(&dyn Observer)) {
    struct Restore(Option<ObserverId>);
    impl Drop for Restore {
        fn drop(&mut self) {
            CURRENT.set(self.0);
        }
    }
    let scope = innermost();
    // Neither this thread nor those that it distributes work to report what the observers do.
    let _restore = Restore(CURRENT.replace(Some(ObserverId::NONE)));
    let (mut next, mut is_isolated) = (scope.as_ref(), false);
    while let Some(scope) = next {
        f(&*scope.observer);
        (next, is_isolated) = (scope.outer.as_ref(), scope.is_isolated);
    }
    if let Some(default) = DEFAULT.get().filter(|_| !is_isolated) {
        f(&**default);
    }
}

/// The innermost scope that this thread is in.
fn innermost() -> Option<Arc<Scope>> {
    match CURRENT.get() {
        None | Some(ObserverId::NONE) => None,
        Some(ObserverId(place)) => {
            let scopes = SCOPES.read().unwrap_or_else(PoisonError::into_inner);
            scopes[place.get() - 1].clone()
        }
    }
}

/// The innermost observer of this thread.
///
/// ```
/// use retrograd_tensor::observe::{Observer, current};
/// use retrograd_tensor::settings::with_observer;
/// use std::sync::Arc;
/// struct Nothing;
/// impl Observer for Nothing {}
/// assert!(with_observer(Arc::new(Nothing), current).is_some());
/// ```
pub fn current() -> Option<Arc<dyn Observer>> {
    match CURRENT.get() {
        None => DEFAULT.get().cloned(),
        Some(_) => innermost().map(|scope| scope.observer.clone()),
    }
}

#[inline]
pub(crate) fn current_id() -> Option<ObserverId> {
    // A thread is in the scope of an observer only if there is one.
    if may_be_observed() { CURRENT.get() } else { None }
}

#[inline]
pub(crate) fn set_current(id: Option<ObserverId>) {
    CURRENT.set(id);
}

/// The scope of an observer. It ends when this value is dropped.
pub(crate) struct Open(ObserverId);

impl Open {
    pub(crate) fn new(observer: Arc<dyn Observer>) -> Open {
        let is_isolated = CURRENT.get() == Some(ObserverId::NONE);
        let scope = Scope { observer, outer: innermost(), is_isolated };
        let mut scopes = SCOPES.write().unwrap_or_else(PoisonError::into_inner);
        let free = scopes.iter().position(Option::is_none);
        let place = free.unwrap_or_else(|| {
            scopes.push(None);
            scopes.len() - 1
        });
        scopes[place] = Some(Arc::new(scope));
        OBSERVERS.fetch_add(1, Relaxed);
        Open(ObserverId(NonZeroUsize::MIN.saturating_add(place)))
    }

    pub(crate) fn id(&self) -> ObserverId {
        self.0
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let mut scopes = SCOPES.write().unwrap_or_else(PoisonError::into_inner);
        let scope = scopes[self.0.0.get() - 1].take();
        drop(scopes);
        OBSERVERS.fetch_sub(1, Relaxed);
        drop(scope);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::with_observer;
    use crate::{Tensor, par, with_threads};

    #[derive(Default)]
    struct Bytes {
        allocated: AtomicUsize,
        freed: AtomicUsize,
    }

    impl Observer for Bytes {
        fn allocated(&self, _: usize, bytes: usize) {
            self.allocated.fetch_add(bytes, Relaxed);
            // Not reported, neither from here nor from other threads.
            par::shards(2, |_| Tensor::<f32>::zeros([100]));
        }
        fn freed(&self, _: usize, bytes: usize) {
            self.freed.fetch_add(bytes, Relaxed);
        }
    }

    #[test]
    fn memory_is_reported_from_all_threads_of_the_scope() {
        let bytes = Arc::new(Bytes::default());
        let observer = bytes.clone();
        with_threads(3, || {
            with_observer(observer, || {
                par::shards(3, |_| drop(Tensor::<f32>::zeros([1024])));
                drop(Tensor::<f32>::zeros([16]));
            })
        });
        assert_eq!(bytes.allocated.load(Relaxed), 3 * 4096 + 64);
        assert_eq!(bytes.freed.load(Relaxed), 3 * 4096 + 64);
        assert!(!is_observed());
    }

    #[test]
    fn scopes_nest_and_end_after_a_panic() {
        let all = [(); 2].map(|()| Arc::new(Bytes::default()));
        with_observer(all[0].clone(), || {
            let panicked = std::panic::catch_unwind(|| {
                with_observer(all[1].clone(), || {
                    drop(Tensor::<f32>::zeros([16]));
                    panic!("inside")
                })
            });
            assert!(panicked.is_err());
            assert!(is_observed());
            drop(Tensor::<f32>::zeros([32]));
        });
        // The outer one is told of both.
        assert_eq!(all.each_ref().map(|o| o.freed.load(Relaxed)), [192, 64]);
        assert!(!is_observed());
        assert_eq!(Arc::strong_count(&all[0]), 1);
    }
}
