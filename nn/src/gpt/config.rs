//! The configuration of a GPT.

use super::attention_kind::{AttentionKind, Support, by_name};
use super::names::Names;
use crate::activation::Activation;
use crate::attention::{HeadSizes, Pairing, Projections, Rope, Scaling};
use crate::config_error::ConfigError;
use crate::dropout::Dropout;
use crate::init::{Init, gpt2_residual};
use crate::linear::Linear;
use crate::norm::{LayerNorm, Norm, RmsNorm};
use retrograd_tensor::Real;
use retrograd_tensor::random::Rng;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The configuration of a [`Gpt`](crate::Gpt).
///
/// The default is nanoGPT's: GPT-2 with 124 million parameters, where the vocabulary is rounded up to
/// a multiple of 64. [`GptConfig::modern`] and [`GptConfig::llama`] are two others to start from.
///
/// ```
/// use retrograd::nn::{AttentionKind, MlpKind, NormKind, Positions};
/// use retrograd::prelude::*;
///
/// let small = GptConfig {
///     vocab: 65, context: 64, layers: 4, heads: 4, width: 128, bias: false,
///     attention: AttentionKind::TalkingHeads,
///     norm: NormKind::RmsNorm,
///     mlp: MlpKind::SwiGlu,
///     positions: Positions::Rope(Default::default()),
///     ..GptConfig::default()
/// };
/// assert!(small.check().is_ok());
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct GptConfig {
    /// Size of the vocabulary.
    pub vocab: usize,
    /// The longest sequence, which is the number of learned positions.
    pub context: usize,
    /// Number of blocks.
    pub layers: usize,
    /// Number of query heads; divides the width unless `head_width` is set.
    pub heads: usize,
    /// Width of the residual stream.
    pub width: usize,
    /// Dropout of embeddings, attention weights and outputs that are added to the residual stream.
    pub dropout: f64,
    /// Whether linear layers and layer norms have a bias.
    pub bias: bool,
    /// Whether the head shares the weight of the token embedding.
    pub tied: bool,
    /// The attention variant.
    pub attention: AttentionKind,
    /// The attention variant by layer, in place of `attention`: the list is repeated. An option that some of them do
    /// not support applies to the others. An empty list is `attention` in every layer.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pattern: Vec<AttentionKind>,
    /// Number of key and value heads; `None`: as many as query heads, half as many for
    /// [`AttentionKind::GroupedQuery`], one for [`AttentionKind::MultiQuery`]. Divides `heads`.
    pub key_heads: Option<usize>,
    /// Width of a head; `None`: `width / heads`.
    pub head_width: Option<usize>,
    /// Whether queries and keys are normalised, see [`Projections::with_qk_norm`].
    pub qk_norm: bool,
    /// The number of tokens before a query that it attends to, by layer: the list is repeated, `None` is
    /// no limit. An empty list is no limit in any layer. The query itself is not counted, unlike in
    /// `sliding_window = w` of Hugging Face's transformers, which is `Some(w - 1)`.
    pub windows: Vec<Option<usize>>,
    /// The norms.
    pub norm: NormKind,
    /// The eps of the norms.
    pub norm_eps: f64,
    /// The feed-forward layers.
    pub mlp: MlpKind,
    /// Inner width of the feed-forward layers; `None`: `4 · width`, or for gated ones `8/3 · width`
    /// rounded up to a multiple of 8.
    pub hidden: Option<usize>,
    /// The encoding of positions.
    pub positions: Positions,
    /// `c` in `c · tanh(logits / c)`, the bound of the logits; `None`: no bound.
    pub logit_softcap: Option<f64>,
    /// The names of parameters.
    pub names: Names,
    /// The number of blocks, from the first, whose tensors are computed again in the backward pass instead of being
    /// saved: [`recompute`](retrograd_autograd::recompute). It changes no bit of a result, and is not saved.
    #[serde(skip)]
    pub recompute: usize,
}

/// A normalisation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NormKind {
    /// Layer norm, with a bias if the configuration has biases.
    #[default]
    LayerNorm,
    /// RMS norm.
    RmsNorm,
    /// None.
    None,
}

