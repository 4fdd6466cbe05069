//! Functions of one number.

use crate::compiled;
use crate::ops::pointwise::{Pointwise, Saves};
use crate::par::Cost;
use crate::simd::{Lanes, Real};
use crate::tensor::Tensor;

/// `-x`
#[derive(Clone, Copy, Debug)]
pub struct Neg;

impl<T: Real> Pointwise<T> for Neg {
    const NAME: &'static str = "neg";
    const SAVES: Saves = Saves::Nothing;
    const COST: Cost = Cost::MOVE;
    #[inline(always)]
    fn f<S: Lanes<T>>(self, s: S, x: S::V) -> S::V {
        s.neg(x)
    }
    #[inline(always)]
    fn vjp<S: Lanes<T>>(self, s: S, _: S::V, g: S::V) -> S::V {
        s.neg(g)
    }
}

/// `|x|`
#[derive(Clone, Copy, Debug)]
pub struct Abs;

impl<T: Real> Pointwise<T> for Abs {
    const NAME: &'static str = "abs";
    const SAVES: Saves = Saves::Input;
    const COST: Cost = Cost::MOVE;
    #[inline(always)]
    fn f<S: Lanes<T>>(self, s: S, x: S::V) -> S::V {
        s.abs(x)
    }
    #[inline(always)]
    fn vjp<S: Lanes<T>>(self, s: S, x: S::V, g: S::V) -> S::V {
        s.mul(g, signum(s, x))
    }
}

/// The sign of `x`
#[derive(Clone, Copy, Debug)]
pub struct Sign;

impl<T: Real> Pointwise<T> for Sign {
    const NAME: &'static str = "sign";
    const SAVES: Saves = Saves::Nothing;
    const COST: Cost = Cost::MOVE;
    #[inline(always)]
    fn f<S: Lanes<T>>(self, s: S, x: S::V) -> S::V {
        signum(s, x)
    }
    #[inline(always)]
    fn vjp<S: Lanes<T>>(self, s: S, _: S::V, g: S::V) -> S::V {
        s.mul(g, s.splat(T::ZERO))
    }
}

/// `x²`
#[derive(Clone, Copy, Debug)]
pub struct Square;

impl<T: Real> Pointwise<T> for Square {
    const NAME: &'static str = "square";
    const SAVES: Saves = Saves::Input;
    const COST: Cost = Cost::MOVE;
    #[inline(always)]
    fn f<S: Lanes<T>>(self, s: S, x: S::V) -> S::V {
        s.mul(x, x)
    }
    #[inline(always)]
    fn vjp<S: Lanes<T>>(self, s: S, x: S::V, g: S::V) -> S::V {
        s.mul(g, s.add(x, x))
    }
}

/// `√x`
#[derive(Clone, Copy, Debug)]
pub struct Sqrt;

impl<T: Real> Pointwise<T> for Sqrt {
    const NAME: &'static str = "sqrt";
    const SAVES: Saves = Saves::Output;
    const COST: Cost = Cost::CHEAP;
    #[inline(always)]
    fn f<S: Lanes<T>>(self, s: S, x: S::V) -> S::V {
        s.sqrt(x)
    }
    #[inline(always)]
    fn vjp<S: Lanes<T>>(self, s: S, y: S::V, g: S::V) -> S::V {
        s.div(s.mul(g, s.splat(T::from_f64(0.5))), y)
    }
}

/// `1/√x`
#[derive(Clone, Copy, Debug)]
pub struct Rsqrt;

impl<T: Real> Pointwise<T> for Rsqrt {
    const NAME: &'static str = "rsqrt";
    const SAVES: Saves = Saves::Output;
    const COST: Cost = Cost::CHEAP;
    #[inline(always)]
    fn f<S: Lanes<T>>(self, s: S, x: S::V) -> S::V {
        s.div(s.splat(T::ONE), s.sqrt(x))
    }
    #[inline(always)]
    fn vjp<S: Lanes<T>>(self, s: S, y: S::V, g: S::V) -> S::V {
        s.mul(s.mul(g, s.splat(T::from_f64(-0.5))), s.mul(y, s.mul(y, y)))
    }
}

/// `1/x`
#[derive(Clone, Copy, Debug)]
pub struct Recip;

