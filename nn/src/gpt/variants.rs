//! The attention of a layer, built from a configuration.

use super::attention::{
    Caching, CausalAttention, LayerCx, Run, ScoreBias, Scores, Variant, run_incremental,
};
use super::attention_kind::AttentionKind as Kind;
use super::causal::CausalSelfAttention;
use super::config::{GptConfig, Positions};
use crate::attention::*;
use crate::dropout::Dropout;
use crate::init::Init;
use crate::linear::Linear;
use crate::module::Module;
use crate::param::Param;
use retrograd_autograd::Var;
use retrograd_tensor::Real;
use retrograd_tensor::random::Rng;
use std::sync::Arc;

type Attention<T> = Arc<dyn CausalAttention<T>>;

/// The attention of layer `layer`.
#[track_caller]
#[inline(never)]
pub(super) fn attention<T: Real>(config: &GptConfig, layer: usize, rng: &mut Rng) -> Attention<T> {
    let own = &config.of_layer(layer);
    let is_first = !(0..layer).any(|earlier| config.of_layer(earlier).attention == own.attention);
    Builder { config: own, layer, is_first }.build(rng)
}

struct Builder<'a> {
    config: &'a GptConfig,
    layer: usize,
    /// Whether it is the first layer with its variant.
    is_first: bool,
}

