//! Checking gradients against differences: [`gradcheck`] for first, [`gradgradcheck`] for
//! second derivatives.
//!
//! Both work in `f64`, with the same code that `f32` runs. For few elements the whole
//! Jacobian is compared, entry by entry; for many, projections of it on random directions.
//! A tolerance never grows with the number of elements.
//!
//! The differences move a contiguous copy of the logical elements, which is then given the
//! strides and offset of the original (gaps are filled with NaN), so the function always sees
//! the layout it is checked with. Of a layout in which elements overlap, such as an expanded
//! one, no single element can be moved; differences are then taken of a contiguous copy.

use crate::engine::{Backprop, grad};
use crate::var::Var;
use retrograd_tensor::layout::Layout;
use retrograd_tensor::random::Key;
use retrograd_tensor::{Shape, Tensor};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// How to take differences, and how far from them a gradient may be.
///
/// A gradient `a` and a difference quotient `n` agree if `|a - n| <= atol + rtol · |n|`.
#[derive(Clone, Debug, PartialEq)]
pub struct Check {
    /// Points of the difference quotient.
    pub stencil: Stencil,
    /// Step by which an element `x` is moved, times `max(1, |x|)`.
    pub step: f64,
    /// Relative tolerance.
    pub rtol: f64,
    /// Absolute tolerance.
    pub atol: f64,
    /// With at most this many elements in all inputs that are checked, each is moved by
    /// itself; with as few in the output, too, every entry of the Jacobian is compared.
    pub full: usize,
    /// Random projections of what is too large for that.
    pub directions: u64,
    /// Seed of random directions.
    pub seed: u64,
}

/// The points at which a function is evaluated for a derivative.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stencil {
    /// `(f(x+h) - f(x-h)) / 2h`, of second order.
    Central,
    /// `(8 (f(x+h) - f(x-h)) - (f(x+2h) - f(x-2h))) / 12h`, of fourth order.
    FivePoint,
}

impl Default for Check {
    /// Central differences with `h = ∛ε · max(1, |x|)`, about 6e-6, where rounding and
    /// truncation errors balance near 1e-10; `rtol` 1e-6 and `atol` 1e-8.
    fn default() -> Self {
        Check {
            stencil: Stencil::Central,
            step: f64::EPSILON.cbrt(),
            rtol: 1e-6,
            atol: 1e-8,
            full: 64,
            directions: 8,
            seed: 0,
        }
    }
}

impl Check {
    /// Fourth-order differences with `h = 1e-3 · max(1, |x|)`, whose error is about 1e-12;
    /// `rtol` 1e-8 and `atol` 1e-10. Finds constants that are wrong in the eighth digit, of
    /// functions that are smooth over `4h` around every input.
    ///
    /// ```
    /// use retrograd_autograd::{Var, check::{Check, gradcheck}};
    /// use retrograd_tensor::Tensor;
    /// let x = Var::leaf(Tensor::from([0.5f64, -1.0, 2.0]));
    /// let report = gradcheck(|x| x[0].gelu(), &[x], &Check::precise()).unwrap();
    /// assert!(report.worst.unwrap().error < 1e-10);
    /// ```
    pub fn precise() -> Self {
        Check {
            stencil: Stencil::FivePoint,
            step: 1e-3,
            rtol: 1e-8,
            atol: 1e-10,
            ..Check::default()
        }
    }

    fn allowed(&self, numeric: f64) -> f64 {
        self.atol + self.rtol * numeric.abs()
    }
}

/// What a successful check has done.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// Numbers compared: entries of the Jacobian, or projections of it.
    pub compared: usize,
    /// Evaluations of the function.
    pub evaluations: usize,
    /// The comparison that came nearest to failing; `None` if there was nothing to compare.
    pub worst: Option<Compared>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} derivatives agree", self.compared)?;
        match &self.worst {
            Some(worst) => write!(f, "; the worst: {worst}"),
            None => Ok(()),
        }
    }
}

