//! Trainable parameters.

use retrograd_autograd::{GradientKey, Id, Var};
use retrograd_tensor::error::{ErrorKind, assert};
use retrograd_tensor::observe::{Event, report};
use retrograd_tensor::{Real, Shape, Tensor, par};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, LockResult, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::sync::{TryLockError, TryLockResult};

/// A trainable tensor. Clones share one parameter, which is how weights are tied.
///
/// [`Param::to_var`] is a leaf of the graph, always with the same identity. Updates are
/// copy-on-write, so they do not change graphs that were built before.
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
    static THREAD: u64 = {
        static COUNTER: AtomicU64 = AtomicU64::new(1);
        COUNTER.fetch_add(1, Relaxed)
    };
}

/// A number of this thread, from 1.
fn this_thread() -> u64 {
    THREAD.with(|&n| n)
}

/// A parameter was made. It is an [`Event::Other`], for [`crate::testing`].
pub(crate) struct ParamMade;

impl<T: Real> Param<T> {
    /// A new parameter.
    pub fn new(value: Tensor<T>) -> Param<T> {
        report(|tell| tell(&Event::Other(&ParamMade)));
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

    /// Checks that this thread does not hold the write lock, which is not reentrant: it would
    /// deadlock.
    #[track_caller]
    fn check_reentry(&self, method: &str) {
        // Relaxed: a thread always reads its own last store, and no other thread stores its number.
        assert!(
            self.0.writer.load(Relaxed) != this_thread(),
            "Param::{method}: this thread is in the middle of changing the parameter (hint: the \
             closure given to `update` must not use it; read the value before the call, and \
             gradients by `grads.get(&param)`; tasks of the same thread pool must not use it, either)"
        );
    }

    #[track_caller]
    fn read(&self, method: &str) -> RwLockReadGuard<'_, Var<T>> {
        self.check_reentry(method);
        locked(|| self.0.leaf.try_read(), || self.0.leaf.read())
    }

