//! Texts of the explorer: tokens with labels.

use crate::attention::{AttentionText, Sequence};

/// A text that a model attends to: the labels of its tokens.
///
/// ```
/// use retrograd::study::ExplorerText;
/// let date = ExplorerText::new("a date", ["2", "0", "2", "6"])
///     .source(["t", "o", "d", "a", "y"])
///     .pair(3, 4);
/// assert_eq!(date.labels().len(), 4);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExplorerText {
    pub(super) text: AttentionText,
    /// What makes tokens equal, by sequence, if it is not their labels.
    pub(super) tokens: Option<Vec<i64>>,
}

impl ExplorerText {
    /// A sequence of tokens with these labels.
    pub fn new<L: Into<String>>(name: &str, labels: impl IntoIterator<Item = L>) -> Self {
        let sequences = vec![sequence("text", labels)];
        let text = AttentionText { name: name.to_string(), sequences, prompt: None, pair: None };
        ExplorerText { text, tokens: None }
    }

    /// A second sequence, which an encoder reads, and which the first one attends to.
    ///
    /// A layer's queries and keys belong to the sequence of their number. If both sequences have the
    /// same number of tokens, the path of the module decides: with `encoder` in it, both belong to the
    /// source; with `cross`, `multihead_attn` or `encoder_attn`, the keys are.
    pub fn source<L: Into<String>>(mut self, labels: impl IntoIterator<Item = L>) -> Self {
        self.text.sequences.truncate(1);
        self.text.sequences.push(sequence("source", labels));
        self
    }

    /// The numbers of the tokens, which are equal where the tokens are. Without them, the labels are
    /// compared.
    pub fn tokens(mut self, tokens: impl IntoIterator<Item = i64>) -> Self {
        self.tokens = Some(tokens.into_iter().collect());
        self
    }

    /// The number of tokens that were given: the others were generated one by one. The page then has a
    /// slider over them.
    pub fn generated_after(mut self, prompt: usize) -> Self {
        self.text.prompt = Some(prompt);
        self
    }

    /// The pair of a query and a key that is shown first, and whose score can be opened in a page of
    /// any size. By default it is the last query (the one before it, from whose row the last token was generated, after
    /// [`ExplorerText::generated_after`]) and, of the other tokens, the key with the largest
    /// weights in all heads together.
    pub fn pair(mut self, query: usize, key: usize) -> Self {
        self.text.pair = Some((query, key));
        self
    }

    /// The labels of the first sequence.
    pub fn labels(&self) -> &[String] {
        &self.text.sequences[0].labels
    }

    /// The sequences of the queries and of the keys of a layer, if they are known by their numbers.
    pub(super) fn sequences_of(&self, path: &str, lq: usize, lk: usize) -> [Option<usize>; 2] {
        let length = |s: usize| self.text.sequences.get(s).map(|s| s.labels.len());
        if length(0) == length(1) && length(0) == Some(lq) {
            let is_one_of = |names: &[&str]| names.iter().any(|name| path.contains(name));
            return match path {
                _ if is_one_of(&["cross", "multihead_attn", "encoder_attn"]) => [Some(0), Some(1)],
                _ if path.contains("encoder") => [Some(1), Some(1)],
                _ => [Some(0), Some(0)],
            };
        }
        let of = |n: usize| (0..2).find(|&s| length(s) == Some(n));
        let queries = of(lq);
        // Learned keys may follow those of the tokens.
        let longest = || {
            let fits = (0..2).filter(|&s| length(s).is_some_and(|n| n < lk && n > 0));
            fits.max_by_key(|&s| (Some(s) == queries, length(s)))
        };
        [queries, of(lk).or_else(longest)]
    }

    /// What makes the tokens of a sequence equal.
    pub(super) fn identities(&self, s: usize) -> Vec<i64> {
        let labels = &self.text.sequences[s].labels;
        match &self.tokens {
            Some(tokens) if s == 0 && tokens.len() == labels.len() => tokens.clone(),
            _ => {
                let first = |label| labels.iter().position(|other| other == label).unwrap_or(0);
                labels.iter().map(|label| first(label) as i64).collect()
            }
        }
    }
}

fn sequence<L: Into<String>>(name: &str, labels: impl IntoIterator<Item = L>) -> Sequence {
    Sequence { name: name.to_string(), labels: labels.into_iter().map(Into::into).collect() }
}
