//! Variables: tensors that remember where they came from.

use crate::node::{Backward, Needs, Node};
use retrograd_tensor::settings::{grad_enabled, with_grad_enabled};
use retrograd_tensor::{Real, Shape, Tensor};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The age of a leaf or node: later ones have larger ids, in the whole process.
///
/// An operation is made after its inputs, so walking ids downwards visits every consumer
/// before its inputs. That is all the topological sorting there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Id(u64);

impl Id {
    pub(crate) fn next() -> Id {
        static COUNTER: AtomicU64 = AtomicU64::new(0);
        Id(COUNTER.fetch_add(1, Relaxed))
    }

    /// Its place in the order of making.
    pub fn number(self) -> u64 {
        self.0
    }
}

/// Where a variable came from.
pub(crate) enum Edge<T: Real> {
    /// From nowhere that matters: no gradient flows here.
    Constant,
    /// From the user, who wants its gradient.
    Leaf(Id),
    /// From an operation.
    Node(Arc<Node<T>>),
}

impl<T: Real> Clone for Edge<T> {
    fn clone(&self) -> Self {
        match self {
            Edge::Constant => Edge::Constant,
            Edge::Leaf(id) => Edge::Leaf(*id),
            Edge::Node(node) => Edge::Node(node.clone()),
        }
    }
}

/// A tensor in a computation: its value, and how to send a gradient back to where it came
/// from.
///
/// [`Var::leaf`] makes one that gradients are wanted of; operations on it make tracked ones;
/// operations on constants only make constants. Nothing leaves the graph silently:
/// [`Var::value`] and [`Var::detach`] say so.
///
/// ```
/// use retrograd_autograd::Var;
/// use retrograd_tensor::Tensor;
///
/// let x = Var::leaf(Tensor::from([1.0f32, 2.0, 3.0]));
/// let y = x.square().sum(..);
/// let grads = y.backward();
/// assert_eq!(grads.get(&x).unwrap().to_vec(), [2.0, 4.0, 6.0]);
/// ```
#[derive(Clone)]
pub struct Var<T: Real = f32> {
    value: Tensor<T>,
    edge: Edge<T>,
}

impl<T: Real> Var<T> {
    /// A variable whose gradient is wanted.
    pub fn leaf(value: Tensor<T>) -> Var<T> {
        Var { value, edge: Edge::Leaf(Id::next()) }
    }

    /// A variable without history or gradient.
    pub fn constant(value: Tensor<T>) -> Var<T> {
        Var { value, edge: Edge::Constant }
    }

    /// A constant of rank 0.
    pub fn scalar(x: T) -> Var<T> {
        Var::constant(Tensor::scalar(x))
    }

    pub(crate) fn with_edge(value: Tensor<T>, edge: Edge<T>) -> Var<T> {
        Var { value, edge }
    }