/// One derivative, computed in two ways.
#[derive(Clone, Debug, PartialEq)]
pub struct Compared {
    /// Which input, and the index of its element; `None` of a projection on a random
    /// direction.
    pub input: Option<(usize, Vec<usize>)>,
    /// The index of the output element; `None` of a random combination of them.
    pub output: Option<Vec<usize>>,
    /// The derivative by the backward pass.
    pub analytic: f64,
    /// The derivative by differences (or by the other of two backward passes).
    pub numeric: f64,
    /// `|analytic - numeric|`
    pub error: f64,
    /// How large the error may be.
    pub allowed: f64,
}

impl Compared {
    fn is_wrong(&self) -> bool {
        self.error.is_nan() || self.error > self.allowed
    }

    /// How much of the tolerance is used; above 1 it is exceeded.
    pub fn ratio(&self) -> f64 {
        if self.error == 0.0 { 0.0 } else { self.error / self.allowed }
    }
}

impl fmt::Display for Compared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.input {
            Some((input, element)) => write!(f, "input {input} at {element:?}")?,
            None => f.write_str("a random direction of the inputs")?,
        }
        match &self.output {
            Some(output) => write!(f, ", output at {output:?}")?,
            None => f.write_str(", a random combination of outputs")?,
        }
        let Compared { analytic, numeric, error, allowed, .. } = self;
        write!(
            f,
            ": analytic {analytic:?}, numeric {numeric:?}, error {error:.3e} (allowed {allowed:.3e})"
        )
    }
}

/// Why a check failed.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum CheckError {
    /// No input is tracked, so there is nothing to check.
    NothingTracked,
    /// The gradient and the differences disagree.
    Mismatch {
        /// How many of the numbers compared do.
        wrong: usize,
        /// Out of how many.
        compared: usize,
        /// The worst of them.
        worst: Compared,
    },
    /// An input got no gradient, though the output depends on it.
    Detached {
        /// The input.
        input: usize,
        /// A derivative that is not 0.
        example: Compared,
    },
    /// A gradient has another shape than its input, or the output another shape at another
    /// point.
    Shape {
        /// Which.
        what: String,
        /// The shape it should have.
        expected: Vec<usize>,
        /// The shape it has.
        got: Vec<usize>,
    },
    /// A value that is NaN or infinite.
    NotFinite {
        /// What it is a value of.
        what: String,
        /// The index of the element.
        element: Vec<usize>,
        /// The value.
        value: f64,
    },
    /// Two runs with the same inputs differ in bits.
    Nondeterministic {
        /// What differs.
        what: String,
        /// The index of the first element that does.
        element: Vec<usize>,
        /// Its values.
        values: (f64, f64),
    },
    /// The gradient of a recorded pass is not that of the fast one.
    Recorded {
        /// The worst element: recorded as analytic, fast as numeric.
        worst: Compared,
    },
    /// The backward pass panicked.
    Panicked {
        /// The message.
        message: String,
    },
}

impl fmt::Display for CheckError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CheckError::NothingTracked => {
                f.write_str("no input is tracked (hint: make inputs with Var::leaf)")
            }
            CheckError::Mismatch { wrong, compared, worst } => {
                write!(f, "{wrong} of {compared} derivatives are wrong; the worst: {worst}")
            }
            CheckError::Detached { input, example } => write!(
                f,
                "input {input} is detached: it got no gradient, though the output depends on it: \
                 {example}"
            ),
            CheckError::Shape { what, expected, got } => {
                write!(f, "{what} has shape {got:?}, should have {expected:?}")
            }
            CheckError::NotFinite { what, element, value } => {
                write!(f, "{what} is {value} at {element:?}")
            }
            CheckError::Nondeterministic { what, element, values: (a, b) } => write!(
                f,
                "{what} is nondeterministic: {a:?} and {b:?} at {element:?} from the same inputs"
            ),
            CheckError::Recorded { worst } => write!(
                f,
                "a recorded pass (analytic) gives another gradient than the fast one (numeric): \
                 {worst}"
            ),
            CheckError::Panicked { message } => write!(f, "backward panicked: {message}"),
        }
    }
}