impl Builder<'_> {
    #[track_caller]
    fn build<T: Real>(&self, rng: &mut Rng) -> Attention<T> {
        let GptConfig { width, heads, context, dropout, .. } = *self.config;
        let head_width = self.config.head_width();
        let p = |rng: &mut Rng| self.config.projections::<T>(rng);
        let state = StateSizes { width, heads, key_width: head_width, value_width: head_width };
        match self.config.attention {
            Kind::Causal if self.config.is_fused(self.layer) => {
                Arc::new(CausalSelfAttention::new(self.config, rng))
            }
            Kind::Causal | Kind::GroupedQuery | Kind::MultiQuery => self.cached(p(rng), rng),
            Kind::MultiHead => {
                let bias = self.config.bias;
                let of = MultiHeadConfig { bias, dropout, ..MultiHeadConfig::new(width, heads) };
                self.whole(
                    MultiHeadAttention::new(&of, rng),
                    |m, x, spec, cx| m.forward(x, x, x, spec, cx.pass),
                    rng,
                )
            }
            Kind::SingleHead => {
                let m = SelfAttention::new(width, width, width, rng).dropout(dropout);
                self.whole(m, |m, x, spec, cx| m.forward(x, spec, cx.pass), rng)
            }
            Kind::Wrapper => {
                let one = |rng: &mut Rng| {
                    SelfAttention::new(width, head_width, head_width, rng).dropout(dropout)
                };
                let heads = MultiHeadWrapper::from_heads((0..heads).map(|_| one(rng)).collect());
                let m = heads.project(Linear::new(width, width, rng));
                self.whole(m, |m, x, spec, cx| m.forward(x, spec, cx.pass), rng)
            }
            Kind::Plain => self.whole(
                PlainSelfAttention,
                |_, x, spec, _| attend(x, x, x, &spec.clone().scale(1.0)),
                rng,
            ),
            Kind::Renormalized => {
                let m = RenormalizedSelfAttention::new(width, width, width, rng);
                self.whole(m, |m, x, _, cx| m.forward(x, &Mask::causal(), cx.pass), rng)
            }
            Kind::Additive => {
                let mut m = AdditiveAttention::new(width, width, head_width, rng);
                m.dropout = Dropout::new(dropout);
                self.whole(m, |m, x, spec, cx| m.forward(x, x, x, spec, cx.pass), rng)
            }
            Kind::Luong => {
                let m =
                    LuongAttention::new(LuongGeneral::new(width, width, rng), width, width, rng);
                self.whole(m, |m, x, spec, cx| m.forward(x, x, spec, cx.pass), rng)
            }
            Kind::SparseStrided | Kind::SparseFixed => {
                let stride = (context as f64).sqrt().round().max(1.0) as usize;
                let pattern = match self.config.attention {
                    Kind::SparseStrided => SparsePattern::Strided { stride },
                    _ => SparsePattern::Fixed { stride, summary: 1 },
                };
                let p = p(rng);
                self.cached(SparseTransformerAttention::new(p, pattern, SparseMerge::Heads, 0), rng)
            }
            Kind::Longformer => {
                let dilation: Vec<usize> =
                    (0..heads).map(|h| 1 + usize::from(2 * h >= heads)).collect();
                let m = LongformerAttention::new(p(rng), &dilation, (context / 8).max(1)).causal();
                self.whole(
                    m,
                    |m, x, spec, cx| m.forward(x, &[0][..x.size(-2).min(1)], spec, cx.pass),
                    rng,
                )
            }
            Kind::BigBird => {
                let block = (context / 16).clamp(1, 64);
                let layout = BigBirdLayout {
                    block,
                    neighbours: 1,
                    global: 1,
                    random: 1,
                    seed: self.layer as u64,
                };
                // A layer with the mask of the whole context, which does not depend on the length so far.
                let mask = layout.mask(heads, context);
                self.cached_whole(SparseTransformerAttention { projections: p(rng), mask }, rng)
            }
            Kind::ChunkedLocal => {
                self.cached(ChunkedLocalAttention::new(p(rng), (context / 4).max(1)), rng)
            }
            Kind::Alibi => self.cached(AlibiAttention::causal(p(rng)), rng),
            Kind::AlibiLearned => self.scored(p(rng), LearnedSlopes::new(heads), rng),
            Kind::Forgetting => {
                let (p, gates) = (p(rng), ForgetGates::new(width, heads, rng));
                self.scored(p, gates, rng)
            }
            Kind::Cope => {
                let positions = context.min(64);
                let rule = ContextualPositions::new(self.config.head_sizes(), positions);
                self.scored(p(rng), rule, rng)
            }
            Kind::Gaussian => {
                let p = p(rng);
                let windows = GaussianWindows::new(self.config.head_sizes(), rng);
                self.scored(p, windows, rng)
            }
            Kind::Temperature => self.scored(p(rng), LearnedTemperature::new(heads), rng),
            Kind::T5 => {
                let mut m = T5Attention::decoder(width, heads, rng);
                m.dropout = Dropout::new(dropout);
                self.cached(m, rng)
            }
            Kind::Shaw => {
                let m = ShawAttention::new(p(rng), 16, rng);
                self.whole(m, |m, x, spec, cx| m.attend(x, spec, cx.pass), rng)
            }
            Kind::TransformerXl => {
                let m = TransformerXlAttention::new(p(rng), rng);
                self.whole(m, |m, x, spec, cx| m.forward(x, None, spec, cx.pass), rng)
            }
            Kind::Softcap => self.cached(SoftcapAttention::new(p(rng), 50.0), rng),
            Kind::QkL2 => self.cached(QkL2Attention::new(p(rng), context.max(2)), rng),
            Kind::QkRms => self.cached(p(rng).with_qk_norm(1e-6), rng),
            Kind::Sink => self.cached(SinkAttention::new(p(rng)), rng),
            Kind::Quiet => self.cached(QuietAttention::new(p(rng)), rng),
            Kind::Streaming => {
                self.cached_whole(StreamingAttention::new(p(rng), 4, (context / 4).max(1)), rng)
            }
            Kind::Memory => {
                let p = p(rng);
                self.cached(MemoryAttention::new(p, 16, rng), rng)
            }
            Kind::TalkingHeads => self.cached(TalkingHeadsAttention::new(p(rng)), rng),
            Kind::Differential => {
                let sizes = self.config.head_sizes();
                let m = DifferentialAttention::new(sizes, self.layer, self.config.rope(), rng);
                self.cached(m, rng)
            }
            Kind::Mla => {
                let (rope, latent) = ((head_width / 2).next_multiple_of(2), 2 * head_width);
                let sizes = MlaSizes {
                    width,
                    heads,
                    query_latent: None,
                    latent,
                    nope: head_width,
                    rope,
                    value: head_width,
                };
                self.cached(MlaAttention::new(sizes, rng), rng)
            }
            Kind::Linear => {
                let m = LinearAttention::new(p(rng), Reach::Causal, LinearForm::Quadratic);
                self.whole(m, |m, x, _, cx| crate::Layer::forward(m, x, cx.pass), rng)
            }
            Kind::Gated => {
                let p = p(rng);
                self.cached(GatedAttention::new(p, rng), rng)
            }
            Kind::HeadScale => self.cached(HeadScaleAttention::new(p(rng)), rng),
            Kind::ValueResidual if self.is_first => {
                self.layer(p(rng), Caching::Rolling, first_layer, rng)
            }
            Kind::ValueResidual => {
                self.layer(ValueResidualAttention::new(p(rng)), Caching::Rolling, later_layer, rng)
            }
            Kind::Sigmoid => {
                // The bias of the paper for the longest sequence, so that it does not depend on the
                // length so far.
                let bias = Some(-(context as f64).ln());
                self.normalized(Normalizer::Sigmoid { bias }, rng)
            }
            Kind::Sparsemax => self.normalized(Normalizer::Sparsemax, rng),
            Kind::Entmax15 => self.normalized(Normalizer::Entmax15, rng),
            Kind::TopK => self.normalized(Normalizer::TopK(8), rng),
            Kind::Retention => self.rule(Retention::new(state, rng), rng),
            Kind::GatedLinear => self.rule(GatedLinearAttention::new(state, rng), rng),
            Kind::Mamba2 => self.rule(Mamba2::new(state, rng), rng),
            Kind::DeltaNet => self.rule(DeltaNet::new(state, rng), rng),
            Kind::GatedDeltaNet => self.rule(GatedDeltaNet::new(state, rng), rng),
            Kind::KimiDelta => self.rule(KimiDeltaAttention::new(state, rng), rng),
            Kind::Rwkv7 => {
                let mut rule = Rwkv7::new(state, (self.layer, self.config.layers), rng);
                rule.v_lora = rule.v_lora.filter(|_| !self.is_first);
                self.rule(rule, rng)
            }
        }
    }

    /// Attention whose scores follow a learned rule.
    fn scored<T: Real, R: LearnedRule<T> + 'static>(
        &self,
        projections: Projections<T>,
        rule: R,
        rng: &mut Rng,
    ) -> Attention<T> {
        self.cached(ScoredAttention::new(projections, rule), rng)
    }

    /// An [`Incremental`] variant.
    fn cached<T: Real, A: Incremental<T> + 'static>(
        &self,
        inner: A,
        rng: &mut Rng,
    ) -> Attention<T> {
        self.layer(inner, Caching::Rolling, run_incremental, rng)
    }

    /// An [`Incremental`] variant whose mask depends on positions in the context.
    fn cached_whole<T: Real, A: Incremental<T> + 'static>(
        &self,
        inner: A,
        rng: &mut Rng,
    ) -> Attention<T> {
        self.layer(inner, Caching::Whole, run_incremental, rng)
    }

    /// A [`StateRule`].
    fn rule<T: Real, R: StateRule<T> + 'static>(&self, inner: R, rng: &mut Rng) -> Attention<T> {
        self.layer(inner, Caching::Rolling, run_rule, rng)
    }

    /// A variant that computes whole sequences only.
    fn whole<T: Real, M: Module<T> + 'static>(
        &self,
        inner: M,
        run: Run<M, T>,
        rng: &mut Rng,
    ) -> Attention<T> {
        self.layer(inner, Caching::None, run, rng)
    }

    #[track_caller]
    fn normalized<T: Real>(&self, normalizer: Normalizer, rng: &mut Rng) -> Attention<T> {
        self.cached(NormalizedAttention::new(self.config.projections(rng), normalizer), rng)
    }

    fn layer<T: Real, M: Module<T> + 'static>(
        &self,
        inner: M,
        caching: Caching,
        run: Run<M, T>,
        rng: &mut Rng,
    ) -> Attention<T> {
        let window = self.config.window(self.layer);
        let bias = match self.config.positions {
            Positions::Alibi => ScoreBias::Alibi(self.config.heads),
            Positions::T5 => {
                let buckets = Buckets { count: 32, max_distance: 128, bidirectional: false };
                let table =
                    Init::Normal { std: 0.02 }.sample([self.config.heads, buckets.count], rng);
                ScoreBias::T5(Param::new(table), buckets)
            }
            _ => ScoreBias::None,
        };
        let dropout = Dropout::new(self.config.dropout);
        let type_name = match self.config.attention {
            Kind::Causal => Some("CausalSelfAttention"),
            Kind::GroupedQuery => Some("GroupedQueryAttention"),
            Kind::MultiQuery => Some("MultiQueryAttention"),
            Kind::BigBird => Some("BigBirdAttention"),
            Kind::QkRms => Some("QkRmsAttention"),
            Kind::ValueResidual => Some("ValueResidualAttention"),
            _ => None,
        };
        let scores = Scores { window, bias };
        Arc::new(Variant { inner, run, caching, scores, dropout, type_name })
    }
}

