//! Parameters: the tensors that training changes.

use retrograd_autograd::{Id, Var};
use retrograd_tensor::{Real, Shape, Tensor};
use std::cell::Cell;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// A tensor that an optimiser may change. Clones are the same parameter: that is how weights
/// are tied.
///
/// [`Param::var`] is a leaf of the graph, always with the same identity. Changes go through
/// copy-on-write, so a graph that was built before a change does not see it.
pub struct Param<T: Real = f32>(Arc<Inner<T>>);

struct Inner<T: Real> {
    leaf: RwLock<Var<T>>,
    id: Id,
    trainable: AtomicBool,
}

thread_local! {
    static MADE: Cell<usize> = const { Cell::new(0) };
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
        let id = leaf.id().expect("leaves have an id");
        Param(Arc::new(Inner { leaf: RwLock::new(leaf), id, trainable: AtomicBool::new(true) }))
    }

    fn read(&self) -> RwLockReadGuard<'_, Var<T>> {
        self.0.leaf.read().unwrap_or_else(|e| e.into_inner())
    }

    fn write(&self) -> RwLockWriteGuard<'_, Var<T>> {
        self.0.leaf.write().unwrap_or_else(|e| e.into_inner())
    }

    /// The parameter as a variable: a leaf, or a constant while it is frozen.
    pub fn var(&self) -> Var<T> {
        let leaf = self.read();
        if self.is_trainable() { leaf.clone() } else { leaf.detach() }
    }

    /// The current value.
    pub fn value(&self) -> Tensor<T> {
        self.read().value().clone()
    }

    /// The sizes of the axes.
    pub fn shape(&self) -> Shape {
        *self.read().shape()
    }

    /// The identity under which [`Gradients`](retrograd_autograd::Gradients) keep the
    /// gradient.
    pub fn id(&self) -> Id {
        self.0.id
    }

    /// Replaces the value.
    ///
    /// # Panics
    /// If the shape differs.
    #[track_caller]
    pub fn set(&self, value: Tensor<T>) {
        let mut leaf = self.write();
        *leaf = leaf.with_value(value);
    }

    /// Changes the value in place, or in a copy if a graph still uses it.
    ///
    /// `f` must not use the parameter itself: it is locked.
    ///
    /// # Panics
    /// If `f` leaves another shape behind.
    #[track_caller]
    pub fn update<R>(&self, f: impl FnOnce(&mut Tensor<T>) -> R) -> R {
        let mut leaf = self.write();
        let shape = *leaf.shape();
        let result = f(leaf.leaf_value_mut());
        assert!(*leaf.shape() == shape, "update: {shape:?} has become {:?}", leaf.shape());
        result
    }

    /// Changes the values of many parameters at once, as [`Param::update`] does one.
    ///
    /// # Panics
    /// As [`Param::update`]; or if a parameter is given twice.
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
        let mut leaves: Vec<_> = order.iter().map(|&i| (i, params[i].write())).collect();
        leaves.sort_by_key(|&(i, _)| i);
        f(leaves.iter_mut().map(|(_, leaf)| leaf.leaf_value_mut()).collect())
    }

    /// Lets another variable stand for the parameter, and returns the one that did.
    pub(crate) fn swap(&self, var: Var<T>) -> Var<T> {
        std::mem::replace(&mut *self.write(), var)
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
