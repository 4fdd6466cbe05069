//! Encoder and decoder layers of sequence-to-sequence transformers, as PyTorch's.

use crate::activation::Activation;
use crate::attention::{MultiHeadAttention, MultiHeadConfig, Spec};
use crate::dropout::Dropout;
use crate::linear::Linear;
use crate::module::{Call, Layer, Visitor, visits};
use crate::norm::LayerNorm;
use crate::pass::Pass;
use retrograd_autograd::Var;
use retrograd_tensor::Real;
use retrograd_tensor::random::Rng;

/// The configuration of a [`TransformerEncoderLayer`] or a [`TransformerDecoderLayer`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TransformerLayerConfig {
    /// Width of the residual stream (`d_model`).
    pub width: usize,
    /// Number of attention heads; divides the width (`nhead`).
    pub heads: usize,
    /// Inner width of the feed-forward layer (`dim_feedforward`).
    pub hidden: usize,
    /// Dropout of attention weights, of the inner activation, and of what is added to the residual
    /// stream.
    pub dropout: f64,
    /// The activation of the feed-forward layer.
    pub activation: Activation,
    /// Whether norms are before each sublayer (pre-norm) instead of after the sum.
    pub norm_first: bool,
}

impl TransformerLayerConfig {
    /// PyTorch's defaults for this width and number of heads, with an inner width of `4 · width`
    /// instead of 2048: dropout 0.1, ReLU, post-norm.
    pub fn new(width: usize, heads: usize) -> Self {
        TransformerLayerConfig {
            width,
            heads,
            hidden: 4 * width,
            dropout: 0.1,
            activation: Activation::Relu,
            norm_first: false,
        }
    }

    #[track_caller]
    fn attention<T: Real>(&self, rng: &mut Rng) -> MultiHeadAttention<T> {
        let config = MultiHeadConfig::new(self.width, self.heads);
        MultiHeadAttention::new(&MultiHeadConfig { dropout: self.dropout, ..config }, rng)
    }

    #[track_caller]
    fn feed_forward<T: Real>(&self, rng: &mut Rng) -> FeedForwardParts<T> {
        FeedForwardParts {
            linear1: Linear::new(self.width, self.hidden, rng),
            linear2: Linear::new(self.hidden, self.width, rng),
            activation: self.activation,
            dropout: Dropout::new(self.dropout),
        }
    }
}

/// `linear2(dropout(activation(linear1(x))))`, whose parts are named in the layer itself.
#[derive(Clone, Debug)]
struct FeedForwardParts<T: Real> {
    linear1: Linear<T>,
    linear2: Linear<T>,
    activation: Activation,
    dropout: Dropout,
}

impl<T: Real> FeedForwardParts<T> {
    #[track_caller]
    fn forward(&self, x: &Var<T>, pass: &mut Pass) -> Var<T> {
        let hidden = self.activation.forward(&self.linear1.forward(x, pass), pass);
        self.linear2.forward(&self.dropout.forward(&hidden, pass), pass)
    }

    fn visit(&self, v: &mut Visitor<'_, T>) {
        v.module("linear1", &self.linear1);
        v.module("linear2", &self.linear2);
    }
}

/// `x + dropout(f(norm(x)))` if norms are first, else `norm(x + dropout(f(x)))`.
#[track_caller]
fn sublayer<T: Real>(
    x: &Var<T>,
    norm: &LayerNorm<T>,
    (norm_first, dropout): (bool, &Dropout),
    pass: &mut Pass,
    f: impl FnOnce(&Var<T>, &mut Pass) -> Var<T>,
) -> Var<T> {
    let input = if norm_first { norm.forward(x, pass) } else { x.clone() };
    let y = f(&input, pass);
    let sum = x + &dropout.forward(&y, pass);
    if norm_first { sum } else { norm.forward(&sum, pass) }
}

/// A layer of an encoder: self-attention, then a feed-forward layer, each with a residual connection and
/// a layer norm; `nn.TransformerEncoderLayer` of PyTorch with `batch_first`, whose state dict it loads.
///
/// `[L, width]` or `[B, L, width]` to the same. Vaswani et al. 2017 (arXiv 1706.03762).
///
/// ```
/// use retrograd::nn::{TransformerEncoderLayer, TransformerLayerConfig, attention::Mask};
/// use retrograd::prelude::*;
///
/// let mut rng = Rng::new(1);
/// let layer = TransformerEncoderLayer::<f32>::new(TransformerLayerConfig::new(16, 2), &mut rng);
/// let x = Var::constant(Tensor::randn([2, 5, 16], &mut rng));
/// let padded = Mask::lengths(&[5, 3]); // the second sequence has three tokens
/// assert_eq!(*layer.forward(&x, padded, &mut Pass::eval()).shape(), [2, 5, 16]);
/// ```
#[derive(Clone, Debug)]
pub struct TransformerEncoderLayer<T: Real = f32> {
    /// The self-attention.
    pub self_attn: MultiHeadAttention<T>,
    /// The norm of the self-attention.
    pub norm1: LayerNorm<T>,
    /// The norm of the feed-forward layer.
    pub norm2: LayerNorm<T>,
    feed_forward: FeedForwardParts<T>,
    dropout: Dropout,
    norm_first: bool,
}

