//! A training part and a held-out part, their batches and windows.

use super::error::TextError;
use super::{Documents, Encoding, Tokenizer};
use retrograd_tensor::Tensor;
use retrograd_tensor::error::{ErrorKind, assert};
use retrograd_tensor::par::span;
use retrograd_tensor::random::Rng;

/// A text as tokens, in a training part and a held-out part. Documents follow one another, with the
/// separator of the tokenizer between them if it has one.
///
/// ```
/// use retrograd::prelude::*;
/// let text = Documents::of("abcdefghij".repeat(10));
/// let corpus = Corpus::new(&text, 0.1, &Tokenizer::chars(text.texts())).unwrap();
/// assert_eq!((corpus.train().len(), corpus.held_out().len()), (90, 10));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Corpus {
    train: Vec<i64>,
    held_out: Encoding,
    /// The bytes of held-out tokens but the first that do not come back.
    lost: u64,
}

impl Corpus {
    /// The tokens of some documents; the last `fraction` of the characters is held out. The text is
    /// divided before it is encoded, so all tokenizers have the same held-out text.
    ///
    /// # Errors
    /// As for [`Tokenizer::encode`].
    ///
    /// # Panics
    /// If the fraction is not in `[0, 1]`.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let documents = Documents::of("ab cd ef").split(" ");
    /// let corpus = Corpus::new(&documents, 0.5, &Tokenizer::bytes().with_separator()).unwrap();
    /// assert_eq!(corpus.train(), [97, 98, 256, 99]);
    /// ```
    #[track_caller]
    pub fn new(
        documents: &Documents,
        fraction: f64,
        tokenizer: &Tokenizer,
    ) -> Result<Corpus, TextError> {
        let (train, held_out) = documents.hold_out(fraction);
        Corpus::from_parts(&train, &held_out, tokenizer)
    }

    /// The tokens of documents for training, and of others that are held out.
    ///
    /// # Errors
    /// As for [`Tokenizer::encode`].
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let (train, held_out) = (Documents::of("abc"), Documents::of("ba"));
    /// let corpus = Corpus::from_parts(&train, &held_out, &Tokenizer::chars(train.texts())).unwrap();
    /// assert_eq!(corpus.held_out(), [1, 0]);
    /// ```
    pub fn from_parts(
        train: &Documents,
        held_out: &Documents,
        tokenizer: &Tokenizer,
    ) -> Result<Corpus, TextError> {
        let (train, _) = encode(train, tokenizer, false)?;
        let (held_out, lost) = encode(held_out, tokenizer, true)?;
        Ok(Corpus { train: train.tokens, held_out, lost })
    }

    /// The tokens for training.
    pub fn train(&self) -> &[i64] {
        &self.train
    }

    /// The tokens that are held out.
    pub fn held_out(&self) -> &[i64] {
        &self.held_out.tokens
    }

    /// The part of the bytes of the held-out targets that do not come back from the tokens: the bytes of words
    /// that the tokenizer changes or drops, such as unknown ones, or capitals made small. The model does not
    /// predict them, so [bits per byte](super::TextMetrics::bits_per_byte) mean something only if it is 0.
    pub fn lost_share(&self) -> f64 {
        let bytes: u64 = self.held_out.bytes.iter().skip(1).map(|&n| u64::from(n)).sum();
        self.lost as f64 / bytes.max(1) as f64
    }

    /// Checks that both parts hold a window of `context` tokens and the one after it.
    ///
    /// # Errors
    /// If one does not.
    pub fn check(&self, context: usize) -> Result<(), TextError> {
        let (train, held_out) = (self.train.len(), self.held_out.tokens.len());
        for (part, tokens) in [("training", train), ("validation", held_out)] {
            if tokens <= context {
                return Err(TextError::TooShort { part, tokens, all: train + held_out, context });
            }
        }
        Ok(())
    }

    /// The batch of a step: `sequences` windows of `context` tokens at random positions of the training
    /// part, uniform and independent. A function of the seed and the step, so training can be resumed
    /// at any step.
    ///
    /// # Panics
    /// If the training part has no window of `context` tokens and the one after it.
    #[track_caller]
    pub fn batch(&self, seed: u64, step: u64, sequences: usize, context: usize) -> Batch {
        let tokens = self.train.len();
        assert(tokens > context, "corpus", ErrorKind::Value, || {
            format!("{tokens} tokens have no window of {context} and the one after it")
        });
        let _span = span("batch");
        let mut rng = Rng::at_step(seed, step);
        let starts = (0..sequences).map(|_| rng.below(tokens - context));
        Batch::new(starts.map(|i| &self.train[i..=i + context]))
    }

