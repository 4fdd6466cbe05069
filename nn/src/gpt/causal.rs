//! Causal multi-head self-attention with a fused projection.

use super::attention::{CausalAttention, LayerCx};
use super::config::GptConfig;
use crate::attention::{Align, KvCache, Past, Spec, SplitHeads, attend_packed, join_heads};
use crate::dropout::Dropout;
use crate::init::{Init, gpt2_residual};
use crate::linear::Linear;
use crate::module::{Call, Layer, visits};
use crate::pass::Pass;
use crate::residual::check_residual;
use retrograd_autograd::{Var, no_grad};
use retrograd_tensor::Real;
use retrograd_tensor::random::Rng;

/// Causal multi-head self-attention: every position attends to itself and those before it.
///
/// With `[q k v] = x · Wᵀ + b` split into heads of width `D`:
/// `o = dropout(softmax(q · kᵀ / √D, causal)) · v`; the joined heads are then projected.
/// `[.., L, width]` to `[.., L, width]`, in `O(L² · width)` and the work of the projections. It is
/// [`MultiHeadAttention`](crate::attention::MultiHeadAttention) of a sequence to itself under a
/// causal mask, with other names for its parameters.
///
/// Parameters, named as in nanoGPT: `c_attn` `[3·width, width]` and `c_proj` `[width, width]`.
/// Vaswani et al. 2017 (arXiv 1706.03762).
#[derive(Clone, Debug)]
pub struct CausalSelfAttention<T: Real = f32> {
    /// The fused projection to queries, keys and values.
    pub c_attn: Linear<T>,
    /// The output projection.
    pub c_proj: Linear<T>,
    /// Dropout of the attention weights.
    pub attn_dropout: Dropout,
    /// Dropout of the output.
    pub resid_dropout: Dropout,
    heads: usize,
}

impl<T: Real> CausalSelfAttention<T> {
    /// A layer of this configuration.
    ///
    /// # Panics
    /// As [`GptConfig::check`].
    #[track_caller]
    pub fn new(config: &GptConfig, rng: &mut Rng) -> Self {
        if let Err(e) = config.check() {
            panic!("attention: {e}");
        }
        let width = config.width;
        CausalSelfAttention {
            c_attn: config.linear(width, 3 * width, Init::Normal { std: 0.02 }, rng),
            c_proj: config.linear(width, width, gpt2_residual(config.layers), rng),
            attn_dropout: Dropout::new(config.dropout),
            resid_dropout: Dropout::new(config.dropout),
            heads: config.heads,
        }
    }

    /// The output and the attention weights `[.., heads, L, L]`, before dropout.
    ///
    /// # Panics
    /// If the last axis of `x` is not the width.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let mut rng = Rng::new(1);
    /// let config = GptConfig {
    ///     vocab: 10, context: 4, layers: 1, heads: 2, width: 8, bias: false, ..GptConfig::default()
    /// };
    /// let x = Var::constant(Tensor::<f64>::randn([1, 4, 8], &mut rng));
    /// let attention = CausalSelfAttention::<f64>::new(&config, &mut rng);
    /// let (_, weights) = attention.forward_with_weights(&x, &mut Pass::eval());
    /// assert_eq!(weights.value().at(&[0, 0, 0, 1]), 0.0); // a later token
    /// ```
    #[track_caller]
    pub fn forward_with_weights(&self, x: &Var<T>, pass: &mut Pass) -> (Var<T>, Var<T>) {
        let [q, k, v] = self.qkv(x, pass).split(-1, &[x.size(-1); 3]).try_into().expect("three");
        let heads = SplitHeads::new(&q, &k, &v, self.heads, self.heads);
        let (y, weights) = heads.attend_all(&self.spec(pass));
        // [B, heads, L, L] to [.., heads, L, L]
        let mut dims = x.shape().to_vec();
        dims.truncate(x.rank() - 2);
        dims.extend(&weights.shape()[1..]);
        (self.project(&y.reshape(x.shape()), pass), weights.reshape(dims))
    }