/// A feed-forward layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MlpKind {
    /// `W₂ · gelu(W₁ · x)`, as in GPT-2, with the exact GELU, as in nanoGPT.
    #[default]
    Gelu,
    /// The same with the approximation by tanh, as in GPT-2.
    GeluTanh,
    /// The same with ReLU; Vaswani et al. 2017 (arXiv 1706.03762).
    Relu,
    /// The same with the square of ReLU; So et al. 2021 (arXiv 2109.08668).
    ReluSquared,
    /// `W₂ · (silu(W₁ · x) ⊙ (W₃ · x))`; Shazeer 2020 (arXiv 2002.05202), as in Llama.
    #[serde(rename = "swiglu")]
    SwiGlu,
    /// The same with GELU.
    #[serde(rename = "geglu")]
    GeGlu,
    /// The same with ReLU.
    #[serde(rename = "reglu")]
    ReGlu,
}

/// An encoding of positions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Positions {
    /// A learned embedding per position, added to the embedding of the token.
    #[default]
    Learned,
    /// Sines and cosines, added to the embedding of the token.
    Sinusoidal,
    /// Rotary positions: queries and keys are rotated.
    Rope(RopeConfig),
    /// A penalty on scores, linear in the distance.
    Alibi,
    /// A learned bias of scores per head and distance bucket, in each layer.
    T5,
    /// None: only the causal mask distinguishes positions, unless the attention variant does.
    None,
}

impl Positions {
    /// Whether scores depend on distances between tokens, not on their positions.
    pub(super) fn is_relative(self) -> bool {
        !matches!(self, Positions::Learned | Positions::Sinusoidal)
    }
}

/// Rotary positions of a configuration, see [`Rope`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RopeConfig {
    /// The base of the frequencies.
    pub base: f64,
    /// The number of elements of a head that are rotated; `None`: all.
    pub width: Option<usize>,
    /// The pairs of elements that are rotated together.
    pub pairing: Pairing,
    /// The scaling of frequencies for longer contexts.
    pub scaling: Scaling,
}

impl RopeConfig {
    const DEFAULT: RopeConfig =
        RopeConfig { base: 10000.0, width: None, pairing: Pairing::Half, scaling: Scaling::None };
}

impl Default for RopeConfig {
    fn default() -> Self {
        RopeConfig::DEFAULT
    }
}

impl Default for GptConfig {
    fn default() -> Self {
        GptConfig {
            vocab: 50304,
            context: 1024,
            layers: 12,
            heads: 12,
            width: 768,
            dropout: 0.0,
            bias: true,
            tied: true,
            attention: AttentionKind::Causal,
            pattern: Vec::new(),
            key_heads: None,
            head_width: None,
            qk_norm: false,
            windows: Vec::new(),
            norm: NormKind::LayerNorm,
            norm_eps: 1e-5,
            mlp: MlpKind::Gelu,
            hidden: None,
            positions: Positions::Learned,
            logit_softcap: None,
            names: Names::Gpt2,
            recompute: 0,
        }
    }
}

/// Ten times the depth of the deepest transformers (Wang et al. 2022, arXiv 2203.00555).
const MAX_LAYERS: usize = 10_000;

impl GptConfig {
    /// The parts of current small models: RMS norms, rotary positions, QK-norm, grouped queries with
    /// two query heads per key head, squared ReLU, no biases, tied head.
    pub fn modern() -> Self {
        GptConfig {
            bias: false,
            attention: AttentionKind::GroupedQuery,
            qk_norm: true,
            norm: NormKind::RmsNorm,
            norm_eps: 1e-6,
            mlp: MlpKind::ReluSquared,
            positions: Positions::Rope(RopeConfig::default()),
            ..GptConfig::default()
        }
    }