impl std::error::Error for CheckError {}

/// Compares the gradients of `f` by a backward pass with differences.
///
/// `f` may give an output of any shape. The tracked inputs are checked; the others are handed
/// on as they are. Also checked: gradients have the shapes of their inputs, everything is
/// finite, every input that matters gets a gradient, and a second run gives the same bits
/// (other points are visited in between, so nothing may be left over from them).
///
/// ```
/// use retrograd_autograd::{Var, check::{Check, gradcheck}};
/// use retrograd_tensor::Tensor;
///
/// let a = Var::leaf(Tensor::from([[1.0f64, 2.0], [3.0, 4.0]]));
/// let b = Var::leaf(Tensor::from([0.5f64, -0.5]));
/// let report = gradcheck(|x| x[0].matmul(&x[1]), &[a, b], &Check::default()).unwrap();
/// assert_eq!(report.compared, 2 * (4 + 2)); // outputs times inputs
///
/// // A gradient that stops half-way does not go unnoticed.
/// let x = Var::leaf(Tensor::scalar(3.0f64));
/// let wrong = gradcheck(|x| x[0].mul(&x[0].detach()), &[x], &Check::default()).unwrap_err();
/// assert!(wrong.to_string().contains("analytic 3.0, numeric 5.99999"), "{wrong}");
/// ```
///
/// # Errors
/// A [`CheckError`], which names the worst element with both values.
pub fn gradcheck(
    f: impl Fn(&[Var<f64>]) -> Var<f64>,
    inputs: &[Var<f64>],
    check: &Check,
) -> Result<Report, CheckError> {
    let points: Vec<Point> = inputs.iter().map(Point::new).collect();
    if !points.iter().any(|p| p.tracked) {
        return Err(CheckError::NothingTracked);
    }
    Checker { f, inputs, points, check, evaluations: 0 }.run()
}

/// Checks second derivatives: those of `(x, v) ↦ Jᵀv`, the gradient of `f` for a cotangent
/// `v`, with respect to the inputs *and* `v`. Also, that gradient must be the same whether
/// the backward pass is recorded or not, to 1e-12 of its largest element (and 1e-14).
///
/// ```
/// use retrograd_autograd::{Var, check::{Check, gradgradcheck}};
/// use retrograd_tensor::Tensor;
/// let x = Var::leaf(Tensor::from([0.3f64, -1.2, 0.8]));
/// gradgradcheck(|x| x[0].softmax(0), &[x], &Check::default()).unwrap();
/// ```
///
/// # Errors
/// A [`CheckError`]; inputs are numbered as for `f`, and `v` comes after them.
pub fn gradgradcheck(
    f: impl Fn(&[Var<f64>]) -> Var<f64>,
    inputs: &[Var<f64>],
    check: &Check,
) -> Result<Report, CheckError> {
    let tracked: Vec<bool> = inputs.iter().map(|x| x.is_tracked()).collect();
    if !tracked.contains(&true) {
        return Err(CheckError::NothingTracked);
    }
    let y = f(&fresh(inputs));
    let v = noise(check.seed, 0, y.value().numel());
    let v = Var::leaf(Tensor::from_vec(v, y.shape()));
    let vjp = |x: &[Var<f64>]| {
        let (x, v) = (&x[..inputs.len()], &x[inputs.len()]);
        let x: Vec<Var<f64>> = x.iter().zip(&tracked).map(|(x, &t)| tracked_as(x, t)).collect();
        let y = f(&x);
        let wanted: Vec<&Var<f64>> = x.iter().filter(|x| x.is_tracked()).collect();
        if !y.is_tracked() {
            return wanted.iter().map(|x| Var::constant(Tensor::zeros(x.shape()))).collect();
        }
        let found = grad(&[(&y, Some(v))], &wanted).into_iter();
        let or_zero =
            |(g, x): (Option<_>, &&Var<f64>)| g.unwrap_or(Var::constant(Tensor::zeros(x.shape())));
        found.zip(&wanted).map(or_zero).collect::<Vec<_>>()
    };

    // The recorded gradient against the fast one.
    let leaves = fresh(inputs);
    let y = f(&leaves);
    if y.is_tracked() {
        let fast = guarded(|| y.backward_with(v.value()))?;
        let with_v: Vec<Var<f64>> = leaves.iter().chain([&v]).cloned().collect();
        let recorded = guarded(|| vjp(&with_v))?;
        let wanted = leaves.iter().enumerate().filter(|(_, x)| x.is_tracked());
        for ((input, x), recorded) in wanted.zip(recorded) {
            let recorded = recorded.value().to_vec();
            let fast = fast.get(x).map_or(vec![0.0; recorded.len()], |g| g.to_vec());
            let scale = fast.iter().chain(&recorded).fold(0.0f64, |m, g| m.max(g.abs()));
            let mut tally = Tally::default();
            for (i, (&analytic, &numeric)) in recorded.iter().zip(&fast).enumerate() {
                let at = || Some((input, unravel(i, x.shape())));
                tally.add(analytic, numeric, 1e-12 * scale + 1e-14, at, || None);
            }
            if tally.wrong > 0 {
                return Err(CheckError::Recorded { worst: tally.worst.expect("something wrong") });
            }
        }
    }

    let flat = |x: &[Var<f64>]| {
        let parts: Vec<Var<f64>> = vjp(x).iter().map(|g| g.flatten()).collect();
        Var::cat(&parts.iter().collect::<Vec<_>>(), 0)
    };
    let inputs: Vec<Var<f64>> = inputs.iter().chain([&v]).cloned().collect();
    gradcheck(flat, &inputs, check)
}

