//! What a recorder has seen.

pub use retrograd_autograd::observe::Which;
use retrograd_autograd::{Call, Id, Node, Product, Shapes};
use retrograd_tensor::observe::KernelCall;
use retrograd_tensor::{DType, Real, Shape};
use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};
use std::ops::Range;
use std::panic::Location;

/// A record of the operations and events of a closure, see [`record`](super::record).
#[derive(Clone, Debug, Default)]
pub struct Recording {
    /// The operations, in the order in which their results were computed.
    pub operations: Vec<Operation>,
    /// What happened, in the order of time. Events of several [lanes](Event::lane) are mixed.
    pub events: Vec<Event>,
    /// The calls of modules whose forward pass was reported, in the order in which they ended.
    pub calls: Vec<ModuleCall>,
    /// The names of parameters that operations used, if [modules](Operation::module) reported their forward passes.
    pub parameters: BTreeMap<Id, String>,
    /// The loss: the single number at which the first backward pass began, or the loss of all shards if it was in one
    /// ([`sharded`](retrograd_autograd::sharded)).
    pub loss: Option<f64>,
    /// Bytes of tensors that were in use when the record began.
    pub live: usize,
    /// The time from the beginning to the end, in seconds.
    pub seconds: f64,
    /// The largest number of bytes in use.
    pub(super) highest: usize,
}

/// An operation that was computed during the record, or differentiated in it.
#[derive(Clone, Debug)]
pub struct Operation {
    /// The identity of its first result in the graph; `None` if the results are constants.
    pub id: Option<Id>,
    /// The operation, and the attributes of the call.
    pub call: Call,
    /// The shapes of the results.
    pub shapes: Vec<Shape>,
    /// The type of the elements.
    pub dtype: DType,
    /// The inputs, without optional ones that were not given.
    pub inputs: Vec<OperandRecord>,
    /// Where the operation was called. `None` if it was computed before the record began.
    pub location: Option<&'static Location<'static>>,
    /// The module whose forward pass computed it; if a rule did, the module of the rule's operation. `None` if no module
    /// has reported its forward pass.
    pub module: Option<ModulePath>,
    /// The shard that computed it, among those that are computed (see [`sharded`](retrograd_autograd::sharded)); 0 outside of
    /// shards.
    pub lane: usize,
    /// The operation whose rule called this one: in a recorded backward pass, or in the definition of a
    /// fused operation.
    pub rule_of: Option<usize>,
    /// The tensors that the operation keeps for its rule: inputs, and those that it names by
    /// [`saved`](retrograd_autograd::observe::saved). [`What::RuleEnded`] has the bytes of tensors without a name.
    pub saved: Vec<SavedTensor>,
    /// A fused operation as ordinary operations on its inputs `x0`, `x1`, .., if its rule was called while
    /// values were watched.
    pub definition: Option<String>,
    /// The time from the previous event of this lane to the result, in seconds.
    pub seconds: f64,
    /// The kernels that ran in this time.
    pub kernels: Vec<KernelCall>,
    /// The time of its rule and of the additions of the gradients that it delivered, in seconds; 0 if it was
    /// not called.
    pub rule_seconds: f64,
    /// The kernels that ran in this time, with the kernels of [operations](Operation::rule_of) that the rule called.
    pub rule_kernels: Vec<KernelCall>,
}

/// An input of a recorded operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OperandRecord {
    /// Its name among the inputs of the operation.
    pub name: &'static str,
    /// Where it comes from.
    pub source: Source,
    /// Its shape.
    pub shape: Shape,
}

/// The source of a variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// A leaf, to which gradients are propagated.
    Leaf(Id),
    /// A result of an operation, by the number of the operation and the position of the result.
    Output(usize, usize),
    /// A constant, to which no gradient is propagated, and why it is one.
    Constant(Constant),
}

impl Source {
    /// The leaf that the variable is, or whose value it has as a constant.
    pub fn leaf(self) -> Option<Id> {
        match self {
            Source::Leaf(id) | Source::Constant(Constant::DetachedLeaf(id)) => Some(id),
            _ => None,
        }
    }
}

