//! The configuration of a GPT.

use crate::config_error::ConfigError;
use crate::init::Init;
use crate::linear::Linear;
use crate::norm::LayerNorm;
use retrograd_tensor::Real;
use retrograd_tensor::random::Rng;
use serde::{Deserialize, Serialize};

/// The configuration of a [`Gpt`](crate::Gpt).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GptConfig {
    /// Size of the vocabulary.
    pub vocab: usize,
    /// The longest sequence, which is the number of learned positions.
    pub context: usize,
    /// Number of blocks.
    pub layers: usize,
    /// Number of attention heads; divides the width.
    pub heads: usize,
    /// Width of the residual stream.
    pub width: usize,
    /// Dropout of embeddings, attention weights and outputs that are added to the residual stream.
    pub dropout: f64,
    /// Whether linear layers and norms have a bias.
    pub bias: bool,
    /// Whether the head shares the weight of the token embedding.
    pub tied: bool,
}

/// Ten times the depth of the deepest transformers (Wang et al. 2022, arXiv 2203.00555).
const MAX_LAYERS: usize = 10_000;

impl GptConfig {
    /// Checks the configuration.
    ///
    /// # Errors
    /// If a size is 0, the heads do not divide the width, the dropout is not in `[0, 1]`, the
    /// parameters exceed the address space, or there are more than 10,000 layers.
    ///
    /// ```
    /// # use retrograd_nn::GptConfig;
    /// # let config = GptConfig {
    /// #     vocab: 10, context: 4, layers: 1, heads: 2, width: 8, dropout: 0.0, bias: false, tied: true,
    /// # };
    /// assert!(config.check().is_ok());
    /// assert!(GptConfig { heads: 3, ..config }.check().is_err()); // 3 does not divide 8
    /// ```
    pub fn check(&self) -> Result<(), ConfigError> {
        let sizes = [
            ("vocab", self.vocab),
            ("context", self.context),
            ("layers", self.layers),
            ("heads", self.heads),
            ("width", self.width),
        ];
        if let Some((name, _)) = sizes.iter().find(|(_, n)| *n == 0) {
            return Err(ConfigError(format!("{name} must be at least 1, got 0")));
        }
        if !self.width.is_multiple_of(self.heads) {
            let (heads, width) = (self.heads, self.width);
            return Err(ConfigError(format!("{heads} heads do not divide a width of {width}")));
        }
        if !(0.0..=1.0).contains(&self.dropout) {
            return Err(ConfigError(format!("dropout must be in [0, 1], got {}", self.dropout)));
        }
        // In f64 the sizes cannot overflow; the bound is where bytes of f64 could.
        let [vocab, context, layers, _, width] = sizes.map(|(_, n)| n as f64);
        if (2.0 * vocab + context + layers * (12.0 * width + 13.0)) * width
            > isize::MAX as f64 / 8.0
        {
            return Err(ConfigError(format!("more parameters than memory can hold: {self:?}")));
        }
        // Even narrow blocks take memory for parameter objects and names.
        if self.layers > MAX_LAYERS {
            let layers = self.layers;
            return Err(ConfigError(format!("layers must be at most {MAX_LAYERS}, got {layers}")));
        }
        Ok(())
    }

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

    #[track_caller]
    pub(crate) fn norm<T: Real>(&self) -> LayerNorm<T> {
        match self.bias {
            true => LayerNorm::new(self.width),
            false => LayerNorm::without_bias(self.width),
        }
    }
}
