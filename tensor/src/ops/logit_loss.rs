//! Binary cross-entropy of logits, and its gradient.

use crate::cost::Cost;
use crate::formula::Expr;
use crate::kernels::Real;
use crate::kernels::elementwise::{Elementwise, elementwise, formulas};
use crate::simd::Lanes;
use crate::tensor::Tensor;

formulas! {
    /// `w · t · softplus(-x) + (1 - t) · softplus(x)`
    LogitLoss, COSTLY, |x, t, w| t * (-x).softplus() * w + (-t + 1.0) * x.softplus();
    /// `(1 - t) · σ(x) - w · t · σ(-x)`
    LogitSlope, COSTLY, |x, t, w| (-t + 1.0) * x.sigmoid() - t * w * (-x).sigmoid();
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