    /// The parts of Llama (Touvron et al. 2023, arXiv 2302.13971), with the parameter names of
    /// `LlamaForCausalLM` in Hugging Face's `transformers`: RMS norms, rotary positions, SwiGLU, no
    /// biases, a head of its own.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let config = GptConfig { vocab: 65, context: 64, layers: 1, heads: 4, width: 32, ..GptConfig::llama() };
    /// let model = Gpt::<f32>::new(config, &mut Rng::new(1)).unwrap();
    /// assert!(model.state_dict().contains_key("model.layers.0.self_attn.q_proj.weight"));
    /// ```
    pub fn llama() -> Self {
        GptConfig {
            bias: false,
            tied: false,
            norm: NormKind::RmsNorm,
            norm_eps: 1e-5,
            mlp: MlpKind::SwiGlu,
            positions: Positions::Rope(RopeConfig::default()),
            names: Names::Llama,
            ..GptConfig::default()
        }
    }

    /// Sets the attention variant, and for one that encodes positions itself [`Positions::None`].
    ///
    /// ```
    /// use retrograd::nn::{AttentionKind, Positions};
    /// use retrograd::prelude::*;
    /// let config = GptConfig::default().with_attention(AttentionKind::Alibi);
    /// assert_eq!(config.positions, Positions::None);
    /// ```
    pub fn with_attention(mut self, attention: AttentionKind) -> Self {
        self.attention = attention;
        if attention.support().has_positions {
            self.positions = Positions::None;
        }
        self
    }

    /// Checks the configuration.
    ///
    /// # Errors
    /// If a size is 0, the heads do not divide the width, the dropout is not in `[0, 1]`, the
    /// parameters exceed the address space, there are more than 10,000 layers, or the attention
    /// variant does not support an option.
    pub fn check(&self) -> Result<(), ConfigError> {
        let sizes = [
            ("vocab", self.vocab),
            ("context", self.context),
            ("layers", self.layers),
            ("heads", self.heads),
            ("width", self.width),
            ("key_heads", self.key_heads.unwrap_or(1)),
            ("head_width", self.head_width.unwrap_or(1)),
            ("hidden", self.hidden.unwrap_or(1)),
        ];
        if let Some((name, _)) = sizes.iter().find(|(_, n)| *n == 0) {
            return Err(ConfigError(format!("{name} must be at least 1, got 0")));
        }
        let (heads, width) = (self.heads, self.width);
        if self.head_width.is_none() && !width.is_multiple_of(heads) {
            return Err(ConfigError(format!("{heads} heads do not divide a width of {width}")));
        }
        let key_heads = self.key_heads();
        if !heads.is_multiple_of(key_heads) {
            return Err(ConfigError(format!("{key_heads} key heads do not divide {heads} heads")));
        }
        if !(0.0..=1.0).contains(&self.dropout) {
            return Err(ConfigError(format!("dropout must be in [0, 1], got {}", self.dropout)));
        }
        if !(self.norm_eps >= 0.0 && self.norm_eps.is_finite()) {
            let eps = self.norm_eps;
            return Err(ConfigError(format!("norm_eps must be finite and at least 0, got {eps}")));
        }
        if let Some(c) = self.logit_softcap.filter(|c| !(*c > 0.0 && c.is_finite())) {
            return Err(ConfigError(format!("logit_softcap must be finite and above 0, got {c}")));
        }
        self.check_size(sizes.map(|(_, n)| n as f64))?;
        // Even narrow blocks take memory for parameter objects and names.
        if self.layers > MAX_LAYERS {
            let layers = self.layers;
            return Err(ConfigError(format!("layers must be at most {MAX_LAYERS}, got {layers}")));
        }
        self.check_attention()
    }

    /// Checks the number of parameters. In f64 the sizes cannot overflow; the bound is where bytes of
    /// f64 could.
    fn check_size(&self, sizes: [f64; 8]) -> Result<(), ConfigError> {
        let [vocab, context, layers, heads, width, key_heads, _, _] = sizes;
        let head_width = self.head_width.map_or(width / heads, |n| n as f64);
        let attention = 2.0 * (heads + key_heads.min(heads)) * head_width;
        let hidden = self.hidden.map_or(4.0 * width, |n| n as f64) * 3.0;
        let block = (attention + hidden).max(12.0 * width) + 13.0;
        if (2.0 * vocab + context + layers * block) * width > isize::MAX as f64 / 8.0 {
            return Err(ConfigError(format!("more parameters than memory can hold: {self:?}")));
        }
        Ok(())
    }

