//! Functions of one number. Formulas and fast VJPs are in
//! [`retrograd_tensor::ops::unary`]; here is what a recorded pass does.

use crate::ops::pointwise::Differentiable;
use crate::var::Var;
use retrograd_tensor::ops::unary::*;
use retrograd_tensor::{Real, Tensor};

impl<T: Real> Differentiable<T> for Neg {
    fn vjp_var(self, _: &Var<T>, g: &Var<T>) -> Var<T> {
        g.neg()
    }
}

impl<T: Real> Differentiable<T> for Abs {
    fn vjp_var(self, x: &Var<T>, g: &Var<T>) -> Var<T> {
        g * &Var::constant(x.value().sign())
    }
}

impl<T: Real> Differentiable<T> for Sign {
    fn vjp_var(self, _: &Var<T>, g: &Var<T>) -> Var<T> {
        g * T::ZERO
    }
}

impl<T: Real> Differentiable<T> for Square {
    fn vjp_var(self, x: &Var<T>, g: &Var<T>) -> Var<T> {
        &(g * x) * T::from_f64(2.0)
    }
}

impl<T: Real> Differentiable<T> for Sqrt {
    fn vjp_var(self, y: &Var<T>, g: &Var<T>) -> Var<T> {
        &(g * T::from_f64(0.5)) / y
    }
}

impl<T: Real> Differentiable<T> for Rsqrt {
    fn vjp_var(self, y: &Var<T>, g: &Var<T>) -> Var<T> {
        &(g * T::from_f64(-0.5)) * &(y * &y.square())
    }
}

impl<T: Real> Differentiable<T> for Recip {
    fn vjp_var(self, y: &Var<T>, g: &Var<T>) -> Var<T> {
        -(g * &y.square())
    }
}

impl<T: Real> Differentiable<T> for Exp {
    fn vjp_var(self, y: &Var<T>, g: &Var<T>) -> Var<T> {
        g * y
    }
}

impl<T: Real> Differentiable<T> for Expm1 {
    fn vjp_var(self, y: &Var<T>, g: &Var<T>) -> Var<T> {
        g * &(y + T::ONE)
    }
}

impl<T: Real> Differentiable<T> for Ln {
    fn vjp_var(self, x: &Var<T>, g: &Var<T>) -> Var<T> {
        g / x
    }
}

impl<T: Real> Differentiable<T> for Log1p {
    fn vjp_var(self, x: &Var<T>, g: &Var<T>) -> Var<T> {
        g / &(x + T::ONE)
    }
}

impl<T: Real> Differentiable<T> for Sin {
    fn vjp_var(self, x: &Var<T>, g: &Var<T>) -> Var<T> {
        g * &x.cos()
    }
}

impl<T: Real> Differentiable<T> for Cos {
    fn vjp_var(self, x: &Var<T>, g: &Var<T>) -> Var<T> {
        -(g * &x.sin())
    }
}

impl<T: Real> Differentiable<T> for Erf {
    fn vjp_var(self, x: &Var<T>, g: &Var<T>) -> Var<T> {
        let slope = T::from_f64(std::f64::consts::FRAC_2_SQRT_PI);
        &(g * &(-x.square()).exp()) * slope
    }
}

impl<T: Real> Differentiable<T> for Powf<T> {
    fn vjp_var(self, x: &Var<T>, g: &Var<T>) -> Var<T> {
        if self.p == T::ZERO {
            return g * T::ZERO;
        }
        &(g * &x.powf(self.p - T::ONE)) * self.p
    }
}

impl<T: Real> Differentiable<T> for AddScalar<T> {
    fn vjp_var(self, _: &Var<T>, g: &Var<T>) -> Var<T> {
        g.clone()
    }
}

impl<T: Real> Differentiable<T> for MulScalar<T> {
    fn vjp_var(self, _: &Var<T>, g: &Var<T>) -> Var<T> {
        g * self.c
    }
}

impl<T: Real> Differentiable<T> for Clamp<T> {
    fn vjp_var(self, x: &Var<T>, g: &Var<T>) -> Var<T> {
        let (lo, hi) = (Tensor::scalar(self.lo), Tensor::scalar(self.hi));
        let outside = !&(&x.value().gt(&lo) & &x.value().lt(&hi));
        g.masked_fill(&outside, T::ZERO)
    }
}

impl<T: Real> Var<T> {
    /// `-x`, as a method: the `-` operator does the same.
    #[track_caller]
    pub fn neg(&self) -> Var<T> {
        self.map(Neg)
    }

    /// `|x|`. The derivative at 0 is 0.
    #[track_caller]
    pub fn abs(&self) -> Var<T> {
        self.map(Abs)
    }

    /// -1, 0 or 1; NaN of NaN. The derivative is 0 everywhere.
    #[track_caller]
    pub fn sign(&self) -> Var<T> {
        self.map(Sign)
    }

    /// `x²`
    #[track_caller]
    pub fn square(&self) -> Var<T> {
        self.map(Square)
    }

    /// `√x`, correctly rounded; NaN below 0. The derivative at 0 is infinite.
    #[track_caller]
    pub fn sqrt(&self) -> Var<T> {
        self.map(Sqrt)
    }

    /// `1/√x`; infinite at 0, NaN below.
    #[track_caller]
    pub fn rsqrt(&self) -> Var<T> {
        self.map(Rsqrt)
    }

    /// `1/x`
    #[track_caller]
    pub fn recip(&self) -> Var<T> {
        self.map(Recip)
    }

    /// `eˣ`
    #[track_caller]
    pub fn exp(&self) -> Var<T> {
        self.map(Exp)
    }

    /// `eˣ - 1`, accurate near 0.
    #[track_caller]
    pub fn expm1(&self) -> Var<T> {
        self.map(Expm1)
    }

    /// Natural logarithm; -inf at 0, NaN below.
    #[track_caller]
    pub fn ln(&self) -> Var<T> {
        self.map(Ln)
    }

    /// `ln(1 + x)`, accurate near 0; NaN below -1.
    #[track_caller]
    pub fn log1p(&self) -> Var<T> {
        self.map(Log1p)
    }

    /// Sine, of radians.
    #[track_caller]
    pub fn sin(&self) -> Var<T> {
        self.map(Sin)
    }

    /// Cosine, of radians.
    #[track_caller]
    pub fn cos(&self) -> Var<T> {
        self.map(Cos)
    }

    /// Error function, `2/√π ∫₀ˣ e^(-t²) dt`.
    #[track_caller]
    pub fn erf(&self) -> Var<T> {
        self.map(Erf)
    }

    /// `x^p`. NaN for negative `x` unless `p` is whole; `0⁰ = 1`. The derivative for `p = 0` is
    /// 0 even at 0.
    #[track_caller]
    pub fn powf(&self, p: T) -> Var<T> {
        self.map(Powf { p })
    }

    /// `x + c`
    #[track_caller]
    pub fn add_scalar(&self, c: T) -> Var<T> {
        self.map(AddScalar { c })
    }

    /// `x · c`
    #[track_caller]
    pub fn mul_scalar(&self, c: T) -> Var<T> {
        self.map(MulScalar { c })
    }

    /// `min(max(x, lo), hi)`; NaN of NaN. The derivative is 1 from `lo` to `hi`, bounds included,
    /// and 0 outside.
    ///
    /// # Panics
    /// If `lo > hi` or either is NaN.
    #[track_caller]
    pub fn clamp(&self, lo: T, hi: T) -> Var<T> {
        assert!(lo <= hi, "clamp: bounds {lo} and {hi} are not in order");
        self.map(Clamp { lo, hi })
    }
}
