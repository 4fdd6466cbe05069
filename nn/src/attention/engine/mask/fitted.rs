//! Masks made fit for the sizes of a call, and as tensors.

use super::Mask;
use retrograd_tensor::Tensor;
use retrograd_tensor::drive::attention::{At, Class, Rule};

/// Sizes that a mask is checked against.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    pub batch: usize,
    pub heads: usize,
    pub lq: usize,
    pub lk: usize,
}

impl Mask {
    /// The mask ready for use with these sizes, or what does not fit.
    pub(crate) fn fitted(&self, sizes: Sizes, offset: isize) -> Result<Mask, String> {
        let per_sequence = |what: &str, n: usize| match n {
            n if n == sizes.batch || n == 1 => Ok(()),
            n => Err(format!("{n} {what} for a batch of {}", sizes.batch)),
        };
        Ok(match self {
            Mask::Prefix(n) => {
                per_sequence("prefixes", n.len())?;
                self.clone()
            }
            Mask::Lengths(n) => {
                per_sequence("lengths", n.len())?;
                if let Some(long) = n.iter().find(|&&n| n > sizes.lk) {
                    return Err(format!("a length of {long} for {} keys", sizes.lk));
                }
                self.clone()
            }
            Mask::Documents(ids) => {
                per_sequence("rows of document ids", ids.shape()[0])?;
                if ids.shape()[1] < sizes.lk {
                    return Err(format!("document ids {:?} for {} keys", ids.shape(), sizes.lk));
                }
                self.clone()
            }
            Mask::Blocks { size, layout } => {
                let (heads, nk) = (layout.shape()[0], layout.shape()[2]);
                if heads != 1 && heads != sizes.heads {
                    return Err(format!("a layout for {heads} heads, of {}", sizes.heads));
                }
                if nk.saturating_mul(*size) < sizes.lk {
                    return Err(format!("a layout of {nk} blocks of {size} for {} keys", sizes.lk));
                }
                self.clone()
            }
            Mask::Dense { keep, .. } => {
                let Sizes { batch, heads, lq, lk } = sizes;
                let want = [batch, heads, lq, lk];
                let fits =
                    keep.shape().iter().zip(&want).all(|(&have, &want)| have == want || have == 1);
                if keep.rank() != 4 || !fits {
                    return Err(format!(
                        "a mask of shape {:?} does not broadcast to {want:?}",
                        keep.shape()
                    ));
                }
                Mask::Dense { keep: keep.broadcast_to(want), offset }
            }
            Mask::ByHead(masks) => {
                if masks.len() != sizes.heads {
                    return Err(format!("masks for {} heads, of {}", masks.len(), sizes.heads));
                }
                let fitted: Result<_, _> = masks.iter().map(|m| m.fitted(sizes, offset)).collect();
                Mask::ByHead(fitted?)
            }
            Mask::And(a, b) => a.fitted(sizes, offset)? & b.fitted(sizes, offset)?,
            Mask::Or(a, b) => a.fitted(sizes, offset)? | b.fitted(sizes, offset)?,
            Mask::Not(a) => !a.fitted(sizes, offset)?,
            _ => self.clone(),
        })
    }

    /// Whether the answer depends on the sequence, and on the head.
    fn depends(&self) -> (bool, bool) {
        match self {
            Mask::Prefix(n) | Mask::Lengths(n) => (n.len() > 1, false),
            Mask::Documents(ids) => (ids.shape()[0] > 1, false),
            Mask::Blocks { layout, .. } => (false, layout.shape()[0] > 1),
            Mask::Dense { keep, .. } => {
                let varies =
                    |axis: usize| keep.shape()[axis] > 1 && keep.layout().strides()[axis] != 0;
                (varies(0), varies(1))
            }
            Mask::ByHead(masks) => (masks.iter().any(|m| m.depends().0), masks.len() > 1),
            Mask::Rule(..) => (true, true),
            Mask::And(a, b) | Mask::Or(a, b) => {
                let (a, b) = (a.depends(), b.depends());
                (a.0 || b.0, a.1 || b.1)
            }
            Mask::Not(a) => a.depends(),
            _ => (false, false),
        }
    }

    /// Number of sequences and heads that it is for, as far as it says.
    pub(crate) fn counts(&self) -> (usize, usize) {
        match self {
            Mask::Prefix(n) | Mask::Lengths(n) => (n.len().max(1), 1),
            Mask::Documents(ids) => (ids.shape()[0].max(1), 1),
            Mask::Blocks { layout, .. } => (1, layout.shape()[0].max(1)),
            Mask::Dense { keep, .. } => (keep.shape()[0].max(1), keep.shape()[1].max(1)),
            Mask::ByHead(masks) => {
                (masks.iter().map(|m| m.counts().0).max().unwrap_or(1), masks.len().max(1))
            }
            Mask::And(a, b) | Mask::Or(a, b) => {
                let (a, b) = (a.counts(), b.counts());
                (a.0.max(b.0), a.1.max(b.1))
            }
            Mask::Not(a) => a.counts(),
            _ => (1, 1),
        }
    }

    /// A fitted mask as a tensor `[B or 1, H or 1, Lq, Lk]`, true where a pair attends; `None`
    /// if every pair does.
    pub(crate) fn dense(&self, sizes: Sizes, offset: isize) -> Option<Tensor<bool>> {
        let queries = offset..offset + sizes.lq as isize;
        let whole = |b, h| self.class(b, h, queries.clone(), 0..sizes.lk) == Class::Full;
        let (by_batch, by_head) = self.depends();
        let (nb, nh) =
            (if by_batch { sizes.batch } else { 1 }, if by_head { sizes.heads } else { 1 });
        if (0..nb).all(|b| (0..nh).all(|h| whole(b, h))) {
            return None;
        }
        Some(Tensor::from_fn([nb, nh, sizes.lq, sizes.lk], |i| {
            self.keep(At { batch: i[0], head: i[1], query: i[2] as isize + offset, key: i[3] })
        }))
    }
}