impl<T: Real> Pointwise<T> for Recip {
    const NAME: &'static str = "recip";
    const SAVES: Saves = Saves::Output;
    const COST: Cost = Cost::CHEAP;
    #[inline(always)]
    fn f<S: Lanes<T>>(self, s: S, x: S::V) -> S::V {
        s.div(s.splat(T::ONE), x)
    }
    #[inline(always)]
    fn vjp<S: Lanes<T>>(self, s: S, y: S::V, g: S::V) -> S::V {
        s.neg(s.mul(g, s.mul(y, y)))
    }
}

/// `eˣ`
#[derive(Clone, Copy, Debug)]
pub struct Exp;

impl<T: Real> Pointwise<T> for Exp {
    const NAME: &'static str = "exp";
    const SAVES: Saves = Saves::Output;
    const COST: Cost = Cost::COSTLY;
    #[inline(always)]
    fn f<S: Lanes<T>>(self, s: S, x: S::V) -> S::V {
        T::exp(s, x)
    }
    #[inline(always)]
    fn vjp<S: Lanes<T>>(self, s: S, y: S::V, g: S::V) -> S::V {
        s.mul(g, y)
    }
}

/// `eˣ - 1`
#[derive(Clone, Copy, Debug)]
pub struct Expm1;

impl<T: Real> Pointwise<T> for Expm1 {
    const NAME: &'static str = "expm1";
    const SAVES: Saves = Saves::Output;
    const COST: Cost = Cost::COSTLY;
    #[inline(always)]
    fn f<S: Lanes<T>>(self, s: S, x: S::V) -> S::V {
        T::expm1(s, x)
    }
    #[inline(always)]
    fn vjp<S: Lanes<T>>(self, s: S, y: S::V, g: S::V) -> S::V {
        s.fma(g, y, g)
    }
}

/// Natural logarithm
#[derive(Clone, Copy, Debug)]
pub struct Ln;

impl<T: Real> Pointwise<T> for Ln {
    const NAME: &'static str = "ln";
    const SAVES: Saves = Saves::Input;
    const COST: Cost = Cost::COSTLY;
    #[inline(always)]
    fn f<S: Lanes<T>>(self, s: S, x: S::V) -> S::V {
        T::ln(s, x)
    }
    #[inline(always)]
    fn vjp<S: Lanes<T>>(self, s: S, x: S::V, g: S::V) -> S::V {
        s.div(g, x)
    }
}

/// `ln(1 + x)`
#[derive(Clone, Copy, Debug)]
pub struct Log1p;

impl<T: Real> Pointwise<T> for Log1p {
    const NAME: &'static str = "log1p";
    const SAVES: Saves = Saves::Input;
    const COST: Cost = Cost::COSTLY;
    #[inline(always)]
    fn f<S: Lanes<T>>(self, s: S, x: S::V) -> S::V {
        T::log1p(s, x)
    }
    #[inline(always)]
    fn vjp<S: Lanes<T>>(self, s: S, x: S::V, g: S::V) -> S::V {
        s.div(g, s.add(s.splat(T::ONE), x))
    }
}

/// Sine
#[derive(Clone, Copy, Debug)]
pub struct Sin;

impl<T: Real> Pointwise<T> for Sin {
    const NAME: &'static str = "sin";
    const SAVES: Saves = Saves::Input;
    const COST: Cost = Cost::COSTLY;
    #[inline(always)]
    fn f<S: Lanes<T>>(self, s: S, x: S::V) -> S::V {
        T::sin(s, x)
    }
    #[inline(always)]
    fn vjp<S: Lanes<T>>(self, s: S, x: S::V, g: S::V) -> S::V {
        s.mul(g, T::cos(s, x))
    }
}

/// Cosine
#[derive(Clone, Copy, Debug)]
pub struct Cos;

impl<T: Real> Pointwise<T> for Cos {
    const NAME: &'static str = "cos";
    const SAVES: Saves = Saves::Input;
    const COST: Cost = Cost::COSTLY;
    #[inline(always)]
    fn f<S: Lanes<T>>(self, s: S, x: S::V) -> S::V {
        T::cos(s, x)
    }
    #[inline(always)]
    fn vjp<S: Lanes<T>>(self, s: S, x: S::V, g: S::V) -> S::V {
        s.neg(s.mul(g, T::sin(s, x)))
    }
}

/// Error function
#[derive(Clone, Copy, Debug)]
pub struct Erf;

