//! Several documents in one row.

use crate::attention::Mask;
use retrograd_tensor::Tensor;
use retrograd_tensor::error::{ErrorKind, assert};
use retrograd_tensor::ops::loss::CrossEntropy;
use retrograd_tensor::random::Key;
use std::collections::BTreeMap;
use std::ops::Range;

/// A part of a document in a row: the tokens `range` of the document are inputs, and each predicts the
/// next one.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Piece {
    document: usize,
    range: Range<usize>,
}

/// Documents in rows of a fixed length: no window begins in the middle of a document, unlike windows of
/// [`Corpus::batch`](super::Corpus::batch) do, and no row is mostly padding.
///
/// A document of `n` tokens has `n - 1` inputs, since its last token is a target only. It is cut into
/// pieces of `length` inputs, and every token but the first is a target once. Pieces go into rows by
/// best fit, longest first (Ding et al., "Fewer Truncations Improve Language Modeling", 2024).
///
/// A document may end in a separator token, which the model learns to predict. Attention need not cross
/// documents: [`PackedBatch::mask`] is the mask for it, and [`PackedBatch::positions`] count from the
/// beginning of each piece. [`Gpt`](crate::Gpt) has no such mask; it sees the documents before, as it
/// does in any stream of text, so there a separator helps.
///
/// ```
/// use retrograd::nn::text::PackedDocuments;
/// let packed = PackedDocuments::new(vec![vec![1, 2, 3], vec![4, 5, 6, 7], vec![8, 9]], 4);
/// assert_eq!(packed.rows(), 2);
/// let rows = packed.get(&[0, 1]);
/// assert_eq!(rows.tokens.to_vec(), [4, 5, 6, 8, 1, 2, 0, 0]);
/// assert_eq!(rows.targets.to_vec(), [5, 6, 7, 9, 2, 3, -100, -100]);
/// assert_eq!(rows.documents.to_vec(), [0, 0, 0, 1, 0, 0, 1, 1]); // the padding is one more
/// assert_eq!(rows.positions.to_vec(), [0, 1, 2, 0, 0, 1, 0, 1]);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackedDocuments {
    documents: Vec<Vec<i64>>,
    rows: Vec<Vec<Piece>>,
    length: usize,
}

/// Rows of packed documents, all `[B, length]`.
#[derive(Clone, Debug)]
pub struct PackedBatch {
    /// The inputs; 0 in the padding.
    pub tokens: Tensor<i64>,
    /// The next token of the same document; -100, which cross-entropy ignores, in the padding.
    pub targets: Tensor<i64>,
    /// The number of the document within its row, from 0 on; one more in the padding.
    pub documents: Tensor<i64>,
    /// The position in the piece of the document.
    pub positions: Tensor<i64>,
}

impl PackedBatch {
    /// The mask that keeps attention within a document and causal:
    /// [`Mask::documents`] and [`Mask::causal`].
    pub fn mask(&self) -> Mask {
        Mask::documents(&self.documents) & Mask::causal()
    }
}

impl PackedDocuments {
    /// Packs the tokens of documents into rows of `length`. Documents of fewer than two tokens have
    /// nothing to predict and are left out.
    ///
    /// # Panics
    /// If the length is 0, or no document has two tokens.
    ///
    /// ```
    /// use retrograd::nn::text::PackedDocuments;
    /// // A document that is longer than a row is cut, with no target lost.
    /// let packed = PackedDocuments::new(vec![(0..8).collect()], 5);
    /// assert_eq!(packed.get(&[0]).targets.to_vec(), [1, 2, 3, 4, 5]);
    /// assert_eq!(packed.get(&[1]).targets.to_vec(), [6, 7, -100, -100, -100]);
    /// ```
    #[track_caller]
    pub fn new(documents: Vec<Vec<i64>>, length: usize) -> PackedDocuments {
        assert(length > 0, "packed documents", ErrorKind::Value, || {
            "rows must have a length of at least 1, got 0".into()
        });
        let mut pieces: Vec<Piece> = Vec::new();
        for (document, tokens) in documents.iter().enumerate() {
            let inputs = tokens.len().saturating_sub(1);
            let starts = (0..inputs).step_by(length);
            let range = |start: usize| start..(start + length).min(inputs);
            pieces.extend(starts.map(|start| Piece { document, range: range(start) }));
        }
        assert(!pieces.is_empty(), "packed documents", ErrorKind::Value, || {
            format!("none of the {} documents has two tokens", documents.len())
        });
        // A stable sort: documents of equal length stay in their order.
        pieces.sort_by_key(|piece| std::cmp::Reverse(piece.range.len()));
        let mut rows: Vec<Vec<Piece>> = Vec::new();
        // Rows by the space that is left in them.
        let mut space: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for piece in pieces {
            let needed = piece.range.len();
            let best = space.range(needed..).next().map(|(&left, _)| left);
            let (left, row) = match best {
                Some(left) => {
                    let list = space.get_mut(&left).expect("it was found");
                    let row = list.pop().expect("lists are not empty");
                    if list.is_empty() {
                        space.remove(&left);
                    }
                    (left, row)
                }
                None => {
                    rows.push(Vec::new());
                    (length, rows.len() - 1)
                }
            };
            rows[row].push(piece);
            if left > needed {
                space.entry(left - needed).or_default().push(row);
            }
        }
        PackedDocuments { documents, rows, length }
    }

