//! Resolved masks on pairs, rows and tiles of queries and keys.

use super::kind::Kind;
use retrograd_tensor::kernels::attention::{At, Class, TileMask};
use std::ops::Range;

/// A number of positions as a distance, saturated.
fn reach(n: usize) -> isize {
    isize::try_from(n).unwrap_or(isize::MAX)
}

/// One side of a window, without a bound if there is none.
fn side(n: Option<usize>) -> isize {
    n.map_or(isize::MAX, reach)
}

/// The entry of a sequence, in a list with one entry per sequence or one for all.
fn entry<N: Copy>(list: &[N], batch: usize) -> N {
    if list.len() == 1 { list[0] } else { list[batch] }
}

/// The pair where the query is moved by the shift of its sequence.
fn shifted(at: At, shifts: &[isize]) -> At {
    At { query: at.query + entry(shifts, at.batch), ..at }
}

impl TileMask for Kind {
    fn keep(&self, at: At) -> bool {
        let (p, j) = (at.query, at.key as isize);
        match self {
            Kind::Full => true,
            Kind::Causal => j <= p,
            Kind::Window { left, right } => p - j <= side(*left) && j - p <= side(*right),
            Kind::Dilated(step) => (p - j).rem_euclid(reach(*step)) == 0,
            Kind::First(n) => at.key < *n,
            Kind::Global(set) => set.iter().any(|&g| g == at.key || reach(g) == p),
            Kind::Queries(set) => set.iter().any(|&g| reach(g) == p),
            Kind::LastOfEach { count, period } => at.key % period >= period - count,
            Kind::ByHead(masks) => masks[at.head].keep(at),
            Kind::Prefix(n) => j <= p || at.key < entry(n, at.batch),
            Kind::Lengths(n) => at.key < entry(n, at.batch),
            Kind::Documents(ids) => {
                let b = if ids.shape()[0] == 1 { 0 } else { at.batch };
                let inside = 0 <= p && p < ids.shape()[1] as isize;
                inside && ids.at(&[b, p as usize]) == ids.at(&[b, at.key])
            }
            Kind::Chunks(n) => p.div_euclid(reach(*n)) == j / reach(*n),
            Kind::Blocks { size, layout } => {
                let h = if layout.shape()[0] == 1 { 0 } else { at.head };
                let row = p.div_euclid(reach(*size));
                let inside = 0 <= row && row < layout.shape()[1] as isize;
                inside && layout.at(&[h, row as usize, at.key / size])
            }
            Kind::Dense { keep, offset } => {
                let i = p - offset;
                keep.at(&[at.batch, at.head, i as usize, at.key])
            }
            Kind::Function(_, f) => f(at),
            Kind::Shifted(mask, shifts) => mask.keep(shifted(at, shifts)),
            Kind::And(a, b) => a.keep(at) && b.keep(at),
            Kind::Or(a, b) => a.keep(at) || b.keep(at),
            Kind::Not(a) => !a.keep(at),
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
            Kind::Full => span(0, far),
            Kind::Causal => span(0, p.saturating_add(1)),
            Kind::Window { left, right } => {
                let to = p.saturating_add(side(*right)).saturating_add(1);
                span(p.saturating_sub(side(*left)), to)
            }
            Kind::First(n) => span(0, reach(*n)),
            Kind::Lengths(n) => span(0, reach(entry(n, at.batch))),
            Kind::Prefix(n) => span(0, p.saturating_add(1).max(reach(entry(n, at.batch)))),
            Kind::Chunks(n) => {
                let n = reach(*n);
                let start = p.div_euclid(n).saturating_mul(n);
                span(start, start.saturating_add(n))
            }
            Kind::ByHead(masks) => masks[at.head].row(at, keys),
            Kind::Shifted(mask, shifts) => mask.row(shifted(at, shifts), keys),
            Kind::And(a, b) => a.row(at, keys) & b.row(at, keys),
            Kind::Or(a, b) => a.row(at, keys) | b.row(at, keys),
            Kind::Not(a) => !a.row(at, keys) & span(0, far),
            // Pair by pair.
            _ => (0..keys).map(|i| u64::from(self.keep(At { key: at.key + i, ..at })) << i).sum(),
        }
    }