    /// About the number of elements that a block takes while it is initialised, and hardly fewer: its
    /// parameters, and two more of its largest matrix, which is sampled, scaled and replaced. In f64 it
    /// cannot overflow.
    pub(super) fn block_elements(&self) -> f64 {
        let [width, context, heads, key_heads, hidden] =
            [self.width, self.context, self.heads, self.key_heads(), self.hidden()]
                .map(|n| n as f64);
        let all_heads = (heads + key_heads) * self.head_width() as f64;
        // Variants have at most ten matrices of the width, and small tables for each element of a head.
        let matrices = (2.0 * all_heads + 5.0 * hidden).max(12.0 * width) * width;
        let tables = match self.attention {
            AttentionKind::TalkingHeads => 2.0 * heads * heads,
            // Its mask.
            AttentionKind::BigBird => heads * context * context / 4.0,
            _ => 0.0,
        };
        matrices + 128.0 * (all_heads + width) + hidden + tables
    }

    /// Checks the options that the attention variant may not support.
    fn check_attention(&self) -> Result<(), ConfigError> {
        let kinds = self.kinds();
        let is_rope = matches!(self.positions, Positions::Rope(_));
        let is_bias = matches!(self.positions, Positions::Alibi | Positions::T5);
        let windows = self.windows.iter().flatten().next().is_some();
        type Part = fn(&Support) -> Result<(), &'static str>;
        let options: [(bool, Part, &str); 6] = [
            (self.key_heads.is_some(), |support| support.heads, "key_heads"),
            (self.head_width.is_some(), |support| support.heads, "head_width"),
            (self.qk_norm, |support| support.qk_norm, "QK-norm"),
            (is_rope, |support| support.rope, "rotary positions"),
            (is_bias, |support| support.bias, "bias of positions"),
            (windows, |support| support.window, "windows"),
        ];
        for (given, part, option) in options {
            let is_supported = kinds.iter().any(|kind| part(&kind.support()).is_ok());
            if let (true, false, Err(why)) = (given, is_supported, part(&kinds[0].support())) {
                let name = kinds[0].name();
                return Err(ConfigError(format!("attention {name:?} has no {option}: {why}")));
            }
        }
        if let Positions::Rope(rope) = self.positions {
            let (width, head) = (rope.width.unwrap_or(self.rotated_width()), self.rotated_width());
            if width % 2 == 1 || width > head {
                return Err(ConfigError(format!(
                    "rotary positions need an even width of at most that of a head, {head}, got {width}"
                )));
            }
            rope.check()?;
        }
        let is_odd = kinds.contains(&AttentionKind::Retention)
            && !(self.width / self.heads).is_multiple_of(2);
        if is_odd {
            let width = self.width / self.heads;
            return Err(ConfigError(format!(
                "retention rotates pairs of a head, got width {width}"
            )));
        }
        if kinds.contains(&AttentionKind::Differential) && self.head_width() % 2 == 1 {
            let width = self.head_width();
            return Err(ConfigError(format!(
                "differential attention halves heads, got width {width}"
            )));
        }
        Ok(())
    }

    /// The attention variants of the first layers, which are repeated.
    pub fn kinds(&self) -> &[AttentionKind] {
        match &self.pattern[..] {
            [] => std::slice::from_ref(&self.attention),
            pattern => pattern,
        }
    }

    /// The configuration with the variant of a layer, and without the options that it does not support.
    pub(crate) fn of_layer(&self, layer: usize) -> GptConfig {
        let mut own = self.clone();
        if self.pattern.is_empty() {
            return own;
        }
        own.attention = self.pattern[layer % self.pattern.len()];
        own.pattern.clear();
        let support = own.attention.support();
        if support.heads.is_err() {
            (own.key_heads, own.head_width) = (None, None);
        }
        own.qk_norm &= support.qk_norm.is_ok();
        if support.window.is_err() {
            own.windows.clear();
        }
        let positions = match self.positions {
            Positions::Rope(_) => support.rope,
            Positions::Alibi | Positions::T5 => support.bias,
            _ => Ok(()),
        };
        if positions.is_err() {
            own.positions = Positions::None;
        }
        own
    }

