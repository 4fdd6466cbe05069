//! Self-attention with rotary positions.

use crate::attention::engine::Spec;
use crate::attention::parts::incremental::{Incremental, Past};
use crate::attention::parts::projections::Projections;
use crate::attention::parts::rope::Rope;
use crate::module::{Module, Visitor};
use crate::pass::Pass;
use retrograd_autograd::Var;
use retrograd_tensor::Real;

/// Multi-head or grouped-query attention with rotary positions, as in Llama:
/// `o = softmax(R q · (R k)ᵀ / √D) · v`, with `R` the rotation of each position ([`Rope`]).
///
/// `[.., L, width]` to `[.., L, width]`. Parameters: those of [`Projections`]. Without
/// rotation (`Rope::new(0)`) it is multi-head attention without positions. Su et al. 2021
/// (arXiv 2104.09864); Touvron et al. 2023 (2302.13971).
#[derive(Clone, Debug)]
pub struct RopeAttention<T: Real = f32> {
    /// The projections and the positions.
    pub projections: Projections<T>,
}

impl<T: Real> RopeAttention<T> {
    /// A layer with these projections and rotary positions.
    ///
    /// # Panics
    /// If the rotary width exceeds the width of a head.
    ///
    /// ```
    /// # use retrograd_autograd::Var;
    /// # use retrograd_nn::Pass;
    /// # use retrograd_nn::attention::{HeadSizes, Projections, Rope, RopeAttention, Spec, Incremental};
    /// # use retrograd_tensor::Tensor;
    /// # use retrograd_tensor::random::Rng;
    /// # let mut rng = Rng::new(1);
    /// # let projections = Projections::<f64>::new(HeadSizes::new(8, 2), &mut rng);
    /// # let x = Var::constant(Tensor::<f64>::randn([1, 4, 8], &mut rng));
    /// let attention = RopeAttention::new(projections, Rope::new(4));
    /// let y = attention.forward(&x, &Spec::new().causal(), &mut Pass::eval());
    /// assert_eq!(*y.shape(), [1, 4, 8]);
    /// ```
    #[track_caller]
    pub fn new(projections: Projections<T>, rope: Rope) -> Self {
        RopeAttention { projections: projections.with_rope(rope) }
    }
}

impl<T: Real> Module<T> for RopeAttention<T> {
    fn visit(&self, v: &mut Visitor<'_, T>) {
        self.projections.visit(v);
    }
}

impl<T: Real> Incremental<T> for RopeAttention<T> {
    #[track_caller]
    fn run(&self, x: &Var<T>, spec: &Spec<T>, past: &mut Past<'_, T>, pass: &mut Pass) -> Var<T> {
        self.projections.attend(x, spec, past, pass)
    }
}
