//! Softmax and log-softmax.

use crate::graph::{Cx, InputGrads, Tangents, Var};
use crate::observe::saved;
use crate::op::Op;
use crate::record::{Fused, Slot};
use retrograd_tensor::{Real, Tensor};

static SOFTMAX: Op =
    Op::new("softmax", &["x"]).formula("y = e^x / Σ e^x, over the axis", "dx = y · (g − Σ g · y)");
static LOG_SOFTMAX: Op =
    Op::new("log_softmax", &["x"]).formula("y = x − ln Σ e^x, over the axis", "dx = g − e^y · Σ g");

/// Plain and masked softmax. Only the output is saved.
struct Softmax<T: Real> {
    x: Slot<T>,
    output: Tensor<T>,
    axis: isize,
}

impl<T: Real> Fused<T> for Softmax<T> {
    fn vjp(&self, [g]: [&Tensor<T>; 1]) -> InputGrads<T> {
        InputGrads::of(&self.x, || Tensor::softmax_vjp(&self.output, g, self.axis))
    }

    /// The Jacobian is symmetric.
    fn jvp(&self, t: Tangents<'_, T>) -> Option<[Tensor<T>; 1]> {
        Some([Tensor::softmax_vjp(&self.output, t.value(&self.x)?, self.axis)])
    }

    fn definition(&self, cx: &Cx<'_, T>) -> [Var<T>; 1] {
        // Softmax is the same function of x and of x + c, so ln y = x - ln Σ eˣ stands for x, which
        // was not saved.
        if self.output.numel() > 0 && self.output.min(..).item() > T::ZERO {
            let exp = cx.input_as(&self.x, self.output.ln()).exp();
            return [exp.div(&exp.sum_keepdim(self.axis))];
        }
        // Elements that are masked, or that underflow, are 0 and stay 0.
        let zero = self.output.eq(T::ZERO);
        let x = cx.input_as(&self.x, self.output.masked_fill(&zero, T::ONE).ln());
        let exp = x.exp().masked_fill(&zero, T::ZERO);
        let sum = exp.sum_keepdim(self.axis);
        let empty = sum.value().eq(T::ZERO);
        let y = exp.div(&sum.masked_fill(&empty, T::ONE));
        // A gradient of NaN at an element that is 0 has no influence on the others.
        [y.masked_fill(&zero, T::ZERO)]
    }
}

/// Only the output is saved.
struct LogSoftmax<T: Real> {
    x: Slot<T>,
    output: Tensor<T>,
    axis: isize,
}

impl<T: Real> Fused<T> for LogSoftmax<T> {
    fn vjp(&self, [g]: [&Tensor<T>; 1]) -> InputGrads<T> {
        InputGrads::of(&self.x, || Tensor::log_softmax_vjp(&self.output, g, self.axis))
    }

    fn jvp(&self, t: Tangents<'_, T>) -> Option<[Tensor<T>; 1]> {
        let t = t.value(&self.x)?;
        Some([t - &self.output.exp().mul(t).sum_keepdim(self.axis)])
    }

    fn definition(&self, cx: &Cx<'_, T>) -> [Var<T>; 1] {
        // The output stands for x, see `Softmax`.
        let x = cx.input_as(&self.x, self.output.clone());
        [x.sub(&x.logsumexp_keepdim(self.axis))]
    }
}

/// # Softmax
impl<T: Real> Var<T> {
    /// As [`Tensor::softmax`]; the gradient is `y · (g - Σ g · y)`.
    #[track_caller]
    pub fn softmax(&self, axis: isize) -> Var<T> {
        self.normalized(self.value().softmax(axis), axis)
    }

    /// As [`Tensor::masked_softmax`]; the gradient is `y · (g - Σ g · y)`, exactly 0 for masked elements
    /// and empty rows.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let x = Var::leaf(Tensor::from([1.0f32, 1.0, f32::NAN]));
    /// let y = x.masked_softmax(0, &Tensor::from([true, true, false]));
    /// assert_eq!(y.value().to_vec(), [0.5, 0.5, 0.0]);
    /// let dx = y.square().sum(..).backward().get(&x).unwrap().to_vec();
    /// assert_eq!(dx, [0.0, 0.0, 0.0]);
    /// ```
    #[track_caller]
    pub fn masked_softmax(&self, axis: isize, keep: &Tensor<bool>) -> Var<T> {
        self.normalized(self.value().masked_softmax(axis, keep), axis)
    }

    /// Records the node of a softmax with the result `value`.
    #[inline]
    #[track_caller]
    fn normalized(&self, value: Tensor<T>, axis: isize) -> Var<T> {
        let (output, call) = (value.clone(), SOFTMAX.with("axes", self.axes("softmax", axis)));
        let [y] = Var::from_fused(call, [value], [self], |[x]| Softmax {
            x: x.slot(),
            output: saved("y", output),
            axis,
        });
        y
    }

    /// As [`Tensor::log_softmax`]; the gradient is `g - e^y · Σ g`.
    #[track_caller]
    pub fn log_softmax(&self, axis: isize) -> Var<T> {
        let value = self.value().log_softmax(axis);
        let (output, axes) = (value.clone(), self.axes("log_softmax", axis));
        let call = LOG_SOFTMAX.with("axes", axes);
        let [y] = Var::from_fused(call, [value], [self], |[x]| LogSoftmax {
            x: x.slot(),
            output: saved("y", output),
            axis,
        });
        y
    }
}
