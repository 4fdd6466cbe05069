//! Sampling of a token from logits.

use retrograd_tensor::error::{ErrorKind, assert};
use retrograd_tensor::random::Rng;
use retrograd_tensor::{Real, Tensor};

/// The sampling of the next token from its logits.
///
/// The options are applied in the order of the fields, as in Hugging Face's `generate`: the repetition
/// penalty, the temperature, then `top_k`, `top_p` and `min_p`, each of which removes tokens and
/// leaves the others in proportion.
///
/// ```
/// use retrograd::prelude::*;
///
/// let sampler = Sampler { temperature: 1.0, top_p: Some(0.85), ..Sampler::default() };
/// let logits = Tensor::from([0.7f64, 0.2, 0.06, 0.04]).ln();
/// let tokens: Vec<i64> = sampler.distribution(&logits, &[]).iter().map(|&(token, _)| token).collect();
/// assert_eq!(tokens, [0, 1]); // 0.7 + 0.2 >= 0.85
/// assert!(sampler.draw(&logits, &mut Rng::new(1)) < 2);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampler {
    /// Makes tokens that occurred less likely: a positive logit is divided by this number, a negative one
    /// multiplied by it; 1 changes nothing. Keskar et al. 2019 (arXiv 1909.05858).
    pub repetition_penalty: f64,
    /// Divides the logits: below 1, likely tokens become likelier; 0 is greedy decoding, and ∞ makes all
    /// tokens equally likely, except those with a logit of -∞, which have no probability at any temperature.
    pub temperature: f64,
    /// Samples from the `k` likeliest tokens only, if set. Fan et al. 2018 (arXiv 1805.04833).
    pub top_k: Option<usize>,
    /// Samples from the likeliest tokens only, as many as are needed for this probability, if set.
    /// Holtzman et al. 2020 (arXiv 1904.09751).
    pub top_p: Option<f64>,
    /// Samples only from tokens with at least this probability, relative to the likeliest token,
    /// if set. Nguyen et al. 2024 (arXiv 2407.01082).
    pub min_p: Option<f64>,
}

impl Default for Sampler {
    /// A temperature of 0.8, and no other option.
    fn default() -> Self {
        Sampler { repetition_penalty: 1.0, temperature: 0.8, top_k: None, top_p: None, min_p: None }
    }
}

impl Sampler {
    /// Greedy decoding: always the likeliest token, the first one of equal ones.
    pub fn greedy() -> Self {
        Sampler { temperature: 0.0, ..Sampler::default() }
    }

    /// Samples a token from logits `[vocab]`.
    ///
    /// # Panics
    /// If an option is out of range, there are no logits, they have another rank than 1, or do not define a
    /// distribution: one is NaN or +∞, or all are -∞.
    #[track_caller]
    pub fn draw<T: Real>(&self, logits: &Tensor<T>, rng: &mut Rng) -> i64 {
        self.draw_after(&[], logits, rng)
    }

    /// Samples a token from logits `[vocab]`, where the repetition penalty applies to `earlier` tokens.
    ///
    /// # Panics
    /// As [`Sampler::draw`], or if an earlier token is outside the vocabulary.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let sampler = Sampler { repetition_penalty: 2.0, ..Sampler::greedy() };
    /// let logits = Tensor::from([0.0f32, 9.0, 5.0]);
    /// assert_eq!(sampler.draw_after(&[1], &logits, &mut Rng::new(1)), 2); // 9 / 2 < 5
    /// ```
    #[track_caller]
    #[inline(never)]
    pub fn draw_after<T: Real>(&self, earlier: &[i64], logits: &Tensor<T>, rng: &mut Rng) -> i64 {
        let tokens = self.distribution(logits, earlier);
        if self.temperature == 0.0 {
            return tokens[0].0;
        }
        let mut left = rng.key().uniform(0);
        for &(token, p) in &tokens {
            left -= p;
            if left < 0.0 {
                return token;
            }
        }
        // The sum of the probabilities is 1 up to rounding. Tokens of probability 0 must not be drawn.
        let last = tokens.iter().rev().find(|(_, p)| *p > 0.0);
        last.expect("the likeliest token has a probability").0
    }

