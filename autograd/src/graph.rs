//! The graph of a computation: variables, and the operations that computed them. Variables, nodes and
//! rules are mutually recursive types, so one file defines them.

use crate::op::{Attribute, Call, Op};
use retrograd_tensor::layout::Layout;
use retrograd_tensor::{Real, Shape, Tensor};
use smallvec::SmallVec;
use std::fmt::{self, Debug};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

/// The identity of a leaf, or of an output of an operation: a creation index, which grows in the
/// whole process.
///
/// An operation is created after its inputs. So descending order of ids is a topological order, in
/// which every operation precedes its inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Id(u64);

impl Id {
    /// The first of `n` new ids.
    pub(crate) fn reserve(n: usize) -> Id {
        static COUNTER: AtomicU64 = AtomicU64::new(0);
        Id(COUNTER.fetch_add(n as u64, Relaxed))
    }

    /// The id `i` places later.
    pub(crate) fn offset(self, i: usize) -> Id {
        Id(self.0 + i as u64)
    }

    /// Greater than any id.
    pub(crate) const LAST: Id = Id(u64::MAX);

    /// The creation index.
    pub fn number(self) -> u64 {
        self.0
    }
}

/// A tensor in a computation: its value, and its place in the graph.
///
/// [`Var::leaf`] creates a variable whose gradient is wanted. An operation on tracked variables
/// gives a tracked variable; an operation on constants gives a constant. Nothing leaves the graph
/// implicitly: [`Var::value`] and [`Var::detach`] do so by name.
///
/// ```
/// use retrograd::prelude::*;
///
/// let x = Var::leaf(Tensor::from([1.0f32, 2.0, 3.0]));
/// let y = x.square().sum(..);
/// let grads = y.backward();
/// assert_eq!(grads.get(&x).unwrap().to_vec(), [2.0, 4.0, 6.0]);
/// ```
#[derive(Clone)]
pub struct Var<T: Real = f32> {
    pub(crate) value: Tensor<T>,
    pub(crate) edge: Edge<T>,
}

/// Where the gradient of a variable goes.
pub(crate) enum Edge<T: Real> {
    /// A constant: no gradient is propagated.
    Constant,
    /// A leaf, whose gradient is computed.
    Leaf(Id),
    /// An output of an operation, by its position.
    Node(Arc<Node<T>>, usize),
}

impl<T: Real> Edge<T> {
    pub(crate) fn id(&self) -> Option<Id> {
        match self {
            Edge::Constant => None,
            Edge::Leaf(id) => Some(*id),
            Edge::Node(node, output) => Some(node.id.offset(*output)),
        }
    }

    pub(crate) fn node(&self) -> Option<&Arc<Node<T>>> {
        match self {
            Edge::Node(node, _) => Some(node),
            _ => None,
        }
    }
}

impl<T: Real> Clone for Edge<T> {
    fn clone(&self) -> Self {
        match self {
            Edge::Constant => Edge::Constant,
            Edge::Leaf(id) => Edge::Leaf(*id),
            Edge::Node(node, output) => Edge::Node(node.clone(), *output),
        }
    }
}

/// A list with an element for each output of an operation.
pub(crate) type Outputs<A> = SmallVec<[A; 1]>;

/// A recorded operation.
///
/// A graph is traversed from a variable by [`Var::node`] and [`Node::inputs`]; [`Op`] has an example.
pub struct Node<T: Real> {
    id: Id,
    call: Call,
    outputs: Outputs<Shape>,
    inputs: Inputs<T>,
    /// Which of the inputs of the operation were given, as bits.
    given: u32,
    /// Removed by the backward pass, so that saved tensors are freed as the pass proceeds.
    rule: Mutex<Option<Arc<dyn Rule<T>>>>,
}

/// An input of a recorded operation: its shape, and where its gradient goes.
pub struct Input<T: Real> {
    pub(crate) edge: Edge<T>,
    pub(crate) shape: Shape,
}

/// The inputs of an operation: most have at most two.
pub(crate) type Inputs<T> = SmallVec<[Input<T>; 2]>;

