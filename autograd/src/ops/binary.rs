//! Arithmetic on two operands, broadcast together. Rules do not sum over broadcast axes: the engine
//! sums every gradient to the shape of its input.

use crate::graph::{InputGrads, Var};
use crate::observe::saved;
use crate::op::{Kind, Op};
use retrograd_tensor::ops::binary::Operator;
use retrograd_tensor::{Real, Tensor};
use std::ops;

static ADD: Op =
    Op::new("add", &["x", "z"]).kind(Kind::Pointwise).formula("y = x + z", "dx = g\ndz = g");
static SUB: Op =
    Op::new("sub", &["x", "z"]).kind(Kind::Pointwise).formula("y = x − z", "dx = g\ndz = −g");
static MUL: Op = Op::new("mul", &["x", "z"])
    .kind(Kind::Pointwise)
    .formula("y = x · z", "dx = g · z\ndz = g · x");
static DIV: Op = Op::new("div", &["x", "z"])
    .kind(Kind::Pointwise)
    .formula("y = x / z", "dx = g / z\ndz = −g · x / z²");
static POW: Op = Op::new("pow", &["x", "z"])
    .kind(Kind::Pointwise)
    .formula("y = x^z", "dx = g · z · x^(z − 1)\ndz = g · y · ln(x)");
static MAXIMUM: Op = Op::new("maximum", &["x", "z"]).kind(Kind::Pointwise).formula(
    "y = x if x > z else z",
    "dx = g where x > z, g/2 where equal\ndz = g where z > x, g/2 where equal",
);
static MINIMUM: Op = Op::new("minimum", &["x", "z"]).kind(Kind::Pointwise).formula(
    "y = x if x < z else z",
    "dx = g where x < z, g/2 where equal\ndz = g where z < x, g/2 where equal",
);
static REMAINDER: Op = Op::new("remainder", &["x", "z"])
    .kind(Kind::Pointwise)
    .formula("y = x − z · ⌊x / z⌋", "dx = g\ndz = −g · ⌊x / z⌋");
static FMOD: Op = Op::new("fmod", &["x", "z"]).kind(Kind::Pointwise).formula(
    "y = x − z · (x / z without its fraction)",
    "dx = g\ndz = −g · (x / z without its fraction)",
);

/// # Arithmetic
impl<T: Real> Var<T> {
    /// As [`Tensor::add`]; both gradients are `g`, summed over the axes that were broadcast.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let row = Var::leaf(Tensor::from([1.0f32, 2.0]));
    /// let column = Var::leaf(Tensor::from([[10.0], [20.0], [30.0]]));
    /// let y = row.add(&column); // [3, 2]
    /// assert_eq!(y.value().to_vec(), [11.0, 12.0, 21.0, 22.0, 31.0, 32.0]);
    /// assert_eq!(y.sum(..).backward().get(&row).unwrap().to_vec(), [3.0, 3.0]);
    /// ```
    #[track_caller]
    pub fn add(&self, other: &Var<T>) -> Var<T> {
        Var::from_op(&ADD, self.value().add(other.value()), [self, other], |[x, z]| {
            let (x, z) = (x.slot(), z.slot());
            move |_, g| InputGrads::of(&x, || g.clone()).and(&z, || g.clone())
        })
    }

    /// As [`Tensor::sub`]; the gradients are `g` and `-g`.
    #[track_caller]
    pub fn sub(&self, other: &Var<T>) -> Var<T> {
        Var::from_op(&SUB, self.value().sub(other.value()), [self, other], |[x, z]| {
            let (x, z) = (x.slot(), z.slot());
            move |_, g| InputGrads::of(&x, || g.clone()).and(&z, || g.neg())
        })
    }

