//! Reverse-mode automatic differentiation of scalars, without a library.
//!
//! Each computed number stores its inputs and the operation, from which the partial derivative with
//! respect to each input follows: for the product `p = a * b` these are `b` and `a`. Let `g(v)` be the
//! derivative of a result `y` with respect to `v`. Then `g(y) = 1`, and by the chain rule each input of
//! `v` receives `g(v)` times its partial derivative; a number that is used several times adds up what it
//! receives. One backward pass from `y` computes the derivatives with respect to all numbers that `y`
//! depends on.
//!
//! The pass is written once, for two kinds of numbers. On `f64` it computes derivatives. On `Value` it
//! records its own operations, so the derivatives can be differentiated again.
//!
//! Run it with `cargo run --release --example scalar`. With `-- --wrong-order` it compares passes
//! that process numbers in other orders.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ops::{Add, Div, Mul, Sub};
use std::process::ExitCode;
use std::rc::Rc;

/// A number with the operation that computed it. A clone is the same number, not another one.
#[derive(Clone)]
pub(crate) struct Value(Rc<Node>);

struct Node {
    id: u64,
    data: Cell<f64>,
    op: Op,
    /// None for a variable.
    inputs: Vec<Value>,
}

/// What computed a number.
#[derive(Clone, Copy)]
enum Op {
    Variable,
    Add,
    Sub,
    Mul,
    Div,
    Powf(f64),
    Exp,
    Ln,
    Tanh,
    Relu,
}

impl Op {
    /// The partial derivatives of `y`, computed from the inputs `x`, with respect to each of these.
    fn slopes<N: Number>(self, x: &[N], y: &N) -> Vec<N> {
        match self {
            Op::Variable => vec![],
            Op::Add => vec![N::number(1.0), N::number(1.0)],
            Op::Sub => vec![N::number(1.0), N::number(-1.0)],
            Op::Mul => vec![x[1].clone(), x[0].clone()],
            Op::Div => {
                let slope = N::number(1.0) / x[1].clone();
                vec![slope.clone(), N::number(-1.0) * y.clone() * slope]
            }
            Op::Powf(p) => vec![N::number(p) * x[0].pow(p - 1.0)],
            Op::Exp => vec![y.clone()],
            Op::Ln => vec![N::number(1.0) / x[0].clone()],
            Op::Tanh => vec![N::number(1.0) - y.clone() * y.clone()],
            Op::Relu => vec![N::number(if y.data() > 0.0 { 1.0 } else { 0.0 })],
        }
    }
}

impl Value {
    pub(crate) fn new(data: f64) -> Value {
        Value::computed(data, Op::Variable, vec![])
    }

    fn computed(data: f64, op: Op, inputs: Vec<Value>) -> Value {
        thread_local!(static NEXT: Cell<u64> = const { Cell::new(0) });
        let id = NEXT.replace(NEXT.get() + 1);
        Value(Rc::new(Node { id, data: data.into(), op, inputs }))
    }

    pub(crate) fn data(&self) -> f64 {
        self.0.data.get()
    }

    /// Gives a variable another value, after the backward passes from what was computed with it.
    pub(crate) fn set(&self, data: f64) {
        self.0.data.set(data);
    }

    fn map(&self, data: f64, op: Op) -> Value {
        Value::computed(data, op, vec![self.clone()])
    }

    pub(crate) fn powf(&self, p: f64) -> Value {
        self.map(self.data().powf(p), Op::Powf(p))
    }

    pub(crate) fn exp(&self) -> Value {
        self.map(self.data().exp(), Op::Exp)
    }

    pub(crate) fn ln(&self) -> Value {
        self.map(self.data().ln(), Op::Ln)
    }

    pub(crate) fn tanh(&self) -> Value {
        self.map(self.data().tanh(), Op::Tanh)
    }

    pub(crate) fn relu(&self) -> Value {
        self.map(self.data().max(0.0), Op::Relu)
    }

