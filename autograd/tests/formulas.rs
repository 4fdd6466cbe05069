//! The formulas of pointwise operations, as text, give what the kernels compute.

use retrograd_autograd::Var;
use retrograd_autograd::observe::formula;
use retrograd_study::record::record;
use retrograd_tensor::Tensor;
use retrograd_tensor::ops::pointwise::{ForEachOp, Pointwise};
use retrograd_tensor::ops::{activation, unary};
use std::collections::{BTreeMap, BTreeSet};
use std::f64::consts::PI;

type Function = fn(&Var<f64>) -> Var<f64>;
type Named = (&'static str, fn(f64) -> f64);

/// The name of an operation, the operation, and the values of its constants.
type Operation = (&'static str, Function, &'static [(&'static str, f64)]);

const OPERATIONS: &[Operation] = &[
    ("neg", |x| x.neg(), &[]),
    ("abs", |x| x.abs(), &[]),
    ("sign", |x| x.sign(), &[]),
    ("floor", |x| x.floor(), &[]),
    ("ceil", |x| x.ceil(), &[]),
    ("square", |x| x.square(), &[]),
    ("sqrt", |x| x.sqrt(), &[]),
    ("rsqrt", |x| x.rsqrt(), &[]),
    ("recip", |x| x.recip(), &[]),
    ("exp", |x| x.exp(), &[]),
    ("expm1", |x| x.expm1(), &[]),
    ("ln", |x| x.ln(), &[]),
    ("log1p", |x| x.log1p(), &[]),
    ("sin", |x| x.sin(), &[]),
    ("cos", |x| x.cos(), &[]),
    ("erf", |x| x.erf(), &[]),
    ("powf", |x| x.powf(2.5), &[("p", 2.5)]),
    ("add_scalar", |x| x + 0.7, &[("c", 0.7)]),
    ("mul_scalar", |x| x * -1.3, &[("c", -1.3)]),
    ("relu", |x| x.relu(), &[]),
    ("relu_squared", |x| x.relu_squared(), &[]),
    ("leaky_relu", |x| x.leaky_relu(0.2), &[("slope", 0.2)]),
    ("elu", |x| x.elu(1.5), &[("alpha", 1.5)]),
    ("sigmoid", |x| x.sigmoid(), &[]),
    ("tanh", |x| x.tanh(), &[]),
    ("silu", |x| x.silu(), &[]),
    ("softsign", |x| x.softsign(), &[]),
    ("hardswish", |x| x.hardswish(), &[]),
    ("softplus", |x| x.softplus(), &[]),
    ("mish", |x| x.mish(), &[]),
    ("gelu", |x| x.gelu(), &[]),
];

/// Operations whose formula, or that of the gradient, is a sentence.
const IN_WORDS: &[&str] = &["round", "trunc", "clamp", "nan_to_num", "huber", "gelu_tanh"];

const POINTS: [f64; 9] = [-4.3, -1.7, -0.6, -0.01, 0.02, 0.5, 1.2, 3.4, 6.1];

/// An expression that is evaluated as it is read.
struct Expression<'a> {
    text: &'a str,
    names: &'a BTreeMap<String, f64>,
}

impl Expression<'_> {
    fn skip(&mut self) {
        self.text = self.text.trim_start();
    }

    fn takes(&mut self, symbol: &str) -> bool {
        self.skip();
        let rest = self.text.strip_prefix(symbol);
        self.text = rest.unwrap_or(self.text);
        rest.is_some()
    }

    /// `a if x > 0 else b`
    fn choice(&mut self) -> f64 {
        let first = self.sum();
        if !self.takes("if ") {
            return first;
        }
        let left = self.sum();
        let holds = if self.takes("≤") {
            left <= self.sum()
        } else if self.takes("≥") {
            left >= self.sum()
        } else if self.takes(">") {
            left > self.sum()
        } else {
            panic!("a comparison at `{}`", self.text)
        };
        assert!(self.takes("else "), "`else` at `{}`", self.text);
        let second = self.choice();
        if holds { first } else { second }
    }

    fn sum(&mut self) -> f64 {
        let mut sum = self.product();
        loop {
            if self.takes("+") {
                sum += self.product();
            } else if self.takes("−") {
                sum -= self.product();
            } else {
                return sum;
            }
        }
    }

    fn product(&mut self) -> f64 {
        let mut product = self.sign();
        loop {
            if self.takes("·") {
                product *= self.sign();
            } else if self.takes("/") {
                product /= self.sign();
            } else {
                return product;
            }
        }
    }

    fn sign(&mut self) -> f64 {
        if self.takes("−") { -self.sign() } else { self.power() }
    }

    fn power(&mut self) -> f64 {
        let base = self.atom();
        if self.takes("²") {
            return base * base;
        }
        if self.takes("^") {
            return base.powf(self.atom());
        }
        base
    }

    fn inner(&mut self, end: &str) -> f64 {
        let value = self.choice();
        assert!(self.takes(end), "`{end}` at `{}`", self.text);
        value
    }

    fn atom(&mut self) -> f64 {
        let functions: [Named; 9] = [
            ("e^(", f64::exp),
            ("√(", f64::sqrt),
            ("ln(", f64::ln),
            ("sin(", f64::sin),
            ("cos(", f64::cos),
            ("tanh(", f64::tanh),
            ("erf(", |x| Var::scalar(x).erf().item()),
            ("σ(", |x| 1.0 / (1.0 + (-x).exp())),
            ("sign(", f64::signum),
        ];
        for (name, f) in functions {
            if self.takes(name) {
                return f(self.inner(")"));
            }
        }
        for (name, f) in [("min(", f64::min as fn(f64, f64) -> f64), ("max(", f64::max)] {
            if self.takes(name) {
                let first = self.inner(",");
                return f(first, self.inner(")"));
            }
        }
        for (begin, end, f) in
            [("|", "|", f64::abs as fn(f64) -> f64), ("⌊", "⌋", f64::floor), ("⌈", "⌉", f64::ceil)]
        {
            if self.takes(begin) {
                return f(self.inner(end));
            }
        }
        if self.takes("(") {
            return self.inner(")");
        }
        if self.takes("π") {
            return PI;
        }
        self.skip();
        let is_word = |c: char| c.is_alphabetic() || c.is_ascii_digit() || c == '.';
        let end = self.text.find(|c| !is_word(c)).unwrap_or(self.text.len());
        let (word, rest) = self.text.split_at(end);
        self.text = rest;
        let known = || self.names.get(word).copied().unwrap_or_else(|| panic!("what is `{word}`?"));
        word.parse().unwrap_or_else(|_| known())
    }
}

/// The value of the right side of `name = expression`, or of `name = expression, t = expression`.
fn evaluate(line: &str, names: &BTreeMap<String, f64>) -> f64 {
    let (_, right) = line.split_once('=').expect("a formula");
    let mut names = names.clone();
    let right = match right.split_once(", t =") {
        Some((main, t)) => {
            names.insert(
                "t".into(),
                evaluate(&format!("t = {}", t.replace("e^x", "e^(x)")), &names),
            );
            main
        }
        None => right,
    };
    let mut expression = Expression { text: right, names: &names };
    let value = expression.choice();
    assert_eq!(expression.text.trim(), "", "the end of `{line}`");
    value
}

#[test]
fn formulas_give_what_kernels_compute() {
    for (name, f, constants) in OPERATIONS {
        let text = formula(name).unwrap_or_else(|| panic!("{name} has no formula"));
        for x in POINTS {
            let leaf = Var::leaf(Tensor::scalar(x));
            let (y, recording) = record(|| f(&leaf));
            assert_eq!(recording.operations[0].constants, *constants, "{name}");
            if !y.item().is_finite() {
                continue; // outside of the domain
            }
            let g = 1.7;
            let dx = y.backward_with(&Tensor::scalar(g)).get(&leaf).unwrap().item();
            let mut names: BTreeMap<String, f64> =
                constants.iter().map(|(name, value)| (name.to_string(), *value)).collect();
            names.extend([("x".into(), x), ("y".into(), y.item()), ("g".into(), g)]);
            let close = |a: f64, b: f64| (a - b).abs() <= 1e-12 * b.abs().max(1.0);
            let (forward, backward) =
                (evaluate(text.forward, &names), evaluate(text.backward, &names));
            assert!(close(forward, y.item()), "{name}({x}): {forward}, kernel {}", y.item());
            assert!(close(backward, dx), "{name}'({x}): {backward}, kernel {dx}");
        }
    }
}

#[test]
fn every_pointwise_operation_is_compared() {
    struct Names(BTreeSet<&'static str>);
    impl ForEachOp<f32> for Names {
        fn op<P: Pointwise<f32>>(&mut self) {
            self.0.insert(P::NAME);
        }
    }
    let mut names = Names(BTreeSet::new());
    activation::for_each(&mut names);
    unary::for_each(&mut names);
    let compared: BTreeSet<&str> = OPERATIONS.iter().map(|(name, ..)| *name).collect();
    let in_words: BTreeSet<&str> = IN_WORDS.iter().copied().collect();
    assert!(compared.is_disjoint(&in_words));
    assert_eq!(names.0, compared.union(&in_words).copied().collect());
    assert!(in_words.iter().all(|name| formula(name).is_some()));
}
