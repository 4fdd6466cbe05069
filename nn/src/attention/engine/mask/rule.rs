//! What masks say of pairs, of rows and of tiles.

use super::Mask;
use retrograd_tensor::kernels::attention::{At, Class, TileMask};
use std::ops::Range;

/// A number of positions as a distance; as far as there is, if it is larger.
fn reach(n: usize) -> isize {
    isize::try_from(n).unwrap_or(isize::MAX)
}

/// An entry per sequence, or one for all.
fn entry(list: &[usize], batch: usize) -> usize {
    if list.len() == 1 { list[0] } else { list[batch] }
}

impl TileMask for Mask {
    fn keep(&self, at: At) -> bool {
        let (p, j) = (at.query, at.key as isize);
        match self {
            Mask::Full => true,
            Mask::Causal => j <= p,
            Mask::Window { left, right } => p - j <= reach(*left) && j - p <= reach(*right),
            Mask::Dilated(step) => (p - j).rem_euclid(reach(*step)) == 0,
            Mask::First(n) => at.key < *n,
            Mask::Global(set) => set.iter().any(|&g| g == at.key || reach(g) == p),
            Mask::Queries(set) => set.iter().any(|&g| reach(g) == p),
            Mask::LastOfEach { count, period } => at.key % period >= period - count,
            Mask::ByHead(masks) => masks[at.head].keep(at),
            Mask::Prefix(n) => j <= p || at.key < entry(n, at.batch),
            Mask::Lengths(n) => at.key < entry(n, at.batch),
            Mask::Documents(ids) => {
                let b = if ids.shape()[0] == 1 { 0 } else { at.batch };
                let inside = 0 <= p && p < ids.shape()[1] as isize;
                inside && ids.at(&[b, p as usize]) == ids.at(&[b, at.key])
            }
            Mask::Chunks(n) => p.div_euclid(reach(*n)) == j / reach(*n),
            Mask::Blocks { size, layout } => {
                let h = if layout.shape()[0] == 1 { 0 } else { at.head };
                let row = p.div_euclid(reach(*size));
                let inside = 0 <= row && row < layout.shape()[1] as isize;
                inside && layout.at(&[h, row as usize, at.key / size])
            }
            Mask::Dense { keep, offset } => {
                let i = p - offset;
                keep.at(&[at.batch, at.head, i as usize, at.key])
            }
            Mask::Rule(_, f) => f(at),
            Mask::And(a, b) => a.keep(at) && b.keep(at),
            Mask::Or(a, b) => a.keep(at) || b.keep(at),
            Mask::Not(a) => !a.keep(at),
        }
    }

    fn row(&self, at: At, keys: usize) -> u64 {
        let (p, first) = (at.query, at.key as isize);
        // Keys at positions `from..to`.
        let span = |from: isize, to: isize| {
            let below = |n: isize| match n.clamp(0, keys as isize) {
                64 => u64::MAX,
                n => (1 << n) - 1,
            };
            below(to.saturating_sub(first)) & !below(from.saturating_sub(first))
        };
        let far = isize::MAX;
        match self {
            Mask::Full => span(0, far),
            Mask::Causal => span(0, p.saturating_add(1)),
            Mask::Window { left, right } => {
                let to = p.saturating_add(reach(*right)).saturating_add(1);
                span(p.saturating_sub(reach(*left)), to)
            }
            Mask::First(n) => span(0, reach(*n)),
            Mask::Lengths(n) => span(0, reach(entry(n, at.batch))),
            Mask::Prefix(n) => span(0, p.saturating_add(1).max(reach(entry(n, at.batch)))),
            Mask::Chunks(n) => {
                let n = reach(*n);
                let start = p.div_euclid(n).saturating_mul(n);
                span(start, start.saturating_add(n))
            }
            Mask::ByHead(masks) => masks[at.head].row(at, keys),
            Mask::And(a, b) => a.row(at, keys) & b.row(at, keys),
            Mask::Or(a, b) => a.row(at, keys) | b.row(at, keys),
            Mask::Not(a) => !a.row(at, keys) & span(0, far),
            // The others, pair by pair.
            _ => (0..keys).map(|i| u64::from(self.keep(At { key: at.key + i, ..at })) << i).sum(),
        }
    }

