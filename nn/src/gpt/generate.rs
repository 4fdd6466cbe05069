//! Sampling from a language model.

use super::Gpt;
use retrograd_tensor::error::{ErrorKind, OrPanic, require};
use retrograd_tensor::random::Rng;
use retrograd_tensor::{Real, Tensor};

/// The sampling of the next token from its logits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampler {
    /// Divides the logits: below 1, likely tokens become likelier; 0 is greedy decoding.
    pub temperature: f64,
    /// Samples from the `k` likeliest tokens only, if set.
    pub top_k: Option<usize>,
}

impl Default for Sampler {
    fn default() -> Self {
        Sampler { temperature: 0.8, top_k: None }
    }
}

impl Sampler {
    /// Samples a token from logits `[vocab]`.
    ///
    /// # Panics
    /// If the temperature is negative or NaN, `top_k` is 0, there are no logits, or they do not
    /// define a distribution: one is NaN or +∞, or all are -∞.
    ///
    /// ```
    /// # use retrograd_nn::Sampler;
    /// # use retrograd_tensor::Tensor;
    /// # use retrograd_tensor::random::Rng;
    /// let logits = Tensor::from([0.0f32, 9.0, 1.0]);
    /// let greedy = Sampler { temperature: 0.0, ..Sampler::default() };
    /// assert_eq!(greedy.draw(&logits, &mut Rng::new(1)), 1);
    /// ```
    #[track_caller]
    #[inline(never)]
    pub fn draw<T: Real>(&self, logits: &Tensor<T>, rng: &mut Rng) -> i64 {
        require(self.temperature >= 0.0, "sampler", ErrorKind::Value, || {
            format!("the temperature must be at least 0, got {}", self.temperature)
        })
        .or_panic();
        require(self.top_k != Some(0), "sampler", ErrorKind::Value, || {
            "top_k must be at least 1, got 0".into()
        })
        .or_panic();
        let vocab = logits.numel();
        let top = if vocab == 0 { f64::NAN } else { logits.max(..).item().to_f64() };
        require(top.is_finite(), "sampler", ErrorKind::Mismatch, || {
            format!("no token can be drawn, the largest logit is {top}")
        })
        .or_panic();
        if self.temperature == 0.0 {
            return logits.argmax(0).item();
        }
        let k = self.top_k.map_or(vocab, |k| k.min(vocab));
        let (best, index) = logits.topk(0, k, true);
        // In f64, whose range allows every temperature above 0, and relative to the largest logit,
        // so that the division does not overflow.
        let scaled = best.to_vec().into_iter().map(|x| (x.to_f64() - top) / self.temperature);
        let weights = Tensor::from_vec(scaled.collect(), [k]).softmax(0).to_vec();
        let mut left = rng.key().uniform(0);
        for (i, w) in weights.iter().enumerate() {
            left -= w;
            if left < 0.0 {
                return index.at(&[i]);
            }
        }
        // The sum of the weights is 1 up to rounding. Tokens of weight 0 must not be drawn.
        let last = weights.iter().rposition(|&w| w > 0.0);
        index.at(&[last.expect("the best token has a weight")])
    }
}

impl<T: Real> Gpt<T> {
    /// Samples `count` tokens that continue `prompt`, and calls `each` with every token. The model
    /// attends to as many of the last tokens as its context allows.
    ///
    /// # Panics
    /// If the prompt is empty or has a token outside the vocabulary, or as [`Sampler::draw`].
    #[track_caller]
    pub fn generate(
        &self,
        prompt: &[i64],
        count: usize,
        sampler: Sampler,
        rng: &mut Rng,
        mut each: impl FnMut(i64),
    ) {
        require(!prompt.is_empty(), "generate", ErrorKind::Value, || "the prompt is empty".into())
            .or_panic();
        let context = self.config().context;
        let mut tokens = prompt[prompt.len().saturating_sub(context)..].to_vec();
        // The tokens that are not in the cache yet are `tokens[fresh..]`.
        let (mut cache, mut fresh) = (self.cache(), 0);
        for _ in 0..count {
            // Beyond the context every token moves to another position, which invalidates the
            // cache.
            if tokens.len() > context {
                tokens.remove(0);
                (cache, fresh) = (self.cache(), 0);
            }
            let input = Tensor::from_vec(tokens[fresh..].to_vec(), [1, tokens.len() - fresh]);
            let logits = self.forward_cached(&input, &mut cache);
            let last = logits.value().select(0, 0).select(0, tokens.len() - fresh - 1);
            fresh = tokens.len();
            let next = sampler.draw(&last, rng);
            each(next);
            tokens.push(next);
        }
    }
}
