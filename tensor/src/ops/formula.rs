//! Formulas of pointwise operations as text.

use crate::formula::{Algebra, Expr};
use crate::ops::pointwise::{Pointwise, Saves};
use std::cell::RefCell;
use std::fmt::{self, Display};

/// The formulas of a pointwise operation as text: of the function of `x`, and of the
/// vector-Jacobian product with the cotangent `g`, from `x` or from the output `y`.
///
/// ```
/// use retrograd_tensor::ops::activation::{Gelu, Sigmoid};
/// use retrograd_tensor::ops::formula::Formula;
///
/// let gelu = Formula::of(Gelu);
/// assert_eq!(gelu.f, "x · Φ(x)");
/// assert_eq!(gelu.vjp, "g · (x · φ(x) + Φ(x))");
/// assert_eq!(Formula::of(Sigmoid).to_string(), "sigmoid: y = σ(x), dx = g · y · (1 - y)");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Formula {
    /// The name of the operation.
    pub name: &'static str,
    /// `f(x)`.
    pub f: String,
    /// `g · f'(x)`.
    pub vjp: String,
}

impl Formula {
    /// The formulas of an operation, from its code.
    pub fn of<P: Pointwise<f64>>(op: P) -> Formula {
        let terms = Terms::default();
        let a = Text(&terms);
        let [x, y, g] = ["x", "y", "g"].map(|name| Expr::new(a, a.term(name.into(), ATOM)));
        let saved = if P::SAVES == Saves::Output { y } else { x };
        let [f, vjp] = [op.f(x), op.vjp(saved, g)].map(|y| a.text(y.value(), ANY));
        Formula { name: P::NAME, f, vjp }
    }
}

impl Display for Formula {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: y = {}, dx = {}", self.name, self.f, self.vjp)
    }
}

/// Operator precedences: of a choice between two terms, a sum, a product, a power or a root, and an
/// atom.
const ANY: u8 = 0;
const SUM: u8 = 1;
const PRODUCT: u8 = 2;
const POWER: u8 = 3;
const ATOM: u8 = 4;

/// The terms of a formula, each with its precedence, and its conditions.
#[derive(Default)]
struct Terms {
    terms: RefCell<Vec<(String, u8)>>,
    conditions: RefCell<Vec<String>>,
}

/// The algebra of text.
#[derive(Clone, Copy)]
struct Text<'a>(&'a Terms);

/// The position of a term.
#[derive(Clone, Copy)]
struct Term(usize);

/// The position of a condition.
#[derive(Clone, Copy)]
struct Condition(usize);

impl Text<'_> {
    fn term(self, text: String, precedence: u8) -> Term {
        let mut terms = self.0.terms.borrow_mut();
        terms.push((text, precedence));
        Term(terms.len() - 1)
    }

    /// A term, in parentheses if its precedence is lower than `least`.
    fn text(self, x: Term, least: u8) -> String {
        let (text, precedence) = &self.0.terms.borrow()[x.0];
        if *precedence < least { format!("({text})") } else { text.clone() }
    }

    fn call(self, name: &str, x: Term) -> Term {
        self.term(format!("{name}({})", self.text(x, ANY)), ATOM)
    }

    fn call2(self, name: &str, a: Term, b: Term) -> Term {
        self.term(format!("{name}({}, {})", self.text(a, ANY), self.text(b, ANY)), ATOM)
    }

    fn condition(self, text: String) -> Condition {
        let mut conditions = self.0.conditions.borrow_mut();
        conditions.push(text);
        Condition(conditions.len() - 1)
    }

    fn compare(self, a: Term, sign: &str, b: Term) -> Condition {
        self.condition(format!("{} {sign} {}", self.text(a, SUM), self.text(b, SUM)))
    }

    fn condition_text(self, m: Condition) -> String {
        self.0.conditions.borrow()[m.0].clone()
    }
}