/// A state rule, whose state is in the cache.
#[track_caller]
fn run_rule<T: Real, R: StateRule<T>>(
    rule: &R,
    x: &Var<T>,
    _: &Spec<T>,
    cx: &mut LayerCx<'_, T>,
) -> Var<T> {
    let is_batch = x.rank() == 3;
    let x = if is_batch { x.clone() } else { x.unsqueeze(0) };
    let mut none = RecurrentState::default();
    let state = cx.past.state(x.size(1)).unwrap_or(&mut none);
    let mut of_rule = StateCx::new(cx.pass, state, cx.first_values);
    of_rule.capture = cx.capture;
    let y = rule.run(&x, &mut of_rule);
    if is_batch { y } else { y.squeeze(0) }
}

/// The first layer of value residuals: attention that remembers its values.
#[track_caller]
fn first_layer<T: Real>(
    p: &Projections<T>,
    x: &Var<T>,
    spec: &Spec<T>,
    cx: &mut LayerCx<'_, T>,
) -> Var<T> {
    let spec = p.with_dropout(spec, cx.pass);
    let q = p.rotate(&p.queries(x, cx.pass), cx.past.start());
    let k = p.rotate(&p.keys(x, cx.pass), cx.past.start());
    let v = cx.first_values.insert(p.values(x, cx.pass));
    let (k, v) = cx.past.extend(&k, v);
    p.project_out(&attend(&q, &k, &v, &spec), cx.pass)
}

/// A later layer of value residuals.
#[track_caller]
fn later_layer<T: Real>(
    m: &ValueResidualAttention<T>,
    x: &Var<T>,
    spec: &Spec<T>,
    cx: &mut LayerCx<'_, T>,
) -> Var<T> {
    let first = cx.first_values.clone().expect("the first layer was run");
    m.run(x, &first, spec, &mut cx.past, cx.pass)
}
