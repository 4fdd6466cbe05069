//! The algebra of formulas on variables: what a recorded backward pass evaluates.

use crate::graph::Var;
use retrograd_tensor::formula::{Algebra, Expr};
use retrograd_tensor::kernels::attention::{PairPositions, ScoreRule};
use retrograd_tensor::ops::pointwise::Pointwise;
use retrograd_tensor::{Real, Tensor};
use std::cell::RefCell;
use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI};

/// `g · f'` of a pointwise operation in ordinary operations on variables, so that it can be
/// differentiated itself.
pub(crate) fn vjp_on_variables<T: Real, P: Pointwise<T>>(
    op: P,
    saved: &Var<T>,
    g: &Var<T>,
) -> Var<T> {
    let values = Values::default();
    let a = OnVars(&values);
    let number = |x: &Var<T>| Expr::new(a, a.value(x.clone()));
    let y = op.vjp(number(saved), number(g)).value();
    // A formula without `saved` and `g`, such as the derivative of a step function, is a number.
    a.var(y).broadcast_to(*g.shape())
}

/// A [`ScoreRule`] in ordinary operations on variables, which are broadcast to one another.
///
/// ```
/// use retrograd::autograd::score_on_variables;
/// use retrograd::prelude::*;
/// use retrograd::tensor::Real;
/// use retrograd::tensor::formula::{Algebra, Expr};
/// use retrograd::tensor::kernels::attention::{PairPositions, ScoreRule};
///
/// /// `a · s²`
/// #[derive(Clone, Copy, Debug)]
/// struct Squared;
/// impl<T: Real> ScoreRule<T, 1> for Squared {
///     const NAME: &'static str = "squared";
///     fn score<A: Algebra<T>>(
///         self,
///         s: Expr<T, A>,
///         [a]: [Expr<T, A>; 1],
///         _: PairPositions<Expr<T, A>>,
///     ) -> Expr<T, A> {
///         a * s * s
///     }
/// }
/// let [s, a, zero] = [3.0f64, 2.0, 0.0].map(|x| Var::leaf(Tensor::scalar(x)));
/// let y = score_on_variables(Squared, &s, [&a], PairPositions { query: &zero, key: &zero });
/// let gradients = y.backward();
/// assert_eq!((y.item(), gradients.get(&s).unwrap().item()), (18.0, 12.0));
/// ```
pub fn score_on_variables<T: Real, R: ScoreRule<T, N>, const N: usize>(
    rule: R,
    s: &Var<T>,
    operands: [&Var<T>; N],
    at: PairPositions<&Var<T>>,
) -> Var<T> {
    let values = Values::default();
    let a = OnVars(&values);
    let number = |x: &Var<T>| Expr::new(a, a.value(x.clone()));
    let at = PairPositions { query: number(at.query), key: number(at.key) };
    a.var(rule.score(number(s), operands.map(number), at).value()).broadcast_to(*s.shape())
}

/// The values of a formula. The values of an [`Algebra`] are `Copy`, and variables are not: they
/// are stored here, and the formula computes with their positions.
#[derive(Default)]
struct Values<T: Real> {
    vars: RefCell<Vec<Var<T>>>,
    masks: RefCell<Vec<Tensor<bool>>>,
}

/// The algebra.
#[derive(Clone, Copy)]
struct OnVars<'a, T: Real>(&'a Values<T>);

/// The position of a variable.
#[derive(Clone, Copy)]
struct Value(usize);

/// The position of a tensor of truth values.
#[derive(Clone, Copy)]
struct Mask(usize);