    fn class(&self, batch: usize, head: usize, queries: Range<isize>, keys: Range<usize>) -> Class {
        if queries.is_empty() || keys.is_empty() {
            return Class::Empty;
        }
        // The positions of the first and last query and key.
        let (p0, p1) = (queries.start, queries.end - 1);
        let (j0, j1) = (keys.start as isize, keys.end as isize - 1);
        let of = |all: bool, none: bool| match (all, none) {
            (true, _) => Class::Full,
            (_, true) => Class::Empty,
            _ => Class::Partial,
        };
        let below = |n: usize| of(j1 < reach(n), j0 >= reach(n));
        match self {
            Kind::Full => Class::Full,
            Kind::Causal => of(j1 <= p0, j0 > p1),
            Kind::Window { left, right } => {
                let (left, right) = (side(*left), side(*right));
                of(p1 - j0 <= left && j1 - p0 <= right, p0 - j1 > left || j0 - p1 > right)
            }
            Kind::Dilated(step) => of(*step == 1, false),
            Kind::First(n) => below(*n),
            Kind::Lengths(n) => below(entry(n, batch)),
            Kind::Prefix(n) => {
                Kind::Causal.class(batch, head, queries, keys.clone()).max(below(entry(n, batch)))
            }
            Kind::Global(set) => {
                let hit = |&g: &usize| keys.contains(&g) || queries.contains(&reach(g));
                of(false, !set.iter().any(hit))
            }
            Kind::Queries(set) => {
                let inside = |p: isize| set.iter().any(|&g| reach(g) == p);
                let hit = set.iter().any(|&g| queries.contains(&reach(g)));
                of(hit && queries.clone().all(inside), !hit)
            }
            Kind::LastOfEach { count, period } => {
                // Offsets of the first and last key from the start of the first block.
                let (first, last) = (keys.start % period, keys.start % period + keys.len() - 1);
                let start = period - count;
                of(*count == *period || first >= start && last < *period, last < start)
            }
            Kind::ByHead(masks) => masks[head].class(batch, head, queries, keys),
            Kind::Documents(ids) => {
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
            Kind::Chunks(n) => {
                let n = reach(*n);
                let (q, k) = ((p0.div_euclid(n), p1.div_euclid(n)), (j0 / n, j1 / n));
                of(q == k && q.0 == q.1, q.1 < k.0 || k.1 < q.0)
            }
            Kind::Blocks { size, layout } => {
                let size = reach(*size);
                let h = if layout.shape()[0] == 1 { 0 } else { head };
                let (rows, cols) = (layout.shape()[1] as isize, layout.shape()[2] as isize);
                let (mut all, mut none) = (true, true);
                for i in p0.div_euclid(size)..=p1.div_euclid(size) {
                    for j in j0 / size..=j1 / size {
                        let inside = 0 <= i && i < rows && j < cols;
                        let attends = inside && layout.at(&[h, i as usize, j as usize]);
                        (all, none) = (all && attends, none && !attends);
                    }
                }
                of(all, none)
            }
            Kind::Dense { .. } | Kind::Function(..) => Class::Partial,
            Kind::Shifted(mask, shifts) => {
                let by = entry(shifts, batch);
                mask.class(batch, head, queries.start + by..queries.end + by, keys)
            }
            Kind::And(a, b) => {
                let a = a.class(batch, head, queries.clone(), keys.clone());
                a.min(b.class(batch, head, queries, keys))
            }
            Kind::Or(a, b) => {
                let a = a.class(batch, head, queries.clone(), keys.clone());
                a.max(b.class(batch, head, queries, keys))
            }
            Kind::Not(a) => match a.class(batch, head, queries, keys) {
                Class::Empty => Class::Full,
                Class::Full => Class::Empty,
                Class::Partial => Class::Partial,
            },
        }
    }
}
