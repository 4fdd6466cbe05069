//! Softmax and its relatives.

use crate::node::{Backward, Cx, Grads};
use crate::var::Var;
use retrograd_tensor::{Real, Tensor};

/// Plain and masked softmax: the rule needs the output only.
#[derive(Debug)]
struct Softmax<T: Real> {
    axis: isize,
    output: Tensor<T>,
}

impl<T: Real> Backward<T> for Softmax<T> {
    fn name(&self) -> &'static str {
        "softmax"
    }
    fn backward(&self, cx: &Cx<'_, T>, g: &Var<T>) -> Grads<T> {
        let dx = if cx.recording() {
            let y = cx.output(&self.output);
            // What was masked must not leak, whatever the gradient there is.
            let dropped = self.output.eq(&Tensor::scalar(T::ZERO));
            let g = g.masked_fill(&dropped, T::ZERO);
            let dot = g.mul(&y).sum_keepdim(self.axis);
            y.mul(&g.sub(&dot))
        } else {
            Var::constant(Tensor::softmax_vjp(&self.output, g.value(), self.axis))
        };
        vec![Some(dx)]
    }
}

#[derive(Debug)]
struct LogSoftmax<T: Real> {
    axis: isize,
    output: Tensor<T>,
}

impl<T: Real> Backward<T> for LogSoftmax<T> {
    fn name(&self) -> &'static str {
        "log_softmax"
    }
    fn backward(&self, cx: &Cx<'_, T>, g: &Var<T>) -> Grads<T> {
        let dx = if cx.recording() {
            let y = cx.output(&self.output);
            g.sub(&y.exp().mul(&g.sum_keepdim(self.axis)))
        } else {
            Var::constant(Tensor::log_softmax_vjp(&self.output, g.value(), self.axis))
        };
        vec![Some(dx)]
    }
}

impl<T: Real> Var<T> {
    /// `yᵢ = e^xᵢ / Σⱼ e^xⱼ` along an axis, see [`Tensor::softmax`].
    #[track_caller]
    pub fn softmax(&self, axis: isize) -> Var<T> {
        let value = self.value().softmax(axis);
        let output = value.clone();
        Var::from_op(value, &[self], |_| Softmax { axis, output })
    }

    /// Softmax over the elements where `keep` is true, see [`Tensor::masked_softmax`]: 0
    /// elsewhere, with a gradient of exactly 0, and a row of which nothing is kept is 0.
    #[track_caller]
    pub fn masked_softmax(&self, keep: &Tensor<bool>, axis: isize) -> Var<T> {
        let value = self.value().masked_softmax(keep, axis);
        let output = value.clone();
        Var::from_op(value, &[self], |_| Softmax { axis, output })
    }

    /// `ln softmax(x)` along an axis.
    #[track_caller]
    pub fn log_softmax(&self, axis: isize) -> Var<T> {
        let value = self.value().log_softmax(axis);
        let output = value.clone();
        Var::from_op(value, &[self], |_| LogSoftmax { axis, output })
    }
}
