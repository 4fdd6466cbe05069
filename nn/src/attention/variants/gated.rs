//! Modifications of outputs and values: gates, scales of heads, values of the first layer.

use crate::attention::engine::{Spec, attend};
use crate::attention::parts::heads::split_heads;
use crate::attention::parts::incremental::{Incremental, Past};
use crate::attention::parts::projections::Projections;
use crate::linear::Linear;
use crate::module::{Call, Layer, visits};
use crate::param::Param;
use crate::pass::Pass;
use retrograd_autograd::Var;
use retrograd_tensor::error::{ErrorKind, assert};
use retrograd_tensor::random::Rng;
use retrograd_tensor::{Real, Tensor};

/// Gated attention: `o ∘ sigmoid(W_g x)` before the output projection.
///
/// `[.., L, width]` to `[.., L, width]`, in `O(L² · H D)` and the work of the projections.
/// Parameters: as [`Projections`], and `gate_proj` with `weight` `[H · D, width]` and `bias`
/// `[H · D]`. With a weight of 0 and a large bias it is multi-head attention. Qiu et al. 2025
/// (arXiv 2505.06708).
#[derive(Clone, Debug)]
pub struct GatedAttention<T: Real = f32> {
    /// The projections.
    pub projections: Projections<T>,
    /// The projection to the logits of the gates.
    pub gate_proj: Linear<T>,
}

impl<T: Real> GatedAttention<T> {
    /// A layer with a random gate.
    #[track_caller]
    pub fn new(projections: Projections<T>, rng: &mut Rng) -> Self {
        let sizes = projections.sizes();
        let gate_proj = Linear::new(sizes.width, sizes.heads * sizes.head_width, rng);
        GatedAttention { projections, gate_proj }
    }
}

visits!(GatedAttention: all projections, module gate_proj);

impl<T: Real> Incremental<T> for GatedAttention<T> {
    #[track_caller]
    fn run(&self, x: &Var<T>, spec: &Spec<T>, past: &mut Past<'_, T>, pass: &mut Pass) -> Var<T> {
        let spec = self.projections.with_dropout(spec, pass);
        let [q, k, v] = self.projections.qkv(x, past, pass);
        let gate = self.gate_proj.forward(x, pass).sigmoid();
        let o = attend(&q, &k, &v, &spec).mul(&split_heads(&gate, self.projections.sizes().heads));
        self.projections.project_out(&o, pass)
    }
}

/// Attention with a learned scale per head: `head_scale_h · o_h` before the output projection.
///
/// `[.., L, width]` to `[.., L, width]`, in `O(L² · H D)` and the work of the projections.
/// Parameters: as [`Projections`], and `head_scale` `[heads]`, 1 initially. With
/// scales of 1 it is multi-head attention. Shleifer, Weston, Ott 2021 (arXiv 2110.09456).
#[derive(Clone, Debug)]
pub struct HeadScaleAttention<T: Real = f32> {
    /// The projections.
    pub projections: Projections<T>,
    /// `[heads]`
    pub head_scale: Param<T>,
}

impl<T: Real> HeadScaleAttention<T> {
    /// A layer with scales of 1.
    #[track_caller]
    pub fn new(projections: Projections<T>) -> Self {
        let head_scale = Param::new(Tensor::ones([projections.sizes().heads]));
        HeadScaleAttention { projections, head_scale }
    }
}

visits!(HeadScaleAttention: all projections, param head_scale);

impl<T: Real> Incremental<T> for HeadScaleAttention<T> {
    #[track_caller]
    fn run(&self, x: &Var<T>, spec: &Spec<T>, past: &mut Past<'_, T>, pass: &mut Pass) -> Var<T> {
        let spec = self.projections.with_dropout(spec, pass);
        let [q, k, v] = self.projections.qkv(x, past, pass);
        let scale = self.head_scale.to_var().reshape([self.projections.sizes().heads, 1, 1]);
        self.projections.project_out(&attend(&q, &k, &v, &spec).mul(&scale), pass)
    }
}

/// Value residual attention: `v' = mix[0] · v + mix[1] · v₁`, with `v₁` the values of the first
/// layer.
///
/// `[.., L, width]` to `[.., L, width]`, in `O(L² · H D)` and the work of the projections.
/// Parameters: as [`Projections`], and `mix` `[2]`, a half each initially. With a mix of
/// (1, 0) it is multi-head attention. Zhou et al. 2024 (arXiv 2410.17897).
#[derive(Clone, Debug)]
pub struct ValueResidualAttention<T: Real = f32> {
    /// The projections.
    pub projections: Projections<T>,
    /// `[2]`
    pub mix: Param<T>,
}

impl<T: Real> ValueResidualAttention<T> {
    /// A layer with a mix of ½ each.
    #[track_caller]
    pub fn new(projections: Projections<T>) -> Self {
        ValueResidualAttention { projections, mix: Param::new(Tensor::full([2], T::from_f64(0.5))) }
    }

    /// The output for `x` and the values `[.., Hk, L, D]` of the first layer, from
    /// [`Projections::values`].
    ///
    /// # Panics
    /// If the values have other heads, lengths or widths.
    ///
    /// ```
    /// use retrograd::nn::attention::{HeadSizes, Projections, Spec, ValueResidualAttention};
    /// use retrograd::prelude::*;
    /// let mut rng = Rng::new(1);
    /// let projections = Projections::<f64>::new(HeadSizes::new(8, 2), &mut rng);
    /// let x = Var::constant(Tensor::<f64>::randn([1, 4, 8], &mut rng));
    /// let first = projections.values(&x, &mut Pass::eval());
    /// let attention = ValueResidualAttention::new(projections);
    /// let y = attention.forward(&x, &first, &Spec::new().causal(), &mut Pass::eval());
    /// assert_eq!(*y.shape(), [1, 4, 8]);
    /// ```
    #[track_caller]
    pub fn forward(&self, x: &Var<T>, first: &Var<T>, spec: &Spec<T>, pass: &mut Pass) -> Var<T> {
        Call::start(self).end(self.run(x, first, spec, &mut Past::none(), pass))
    }

    /// [`ValueResidualAttention::forward`] of the next tokens `x` of a sequence; `first` are the values
    /// of these tokens.
    #[track_caller]
    pub(crate) fn run(
        &self,
        x: &Var<T>,
        first: &Var<T>,
        spec: &Spec<T>,
        past: &mut Past<'_, T>,
        pass: &mut Pass,
    ) -> Var<T> {
        let p = &self.projections;
        let spec = p.with_dropout(spec, pass);
        let q = p.rotate(&p.queries(x, pass), past.start());
        let k = p.rotate(&p.keys(x, pass), past.start());
        let v = p.values(x, pass);
        assert(v.shape() == first.shape(), "value residual", ErrorKind::Mismatch, || {
            format!("values {:?}, and {:?} of the first layer", v.shape(), first.shape())
        });
        let mix = self.mix.to_var();
        let v = v.mul(&mix.narrow(0, 0, 1)) + first.mul(&mix.narrow(0, 1, 1));
        let (k, v) = past.extend(&k, &v);
        p.project_out(&attend(&q, &k, &v, &spec), pass)
    }
}

visits!(ValueResidualAttention: all projections, param mix);