    /// The partial derivatives of this number with respect to its inputs.
    fn slopes<N: Number>(&self) -> Vec<N> {
        let inputs: Vec<N> = self.0.inputs.iter().map(N::of).collect();
        self.0.op.slopes(&inputs, &N::of(self))
    }

    /// The derivatives of this number with respect to all numbers that it depends on.
    ///
    /// A number is processed when its gradient is complete, after everything computed from it. No
    /// topological sort is needed: a result is created after its inputs and has a larger id, so the
    /// next number is the one with the largest id among those that have received a gradient.
    /// Retrograd's engine traverses its graph in the same order. There is no recursion, which would
    /// overflow the stack on a long computation. (Dropping a long chain of `Rc` still recurses; the
    /// engine drops its graph in a loop.)
    pub(crate) fn gradients<N: Number>(&self) -> Gradients<N> {
        let mut complete = BTreeMap::new();
        let mut waiting = BTreeMap::from([(self.0.id, (self.clone(), N::number(1.0)))]);
        while let Some((id, (value, grad))) = waiting.pop_last() {
            for (input, slope) in value.0.inputs.iter().zip(value.slopes::<N>()) {
                let part = grad.clone() * slope;
                let sum = match waiting.remove(&input.0.id) {
                    Some((_, sum)) => sum + part,
                    None => part,
                };
                waiting.insert(input.0.id, (input.clone(), sum));
            }
            complete.insert(id, grad);
        }
        Gradients(complete)
    }
}

/// The derivatives of one number with respect to others, by their ids.
pub(crate) struct Gradients<N>(BTreeMap<u64, N>);

impl<N: Number> Gradients<N> {
    /// The derivative with respect to `x`, which is 0 if the number does not depend on it.
    pub(crate) fn get(&self, x: &Value) -> N {
        self.0.get(&x.0.id).cloned().unwrap_or(N::number(0.0))
    }
}

/// The numbers of a backward pass.
pub(crate) trait Number:
    Clone + Add<Output = Self> + Sub<Output = Self> + Mul<Output = Self> + Div<Output = Self>
{
    fn number(x: f64) -> Self;
    /// A number of the graph, in the backward pass.
    fn of(value: &Value) -> Self;
    fn data(&self) -> f64;
    fn pow(&self, p: f64) -> Self;
}

/// Derivatives as plain numbers.
impl Number for f64 {
    fn number(x: f64) -> f64 {
        x
    }
    fn of(value: &Value) -> f64 {
        value.data()
    }
    fn data(&self) -> f64 {
        *self
    }
    fn pow(&self, p: f64) -> f64 {
        self.powf(p)
    }
}

/// Derivatives with a graph of their own: second order, and any other.
impl Number for Value {
    fn number(x: f64) -> Value {
        Value::new(x)
    }
    fn of(value: &Value) -> Value {
        value.clone()
    }
    fn data(&self) -> f64 {
        self.data()
    }
    fn pow(&self, p: f64) -> Value {
        self.powf(p)
    }
}

/// An operator on two numbers.
macro_rules! operator {
    ($Op:ident, $method:ident, |$a:ident, $b:ident| $result:expr) => {
        impl $Op for &Value {
            type Output = Value;
            fn $method(self, other: &Value) -> Value {
                let ($a, $b) = (self.data(), other.data());
                Value::computed($result, Op::$Op, vec![self.clone(), other.clone()])
            }
        }
        impl $Op for Value {
            type Output = Value;
            fn $method(self, other: Value) -> Value {
                (&self).$method(&other)
            }
        }
    };
}

operator!(Add, add, |a, b| a + b);
operator!(Sub, sub, |a, b| a - b);
operator!(Mul, mul, |a, b| a * b);
operator!(Div, div, |a, b| a / b);

fn expression(a: &Value, b: &Value) -> Value {
    let c = &(a * b).tanh() + &(a / b);
    &(&(&c.powf(3.0) - &a.exp()) * &(b - a).relu()) * &b.ln()
}

