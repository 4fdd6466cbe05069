//! What a language model's predictions of a text are worth.

use retrograd_tensor::ops::loss::CrossEntropy;
use retrograd_tensor::{Integer, Real, Tensor};
use std::ops::Add;

/// Sums over predicted tokens: loss, perplexity, bits per byte and accuracy.
///
/// Loss and perplexity depend on the tokenizer: longer tokens are harder to predict. Bits per byte compare
/// models with different tokenizers, on the same text, if [it comes back](super::Corpus::lost_share).
///
/// ```
/// use retrograd::prelude::*;
/// let mut metrics = TextMetrics::default();
/// let logits = Tensor::<f32>::zeros([1, 3, 4]); // uniform over four tokens
/// metrics.add(&logits, &Tensor::from([[0i64, 1, 2]]), 6); // three tokens of two bytes
/// assert!((metrics.loss() - 4f64.ln()).abs() < 1e-6);
/// assert!((metrics.perplexity() - 4.0).abs() < 1e-5);
/// assert!((metrics.bits_per_byte() - 1.0).abs() < 1e-6); // 2 bits for 2 bytes
/// assert_eq!(metrics.accuracy(), 1.0 / 3.0);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TextMetrics {
    /// The sum of the losses `-ln p(token)`, in nats.
    pub nats: f64,
    /// The number of predicted tokens.
    pub tokens: u64,
    /// How often the most probable token was the right one.
    pub correct: u64,
    /// The bytes of the predicted text in UTF-8.
    pub bytes: u64,
}

impl Add for TextMetrics {
    type Output = TextMetrics;

    /// The metrics of two texts.
    fn add(self, other: TextMetrics) -> TextMetrics {
        TextMetrics {
            nats: self.nats + other.nats,
            tokens: self.tokens + other.tokens,
            correct: self.correct + other.correct,
            bytes: self.bytes + other.bytes,
        }
    }
}

impl TextMetrics {
    /// Adds the predictions `logits` `[.., L, vocab]` of `targets` `[.., L]`, which stand for `bytes` bytes
    /// of text. Targets of -100 do not count. Of equal logits the first is the most probable.
    ///
    /// # Panics
    /// If shapes do not fit, or a target is neither -100 nor in the vocabulary.
    #[track_caller]
    pub fn add<T: Real, I: Integer>(
        &mut self,
        logits: &Tensor<T>,
        targets: &Tensor<I>,
        bytes: u64,
    ) {
        let options = CrossEntropy::default();
        let mean = logits.cross_entropy(targets, options).item().to_f64();
        let best = logits.argmax(-1).to_vec();
        let targets = targets.to_vec();
        let counted = targets.iter().filter(|&&target| !options.ignores(target)).count() as u64;
        let vocab = logits.size(-1);
        let right = targets
            .iter()
            .zip(best)
            .filter(|&(target, best)| target.index_in(vocab) == Some(best as usize));
        self.correct += right.count() as u64;
        if counted > 0 {
            self.nats += mean * counted as f64;
        }
        self.tokens += counted;
        self.bytes += bytes;
    }

    /// The mean loss in nats per token, the sum of `-ln p(token)` divided by the number of tokens. NaN if
    /// there are none.
    pub fn loss(&self) -> f64 {
        self.nats / self.tokens as f64
    }

    /// The perplexity, `exp(loss)`. Uniform predictions have the size of the vocabulary as their perplexity.
    pub fn perplexity(&self) -> f64 {
        self.loss().exp()
    }

    /// Bits per byte: the sum of the losses in bits, `nats / ln 2`, divided by the bytes of the predicted
    /// text in UTF-8. Equal to `loss / ln 2 · tokens / bytes`.
    pub fn bits_per_byte(&self) -> f64 {
        self.nats / std::f64::consts::LN_2 / self.bytes as f64
    }

    /// The part of the tokens that were the most probable ones.
    pub fn accuracy(&self) -> f64 {
        self.correct as f64 / self.tokens as f64
    }
}
