//! How a gradient is compared with differences.

/// How to take differences, and how far from them a gradient may be.
///
/// A gradient `a` and a difference quotient `n` agree if `|a - n| <= atol + rtol · |n|`.
#[derive(Clone, Debug, PartialEq)]
pub struct Check {
    /// Points of the difference quotient.
    pub stencil: Stencil,
    /// Step by which an element `x` is moved, times `max(1, |x|)`.
    pub step: f64,
    /// Relative tolerance.
    pub rtol: f64,
    /// Absolute tolerance.
    pub atol: f64,
    /// With at most this many elements in all inputs that are checked, each is moved by
    /// itself; with as few in the output, too, every entry of the Jacobian is compared.
    pub full: usize,
    /// The number of random projections where inputs or outputs are larger.
    pub directions: u64,
    /// Seed of random directions.
    pub seed: u64,
}

/// The points at which a function is evaluated for a derivative.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stencil {
    /// `(f(x+h) - f(x-h)) / 2h`, of second order.
    Central,
    /// `(8 (f(x+h) - f(x-h)) - (f(x+2h) - f(x-2h))) / 12h`, of fourth order.
    FivePoint,
}

impl Default for Check {
    /// Central differences with `h = ∛ε · max(1, |x|)`, about 6e-6, where rounding and
    /// truncation errors balance near 1e-10; `rtol` 1e-6 and `atol` 1e-8.
    fn default() -> Self {
        Check {
            stencil: Stencil::Central,
            step: f64::EPSILON.cbrt(),
            rtol: 1e-6,
            atol: 1e-8,
            full: 64,
            directions: 8,
            seed: 0,
        }
    }
}

impl Check {
    /// Fourth-order differences with `h = 1e-3 · max(1, |x|)`, whose error is about 1e-12;
    /// `rtol` 1e-8 and `atol` 1e-10. Finds constants that are wrong in the eighth digit, of
    /// functions that are smooth over `4h` around every input.
    ///
    /// The truncation error grows with the fifth power of the slope in the direction of the step.
    /// Projections (of more than `full` elements) are steeper than any single element: for
    /// functions that are strongly curved, raise `full`.
    ///
    /// ```
    /// use retrograd::autograd::check::{Check, gradcheck};
    /// use retrograd::prelude::*;
    /// let x = Var::leaf(Tensor::from([0.5f64, -1.0, 2.0]));
    /// let report = gradcheck(|x| x[0].gelu(), &[x], &Check::precise()).unwrap();
    /// assert!(report.worst.unwrap().error < 1e-10);
    /// ```
    pub fn precise() -> Self {
        Check {
            stencil: Stencil::FivePoint,
            step: 1e-3,
            rtol: 1e-8,
            atol: 1e-10,
            ..Check::default()
        }
    }

    pub(super) fn allowed(&self, numeric: f64) -> f64 {
        self.atol + self.rtol * numeric.abs()
    }
}