/// The derivative of a recorded operation, with the tensors that it saved.
pub(crate) trait Rule<T: Real>: Send + Sync {
    /// The gradients of the inputs, from the gradients of the outputs. All are `Some`: the engine has filled in zeros.
    fn backward(&self, cx: &Cx<'_, T>, g: &[Option<Var<T>>]) -> InputGrads<T>;

    /// The definition of a fused operation; `None` if [`Rule::backward`] can be recorded.
    fn definition(&self) -> Option<&dyn Definition<T>> {
        None
    }
}

/// A fused operation as a composition of ordinary operations.
pub(crate) trait Definition<T: Real> {
    /// The outputs.
    fn outputs(&self, cx: &Cx<'_, T>) -> Vec<Var<T>>;

    /// The gradients of the inputs in a recorded pass, if there is a rule of its own for them.
    fn vjp(&self, cx: &Cx<'_, T>, g: &[Option<Var<T>>]) -> Option<InputGrads<T>>;

    /// The tangents of the outputs by a kernel, if there is one.
    fn jvp(&self, t: Tangents<'_, T>) -> Option<Outputs<Tensor<T>>>;
}

/// The context of a rule: the operation that is differentiated, and the variables that its inputs
/// are in this pass.
pub struct Cx<'a, T: Real> {
    pub(crate) node: &'a Arc<Node<T>>,
    /// The operation that slots of the rule name: `node`, unless it was recomputed.
    pub(crate) op: Id,
    /// `None` in a first-order pass, where all are constants.
    pub(crate) inputs: Option<&'a [Input<T>]>,
    /// In forward mode, the tangents of the inputs.
    pub(crate) tangents: Option<&'a [Option<Var<T>>]>,
    /// Whether a definition is evaluated, which computes the results itself.
    pub(crate) in_definition: bool,
}

impl<'a, T: Real> Cx<'a, T> {
    /// The context of a backward pass.
    pub(crate) fn new(node: &'a Arc<Node<T>>, inputs: Option<&'a [Input<T>]>) -> Self {
        Cx { node, op: node.id(), inputs, tangents: None, in_definition: false }
    }
}

/// The tangents of the inputs of an operation, in forward mode.
#[derive(Clone, Copy, Debug)]
pub struct Tangents<'a, T: Real>(pub(crate) &'a [Option<Var<T>>]);

/// Gradients of the inputs of an operation.
#[derive(Debug)]
pub struct InputGrads<T: Real>(pub(crate) Vec<InputGrad<T>>);

/// The gradient of an input.
#[derive(Debug)]
pub(crate) struct InputGrad<T: Real> {
    /// The operation.
    pub(crate) op: Id,
    /// The position of the input.
    pub(crate) at: usize,
    pub(crate) value: Var<T>,
    /// Of a view: where the elements of `value` are in the gradient, which is 0 elsewhere.
    pub(crate) part: Option<Box<Layout>>,
}

impl<T: Real> Node<T> {
    /// A node with the first of its reserved ids, one for each output.
    pub(crate) fn new(
        id: Id,
        call: Call,
        outputs: Outputs<Shape>,
        (inputs, given): (Inputs<T>, u32),
        rule: Arc<dyn Rule<T>>,
    ) -> Arc<Node<T>> {
        Arc::new(Node { id, call, outputs, inputs, given, rule: Mutex::new(Some(rule)) })
    }

    /// The identity of the operation: the id of its first output.
    pub fn id(&self) -> Id {
        self.id
    }

    /// The operation.
    pub fn op(&self) -> &'static Op {
        self.call.op
    }

    /// The name of the operation.
    pub fn name(&self) -> &'static str {
        self.call.op.name
    }

    /// The operation with the attributes of the call.
    pub fn call(&self) -> &Call {
        &self.call
    }

    /// An attribute of the call, such as the axes of a sum.
    pub fn attribute(&self, name: &str) -> Option<&Attribute> {
        self.call.attribute(name)
    }

    /// The shapes of the outputs.
    pub fn outputs(&self) -> &[Shape] {
        &self.outputs
    }

    /// The inputs, without optional ones that were not given.
    pub fn inputs(&self) -> &[Input<T>] {
        &self.inputs
    }

    /// An input by its name in [`Op::inputs`]; `None` for an optional one that was not given.
    pub fn input(&self, name: &str) -> Option<&Input<T>> {
        self.inputs.get(self.input_names().position(|own| own == name)?)
    }

    /// The names of the inputs that were given.
    pub fn input_names(&self) -> impl Iterator<Item = &'static str> {
        let given = self.given;
        let is_given = move |i| given.checked_shr(i).is_none_or(|bits| bits & 1 == 1);
        self.op().names((0..).map(is_given)).take(self.inputs.len())
    }

    /// The rule, which is dropped from the node unless `retain`; `None` if it was dropped before.
    pub(crate) fn take_rule(&self, retain: bool) -> Option<Arc<dyn Rule<T>>> {
        let mut rule = self.rule.lock().unwrap_or_else(|e| e.into_inner());
        if retain { rule.clone() } else { rule.take() }
    }

    /// Puts another rule in the place of the rule, if there is one.
    pub(crate) fn replace_rule(&self, other: impl FnOnce(&dyn Rule<T>) -> Arc<dyn Rule<T>>) {
        let mut rule = self.rule.lock().unwrap_or_else(|e| e.into_inner());
        if let Some(rule) = &mut *rule {
            *rule = other(&**rule);
        }
    }
}

impl<T: Real> Input<T> {
    /// The identity of the variable; `None` for a constant.
    pub fn id(&self) -> Option<Id> {
        self.edge.id()
    }

    /// The operation that computed it; `None` for a leaf or a constant.
    pub fn node(&self) -> Option<&Arc<Node<T>>> {
        self.edge.node()
    }

    /// Its shape.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }
}

impl<T: Real> Debug for Node<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        self.outputs.iter().try_for_each(|shape| write!(f, " {shape:?}"))
    }
}

impl<T: Real> Debug for Input<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let from = match &self.edge {
            Edge::Constant => "constant",
            Edge::Leaf(_) => "leaf",
            Edge::Node(node, _) => node.name(),
        };
        write!(f, "{from} {:?}", self.shape)
    }
}

/// Drops inputs that only this node owns in a loop: nested drops of a long chain would overflow the
/// stack.
/// If two threads drop the last references to a node at once, the later one begins a loop of its own.
impl<T: Real> Drop for Node<T> {
    fn drop(&mut self) {
        if self.inputs.iter().all(|input| input.node().is_none()) {
            return;
        }
        let mut dying: Vec<Input<T>> = self.inputs.drain(..).collect();
        // It may own variables that the inputs were computed from, which must not die with it.
        self.rule.get_mut().unwrap_or_else(|e| e.into_inner()).take();
        while let Some(input) = dying.pop() {
            if let Edge::Node(mut node, _) = input.edge
                && let Some(node) = Arc::get_mut(&mut node)
            {
                dying.extend(node.inputs.drain(..));
            }
        }
    }
}