impl<T: Real> OnVars<'_, T> {
    fn value(self, x: Var<T>) -> Value {
        let mut vars = self.0.vars.borrow_mut();
        vars.push(x);
        Value(vars.len() - 1)
    }

    #[track_caller]
    fn var(self, x: Value) -> Var<T> {
        self.0.vars.borrow()[x.0].clone()
    }

    #[track_caller]
    fn map(self, x: Value, f: impl FnOnce(&Var<T>) -> Var<T>) -> Value {
        self.value(f(&self.var(x)))
    }

    #[track_caller]
    fn zip(self, a: Value, b: Value, f: impl FnOnce(&Var<T>, &Var<T>) -> Var<T>) -> Value {
        self.value(f(&self.var(a), &self.var(b)))
    }

    fn mask(self, m: Tensor<bool>) -> Mask {
        let mut masks = self.0.masks.borrow_mut();
        masks.push(m);
        Mask(masks.len() - 1)
    }

    fn truth(self, m: Mask) -> Tensor<bool> {
        self.0.masks.borrow()[m.0].clone()
    }

    /// A comparison: it has no derivative.
    fn compare(
        self,
        a: Value,
        b: Value,
        f: impl FnOnce(&Tensor<T>, &Tensor<T>) -> Tensor<bool>,
    ) -> Mask {
        self.mask(f(self.var(a).value(), self.var(b).value()))
    }
}

/// The functions that variables have as methods of the same name.
macro_rules! by_methods {
    ($($f:ident)+) => {
        $(fn $f(self, x: Value) -> Value {
            self.map(x, Var::$f)
        })+
    };
}

impl<T: Real> Algebra<T> for OnVars<'_, T> {
    type V = Value;
    type M = Mask;

    by_methods!(neg abs sign sqrt round exp expm1 ln log1p tanh erf sin cos sigmoid softplus);

    fn splat(self, x: T) -> Value {
        self.value(Var::constant(Tensor::scalar(x)))
    }
    fn add(self, a: Value, b: Value) -> Value {
        self.zip(a, b, |a, b| a + b)
    }
    fn sub(self, a: Value, b: Value) -> Value {
        self.zip(a, b, |a, b| a - b)
    }
    fn mul(self, a: Value, b: Value) -> Value {
        self.zip(a, b, |a, b| a * b)
    }
    fn div(self, a: Value, b: Value) -> Value {
        self.zip(a, b, |a, b| a / b)
    }
    fn fma(self, a: Value, b: Value, c: Value) -> Value {
        self.add(self.mul(a, b), c)
    }
    fn min(self, a: Value, b: Value) -> Value {
        self.select(self.or(self.lt(a, b), self.is_nan(a)), a, b)
    }
    fn max(self, a: Value, b: Value) -> Value {
        self.select(self.or(self.lt(b, a), self.is_nan(a)), a, b)
    }

    fn lt(self, a: Value, b: Value) -> Mask {
        self.compare(a, b, |a, b| a.lt(b))
    }
    fn le(self, a: Value, b: Value) -> Mask {
        self.compare(a, b, |a, b| a.le(b))
    }
    fn eq(self, a: Value, b: Value) -> Mask {
        self.compare(a, b, |a, b| a.eq(b))
    }
    fn is_nan(self, a: Value) -> Mask {
        self.compare(a, a, |a, b| a.ne(b))
    }
    fn and(self, a: Mask, b: Mask) -> Mask {
        self.mask(&self.truth(a) & &self.truth(b))
    }
    fn or(self, a: Mask, b: Mask) -> Mask {
        self.mask(&self.truth(a) | &self.truth(b))
    }
    fn not(self, a: Mask) -> Mask {
        self.mask(!&self.truth(a))
    }
    fn select(self, m: Mask, a: Value, b: Value) -> Value {
        let m = self.truth(m);
        self.zip(a, b, |a, b| Var::where_(&m, a, b))
    }

    fn powf(self, x: Value, p: T) -> Value {
        self.map(x, |x| x.powf(p))
    }
    fn normal(self, x: Value) -> (Value, Value) {
        let number = |x| self.splat(T::from_f64(x));
        let half = number(0.5);
        let cdf = self.fma(half, self.erf(self.mul(x, number(FRAC_1_SQRT_2))), half);
        let bell = self.exp(self.mul(self.mul(x, x), number(-0.5)));
        (cdf, self.mul(bell, number(0.5 * FRAC_1_SQRT_2 * FRAC_2_SQRT_PI)))
    }
}
