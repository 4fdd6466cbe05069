//! The window through which a program is watched: an [`Observer`] receives every [`Event`].
//!
//! An observer is called by the thread that does the work, while a closure runs in
//! [`with_observer`](crate::settings::with_observer), or for the whole process ([`observe_process`]). Several
//! may watch at once. They do not change results, except by an experiment on attention (below). Without an observer, a report costs one read of a static
//! variable.
//!
//! Observers with a purpose are in the study crate: records of passes, traces of kernels, summaries, pages.
//!
//! | event | reported by |
//! |---|---|
//! | memory allocated, freed | `storage.rs` |
//! | a kernel's call | its driver, by `observe::begin` and `end` |
//! | a parallel region, its tasks, a span; only if an observer asks for them | `par.rs`, `observe/region.rs` |
//! | a shard begins, ends | `sharded`, `DataParallel` |
//! | the forward pass of a module begins, ends | `Call` in `nn/src/module.rs` |
//! | `GraphEvent<T>`: operation, rule, gradient, pass | `Var::from_op` and the engine, in `autograd/src/observe/mod.rs` |
//! | `AttentionEvent<T>`, which an observer may change: an experiment | `nn/src/attention/engine/observe.rs` |
//!
//! Events of crates above this one are `Event::Other(&dyn Any)`, which an observer downcasts for f32 and f64. They
//! own clones of variables and nodes, which are made only if somebody watches. What a report needs is taken in cold
//! functions: a branch that borrows a variable, or moves it a second time, costs a copy of a variable on the way
//! without an observer.

mod kernel;
mod module;
mod region;

pub use kernel::{KernelCall, RunningCall, Size, begin, end};
pub use module::{ModulePart, ModuleParts, ModuleStart, OpenModule};
pub use region::{Divide, Division, Region, Span, shard, span};
pub(crate) use region::{region, region_with, task};

use crate::shape::Shape;
use std::any::Any;
use std::cell::Cell;
use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, PoisonError, RwLock};

