//! Predictions that need no network, with which a loss is compared.

use std::collections::HashMap;

/// The largest vocabulary whose pairs are counted in a table.
const TABLE: usize = 2048;
/// The most tokens of the training text that are counted.
const COUNTED: usize = 10_000_000;

/// Losses on the held-out text of predictions by counts, in nats per token.
///
/// - `uniform`: every token of the vocabulary has the probability `1 / V`, so the loss is `ln V`.
/// - `unigram`: `p(b) = (n(b) + 1) / (N + V)`, where `n(b)` is how often `b` occurs in the training text of `N`
///   tokens. One is added so that tokens that do not occur there have a probability (Laplace).
/// - `bigram`: `p(b | a) = (n(a, b) + d(a) p(b)) / (n(a) + d(a))`, where `n(a, b)` is how often `b` follows `a`,
///   `n(a)` how often anything does, and `d(a)` the number of different tokens that follow `a`. Pairs that do
///   not occur in the training text thus have a probability, by the unigram (Witten, Bell 1991).
///
/// The losses are the means of `-ln p` over all held-out tokens but the first one, which is no target.
/// Of a training text of more than ten million tokens, the first ten million are counted.
///
/// ```
/// use retrograd::study::Baselines;
///
/// let train = [0, 1, 0, 1, 0, 1, 0, 1];
/// let baselines = Baselines::of(&train, &[0, 1, 0, 1], 2);
/// assert_eq!(baselines.uniform, 2f64.ln());
/// assert_eq!(baselines.unigram, 2f64.ln()); // both tokens are equally frequent
/// assert!(baselines.bigram < 0.2); // but one follows the other
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Baselines {
    /// The loss of the uniform distribution over the vocabulary.
    pub uniform: f64,
    /// The loss of the frequencies of tokens.
    pub unigram: f64,
    /// The loss of the frequencies of pairs of consecutive tokens.
    pub bigram: f64,
}

impl Baselines {
    /// The losses on `held_out` of predictions by counts of `train`; NaN if there is no target.
    ///
    /// # Panics
    /// If a token is not in `0..vocab`.
    #[track_caller]
    pub fn of(train: &[i64], held_out: &[i64], vocab: usize) -> Baselines {
        let outside = train.iter().chain(held_out).find(|&&t| t < 0 || t as usize >= vocab);
        if let Some(token) = outside {
            panic!("Baselines::of: token {token} is outside 0..{vocab}");
        }
        let train = &train[..train.len().min(COUNTED)];
        let mut single = vec![0u64; vocab];
        for &token in train {
            single[token as usize] += 1;
        }
        let pairs = Pairs::of(train, vocab);
        let unigram = |b: usize| (single[b] + 1) as f64 / (train.len() + vocab) as f64;
        let bigram = |a: usize, b: usize| {
            let (followed, different) = (pairs.followed[a] as f64, pairs.different[a] as f64);
            match pairs.followed[a] {
                0 => unigram(b),
                _ => (pairs.count(a, b) as f64 + different * unigram(b)) / (followed + different),
            }
        };
        let targets = held_out.len().saturating_sub(1) as f64;
        let pairs = || held_out.windows(2).map(|pair| (pair[0] as usize, pair[1] as usize));
        Baselines {
            uniform: (vocab as f64).ln(),
            unigram: pairs().map(|(_, b)| -unigram(b).ln()).sum::<f64>() / targets,
            bigram: pairs().map(|(a, b)| -bigram(a, b).ln()).sum::<f64>() / targets,
        }
    }
}

/// How often pairs of consecutive tokens occur.
struct Pairs {
    vocab: usize,
    table: Vec<u32>,
    map: HashMap<(usize, usize), u32>,
    /// How often a token is followed by another.
    followed: Vec<u64>,
    /// How many different tokens follow a token.
    different: Vec<u64>,
}

impl Pairs {
    fn of(tokens: &[i64], vocab: usize) -> Pairs {
        let table = if vocab <= TABLE { vec![0; vocab * vocab] } else { Vec::new() };
        let (followed, different) = (vec![0; vocab], vec![0; vocab]);
        let mut pairs = Pairs { vocab, table, map: HashMap::new(), followed, different };
        for pair in tokens.windows(2) {
            let (a, b) = (pair[0] as usize, pair[1] as usize);
            let count = match pairs.table.is_empty() {
                false => &mut pairs.table[a * vocab + b],
                true => pairs.map.entry((a, b)).or_default(),
            };
            pairs.different[a] += u64::from(*count == 0);
            *count += 1;
            pairs.followed[a] += 1;
        }
        pairs
    }

    fn count(&self, a: usize, b: usize) -> u32 {
        match self.table.is_empty() {
            false => self.table[a * self.vocab + b],
            true => self.map.get(&(a, b)).copied().unwrap_or(0),
        }
    }
}