    #[track_caller]
    fn write(&self, method: &str) -> WriteGuard<'_, T> {
        self.check_reentry(method);
        let leaf = locked(|| self.0.leaf.try_write(), || self.0.leaf.write());
        self.0.writer.store(this_thread(), Relaxed);
        WriteGuard { leaf, param: &self.0 }
    }

    /// The parameter as a variable: a leaf, or a constant while it is frozen.
    ///
    /// # Panics
    /// Within [`Param::update`] of this parameter.
    #[track_caller]
    pub fn to_var(&self) -> Var<T> {
        let leaf = self.read("to_var");
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
    /// The parameter is locked while `f` runs: other threads that read its value block, and `f`
    /// must not read it. Shape, identity and gradient of the parameter are available:
    ///
    /// ```
    /// use retrograd::prelude::*;
    ///
    /// let p = Param::new(Tensor::from([1.0f32, 2.0]));
    /// let grads = p.to_var().square().sum(..).backward();
    /// p.update(|w| w.add_assign(&(grads.get(&p).unwrap() * -0.25)));
    /// assert_eq!(p.value().to_vec(), [0.5, 1.0]);
    /// ```
    ///
    /// `f` must not read the parameter on another thread either: it would deadlock. While `f` waits
    /// for parallel work of its own, the thread may run a rayon task of another part of the
    /// program. If that task reads the same parameter, it panics like a read in `f`. The same is
    /// true of the step of an optimiser, so the tasks of one thread pool should either step or use
    /// the model.
    ///
    /// # Panics
    /// If `f` changes the shape, and then all elements are NaN; or within [`Param::update`] of the same parameter.
    #[track_caller]
    pub fn update<R>(&self, f: impl FnOnce(&mut Tensor<T>) -> R) -> R {
        let mut leaf = self.write("update");
        let shape = self.shape();
        let result = f(leaf.leaf_value_mut());
        assert(*leaf.shape() == shape, "update", ErrorKind::Mismatch, || {
            format!("{shape:?} has become {:?}", leaf.shape())
        });
        result
    }

    /// Changes the values of many parameters at once, as [`Param::update`] does one.
    ///
    /// # Panics
    /// As [`Param::update`]; or if a parameter is given twice.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let (a, b) = (Param::new(Tensor::from([1.0])), Param::new(Tensor::from([2.0])));
    /// Param::update_all(&[&a, &b], |mut values| values.iter_mut().for_each(|x| **x = &**x * 2.0));
    /// assert_eq!((a.value().item(), b.value().item()), (2.0, 4.0));
    /// ```
    #[track_caller]
    pub fn update_all<R>(params: &[&Param<T>], f: impl FnOnce(Vec<&mut Tensor<T>>) -> R) -> R {
        let mut leaves = Param::write_all(params);
        let result = f(leaves.iter_mut().map(|leaf| leaf.leaf_value_mut()).collect());
        for (param, leaf) in params.iter().zip(&leaves) {
            let shape = param.shape();
            assert(*leaf.shape() == shape, "update_all", ErrorKind::Mismatch, || {
                format!("{shape:?} has become {:?}", leaf.shape())
            });
        }
        result
    }

    /// The locks of these parameters, in their order. Compiled once for all updates.
    #[inline(never)]
    #[track_caller]
    fn write_all<'a>(params: &[&'a Param<T>]) -> Vec<WriteGuard<'a, T>> {
        // Locked in the order of their ids, so that two threads cannot deadlock.
        let mut order: Vec<usize> = (0..params.len()).collect();
        order.sort_by_key(|&i| params[i].id());
        let twice = order.windows(2).any(|w| params[w[0]].id() == params[w[1]].id());
        assert(!twice, "update_all", ErrorKind::Value, || "a parameter is given twice".into());
        let mut leaves: Vec<_> = order.iter().map(|&i| (i, params[i].write("update"))).collect();
        leaves.sort_by_key(|&(i, _)| i);
        leaves.into_iter().map(|(_, leaf)| leaf).collect()
    }

    /// Replaces the variable of the parameter, and returns the previous one.
    pub(crate) fn swap(&self, var: Var<T>) -> Var<T> {
        std::mem::replace(&mut *self.write("swap"), var)
    }

    /// Whether the parameter is trained: true until it is frozen.
    pub fn is_trainable(&self) -> bool {
        self.0.trainable.load(Relaxed)
    }

    /// Freezes the parameter (`false`) or unfreezes it (`true`).
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let w = Param::new(Tensor::from([1.0f32, 2.0]));
    /// w.set_trainable(false);
    /// assert!(!w.to_var().is_tracked());
    /// ```
    pub fn set_trainable(&self, trainable: bool) {
        self.0.trainable.store(trainable, Relaxed);
    }
}

/// Acquires a lock. While it is taken, a thread of the pool runs other tasks: the holder of the
/// lock may have spawned tasks that need this thread.
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
struct WriteGuard<'a, T: Real> {
    leaf: RwLockWriteGuard<'a, Var<T>>,
    param: &'a Inner<T>,
}

impl<T: Real> Deref for WriteGuard<'_, T> {
    type Target = Var<T>;
    fn deref(&self) -> &Var<T> {
        &self.leaf
    }
}

impl<T: Real> DerefMut for WriteGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut Var<T> {
        &mut self.leaf
    }
}

/// Clears the writer, also during a panic, before the lock, a field, is released.
impl<T: Real> Drop for WriteGuard<'_, T> {
    fn drop(&mut self) {
        // The old value is gone: a copy of it would make every update one of a copy.
        if *self.leaf.shape() != self.param.shape {
            let nan = Tensor::scalar(T::from_f64(f64::NAN));
            *self.leaf.leaf_value_mut() = nan.broadcast_to(self.param.shape);
        }
        self.param.writer.store(0, Relaxed);
    }
}

/// The key of the gradient, also while the parameter is frozen.
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
