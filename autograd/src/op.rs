//! What an operation is: its name, its inputs, its formulas. Everything that shows, counts or checks
//! operations reads it here.

use retrograd_tensor::{AxisSet, Shape};
use smallvec::SmallVec;
use std::borrow::Cow;
use std::fmt::{self, Debug};
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;

/// An operation: one `static` for each, to which the nodes of all its calls refer.
///
/// ```
/// use retrograd::autograd::{InputGrads, Op};
/// use retrograd::prelude::*;
///
/// static TIMES_SQUARE: Op = Op::new("times_square", &["a", "b"])
///     .formula("y = a · b²", "da = g · b²\ndb = g · 2 · a · b");
///
/// fn times_square(a: &Var, b: &Var) -> Var {
///     let value = a.value() * &b.value().square();
///     Var::from_op(&TIMES_SQUARE, value, [a, b], |[a, b]| {
///         let (a, b) = (a.save_if(b.needs_grad()), b.save());
///         move |cx, g| {
///             InputGrads::of(&a, || g * &cx.input(&b).square())
///                 .and(&b, || g * &cx.input(&a) * &cx.input(&b) * 2.0)
///         }
///     })
/// }
///
/// let (a, b) = (Var::leaf(Tensor::scalar(5.0)), Var::scalar(3.0));
/// let y = times_square(&a, &b);
/// let node = y.node().unwrap();
/// assert_eq!(node.op().name, "times_square");
/// assert_eq!(node.input("a").unwrap().id(), a.id());
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Op {
    /// The name, in graphs, recordings and errors.
    pub name: &'static str,
    /// The names of the inputs, which the formulas use. A name that ends with `?` is an optional
    /// input, and a name that ends with `..` stands for any number of inputs.
    pub inputs: &'static [&'static str],
    /// What the operation does with elements.
    pub kind: Kind,
    /// Its products of matrices, from the shapes of a call; see [`Op::products`].
    products: Option<fn(&Shapes<'_>) -> Vec<Product>>,
    forward: &'static str,
    backward: &'static str,
    /// The formula of a function, printed from its code.
    printed: Option<fn() -> Formula>,
}

/// What an operation does with the elements of its inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An element of the result depends on one element of each input, which are broadcast together.
    Pointwise,
    /// The sum over the attribute `axes`.
    Sum,
    /// Each element of the result is an element of the input. The result may reorder or repeat them.
    View,
    /// It may write values that no input has: a fill value, or the value of an empty row.
    Fill,
    /// A sum of products of the first two inputs, by their indices as in `einsum`. `…` stands for leading axes,
    /// which are broadcast. Further inputs are added. The summed index is the last axis of the first input.
    Product(&'static str),
    /// Something else.
    Other,
}

/// The formula of an operation, and the formulas of the gradients of its inputs.
///
/// The names of inputs stand for the inputs, `y` for the result, `g` for its gradient, and `dx` for the gradient
/// of `x`. `·` between tensors is elementwise, and `A B` a matrix product.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Formula {
    /// The result: `y = tanh(x)`.
    pub forward: Cow<'static, str>,
    /// The gradients of the inputs, one in a line: `dx = g · (1 − y²)`. Gradients of inputs that were
    /// broadcast are also summed over these axes.
    pub backward: Cow<'static, str>,
}

/// A product of matrices that an operation computes.
#[derive(Clone, Debug, PartialEq)]
pub struct Product {
    /// The names of the factors: inputs, or intermediate results.
    pub factors: [&'static str; 2],
    /// The shape of the product.
    pub output: Shape,
    /// Floating-point operations; a multiplication and an addition are two.
    pub flops: u64,
}

impl Product {
    /// A product of this shape, each of whose elements is the sum of `terms` products.
    pub fn new(factors: [&'static str; 2], output: Shape, terms: usize) -> Product {
        Product { factors, output, flops: 2 * output.numel() as u64 * terms as u64 }
    }
}

/// The shapes of a call: of its inputs, by name, and of its first result.
#[derive(Debug)]
pub struct Shapes<'a> {
    /// The inputs that were given, in their order.
    pub inputs: &'a [(&'static str, Shape)],
    /// The first result.
    pub output: Shape,
}

impl Shapes<'_> {
    /// The shape of an input.
    ///
    /// # Panics
    /// If it was not given.
    pub fn of(&self, name: &str) -> &Shape {
        let found = self.inputs.iter().find(|(input, _)| *input == name);
        &found.unwrap_or_else(|| panic!("Shapes: no input `{name}` was given")).1
    }

    /// The shape of an input with another last axis.
    pub fn with_last(&self, name: &str, size: usize) -> Shape {
        let mut dims = self.of(name).to_vec();
        dims.pop();
        dims.push(size);
        Shape::from(&dims[..])
    }

    /// The size of the last axis of an input; 1 if it has none.
    pub fn last(&self, name: &str) -> usize {
        self.of(name).last().copied().unwrap_or(1)
    }
}

