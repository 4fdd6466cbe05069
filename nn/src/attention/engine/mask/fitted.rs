//! Masks made fit for the sizes of a call, and as tensors.

use super::Mask;
use retrograd_tensor::Tensor;
use retrograd_tensor::kernels::attention::{At, Class, TileMask};

/// Sizes that a mask is checked against.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    pub batch: usize,
    pub heads: usize,
    pub lq: usize,
    pub lk: usize,
}

/// What a cache holds: of the positions so far, all but some in the middle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Held {
    /// How many first positions there are before what is missing.
    pub first: usize,
    /// How many are missing.
    pub dropped: usize,
}

impl Held {
    /// The pair with the position of its key in place of its number.
    pub fn place(self, at: At) -> At {
        At { key: if at.key < self.first { at.key } else { at.key + self.dropped }, ..at }
    }
}

impl Mask {
    /// The mask ready for use with these sizes, or what does not fit. Keys are then known by
    /// number, of those that a cache holds.
    pub(crate) fn fitted(
        &self,
        sizes: Sizes,
        held: Option<Held>,
        offset: isize,
    ) -> Result<Mask, String> {
        let mask = self.checked(sizes, held, offset)?;
        Ok(match held {
            Some(held) if held.dropped > 0 && !matches!(mask, Mask::Full) => {
                Mask::rule("by position", move |at| mask.keep(held.place(at)))
            }
            _ => mask,
        })
    }

    fn checked(&self, sizes: Sizes, held: Option<Held>, offset: isize) -> Result<Mask, String> {
        let per_sequence = |what: &str, n: usize| match n {
            n if n == sizes.batch || n == 1 => Ok(()),
            n => Err(format!("{n} {what} for a batch of {}", sizes.batch)),
        };
        // As far as positions of queries and keys reach.
        let queries = offset.saturating_add_unsigned(sizes.lq).max(0) as usize;
        let keys = sizes.lk + held.map_or(0, |held| held.dropped);
        match self {
            Mask::Dilated(0) => return Err("a dilation of 0".into()),
            Mask::Chunks(0) => return Err("chunks of 0 positions".into()),
            Mask::LastOfEach { count, period } if *period == 0 || count > period => {
                return Err(format!("the last {count} keys of every block of {period}"));
            }
            Mask::Prefix(n) => per_sequence("prefixes", n.len())?,
            Mask::Lengths(n) => {
                per_sequence("lengths", n.len())?;
                // With a cache, the rest is still to come.
                if let Some(long) = n.iter().find(|&&n| n > keys && held.is_none()) {
                    return Err(format!("a length of {long} for {keys} keys"));
                }
            }
            Mask::Documents(ids) => {
                if ids.rank() != 2 {
                    return Err(format!("document ids {:?}, not [batch, length]", ids.shape()));
                }
                per_sequence("rows of document ids", ids.shape()[0])?;
                if ids.shape()[1] < keys.max(queries) {
                    return Err(format!(
                        "document ids {:?} for {} positions",
                        ids.shape(),
                        keys.max(queries)
                    ));
                }
            }
            Mask::Blocks { size, layout } => {
                if *size == 0 || layout.rank() != 3 {
                    return Err(format!("blocks of {size} by a layout {:?}", layout.shape()));
                }
                let (heads, nq, nk) = (layout.shape()[0], layout.shape()[1], layout.shape()[2]);
                if heads != 1 && heads != sizes.heads {
                    return Err(format!("a layout for {heads} heads, of {}", sizes.heads));
                }
                for (n, what, reach) in [(nk, "keys", keys), (nq, "queries", queries)] {
                    if n.saturating_mul(*size) < reach {
                        return Err(format!("a layout of {n} blocks of {size} for {reach} {what}"));
                    }
                }
            }
            Mask::Dense { keep, .. } => {
                if held.is_some_and(|held| held.dropped > 0) && keep.shape().last() != Some(&1) {
                    return Err("a mask by number of key, and the cache has dropped some".into());
                }
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
                return Ok(Mask::Dense { keep: keep.broadcast_to(want), offset });
            }
            Mask::ByHead(masks) => {
                if masks.len() != sizes.heads {
                    return Err(format!("masks for {} heads, of {}", masks.len(), sizes.heads));
                }
                let checked: Result<_, _> =
                    masks.iter().map(|m| m.checked(sizes, held, offset)).collect();
                return Ok(Mask::ByHead(checked?));
            }
            Mask::And(a, b) => {
                return Ok(a.checked(sizes, held, offset)? & b.checked(sizes, held, offset)?);
            }
            Mask::Or(a, b) => {
                return Ok(a.checked(sizes, held, offset)? | b.checked(sizes, held, offset)?);
            }
            Mask::Not(a) => return Ok(!a.checked(sizes, held, offset)?),
            _ => {}
        }
        Ok(self.clone())
    }

    /// Whether the answer depends on the sequence, and on the head.
    pub(crate) fn depends(&self) -> (bool, bool) {
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
        if sizes.batch * sizes.heads == 0 {
            return None;
        }
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