    fn class(&self, batch: usize, head: usize, queries: Range<isize>, keys: Range<usize>) -> Class {
        if queries.is_empty() || keys.is_empty() {
            return Class::Empty;
        }
        // First and last query and key, as positions.
        let (p0, p1) = (queries.start, queries.end - 1);
        let (j0, j1) = (keys.start as isize, keys.end as isize - 1);
        let of = |all: bool, none: bool| match (all, none) {
            (true, _) => Class::Full,
            (_, true) => Class::Empty,
            _ => Class::Partial,
        };
        let below = |n: usize| of(j1 < reach(n), j0 >= reach(n));
        match self {
            Mask::Full => Class::Full,
            Mask::Causal => of(j1 <= p0, j0 > p1),
            Mask::Window { left, right } => {
                let (left, right) = (reach(*left), reach(*right));
                of(p1 - j0 <= left && j1 - p0 <= right, p0 - j1 > left || j0 - p1 > right)
            }
            Mask::Dilated(step) => of(*step == 1, false),
            Mask::First(n) => below(*n),
            Mask::Lengths(n) => below(entry(n, batch)),
            Mask::Prefix(n) => match (
                Mask::Causal.class(batch, head, queries, keys.clone()),
                below(entry(n, batch)),
            ) {
                (Class::Full, _) | (_, Class::Full) => Class::Full,
                (Class::Empty, Class::Empty) => Class::Empty,
                _ => Class::Partial,
            },
            Mask::Global(set) => {
                let hit = |&g: &usize| keys.contains(&g) || queries.contains(&reach(g));
                of(false, !set.iter().any(hit))
            }
            Mask::Queries(set) => {
                let inside = |p: isize| set.iter().any(|&g| reach(g) == p);
                let hit = set.iter().any(|&g| queries.contains(&reach(g)));
                of(hit && queries.clone().all(inside), !hit)
            }
            Mask::LastOfEach { count, period } => {
                // Places in the first block that the keys reach into, and perhaps beyond it.
                let (first, last) = (keys.start % period, keys.start % period + keys.len() - 1);
                let start = period - count;
                of(*count == *period || first >= start && last < *period, last < start)
            }
            Mask::ByHead(masks) => masks[head].class(batch, head, queries, keys),
            Mask::Documents(ids) => {
                let b = if ids.shape()[0] == 1 { 0 } else { batch };
                if p0 < 0 || p1 >= ids.shape()[1] as isize {
                    return Class::Partial;
                }
                let row = ids.select(0, b);
                let span = |from: usize, to: usize| {
                    let part = row.as_slice()[from..=to].iter();
                    (*part.clone().min().expect("not empty"), *part.max().expect("not empty"))
                };
                let (q, k) = (span(p0 as usize, p1 as usize), span(j0 as usize, j1 as usize));
                of(q == k && q.0 == q.1, q.1 < k.0 || k.1 < q.0)
            }
            Mask::Chunks(n) => {
                let n = reach(*n);
                let (q, k) = ((p0.div_euclid(n), p1.div_euclid(n)), (j0 / n, j1 / n));
                of(q == k && q.0 == q.1, q.1 < k.0 || k.1 < q.0)
            }
            Mask::Blocks { size, layout } => {
                let size = reach(*size);
                let h = if layout.shape()[0] == 1 { 0 } else { head };
                let (rows, cols) = (layout.shape()[1] as isize, layout.shape()[2] as isize);
                let (mut all, mut none) = (true, true);
                for i in p0.div_euclid(size)..=p1.div_euclid(size) {
                    for j in j0 / size..=j1 / size {
                        let inside = 0 <= i && i < rows && j < cols;
                        let sees = inside && layout.at(&[h, i as usize, j as usize]);
                        (all, none) = (all && sees, none && !sees);
                    }
                }
                of(all, none)
            }
            Mask::Dense { .. } | Mask::Rule(..) => Class::Partial,
            Mask::And(a, b) => {
                match (
                    a.class(batch, head, queries.clone(), keys.clone()),
                    b.class(batch, head, queries, keys),
                ) {
                    (Class::Empty, _) | (_, Class::Empty) => Class::Empty,
                    (Class::Full, Class::Full) => Class::Full,
                    _ => Class::Partial,
                }
            }
            Mask::Or(a, b) => {
                match (
                    a.class(batch, head, queries.clone(), keys.clone()),
                    b.class(batch, head, queries, keys),
                ) {
                    (Class::Full, _) | (_, Class::Full) => Class::Full,
                    (Class::Empty, Class::Empty) => Class::Empty,
                    _ => Class::Partial,
                }
            }
            Mask::Not(a) => match a.class(batch, head, queries, keys) {
                Class::Empty => Class::Full,
                Class::Full => Class::Empty,
                Class::Partial => Class::Partial,
            },
        }
    }
}