    /// The result `value` of an operation on `inputs`, and how to differentiate it.
    ///
    /// `op` is called only if some input is tracked. It is told which are
    /// ([`Needs`]), so that it saves no more than the backward pass will use.
    /// This is how every operation of this crate is made, and how users make their own:
    ///
    /// ```
    /// use retrograd_autograd::{Backward, Cx, Grads, Var};
    /// use retrograd_tensor::Tensor;
    ///
    /// /// y = 3x
    /// fn triple(x: &Var) -> Var {
    ///     Var::from_op(x.value() * 3.0, &[x], |_| Triple)
    /// }
    ///
    /// #[derive(Debug)]
    /// struct Triple;
    ///
    /// impl Backward<f32> for Triple {
    ///     fn name(&self) -> &'static str {
    ///         "triple"
    ///     }
    ///     fn backward(&self, _: &Cx<'_, f32>, g: &Var) -> Grads<f32> {
    ///         vec![Some(triple(g))]
    ///     }
    /// }
    ///
    /// let x = Var::leaf(Tensor::scalar(5.0));
    /// assert_eq!(triple(&x).backward().get(&x).unwrap().item(), 3.0);
    /// ```
    pub fn from_op<B: Backward<T>>(
        value: Tensor<T>,
        inputs: &[&Var<T>],
        op: impl FnOnce(Needs<'_, T>) -> B,
    ) -> Var<T> {
        let needs = Needs(inputs);
        if !needs.any() || !grad_enabled() {
            return Var::constant(value);
        }
        Var::recorded(value, inputs, op(needs))
    }

    /// The result of an operation that is recorded: compiled for each rule in the crate that first
    /// uses it, and the rule with it.
    #[inline(never)]
    fn recorded<B: Backward<T>>(value: Tensor<T>, inputs: &[&Var<T>], op: B) -> Var<T> {
        let node = Node::new(inputs, *value.shape(), Arc::new(op));
        Var { value, edge: Edge::Node(Arc::new(node)) }
    }

    /// The tensor, without history.
    pub fn value(&self) -> &Tensor<T> {
        &self.value
    }

    /// The tensor, without history.
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

    /// The only element.
    ///
    /// # Panics
    /// If there is not exactly one.
    #[track_caller]
    pub fn item(&self) -> T {
        self.value.item()
    }

    /// The same value as a constant: gradients stop here.
    pub fn detach(&self) -> Var<T> {
        Var::constant(self.value.clone())
    }

    /// The result of an operation that has nothing to do: itself, or a constant where nothing
    /// is recorded.
    pub(crate) fn unchanged(&self) -> Var<T> {
        if grad_enabled() { self.clone() } else { self.detach() }
    }

    /// Whether gradients flow back through this variable.
    pub fn is_tracked(&self) -> bool {
        !matches!(self.edge, Edge::Constant)
    }

    /// The identity under which gradients of this variable are kept; `None` of a constant.
    pub fn id(&self) -> Option<Id> {
        match &self.edge {
            Edge::Constant => None,
            Edge::Leaf(id) => Some(*id),
            Edge::Node(node) => Some(node.id()),
        }
    }

    pub(crate) fn edge(&self) -> &Edge<T> {
        &self.edge
    }

    /// The operation that made it, if it is tracked and no leaf.
    pub fn node(&self) -> Option<&Arc<Node<T>>> {
        match &self.edge {
            Edge::Node(node) => Some(node),
            _ => None,
        }
    }
}

impl<T: Real> Var<T> {
    /// The same leaf with another value: an optimiser's step.
    ///
    /// # Panics
    /// If this is not a leaf or the shape differs.
    #[track_caller]
    pub fn with_value(&self, value: Tensor<T>) -> Var<T> {
        assert!(matches!(self.edge, Edge::Leaf(_)), "with_value: only a leaf can be given a value");
        assert!(
            value.shape() == self.shape(),
            "with_value: the variable is {:?}, the new value {:?}",
            self.shape(),
            value.shape()
        );
        Var { value, edge: self.edge.clone() }
    }

    /// Mutable access to a leaf's tensor, for updates in place; the tensor copies itself if
    /// a graph still uses it.
    #[track_caller]
    pub fn leaf_value_mut(&mut self) -> &mut Tensor<T> {
        assert!(!matches!(self.edge, Edge::Node(_)), "leaf_value_mut: not a leaf");
        &mut self.value
    }
}

impl<T: Real> From<Tensor<T>> for Var<T> {
    fn from(value: Tensor<T>) -> Self {
        Var::constant(value)
    }
}

impl<T: Real> fmt::Debug for Var<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.value)?;
        match &self.edge {
            Edge::Constant => Ok(()),
            Edge::Leaf(_) => f.write_str(" leaf"),
            Edge::Node(node) => write!(f, " from {}", node.name()),
        }
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
/// use retrograd_autograd::{Var, no_grad, with_threads};
/// use retrograd_tensor::Tensor;
/// let x = Var::leaf(Tensor::scalar(2.0f32));
/// assert!(!no_grad(|| x.exp()).is_tracked());
/// assert!(!no_grad(|| with_threads(2, || x.exp())).is_tracked());
/// assert!(with_threads(2, || x.exp()).is_tracked());
/// ```
pub fn no_grad<R>(f: impl FnOnce() -> R) -> R {
    with_grad_enabled(false, f)
}