/// `x` itself, or made a leaf if it should be tracked and is not.
fn tracked_as(x: &Var<f64>, tracked: bool) -> Var<f64> {
    if tracked && !x.is_tracked() { Var::leaf(x.value().clone()) } else { x.clone() }
}

/// The same values as leaves of their own.
fn fresh(inputs: &[Var<f64>]) -> Vec<Var<f64>> {
    let leaf = |x: &Var<f64>| {
        if x.is_tracked() { Var::leaf(x.value().clone()) } else { x.clone() }
    };
    inputs.iter().map(leaf).collect()
}

/// `n` numbers of random sign and size between 1/2 and 1.
fn noise(seed: u64, stream: u64, n: usize) -> Vec<f64> {
    let key = Key::new(seed, stream);
    let number = |i: u64| {
        let x = 2.0 * key.uniform(i) - 1.0;
        0.5 * (x + 1f64.copysign(x))
    };
    (0..n as u64).map(number).collect()
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(x, y)| x * y).sum()
}

fn guarded<R>(f: impl FnOnce() -> R) -> Result<R, CheckError> {
    catch_unwind(AssertUnwindSafe(f)).map_err(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|s| s.to_string()));
        CheckError::Panicked { message: text.unwrap_or_else(|| "no message".into()) }
    })
}

/// The index of the `i`-th element in row-major order.
fn unravel(mut i: usize, shape: &Shape) -> Vec<usize> {
    let mut index = vec![0; shape.rank()];
    for axis in (0..shape.rank()).rev() {
        index[axis] = i % shape[axis];
        i /= shape[axis];
    }
    index
}

/// An input, ready to be laid out again with other elements.
struct Point {
    tracked: bool,
    shape: Shape,
    layout: Layout,
    elements: Vec<f64>,
    /// Where each element lives, and how long the storage is.
    places: Vec<usize>,
    span: usize,
}

impl Point {
    fn new(x: &Var<f64>) -> Point {
        let shape = *x.shape();
        let elements = x.value().to_vec();
        let places = |layout: &Layout| -> Vec<usize> {
            let at = |i| layout.position("gradcheck", &unravel(i, &shape)).expect("an index");
            (0..elements.len()).map(at).collect()
        };
        let mut layout = *x.value().layout();
        let mut sorted = places(&layout);
        sorted.sort_unstable();
        if sorted.windows(2).any(|w| w[0] == w[1]) || elements.is_empty() {
            layout = Layout::contiguous(shape);
        }
        let places = places(&layout);
        let span = places.iter().max().map_or(0, |p| p + 1);
        Point { tracked: x.is_tracked(), shape, layout, elements, places, span }
    }

