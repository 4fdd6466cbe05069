//! Talking heads: linear mixtures over heads before and after the softmax.

use crate::attention::engine::{Part, Spec};
use crate::attention::parts::incremental::{Incremental, Past};
use crate::attention::parts::projections::Projections;
use crate::module::{Module, Visitor};
use crate::param::Param;
use crate::pass::Pass;
use retrograd_autograd::Var;
use retrograd_tensor::{Real, Tensor};

/// Talking-heads attention: `s'[g] = Σ_h score_mix[g, h] · s[h]`, `w = softmax(s')`,
/// `w'[g] = Σ_h weight_mix[g, h] · w[h]`.
///
/// `[.., L, width]` to `[.., L, width]`, in `O(L² · H D)` and `2 · H² · L²` more multiplications,
/// by matrices of all scores. Parameters: those of [`Projections`], and `score_mix` and
/// `weight_mix` `[heads, heads]`, identities initially, which is multi-head attention.
///
/// Masked scores count as 0 in the mixture, and the mask applies again after it. There is no
/// residual term: for the mixture `s + W · s` of another implementation, set `score_mix` to
/// `I + W`. Shazeer et al. 2020 (arXiv 2003.02436).
#[derive(Clone, Debug)]
pub struct TalkingHeadsAttention<T: Real = f32> {
    /// The projections.
    pub projections: Projections<T>,
    /// The mixture of scores, `[heads, heads]`.
    pub score_mix: Param<T>,
    /// The mixture of weights, `[heads, heads]`.
    pub weight_mix: Param<T>,
}

impl<T: Real> TalkingHeadsAttention<T> {
    /// A layer whose mixtures are identities.
    ///
    /// ```
    /// # use retrograd_autograd::Var;
    /// # use retrograd_nn::Pass;
    /// # use retrograd_nn::attention::{HeadSizes, Projections, Spec, TalkingHeadsAttention, Incremental};
    /// # use retrograd_tensor::Tensor;
    /// # use retrograd_tensor::random::Rng;
    /// # let mut rng = Rng::new(1);
    /// # let projections = Projections::<f64>::new(HeadSizes::new(8, 2), &mut rng);
    /// # let x = Var::constant(Tensor::<f64>::randn([1, 4, 8], &mut rng));
    /// let attention = TalkingHeadsAttention::new(projections);
    /// let y = attention.forward(&x, &Spec::new().causal(), &mut Pass::eval());
    /// assert_eq!(*y.shape(), [1, 4, 8]);
    /// ```
    #[track_caller]
    pub fn new(projections: Projections<T>) -> Self {
        let heads = projections.sizes().heads;
        let identity = || Param::new(Tensor::eye(heads));
        TalkingHeadsAttention { projections, score_mix: identity(), weight_mix: identity() }
    }
}

impl<T: Real> Module<T> for TalkingHeadsAttention<T> {
    fn visit(&self, v: &mut Visitor<'_, T>) {
        self.projections.visit(v);
        v.param("score_mix", &self.score_mix);
        v.param("weight_mix", &self.weight_mix);
    }
}

impl<T: Real> Incremental<T> for TalkingHeadsAttention<T> {
    #[track_caller]
    fn run(&self, x: &Var<T>, spec: &Spec<T>, past: &mut Past<'_, T>, pass: &mut Pass) -> Var<T> {
        spec.reject("TalkingHeadsAttention", Part::HeadMix);
        let mixes = (Some(self.score_mix.to_var()), Some(self.weight_mix.to_var()));
        let spec = spec.clone().mix_heads(mixes.0, mixes.1);
        self.projections.attend(x, spec, past, pass)
    }
}