/// Why a variable is a constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Constant {
    /// It was made as one, or outside of the record.
    Made,
    /// It has the value of a tracked result, but not its history: [`Var::detach`](retrograd_autograd::Var::detach), or
    /// [`Var::value`](retrograd_autograd::Var::value).
    DetachedResult(usize),
    /// It has the value of a leaf, but is none: `detach`, or a frozen parameter.
    DetachedLeaf(Id),
    /// It is the result of an operation that was computed while gradients were disabled, though an input
    /// was tracked: [`no_grad`](retrograd_autograd::no_grad).
    GradDisabled(usize),
    /// It is the result of an operation on constants.
    Computed(usize),
}

/// A tensor that an operation keeps for its rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SavedTensor {
    /// Which one.
    pub which: Which,
    /// Its shape.
    pub shape: Shape,
    /// Its size in bytes.
    pub bytes: usize,
    /// Whether something else keeps the same memory, too: a leaf, or an earlier operation.
    pub is_shared: bool,
}

/// The module that an operation belongs to: the innermost one whose forward pass runs, or a module inside it
/// which owns the parameter of the operation.
///
/// Modules of the nn crate report their forward passes; a module of your own does so by `Module::observe`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModulePath {
    /// The dotted path in the model, whose own path is empty. The model is the outermost module that has
    /// reported its forward pass.
    pub path: String,
    /// The type, such as `Linear`.
    pub type_name: String,
}

impl Display for ModulePath {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.path.as_str() {
            "" => f.write_str(&self.type_name),
            path => write!(f, "{path} ({})", self.type_name),
        }
    }
}

/// A call of a module.
#[derive(Clone, Debug, PartialEq)]
pub struct ModuleCall {
    /// The module.
    pub module: ModulePath,
    /// The operations that were computed during it, by all threads.
    pub operations: Range<usize>,
    /// The shape of its output, if it was reported.
    pub output: Option<Shape>,
    /// The shard that it ran in.
    pub lane: usize,
}

/// Something that happened.
#[derive(Clone, Copy, Debug)]
pub struct Event {
    /// What it was.
    pub what: What,
    /// The shard in which it happened.
    pub lane: usize,
    /// The time since the beginning of the record, in seconds.
    pub at: f64,
    /// Bytes of tensors that were in use after it.
    pub live: usize,
}

/// The kinds of events. Operations are given by their number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// An operation was computed.
    Computed(usize),
    /// A backward pass began: this variable was given its gradient.
    Seeded(Target),
    /// The rule of an operation was called: the gradients of its results are complete.
    RuleBegan(usize),
    /// It has returned, and the tensors that the operation had saved were dropped.
    RuleEnded {
        /// The operation.
        operation: usize,
        /// Bytes that were freed by that.
        freed: usize,
        /// Those among them that are of none of the [tensors](Operation::saved) that the operation lists.
        unlisted: usize,
    },
    /// A gradient that a rule returned was propagated.
    Delivered {
        /// The operation whose rule it was.
        from: usize,
        /// The position of the input.
        input: usize,
        /// The variable that is the input.
        to: Target,
        /// Whether it was added to an earlier one. The first one is moved.
        is_added: bool,
    },
}

/// A variable that receives gradients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Target {
    /// A leaf.
    Leaf(Id),
    /// A result of an operation, by the number of the operation and the position of the result.
    Output(usize, usize),
}

impl Operation {
    /// The name of the operation.
    pub fn name(&self) -> &'static str {
        self.call.op.name
    }

    /// The products of matrices that it computes, see [`Op::products`](retrograd_autograd::Op::products).
    pub fn products(&self) -> Vec<Product> {
        let inputs: Vec<_> = self.inputs.iter().map(|input| (input.name, input.shape)).collect();
        self.call.op.products(&Shapes { inputs: &inputs, output: self.shapes[0] })
    }
}

/// The position of an output of an operation, by its identity.
pub(super) fn output<T: Real>(node: &Node<T>, id: Id) -> usize {
    (id.number() - node.id().number()) as usize
}

impl Recording {
    /// The largest number of bytes in use at any time of the record, between events as well: what
    /// [`pool_stats`](retrograd_tensor::storage::pool_stats) gives if nothing else runs in the process.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// use retrograd::study::record::record;
    /// let x = Var::leaf(Tensor::<f32>::ones([256]));
    /// let (_, recording) = record(|| x.exp().sum(..).backward());
    /// assert!(recording.peak() >= recording.live + 1024); // at least the exponentials
    /// ```
    pub fn peak(&self) -> usize {
        self.highest
    }
}