    /// Other elements in the same layout; gaps hold NaN.
    fn lay(&self, elements: &[f64]) -> Tensor<f64> {
        let mut storage = vec![f64::NAN; self.span];
        for (&place, &x) in self.places.iter().zip(elements) {
            storage[place] = x;
        }
        Tensor::from_vec(storage, [self.span]).as_strided(&self.layout)
    }

    fn step(&self, element: usize, h: f64) -> f64 {
        h * self.elements[element].abs().max(1.0)
    }
}

/// Comparisons made.
#[derive(Default)]
struct Tally {
    compared: usize,
    wrong: usize,
    worst: Option<Compared>,
}

impl Tally {
    fn add(
        &mut self,
        analytic: f64,
        numeric: f64,
        allowed: f64,
        input: impl FnOnce() -> Option<(usize, Vec<usize>)>,
        output: impl FnOnce() -> Option<Vec<usize>>,
    ) {
        let error = (analytic - numeric).abs();
        let mut this = Compared { input: None, output: None, analytic, numeric, error, allowed };
        self.compared += 1;
        self.wrong += this.is_wrong() as usize;
        let nearer = |worst: &Compared| {
            this.error.is_nan() && !worst.error.is_nan() || this.ratio() > worst.ratio()
        };
        if self.worst.as_ref().is_none_or(nearer) {
            (this.input, this.output) = (input(), output());
            self.worst = Some(this);
        }
    }
}

struct Checker<'a, F> {
    f: F,
    inputs: &'a [Var<f64>],
    points: Vec<Point>,
    check: &'a Check,
    evaluations: usize,
}

/// A graph at the point that is checked.
struct Graph {
    leaves: Vec<Var<f64>>,
    y: Var<f64>,
}