    /// The number of rows.
    pub fn rows(&self) -> usize {
        self.rows.len()
    }

    /// The part of all positions that are padding.
    pub fn padding(&self) -> f64 {
        let pieces = self.rows.iter().flatten();
        let used: usize = pieces.map(|piece| piece.range.len()).sum();
        1.0 - used as f64 / (self.rows.len() * self.length) as f64
    }

    /// Some rows.
    ///
    /// # Panics
    /// If there is no such row.
    #[track_caller]
    pub fn get(&self, rows: &[usize]) -> PackedBatch {
        let outside = rows.iter().find(|&&row| row >= self.rows.len());
        assert(outside.is_none(), "packed documents", ErrorKind::Index, || {
            format!("there is no row {} of {}", outside.unwrap_or(&0), self.rows.len())
        });
        let ignored = CrossEntropy::default().ignore_index.unwrap_or(-100);
        let shape = [rows.len(), self.length];
        let [mut tokens, mut targets, mut documents, mut positions] = [const { Vec::new() }; 4];
        for &row in rows {
            let mut used = 0;
            for (i, Piece { document, range }) in self.rows[row].iter().enumerate() {
                let text = &self.documents[*document];
                tokens.extend(&text[range.clone()]);
                targets.extend(&text[range.start + 1..=range.end]);
                documents.extend(range.clone().map(|_| i as i64));
                positions.extend(0..range.len() as i64);
                used += range.len();
            }
            let padding = self.length - used;
            tokens.extend((0..padding).map(|_| 0));
            targets.extend((0..padding).map(|_| ignored));
            documents.extend((0..padding).map(|_| self.rows[row].len() as i64));
            positions.extend(0..padding as i64);
        }
        let tensor = |data| Tensor::from_vec(data, shape);
        PackedBatch {
            tokens: tensor(tokens),
            targets: tensor(targets),
            documents: tensor(documents),
            positions: tensor(positions),
        }
    }

    /// The batch of a step: in every pass over the documents each row comes once, in a random order. A
    /// function of the seed and the step, so training can be resumed at any step.
    ///
    /// ```
    /// use retrograd::nn::text::PackedDocuments;
    /// let packed = PackedDocuments::new(vec![vec![0, 1], vec![2, 3], vec![4, 5]], 1);
    /// let firsts = |step| packed.batch(7, step, 1).tokens.to_vec();
    /// let mut all = [firsts(0), firsts(1), firsts(2)].concat();
    /// all.sort();
    /// assert_eq!(all, [0, 2, 4]); // the first three steps are one pass
    /// ```
    #[track_caller]
    pub fn batch(&self, seed: u64, step: u64, sequences: usize) -> PackedBatch {
        let rows = self.rows.len() as u64;
        let first = step * sequences as u64;
        let (mut pass, mut order) = (None, Vec::new());
        let mut chosen = Vec::with_capacity(sequences);
        for i in first..first + sequences as u64 {
            let now = i / rows;
            if pass != Some(now) {
                (pass, order) = (Some(now), self.order(seed, now));
            }
            chosen.push(order[(i % rows) as usize]);
        }
        self.get(&chosen)
    }

    /// The order of the rows in a pass over the documents.
    fn order(&self, seed: u64, pass: u64) -> Vec<usize> {
        let key = Key::new(seed, pass);
        let mut order: Vec<usize> = (0..self.rows.len()).collect();
        order.sort_by_key(|&row| (key.bits(row as u64), row));
        order
    }
}
