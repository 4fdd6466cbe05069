//! Binary cross-entropy of logits, and its gradient.

use crate::cost::Cost;
use crate::formula::Expr;
use crate::kernels::Real;
use crate::kernels::elementwise::{Elementwise, elementwise};
use crate::simd::Lanes;
use crate::tensor::Tensor;

/// `w · t · softplus(-x) + (1 - t) · softplus(x)`
#[derive(Clone, Copy)]
struct LogitLoss;

impl<T: Real> Elementwise<T, 3> for LogitLoss {
    const COST: Cost = Cost::COSTLY;
    #[inline(always)]
    fn f<S: Lanes<T>>(self, [x, t, w]: [Expr<T, S>; 3]) -> Expr<T, S> {
        t * (-x).softplus() * w + (-t + 1.0) * x.softplus()
    }
}

/// `(1 - t) · σ(x) - w · t · σ(-x)`
#[derive(Clone, Copy)]
struct LogitSlope;

impl<T: Real> Elementwise<T, 3> for LogitSlope {
    const COST: Cost = Cost::COSTLY;
    #[inline(always)]
    fn f<S: Lanes<T>>(self, [x, t, w]: [Expr<T, S>; 3]) -> Expr<T, S> {
        (-t + 1.0) * x.sigmoid() - t * w * (-x).sigmoid()
    }
}

impl<T: Real> Tensor<T> {
    /// The binary cross-entropy of logits, elementwise: `w · t · softplus(-x) + (1 - t) · softplus(x)`.
    #[doc(hidden)]
    #[track_caller]
    pub fn logit_loss(&self, target: &Tensor<T>, pos_weight: &Tensor<T>) -> Tensor<T> {
        elementwise("binary_cross_entropy_with_logits", LogitLoss, [self, target, pos_weight])
    }

    /// The derivative of [`Tensor::logit_loss`].
    #[doc(hidden)]
    #[track_caller]
    pub fn logit_slope(&self, target: &Tensor<T>, pos_weight: &Tensor<T>) -> Tensor<T> {
        elementwise("binary_cross_entropy_with_logits", LogitSlope, [self, target, pos_weight])
    }
}
