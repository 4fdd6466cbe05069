//! Formulas as text.

use super::{Algebra, Expr, Parameter};
use crate::element::Float;
use std::cell::RefCell;

/// Storage for the terms of formulas that are printed.
///
/// A term is simplified for reading, by rules that hold for real numbers: `x + x` is `2 · x`, `g / d / d`
/// is `g / d²`, and `g · y + g` is `g · (y + 1)`.
///
/// ```
/// use retrograd::tensor::formula::{Expr, Terms};
///
/// let terms = Terms::default();
/// let x: Expr<f64, _> = terms.name("x");
/// assert_eq!(terms.print(x * x - 2.0 * (x + x)), "x² − 4 · x");
/// ```
#[derive(Default)]
pub struct Terms {
    /// Each term once.
    nodes: RefCell<Vec<Node>>,
}

/// The algebra of text.
#[derive(Clone, Copy)]
pub struct Text<'a>(&'a Terms);

/// A term, by its position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Term(usize);

#[derive(Clone, PartialEq)]
struct Node {
    operator: Operator,
    operands: Vec<Term>,
}

#[derive(Clone, PartialEq)]
enum Operator {
    Number(f64),
    Name(&'static str),
    Sum,
    /// A product of powers of the operands.
    Product {
        negative: bool,
        powers: Vec<i32>,
    },
    /// The first operand to the power of the second.
    Power,
    Root,
    /// What is written before and after the operands.
    Call(&'static str, &'static str),
    /// A comparison, or a logical operator, of this precedence.
    Relation(&'static str, u8),
    /// The second operand if the first holds, else the third.
    Choice,
}

use Operator::*;

/// Operator precedences: of a choice between two terms, a sum, a product, a power or a root, and an
/// atom.
const ANY: u8 = 0;
const SUM: u8 = 1;
const PRODUCT: u8 = 2;
const POWER: u8 = 3;
const ATOM: u8 = 4;

/// Terms of at least so many characters are written once, even if they occur several times.
const LONG: usize = 16;

impl Terms {
    /// The variable of this name.
    pub fn name<T: Float>(&self, name: &'static str) -> Expr<T, Text<'_>> {
        let a = Text(self);
        Expr::new(a, a.term(Name(name), []))
    }

    /// The text of a formula. A long term that occurs several times is called `t`.
    pub fn print<T: Float>(&self, formula: Expr<T, Text<'_>>) -> String {
        let (a, formula) = (Text(self), formula.value());
        let is_repeated = |x: &Term| {
            !matches!(a.node(*x).operator, Relation(..))
                && a.count(*x, formula) > 1
                && a.text(*x, ANY, None).chars().count() >= LONG
        };
        // Operands are stored before the terms that contain them.
        let repeated = (0..formula.0).rev().map(Term).find(is_repeated);
        let text = a.text(formula, ANY, repeated);
        match repeated {
            Some(t) => format!("{text}, t = {}", a.text(t, ANY, None)),
            None => text,
        }
    }
}

impl Text<'_> {
    fn node(self, x: Term) -> Node {
        self.0.nodes.borrow()[x.0].clone()
    }

    fn term(self, operator: Operator, operands: impl Into<Vec<Term>>) -> Term {
        let node = Node { operator, operands: operands.into() };
        let mut nodes = self.0.nodes.borrow_mut();
        let known = nodes.iter().position(|other| *other == node);
        Term(known.unwrap_or_else(|| {
            nodes.push(node);
            nodes.len() - 1
        }))
    }

    fn number(self, x: f64) -> Term {
        self.term(Number(x), [])
    }

    fn call(self, name: &'static str, x: Term) -> Term {
        self.term(Call(name, ")"), [x])
    }

    /// The value of a number.
    fn value(self, x: Term) -> Option<f64> {
        if let Number(value) = self.node(x).operator { Some(value) } else { None }
    }

    /// The product of powers.
    fn product(self, factors: &[(Term, i32)]) -> Term {
        let (mut negative, mut flat) = (false, Vec::new());
        for &(x, power) in factors {
            match self.node(x) {
                Node { operator: Product { negative: is, powers }, operands }
                    if power.abs() == 1 =>
                {
                    negative ^= is;
                    flat.extend(operands.into_iter().zip(powers.iter().map(|p| p * power)));
                }
                _ => flat.push((x, power)),
            }
        }
        let mut merged: Vec<(Term, i32)> = Vec::new();
        for (mut x, power) in flat {
            if let Some(value) = self.value(x) {
                if value == 0.0 && power > 0 {
                    return self.number(0.0);
                }
                negative ^= value < 0.0 && power % 2 != 0;
                x = self.number(value.abs());
            }
            if self.value(x) == Some(1.0) {
                continue;
            }
            match merged.iter_mut().find(|(other, p)| match (self.value(*other), self.value(x)) {
                (Some(_), Some(_)) if (*p, power) == (1, 1) => true,
                _ => *other == x,
            }) {
                Some((other, 1)) if power == 1 && self.value(x).is_some() => {
                    let values = [*other, x].map(|x| self.value(x).unwrap_or(1.0));
                    *other = self.number(values[0] * values[1]);
                }
                Some((_, total)) => *total += power,
                None => merged.push((x, power)),
            }
        }
        merged.retain(|(_, power)| *power != 0);
        match merged[..] {
            [(x, 1)] if !negative => x,
            [(x, 1)] if self.value(x).is_some() => self.number(-self.value(x).unwrap_or(0.0)),
            _ => {
                let (operands, powers): (Vec<_>, _) = merged.into_iter().unzip();
                self.term(Product { negative, powers }, operands)
            }
        }
    }

    fn is_negative(self, x: Term) -> bool {
        match self.node(x).operator {
            Product { negative, .. } => negative,
            Number(value) => value < 0.0,
            _ => false,
        }
    }

    fn negative(self, x: Term) -> Term {
        self.product(&[(self.number(-1.0), 1), (x, 1)])
    }

    /// The sum `a + b` as a product, where `a` is a multiple of `b`: `y · b + b` is `b · (y + 1)`.
    fn factored(self, a: Term, b: Term) -> Option<Term> {
        let (one, b) = match self.is_negative(b) {
            true => (self.number(-1.0), self.negative(b)),
            false => (self.number(1.0), b),
        };
        let quotient = self.product(&[(a, 1), (b, -1)]);
        let is_multiple = match self.node(quotient).operator {
            Product { powers, .. } => powers.iter().all(|power| *power > 0),
            operator => !matches!(operator, Number(_)),
        };
        if self.value(b).is_some() || !is_multiple {
            return None;
        }
        let sum = if self.is_negative(quotient) { [one, quotient] } else { [quotient, one] };
        Some(self.product(&[(b, 1), (self.term(Sum, sum), 1)]))
    }

    /// The term where the condition is known to hold, or not to.
    fn assume(self, x: Term, condition: Term, holds: bool) -> Term {
        let Node { operator, operands } = self.node(x);
        if operator == Choice && operands[0] == condition {
            return self.assume(operands[if holds { 1 } else { 2 }], condition, holds);
        }
        let operands: Vec<Term> =
            operands.into_iter().map(|x| self.assume(x, condition, holds)).collect();
        self.term(operator, operands)
    }

    /// How often a term occurs in another.
    fn count(self, x: Term, inside: Term) -> usize {
        let inner = || self.node(inside).operands.into_iter().map(|y| self.count(x, y)).sum();
        if x == inside { 1 } else { inner() }
    }

    /// A term, in parentheses if its precedence is lower than `least`. The repeated term is `t`.
    fn text(self, x: Term, least: u8, repeated: Option<Term>) -> String {
        if repeated == Some(x) {
            return "t".into();
        }
        let Node { operator, operands } = self.node(x);
        let text = |x: Term, least| self.text(x, least, repeated);
        let (text, precedence) = match operator {
            Number(x) => (digits(x), if x < 0.0 { SUM } else { ATOM }),
            Name(name) => (name.into(), ATOM),
            Sum => {
                let mut sum = text(operands[0], SUM);
                for &x in &operands[1..] {
                    let x = text(x, SUM);
                    match x.strip_prefix('−') {
                        Some(x) => sum += &format!(" − {x}"),
                        None => sum += &format!(" + {x}"),
                    }
                }
                (sum, SUM)
            }
            Product { negative, powers } => {
                let power = |x, power| match power {
                    1 => text(x, PRODUCT),
                    2 => text(x, ATOM) + "²",
                    3 => text(x, ATOM) + "³",
                    _ => format!("{}^{power}", text(x, ATOM)),
                };
                let (mut above, mut below) = (Vec::new(), Vec::new());
                for (x, p) in operands.into_iter().zip(powers) {
                    if p > 0 {
                        above.push(power(x, p))
                    } else {
                        below.push(power(x, -p))
                    };
                }
                let precedence = match (negative, above.len(), below.len()) {
                    (true, ..) => SUM,
                    (_, 1, 0) => POWER,
                    _ => PRODUCT,
                };
                let mut product = if above.is_empty() { "1".into() } else { above.join(" · ") };
                match &below[..] {
                    [] => (),
                    [one] => product += &format!(" / {one}"),
                    _ => product += &format!(" / ({})", below.join(" · ")),
                }
                (if negative { format!("−{product}") } else { product }, precedence)
            }
            Power => (format!("{}^{}", text(operands[0], ATOM), text(operands[1], ATOM)), POWER),
            Root => (format!("√{}", text(operands[0], ATOM)), POWER),
            Call(before, after) => {
                let operands: Vec<_> = operands.into_iter().map(|x| text(x, ANY)).collect();
                (format!("{before}{}{after}", operands.join(", ")), ATOM)
            }
            Relation(sign, precedence) => (
                format!("{} {sign} {}", text(operands[0], SUM), text(operands[1], SUM)),
                precedence,
            ),
            Choice => {
                let [condition, a, b] =
                    [(0, ANY), (1, SUM), (2, ANY)].map(|(i, p)| text(operands[i], p));
                (format!("{a} if {condition} else {b}"), ANY)
            }
        };
        if precedence < least { format!("({text})") } else { text }
    }
}

/// A number with at most six significant digits.
fn digits(x: f64) -> String {
    let rounded: f64 = format!("{x:.5e}").parse().unwrap_or(x);
    let is_plain = rounded == 0.0 || (1e-4..1e7).contains(&rounded.abs());
    let text = match x.is_infinite() {
        true => x.to_string().replace("inf", "∞"),
        false if is_plain => format!("{rounded}"),
        false => format!("{rounded:e}"),
    };
    text.replace('-', "−")
}

/// The functions that are written by their names.
macro_rules! by_name {
    ($($f:ident $name:literal)+) => {
        $(fn $f(self, x: Term) -> Term {
            self.call($name, x)
        })+
    };
}

/// The functions of two numbers, comparisons and logical operators.
macro_rules! of_two {
    ($($f:ident $operator:expr;)+) => {
        $(fn $f(self, a: Term, b: Term) -> Term {
            self.term($operator, [a, b])
        })+
    };
}

impl<T: Float> Algebra<T> for Text<'_> {
    type V = Term;
    type M = Term;

    by_name!(sign "sign(" round "round(" ln "ln(" tanh "tanh(" erf "erf(" sin "sin(" cos "cos(" sigmoid "σ(");
    of_two! {
        min Call("min(", ")");
        max Call("max(", ")");
        lt Relation("<", PRODUCT);
        le Relation("≤", PRODUCT);
        eq Relation("=", PRODUCT);
        and Relation("and", SUM);
        or Relation("or", ANY);
    }

    fn splat(self, x: T) -> Term {
        self.number(x.to_f64())
    }
    fn parameter(self, p: Parameter) -> Term {
        let (name, plus) = p.text();
        Algebra::<T>::add(self, self.term(Name(name), []), self.number(plus))
    }
    fn add(self, a: Term, b: Term) -> Term {
        if a == b {
            return self.product(&[(self.number(2.0), 1), (a, 1)]);
        }
        match (self.value(a), self.value(b)) {
            (Some(0.0), _) => return b,
            (_, Some(0.0)) => return a,
            _ => (),
        }
        if let Some(product) = self.factored(a, b).or_else(|| self.factored(b, a)) {
            return product;
        }
        let operands = [a, b].map(|x| match self.node(x) {
            Node { operator: Sum, operands } => operands,
            _ => vec![x],
        });
        self.term(Sum, operands.concat())
    }
    fn sub(self, a: Term, b: Term) -> Term {
        Algebra::<T>::add(self, a, self.negative(b))
    }
    fn mul(self, a: Term, b: Term) -> Term {
        self.product(&[(a, 1), (b, 1)])
    }
    fn div(self, a: Term, b: Term) -> Term {
        self.product(&[(a, 1), (b, -1)])
    }
    fn fma(self, a: Term, b: Term, c: Term) -> Term {
        Algebra::<T>::add(self, self.product(&[(a, 1), (b, 1)]), c)
    }
    fn neg(self, a: Term) -> Term {
        self.negative(a)
    }
    fn abs(self, a: Term) -> Term {
        self.term(Call("|", "|"), [a])
    }
    fn floor(self, a: Term) -> Term {
        self.term(Call("⌊", "⌋"), [a])
    }
    fn ceil(self, a: Term) -> Term {
        self.term(Call("⌈", "⌉"), [a])
    }
    fn sqrt(self, a: Term) -> Term {
        self.term(Root, [a])
    }

    fn is_nan(self, a: Term) -> Term {
        self.term(Relation("is", PRODUCT), [a, self.term(Name("NaN"), [])])
    }
    fn not(self, a: Term) -> Term {
        self.call("not (", a)
    }
    fn select(self, m: Term, a: Term, b: Term) -> Term {
        let (a, b) = (self.assume(a, m, true), self.assume(b, m, false));
        if a == b { a } else { self.term(Choice, [m, a, b]) }
    }

    fn exp(self, x: Term) -> Term {
        self.term(Power, [self.term(Name("e"), []), x])
    }
    fn expm1(self, x: Term) -> Term {
        Algebra::<T>::add(self, Algebra::<T>::exp(self, x), self.number(-1.0))
    }
    fn log1p(self, x: Term) -> Term {
        self.call("ln(", Algebra::<T>::add(self, self.number(1.0), x))
    }
    fn softplus(self, x: Term) -> Term {
        Algebra::<T>::log1p(self, Algebra::<T>::exp(self, x))
    }
    fn powf(self, x: Term, p: T) -> Term {
        let whole = p.to_f64() as i32;
        match f64::from(whole) == p.to_f64() && whole.abs() < 10 {
            true => self.product(&[(x, whole)]),
            false => self.term(Power, [x, self.number(p.to_f64())]),
        }
    }
    fn power(self, x: Term, p: Parameter) -> Term {
        self.term(Power, [x, Algebra::<T>::parameter(self, p)])
    }
    fn normal(self, x: Term) -> (Term, Term) {
        (self.call("Φ(", x), self.call("φ(", x))
    }
}
