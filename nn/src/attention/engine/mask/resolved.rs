//! Masks checked against the sizes of a call, and masks as tensors.

use super::kind::Kind;
use retrograd_tensor::Tensor;
use retrograd_tensor::error::{ErrorKind, Result, require};
use retrograd_tensor::kernels::attention::{At, Class, TileMask};
use std::sync::Arc;

/// Sizes that a mask is checked against.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    pub batch: usize,
    pub heads: usize,
    pub lq: usize,
    pub lk: usize,
}

/// The positions of the keys in a cache: those so far, without some in the middle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CachedPositions {
    /// Number of positions before the gap.
    pub first: usize,
    /// Number of positions in the gap.
    pub dropped: usize,
}

impl CachedPositions {
    /// The pair with the position of its key in place of the index of the key in the cache.
    pub fn to_position(self, at: At) -> At {
        At { key: if at.key < self.first { at.key } else { at.key + self.dropped }, ..at }
    }
}

impl Kind {
    /// See [`Mask::resolved`](super::Mask::resolved).
    pub(super) fn resolved(
        &self,
        sizes: Sizes,
        cached: Option<CachedPositions>,
        offset: isize,
    ) -> Result<Kind> {
        let mask = self.checked(sizes, cached, offset)?;
        Ok(match cached {
            Some(cached) if cached.dropped > 0 && !matches!(mask, Kind::Full) => {
                Kind::Function("by position", Arc::new(move |at| mask.keep(cached.to_position(at))))
            }
            _ => mask,
        })
    }

    fn checked(
        &self,
        sizes: Sizes,
        cached: Option<CachedPositions>,
        offset: isize,
    ) -> Result<Kind> {
        let fits = |condition: bool, detail: &dyn Fn() -> String| {
            require(condition, "mask", ErrorKind::Mismatch, detail)
        };
        let per_sequence = |what: &str, n: usize| {
            let batch = sizes.batch;
            fits(n == batch || n == 1, &|| format!("{n} {what} for a batch of {batch}")).map_err(
                |error| match batch {
                    1 => error.hint(
                        "inputs of three axes are [heads, length, width], one sequence; those of a \
                         batch are [batch, heads, length, width], with one head unsqueeze(1)",
                    ),
                    _ => error,
                },
            )
        };
        // The numbers of positions of queries and of keys.
        let queries = offset.saturating_add_unsigned(sizes.lq).max(0) as usize;
        let keys = sizes.lk + cached.map_or(0, |cached| cached.dropped);
        match self {
            Kind::Prefix(n) => per_sequence("prefixes", n.len())?,
            Kind::Lengths(n) => {
                per_sequence("lengths", n.len())?;
                // With a cache, more keys may follow.
                if let (Some(long), None) = (n.iter().find(|&&n| n > keys), cached) {
                    fits(false, &|| format!("a length of {long} for {keys} keys"))?;
                }
            }
            Kind::Documents(ids) => {
                per_sequence("rows of document ids", ids.shape()[0])?;
                let positions = keys.max(queries);
                fits(ids.shape()[1] >= positions, &|| {
                    format!("document ids {:?} for {positions} positions", ids.shape())
                })?;
            }
            Kind::Blocks { size, layout } => {
                let (heads, nq, nk) = (layout.shape()[0], layout.shape()[1], layout.shape()[2]);
                fits(heads == 1 || heads == sizes.heads, &|| {
                    format!("a layout for {heads} heads, of {}", sizes.heads)
                })?;
                for (n, what, length) in [(nk, "keys", keys), (nq, "queries", queries)] {
                    fits(n.saturating_mul(*size) >= length, &|| {
                        format!("a layout of {n} blocks of {size} for {length} {what}")
                    })?;
                }
            }
            Kind::Dense { keep, .. } => {
                let dropped = cached.is_some_and(|cached| cached.dropped > 0);
                fits(!dropped || keep.shape().last() == Some(&1), &|| {
                    "a mask per key does not fit a cache that has dropped keys".into()
                })?;
                let Sizes { batch, heads, lq, lk } = sizes;
                let want = [batch, heads, lq, lk];
                let mut axes = keep.shape().iter().zip(&want);
                let broadcasts = axes.all(|(&have, &want)| have == want || have == 1);
                require(keep.rank() == 4 && broadcasts, "mask", ErrorKind::Broadcast, || {
                    format!("a mask of shape {:?} does not broadcast to {want:?}", keep.shape())
                })?;
                return Ok(Kind::Dense { keep: keep.broadcast_to(want), offset });
            }
            Kind::ByHead(masks) => {
                fits(masks.len() == sizes.heads, &|| {
                    format!("masks for {} heads, of {}", masks.len(), sizes.heads)
                })?;
                let checked: Result<_> =
                    masks.iter().map(|m| m.checked(sizes, cached, offset)).collect();
                return Ok(Kind::ByHead(checked?));
            }
            Kind::And(a, b) => {
                return Ok(a.checked(sizes, cached, offset)? & b.checked(sizes, cached, offset)?);
            }
            Kind::Or(a, b) => {
                return Ok(a.checked(sizes, cached, offset)? | b.checked(sizes, cached, offset)?);
            }
            Kind::Not(a) => return Ok(!a.checked(sizes, cached, offset)?),
            _ => {}
        }
        Ok(self.clone())
    }