    /// The held-out part, cut into windows of `context` tokens; a shorter one ends it. Every token but
    /// the first is a target once.
    ///
    /// # Panics
    /// If `context` is 0.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let corpus = Corpus::new(&Documents::of("0123456789"), 1.0, &Tokenizer::bytes()).unwrap();
    /// let lengths: Vec<usize> = corpus.windows(4).iter().map(|w| w.tokens.len() - 1).collect();
    /// assert_eq!(lengths, [4, 4, 1]);
    /// ```
    #[track_caller]
    pub fn windows(&self, context: usize) -> Vec<Window<'_>> {
        assert(context > 0, "corpus", ErrorKind::Value, || "the context is 0".into());
        let Encoding { tokens, bytes } = &self.held_out;
        let predicted = tokens.len().saturating_sub(1);
        let window = |start: usize| {
            let end = (start + context).min(predicted);
            let bytes = bytes[start + 1..=end].iter().map(|&n| u64::from(n)).sum();
            Window { tokens: &tokens[start..=end], bytes }
        };
        (0..predicted).step_by(context).map(window).collect()
    }
}

/// The tokens of documents, with separators between them, and the bytes that do not come back, if counted.
fn encode(
    documents: &Documents,
    tokenizer: &Tokenizer,
    is_counted: bool,
) -> Result<(Encoding, u64), TextError> {
    let (mut all, mut lost) = (Encoding::default(), 0);
    for (i, text) in documents.texts().enumerate() {
        if let Some(separator) = tokenizer.separator().filter(|_| i > 0) {
            all.tokens.push(separator);
            all.bytes.push(0);
        }
        let encoding = tokenizer.encode_with_bytes(text)?;
        if is_counted {
            // The first token is no target.
            let first = encoding.bytes.first().map_or(text.len(), |&bytes| bytes as usize);
            let begin = if all.tokens.is_empty() { first } else { 0 };
            lost += tokenizer.lost(text, &encoding.tokens, begin)?;
        }
        // A text that the tokenizer drops.
        if let Some(last) = all.bytes.last_mut().filter(|_| encoding.tokens.is_empty()) {
            *last += text.len() as u32;
        }
        all.tokens.extend(encoding.tokens);
        all.bytes.extend(encoding.bytes);
    }
    Ok((all, lost))
}

/// A part of the held-out text. All tokens but the last are inputs, all but the first are targets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window<'a> {
    /// The tokens, one more than the inputs.
    pub tokens: &'a [i64],
    /// The bytes of the targets.
    pub bytes: u64,
}

impl Window<'_> {
    /// The window as a batch of one sequence.
    pub fn batch(&self) -> Batch {
        Batch::new([self.tokens])
    }
}

/// Windows of text `[sequences, L]`, and the next token at each position.
#[derive(Clone, Debug)]
pub struct Batch {
    /// The inputs, `[sequences, L]`.
    pub tokens: Tensor<i64>,
    /// The next tokens, `[sequences, L]`.
    pub targets: Tensor<i64>,
}

impl Batch {
    /// From windows of equal length; the last token of each is only a target.
    ///
    /// # Panics
    /// If the lengths differ, or a window is empty.
    ///
    /// ```
    /// use retrograd::nn::text::Batch;
    /// let batch = Batch::new([&[1, 2, 3][..], &[4, 5, 6][..]]);
    /// assert_eq!(batch.tokens.to_vec(), [1, 2, 4, 5]);
    /// assert_eq!(batch.targets.to_vec(), [2, 3, 5, 6]);
    /// ```
    #[track_caller]
    pub fn new<'a>(windows: impl IntoIterator<Item = &'a [i64]>) -> Batch {
        let (mut tokens, mut targets, mut rows) = (vec![], vec![], 0);
        let mut length = None;
        for window in windows {
            let expected = *length.get_or_insert(window.len());
            assert(window.len() == expected && expected > 0, "batch", ErrorKind::Value, || {
                format!("windows must have one length, got {expected} and {}", window.len())
            });
            tokens.extend(&window[..expected - 1]);
            targets.extend(&window[1..]);
            rows += 1;
        }
        let tensor = |data| Tensor::from_vec(data, [rows, length.map_or(0, |n| n - 1)]);
        Batch { tokens: tensor(tokens), targets: tensor(targets) }
    }
}