    /// Whether queries, keys and values of a layer are one projection, as in nanoGPT, if its attention is
    /// [`AttentionKind::Causal`].
    pub(crate) fn is_fused(&self, layer: usize) -> bool {
        let is_bias =
            matches!(self.positions, Positions::Alibi | Positions::T5 | Positions::Rope(_));
        let plain = self.key_heads.is_none() && self.head_width.is_none() && !self.qk_norm;
        let is_causal = self.attention == AttentionKind::Causal && self.names == Names::Gpt2;
        is_causal && plain && !is_bias && self.window(layer).is_none()
    }

    /// The number of key heads.
    pub(crate) fn key_heads(&self) -> usize {
        self.key_heads.unwrap_or(match self.attention {
            AttentionKind::GroupedQuery if self.heads.is_multiple_of(2) => self.heads / 2,
            AttentionKind::MultiQuery => 1,
            _ => self.heads,
        })
    }

    /// The width of a head.
    pub(crate) fn head_width(&self) -> usize {
        self.head_width.unwrap_or(self.width / self.heads)
    }

    /// The width of the heads that rotary positions rotate.
    fn rotated_width(&self) -> usize {
        match self.attention {
            AttentionKind::Differential => self.head_width() / 2,
            _ => self.head_width(),
        }
    }

    /// The sizes of the heads.
    pub(crate) fn head_sizes(&self) -> HeadSizes {
        let (width, heads) = (self.width, self.heads);
        HeadSizes { width, heads, key_heads: self.key_heads(), head_width: self.head_width() }
    }

    /// Rotary positions, if there are any.
    #[track_caller]
    pub(crate) fn rope(&self) -> Option<Rope> {
        let Positions::Rope(rope) = self.positions else { return None };
        let width = rope.width.unwrap_or(self.rotated_width());
        Some(Rope::new(width).base(rope.base).pairing(rope.pairing).scaling(rope.scaling))
    }

    /// Projections with the options of this configuration (sizes, biases, dropout, QK-norm, rotary
    /// positions), initialised as in GPT-2: what an attention of your own needs in
    /// [`Gpt::with_attention`](crate::Gpt::with_attention).
    ///
    /// ```
    /// use retrograd::nn::attention::QuietAttention;
    /// use retrograd::prelude::*;
    /// let config = GptConfig { vocab: 9, context: 8, layers: 1, heads: 2, width: 8, ..GptConfig::llama() };
    /// let model = Gpt::<f32>::with_attention(config.clone(), &mut Rng::new(1), |_, rng| {
    ///     attention_layer(QuietAttention::new(config.projections(rng)))
    /// });
    /// assert!(model.is_ok());
    /// ```
    ///
    /// # Panics
    /// If the sizes of the configuration do not agree.
    #[track_caller]
    pub fn projections<T: Real>(&self, rng: &mut Rng) -> Projections<T> {
        let sizes = self.head_sizes();
        let HeadSizes { width, heads, key_heads, head_width } = sizes;
        let normal = Init::Normal { std: 0.02 };
        let mut p = Projections::new(sizes, rng);
        p.q_proj = self.linear(width, heads * head_width, normal, rng);
        p.k_proj = self.linear(width, key_heads * head_width, normal, rng);
        p.v_proj = self.linear(width, key_heads * head_width, normal, rng);
        p.o_proj = self.linear(heads * head_width, width, gpt2_residual(self.layers), rng);
        if self.attention.support().has_weights {
            p.dropout = Dropout::new(self.dropout);
        }
        if self.qk_norm {
            p = p.with_qk_norm(self.norm_eps);
        }
        match self.rope() {
            Some(rope) => p.with_rope(rope),
            None => p,
        }
    }

    /// A linear layer, with a bias if the configuration has biases.
    #[track_caller]
    pub(crate) fn linear<T: Real>(
        &self,
        inputs: usize,
        outputs: usize,
        init: Init,
        rng: &mut Rng,
    ) -> Linear<T> {
        let layer = match self.bias {
            true => Linear::new(inputs, outputs, rng),
            false => Linear::without_bias(inputs, outputs, rng),
        };
        layer.init(init, rng)
    }

