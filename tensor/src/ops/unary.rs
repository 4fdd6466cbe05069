//! Unary functions.

use crate::cost::Cost;
use crate::error::{ErrorKind, OrPanic, require};
use crate::kernels::Real;
use crate::ops::pointwise::{Pointwise, Saves, compile};
use crate::simd::Algebra;
use crate::tensor::Tensor;

/// `-x`
#[derive(Clone, Copy, Debug)]
pub struct Neg;

impl<T: Real> Pointwise<T> for Neg {
    const NAME: &'static str = "neg";
    const SAVES: Saves = Saves::Nothing;
    const COST: Cost = Cost::MOVE;
    #[inline(always)]
    fn f<A: Algebra<T>>(self, a: A, x: A::V) -> A::V {
        a.neg(x)
    }
    #[inline(always)]
    fn vjp<A: Algebra<T>>(self, a: A, _: A::V, g: A::V) -> A::V {
        a.neg(g)
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
    fn f<A: Algebra<T>>(self, a: A, x: A::V) -> A::V {
        a.abs(x)
    }
    #[inline(always)]
    fn vjp<A: Algebra<T>>(self, a: A, x: A::V, g: A::V) -> A::V {
        a.mul(g, a.sign(x))
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
    fn f<A: Algebra<T>>(self, a: A, x: A::V) -> A::V {
        a.sign(x)
    }
    #[inline(always)]
    fn vjp<A: Algebra<T>>(self, a: A, _: A::V, g: A::V) -> A::V {
        a.mul(g, a.splat(T::ZERO))
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
    fn f<A: Algebra<T>>(self, a: A, x: A::V) -> A::V {
        a.mul(x, x)
    }
    #[inline(always)]
    fn vjp<A: Algebra<T>>(self, a: A, x: A::V, g: A::V) -> A::V {
        a.mul(g, a.add(x, x))
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
    fn f<A: Algebra<T>>(self, a: A, x: A::V) -> A::V {
        a.sqrt(x)
    }
    #[inline(always)]
    fn vjp<A: Algebra<T>>(self, a: A, y: A::V, g: A::V) -> A::V {
        a.div(a.mul(g, a.splat(T::from_f64(0.5))), y)
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
    fn f<A: Algebra<T>>(self, a: A, x: A::V) -> A::V {
        a.div(a.splat(T::ONE), a.sqrt(x))
    }
    #[inline(always)]
    fn vjp<A: Algebra<T>>(self, a: A, y: A::V, g: A::V) -> A::V {
        a.mul(a.mul(g, a.splat(T::from_f64(-0.5))), a.mul(y, a.mul(y, y)))
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
    fn f<A: Algebra<T>>(self, a: A, x: A::V) -> A::V {
        a.div(a.splat(T::ONE), x)
    }
    #[inline(always)]
    fn vjp<A: Algebra<T>>(self, a: A, y: A::V, g: A::V) -> A::V {
        a.neg(a.mul(g, a.mul(y, y)))
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
    fn f<A: Algebra<T>>(self, a: A, x: A::V) -> A::V {
        a.exp(x)
    }
    #[inline(always)]
    fn vjp<A: Algebra<T>>(self, a: A, y: A::V, g: A::V) -> A::V {
        a.mul(g, y)
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
    fn f<A: Algebra<T>>(self, a: A, x: A::V) -> A::V {
        a.expm1(x)
    }
    #[inline(always)]
    fn vjp<A: Algebra<T>>(self, a: A, y: A::V, g: A::V) -> A::V {
        a.fma(g, y, g)
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
    fn f<A: Algebra<T>>(self, a: A, x: A::V) -> A::V {
        a.ln(x)
    }
    #[inline(always)]
    fn vjp<A: Algebra<T>>(self, a: A, x: A::V, g: A::V) -> A::V {
        a.div(g, x)
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
    fn f<A: Algebra<T>>(self, a: A, x: A::V) -> A::V {
        a.log1p(x)
    }
    #[inline(always)]
    fn vjp<A: Algebra<T>>(self, a: A, x: A::V, g: A::V) -> A::V {
        a.div(g, a.add(a.splat(T::ONE), x))
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
    fn f<A: Algebra<T>>(self, a: A, x: A::V) -> A::V {
        a.sin(x)
    }
    #[inline(always)]
    fn vjp<A: Algebra<T>>(self, a: A, x: A::V, g: A::V) -> A::V {
        a.mul(g, a.cos(x))
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
    fn f<A: Algebra<T>>(self, a: A, x: A::V) -> A::V {
        a.cos(x)
    }
    #[inline(always)]
    fn vjp<A: Algebra<T>>(self, a: A, x: A::V, g: A::V) -> A::V {
        a.neg(a.mul(g, a.sin(x)))
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
    fn f<A: Algebra<T>>(self, a: A, x: A::V) -> A::V {
        a.erf(x)
    }
    #[inline(always)]
    fn vjp<A: Algebra<T>>(self, a: A, x: A::V, g: A::V) -> A::V {
        let slope = a.splat(T::from_f64(std::f64::consts::FRAC_2_SQRT_PI));
        a.mul(a.mul(g, slope), a.exp(a.neg(a.mul(x, x))))
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
    fn f<A: Algebra<T>>(self, a: A, x: A::V) -> A::V {
        a.powf(x, self.p)
    }
    #[inline(always)]
    fn vjp<A: Algebra<T>>(self, a: A, x: A::V, g: A::V) -> A::V {
        if self.p == T::ZERO {
            return a.mul(g, a.splat(T::ZERO));
        }
        let slope = a.mul(a.splat(self.p), a.powf(x, self.p - T::ONE));
        a.mul(g, slope)
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
    fn f<A: Algebra<T>>(self, a: A, x: A::V) -> A::V {
        a.add(x, a.splat(self.c))
    }
    #[inline(always)]
    fn vjp<A: Algebra<T>>(self, _: A, _: A::V, g: A::V) -> A::V {
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
    fn f<A: Algebra<T>>(self, a: A, x: A::V) -> A::V {
        a.mul(x, a.splat(self.c))
    }
    #[inline(always)]
    fn vjp<A: Algebra<T>>(self, a: A, _: A::V, g: A::V) -> A::V {
        a.mul(g, a.splat(self.c))
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
    fn f<A: Algebra<T>>(self, a: A, x: A::V) -> A::V {
        a.min(a.max(x, a.splat(self.lo)), a.splat(self.hi))
    }
    #[inline(always)]
    fn vjp<A: Algebra<T>>(self, a: A, x: A::V, g: A::V) -> A::V {
        let inside = a.and(a.lt(a.splat(self.lo), x), a.lt(x, a.splat(self.hi)));
        a.select(inside, g, a.splat(T::ZERO))
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

    /// `min(max(x, lo), hi)`; NaN of NaN. The derivative is 1 between `lo` and `hi` and 0
    /// elsewhere, also at the bounds.
    ///
    /// # Panics
    /// If `lo > hi` or either is NaN.
    #[track_caller]
    pub fn clamp(&self, lo: T, hi: T) -> Tensor<T> {
        require(lo <= hi, "clamp", ErrorKind::Value, || {
            format!("bounds {lo} and {hi} are not in order")
        })
        .or_panic();
        self.map(Clamp { lo, hi })
    }
}

/// Compiles the functions of this file, see [`compiled`](crate::compiled).
pub(crate) fn compile_all<T: Real>() {
    compile::<T, Neg>();
    compile::<T, Abs>();
    compile::<T, Sign>();
    compile::<T, Square>();
    compile::<T, Sqrt>();
    compile::<T, Rsqrt>();
    compile::<T, Recip>();
    compile::<T, Exp>();
    compile::<T, Expm1>();
    compile::<T, Ln>();
    compile::<T, Log1p>();
    compile::<T, Sin>();
    compile::<T, Cos>();
    compile::<T, Erf>();
    compile::<T, Powf<T>>();
    compile::<T, AddScalar<T>>();
    compile::<T, MulScalar<T>>();
    compile::<T, Clamp<T>>();
}
