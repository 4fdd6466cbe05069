//! Choosing between elements by a mask. Selection is never multiplication: what was not
//! chosen has no influence, and gets a gradient of exactly 0.

use crate::node::{Backward, Cx, Grads};
use crate::var::Var;
use retrograd_tensor::{Real, Tensor};

#[derive(Debug)]
struct Where {
    condition: Tensor<bool>,
}

impl<T: Real> Backward<T> for Where {
    fn name(&self) -> &'static str {
        "where"
    }
    fn backward(&self, cx: &Cx<'_, T>, g: &Var<T>) -> Grads<T> {
        vec![
            cx.needs(0).then(|| g.masked_fill(&!&self.condition, T::ZERO)),
            cx.needs(1).then(|| g.masked_fill(&self.condition, T::ZERO)),
        ]
    }
}

#[derive(Debug)]
struct MaskedFill {
    mask: Tensor<bool>,
}

impl<T: Real> Backward<T> for MaskedFill {
    fn name(&self) -> &'static str {
        "masked_fill"
    }
    fn backward(&self, _: &Cx<'_, T>, g: &Var<T>) -> Grads<T> {
        vec![Some(g.masked_fill(&self.mask, T::ZERO))]
    }
}

impl<T: Real> Var<T> {
    /// `a` where the condition is true, `b` elsewhere; all three are broadcast together.
    #[track_caller]
    pub fn where_(condition: &Tensor<bool>, a: &Var<T>, b: &Var<T>) -> Var<T> {
        let value = condition.where_(a.value(), b.value());
        Var::from_op(value, &[a, b], |_| Where { condition: condition.clone() })
    }

    /// `value` where the mask is true (it is broadcast to the shape of `self`), the elements
    /// of `self` elsewhere.
    #[track_caller]
    pub fn masked_fill(&self, mask: &Tensor<bool>, value: T) -> Var<T> {
        let filled = self.value().masked_fill(mask, value);
        Var::from_op(filled, &[self], |_| MaskedFill { mask: mask.clone() })
    }

    /// The lower triangle of the last two axes: column `j` of row `i` is kept if
    /// `j <= i + diagonal`, else 0.
    #[track_caller]
    pub fn tril(&self, diagonal: isize) -> Var<T> {
        self.masked_fill(&!&self.triangle().tril(diagonal), T::ZERO)
    }

    /// The upper triangle of the last two axes: column `j` of row `i` is kept if
    /// `j >= i + diagonal`, else 0.
    #[track_caller]
    pub fn triu(&self, diagonal: isize) -> Var<T> {
        self.masked_fill(&!&self.triangle().triu(diagonal), T::ZERO)
    }

    /// The mask of a whole matrix.
    #[track_caller]
    fn triangle(&self) -> Tensor<bool> {
        assert!(self.rank() >= 2, "tril and triu: need a matrix, got {:?}", self.shape());
        Tensor::ones([self.size(-2), self.size(-1)])
    }
}