    /// Whether the mask depends on the sequence, and on the head.
    pub(super) fn depends(&self) -> (bool, bool) {
        match self {
            Kind::Prefix(n) | Kind::Lengths(n) => (n.len() > 1, false),
            Kind::Documents(ids) => (ids.shape()[0] > 1, false),
            Kind::Blocks { layout, .. } => (false, layout.shape()[0] > 1),
            Kind::Dense { keep, .. } => {
                let varies =
                    |axis: usize| keep.shape()[axis] > 1 && keep.layout().strides()[axis] != 0;
                (varies(0), varies(1))
            }
            Kind::ByHead(masks) => (masks.iter().any(|m| m.depends().0), masks.len() > 1),
            Kind::Shifted(mask, shifts) => {
                let (batch, head) = mask.depends();
                (batch || shifts.len() > 1, head)
            }
            Kind::Function(..) => (true, true),
            Kind::And(a, b) | Kind::Or(a, b) => {
                let (a, b) = (a.depends(), b.depends());
                (a.0 || b.0, a.1 || b.1)
            }
            Kind::Not(a) => a.depends(),
            _ => (false, false),
        }
    }

    /// The numbers of sequences and heads that the mask is made for; 1 where it is for any number.
    pub(super) fn counts(&self) -> (usize, usize) {
        match self {
            Kind::Prefix(n) | Kind::Lengths(n) => (n.len().max(1), 1),
            Kind::Documents(ids) => (ids.shape()[0].max(1), 1),
            Kind::Blocks { layout, .. } => (1, layout.shape()[0].max(1)),
            Kind::Dense { keep, .. } => (keep.shape()[0].max(1), keep.shape()[1].max(1)),
            Kind::ByHead(masks) => {
                (masks.iter().map(|m| m.counts().0).max().unwrap_or(1), masks.len().max(1))
            }
            Kind::Shifted(mask, shifts) => {
                let (batch, heads) = mask.counts();
                (batch.max(shifts.len()), heads)
            }
            Kind::And(a, b) | Kind::Or(a, b) => {
                let (a, b) = (a.counts(), b.counts());
                (a.0.max(b.0), a.1.max(b.1))
            }
            Kind::Not(a) => a.counts(),
            _ => (1, 1),
        }
    }

    /// A resolved mask as a tensor `[B or 1, H or 1, Lq, Lk]`, true where a pair attends; `None`
    /// if every pair does.
    pub(super) fn dense(&self, sizes: Sizes, offset: isize) -> Option<Tensor<bool>> {
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
