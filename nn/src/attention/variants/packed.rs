//! Packed sequences: several documents in one sequence, or several branches of a prefix.

use crate::attention::engine::{Mask, Spec, attend};
use crate::attention::parts::projections::Projections;
use crate::module::{Call, visits};
use crate::pass::Pass;
use retrograd_autograd::Var;
use retrograd_tensor::error::{ErrorKind, assert};
use retrograd_tensor::{Real, Tensor};

/// Documents of different lengths in one sequence, without padding between them.
///
/// ```
/// use retrograd::nn::attention::Packed;
/// let packed = Packed::from_cu_seqlens(&[0, 3, 5]);
/// assert_eq!(packed, Packed::new(&[3, 2]));
/// assert_eq!(packed.ids().to_vec(), [0, 0, 0, 1, 1]);
/// assert_eq!(packed.positions().to_vec(), [0, 1, 2, 0, 1]);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packed {
    prefix: usize,
    lengths: Vec<usize>,
}

impl Packed {
    /// Documents of these lengths.
    pub fn new(lengths: &[usize]) -> Self {
        Packed { prefix: 0, lengths: lengths.to_vec() }
    }

    /// Documents between these cumulative lengths, as in `flash_attn_varlen_func`: 0 first, the
    /// total length last.
    ///
    /// # Panics
    /// If they do not ascend from 0.
    #[track_caller]
    pub fn from_cu_seqlens(bounds: &[usize]) -> Self {
        let valid = bounds.first() == Some(&0) && bounds.is_sorted();
        assert(valid, "Packed", ErrorKind::Value, || {
            format!("bounds must ascend from 0, got {bounds:?}")
        });
        Packed::new(&bounds.windows(2).map(|pair| pair[1] - pair[0]).collect::<Vec<_>>())
    }

    /// Several branches that continue a shared prefix and do not attend to each other: several
    /// answers to one question in one sequence.
    ///
    /// ```
    /// use retrograd::nn::attention::Packed;
    /// let packed = Packed::shared_prefix(2, &[2, 1]);
    /// assert_eq!(packed.positions().to_vec(), [0, 1, 2, 3, 2]);
    /// ```
    pub fn shared_prefix(prefix: usize, branches: &[usize]) -> Self {
        Packed { prefix, lengths: branches.to_vec() }
    }

    /// The total length.
    pub fn total(&self) -> usize {
        self.prefix + self.lengths.iter().sum::<usize>()
    }

    /// The range of each document in the sequence.
    pub fn ranges(&self) -> Vec<std::ops::Range<usize>> {
        let mut end = self.prefix;
        let range = |&n: &usize| {
            end += n;
            end - n..end
        };
        self.lengths.iter().map(range).collect()
    }

    /// The document of each token, `[total]`; -1 in a shared prefix.
    pub fn ids(&self) -> Tensor<i64> {
        let mut ids = vec![-1; self.total()];
        for (id, range) in self.ranges().into_iter().enumerate() {
            ids[range].fill(id as i64);
        }
        Tensor::from_vec(ids, [self.total()])
    }

    /// The position of each token in its document, `[total]`, for position embeddings. The
    /// positions of a branch continue the positions of the prefix.
    pub fn positions(&self) -> Tensor<i64> {
        let ranges = std::iter::once((0..self.prefix, 0))
            .chain(self.ranges().into_iter().map(|r| (r, self.prefix)));
        let positions = ranges.flat_map(|(r, first)| (0..r.len()).map(move |i| (first + i) as i64));
        Tensor::from_vec(positions.collect(), [self.total()])
    }

    /// The mask: tokens attend to their own document and to the shared prefix. Combine it with
    /// [`Mask::causal`] for causal attention.
    pub fn mask(&self) -> Mask {
        let documents = Mask::documents(&self.ids().unsqueeze(0));
        if self.prefix > 0 { Mask::first(self.prefix) | documents } else { documents }
    }
}

/// Causal self-attention of packed documents; outputs equal the outputs of the separate documents.
///
/// `[total, width]` to the same. The work is `O(Σ L_d² width)` for documents of length `L_d`,
/// where tiles between documents are skipped. With a single document it is causal
/// self-attention. Rotary positions are [`Packed::positions`].
///
/// Parameters: as [`Projections`]. Krell et al. 2021 (arXiv 2107.02027).
#[derive(Clone, Debug)]
pub struct PackedAttention<T: Real = f32> {
    /// The projections.
    pub projections: Projections<T>,
}

impl<T: Real> PackedAttention<T> {
    /// A layer with these projections.
    pub fn new(projections: Projections<T>) -> Self {
        PackedAttention { projections }
    }

    /// The output for `x`; `spec` may restrict the attention further.
    ///
    /// # Panics
    /// If the shapes do not match, or the length of `x` is not the total length of the documents.
    #[track_caller]
    pub fn forward(
        &self,
        x: &Var<T>,
        packed: &Packed,
        spec: impl Into<Spec<T>>,
        pass: &mut Pass,
    ) -> Var<T> {
        let call = Call::start(self);
        let (length, total) = (x.size(-2), packed.total());
        assert(length == total, "PackedAttention", ErrorKind::Mismatch, || {
            format!("{length} tokens for documents of {total}")
        });
        let p = &self.projections;
        let positions = p.rope().map(|rope| (rope, packed.positions()));
        let place = |x: Var<T>| match &positions {
            Some((rope, positions)) => rope.rotate_at(&x, positions),
            None => x,
        };
        let (q, k) = (place(p.queries(x, pass)), place(p.keys(x, pass)));
        let spec = p.with_dropout(spec.into().causal().mask(packed.mask()), pass);
        call.end(p.project_out(&attend(&q, &k, &p.values(x, pass), &spec), pass))
    }
}

visits!(PackedAttention: all projections);
