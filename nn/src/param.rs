//! Parameters: the tensors that training changes.

use retrograd_autograd::{GradientKey, Id, Var};
use retrograd_tensor::{Real, Shape, Tensor, par};
use std::cell::Cell;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, LockResult, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::sync::{TryLockError, TryLockResult};

/// A tensor that an optimiser may change. Clones are the same parameter: that is how weights
/// are tied.
///
/// [`Param::var`] is a leaf of the graph, always with the same identity. Changes go through
/// copy-on-write, so a graph that was built before a change does not see it.
pub struct Param<T: Real = f32>(Arc<Inner<T>>);

struct Inner<T: Real> {
    leaf: RwLock<Var<T>>,
    /// The thread that holds the lock for writing, see [`this_thread`]; 0 if none does.
    writer: AtomicU64,
    id: Id,
    shape: Shape,
    trainable: AtomicBool,
}

thread_local! {
    static MADE: Cell<usize> = const { Cell::new(0) };
    static THREAD: u64 = {
        static COUNTER: AtomicU64 = AtomicU64::new(1);
        COUNTER.fetch_add(1, Relaxed)
    };
}

/// A number of this thread, from 1.
fn this_thread() -> u64 {
    THREAD.with(|&n| n)
}

/// How many parameters this thread has made, for [`crate::testing`].
pub(crate) fn made_on_this_thread() -> usize {
    MADE.get()
}

impl<T: Real> Param<T> {
    /// A new parameter.
    pub fn new(value: Tensor<T>) -> Param<T> {
        MADE.set(MADE.get() + 1);
        let leaf = Var::leaf(value);
        let (id, shape) = (leaf.id().expect("leaves have an id"), *leaf.shape());
        Param(Arc::new(Inner {
            leaf: RwLock::new(leaf),
            writer: AtomicU64::new(0),
            id,
            shape,
            trainable: AtomicBool::new(true),
        }))
    }

    /// The lock is not reentrant: this thread would wait for itself.
    #[track_caller]
    fn refuse_reentry(&self, method: &str) {
        // Relaxed: a thread always sees what it has stored itself, and no other stores its number.
        assert!(
            self.0.writer.load(Relaxed) != this_thread(),
            "Param::{method}: this thread is in the middle of changing the parameter (hint: the \
             closure given to `update` must not use it; take what it needs before, and gradients \
             by `grads.get(&param)`; nor must other tasks of the thread pool that it waits in)"
        );
    }