/// The outputs of one layer: each is tanh of a bias and a weighted sum of the inputs. A row of
/// weights holds the weights of one output, the bias last.
fn layer(weights: &[Vec<Value>], inputs: &[Value]) -> Vec<Value> {
    let output = |row: &Vec<Value>| {
        let (bias, row) = row.split_last().expect("a row has a bias");
        row.iter().zip(inputs).fold(bias.clone(), |sum, (w, x)| &sum + &(w * x)).tanh()
    };
    weights.iter().map(output).collect()
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => derivatives_and_training(),
        ["--wrong-order"] => compare_orders(),
        _ => {
            eprintln!("usage: scalar [--wrong-order]");
            return ExitCode::from(2);
        }
    }
    ExitCode::SUCCESS
}

fn derivatives_and_training() {
    println!("gradients of ((tanh(ab) + a/b)^3 - e^a) relu(b - a) ln(b), and finite differences");
    let (a, b) = (Value::new(0.7), Value::new(1.9));
    let grads = expression(&a, &b).gradients::<Value>();
    let (grad_a, grad_b) = (grads.get(&a), grads.get(&b));
    let h = 1e-6;
    let at = |da, db| expression(&Value::new(0.7 + da), &Value::new(1.9 + db));
    let difference = |f: &dyn Fn(f64) -> f64| (f(h) - f(-h)) / (2.0 * h);
    let da = difference(&|h| at(h, 0.0).data());
    let db = difference(&|h| at(0.0, h).data());
    println!("  d/da: {:.8}  {da:.8}\n  d/db: {:.8}  {db:.8}", grad_a.data(), grad_b.data());

    println!("gradients of these gradients, and finite differences of the gradients");
    // The derivative of the expression by a, at other points.
    let by_a = |a: f64, b: f64| {
        let (a, b) = (Value::new(a), Value::new(b));
        expression(&a, &b).gradients::<f64>().get(&a)
    };
    let second = grad_a.gradients::<f64>();
    let daa = difference(&|h| by_a(0.7 + h, 1.9));
    let dab = difference(&|h| by_a(0.7, 1.9 + h));
    println!(
        "  d²/da²:  {:.6}  {daa:.6}\n  d²/dadb: {:.6}  {dab:.6}",
        second.get(&a),
        second.get(&b)
    );

    println!("a network with four hidden units learns exclusive or");
    let mut seed = 1_u64;
    let mut random = |inputs: usize, outputs: usize| -> Vec<Vec<Value>> {
        let mut weight = || {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            Value::new((seed >> 11) as f64 / (1_u64 << 52) as f64 - 1.0) // from -1 to 1
        };
        (0..outputs).map(|_| (0..=inputs).map(|_| weight()).collect()).collect()
    };
    let (hidden, output) = (random(2, 4), random(4, 1));
    let predict = |x: [f64; 2]| layer(&output, &layer(&hidden, &x.map(Value::new))).remove(0);
    let examples = [([0.0, 0.0], -1.0), ([0.0, 1.0], 1.0), ([1.0, 0.0], 1.0), ([1.0, 1.0], -1.0)];
    for step in 0..=500 {
        let errors = examples.map(|(x, wanted)| (&predict(x) - &Value::new(wanted)).powf(2.0));
        let loss = errors.iter().fold(Value::new(0.0), |sum, error| &sum + error);
        let grads = loss.gradients::<f64>();
        if step % 100 == 0 {
            println!("  step {step:3}: loss {:.6}", loss.data());
        }
        for weight in hidden.iter().chain(&output).flatten() {
            weight.set(weight.data() - 0.1 * grads.get(weight));
        }
    }
    for (x, _) in examples {
        println!("  {x:?} -> {:+.3}", predict(x).data());
    }
}

/// How a recursive pass continues when a gradient arrives at a number.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Recursion {
    /// To the inputs if it is the first that arrives; later ones are only added.
    FirstArrival,
    /// To the inputs with the sum of all that have arrived so far.
    SumSoFar,
    /// To the inputs with what has just arrived.
    EachPath,
}