impl Op {
    /// An operation without a formula.
    pub const fn new(name: &'static str, inputs: &'static [&'static str]) -> Op {
        Op {
            name,
            inputs,
            kind: Kind::Other,
            products: None,
            forward: "",
            backward: "",
            printed: None,
        }
    }

    /// With its formula and the formulas of the gradients of its inputs, one in a line; see [`Formula`].
    pub const fn formula(self, forward: &'static str, backward: &'static str) -> Op {
        Op { forward, backward, ..self }
    }

    /// With a formula that is printed from the code of a function.
    pub(crate) const fn printed(self, formula: fn() -> Formula) -> Op {
        Op { printed: Some(formula), ..self }
    }

    /// With another kind.
    pub const fn kind(self, kind: Kind) -> Op {
        Op { kind, ..self }
    }

    /// With the products of matrices that it computes, where the kind does not say it.
    pub const fn computes(self, products: fn(&Shapes<'_>) -> Vec<Product>) -> Op {
        Op { products: Some(products), ..self }
    }

    /// A call with an attribute; further ones follow by [`Call::with`].
    pub fn with(&'static self, name: &'static str, value: impl Into<Attribute>) -> Call {
        Call { op: self, attributes: SmallVec::from_buf([(name, value.into())]) }
    }

    /// The names of the inputs that were given; of any number of inputs, all have the same name.
    pub fn names(
        &self,
        given: impl IntoIterator<Item = bool>,
    ) -> impl Iterator<Item = &'static str> {
        let last = self.inputs.last().copied().unwrap_or("x..");
        let named = self.inputs.iter().copied().chain(std::iter::repeat(last));
        let given = named.zip(given).filter(|(_, given)| *given);
        given.map(|(name, _)| name.trim_end_matches('?'))
    }

    /// The products of matrices of a call. Other operations have none.
    pub fn products(&self, shapes: &Shapes<'_>) -> Vec<Product> {
        match (self.kind, self.products) {
            (_, Some(products)) => products(shapes),
            (Kind::Product(_), None) => {
                let [(a, _), (b, _), ..] = shapes.inputs else { return Vec::new() };
                vec![Product::new([a, b], shapes.output, shapes.last(a))]
            }
            _ => Vec::new(),
        }
    }
}

/// A call of an operation: the operation and its attributes, which are the arguments that are no variables.
#[derive(Clone, Debug)]
pub struct Call {
    /// The operation.
    pub op: &'static Op,
    /// The attributes, by name.
    pub attributes: SmallVec<[(&'static str, Attribute); 1]>,
}

type AtPlace = dyn Fn(&[usize]) -> usize + Send + Sync;

/// An argument of an operation that is no variable.
#[derive(Clone)]
pub enum Attribute {
    /// A number, such as the ε of a norm.
    Number(f64),
    /// An option, such as whether attention is causal.
    Flag(bool),
    /// Axes, such as the axes of a sum.
    Along(AxisSet),
    /// A function of a place: the row that an embedding copies there, or 1 where attention keeps a key.
    At(Arc<AtPlace>),
}

/// A graph may cross `catch_unwind`: a function of a place only reads.
impl UnwindSafe for Attribute {}
impl RefUnwindSafe for Attribute {}

impl Debug for Attribute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Attribute::Number(x) => write!(f, "{x}"),
            Attribute::Flag(flag) => write!(f, "{flag}"),
            Attribute::Along(axes) => write!(f, "{:?}", axes.iter().collect::<Vec<_>>()),
            Attribute::At(_) => f.write_str("a function of the place"),
        }
    }
}

impl From<&'static Op> for Call {
    fn from(op: &'static Op) -> Call {
        Call { op, attributes: SmallVec::new() }
    }
}

impl Call {
    /// With another attribute.
    pub fn with(mut self, name: &'static str, value: impl Into<Attribute>) -> Call {
        self.attributes.push((name, value.into()));
        self
    }

    /// An attribute by name.
    pub fn attribute(&self, name: &str) -> Option<&Attribute> {
        self.attributes.iter().find(|(own, _)| *own == name).map(|(_, value)| value)
    }

    /// The formula; `None` if the operation has none. Formulas of pointwise functions are printed from their code.
    pub fn formula(&self) -> Option<Formula> {
        let Op { forward, backward, printed, .. } = *self.op;
        match printed {
            Some(print) => Some(print()),
            None if forward.is_empty() => None,
            None => Some(Formula { forward: forward.into(), backward: backward.into() }),
        }
    }

    /// The attributes that are numbers.
    pub fn numbers(&self) -> impl Iterator<Item = (&'static str, f64)> {
        let number = |(name, value): &(_, _)| match value {
            Attribute::Number(x) => Some((*name, *x)),
            _ => None,
        };
        self.attributes.iter().filter_map(number)
    }
}

impl From<f64> for Attribute {
    fn from(x: f64) -> Self {
        Attribute::Number(x)
    }
}

impl From<bool> for Attribute {
    fn from(flag: bool) -> Self {
        Attribute::Flag(flag)
    }
}

impl<F: Fn(&[usize]) -> usize + Send + Sync + 'static> From<Arc<F>> for Attribute {
    fn from(f: Arc<F>) -> Self {
        Attribute::At(f)
    }
}

impl From<AxisSet> for Attribute {
    fn from(axes: AxisSet) -> Self {
        Attribute::Along(axes)
    }
}
