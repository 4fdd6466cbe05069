//! Constructors and accessors of [`Var`], which is defined in `graph.rs`.

use crate::graph::{Edge, Id, Node, Var};
use retrograd_tensor::error::{ErrorKind, assert};
use retrograd_tensor::settings::{grad_enabled, with_grad_enabled};
use retrograd_tensor::{Real, Shape, Tensor};
use std::fmt;
use std::sync::Arc;

/// # Constructors and values
impl<T: Real> Var<T> {
    /// A leaf: a variable whose gradient a backward pass computes.
    #[track_caller]
    pub fn leaf(value: Tensor<T>) -> Var<T> {
        Var { value, edge: Edge::Leaf(Id::reserve(1)) }
    }

    /// A constant: a variable without a gradient.
    #[track_caller]
    pub fn constant(value: Tensor<T>) -> Var<T> {
        Var { value, edge: Edge::Constant }
    }

    /// A constant of rank 0.
    #[track_caller]
    pub fn scalar(x: T) -> Var<T> {
        Var::constant(Tensor::scalar(x))
    }

    /// The value. Operations on it are not recorded.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let x = Var::leaf(Tensor::from([1.0f32, 2.0]));
    /// let mean: Tensor = x.value().mean(..); // a tensor, which is not recorded
    /// assert_eq!(mean.item(), 1.5);
    /// ```
    pub fn value(&self) -> &Tensor<T> {
        &self.value
    }

    /// The value, without a copy.
    pub fn into_value(self) -> Tensor<T> {
        self.value
    }

    /// The sizes of the axes.
    pub fn shape(&self) -> &Shape {
        self.value.shape()
    }

    /// Number of axes.
    pub fn rank(&self) -> usize {
        self.value.rank()
    }

    /// The size of one axis; `-1` is the last.
    #[track_caller]
    pub fn size(&self, axis: isize) -> usize {
        self.value.size(axis)
    }

    /// The value of a variable with one element.
    ///
    /// # Panics
    /// If there is not exactly one.
    #[track_caller]
    pub fn item(&self) -> T {
        self.value.item()
    }

    /// The same value as a constant. No gradient is propagated through it.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let x = Var::leaf(Tensor::scalar(3.0f32));
    /// let y = &x * &x.detach(); // the second factor is a constant
    /// assert_eq!(y.backward().get(&x).unwrap().item(), 3.0);
    /// ```
    #[track_caller]
    pub fn detach(&self) -> Var<T> {
        Var::constant(self.value.clone())
    }

    /// The result of an identity: the variable itself, or a constant if gradients are disabled.
    #[track_caller]
    pub(crate) fn unchanged(&self) -> Var<T> {
        if grad_enabled() { self.clone() } else { self.detach() }
    }

    /// Whether it is a leaf, or computed from one: `requires_grad` in PyTorch.
    pub fn is_tracked(&self) -> bool {
        !matches!(self.edge, Edge::Constant)
    }

    /// The identity of a leaf or of an operation's result; `None` for a constant.
    pub fn id(&self) -> Option<Id> {
        self.edge.id()
    }

    /// The operation that computed it; `None` for a leaf or a constant.
    pub fn node(&self) -> Option<&Arc<Node<T>>> {
        self.edge.node()
    }
}

/// # Values of leaves
impl<T: Real> Var<T> {
    /// The same leaf with another value: an optimiser's step.
    ///
    /// # Panics
    /// If this is not a leaf or the shape differs.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let w = Var::leaf(Tensor::scalar(1.0f32));
    /// let step = w.with_value(Tensor::scalar(0.9));
    /// assert_eq!((step.id(), step.item()), (w.id(), 0.9));
    /// ```
    #[track_caller]
    pub fn with_value(&self, value: Tensor<T>) -> Var<T> {
        assert!(matches!(self.edge, Edge::Leaf(_)), "with_value: only a leaf can be given a value");
        let (old, new) = (self.shape(), value.shape());
        assert(old == new, "with_value", ErrorKind::Mismatch, || {
            format!("the variable is {old:?}, the new value {new:?}")
        });
        Var { value, edge: self.edge.clone() }
    }

    /// Mutable access to the value of a leaf, for updates in place. The tensor is copied first if a graph
    /// or another variable shares it.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let mut w = Var::leaf(Tensor::from([1.0f32, 2.0]));
    /// let y = w.square();
    /// w.leaf_value_mut().add_assign(&Tensor::from([10.0, 10.0]));
    /// assert_eq!(w.value().to_vec(), [11.0, 12.0]);
    /// assert_eq!(y.value().to_vec(), [1.0, 4.0]); // computed before
    /// ```
    #[track_caller]
    pub fn leaf_value_mut(&mut self) -> &mut Tensor<T> {
        assert!(!matches!(self.edge, Edge::Node(..)), "leaf_value_mut: not a leaf");
        &mut self.value
    }
}

impl<T: Real> From<Tensor<T>> for Var<T> {
    #[track_caller]
    fn from(value: Tensor<T>) -> Self {
        Var::constant(value)
    }
}

/// The value, and `leaf` or the operation that computed it. A precision, as in `{:.2}`, applies to the value.
///
/// ```
/// use retrograd::prelude::*;
/// let x = Var::leaf(Tensor::scalar(2.0f32));
/// assert_eq!(format!("{x}"), "tensor(2.) leaf");
/// assert_eq!(format!("{}", x.square()), "tensor(4.) from square");
/// assert_eq!(format!("{:.2}", x.sqrt()), "tensor(1.41) from sqrt");
/// ```
impl<T: Real> fmt::Display for Var<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match f.precision() {
            Some(digits) => write!(f, "{:.digits$}", self.value)?,
            None => write!(f, "{}", self.value)?,
        }
        match &self.edge {
            Edge::Constant => Ok(()),
            Edge::Leaf(_) => f.write_str(" leaf"),
            Edge::Node(node, _) => write!(f, " from {}", node.name()),
        }
    }
}

impl<T: Real> fmt::Debug for Var<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Runs `f` without recording: every result in it is a constant. May be nested; a panic
/// restores the state.
///
/// It holds for this thread, and for work that is shared out by tensor operations,
/// [`sharded`](crate::sharded) and [`with_threads`](crate::with_threads). Threads and rayon tasks
/// that `f` starts itself record as usual, see [`settings`](retrograd_tensor::settings): where
/// batches are evaluated by `par_iter`, `no_grad` belongs inside the closure that is given to it.
///
/// ```
/// use retrograd::prelude::*;
/// let x = Var::leaf(Tensor::scalar(2.0f32));
/// assert!(!no_grad(|| x.exp()).is_tracked());
/// assert!(!no_grad(|| with_threads(2, || x.exp())).is_tracked());
/// assert!(with_threads(2, || x.exp()).is_tracked());
/// ```
pub fn no_grad<R>(f: impl FnOnce() -> R) -> R {
    with_grad_enabled(false, f)
}