    /// The tokens that can be drawn after `earlier` ones, each with its probability, the likeliest one
    /// first. At temperature 0 it is a single token.
    ///
    /// # Panics
    /// As [`Sampler::draw_after`].
    #[track_caller]
    pub fn distribution<T: Real>(&self, logits: &Tensor<T>, earlier: &[i64]) -> Vec<(i64, f64)> {
        self.check();
        assert(logits.rank() == 1, "sampler", ErrorKind::Rank, || {
            format!("needs the logits of one token [vocab], got {:?}", logits.shape())
        });
        let mut logits: Vec<f64> = logits.to_vec().into_iter().map(T::to_f64).collect();
        self.penalize(&mut logits, earlier);
        let nan = logits.iter().copied().find(|x| x.is_nan());
        let top = logits.iter().copied().reduce(f64::max).unwrap_or(f64::NAN);
        let top = nan.unwrap_or(top);
        assert(top.is_finite(), "sampler", ErrorKind::Mismatch, || {
            format!("no token can be drawn, the largest logit is {top}")
        });
        let mut tokens: Vec<(i64, f64)> = (0..).zip(logits).collect();
        // The sort is stable: of equal logits, the first one is the likeliest.
        let k = if self.temperature == 0.0 { 1 } else { self.top_k.unwrap_or(usize::MAX) };
        let descending = |a: &(i64, f64), b: &(i64, f64)| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0));
        if k < tokens.len() {
            tokens.select_nth_unstable_by(k - 1, descending);
            tokens.truncate(k);
        }
        tokens.sort_unstable_by(descending);
        if self.temperature == 0.0 {
            tokens[0].1 = 1.0;
            return tokens;
        }
        // In f64, whose range allows every temperature above 0, and relative to the largest logit,
        // so that the division does not overflow.
        for (_, x) in &mut tokens {
            let below = *x - top;
            *x = if *x == f64::NEG_INFINITY {
                0.0 // also at an infinite temperature
            } else if below.is_finite() {
                (below / self.temperature).exp()
            } else {
                (*x / self.temperature - top / self.temperature).exp()
            };
        }
        normalize(&mut tokens);
        if let Some(top_p) = self.top_p {
            let mut before = 0.0;
            let is_needed = |&(_, p): &(i64, f64)| {
                let needed = before < top_p;
                before += p;
                needed
            };
            let kept = tokens.iter().copied().take_while(is_needed).count();
            tokens.truncate(kept);
            normalize(&mut tokens);
        }
        if let Some(min_p) = self.min_p {
            let least = min_p * tokens[0].1;
            tokens.retain(|&(_, p)| p >= least);
            normalize(&mut tokens);
        }
        tokens
    }

    /// Applies the repetition penalty, once per token.
    #[track_caller]
    fn penalize(&self, logits: &mut [f64], earlier: &[i64]) {
        let penalty = self.repetition_penalty;
        if penalty == 1.0 {
            return;
        }
        let mut occurred = vec![false; logits.len()];
        for &token in earlier {
            let index = usize::try_from(token).ok().filter(|&i| i < logits.len());
            assert(index.is_some(), "sampler", ErrorKind::Index, || {
                format!("token {token} is outside 0..{}", logits.len())
            });
            occurred[index.expect("checked")] = true;
        }
        for (x, _) in logits.iter_mut().zip(&occurred).filter(|(_, occurred)| **occurred) {
            *x = if *x > 0.0 { *x / penalty } else { *x * penalty };
        }
    }

    /// Checks the options.
    #[track_caller]
    pub(super) fn check(&self) {
        let Sampler { repetition_penalty, temperature, top_k, top_p, min_p } = *self;
        let fraction = |p: Option<f64>| p.is_none_or(|p| p > 0.0 && p <= 1.0);
        for (valid, message) in [
            (
                repetition_penalty > 0.0 && repetition_penalty.is_finite(),
                format!(
                    "the repetition penalty must be finite and above 0, got {repetition_penalty}"
                ),
            ),
            (temperature >= 0.0, format!("the temperature must be at least 0, got {temperature}")),
            (top_k != Some(0), "top_k must be at least 1, got 0".into()),
            (fraction(top_p), format!("top_p must be in (0, 1], got {}", top_p.unwrap_or(0.0))),
            (fraction(min_p), format!("min_p must be in (0, 1], got {}", min_p.unwrap_or(0.0))),
        ] {
            assert(valid, "sampler", ErrorKind::Value, || message);
        }
    }
}

/// Divides the probabilities by their sum.
fn normalize(tokens: &mut [(i64, f64)]) {
    let sum: f64 = tokens.iter().map(|(_, p)| p).sum();
    for (_, p) in tokens {
        *p /= sum;
    }
}