impl<T: Real> TransformerEncoderLayer<T> {
    /// A layer of this configuration, initialised as in PyTorch.
    ///
    /// # Panics
    /// If the heads do not divide the width, or the dropout is not in `[0, 1]`.
    #[track_caller]
    pub fn new(config: TransformerLayerConfig, rng: &mut Rng) -> Self {
        TransformerEncoderLayer {
            self_attn: config.attention(rng),
            norm1: LayerNorm::new(config.width),
            norm2: LayerNorm::new(config.width),
            feed_forward: config.feed_forward(rng),
            dropout: Dropout::new(config.dropout),
            norm_first: config.norm_first,
        }
    }

    /// The output for `x`. The spec masks keys, such as padding.
    #[track_caller]
    pub fn forward(&self, x: &Var<T>, spec: impl Into<Spec<T>>, pass: &mut Pass) -> Var<T> {
        let call = Call::start(self);
        let (how, spec) = ((self.norm_first, &self.dropout), spec.into());
        let attend = |x: &Var<T>, pass: &mut Pass| self.self_attn.forward(x, x, x, spec, pass);
        let x = sublayer(x, &self.norm1, how, pass, attend);
        call.end(sublayer(&x, &self.norm2, how, pass, |x, pass| self.feed_forward.forward(x, pass)))
    }
}

visits!(TransformerEncoderLayer: module self_attn, all feed_forward, module norm1, module norm2);

/// A layer of a decoder: self-attention, cross-attention to the output of an encoder, and a feed-forward
/// layer, each with a residual connection and a layer norm; `nn.TransformerDecoderLayer` of PyTorch with
/// `batch_first`, whose state dict it loads.
///
/// `[L, width]` or `[B, L, width]` to the same, with a memory `[.., Lk, width]`. Vaswani et al. 2017
/// (arXiv 1706.03762).
///
/// ```
/// use retrograd::nn::{TransformerDecoderLayer, TransformerLayerConfig, attention::Mask};
/// use retrograd::prelude::*;
///
/// let mut rng = Rng::new(1);
/// let layer = TransformerDecoderLayer::<f32>::new(TransformerLayerConfig::new(16, 2), &mut rng);
/// let x = Var::constant(Tensor::randn([2, 4, 16], &mut rng));
/// let memory = Var::constant(Tensor::randn([2, 5, 16], &mut rng));
/// let padded = Mask::lengths(&[5, 3]);
/// let y = layer.forward(&x, &memory, Mask::causal(), padded, &mut Pass::eval());
/// assert_eq!(*y.shape(), [2, 4, 16]);
/// ```
#[derive(Clone, Debug)]
pub struct TransformerDecoderLayer<T: Real = f32> {
    /// The self-attention.
    pub self_attn: MultiHeadAttention<T>,
    /// The cross-attention.
    pub multihead_attn: MultiHeadAttention<T>,
    /// The norm of the self-attention.
    pub norm1: LayerNorm<T>,
    /// The norm of the cross-attention.
    pub norm2: LayerNorm<T>,
    /// The norm of the feed-forward layer.
    pub norm3: LayerNorm<T>,
    feed_forward: FeedForwardParts<T>,
    dropout: Dropout,
    norm_first: bool,
}

impl<T: Real> TransformerDecoderLayer<T> {
    /// A layer of this configuration, initialised as in PyTorch.
    ///
    /// # Panics
    /// If the heads do not divide the width, or the dropout is not in `[0, 1]`.
    #[track_caller]
    pub fn new(config: TransformerLayerConfig, rng: &mut Rng) -> Self {
        TransformerDecoderLayer {
            self_attn: config.attention(rng),
            multihead_attn: config.attention(rng),
            norm1: LayerNorm::new(config.width),
            norm2: LayerNorm::new(config.width),
            norm3: LayerNorm::new(config.width),
            feed_forward: config.feed_forward(rng),
            dropout: Dropout::new(config.dropout),
            norm_first: config.norm_first,
        }
    }

    /// The output for `x`, which attends to itself by `spec` (usually causal) and to `memory` by
    /// `memory_spec` (usually a mask of padding).
    #[track_caller]
    pub fn forward(
        &self,
        x: &Var<T>,
        memory: &Var<T>,
        spec: impl Into<Spec<T>>,
        memory_spec: impl Into<Spec<T>>,
        pass: &mut Pass,
    ) -> Var<T> {
        let call = Call::start(self);
        let (how, spec) = ((self.norm_first, &self.dropout), spec.into());
        let memory_spec = memory_spec.into();
        let attend = |x: &Var<T>, pass: &mut Pass| self.self_attn.forward(x, x, x, spec, pass);
        let x = sublayer(x, &self.norm1, how, pass, attend);
        let cross = |x: &Var<T>, pass: &mut Pass| {
            self.multihead_attn.forward(x, memory, memory, memory_spec, pass)
        };
        let x = sublayer(&x, &self.norm2, how, pass, cross);
        call.end(sublayer(&x, &self.norm3, how, pass, |x, pass| self.feed_forward.forward(x, pass)))
    }
}

visits! { TransformerDecoderLayer:
    module self_attn, module multihead_attn, all feed_forward, module norm1, module norm2,
    module norm3
}