impl<T: Real> Pointwise<T> for Erf {
    const NAME: &'static str = "erf";
    const SAVES: Saves = Saves::Input;
    const COST: Cost = Cost::COSTLY;
    #[inline(always)]
    fn f<S: Lanes<T>>(self, s: S, x: S::V) -> S::V {
        T::erf(s, x)
    }
    #[inline(always)]
    fn vjp<S: Lanes<T>>(self, s: S, x: S::V, g: S::V) -> S::V {
        let slope = s.splat(T::from_f64(std::f64::consts::FRAC_2_SQRT_PI));
        s.mul(s.mul(g, slope), T::exp(s, s.neg(s.mul(x, x))))
    }
}

/// `x^p` for a constant `p`
#[derive(Clone, Copy, Debug)]
pub struct Powf<T> {
    /// The exponent.
    pub p: T,
}

impl<T: Real> Pointwise<T> for Powf<T> {
    const NAME: &'static str = "powf";
    const SAVES: Saves = Saves::Input;
    const COST: Cost = Cost::SCALAR;
    #[inline(always)]
    fn f<S: Lanes<T>>(self, s: S, x: S::V) -> S::V {
        T::pow(s, x, s.splat(self.p))
    }
    #[inline(always)]
    fn vjp<S: Lanes<T>>(self, s: S, x: S::V, g: S::V) -> S::V {
        if self.p == T::ZERO {
            return s.mul(g, s.splat(T::ZERO));
        }
        let slope = s.mul(s.splat(self.p), T::pow(s, x, s.splat(self.p - T::ONE)));
        s.mul(g, slope)
    }
}

/// `x + c`
#[derive(Clone, Copy, Debug)]
pub struct AddScalar<T> {
    /// The addend.
    pub c: T,
}

impl<T: Real> Pointwise<T> for AddScalar<T> {
    const NAME: &'static str = "add_scalar";
    const SAVES: Saves = Saves::Nothing;
    const COST: Cost = Cost::MOVE;
    #[inline(always)]
    fn f<S: Lanes<T>>(self, s: S, x: S::V) -> S::V {
        s.add(x, s.splat(self.c))
    }
    #[inline(always)]
    fn vjp<S: Lanes<T>>(self, s: S, _: S::V, g: S::V) -> S::V {
        let _ = s;
        g
    }
}

/// `x · c`
#[derive(Clone, Copy, Debug)]
pub struct MulScalar<T> {
    /// The factor.
    pub c: T,
}

impl<T: Real> Pointwise<T> for MulScalar<T> {
    const NAME: &'static str = "mul_scalar";
    const SAVES: Saves = Saves::Nothing;
    const COST: Cost = Cost::MOVE;
    #[inline(always)]
    fn f<S: Lanes<T>>(self, s: S, x: S::V) -> S::V {
        s.mul(x, s.splat(self.c))
    }
    #[inline(always)]
    fn vjp<S: Lanes<T>>(self, s: S, _: S::V, g: S::V) -> S::V {
        s.mul(g, s.splat(self.c))
    }
}

/// `min(max(x, lo), hi)`
#[derive(Clone, Copy, Debug)]
pub struct Clamp<T> {
    /// The lower bound.
    pub lo: T,
    /// The upper bound.
    pub hi: T,
}

impl<T: Real> Pointwise<T> for Clamp<T> {
    const NAME: &'static str = "clamp";
    const SAVES: Saves = Saves::Input;
    const COST: Cost = Cost::MOVE;
    #[inline(always)]
    fn f<S: Lanes<T>>(self, s: S, x: S::V) -> S::V {
        s.min(s.max(x, s.splat(self.lo)), s.splat(self.hi))
    }
    #[inline(always)]
    fn vjp<S: Lanes<T>>(self, s: S, x: S::V, g: S::V) -> S::V {
        let inside = s.and(s.lt(s.splat(self.lo), x), s.lt(x, s.splat(self.hi)));
        s.select(inside, g, s.splat(T::ZERO))
    }
}

impl<T: Real> Tensor<T> {
    /// `-x`, as a method: the `-` operator does the same.
    #[track_caller]
    pub fn neg(&self) -> Tensor<T> {
        self.map(Neg)
    }

    /// `|x|`. The derivative at 0 is 0.
    #[track_caller]
    pub fn abs(&self) -> Tensor<T> {
        self.map(Abs)
    }

    /// -1, 0 or 1; NaN of NaN. The derivative is 0 everywhere.
    #[track_caller]
    pub fn sign(&self) -> Tensor<T> {
        self.map(Sign)
    }