    /// As [`Tensor::mul`]; the gradients are `g · z` and `g · x`.
    #[track_caller]
    pub fn mul(&self, other: &Var<T>) -> Var<T> {
        Var::from_op(&MUL, self.value().mul(other.value()), [self, other], |[x, z]| {
            let (x, z) = (x.save_if(z.needs_grad()), z.save_if(x.needs_grad()));
            move |cx, g| {
                InputGrads::of(&x, || g.mul(&cx.input(&z))).and(&z, || g.mul(&cx.input(&x)))
            }
        })
    }

    /// As [`Tensor::div`]; the gradients are `g / z` and `-g · x / z²`.
    #[track_caller]
    pub fn div(&self, other: &Var<T>) -> Var<T> {
        let value = self.value().div(other.value());
        let output = value.clone();
        Var::from_op(&DIV, value, [self, other], |[x, z]| {
            let y = z.needs_grad().then(|| saved("y", output));
            let (x, z) = (x.slot(), z.save());
            move |cx, g| {
                let share = g.div(&cx.input(&z));
                let y = || cx.output(y.as_ref().expect("saved for the gradient of z"));
                InputGrads::of(&x, || share.clone()).and(&z, || share.mul(&y()).neg())
            }
        })
    }

    /// As [`Tensor::pow`]; the gradients are `g · z · x^(z - 1)`, 0 for `z = 0`, and `g · y · ln(x)`, 0 for
    /// `x = 0` and `z >= 0` and NaN for negative `x`.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let (a, b) = (Var::leaf(Tensor::from([2.0f32, 0.0])), Var::leaf(Tensor::from([3.0, 0.0])));
    /// let y = a.pow(&b);
    /// assert_eq!(y.value().to_vec(), [8.0, 1.0]);
    /// assert_eq!(y.sum(..).backward().get(&a).unwrap().to_vec(), [12.0, 0.0]);
    /// ```
    #[track_caller]
    pub fn pow(&self, other: &Var<T>) -> Var<T> {
        let value = self.value().pow(other.value());
        let y = value.clone();
        Var::from_op(&POW, value, [self, other], |[x, z]| {
            let (x, z, y) = (x.save(), z.save(), saved("y", y));
            move |cx, g| {
                let zero = Tensor::scalar(T::ZERO);
                let (x_is_0, z_is_0) = (x.value().eq(&zero), z.value().eq(&zero));
                // d/da = b·a^(b-1): 0 for b = 0, also where a^(b-1) is infinite.
                let dx = || {
                    let slope =
                        cx.input(&z).mul(&cx.input(&x).pow(&cx.input(&z).add_scalar(-T::ONE)));
                    g.mul(&slope.masked_fill(&z_is_0.broadcast_to(y.shape()), T::ZERO))
                };
                // d/db = a^b·ln a: 0 for a = 0 and b >= 0, where ln a is infinite.
                let dz = || {
                    let safe = Var::where_(&x_is_0, &Var::scalar(T::ONE), &cx.input(&x));
                    let ln = Var::where_(&x_is_0, &Var::scalar(T::NEG_INFINITY), &safe.ln());
                    let slope = cx.output(&y).mul(&ln);
                    g.mul(&slope.masked_fill(&(&x_is_0 & &z.value().ge(&zero)), T::ZERO))
                };
                InputGrads::of(&x, dx).and(&z, dz)
            }
        })
    }

    /// As [`Tensor::remainder`]; the gradients are `g` and `-g · ⌊x / z⌋`.
    #[doc(alias = "rem")]
    #[doc(alias = "mod")]
    #[track_caller]
    pub fn remainder(&self, other: &Var<T>) -> Var<T> {
        rest_of_division(&REMAINDER, self.value().remainder(other.value()), self, other)
    }

    /// As [`Tensor::fmod`]; the gradients are `g` and `-g · n` with the quotient `n`, rounded towards 0.
    #[track_caller]
    pub fn fmod(&self, other: &Var<T>) -> Var<T> {
        rest_of_division(&FMOD, self.value().fmod(other.value()), self, other)
    }