/// The state of a recursive pass: the gradients, and the ids of the numbers whose slopes were applied,
/// in order.
#[derive(Default)]
pub(crate) struct Recursive {
    gradients: BTreeMap<u64, f64>,
    pub(crate) visits: Vec<u64>,
}

impl Recursive {
    /// Starts at a result, whose gradient is 1.
    pub(crate) fn pass(result: &Value, how: Recursion) -> Recursive {
        let mut pass = Recursive::default();
        pass.arrive(result, 1.0, how);
        pass
    }

    pub(crate) fn gradient(&self, x: &Value) -> f64 {
        self.gradients[&x.0.id]
    }

    fn arrive(&mut self, value: &Value, part: f64, how: Recursion) {
        let is_first = !self.gradients.contains_key(&value.0.id);
        let sum = self.gradients.entry(value.0.id).or_default();
        *sum += part;
        let passed_on = match how {
            Recursion::FirstArrival if !is_first => return,
            Recursion::SumSoFar => *sum,
            Recursion::FirstArrival | Recursion::EachPath => part,
        };
        self.visits.push(value.0.id);
        for (input, slope) in value.0.inputs.iter().zip(value.slopes::<f64>()) {
            self.arrive(input, passed_on * slope, how);
        }
    }
}

/// `y = 5ⁿ x²`, computed by a chain of `n` diamonds: `b` is used by `c = 2b` and `d = 3b`, and `c + d` is
/// the `b` of the next one. The numbers are returned with their names.
pub(crate) fn diamonds(x: f64, n: usize) -> Vec<(&'static str, Value)> {
    let x = Value::new(x);
    let mut all = vec![("x", x.clone()), ("b", x.powf(2.0))];
    for _ in 0..n {
        let b = all[all.len() - 1].1.clone();
        let (c, d) = (&Value::new(2.0) * &b, &Value::new(3.0) * &b);
        let sum = &c + &d;
        all.extend([("c", c), ("d", d), ("y", sum)]);
    }
    all
}

fn compare_orders() {
    println!("x = 3, b = x², c = 2b, d = 3b, y = c + d: a diamond, since b is used twice.");
    println!("dy/dx = (2 + 3) · 2x = 30. What passes in different orders give:\n");
    for n in [1, 3, 6] {
        let all = diamonds(3.0, n);
        let (x, y) = (&all[0].1, &all[all.len() - 1].1);
        let numbers = all.iter().map(|(_, v)| v.0.id).collect::<Vec<_>>();
        // Constants are visited too; only named numbers are counted.
        let names = |visits: &[u64]| -> Vec<&str> {
            let name = |id| Some(all[numbers.iter().position(|n| n == id)?].0);
            visits.iter().filter_map(name).collect()
        };
        if n > 1 {
            println!(
                "\n{n} diamonds in a chain, dy/dx = 5^{n} · 2x = {}:",
                5_f64.powi(n as i32) * 6.0
            );
        }
        let tell = |order: &str, gradient: f64, visits: &[u64]| {
            let names = names(visits);
            let list = if n == 1 { format!(": {}", names.join(" ")) } else { String::new() };
            println!("  {order:<42}{gradient:>12}{:>6} visits{list}", names.len());
        };
        let recursions = [
            ("recursion, on at the first arrival", Recursion::FirstArrival),
            ("recursion, with the sum so far", Recursion::SumSoFar),
            ("recursion, each path by itself", Recursion::EachPath),
        ];
        for (order, how) in recursions {
            let pass = Recursive::pass(y, how);
            tell(order, pass.gradient(x), &pass.visits);
        }
        let grads = y.gradients::<f64>();
        let visits: Vec<u64> = grads.0.keys().rev().copied().collect();
        tell("descending ids, each when it is complete", grads.get(x), &visits);
    }
    println!(
        "\nThe first two are wrong: b passes its gradient on before it is complete, or passes a part"
    );
    println!(
        "on twice. The third is right, but its visits double with each diamond. In descending order of"
    );
    println!("ids a number comes after everything computed from it, and each is visited once.");
}