/// The functions that are written by their names.
macro_rules! by_name {
    ($($f:ident)+) => {
        $(fn $f(self, x: Term) -> Term {
            self.call(stringify!($f), x)
        })+
    };
}

impl Algebra<f64> for Text<'_> {
    type V = Term;
    type M = Condition;

    by_name!(sign round exp ln tanh erf sin cos softplus);

    /// With at most six significant digits.
    fn splat(self, x: f64) -> Term {
        let rounded: f64 = format!("{x:.5e}").parse().unwrap_or(x);
        let precedence = if rounded < 0.0 { SUM } else { ATOM };
        let is_plain = rounded == 0.0 || (1e-4..1e7).contains(&rounded.abs());
        let text = if is_plain { format!("{rounded}") } else { format!("{rounded:e}") };
        self.term(text, precedence)
    }
    fn add(self, a: Term, b: Term) -> Term {
        let (a, b) = (self.text(a, SUM), self.text(b, SUM));
        let text = match b.strip_prefix('-') {
            Some(b) => format!("{a} - {b}"),
            None => format!("{a} + {b}"),
        };
        self.term(text, SUM)
    }
    fn sub(self, a: Term, b: Term) -> Term {
        self.term(format!("{} - {}", self.text(a, SUM), self.text(b, PRODUCT)), SUM)
    }
    fn mul(self, a: Term, b: Term) -> Term {
        if self.text(a, ATOM) == self.text(b, ATOM) {
            return self.term(format!("{}²", self.text(a, ATOM)), POWER);
        }
        self.term(format!("{} · {}", self.text(a, PRODUCT), self.text(b, PRODUCT)), PRODUCT)
    }
    fn div(self, a: Term, b: Term) -> Term {
        self.term(format!("{} / {}", self.text(a, PRODUCT), self.text(b, POWER)), PRODUCT)
    }
    fn fma(self, a: Term, b: Term, c: Term) -> Term {
        self.add(self.mul(a, b), c)
    }
    fn neg(self, a: Term) -> Term {
        self.term(format!("-{}", self.text(a, PRODUCT)), SUM)
    }
    fn abs(self, a: Term) -> Term {
        self.term(format!("|{}|", self.text(a, ANY)), ATOM)
    }
    fn sqrt(self, a: Term) -> Term {
        self.term(format!("√{}", self.text(a, ATOM)), POWER)
    }
    fn min(self, a: Term, b: Term) -> Term {
        self.call2("min", a, b)
    }
    fn max(self, a: Term, b: Term) -> Term {
        self.call2("max", a, b)
    }

    fn lt(self, a: Term, b: Term) -> Condition {
        self.compare(a, "<", b)
    }
    fn le(self, a: Term, b: Term) -> Condition {
        self.compare(a, "≤", b)
    }
    fn eq(self, a: Term, b: Term) -> Condition {
        self.compare(a, "=", b)
    }
    fn is_nan(self, a: Term) -> Condition {
        self.condition(format!("{} is NaN", self.text(a, SUM)))
    }
    fn and(self, a: Condition, b: Condition) -> Condition {
        self.condition(format!("{} and {}", self.condition_text(a), self.condition_text(b)))
    }
    fn or(self, a: Condition, b: Condition) -> Condition {
        self.condition(format!("({} or {})", self.condition_text(a), self.condition_text(b)))
    }
    fn not(self, a: Condition) -> Condition {
        self.condition(format!("not ({})", self.condition_text(a)))
    }
    fn select(self, m: Condition, a: Term, b: Term) -> Term {
        let (a, b) = (self.text(a, SUM), self.text(b, SUM));
        self.term(format!("{a} if {} else {b}", self.condition_text(m)), ANY)
    }

    fn expm1(self, x: Term) -> Term {
        self.term(format!("exp({}) - 1", self.text(x, ANY)), SUM)
    }
    fn log1p(self, x: Term) -> Term {
        self.term(format!("ln(1 + {})", self.text(x, SUM)), ATOM)
    }
    fn powf(self, x: Term, p: f64) -> Term {
        let p = self.text(self.splat(p), ATOM);
        self.term(format!("{}^{p}", self.text(x, ATOM)), POWER)
    }
    fn sigmoid(self, x: Term) -> Term {
        self.call("σ", x)
    }
    fn normal(self, x: Term) -> (Term, Term) {
        (self.call("Φ", x), self.call("φ", x))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::activation::{Elu, GeluTanh, Mish, Relu, Silu, Softplus, Tanh};
    use crate::ops::unary::{Clamp, Erf, Expm1, Log1p, MulScalar, Powf, Recip, Rsqrt, Square};

    #[test]
    fn formulas_are_printed_as_text() {
        for (formula, expected) in [
            (Formula::of(Square), "square: y = x², dx = g · (x + x)"),
            (Formula::of(Recip), "recip: y = 1 / x, dx = -g · y²"),
            (Formula::of(Rsqrt), "rsqrt: y = 1 / √x, dx = g · (-0.5) · y · y²"),
            (Formula::of(Expm1), "expm1: y = exp(x) - 1, dx = g · y + g"),
            (Formula::of(Log1p), "log1p: y = ln(1 + x), dx = g / (1 + x)"),
            (Formula::of(Erf), "erf: y = erf(x), dx = g · 1.12838 · exp(-x²)"),
            (Formula::of(Powf { p: -1.5 }), "powf: y = x^(-1.5), dx = g · (-1.5) · x^(-2.5)"),
            (Formula::of(MulScalar { c: 3.0 }), "mul_scalar: y = x · 3, dx = g · 3"),
            (
                Formula::of(Clamp { lo: 0.0, hi: 6.0 }),
                "clamp: y = min(max(x, 0), 6), dx = g if 0 < x and x < 6 else 0",
            ),
            (Formula::of(Relu), "relu: y = max(x, 0), dx = 0 if y ≤ 0 else g"),
            (Formula::of(Tanh), "tanh: y = tanh(x), dx = g · (1 - y²)"),
            (Formula::of(Softplus), "softplus: y = softplus(x), dx = g · σ(x)"),
            (Formula::of(Silu), "silu: y = x · σ(x), dx = g · (σ(x) · x · σ(-x) + σ(x))"),
            (
                Formula::of(Elu { alpha: 0.5 }),
                "elu: y = 0.5 · (exp(x) - 1) if x ≤ 0 else x, \
                 dx = g · 0.5 · exp(x if x ≤ 0 else 0) if x ≤ 0 else g",
            ),
            (
                Formula::of(Mish),
                "mish: y = x · tanh(softplus(x)), \
                 dx = g · (x · (1 - tanh(softplus(x))²) · σ(x) + tanh(softplus(x)))",
            ),
        ] {
            assert_eq!(formula.to_string(), expected);
        }
        let terms = Terms::default();
        let a = Text(&terms);
        let x = a.term("x".into(), ATOM);
        let text = |term| a.text(term, ANY);
        let square = a.mul(x, x);
        assert_eq!(text(a.mul(square, square)), "(x²)²");
        assert_eq!(text(a.mul(square, x)), "x² · x");
        let root = a.sqrt(x);
        assert_eq!(text(a.mul(root, root)), "(√x)²");
        assert_eq!(text(a.sqrt(square)), "√(x²)");
        assert_eq!(text(a.powf(a.powf(x, 2.0), 3.0)), "(x^2)^3");
        assert_eq!(text(a.div(x, square)), "x / x²");
        assert_eq!(text(a.add(x, a.splat(-3.0))), "x - 3");
        assert_eq!(text(a.add(x, a.splat(1e-7))), "x + 1e-7");
        assert_eq!(text(a.mul(x, a.splat(-2.5e9))), "x · (-2.5e9)");
        let y = "x · 0.5 · tanh(0.797885 · x · (0.044715 · x · x + 1)) + x · 0.5";
        assert_eq!(Formula::of(GeluTanh).f, y);
    }
}
