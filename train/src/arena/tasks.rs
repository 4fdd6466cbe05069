//! The tasks: sequences of tokens, and the targets that count.

use retrograd::nn::text::Batch;
use retrograd::prelude::*;

/// The target of a position that does not count.
const IGNORED: i64 = -100;

/// A task that generates its own sequences.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// A random sequence, a separator, and the sequence again.
    Copy,
    /// The same; held-out sequences are twice as long as those to train on.
    Longer,
    /// Pairs of a key and a value, then the keys in another order: each value is to be recalled.
    Recall,
    /// More pairs than a head has channels, then some of the keys.
    Many,
    /// Random tokens, among them a mark and the token after it; at the end the mark again.
    Induction,
    /// A ball under one of three cups, and swaps of two cups: after each swap, where the ball is.
    Track,
    /// Random numbers, a separator, and the numbers in ascending order.
    Sort,
    /// Text, character by character.
    Text,
}

/// Symbols of the sequences; the separator or mark is the next token.
const SYMBOLS: usize = 16;
const SEPARATOR: i64 = SYMBOLS as i64;
/// Symbols that are copied.
const COPIED: usize = 12;
/// Pairs of a key and a value.
const PAIRS: usize = 8;
/// Pairs of the task of many, whose heads have 16 channels, and the values that are asked for.
const MANY: usize = 32;
const ASKED: usize = 8;
/// Cups, which have as many swaps of two.
const CUPS: usize = 3;
const SWAPS: usize = 32;
/// Tokens before the mark is repeated.
const HAYSTACK: usize = 30;
/// Numbers that are sorted.
const SORTED: usize = 10;
/// Characters of a window of text.
const WINDOW: usize = 64;

/// Text as tokens: the part to train on, and the rest.
pub struct Text {
    pub train: Vec<i64>,
    pub held_out: Vec<i64>,
    pub vocab: usize,
}

impl Text {
    pub fn new(text: &str) -> Text {
        let tokenizer = Tokenizer::chars([text]);
        let mut train = tokenizer.encode(text).expect("in the vocabulary");
        let held_out = train.split_off(train.len() * 9 / 10);
        Text { train, held_out, vocab: tokenizer.vocab_size() }
    }
}

impl Task {
    pub const ALL: [Task; 8] = [
        Task::Copy,
        Task::Longer,
        Task::Recall,
        Task::Many,
        Task::Induction,
        Task::Track,
        Task::Sort,
        Task::Text,
    ];

    pub fn name(self) -> String {
        format!("{self:?}").to_lowercase()
    }

    pub fn context(self) -> usize {
        match self {
            Task::Copy => 2 * COPIED,
            Task::Longer => 4 * COPIED,
            Task::Many => 2 * (MANY + ASKED) - 1,
            Task::Track => SWAPS,
            Task::Recall => 4 * PAIRS - 1,
            Task::Induction => HAYSTACK + 1,
            Task::Sort => 2 * SORTED,
            Task::Text => WINDOW,
        }
    }

    pub fn vocab(self, text: &Text) -> usize {
        match self {
            Task::Text => text.vocab,
            Task::Many => MANY + SYMBOLS,
            _ => SYMBOLS + 1,
        }
    }

    /// A batch, which is a function of the generator's state; of held-out text if `held_out`.
    pub fn batch(self, size: usize, text: &Text, held_out: bool, rng: &mut Rng) -> Batch {
        let (mut tokens, mut targets) = (Vec::new(), Vec::new());
        for _ in 0..size {
            for (token, target) in self.sequence(text, held_out, rng) {
                tokens.push(token);
                targets.push(target);
            }
        }
        let length = tokens.len() / size;
        let tensor = |data| Tensor::from_vec(data, [size, length]);
        Batch { tokens: tensor(tokens), targets: tensor(targets) }
    }

    /// The tokens of a sequence, each with its target.
    fn sequence(self, text: &Text, held_out: bool, rng: &mut Rng) -> Vec<(i64, i64)> {
        let random = |n: usize, rng: &mut Rng| -> Vec<i64> {
            (0..n).map(|_| rng.below(SYMBOLS) as i64).collect()
        };
        match self {
            Task::Copy | Task::Longer => {
                let n = if self == Task::Longer && held_out { 2 * COPIED } else { COPIED };
                let symbols = random(n, rng);
                next(&[&symbols[..], &[SEPARATOR], &symbols].concat(), |i| i > n)
            }
            Task::Sort => {
                let mut numbers = random(SORTED, rng);
                let mut sequence = [&numbers[..], &[SEPARATOR]].concat();
                numbers.sort_unstable();
                sequence.extend(numbers);
                next(&sequence, |i| i > SORTED)
            }
            // Half of the symbols are keys, half are values.
            Task::Recall => recall(PAIRS, PAIRS, SYMBOLS / 2, rng),
            Task::Many => recall(MANY, ASKED, SYMBOLS, rng),
            Task::Induction => {
                let mut sequence = random(HAYSTACK, rng);
                let at = rng.below(HAYSTACK - 1);
                sequence[at] = SEPARATOR;
                let after = sequence[at + 1];
                sequence.extend([SEPARATOR, after]);
                next(&sequence, |i| i == HAYSTACK + 1)
            }
            Task::Track => {
                let mut ball = 0;
                let swap = |_| {
                    // The cup that stays where it is.
                    let fixed = rng.below(CUPS);
                    if ball != fixed {
                        ball = CUPS - fixed - ball;
                    }
                    (fixed as i64, ball as i64)
                };
                (0..SWAPS).map(swap).collect()
            }
            Task::Text => {
                let part = if held_out { &text.held_out } else { &text.train };
                let start = rng.below(part.len() - WINDOW);
                next(&part[start..=start + WINDOW], |_| true)
            }
        }
    }
}

/// Each token but the last, with the next one as its target if that counts.
fn next(sequence: &[i64], counts: impl Fn(usize) -> bool) -> Vec<(i64, i64)> {
    let target = |i: usize| if counts(i) { sequence[i] } else { IGNORED };
    (1..sequence.len()).map(|i| (sequence[i - 1], target(i))).collect()
}

/// Pairs of a key and one of `values` values in a random order, then some of the pairs in another order, whose values
/// are to be recalled.
fn recall(pairs: usize, asked: usize, values: usize, rng: &mut Rng) -> Vec<(i64, i64)> {
    let order = |rng: &mut Rng| Tensor::<i64>::randperm(pairs, rng).to_vec();
    let (keys, queries) = (order(rng), order(rng));
    let of_keys: Vec<i64> = (0..pairs).map(|_| (pairs + rng.below(values)) as i64).collect();
    let all = keys.iter().chain(&queries[..asked]);
    let sequence: Vec<i64> = all.flat_map(|&key| [key, of_keys[key as usize]]).collect();
    next(&sequence, |i| i >= 2 * pairs && i % 2 == 1)
}
