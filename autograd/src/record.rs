//! Recording operations: what an operation saves, and the rule that differentiates it.

use crate::graph::{
    Cx, Definition, Edge, Id, Input, InputGrad, InputGrads, Inputs, Node, Outputs, Rule, Tangents,
    Var,
};
use crate::observe;
use crate::op::{Call, Op};
use retrograd_tensor::layout::Layout;
use retrograd_tensor::settings::grad_enabled;
use retrograd_tensor::{Real, Shape, Tensor};
use smallvec::smallvec;
use std::sync::Arc;
use std::{array, slice};

/// # Operations of your own
impl<T: Real> Var<T> {
    /// The result `value` of an operation on `inputs`, and the rule that differentiates it.
    ///
    /// `record` is called only if an input is tracked and gradients are enabled. It gets an
    /// [`Operand`] for each input, saves what the backward pass needs, and returns the rule: a closure
    /// that maps the gradient of the result to gradients of the inputs ([`InputGrads`]). A gradient may
    /// have the shape of its input *or* a shape that the input broadcasts to: the engine sums over
    /// broadcast axes. A rule that gives no gradient to a tracked input is an error.
    ///
    /// The rule is written in operations on variables, so it can be differentiated itself: in a
    /// first-order pass these are constants, and nothing is recorded; in a recorded pass
    /// ([`grad`](crate::grad)) they extend the graph. A rule that is a kernel on tensors is a
    /// [`Fused`] operation.
    ///
    /// Tensors that the rule owns besides the values of inputs are to be named by
    /// [`observe::saved`](crate::observe::saved), so that observers can list them.
    ///
    /// The rule should own tensors and slots, not variables: a variable in the closure keeps its graph
    /// alive, and gradients by it are not propagated.
    ///
    /// Work that the rule shares among threads goes through [`par`](retrograd_tensor::par), not
    /// through rayon: see [`settings`](retrograd_tensor::settings).
    ///
    /// [`Op`] has an example.
    #[track_caller]
    pub fn from_op<'a, const N: usize, R>(
        call: impl Into<Call>,
        value: Tensor<T>,
        inputs: [impl Into<Option<&'a Var<T>>> + Copy; N],
        record: impl FnOnce([Operand<'a, T>; N]) -> R,
    ) -> Var<T>
    where
        R: Fn(&Cx<'_, T>, &Var<T>) -> InputGrads<T> + Send + Sync + 'static,
    {
        let call = call.into();
        let inputs: [Option<&Var<T>>; N] = inputs.map(Into::into);
        let seen = observe::called(&call);
        let mut edge = Edge::Constant;
        if is_recorded(&inputs) {
            let id = Id::reserve(1);
            let rule = record(operands(id, &inputs));
            let outputs = smallvec![*value.shape()];
            let node = ordinary(id, call, outputs, &inputs, move |cx, g| rule(cx, gradient(&g[0])));
            edge = Edge::Node(node, 0);
        }
        let result = Var { value, edge };
        observe::computed(seen, &inputs, slice::from_ref(&result));
        result
    }

    /// [`Var::from_op`] of an operation with several results: the rule gets the gradient of each,
    /// which is 0 where a result was not used.
    ///
    /// ```
    /// use retrograd::autograd::{InputGrads, Op};
    /// use retrograd::prelude::*;
    ///
    /// static SPLIT_FIRST: Op = Op::new("split_first", &["x"]);
    ///
    /// /// The first element, and the rest.
    /// fn split_first(x: &Var) -> Vec<Var> {
    ///     let n = x.size(0);
    ///     let parts = vec![x.value().narrow(0, 0, 1), x.value().narrow(0, 1, n - 1)];
    ///     Var::from_op_outputs(&SPLIT_FIRST, parts, [x], |[x]| {
    ///         let x = x.slot();
    ///         move |_, g| InputGrads::of(&x, || Var::cat(&[&g[0], &g[1]], 0))
    ///     })
    /// }
    ///
    /// let x = Var::leaf(Tensor::from([1.0, 2.0, 3.0]));
    /// let rest = &split_first(&x)[1];
    /// assert_eq!(rest.sum(..).backward().get(&x).unwrap().to_vec(), [0.0, 1.0, 1.0]);
    /// ```
    #[track_caller]
    pub fn from_op_outputs<'a, const N: usize, R>(
        call: impl Into<Call>,
        values: Vec<Tensor<T>>,
        inputs: [impl Into<Option<&'a Var<T>>> + Copy; N],
        record: impl FnOnce([Operand<'a, T>; N]) -> R,
    ) -> Vec<Var<T>>
    where
        R: Fn(&Cx<'_, T>, &[Var<T>]) -> InputGrads<T> + Send + Sync + 'static,
    {
        let call = call.into();
        let inputs: [Option<&Var<T>>; N] = inputs.map(Into::into);
        let seen = observe::called(&call);
        let mut results: Vec<Var<T>> = values.into_iter().map(Var::constant).collect();
        if is_recorded(&inputs) {
            let id = Id::reserve(results.len());
            let shapes = results.iter().map(|y| *y.shape()).collect();
            let rule = record(operands(id, &inputs));
            let node = ordinary(id, call, shapes, &inputs, move |cx, g| {
                rule(cx, &g.iter().map(gradient).cloned().collect::<Vec<_>>())
            });
            connect(&mut results, &node);
        }
        observe::computed(seen, &inputs, &results);
        results
    }

    /// [`Var::from_op`] of any number of inputs: `record` gets them as a list.
    ///
    /// ```
    /// use retrograd::autograd::{InputGrads, Op};
    /// use retrograd::prelude::*;
    ///
    /// static SUM_OF: Op = Op::new("sum_of", &["x.."]);
    ///
    /// fn sum_of(parts: &[&Var]) -> Var {
    ///     let value = parts.iter().fold(Tensor::scalar(0.0), |sum, x| sum + x.value());
    ///     Var::from_op_list(&SUM_OF, value, parts, |parts| {
    ///         let parts: Vec<_> = parts.into_iter().map(|x| x.slot()).collect();
    ///         move |_, g| parts.iter().fold(InputGrads::none(), |all, x| all.and(x, || g.clone()))
    ///     })
    /// }
    ///
    /// let (a, b) = (Var::leaf(Tensor::scalar(1.0)), Var::leaf(Tensor::scalar(2.0)));
    /// let grads = sum_of(&[&a, &b, &a]).backward();
    /// assert_eq!(grads.get(&a).unwrap().item(), 2.0);
    /// ```
    #[track_caller]
    pub fn from_op_list<R>(
        call: impl Into<Call>,
        value: Tensor<T>,
        inputs: &[&Var<T>],
        record: impl FnOnce(Vec<Operand<'_, T>>) -> R,
    ) -> Var<T>
    where
        R: Fn(&Cx<'_, T>, &Var<T>) -> InputGrads<T> + Send + Sync + 'static,
    {
        let call = call.into();
        let seen = observe::called(&call);
        let given: Vec<Option<&Var<T>>> = inputs.iter().map(|x| Some(*x)).collect();
        let mut edge = Edge::Constant;
        if is_recorded(&given) {
            let op = Id::reserve(1);
            let operands = given.iter().enumerate().map(|(at, var)| Operand { op, at, var: *var });
            let rule = record(operands.collect());
            let outputs = smallvec![*value.shape()];
            let node = ordinary(op, call, outputs, &given, move |cx, g| rule(cx, gradient(&g[0])));
            edge = Edge::Node(node, 0);
        }
        let result = Var { value, edge };
        observe::computed(seen, &given, slice::from_ref(&result));
        result
    }

    /// The results `values` of a [`Fused`] operation on `inputs`. `record` is called as by
    /// [`Var::from_op`].
    #[track_caller]
    pub fn from_fused<'a, const N: usize, const M: usize, F: Fused<T, M>>(
        call: impl Into<Call>,
        values: [Tensor<T>; M],
        inputs: [impl Into<Option<&'a Var<T>>> + Copy; N],
        record: impl FnOnce([Operand<'a, T>; N]) -> F,
    ) -> [Var<T>; M] {
        let call = call.into();
        let inputs: [Option<&Var<T>>; N] = inputs.map(Into::into);
        let seen = observe::called(&call);
        let mut results = values.map(Var::constant);
        if is_recorded(&inputs) {
            let shapes = results.iter().map(|y| *y.shape()).collect();
            let id = Id::reserve(M);
            let node = fused::<T, F, M>(id, call, shapes, &inputs, record(operands(id, &inputs)));
            connect(&mut results, &node);
        }
        observe::computed(seen, &inputs, &results);
        results
    }
}

/// An operation that has a kernel for its vector-Jacobian product (VJP), and a definition in
/// ordinary operations. There are `M` results.
///
/// The engine chooses: a first-order pass runs the kernel, and a recorded pass differentiates the
/// definition, unless there is a [`recorded_vjp`](Fused::recorded_vjp).
/// [`check::definition`](crate::check::definition) compares kernel and definition.
///
/// ```
/// use retrograd::autograd::{Cx, Fused, InputGrads, Op, Slot, check};
/// use retrograd::prelude::*;
///
/// static SCALED_EXP: Op = Op::new("scaled_exp", &["x", "w"]);
///
/// /// exp(x) · w, whose derivatives share the exponential.
/// fn scaled_exp(x: &Var<f64>, w: &Var<f64>) -> Var<f64> {
///     let exp = x.value().exp();
///     let value = &exp * w.value();
///     let [y] = Var::from_fused(&SCALED_EXP, [value], [x, w], |[x, w]| {
///         Scaled { x: x.save(), w: w.save(), exp }
///     });
///     y
/// }
///
/// struct Scaled {
///     x: Slot<f64>,
///     w: Slot<f64>,
///     exp: Tensor<f64>,
/// }
///
/// impl Fused<f64> for Scaled {
///     fn vjp(&self, [g]: [&Tensor<f64>; 1]) -> InputGrads<f64> {
///         let dw = g * &self.exp;
///         InputGrads::of(&self.x, || &dw * self.w.value()).and(&self.w, || dw.clone())
///     }
///
///     fn definition(&self, cx: &Cx<'_, f64>) -> [Var<f64>; 1] {
///         [cx.input(&self.x).exp() * cx.input(&self.w)]
///     }
/// }
///
/// let (x, w) = (Var::leaf(Tensor::scalar(0.0)), Var::leaf(Tensor::scalar(3.0)));
/// let y = scaled_exp(&x, &w);
/// check::definition(&y, 1e-12).unwrap();
/// let dx = grad(&[(&y, None)], &[&x])[0].clone().unwrap();
/// assert_eq!(dx.backward().get(&w).unwrap().item(), 1.0); // d²y / dx dw
/// ```
pub trait Fused<T: Real, const M: usize = 1>: Send + Sync + 'static {
    /// Gradients of the inputs, given gradients of the results: a gradient is 0 where a result was not
    /// used. Nothing is recorded.
    fn vjp(&self, g: [&Tensor<T>; M]) -> InputGrads<T>;

    /// The results by ordinary operations on the inputs, which are [`Cx::input`] of saved slots.
    fn definition(&self, cx: &Cx<'_, T>) -> [Var<T>; M];

    /// The gradients of the inputs by ordinary operations on inputs and results ([`Cx::output_at`]), for a recorded
    /// pass: what [`Fused::vjp`] computes, in a form that can be differentiated again. `None`, the default: the
    /// definition is differentiated, which computes the results once more.
    fn recorded_vjp(&self, _cx: &Cx<'_, T>, _g: [&Var<T>; M]) -> Option<InputGrads<T>> {
        None
    }

    /// The tangents of the results, given tangents of the inputs: the product of the Jacobian and a vector (JVP).
    /// `None`, the default: forward mode uses the definition. Nothing is recorded.
    fn jvp(&self, _t: Tangents<'_, T>) -> Option<[Tensor<T>; M]> {
        None
    }
}

/// An input of an operation that is being recorded.
#[derive(Clone, Copy, Debug)]
pub struct Operand<'a, T: Real> {
    /// The operation.
    op: Id,
    /// `None` for an optional input that was not given.
    var: Option<&'a Var<T>>,
    /// Its position among the inputs that were given.
    at: usize,
}

impl<T: Real> Operand<'_, T> {
    /// Whether its gradient will be needed.
    pub fn needs_grad(self) -> bool {
        self.var.is_some_and(Var::is_tracked)
    }

    /// A slot without the value.
    pub fn slot(self) -> Slot<T> {
        let at = self.var.map(|_| self.at);
        Slot { op: self.op, at, needs_grad: self.needs_grad(), value: None }
    }

    /// A slot with the value.
    pub fn save(self) -> Slot<T> {
        self.save_if(true)
    }

    /// A slot, with the value on a condition: usually that the gradient of another input, which
    /// depends on it, is needed.
    pub fn save_if(self, condition: bool) -> Slot<T> {
        let mut slot = self.slot();
        if let Some(var) = self.var.filter(|_| condition) {
            observe::saved_input(self.at, var.value());
            slot.value = Some(var.value().clone());
        }
        slot
    }
}

/// An input of a recorded operation, as its rule refers to it; and its value, if that was saved.
#[derive(Clone, Debug)]
pub struct Slot<T: Real> {
    /// The operation.
    op: Id,
    /// Its position among the inputs that were given; `None` if it was not.
    at: Option<usize>,
    needs_grad: bool,
    value: Option<Tensor<T>>,
}

impl<T: Real> Slot<T> {
    /// Whether its gradient is needed.
    pub fn needs_grad(&self) -> bool {
        self.needs_grad
    }

    /// The saved value.
    ///
    /// # Panics
    /// If it was not saved.
    #[track_caller]
    pub fn value(&self) -> &Tensor<T> {
        let hint = "Slot::value: the value of this input was not saved (hint: Operand::save)";
        self.value.as_ref().expect(hint)
    }

    /// The saved value; `None` if it was not saved, or if the input is optional and was not given.
    pub fn get(&self) -> Option<&Tensor<T>> {
        self.value.as_ref()
    }
}

impl<T: Real> InputGrads<T> {
    /// No gradients yet.
    pub fn none() -> Self {
        InputGrads(Vec::new())
    }

    /// The gradient of one input, which is evaluated only if it is needed. A tensor stands for a
    /// constant.
    pub fn of<G: Into<Var<T>>>(slot: &Slot<T>, gradient: impl FnOnce() -> G) -> Self {
        InputGrads::none().and(slot, gradient)
    }

    /// Adds the gradient of another input.
    pub fn and<G: Into<Var<T>>>(mut self, slot: &Slot<T>, gradient: impl FnOnce() -> G) -> Self {
        if let Some(at) = slot.at
            && slot.needs_grad
        {
            self.push(InputGrad { op: slot.op, at, value: gradient().into(), part: None });
        }
        self
    }

    /// The gradient of an input of which the result is the view `layout`: `g` there, else 0.
    pub(crate) fn of_view(slot: &Slot<T>, g: &Var<T>, layout: Layout) -> Self {
        let mut grads = InputGrads::of(slot, || g.clone());
        grads.0.iter_mut().for_each(|grad| grad.part = Some(Box::new(layout)));
        grads
    }

    /// Not a part of [`InputGrads::and`], so that it is compiled once for all gradients.
    fn push(&mut self, gradient: InputGrad<T>) {
        if self.0.is_empty() {
            self.0.reserve_exact(2); // most operations have at most two inputs
        }
        self.0.push(gradient);
    }

    /// Whether these, in the order of the inputs, are gradients of the inputs of `node`: all that are
    /// tracked.
    pub(crate) fn check(&self, node: &Node<T>) -> Result<(), String> {
        let name = node.name();
        if self.0.iter().any(|g| g.op != node.id()) {
            return Err(format!("backward: the rule of `{name}` uses another operation's slot"));
        }
        let mut grads = self.0.iter().peekable();
        for (at, input) in node.inputs().iter().enumerate() {
            let mut given = false;
            while let Some(g) = grads.next_if(|g| g.at == at) {
                let (got, shape) = (g.value.shape(), &input.shape);
                if g.part.is_none() && got != shape && !shape.broadcasts_to(got) {
                    return Err(format!(
                        "backward: the rule of `{name}` gives a gradient of shape {got:?} to input \
                         {at}, which has shape {shape:?}"
                    ));
                }
                given = true;
            }
            if !given && input.id().is_some() {
                return Err(format!(
                    "backward: the rule of `{name}` gives no gradient to input {at}, which is tracked \
                     (hint: if the result does not depend on it, give zeros)"
                ));
            }
        }
        Ok(())
    }
}

impl<T: Real> Tangents<'_, T> {
    /// The tangent of an input; `None` if it is 0.
    pub fn of(&self, slot: &Slot<T>) -> Option<&Var<T>> {
        self.0[slot.at?].as_ref()
    }

    /// The value of [`Tangents::of`].
    pub fn value(&self, slot: &Slot<T>) -> Option<&Tensor<T>> {
        self.of(slot).map(Var::value)
    }
}

impl<T: Real> InputGrads<T> {
    /// The tangent of the result as a sum of terms, which a rule returns in forward mode instead of gradients of its
    /// inputs. The shape of a term may be one that broadcasts to that of the result.
    #[track_caller]
    pub fn tangent(terms: impl IntoIterator<Item = Option<Var<T>>>) -> InputGrads<T> {
        let value =
            terms.into_iter().flatten().reduce(|a, b| a + b).expect("an input has a tangent");
        InputGrads(vec![InputGrad { op: Id::LAST, at: RESULT, value, part: None }])
    }
}

/// Instead of the position of an input: the entry is the tangent of the result.
pub(crate) const RESULT: usize = usize::MAX;

impl<T: Real> Cx<'_, T> {
    /// An input, with its saved value: connected to the graph in a recorded pass, else a constant.
    ///
    /// # Panics
    /// If the value was not saved.
    ///
    /// ```
    /// use retrograd::autograd::{InputGrads, Op};
    /// use retrograd::prelude::*;
    /// static SQUARE: Op = Op::new("square", &["x"]);
    /// let x = Var::leaf(Tensor::scalar(3.0f32));
    /// let y = Var::from_op(&SQUARE, x.value().square(), [&x], |[x]| {
    ///     let x = x.save();
    ///     move |cx, g| InputGrads::of(&x, || g * &cx.input(&x) * 2.0)
    /// });
    /// let dx = grad(&[(&y, None)], &[&x])[0].clone().unwrap(); // recorded
    /// assert_eq!(dx.backward().get(&x).unwrap().item(), 2.0);
    /// ```
    #[track_caller]
    pub fn input(&self, slot: &Slot<T>) -> Var<T> {
        self.input_as(slot, slot.value().clone())
    }

    /// An optional input; `None` if it was not given.
    #[track_caller]
    pub fn optional(&self, slot: &Slot<T>) -> Option<Var<T>> {
        slot.at.map(|_| self.input(slot))
    }

    /// An input with another value, at which derivatives by the input are the same.
    #[track_caller]
    pub fn input_as(&self, slot: &Slot<T>, value: Tensor<T>) -> Var<T> {
        self.check(slot);
        let edge = match (self.inputs, slot.at) {
            (Some(inputs), Some(at)) => inputs[at].edge.clone(),
            _ => Edge::Constant,
        };
        Var { value, edge }
    }

    /// The result of an operation that has one, with its saved value: connected to the graph in a
    /// recorded pass.
    ///
    /// # Panics
    /// If the operation has several results.
    ///
    /// ```
    /// use retrograd::autograd::{InputGrads, Op};
    /// use retrograd::prelude::*;
    /// static EXP: Op = Op::new("exp", &["x"]);
    /// let x = Var::leaf(Tensor::scalar(0.0f32));
    /// let exp = x.value().exp();
    /// let y = Var::from_op(&EXP, exp.clone(), [&x], |[x]| {
    ///     let x = x.slot();
    ///     move |cx, g| InputGrads::of(&x, || g * &cx.output(&exp)) // y' = y
    /// });
    /// let dx = grad(&[(&y, None)], &[&x])[0].clone().unwrap();
    /// assert_eq!(dx.backward().get(&x).unwrap().item(), 1.0);
    /// ```
    #[track_caller]
    pub fn output(&self, value: &Tensor<T>) -> Var<T> {
        let n = self.node.outputs().len();
        assert!(n == 1, "Cx::output: `{}` has {n} results (hint: output_at)", self.node.name());
        self.output_at(0, value)
    }

    /// One of several results, by position, with its saved value.
    ///
    /// # Panics
    /// If it has another shape, or does not exist; or in a definition, which computes the results.
    #[track_caller]
    pub fn output_at(&self, i: usize, value: &Tensor<T>) -> Var<T> {
        let shape = self.node.outputs().get(i);
        let name = self.node.name();
        assert!(!self.in_definition, "Cx::output: the definition of `{name}` uses its own result");
        assert!(shape == Some(value.shape()), "Cx::output_at: not result {i} of `{name}`");
        let edge = match self.inputs {
            Some(_) => Edge::Node(self.node.clone(), i),
            None => Edge::Constant,
        };
        Var { value: value.clone(), edge }
    }

    /// In forward mode, the tangents of the inputs; else `None`. A rule may return [`InputGrads::tangent`] then.
    /// It should if its gradients are products of matrices: forward mode transposes other rules, which computes each
    /// gradient twice.
    pub fn tangents(&self) -> Option<Tangents<'_, T>> {
        self.tangents.map(Tangents)
    }

    /// The shape of an input.
    ///
    /// # Panics
    /// If it was not given.
    #[track_caller]
    pub fn shape(&self, slot: &Slot<T>) -> &Shape {
        self.check(slot);
        self.node.inputs()[slot.at.expect("Cx::shape: this input was not given")].shape()
    }

    #[track_caller]
    fn check(&self, slot: &Slot<T>) {
        let name = self.node.name();
        assert!(slot.op == self.op, "Cx: the rule of `{name}` uses another operation's slot");
    }
}

/// Whether an operation on these inputs is recorded: gradients are enabled, and one is tracked.
///
/// ```
/// use retrograd::autograd::is_recorded;
/// use retrograd::prelude::*;
/// let x = Var::leaf(Tensor::scalar(1.0f32));
/// assert!(is_recorded(&[Some(&x), None]));
/// assert!(!is_recorded(&[Some(&x.detach())]));
/// assert!(!no_grad(|| is_recorded(&[Some(&x)])));
/// ```
pub fn is_recorded<T: Real>(inputs: &[Option<&Var<T>>]) -> bool {
    grad_enabled() && inputs.iter().flatten().any(|x| x.is_tracked())
}

fn operands<'a, T: Real, const N: usize>(
    op: Id,
    inputs: &[Option<&'a Var<T>>; N],
) -> [Operand<'a, T>; N] {
    let mut given = 0;
    array::from_fn(|i| {
        let at = given;
        given += usize::from(inputs[i].is_some());
        Operand { op, var: inputs[i], at }
    })
}

/// The inputs that are given, and which ones these are, as bits.
fn node_inputs<T: Real>(inputs: &[Option<&Var<T>>]) -> (Inputs<T>, u32) {
    let (mut all, mut given) = (Inputs::new(), 0);
    for (i, x) in inputs.iter().enumerate() {
        if let Some(x) = x {
            all.push(Input { edge: x.edge.clone(), shape: *x.shape() });
            given |= 1u32.checked_shl(i as u32).unwrap_or(0);
        }
    }
    (all, given)
}

/// The result of an operation that is not recorded on the graph.
#[track_caller]
pub(crate) fn constant_result<T: Real>(
    op: &'static Op,
    value: Tensor<T>,
    inputs: &[Option<&Var<T>>],
) -> Var<T> {
    let result = Var::constant(value);
    observe::computed(observe::called(&op.into()), inputs, slice::from_ref(&result));
    result
}

/// Makes variables the outputs of a node.
fn connect<T: Real>(results: &mut [Var<T>], node: &Arc<Node<T>>) {
    for (i, result) in results.iter_mut().enumerate() {
        result.edge = Edge::Node(node.clone(), i);
    }
}

/// The gradient of an output, as a rule gets it.
fn gradient<T: Real>(g: &Option<Var<T>>) -> &Var<T> {
    g.as_ref().expect("the engine fills in zeros")
}

/// The node of an operation whose rule is a closure: compiled for each rule in the crate that first
/// uses it, and the rule with it.
#[inline(never)]
fn ordinary<T: Real, R>(
    id: Id,
    call: Call,
    outputs: Outputs<Shape>,
    inputs: &[Option<&Var<T>>],
    rule: R,
) -> Arc<Node<T>>
where
    R: Fn(&Cx<'_, T>, &[Option<Var<T>>]) -> InputGrads<T> + Send + Sync + 'static,
{
    Node::new(id, call, outputs, node_inputs(inputs), Arc::new(OrdinaryRule(rule)))
}

/// The node of a fused operation, see [`ordinary`].
#[inline(never)]
fn fused<T: Real, F: Fused<T, M>, const M: usize>(
    id: Id,
    call: Call,
    outputs: Outputs<Shape>,
    inputs: &[Option<&Var<T>>],
    rule: F,
) -> Arc<Node<T>> {
    Node::new(id, call, outputs, node_inputs(inputs), Arc::new(FusedRule::<F, M>(rule)))
}

struct OrdinaryRule<R>(R);

impl<T: Real, R> Rule<T> for OrdinaryRule<R>
where
    R: Fn(&Cx<'_, T>, &[Option<Var<T>>]) -> InputGrads<T> + Send + Sync,
{
    fn backward(&self, cx: &Cx<'_, T>, g: &[Option<Var<T>>]) -> InputGrads<T> {
        (self.0)(cx, g)
    }
}

struct FusedRule<F, const M: usize>(F);

impl<T: Real, F: Fused<T, M>, const M: usize> Rule<T> for FusedRule<F, M> {
    fn backward(&self, _: &Cx<'_, T>, g: &[Option<Var<T>>]) -> InputGrads<T> {
        self.0.vjp(array::from_fn(|i| gradient(&g[i]).value()))
    }
    fn definition(&self) -> Option<&dyn Definition<T>> {
        Some(self)
    }
}

impl<T: Real, F: Fused<T, M>, const M: usize> Definition<T> for FusedRule<F, M> {
    fn outputs(&self, cx: &Cx<'_, T>) -> Vec<Var<T>> {
        self.0.definition(cx).into()
    }
    fn vjp(&self, cx: &Cx<'_, T>, g: &[Option<Var<T>>]) -> Option<InputGrads<T>> {
        self.0.recorded_vjp(cx, array::from_fn(|i| gradient(&g[i])))
    }
    fn jvp(&self, t: Tangents<'_, T>) -> Option<Outputs<Tensor<T>>> {
        Some(self.0.jvp(t)?.into_iter().collect())
    }
}