    /// The output for the next tokens `x` of a sequence. The cache contains the keys and values of
    /// earlier tokens, to which it appends the keys and values of `x`. Without gradients, in evaluation. Any
    /// division of a sequence into steps gives the outputs for the whole: in `f32` bit for bit,
    /// except at the portable SIMD level; there, and in `f64`, up to rounding.
    ///
    /// # Panics
    /// If the last axis of `x` is not the width, or as [`KvCache::append`].
    #[track_caller]
    pub fn forward_cached(&self, x: &Var<T>, cache: &mut KvCache<T>) -> Var<T> {
        no_grad(|| self.next(x, &mut Past::cached(cache)))
    }

    /// The output for the next tokens, in evaluation.
    #[track_caller]
    fn next(&self, x: &Var<T>, past: &mut Past<'_, T>) -> Var<T> {
        let pass = &mut Pass::eval();
        let qkv = self.qkv(x, pass).split(-1, &[x.size(-1); 3]);
        let (k, v) = past.extend(&qkv[1], &qkv[2]);
        let heads = SplitHeads::new(&qkv[0], &k, &v, self.heads, self.heads);
        let y = heads.attend(&self.spec(pass).align(Align::BottomRight));
        self.project(&y.reshape(x.shape()), pass)
    }

    /// `residual + self.forward(x, pass)`, with the sum fused into the output projection unless
    /// there is dropout.
    ///
    /// # Panics
    /// If the last axis of `x` is not the width, or the residual has another shape.
    #[track_caller]
    pub fn forward_add(&self, x: &Var<T>, residual: &Var<T>, pass: &mut Pass) -> Var<T> {
        check_residual("attention", x, residual);
        let joined = self.heads_joined(x, pass);
        match self.resid_dropout.key(pass) {
            Some(key) => {
                residual + &self.c_proj.affine(&joined).dropout(self.resid_dropout.p(), key)
            }
            None => self.c_proj.affine_add(&joined, residual),
        }
    }

    /// The joined outputs of all heads.
    #[track_caller]
    fn heads_joined(&self, x: &Var<T>, pass: &mut Pass) -> Var<T> {
        let qkv = self.qkv(x, pass);
        let o = attend_packed(&qkv, self.heads, self.heads, &self.spec(pass));
        join_heads(&o).reshape(x.shape())
    }

    /// Packed queries, keys and values, `[B, L, 3·width]`.
    #[track_caller]
    fn qkv(&self, x: &Var<T>, pass: &mut Pass) -> Var<T> {
        let (length, width) = (x.size(-2), x.size(-1));
        let batch = x.shape()[..x.rank() - 2].iter().product();
        self.c_attn.forward(&x.reshape([batch, length, width]), pass)
    }

    fn spec(&self, pass: &mut Pass) -> Spec<T> {
        Spec::new().causal().dropout(self.attn_dropout.p(), pass)
    }

    fn project(&self, joined: &Var<T>, pass: &mut Pass) -> Var<T> {
        self.resid_dropout.forward(&self.c_proj.forward(joined, pass), pass)
    }
}

impl<T: Real> CausalAttention<T> for CausalSelfAttention<T> {
    #[track_caller]
    fn run(&self, x: &Var<T>, cx: &mut LayerCx<'_, T>) -> Var<T> {
        if let Some(capture) = cx.capture {
            let (y, weights) = self.forward_with_weights(x, cx.pass);
            capture.push(&weights);
            return y;
        }
        match cx.past.positions() {
            Some(_) => self.next(x, &mut cx.past),
            None => self.forward(x, cx.pass),
        }
    }

    #[track_caller]
    fn run_add(&self, x: &Var<T>, residual: &Var<T>, cx: &mut LayerCx<'_, T>) -> Var<T> {
        match (cx.capture, cx.past.positions()) {
            (None, None) => self.forward_add(x, residual, cx.pass),
            _ => residual + &self.run(x, cx),
        }
    }

    fn is_cached(&self) -> bool {
        true
    }
}

visits!(CausalSelfAttention: module c_attn, module c_proj);

impl<T: Real> Layer<T> for CausalSelfAttention<T> {
    #[track_caller]
    fn forward(&self, x: &Var<T>, pass: &mut Pass) -> Var<T> {
        Call::start(self).end(self.project(&self.heads_joined(x, pass), pass))
    }
}
