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
    /// Pairs of a key and a value, then the keys in another order: each value is to be recalled.
    Recall,
    /// Random tokens, among them a mark and the token after it; at the end the mark again.
    Induction,
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
    pub const ALL: [Task; 5] = [Task::Copy, Task::Recall, Task::Induction, Task::Sort, Task::Text];

    pub fn name(self) -> String {
        format!("{self:?}").to_lowercase()
    }

    pub fn context(self) -> usize {
        match self {
            Task::Copy => 2 * COPIED,
            Task::Recall => 4 * PAIRS - 1,
            Task::Induction => HAYSTACK + 1,
            Task::Sort => 2 * SORTED,
            Task::Text => WINDOW,
        }
    }

    pub fn vocab(self, text: &Text) -> usize {
        match self {
            Task::Text => text.vocab,
            _ => SYMBOLS + 1,
        }
    }

    /// A batch, which is a function of the generator's state; of held-out text if `held_out`.
    pub fn batch(self, size: usize, text: &Text, held_out: bool, rng: &mut Rng) -> Batch {
        let (mut tokens, mut targets) = (Vec::new(), Vec::new());
        for _ in 0..size {
            let (sequence, counted) = self.sequence(text, held_out, rng);
            for i in 0..sequence.len() - 1 {
                tokens.push(sequence[i]);
                targets.push(if counted(i + 1) { sequence[i + 1] } else { IGNORED });
            }
        }
        let length = tokens.len() / size;
        let tensor = |data| Tensor::from_vec(data, [size, length]);
        Batch { tokens: tensor(tokens), targets: tensor(targets) }
    }

    /// A sequence, and which of its tokens are to be predicted.
    fn sequence(
        self,
        text: &Text,
        held_out: bool,
        rng: &mut Rng,
    ) -> (Vec<i64>, Box<dyn Fn(usize) -> bool>) {
        let random = |n: usize, rng: &mut Rng| -> Vec<i64> {
            (0..n).map(|_| rng.below(SYMBOLS) as i64).collect()
        };
        match self {
            Task::Copy => {
                let symbols = random(COPIED, rng);
                let sequence = [&symbols[..], &[SEPARATOR], &symbols].concat();
                (sequence, Box::new(|i| i > COPIED))
            }
            Task::Sort => {
                let mut numbers = random(SORTED, rng);
                let mut sequence = [&numbers[..], &[SEPARATOR]].concat();
                numbers.sort_unstable();
                sequence.extend(numbers);
                (sequence, Box::new(|i| i > SORTED))
            }
            Task::Recall => {
                // Half of the symbols are keys, half are values.
                let half = SYMBOLS / 2;
                let order = |rng: &mut Rng| Tensor::<i64>::randperm(half, rng).to_vec();
                let (keys, queries) = (order(rng), order(rng));
                let values: Vec<i64> = (0..half).map(|_| (half + rng.below(half)) as i64).collect();
                let value = |key: i64| values[key as usize];
                let pairs = |keys: &[i64]| -> Vec<i64> {
                    keys.iter().flat_map(|&key| [key, value(key)]).collect()
                };
                let mut sequence = pairs(&keys);
                sequence.extend(pairs(&queries));
                (sequence, Box::new(|i| i >= 2 * PAIRS && i % 2 == 1))
            }
            Task::Induction => {
                let mut sequence = random(HAYSTACK, rng);
                let at = rng.below(HAYSTACK - 1);
                sequence[at] = SEPARATOR;
                let after = sequence[at + 1];
                sequence.extend([SEPARATOR, after]);
                (sequence, Box::new(|i| i == HAYSTACK + 1))
            }
            Task::Text => {
                let part = if held_out { &text.held_out } else { &text.train };
                let start = rng.below(part.len() - WINDOW);
                (part[start..=start + WINDOW].to_vec(), Box::new(|_| true))
            }
        }
    }
}
