//! Depthwise convolution.

use crate::graph::{Cx, InputGrads, Var};
use crate::op::Op;
use crate::record::{Fused, Slot};
use retrograd_tensor::{Real, Tensor};

static DEPTHWISE_CONV1D: Op = Op::new("depthwise_conv1d", &["x", "w"]).formula(
    "y = Σ w · x, over the taps, each row of w with the rows of x from its own index on",
    "dx = Σ w · g, over the taps in reverse\ndw = Σ g · x, over the rows, from the index of the tap on",
);

struct DepthwiseConv1d<T: Real> {
    x: Slot<T>,
    w: Slot<T>,
}

impl<T: Real> Fused<T> for DepthwiseConv1d<T> {
    fn vjp(&self, [g]: [&Tensor<T>; 1]) -> InputGrads<T> {
        let (dx, dw) = self.x.value().depthwise_conv1d_vjps(self.w.value(), g);
        InputGrads::of(&self.x, || dx).and(&self.w, || dw)
    }

    fn definition(&self, cx: &Cx<'_, T>) -> [Var<T>; 1] {
        let (x, w) = (cx.input(&self.x), cx.input(&self.w));
        let l = x.size(-2) + 1 - w.size(0);
        let tap = |j| x.narrow(-2, j, l).mul(&w.narrow(0, j, 1));
        [(1..w.size(0)).fold(tap(0), |y, j| y + tap(j))]
    }
}

/// # Convolution
impl<T: Real> Var<T> {
    /// As [`Tensor::depthwise_conv1d`].
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let x = Var::leaf(Tensor::from([[1.0f64], [2.0], [4.0]]));
    /// let taps = Var::leaf(Tensor::from([[1.0f64], [10.0]]));
    /// let y = x.depthwise_conv1d(&taps);
    /// assert_eq!(y.value().to_vec(), [21.0, 42.0]);
    /// assert_eq!(y.sum(..).backward().get(&taps).unwrap().to_vec(), [3.0, 6.0]);
    /// ```
    #[track_caller]
    pub fn depthwise_conv1d(&self, taps: &Var<T>) -> Var<T> {
        let value = self.value().depthwise_conv1d(taps.value());
        let [y] =
            Var::from_fused(&DEPTHWISE_CONV1D, [value], [Some(self), Some(taps)], |[x, w]| {
                DepthwiseConv1d { x: x.save(), w: w.save() }
            });
        y
    }
}