    /// As [`Tensor::maximum`]; the gradient goes to the larger operand. On a tie each gets half of it, on
    /// NaN each all of it.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let (a, b) = (Var::leaf(Tensor::from([1.0f32, 3.0])), Var::constant(Tensor::scalar(3.0)));
    /// let y = a.maximum(&b);
    /// assert_eq!(y.value().to_vec(), [3.0, 3.0]);
    /// assert_eq!(y.sum(..).backward().get(&a).unwrap().to_vec(), [0.0, 0.5]);
    /// ```
    #[track_caller]
    pub fn maximum(&self, other: &Var<T>) -> Var<T> {
        let (x, z) = (self.value(), other.value());
        selection(&MAXIMUM, x.maximum(z), [self, other], || [x.ge(z), x.le(z)])
    }

    /// As [`Tensor::minimum`]; the gradient goes to the smaller operand, shared as by [`Var::maximum`].
    #[track_caller]
    pub fn minimum(&self, other: &Var<T>) -> Var<T> {
        let (x, z) = (self.value(), other.value());
        selection(&MINIMUM, x.minimum(z), [self, other], || [x.le(z), x.ge(z)])
    }
}

/// The node of a remainder `y = x - n · z` with a whole number `n`, which is constant.
#[track_caller]
fn rest_of_division<T: Real>(op: &'static Op, value: Tensor<T>, x: &Var<T>, z: &Var<T>) -> Var<T> {
    let quotient = z.is_tracked().then(|| x.value().sub(&value).div(z.value()).round());
    Var::from_op(op, value, [x, z], |[x, z]| {
        let (x, z) = (x.slot(), z.slot());
        let quotient = quotient.map(|quotient| saved("quotient", quotient));
        move |_, g| {
            let n = || Var::constant(quotient.clone().expect("saved for the gradient of z"));
            InputGrads::of(&x, || g.clone()).and(&z, || g.mul(&n()).neg())
        }
    })
}

/// The node of a maximum or minimum. `selected` tells where each operand equals the result: false
/// for both where one is NaN.
#[track_caller]
fn selection<T: Real>(
    op: &'static Op,
    value: Tensor<T>,
    inputs: [&Var<T>; 2],
    selected: impl Fn() -> [Tensor<bool>; 2],
) -> Var<T> {
    Var::from_op(op, value, inputs, |[x, z]| {
        let (x, z, [of_x, of_z]) = (x.slot(), z.slot(), selected());
        let (of_x, of_z) = (saved("a is selected", of_x), saved("b is selected", of_z));
        move |_, g| {
            let half = || g.mul_scalar(T::from_f64(0.5));
            let shared = Var::where_(&(&of_x & &of_z), &half(), g);
            InputGrads::of(&x, || shared.masked_fill(&(&of_z & &!&of_x), T::ZERO))
                .and(&z, || shared.masked_fill(&(&of_x & &!&of_z), T::ZERO))
        }
    })
}

/// An operand of a variable of `T`: another variable, by reference or not, or a number.
///
/// It is the right side of the operators `+`, `-`, `*` and `/`. On the left of an operator can be a
/// variable, a reference to one, or a number: `1.0 - &x`. A tensor is not an operand of a variable, since
/// nothing would say whether it is a constant: `Var::constant(tensor)` does.
///
/// ```
/// use retrograd::prelude::*;
/// let x = Var::leaf(Tensor::from([1.0f32, 4.0]));
/// let y = 1.0 - 2.0 / &x + &x * 0.5;
/// assert_eq!(y.value().to_vec(), [-0.5, 2.5]);
/// assert_eq!(y.sum(..).backward().get(&x).unwrap().to_vec(), [2.5, 0.625]);
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no operand of a variable of `{T}`",
    label = "neither a `Var<{T}>` nor a number of type `{T}`",
    note = "of a tensor, `Var::constant(tensor)` is a variable without a gradient, and \
            `Var::leaf(tensor)` one with a gradient; of a `Param`, it is `param.to_var()`",
    note = "both sides have one element type: `tensor.cast::<{T}>()` converts a tensor",
    note = "the literal `2` is an integer, `2.0` a float"
)]
pub trait VarOrNumber<T: Real> {
    /// The operand as a variable: a number becomes a constant of rank 0.
    #[track_caller]
    fn into_var(self) -> Var<T>;

