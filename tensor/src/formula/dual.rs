//! Dual numbers: forward-mode derivatives of formulas.

use super::Algebra;
use crate::element::Float;
use std::f64::consts::FRAC_2_SQRT_PI;

/// The algebra of dual numbers `x + x'ε` with `ε² = 0`, over another algebra: a formula evaluated
/// in it yields its value and its exact derivative, `f(x + x'ε) = f(x) + f'(x) x'ε`.
///
/// A number is the pair `(x, x')`. Where a formula has a kink (`abs`, `min`, `max`, `select`), the
/// derivative comes from the side that gives the value; for `abs` at 0 it is 0.
///
/// Clifford 1873; Griewank, Walther: *Evaluating Derivatives*, 2008, chapter 3.
#[derive(Clone, Copy, Debug)]
pub struct Dual<A>(pub A);

impl<A> Dual<A> {
    /// The chain rule: the value `y` of a function, and its derivative times the derivative of the argument.
    #[inline(always)]
    fn chain<T: Copy>(self, y: A::V, derivative: A::V, (_, dx): (A::V, A::V)) -> (A::V, A::V)
    where
        A: Algebra<T>,
    {
        (y, self.0.mul(derivative, dx))
    }
}

impl<T: Float, A: Algebra<T>> Algebra<T> for Dual<A> {
    type V = (A::V, A::V);
    type M = A::M;

    #[inline(always)]
    fn splat(self, x: T) -> Self::V {
        (self.0.splat(x), self.0.splat(T::ZERO))
    }
    #[inline(always)]
    fn add(self, (x, dx): Self::V, (y, dy): Self::V) -> Self::V {
        (self.0.add(x, y), self.0.add(dx, dy))
    }
    #[inline(always)]
    fn sub(self, (x, dx): Self::V, (y, dy): Self::V) -> Self::V {
        (self.0.sub(x, y), self.0.sub(dx, dy))
    }
    #[inline(always)]
    fn mul(self, (x, dx): Self::V, (y, dy): Self::V) -> Self::V {
        (self.0.mul(x, y), self.0.fma(x, dy, self.0.mul(dx, y)))
    }
    #[inline(always)]
    fn div(self, (x, dx): Self::V, (y, dy): Self::V) -> Self::V {
        let quotient = self.0.div(x, y);
        (quotient, self.0.div(self.0.sub(dx, self.0.mul(quotient, dy)), y))
    }
    #[inline(always)]
    fn fma(self, (x, dx): Self::V, (y, dy): Self::V, (z, dz): Self::V) -> Self::V {
        (self.0.fma(x, y, z), self.0.fma(x, dy, self.0.fma(dx, y, dz)))
    }
    #[inline(always)]
    fn neg(self, (x, dx): Self::V) -> Self::V {
        (self.0.neg(x), self.0.neg(dx))
    }
    #[inline(always)]
    fn abs(self, x: Self::V) -> Self::V {
        self.chain(self.0.abs(x.0), self.0.sign(x.0), x)
    }
    #[inline(always)]
    fn sign(self, (x, _): Self::V) -> Self::V {
        (self.0.sign(x), self.0.splat(T::ZERO))
    }
    #[inline(always)]
    fn sqrt(self, x: Self::V) -> Self::V {
        let y = self.0.sqrt(x.0);
        self.chain(y, self.0.div(self.0.splat(T::from_f64(0.5)), y), x)
    }
    #[inline(always)]
    fn round(self, (x, _): Self::V) -> Self::V {
        (self.0.round(x), self.0.splat(T::ZERO))
    }
    #[inline(always)]
    fn min(self, (x, dx): Self::V, (y, dy): Self::V) -> Self::V {
        (self.0.min(x, y), self.0.select(self.0.lt(x, y), dx, dy))
    }
    #[inline(always)]
    fn max(self, (x, dx): Self::V, (y, dy): Self::V) -> Self::V {
        (self.0.max(x, y), self.0.select(self.0.lt(y, x), dx, dy))
    }

    inlined_methods! {
        lt(self, x: Self::V, y: Self::V) -> Self::M = self.0.lt(x.0, y.0);
        le(self, x: Self::V, y: Self::V) -> Self::M = self.0.le(x.0, y.0);
        eq(self, x: Self::V, y: Self::V) -> Self::M = self.0.eq(x.0, y.0);
        is_nan(self, x: Self::V) -> Self::M = self.0.is_nan(x.0);
        and(self, a: Self::M, b: Self::M) -> Self::M = self.0.and(a, b);
        or(self, a: Self::M, b: Self::M) -> Self::M = self.0.or(a, b);
        not(self, a: Self::M) -> Self::M = self.0.not(a);
        select(self, m: Self::M, x: Self::V, y: Self::V) -> Self::V =
            (self.0.select(m, x.0, y.0), self.0.select(m, x.1, y.1));
    }

    #[inline(always)]
    fn exp(self, x: Self::V) -> Self::V {
        let y = self.0.exp(x.0);
        self.chain(y, y, x)
    }

    inlined_methods! {
        expm1(self, x: Self::V) -> Self::V = self.chain(self.0.expm1(x.0), self.0.exp(x.0), x);
        ln(self, x: Self::V) -> Self::V = (self.0.ln(x.0), self.0.div(x.1, x.0));
        log1p(self, x: Self::V) -> Self::V =
            (self.0.log1p(x.0), self.0.div(x.1, self.0.add(self.0.splat(T::ONE), x.0)));
    }

    #[inline(always)]
    fn tanh(self, x: Self::V) -> Self::V {
        // 1 / cosh² x
        let twice = self.0.add(x.0, x.0);
        let product = self.0.mul(self.0.sigmoid(twice), self.0.sigmoid(self.0.neg(twice)));
        self.chain(self.0.tanh(x.0), self.0.mul(self.0.splat(T::from_f64(4.0)), product), x)
    }
    #[inline(always)]
    fn erf(self, x: Self::V) -> Self::V {
        let gaussian = self.0.exp(self.0.neg(self.0.mul(x.0, x.0)));
        let derivative = self.0.mul(self.0.splat(T::from_f64(FRAC_2_SQRT_PI)), gaussian);
        self.chain(self.0.erf(x.0), derivative, x)
    }

    inlined_methods! {
        sin(self, x: Self::V) -> Self::V = self.chain(self.0.sin(x.0), self.0.cos(x.0), x);
        cos(self, x: Self::V) -> Self::V =
            self.chain(self.0.cos(x.0), self.0.neg(self.0.sin(x.0)), x);
    }

    #[inline(always)]
    fn powf(self, x: Self::V, p: T) -> Self::V {
        let derivative = match p == T::ZERO {
            true => self.0.splat(T::ZERO),
            false => self.0.mul(self.0.splat(p), self.0.powf(x.0, p - T::ONE)),
        };
        self.chain(self.0.powf(x.0, p), derivative, x)
    }
    #[inline(always)]
    fn sigmoid(self, x: Self::V) -> Self::V {
        let y = self.0.sigmoid(x.0);
        self.chain(y, self.0.mul(y, self.0.sigmoid(self.0.neg(x.0))), x)
    }
    #[inline(always)]
    fn softplus(self, x: Self::V) -> Self::V {
        self.chain(self.0.softplus(x.0), self.0.sigmoid(x.0), x)
    }
    #[inline(always)]
    fn normal(self, x: Self::V) -> (Self::V, Self::V) {
        let (cdf, density) = self.0.normal(x.0);
        let density_derivative = self.0.neg(self.0.mul(x.0, density));
        (self.chain(cdf, density, x), self.chain(density, density_derivative, x))
    }
}