    /// A norm of the residual stream.
    #[track_caller]
    pub(crate) fn norm<T: Real>(&self) -> Norm<T> {
        let eps = self.norm_eps;
        match self.norm {
            NormKind::LayerNorm if self.bias => {
                Norm::LayerNorm(LayerNorm { eps, ..LayerNorm::new(self.width) })
            }
            NormKind::LayerNorm => {
                Norm::LayerNorm(LayerNorm { eps, ..LayerNorm::without_bias(self.width) })
            }
            NormKind::RmsNorm => Norm::RmsNorm(RmsNorm { eps, ..RmsNorm::new(self.width) }),
            NormKind::None => Norm::None,
        }
    }

    /// The window of a layer.
    pub(crate) fn window(&self, layer: usize) -> Option<usize> {
        let n = self.windows.len();
        if n == 0 { None } else { self.windows[layer % n] }
    }

    /// The inner width of the feed-forward layers.
    pub(crate) fn hidden(&self) -> usize {
        self.hidden.unwrap_or(match self.mlp.is_gated() {
            true => (8 * self.width).div_ceil(3).next_multiple_of(8),
            false => 4 * self.width,
        })
    }
}

impl MlpKind {
    /// Whether the activation is multiplied by a second projection.
    pub fn is_gated(self) -> bool {
        matches!(self, MlpKind::SwiGlu | MlpKind::GeGlu | MlpKind::ReGlu)
    }

    /// The activation.
    pub(crate) fn activation(self) -> Activation {
        match self {
            MlpKind::Gelu | MlpKind::GeGlu => Activation::Gelu,
            MlpKind::GeluTanh => Activation::GeluTanh,
            MlpKind::Relu | MlpKind::ReGlu => Activation::Relu,
            MlpKind::ReluSquared => Activation::ReluSquared,
            MlpKind::SwiGlu => Activation::Silu,
        }
    }
}

impl RopeConfig {
    fn check(&self) -> Result<(), ConfigError> {
        if !(self.base > 1.0 && self.base.is_finite()) {
            let base = self.base;
            return Err(ConfigError(format!("the base of RoPE must be above 1, got {base}")));
        }
        self.scaling.rule().map_err(|e| ConfigError(e.to_string()))
    }
}

/// Names as text: `ALL`, `name`, `Display` and `FromStr` of an enumeration.
macro_rules! named {
    ($type:ident, $what:literal, $($kind:pat => $value:expr, $name:literal;)+) => {
        impl $type {
            /// All kinds.
            pub const ALL: &[$type] = &[$($value),+];

            /// The name.
            pub fn name(&self) -> &'static str {
                match self { $($kind => $name),+ }
            }
        }

        by_name! { $type, $what }
    };
}
pub(crate) use named;

named! { NormKind, "norm",
    NormKind::LayerNorm => NormKind::LayerNorm, "layer-norm";
    NormKind::RmsNorm => NormKind::RmsNorm, "rms-norm";
    NormKind::None => NormKind::None, "none";
}

named! { MlpKind, "feed-forward layer",
    MlpKind::Gelu => MlpKind::Gelu, "gelu";
    MlpKind::GeluTanh => MlpKind::GeluTanh, "gelu-tanh";
    MlpKind::Relu => MlpKind::Relu, "relu";
    MlpKind::ReluSquared => MlpKind::ReluSquared, "relu-squared";
    MlpKind::SwiGlu => MlpKind::SwiGlu, "swiglu";
    MlpKind::GeGlu => MlpKind::GeGlu, "geglu";
    MlpKind::ReGlu => MlpKind::ReGlu, "reglu";
}

named! { Positions, "encoding of positions",
    Positions::Learned => Positions::Learned, "learned";
    Positions::Sinusoidal => Positions::Sinusoidal, "sinusoidal";
    Positions::Rope(_) => Positions::Rope(RopeConfig::DEFAULT), "rope";
    Positions::Alibi => Positions::Alibi, "alibi";
    Positions::T5 => Positions::T5, "t5";
    Positions::None => Positions::None, "none";
}
