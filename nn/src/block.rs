//! The transformer block.

use crate::attention::{CausalSelfAttention, KvCache};
use crate::gpt_config::GptConfig;
use crate::mlp::Mlp;
use crate::module::{Layer, Module, Visitor};
use crate::norm::LayerNorm;
use crate::pass::Pass;
use retrograd_autograd::{Var, no_grad};
use retrograd_tensor::Real;
use retrograd_tensor::random::Rng;

/// A pre-norm block: `x += attn(ln_1(x))`, then `x += mlp(ln_2(x))`; names as in nanoGPT.
#[derive(Clone, Debug)]
pub struct Block<T: Real = f32> {
    /// The norm before the attention.
    pub ln_1: LayerNorm<T>,
    /// The attention.
    pub attn: CausalSelfAttention<T>,
    /// The norm before the feed-forward layer.
    pub ln_2: LayerNorm<T>,
    /// The feed-forward layer.
    pub mlp: Mlp<T>,
}

impl<T: Real> Block<T> {
    /// A block of this configuration.
    ///
    /// ```
    /// # use retrograd_autograd::Var;
    /// # use retrograd_nn::{Block, GptConfig, Layer, Pass};
    /// # use retrograd_tensor::Tensor;
    /// # use retrograd_tensor::random::Rng;
    /// # let config = GptConfig {
    /// #     vocab: 10, context: 4, layers: 1, heads: 2, width: 8, dropout: 0.0, bias: false, tied: true,
    /// # };
    /// let block = Block::<f32>::new(&config, &mut Rng::new(1));
    /// let x = Var::constant(Tensor::ones([1, 4, 8]));
    /// assert_eq!(*block.forward(&x, &mut Pass::eval()).shape(), [1, 4, 8]);
    /// ```
    #[track_caller]
    pub fn new(config: &GptConfig, rng: &mut Rng) -> Self {
        Block {
            ln_1: config.norm(),
            attn: CausalSelfAttention::new(config, rng),
            ln_2: config.norm(),
            mlp: Mlp::new(config, rng),
        }
    }

    /// The output, and the attention weights `[.., heads, L, L]`.
    ///
    /// ```
    /// # use retrograd_autograd::Var;
    /// # use retrograd_nn::{Block, GptConfig, Pass};
    /// # use retrograd_tensor::Tensor;
    /// # use retrograd_tensor::random::Rng;
    /// # let mut rng = Rng::new(1);
    /// # let config = GptConfig {
    /// #     vocab: 10, context: 4, layers: 1, heads: 2, width: 8, dropout: 0.0, bias: false, tied: true,
    /// # };
    /// # let x = Var::constant(Tensor::<f64>::randn([1, 4, 8], &mut rng));
    /// let block = Block::<f64>::new(&config, &mut rng);
    /// let (y, weights) = block.forward_with_weights(&x, &mut Pass::eval());
    /// assert_eq!((*y.shape(), *weights.shape()), ([1, 4, 8].into(), [1, 2, 4, 4].into()));
    /// ```
    #[inline(never)]
    pub fn forward_with_weights(&self, x: &Var<T>, pass: &mut Pass) -> (Var<T>, Var<T>) {
        let (attended, weights) = self.attn.forward_with_weights(&self.ln_1.forward(x, pass), pass);
        (self.rest(&(x + &attended), pass), weights)
    }

    /// The output for the next tokens of a sequence, in evaluation; see
    /// [`CausalSelfAttention::forward_cached`].
    ///
    /// ```
    /// # use retrograd_autograd::Var;
    /// # use retrograd_nn::{Block, GptConfig};
    /// # use retrograd_nn::attention::KvCache;
    /// # use retrograd_tensor::Tensor;
    /// # use retrograd_tensor::random::Rng;
    /// # let mut rng = Rng::new(1);
    /// # let config = GptConfig {
    /// #     vocab: 10, context: 4, layers: 1, heads: 2, width: 8, dropout: 0.0, bias: false, tied: true,
    /// # };
    /// # let x = Var::constant(Tensor::<f64>::randn([1, 4, 8], &mut rng));
    /// let block = Block::<f64>::new(&config, &mut rng);
    /// let mut cache = KvCache::new(4);
    /// assert_eq!(*block.forward_cached(&x.narrow(1, 0, 1), &mut cache).shape(), [1, 1, 8]);
    /// assert_eq!(cache.len(), 1);
    /// ```
    #[track_caller]
    #[inline(never)]
    pub fn forward_cached(&self, x: &Var<T>, cache: &mut KvCache<T>) -> Var<T> {
        let pass = &mut Pass::eval();
        no_grad(|| {
            let attended = self.attn.forward_cached(&self.ln_1.forward(x, pass), cache);
            self.rest(&(x + &attended), pass)
        })
    }

    /// The second half: norm, feed-forward layer and residual connection.
    #[track_caller]
    fn rest(&self, x: &Var<T>, pass: &mut Pass) -> Var<T> {
        self.mlp.forward_add(&self.ln_2.forward(x, pass), x, pass)
    }
}

impl<T: Real> Module<T> for Block<T> {
    fn visit(&self, v: &mut Visitor<'_, T>) {
        v.module("ln_1", &self.ln_1);
        v.module("attn", &self.attn);
        v.module("ln_2", &self.ln_2);
        v.module("mlp", &self.mlp);
    }
}

impl<T: Real> Layer<T> for Block<T> {
    #[track_caller]
    #[inline(never)]
    fn forward(&self, x: &Var<T>, pass: &mut Pass) -> Var<T> {
        self.rest(&self.attn.forward_add(&self.ln_1.forward(x, pass), x, pass), pass)
    }
}
