//! Multi-head attention with another normalizer than softmax.

use crate::attention::engine::{Normalizer, Part, Spec};
use crate::attention::parts::incremental::{Incremental, Past};
use crate::attention::parts::projections::Projections;
use crate::module::{Module, Visitor};
use crate::pass::Pass;
use retrograd_autograd::Var;
use retrograd_tensor::Real;

/// `normalize(q · kᵀ / √D) · v` with a [`Normalizer`]:
///
/// - [`Normalizer::Sigmoid`]: each weight by itself, without competition between keys;
/// - [`Normalizer::Sparsemax`] and [`Normalizer::Entmax15`]: weights of small scores are exactly 0;
/// - [`Normalizer::TopK`]: softmax over the largest scores, no gradient to the others;
/// - [`Normalizer::Linear`]: [`LinearAttention`](crate::attention::LinearAttention), under any mask;
/// - [`Normalizer::Softmax`], and top-k of at least `L`: multi-head attention.
///
/// `[.., L, width]` to `[.., L, width]` in `O(L² width)`, and for those that sort `O(L² log L)` per
/// head, by matrices of all scores. Parameters: those of [`Projections`]. With a cache, sigmoid
/// needs an explicit bias, because the default depends on the number of keys.
#[derive(Clone, Debug)]
pub struct NormalizedAttention<T: Real = f32> {
    /// The projections.
    pub projections: Projections<T>,
    /// The function from scores to weights.
    pub normalizer: Normalizer,
}

impl<T: Real> NormalizedAttention<T> {
    /// A layer with this normalizer.
    ///
    /// ```
    /// # use retrograd_autograd::Var;
    /// # use retrograd_nn::Pass;
    /// # use retrograd_nn::attention::{HeadSizes, NormalizedAttention, Normalizer, Projections, Spec, Incremental};
    /// # use retrograd_tensor::Tensor;
    /// # use retrograd_tensor::random::Rng;
    /// # let mut rng = Rng::new(1);
    /// # let projections = Projections::<f64>::new(HeadSizes::new(8, 2), &mut rng);
    /// # let x = Var::constant(Tensor::<f64>::randn([1, 4, 8], &mut rng));
    /// let attention = NormalizedAttention::new(projections, Normalizer::Sparsemax);
    /// let y = attention.forward(&x, &Spec::new().causal(), &mut Pass::eval());
    /// assert_eq!(*y.shape(), [1, 4, 8]);
    /// ```
    pub fn new(projections: Projections<T>, normalizer: Normalizer) -> Self {
        NormalizedAttention { projections, normalizer }
    }
}

impl<T: Real> Module<T> for NormalizedAttention<T> {
    fn visit(&self, v: &mut Visitor<'_, T>) {
        self.projections.visit(v);
    }
}

impl<T: Real> Incremental<T> for NormalizedAttention<T> {
    #[track_caller]
    fn run(&self, x: &Var<T>, spec: &Spec<T>, past: &mut Past<'_, T>, pass: &mut Pass) -> Var<T> {
        spec.reject("NormalizedAttention", Part::Normalizer);
        self.projections.attend(x, spec.clone().normalizer(self.normalizer), past, pass)
    }
}
