//! Formulas as text, and their operations as counted.

use retrograd_tensor::formula::{Algebra, Parameter, Terms};
use retrograd_tensor::internals::Counting;
use retrograd_tensor::simd::{Kernel, Lanes};

#[test]
fn terms_are_simplified_and_in_parentheses_where_they_need_them() {
    let terms = Terms::default();
    let [x, y, g] = ["x", "y", "g"].map(|name| terms.name::<f64>(name));
    let (square, p) = (x * x, Parameter::new("p", 3.0));
    for (formula, text) in [
        (square * square, "x^4"),
        (square * x, "x³"),
        (x.sqrt() * x.sqrt(), "(√x)²"),
        (square.sqrt(), "√(x²)"),
        (x.powf(0.5).powf(1.5), "(x^0.5)^1.5"),
        (x.powf(3.0), "x³"),
        (x.powf(-1.0), "1 / x"),
        (x.powf(-1.5), "x^(−1.5)"),
        (x.power(p) * x.power(p - 1.0), "x^p · x^(p − 1)"),
        (x / square, "1 / x"),
        (-x / x, "−1"),
        (x / x, "1"),
        (g / x / y, "g / (x · y)"),
        (x / (y / g), "x · g / y"),
        (2.0 * (x + x) / 2.0, "4 · x / 2"),
        (x + -3.0, "x − 3"),
        (x - -3.0, "x + 3"),
        (0.0 - x, "−x"),
        (x - (y - g), "x − (y − g)"),
        (-(-x) * (y + g), "x · (y + g)"),
        (-(x + y) * (-x - y), "−(x + y) · (−x − y)"),
        (-x * -2.0 / -y, "−x · 2 / y"),
        ((-x) * (-x), "x²"),
        ((-x).exp(), "e^(−x)"),
        (x + 1e-7, "x + 1e−7"),
        (x * -2.5e9, "−x · 2.5e9"),
        (x * (1.0 / 3.0), "x · 0.333333"),
        (x * 0.0 + y, "y"),
        (x * y + x, "x · (y + 1)"),
        (y - x * y, "y · (1 − x)"),
        (x * y - y, "y · (x − 1)"),
        (x * y + g, "x · y + g"),
        (x.lt(y).select(x, g).max(1.0), "max(x if x < y else g, 1)"),
        (x.lt(y).select(x, g) + 1.0, "(x if x < y else g) + 1"),
        (x.lt(0.0).select(x.lt(0.0).select(x, y), x.lt(0.0).select(x, g)), "x if x < 0 else g"),
        (x.eq(y).select(g, g), "g"),
        (
            (x.is_nan() | x.lt(y) & !x.le(g)).select(x, y),
            "x if x is NaN or x < y and not (x ≤ g) else y",
        ),
        ((x.lt(y) & (x.lt(g) | y.lt(g))).select(x, y), "x if x < y and (x < g or y < g) else y"),
        (x.tanh() * x + x.tanh().exp(), "tanh(x) · x + e^tanh(x)"),
        (
            (x + y + g).tanh().ln() * x + (x + y + g).tanh().ln().exp(),
            "t · x + e^t, t = ln(tanh(x + y + g))",
        ),
    ] {
        assert_eq!(terms.print(formula), text);
    }
}

type V = <Counting as Algebra<f32>>::V;

/// A formula of one vector.
struct Formula(fn(Counting, V) -> V);

impl Kernel<f32> for Formula {
    type Out = ();

    fn run<S: Lanes<f32>>(self, _: S) {
        (self.0)(Counting, Counting.splat(0.5));
    }
}

#[test]
fn operations_are_those_of_the_formula() {
    let of = |f| Counting::operations(Formula(f));
    assert_eq!(of(|s, x| s.add(x, s.mul(x, x))), 2);
    assert_eq!(of(|s, x| s.fma(x, x, s.neg(x))), 2);
    assert_eq!(of(|s, x| s.select(s.lt(x, x), x, s.sqrt(x))), 1);
    // An exponential is a polynomial, and a division more makes a sigmoid.
    let (exp, sigmoid) = (of(|s, x| s.exp(x)), of(|s, x| s.sigmoid(x)));
    assert!((8..40).contains(&exp), "{exp}");
    assert_eq!(sigmoid, exp + 2);
}