    #[track_caller]
    fn read(&self, method: &str) -> RwLockReadGuard<'_, Var<T>> {
        self.refuse_reentry(method);
        locked(|| self.0.leaf.try_read(), || self.0.leaf.read())
    }

    #[track_caller]
    fn write(&self, method: &str) -> Writing<'_, T> {
        self.refuse_reentry(method);
        let leaf = locked(|| self.0.leaf.try_write(), || self.0.leaf.write());
        self.0.writer.store(this_thread(), Relaxed);
        Writing { leaf, writer: &self.0.writer }
    }

    /// The parameter as a variable: a leaf, or a constant while it is frozen.
    ///
    /// # Panics
    /// Within [`Param::update`] of this parameter.
    #[track_caller]
    pub fn var(&self) -> Var<T> {
        let leaf = self.read("var");
        if self.is_trainable() { leaf.clone() } else { leaf.detach() }
    }

    /// The current value.
    ///
    /// # Panics
    /// Within [`Param::update`] of this parameter.
    #[track_caller]
    pub fn value(&self) -> Tensor<T> {
        self.read("value").value().clone()
    }

    /// The sizes of the axes.
    pub fn shape(&self) -> Shape {
        self.0.shape
    }

    /// The identity under which [`Gradients`](retrograd_autograd::Gradients) keep the
    /// gradient.
    pub fn id(&self) -> Id {
        self.0.id
    }

    /// Replaces the value.
    ///
    /// # Panics
    /// If the shape differs, or within [`Param::update`] of this parameter.
    #[track_caller]
    pub fn set(&self, value: Tensor<T>) {
        let mut leaf = self.write("set");
        *leaf = leaf.with_value(value);
    }

    /// Changes the value in place, or in a copy if a graph still uses it.
    ///
    /// The parameter is locked while `f` runs: other threads that want its value wait, and `f`
    /// itself must not ask for it. Shape, identity and gradient of the parameter are no secret:
    ///
    /// ```
    /// use retrograd_nn::Param;
    /// use retrograd_tensor::Tensor;
    ///
    /// let p = Param::new(Tensor::from([1.0f32, 2.0]));
    /// let grads = p.var().square().sum(..).backward();
    /// p.update(|w| w.add_assign(&(grads.get(&p).unwrap() * -0.25)));
    /// assert_eq!(p.value().to_vec(), [0.5, 1.0]);
    /// ```
    ///
    /// `f` itself must not ask for it on another thread either, where it would wait for ever. While `f`
    /// waits for work that it has shared out, the thread may run a rayon task of another part of the
    /// program. If that task asks for the same parameter, it panics as `f` would: it would wait for
    /// itself. The same is true of the step of an optimiser, so let the tasks of one pool either step or
    /// use the model.
    ///
    /// # Panics
    /// If `f` leaves another shape behind, or within [`Param::update`] of the same parameter.
    #[track_caller]
    pub fn update<R>(&self, f: impl FnOnce(&mut Tensor<T>) -> R) -> R {
        let mut leaf = self.write("update");
        let shape = self.shape();
        let result = f(leaf.leaf_value_mut());
        assert!(*leaf.shape() == shape, "update: {shape:?} has become {:?}", leaf.shape());
        result
    }

    /// Changes the values of many parameters at once, as [`Param::update`] does one.
    ///
    /// # Panics
    /// As [`Param::update`]; or if a parameter is given twice.
    #[track_caller]
    pub(crate) fn update_all<R>(
        params: &[&Param<T>],
        f: impl FnOnce(Vec<&mut Tensor<T>>) -> R,
    ) -> R {
        // Always locked in the order of their ids, so that two threads cannot wait for each
        // other.
        let mut order: Vec<usize> = (0..params.len()).collect();
        order.sort_by_key(|&i| params[i].id());
        let twice = order.windows(2).any(|w| params[w[0]].id() == params[w[1]].id());
        assert!(!twice, "update_all: a parameter is given twice");
        let mut leaves: Vec<_> = order.iter().map(|&i| (i, params[i].write("update"))).collect();
        leaves.sort_by_key(|&(i, _)| i);
        f(leaves.iter_mut().map(|(_, leaf)| leaf.leaf_value_mut()).collect())
    }

    /// Lets another variable stand for the parameter, and returns the one that did.
    pub(crate) fn swap(&self, var: Var<T>) -> Var<T> {
        std::mem::replace(&mut *self.write("swap"), var)
    }

    /// Whether it is trained: true until it is frozen.
    pub fn is_trainable(&self) -> bool {
        self.0.trainable.load(Relaxed)
    }

    /// Freezes it (`false`) or has it trained again (`true`).
    pub fn set_trainable(&self, trainable: bool) {
        self.0.trainable.store(trainable, Relaxed);
    }
}

/// A lock, once it is free. A thread of the pool does not just wait for it: whoever has locked the
/// parameter may have shared out the work on it, which then needs this thread.
fn locked<G>(try_lock: impl Fn() -> TryLockResult<G>, lock: impl FnOnce() -> LockResult<G>) -> G {
    loop {
        match try_lock() {
            Ok(guard) => return guard,
            Err(TryLockError::Poisoned(e)) => return e.into_inner(),
            Err(TryLockError::WouldBlock) if par::yield_to_pool() => {}
            Err(TryLockError::WouldBlock) => return lock().unwrap_or_else(|e| e.into_inner()),
        }
    }
}

/// The lock of a parameter, held for writing.
struct Writing<'a, T: Real> {
    leaf: RwLockWriteGuard<'a, Var<T>>,
    writer: &'a AtomicU64,
}

impl<T: Real> Deref for Writing<'_, T> {
    type Target = Var<T>;
    fn deref(&self) -> &Var<T> {
        &self.leaf
    }
}

impl<T: Real> DerefMut for Writing<'_, T> {
    fn deref_mut(&mut self) -> &mut Var<T> {
        &mut self.leaf
    }
}

/// Also when a closure panics. The lock, a field, is released afterwards.
impl<T: Real> Drop for Writing<'_, T> {
    fn drop(&mut self) {
        self.writer.store(0, Relaxed);
    }
}

/// Also while it is frozen.
impl<T: Real> GradientKey<T> for Param<T> {
    fn gradient_id(&self) -> Option<Id> {
        Some(self.id())
    }
}

impl<T: Real> Clone for Param<T> {
    fn clone(&self) -> Self {
        Param(self.0.clone())
    }
}

impl<T: Real> fmt::Debug for Param<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let frozen = if self.is_trainable() { "" } else { ", frozen" };
        write!(f, "Param({}{:?}{frozen})", T::DTYPE, self.shape())
    }
}
