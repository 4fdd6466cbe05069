//! Selection by a mask. It is not a multiplication: an element that is not selected has no influence,
//! even if it is NaN, and gets a gradient of exactly 0.

use crate::graph::{InputGrads, Var};
use crate::observe::saved;
use crate::op::{Kind, Op};
use retrograd_tensor::error::{ErrorKind, assert};
use retrograd_tensor::{Real, Tensor};

static WHERE: Op = Op::new("where", &["x", "z"]).kind(Kind::Fill).formula(
    "y = x where the condition holds, else z",
    "dx = g where it holds, else 0\ndz = g where it does not, else 0",
);
static MASKED_FILL: Op = Op::new("masked_fill", &["x"])
    .kind(Kind::Fill)
    .formula("y = c where the mask holds, else x", "dx = 0 where it holds, else g");

/// # Masks and selection
impl<T: Real> Var<T> {
    /// `x` where the condition is true, `z` elsewhere, as [`Tensor::where_`]. The gradient of an element
    /// that is not selected is exactly 0. An operation before it may still give NaN, as `0 · ∞` from the square
    /// root of 0: select its operand, too.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let (x, z) = (Var::leaf(Tensor::from([1.0f32, 2.0])), Var::leaf(Tensor::from([3.0, 4.0])));
    /// let y = Var::where_(&Tensor::from([true, false]), &x, &z);
    /// assert_eq!(y.value().to_vec(), [1.0, 4.0]);
    /// assert_eq!(y.sum(..).backward().get(&x).unwrap().to_vec(), [1.0, 0.0]);
    /// ```
    #[doc(alias = "where")]
    #[doc(alias = "select")]
    #[track_caller]
    pub fn where_(condition: &Tensor<bool>, x: &Var<T>, z: &Var<T>) -> Var<T> {
        let value = condition.where_(x.value(), z.value());
        Var::from_op(&WHERE, value, [x, z], |[x, z]| {
            let (x, z, condition) = (x.slot(), z.slot(), saved("condition", condition.clone()));
            move |_, g| {
                InputGrads::of(&x, || g.masked_fill(&!&condition, T::ZERO))
                    .and(&z, || g.masked_fill(&condition, T::ZERO))
            }
        })
    }

    /// As [`Tensor::masked_fill`]; the gradient is 0 where the mask is true, else `g`.
    #[track_caller]
    pub fn masked_fill(&self, mask: &Tensor<bool>, value: T) -> Var<T> {
        let filled = self.value().masked_fill(mask, value);
        Var::from_op(MASKED_FILL.with("c", value.to_f64()), filled, [self], |[x]| {
            let (x, mask) = (x.slot(), saved("mask", mask.clone()));
            move |_, g| InputGrads::of(&x, || g.masked_fill(&mask, T::ZERO))
        })
    }

    /// As [`Tensor::tril`]; the gradient is `tril(g)`.
    #[track_caller]
    pub fn tril(&self, diagonal: isize) -> Var<T> {
        self.masked_fill(&!&self.triangle().tril(diagonal), T::ZERO)
    }

    /// As [`Tensor::triu`]; the gradient is `triu(g)`.
    #[track_caller]
    pub fn triu(&self, diagonal: isize) -> Var<T> {
        self.masked_fill(&!&self.triangle().triu(diagonal), T::ZERO)
    }

    /// The mask of a whole matrix.
    #[track_caller]
    fn triangle(&self) -> Tensor<bool> {
        assert(self.rank() >= 2, "tril and triu", ErrorKind::Rank, || {
            format!("need a matrix, got {:?}", self.shape())
        });
        Tensor::ones([self.size(-2), self.size(-1)])
    }
}