    /// `x²`
    #[track_caller]
    pub fn square(&self) -> Tensor<T> {
        self.map(Square)
    }

    /// `√x`, correctly rounded; NaN below 0. The derivative at 0 is infinite.
    #[track_caller]
    pub fn sqrt(&self) -> Tensor<T> {
        self.map(Sqrt)
    }

    /// `1/√x`; infinite at 0, NaN below.
    #[track_caller]
    pub fn rsqrt(&self) -> Tensor<T> {
        self.map(Rsqrt)
    }

    /// `1/x`
    #[track_caller]
    pub fn recip(&self) -> Tensor<T> {
        self.map(Recip)
    }

    /// `eˣ`
    #[track_caller]
    pub fn exp(&self) -> Tensor<T> {
        self.map(Exp)
    }

    /// `eˣ - 1`, accurate near 0.
    #[track_caller]
    pub fn expm1(&self) -> Tensor<T> {
        self.map(Expm1)
    }

    /// Natural logarithm; -inf at 0, NaN below.
    #[track_caller]
    pub fn ln(&self) -> Tensor<T> {
        self.map(Ln)
    }

    /// `ln(1 + x)`, accurate near 0; NaN below -1.
    #[track_caller]
    pub fn log1p(&self) -> Tensor<T> {
        self.map(Log1p)
    }

    /// Sine, of radians.
    #[track_caller]
    pub fn sin(&self) -> Tensor<T> {
        self.map(Sin)
    }

    /// Cosine, of radians.
    #[track_caller]
    pub fn cos(&self) -> Tensor<T> {
        self.map(Cos)
    }

    /// Error function, `2/√π ∫₀ˣ e^(-t²) dt`.
    #[track_caller]
    pub fn erf(&self) -> Tensor<T> {
        self.map(Erf)
    }

    /// `x^p`. NaN for negative `x` unless `p` is whole; `0⁰ = 1`. The derivative for `p = 0` is
    /// 0 even at 0.
    #[track_caller]
    pub fn powf(&self, p: T) -> Tensor<T> {
        self.map(Powf { p })
    }

    /// `x + c`
    #[track_caller]
    pub fn add_scalar(&self, c: T) -> Tensor<T> {
        self.map(AddScalar { c })
    }

    /// `x · c`
    #[track_caller]
    pub fn mul_scalar(&self, c: T) -> Tensor<T> {
        self.map(MulScalar { c })
    }

    /// `min(max(x, lo), hi)`; NaN of NaN. The derivative is 1 between `lo` and `hi` and 0 elsewhere,
    /// also at the bounds.
    ///
    /// # Panics
    /// If `lo > hi` or either is NaN.
    #[track_caller]
    pub fn clamp(&self, lo: T, hi: T) -> Tensor<T> {
        assert!(lo <= hi, "clamp: bounds {lo} and {hi} are not in order");
        self.map(Clamp { lo, hi })
    }
}

/// -1, 0 or 1; NaN of NaN.
#[inline(always)]
fn signum<T: Real, S: Lanes<T>>(s: S, x: S::V) -> S::V {
    let zero = s.or(s.eq(x, s.splat(T::ZERO)), s.is_nan(x));
    s.select(zero, x, s.copysign(s.splat(T::ONE), x))
}

/// Compiles the functions of this file, see [`compiled`].
pub(crate) fn compiled<T: Real>() {
    compiled::pointwise::<T, Neg>();
    compiled::pointwise::<T, Abs>();
    compiled::pointwise::<T, Sign>();
    compiled::pointwise::<T, Square>();
    compiled::pointwise::<T, Sqrt>();
    compiled::pointwise::<T, Rsqrt>();
    compiled::pointwise::<T, Recip>();
    compiled::pointwise::<T, Exp>();
    compiled::pointwise::<T, Expm1>();
    compiled::pointwise::<T, Ln>();
    compiled::pointwise::<T, Log1p>();
    compiled::pointwise::<T, Sin>();
    compiled::pointwise::<T, Cos>();
    compiled::pointwise::<T, Erf>();
    compiled::pointwise::<T, Powf<T>>();
    compiled::pointwise::<T, AddScalar<T>>();
    compiled::pointwise::<T, MulScalar<T>>();
    compiled::pointwise::<T, Clamp<T>>();
}
