//! Reverse-mode automatic differentiation of scalars, without a library.
//!
//! Each computed number stores its inputs and the partial derivative with respect to each: the
//! product `p = a * b` stores `a` with the derivative `b`, and `b` with the derivative `a`. Let
//! `g(v)` be the derivative of a result `y` with respect to `v`. Then `g(y) = 1`, and by the chain
//! rule each input of `v` receives `g(v)` times its partial derivative; a number that is used
//! several times adds up what it receives. One backward pass from `y` computes the derivatives with
//! respect to all numbers that `y` depends on.
//!
//! Run it with `cargo run --release --example scalar`.

#[path = "common/output.rs"]
mod output;

use output::say;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::ops::{Add, Div, Mul, Sub};
use std::process::ExitCode;
use std::rc::Rc;

/// A number with the operation that computed it. A clone is the same number, not another one.
#[derive(Clone)]
struct Value(Rc<Node>);

struct Node {
    id: u64,
    data: Cell<f64>,
    grad: Cell<f64>,
    /// The inputs, each with its partial derivative; none for a variable.
    inputs: Vec<(Value, f64)>,
}

impl Value {
    fn new(data: f64) -> Value {
        Value::computed(data, vec![])
    }

    fn computed(data: f64, inputs: Vec<(Value, f64)>) -> Value {
        thread_local!(static NEXT: Cell<u64> = const { Cell::new(0) });
        let id = NEXT.replace(NEXT.get() + 1);
        Value(Rc::new(Node { id, data: data.into(), grad: 0.0.into(), inputs }))
    }

    fn data(&self) -> f64 {
        self.0.data.get()
    }

    fn grad(&self) -> f64 {
        self.0.grad.get()
    }

    /// A function of this number, with its value and its derivative here.
    fn map(&self, data: f64, slope: f64) -> Value {
        Value::computed(data, vec![(self.clone(), slope)])
    }

    fn powi(&self, n: i32) -> Value {
        self.map(self.data().powi(n), f64::from(n) * self.data().powi(n - 1))
    }

    fn exp(&self) -> Value {
        let y = self.data().exp();
        self.map(y, y)
    }

    fn tanh(&self) -> Value {
        let y = self.data().tanh();
        self.map(y, 1.0 - y * y)
    }

    fn relu(&self) -> Value {
        if self.data() > 0.0 { self.map(self.data(), 1.0) } else { self.map(0.0, 0.0) }
    }

    /// Adds the derivatives of this number to the gradients of all numbers that it depends on.
    ///
    /// A number is processed when its gradient is complete, after everything computed from it. No
    /// topological sort is needed: a result is created after its inputs and has a larger id, so the
    /// next number is the one with the largest id among those that have received a gradient.
    /// Retrograd's engine traverses its graph in the same order. There is no recursion, which would
    /// overflow the stack on a long computation. (Dropping a long chain of `Rc` still recurses; the
    /// engine drops its graph in a loop.)
    fn backward(&self) {
        let mut waiting = BTreeMap::from([(self.0.id, (self.clone(), 1.0))]);
        while let Some((_, (value, grad))) = waiting.pop_last() {
            value.0.grad.set(value.grad() + grad);
            for (input, slope) in &value.0.inputs {
                waiting.entry(input.0.id).or_insert_with(|| (input.clone(), 0.0)).1 += grad * slope;
            }
        }
    }
}

/// An operation on two numbers, and its derivatives with respect to each.
macro_rules! operation {
    ($Trait:ident, $method:ident, |$a:ident, $b:ident| $result:expr, $slope_a:expr, $slope_b:expr) => {
        impl $Trait for &Value {
            type Output = Value;
            fn $method(self, other: &Value) -> Value {
                let ($a, $b) = (self.data(), other.data());
                let inputs = vec![(self.clone(), $slope_a), (other.clone(), $slope_b)];
                Value::computed($result, inputs)
            }
        }
    };
}

operation!(Add, add, |a, b| a + b, 1.0, 1.0);
operation!(Sub, sub, |a, b| a - b, 1.0, -1.0);
operation!(Mul, mul, |a, b| a * b, b, a);
operation!(Div, div, |a, b| a / b, 1.0 / b, -a / (b * b));

fn expression(a: &Value, b: &Value) -> Value {
    let c = &(a * b).tanh() + &(a / b);
    &(&c.powi(3) - &a.exp()) * &(b - a).relu()
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
    say!("gradients of ((tanh(ab) + a/b)^3 - e^a) relu(b - a), and finite differences");
    let (a, b) = (Value::new(0.7), Value::new(1.9));
    expression(&a, &b).backward();
    let h = 1e-6;
    let at = |da, db| expression(&Value::new(0.7 + da), &Value::new(1.9 + db)).data();
    let (da, db) = ((at(h, 0.0) - at(-h, 0.0)) / (2.0 * h), (at(0.0, h) - at(0.0, -h)) / (2.0 * h));
    say!("  d/da: {:.8}  {da:.8}\n  d/db: {:.8}  {db:.8}", a.grad(), b.grad());

    say!("a network with four hidden units learns exclusive or");
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
        let errors = examples.map(|(x, wanted)| (&predict(x) - &Value::new(wanted)).powi(2));
        let loss = errors.iter().fold(Value::new(0.0), |sum, error| &sum + error);
        loss.backward();
        if step % 100 == 0 {
            say!("  step {step:3}: loss {:.6}", loss.data());
        }
        for weight in hidden.iter().chain(&output).flatten() {
            weight.0.data.set(weight.data() - 0.1 * weight.0.grad.take());
        }
    }
    for (x, _) in examples {
        say!("  {x:?} -> {:+.3}", predict(x).data());
    }
    output::end(ExitCode::SUCCESS)
}
