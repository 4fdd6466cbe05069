//! The graph: one node for each operation whose result is tracked.

use crate::var::{Edge, Id, Var};
use retrograd_tensor::{Real, Shape, Tensor};
use std::fmt::{self, Debug};
use std::sync::{Arc, Mutex};

/// How one operation sends a gradient back to its inputs.
///
/// The rule is written with ordinary operations on [`Var`]. In a first-order backward pass
/// all of them are constants, and nothing is recorded; when the pass itself is being
/// differentiated ([`Cx::recording`]), they carry on the graph.
///
/// The rule runs within [`no_grad`](crate::no_grad) in a first-order pass. If it shares out work of
/// its own, it does so by [`par`](retrograd_tensor::par) and not by rayon, which would run tasks of
/// others in that state; see [`settings`](retrograd_tensor::settings).
pub trait Backward<T: Real>: Debug + Send + Sync + 'static {
    /// The name of the operation.
    fn name(&self) -> &'static str;

    /// One gradient per input, in order, given that of the output; `None` where
    /// [`Cx::needs`] says it is not needed. Each has the shape of its input *or* a shape that
    /// the input broadcasts to: the engine sums out what was broadcast.
    fn backward(&self, cx: &Cx<'_, T>, grad: &Var<T>) -> Grads<T>;
}

/// One gradient per input of an operation.
pub type Grads<T> = Vec<Option<Var<T>>>;

/// Which inputs of an operation need a gradient.
#[derive(Clone, Copy, Debug)]
pub struct Needs<'a, T: Real>(pub(crate) &'a [&'a Var<T>]);

impl<T: Real> Needs<'_, T> {
    /// Whether input `i` does.
    pub fn at(self, i: usize) -> bool {
        self.0[i].is_tracked()
    }

    /// Whether any does.
    pub fn any(self) -> bool {
        self.0.iter().any(|x| x.is_tracked())
    }
}

/// An operation in the graph.
pub struct Node<T: Real> {
    id: Id,
    name: &'static str,
    shape: Shape,
    pub(crate) inputs: Vec<Input<T>>,
    /// Taken by the backward pass, so that what it saved is freed as the walk goes on.
    op: Mutex<Option<Arc<dyn Backward<T>>>>,
}

/// An input of an operation: where its gradient goes, and of what shape.
pub(crate) struct Input<T: Real> {
    pub(crate) edge: Edge<T>,
    pub(crate) shape: Shape,
}

impl<T: Real> Node<T> {
    pub(crate) fn new(inputs: &[&Var<T>], shape: Shape, op: Arc<dyn Backward<T>>) -> Node<T> {
        let input = |x: &&Var<T>| Input { edge: x.edge().clone(), shape: *x.shape() };
        Node {
            id: Id::next(),
            name: op.name(),
            shape,
            inputs: inputs.iter().map(input).collect(),
            op: Mutex::new(Some(op)),
        }
    }

    /// Its age.
    pub fn id(&self) -> Id {
        self.id
    }

    /// The name of the operation.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The shape of its result.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// The rule and what it saved; gone afterwards unless `keep`.
    pub(crate) fn take_op(&self, keep: bool) -> Option<Arc<dyn Backward<T>>> {
        let mut op = self.op.lock().unwrap_or_else(|e| e.into_inner());
        if keep { op.clone() } else { op.take() }
    }
}

impl<T: Real> Debug for Node<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?}", self.name, self.shape)
    }
}

/// A chain of a million nodes must not be a million nested drops: inputs that die with this
/// node are dropped in a loop.
impl<T: Real> Drop for Node<T> {
    fn drop(&mut self) {
        let mut dying = std::mem::take(&mut self.inputs);
        while let Some(input) = dying.pop() {
            if let Edge::Node(node) = input.edge
                && let Some(mut node) = Arc::into_inner(node)
            {
                dying.append(&mut node.inputs);
            }
        }
    }
}

/// What a backward rule may ask about the pass it runs in.
pub struct Cx<'a, T: Real> {
    pub(crate) node: &'a Arc<Node<T>>,
    pub(crate) recording: bool,
}

impl<T: Real> Cx<'_, T> {
    /// Whether the gradient of input `i` is needed.
    pub fn needs(&self, i: usize) -> bool {
        !matches!(self.node.inputs[i].edge, Edge::Constant)
    }

    /// Whether this pass is itself recorded, to be differentiated again. A rule with a fused
    /// kernel must then use differentiable operations instead.
    pub fn recording(&self) -> bool {
        self.recording
    }

    /// Number of inputs.
    pub fn inputs(&self) -> usize {
        self.node.inputs.len()
    }

    /// The shape of input `i`.
    pub fn input_shape(&self, i: usize) -> &Shape {
        &self.node.inputs[i].shape
    }

    /// Input `i`, from its saved value: connected to the graph if the pass is recorded.
    pub fn input(&self, i: usize, saved: &Tensor<T>) -> Var<T> {
        let edge = if self.recording { self.node.inputs[i].edge.clone() } else { Edge::Constant };
        Var::with_edge(saved.clone(), edge)
    }

    /// The output, from its saved value: connected to the graph if the pass is recorded.
    pub fn output(&self, saved: &Tensor<T>) -> Var<T> {
        let edge = if self.recording { Edge::Node(self.node.clone()) } else { Edge::Constant };
        Var::with_edge(saved.clone(), edge)
    }
}