/// An event of a computation.
///
/// What begins on a thread ends on it, and the events of a thread nest: an observer that needs the state of
/// a thread keeps a stack for each.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub enum Event<'a> {
    /// A block of memory is used from now on. The size is the size of the block's class, as in
    /// [`PoolStats::live`](crate::storage::PoolStats::live).
    Allocated {
        /// The address of the block.
        address: usize,
        /// Its size.
        bytes: usize,
    },
    /// A block is no longer used.
    Freed {
        /// The address of the block.
        address: usize,
        /// Its size.
        bytes: usize,
    },
    /// The driver of a kernel was called, and has ended.
    Kernel(&'a KernelCall),
    /// A parallel region begins. This event and the next five are reported only if an observer
    /// [asks](Observer::sees_regions) for them.
    RegionBegan(&'a Region),
    /// The region has ended.
    RegionEnded(&'a Region),
    /// A task of a region begins, on any thread.
    TaskBegan(&'a Region),
    /// The task has ended.
    TaskEnded(&'a Region),
    /// A [`span`] begins.
    SpanBegan(&'static str),
    /// The span has ended.
    SpanEnded,
    /// A [`shard`] of a computation begins.
    ShardBegan(usize),
    /// The shard has ended.
    ShardEnded,
    /// The forward pass of a module begins.
    ModuleBegan(&'a ModuleStart<'a>),
    /// The forward pass has ended; the shape of its output, unless it panicked or has none.
    ModuleEnded(Option<&'a Shape>),
    /// What another crate reports: a `GraphEvent<f32>` of the autograd crate, for example.
    Other(&'a dyn Any),
}

/// A subscriber to the events of a computation.
///
/// ```
/// use retrograd::prelude::*;
/// use retrograd::tensor::{observe::{Event, Observer}, settings::with_observer};
/// use std::sync::{Arc, Mutex};
///
/// #[derive(Default)]
/// struct Kernels(Mutex<Vec<&'static str>>);
///
/// impl Observer for Kernels {
///     fn event(&self, event: &Event<'_>) {
///         if let Event::Kernel(call) = event {
///             self.0.lock().unwrap().push(call.operation);
///         }
///     }
/// }
///
/// let (x, kernels) = (Tensor::<f32>::ones([8]), Arc::new(Kernels::default()));
/// with_observer(kernels.clone(), || x.exp().sum(..));
/// assert_eq!(*kernels.0.lock().unwrap(), ["exp", "sum"]);
/// ```
pub trait Observer: Send + Sync {
    /// Something has happened on this thread. The method may compute with tensors: it is called without an
    /// observer, so that is not reported.
    fn event(&self, event: &Event<'_>);

    /// Whether parallel regions, tasks and spans are reported, too. Each takes some 0.1 microseconds longer
    /// then.
    fn sees_regions(&self) -> bool {
        false
    }
}

/// The observer of a scope that has not ended: its place in [`SCOPES`], plus 1; or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ObserverId(NonZeroUsize);

impl ObserverId {
    /// Nothing is reported, not even to the observers of the process.
    pub(crate) const NONE: ObserverId = ObserverId(NonZeroUsize::MAX);
}

/// The observer of a scope, and the observers of the scopes around it.
struct Scope {
    observer: Arc<dyn Observer>,
    outer: Option<Arc<Scope>>,
    /// Whether it began where nothing is reported, so that only its own observer receives events.
    is_isolated: bool,
    /// Whether parallel regions are reported for its observer.
    sees_regions: bool,
}

impl Scope {
    fn tell(&self, event: &Event<'_>) {
        if !std::thread::panicking() {
            return self.observer.event(event);
        }
        // While a panic drops tensors, another one would abort the process.
        drop(catch_unwind(AssertUnwindSafe(|| self.observer.event(event))));
    }
}

/// The scopes that have not ended.
static SCOPES: RwLock<Vec<Option<Arc<Scope>>>> = RwLock::new(Vec::new());
/// The observers of the process, the last one first.
static PROCESS: RwLock<Option<Arc<Scope>>> = RwLock::new(None);
/// Whether there is one of the process.
static IS_PROCESS_OBSERVED: AtomicBool = AtomicBool::new(false);
/// The number of all observers.
static OBSERVERS: AtomicUsize = AtomicUsize::new(0);
/// The number of observers that ask for regions.
static SEE_REGIONS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// The observer of the scope that this thread is in.
    static CURRENT: Cell<Option<ObserverId>> = const { Cell::new(None) };
}

/// Adds an observer of the whole process. It receives the events of all threads from now on, after the observers of
/// the scopes of [`with_observer`](crate::settings::with_observer).
///
/// ```standalone_crate
/// use retrograd::tensor::observe::{Event, Observer, is_observed, observe_process};
/// use std::sync::Arc;
/// struct Nothing;
/// impl Observer for Nothing {
///     fn event(&self, _: &Event<'_>) {}
/// }
/// observe_process(Arc::new(Nothing));
/// assert!(is_observed());
/// ```
pub fn observe_process(observer: Arc<dyn Observer>) {
    let sees_regions = observer.sees_regions();
    let mut process = PROCESS.write().unwrap_or_else(PoisonError::into_inner);
    let outer = process.take();
    *process = Some(Arc::new(Scope { observer, outer, is_isolated: false, sees_regions }));
    IS_PROCESS_OBSERVED.store(true, Relaxed);
    SEE_REGIONS.fetch_add(usize::from(sees_regions), Relaxed);
    OBSERVERS.fetch_add(1, Relaxed);
}

fn of_process() -> Option<Arc<Scope>> {
    if !IS_PROCESS_OBSERVED.load(Relaxed) {
        return None;
    }
    PROCESS.read().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Whether this thread has an observer.
#[inline]
pub fn is_observed() -> bool {
    may_be_observed() && has_observer()
}

/// Whether the process has an observer.
#[inline]
pub(crate) fn may_be_observed() -> bool {
    OBSERVERS.load(Relaxed) > 0
}

#[cold]
fn has_observer() -> bool {
    match CURRENT.get() {
        Some(id) => id != ObserverId::NONE,
        None => IS_PROCESS_OBSERVED.load(Relaxed),
    }
}

/// Whether this thread has an observer, and any sees regions.
#[inline]
fn regions_are_observed() -> bool {
    SEE_REGIONS.load(Relaxed) > 0 && has_observer()
}

/// Notes that the kernel that is running on this thread has distributed its work to so many threads.
#[inline]
pub(crate) fn distributed(threads: impl FnOnce() -> usize) {
    if may_be_observed() {
        kernel::distributed(threads());
    }
}

/// Passes an event to the observers of this thread, if there are any: the innermost first, and the observers of the process last.
///
/// ```
/// use retrograd::tensor::{observe::{Event, Observer, report}, settings::with_observer};
/// use std::sync::{Arc, Mutex};
///
/// struct Words(Mutex<Vec<&'static str>>);
/// impl Observer for Words {
///     fn event(&self, event: &Event<'_>) {
///         if let Event::Other(any) = event {
///             self.0.lock().unwrap().extend(any.downcast_ref::<&'static str>());
///         }
///     }
/// }
///
/// let words = Arc::new(Words(Mutex::default()));
/// with_observer(words.clone(), || report(|tell| tell(&Event::Other(&"now"))));
/// assert_eq!(*words.0.lock().unwrap(), ["now"]);
/// ```
#[inline]
pub fn report(event: impl FnOnce(&dyn Fn(&Event<'_>))) {
    if is_observed() {
        report_cold(event);
    }
}

#[cold]
#[inline(never)]
fn report_cold(event: impl FnOnce(&dyn Fn(&Event<'_>))) {
    event(&tell);
}

#[cold]
fn tell(event: &Event<'_>) {
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
        scope.tell(event);
        (next, is_isolated) = (scope.outer.as_ref(), scope.is_isolated);
    }
    let process = if is_isolated { None } else { of_process() };
    let mut next = process.as_ref();
    while let Some(scope) = next {
        scope.tell(event);
        next = scope.outer.as_ref();
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
        let sees_regions = observer.sees_regions();
        SEE_REGIONS.fetch_add(usize::from(sees_regions), Relaxed);
        let scope = Scope { observer, outer: innermost(), is_isolated, sees_regions };
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
        let sees_regions = scope.as_ref().is_some_and(|scope| scope.sees_regions);
        SEE_REGIONS.fetch_sub(usize::from(sees_regions), Relaxed);
        drop(scope);
    }
}