impl<F: Fn(&[Var<f64>]) -> Var<f64>> Checker<'_, F> {
    fn run(mut self) -> Result<Report, CheckError> {
        // Elsewhere first, so that what an operation keeps from its first call is not right.
        let elsewhere: Vec<Vec<f64>> = self
            .points
            .iter()
            .map(|p| (0..p.elements.len()).map(|i| p.step(i, self.check.step)).collect())
            .collect();
        self.moved(1.0, &elsewhere);
        let graph = self.graph();
        let shape = *graph.y.shape();
        let y = graph.y.value().to_vec();
        finite(|| "the output".into(), &y, &shape)?;

        let elements: usize =
            self.points.iter().filter(|p| p.tracked).map(|p| p.elements.len()).sum();
        let each_input = elements <= self.check.full;
        let each_output = each_input && y.len() <= self.check.full;
        let cotangents: Vec<Vec<f64>> = if each_output {
            let one_hot = |j| (0..y.len()).map(|i| f64::from(u8::from(i == j))).collect();
            (0..y.len()).map(one_hot).collect()
        } else {
            (0..self.check.directions).map(|k| noise(self.check.seed, 2 * k, y.len())).collect()
        };

        // Differences, between the forward and the backward pass.
        let columns = if each_input { self.columns(&shape)? } else { Vec::new() };
        let mut tally = Tally::default();
        let mut missing = vec![true; self.points.len()];
        let mut first: Vec<Vec<Vec<f64>>> = Vec::new();
        for (j, v) in cotangents.iter().enumerate() {
            let gradients = self.gradients(&graph, v, &shape, &mut missing)?;
            if each_input {
                let output = || each_output.then(|| unravel(j, &shape));
                self.compare(&mut tally, &gradients, &columns, v, output);
            } else {
                self.project(&mut tally, j as u64, &gradients, v, &shape)?;
            }
            first.push(gradients);
        }
        if tally.wrong > 0 {
            let worst = tally.worst.expect("something is wrong");
            return Err(match &worst.input {
                Some((input, _)) if missing[*input] => {
                    CheckError::Detached { input: *input, example: worst }
                }
                _ => CheckError::Mismatch { wrong: tally.wrong, compared: tally.compared, worst },
            });
        }

        // Again, with a graph of its own.
        let again = self.graph();
        equal_bits(|| "the output".into(), &y, &again.y.value().to_vec(), &shape)?;
        for (v, before) in cotangents.iter().zip(first) {
            let after = self.gradients(&again, v, &shape, &mut missing)?;
            for (k, (a, b)) in before.iter().zip(after).enumerate() {
                let name = || format!("the gradient of input {k}");
                equal_bits(name, a, &b, &self.points[k].shape)?;
            }
        }
        let Tally { compared, worst, .. } = tally;
        Ok(Report { compared, evaluations: self.evaluations, worst })
    }

    fn graph(&mut self) -> Graph {
        let leaves = fresh(self.inputs);
        let y = (self.f)(&leaves);
        self.evaluations += 1;
        Graph { leaves, y }
    }

    /// The function at the inputs plus `t` times a direction.
    fn moved(&mut self, t: f64, direction: &[Vec<f64>]) -> (Vec<f64>, Shape) {
        let mut inputs = Vec::with_capacity(self.inputs.len());
        for ((x, p), u) in self.inputs.iter().zip(&self.points).zip(direction) {
            inputs.push(if p.tracked {
                let moved: Vec<f64> = p.elements.iter().zip(u).map(|(x, u)| x + t * u).collect();
                Var::constant(p.lay(&moved))
            } else {
                x.clone()
            });
        }
        self.evaluations += 1;
        let y = (self.f)(&inputs);
        (y.value().to_vec(), *y.shape())
    }

    /// The derivative of every output along a direction, for steps of `h` in it.
    fn difference(
        &mut self,
        direction: &[Vec<f64>],
        h: f64,
        shape: &Shape,
    ) -> Result<Vec<f64>, CheckError> {
        let stencil = self.check.stencil;
        let mut at = |t: f64| {
            let (y, got) = self.moved(t, direction);
            if got == *shape {
                return Ok(y);
            }
            let what = "the output near the inputs".into();
            Err(CheckError::Shape { what, expected: shape.to_vec(), got: got.to_vec() })
        };
        let (a, b) = (at(h)?, at(-h)?);
        let near = a.iter().zip(&b).map(|(a, b)| a - b);
        let quotient: Vec<f64> = match stencil {
            Stencil::Central => near.map(|d| d / (2.0 * h)).collect(),
            Stencil::FivePoint => {
                let (a, b) = (at(2.0 * h)?, at(-2.0 * h)?);
                let far = a.iter().zip(&b).map(|(a, b)| a - b);
                near.zip(far).map(|(n, f)| (8.0 * n - f) / (12.0 * h)).collect()
            }
        };
        finite(|| "the difference quotient of the output".into(), &quotient, shape)?;
        Ok(quotient)
    }

    /// One column of the Jacobian for each element of each tracked input.
    fn columns(&mut self, shape: &Shape) -> Result<Vec<Vec<Vec<f64>>>, CheckError> {
        let still = |p: &Point| vec![0.0; p.elements.len()];
        let mut direction: Vec<Vec<f64>> = self.points.iter().map(still).collect();
        let mut columns = Vec::new();
        for k in 0..self.points.len() {
            let n = if self.points[k].tracked { self.points[k].elements.len() } else { 0 };
            let mut of_input = Vec::with_capacity(n);
            for i in 0..n {
                direction[k][i] = 1.0;
                let h = self.points[k].step(i, self.check.step);
                of_input.push(self.difference(&direction, h, shape)?);
                direction[k][i] = 0.0;
            }
            columns.push(of_input);
        }
        Ok(columns)
    }

    /// Gradients for one cotangent: 0 where there is none.
    fn gradients(
        &self,
        graph: &Graph,
        v: &[f64],
        shape: &Shape,
        missing: &mut [bool],
    ) -> Result<Vec<Vec<f64>>, CheckError> {
        let none = |p: &Point| vec![0.0; p.elements.len()];
        if !graph.y.is_tracked() {
            return Ok(self.points.iter().map(none).collect());
        }
        let v = Tensor::from_vec(v.to_vec(), shape);
        let found = guarded(|| Backprop::from(&graph.y).cotangent(v).retain_graph().run())?;
        let mut out = Vec::new();
        for (k, (x, p)) in graph.leaves.iter().zip(&self.points).enumerate() {
            let name = || format!("the gradient of input {k}");
            out.push(match found.get(x) {
                None => none(p),
                Some(g) if *g.shape() != p.shape => {
                    return Err(CheckError::Shape {
                        what: name(),
                        expected: p.shape.to_vec(),
                        got: g.shape().to_vec(),
                    });
                }
                Some(g) => {
                    missing[k] = false;
                    let g = g.to_vec();
                    finite(name, &g, &p.shape)?;
                    g
                }
            });
        }
        Ok(out)
    }

    /// Every element of the gradients against the columns.
    fn compare(
        &self,
        tally: &mut Tally,
        gradients: &[Vec<f64>],
        columns: &[Vec<Vec<f64>>],
        v: &[f64],
        output: impl Fn() -> Option<Vec<usize>>,
    ) {
        for (k, (gradient, columns)) in gradients.iter().zip(columns).enumerate() {
            for (i, column) in columns.iter().enumerate() {
                let numeric = dot(v, column);
                let at = || Some((k, unravel(i, &self.points[k].shape)));
                tally.add(gradient[i], numeric, self.check.allowed(numeric), at, &output);
            }
        }
    }

    /// One projection; and if it is wrong, a search for the element to blame.
    fn project(
        &mut self,
        tally: &mut Tally,
        k: u64,
        gradients: &[Vec<f64>],
        v: &[f64],
        shape: &Shape,
    ) -> Result<(), CheckError> {
        let elements: usize = gradients.iter().map(|g| g.len()).sum();
        let scale = (8.0 / (elements as f64).sqrt()).min(1.0);
        let mut u = noise(self.check.seed, 2 * k + 1, elements).into_iter().map(|u| u * scale);
        let direction: Vec<Vec<f64>> =
            gradients.iter().map(|g| u.by_ref().take(g.len()).collect()).collect();
        let tracked = |k: &usize| self.points[*k].tracked;
        let analytic: f64 =
            (0..self.points.len()).filter(tracked).map(|k| dot(&gradients[k], &direction[k])).sum();
        let along = self.difference(&direction, self.check.step, shape)?;
        let numeric = dot(v, &along);
        let before = tally.wrong;
        tally.add(analytic, numeric, self.check.allowed(numeric), || None, || None);
        if tally.wrong > before {
            let columns = self.columns(shape)?;
            let mut search = Tally::default();
            self.compare(&mut search, gradients, &columns, v, || None);
            if search.wrong > 0 {
                *tally = search;
            }
        }
        Ok(())
    }
}

fn finite(what: impl FnOnce() -> String, x: &[f64], shape: &Shape) -> Result<(), CheckError> {
    match x.iter().position(|x| !x.is_finite()) {
        None => Ok(()),
        Some(i) => {
            Err(CheckError::NotFinite { what: what(), element: unravel(i, shape), value: x[i] })
        }
    }
}

fn equal_bits(
    what: impl FnOnce() -> String,
    a: &[f64],
    b: &[f64],
    shape: &Shape,
) -> Result<(), CheckError> {
    match a.iter().zip(b).position(|(a, b)| a.to_bits() != b.to_bits()) {
        None => Ok(()),
        Some(i) => Err(CheckError::Nondeterministic {
            what: what(),
            element: unravel(i, shape),
            values: (a[i], b[i]),
        }),
    }
}
