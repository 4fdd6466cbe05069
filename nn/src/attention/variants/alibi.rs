//! ALiBi: a penalty on scores that is linear in the distance.

use crate::attention::engine::{Bias, Spec, alibi_slopes};
use crate::attention::parts::incremental::{Incremental, Past};
use crate::attention::parts::projections::Projections;
use crate::module::{Call, Module, Visitor};
use crate::pass::Pass;
use retrograd_autograd::Var;
use retrograd_tensor::Real;

/// Self-attention with a penalty linear in the distance, in place of position embeddings.
///
/// ```text
/// s_pj = q_p · k_j / √D - m_h |p - j|
/// ```
///
/// with a slope `m_h` per head: `2^(-8h/H)` for `h = 1..=H` if `H` is a power of two; see
/// [`alibi_slopes`]. `[L, width]` or `[B, L, width]` to the same, in `O(L² width)`. With slopes
/// of 0 it is plain (causal) self-attention.
///
/// Parameters: those of [`Projections`]; slopes are not learned. Press, Smith, Lewis 2021
/// (arXiv 2108.12409).
#[derive(Clone, Debug)]
pub struct AlibiAttention<T: Real = f32> {
    /// The projections.
    pub projections: Projections<T>,
    /// The slope of each head.
    pub slopes: Vec<f64>,
    causal: bool,
}

impl<T: Real> AlibiAttention<T> {
    /// Causal attention, for decoders.
    pub fn causal(projections: Projections<T>) -> Self {
        let slopes = alibi_slopes(projections.sizes().heads);
        AlibiAttention { projections, slopes, causal: true }
    }

    /// Attention to keys on both sides, for encoders.
    pub fn symmetric(projections: Projections<T>) -> Self {
        AlibiAttention { causal: false, ..AlibiAttention::causal(projections) }
    }

    /// The output for `x`; `spec` may restrict the attention further.
    ///
    /// # Panics
    /// If the shapes do not match.
    ///
    /// ```
    /// # use retrograd_autograd::Var;
    /// # use retrograd_nn::Pass;
    /// # use retrograd_nn::attention::{AlibiAttention, HeadSizes, Mask, Projections, Spec};
    /// # use retrograd_tensor::Tensor;
    /// # use retrograd_tensor::random::Rng;
    /// # let mut rng = Rng::new(1);
    /// # let projections = Projections::<f64>::new(HeadSizes::new(8, 2), &mut rng);
    /// # let x = Var::constant(Tensor::<f64>::randn([1, 4, 8], &mut rng));
    /// let attention = AlibiAttention::causal(projections);
    /// let y = attention.forward(&x, Mask::window(1, 0), &mut Pass::eval());
    /// assert_eq!(*y.shape(), [1, 4, 8]);
    /// ```
    #[track_caller]
    pub fn forward(&self, x: &Var<T>, spec: impl Into<Spec<T>>, pass: &mut Pass) -> Var<T> {
        Call::start(self).end(self.run(x, &spec.into(), &mut Past::none(), pass))
    }
}

impl<T: Real> Module<T> for AlibiAttention<T> {
    fn visit(&self, v: &mut Visitor<'_, T>) {
        self.projections.visit(v);
    }
}

impl<T: Real> Incremental<T> for AlibiAttention<T> {
    #[track_caller]
    fn run(&self, x: &Var<T>, spec: &Spec<T>, past: &mut Past<'_, T>, pass: &mut Pass) -> Var<T> {
        let spec = spec.clone().bias(Bias::Alibi(self.slopes.clone().into()));
        let spec = if self.causal { spec.causal() } else { spec };
        self.projections.attend(x, spec, past, pass)
    }
}