    /// `left` and this operand, in this order, combined by an operator.
    #[doc(hidden)]
    #[track_caller]
    fn after(self, left: &Var<T>, operator: Operator) -> Var<T>;
}

impl<T: Real> VarOrNumber<T> for T {
    #[track_caller]
    fn into_var(self) -> Var<T> {
        Var::scalar(self)
    }
    #[track_caller]
    fn after(self, left: &Var<T>, operator: Operator) -> Var<T> {
        match operator {
            Operator::Add => left.add_scalar(self),
            Operator::Sub => left.add_scalar(-self),
            Operator::Mul => left.mul_scalar(self),
            Operator::Div => left.div(&Var::scalar(self)),
        }
    }
}

impl<T: Real> VarOrNumber<T> for &Var<T> {
    #[track_caller]
    fn into_var(self) -> Var<T> {
        self.clone()
    }
    #[track_caller]
    fn after(self, left: &Var<T>, operator: Operator) -> Var<T> {
        match operator {
            Operator::Add => left.add(self),
            Operator::Sub => left.sub(self),
            Operator::Mul => left.mul(self),
            Operator::Div => left.div(self),
        }
    }
}

impl<T: Real> VarOrNumber<T> for Var<T> {
    #[track_caller]
    fn into_var(self) -> Var<T> {
        self
    }
    #[track_caller]
    fn after(self, left: &Var<T>, operator: Operator) -> Var<T> {
        (&self).after(left, operator)
    }
}

macro_rules! operator {
    ($trait:ident, $method:ident) => {
        impl<T: Real, R: VarOrNumber<T>> ops::$trait<R> for &Var<T> {
            type Output = Var<T>;
            #[track_caller]
            fn $method(self, other: R) -> Var<T> {
                other.after(self, Operator::$trait)
            }
        }

        impl<T: Real, R: VarOrNumber<T>> ops::$trait<R> for Var<T> {
            type Output = Var<T>;
            #[track_caller]
            fn $method(self, other: R) -> Var<T> {
                other.after(&self, Operator::$trait)
            }
        }

        operator!(@ $trait, $method, f32 f64);
    };
    (@ $trait:ident, $method:ident, $($t:ty)+) => {$(
        impl ops::$trait<&Var<$t>> for $t {
            type Output = Var<$t>;
            #[track_caller]
            fn $method(self, x: &Var<$t>) -> Var<$t> {
                number_first(self, Operator::$trait, x)
            }
        }

        impl ops::$trait<Var<$t>> for $t {
            type Output = Var<$t>;
            #[track_caller]
            fn $method(self, x: Var<$t>) -> Var<$t> {
                number_first(self, Operator::$trait, &x)
            }
        }
    )+};
}

/// A number and a variable, in this order, combined by an operator.
#[track_caller]
fn number_first<T: Real>(c: T, operator: Operator, x: &Var<T>) -> Var<T> {
    match operator {
        Operator::Add => x.add_scalar(c),
        Operator::Sub => Var::scalar(c).sub(x),
        Operator::Mul => x.mul_scalar(c),
        Operator::Div => Var::scalar(c).div(x),
    }
}

operator!(Add, add);
operator!(Sub, sub);
operator!(Mul, mul);
operator!(Div, div);

impl<T: Real> ops::Neg for &Var<T> {
    type Output = Var<T>;
    #[track_caller]
    fn neg(self) -> Var<T> {
        Var::neg(self)
    }
}

impl<T: Real> ops::Neg for Var<T> {
    type Output = Var<T>;
    #[track_caller]
    fn neg(self) -> Var<T> {
        Var::neg(&self)
    }
}
