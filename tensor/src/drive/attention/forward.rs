//! The output, and the log-sum-exp that the backward pass wants.

use super::tile::{Online, Square, add_product, scale_rows};
use super::{QUERIES, Sizes, TILE, Tiled, head, pieces};
use crate::matrix::MatMut;
use crate::par;
use crate::shape::Shape;
use crate::simd::Real;
use crate::tensor::Tensor;
use std::ops::Range;

/// Queries of a task.
const TASK: usize = 256;

/// Output `[B, H, Lq, Dv]` and log-sum-exp `[B, H, Lq]` of attention from queries
/// `[B, H, Lq, Dk]` to keys `[B, Hk, Lk, Dk]` and values `[B, Hk, Lk, Dv]`. The output lies in
/// memory as `[B, Lq, H, Dv]`.
///
/// A query that sees nothing gives 0, and a log-sum-exp of -inf (or its sink). What stands at
/// keys that a query does not see has no influence on it.
pub fn forward<T: Real>(
    q: &Tensor<T>,
    k: &Tensor<T>,
    v: &Tensor<T>,
    how: &Tiled<'_, T>,
) -> (Tensor<T>, Tensor<T>) {
    let sizes = Sizes::of(q, k, v);
    let Sizes { batch, heads, group, lq, lk, dv, .. } = sizes;
    let shape = Shape::from([batch, lq, heads, dv]);
    let (out, lse) =
        Tensor::build2("attention", shape, [batch, heads, lq].into(), |out, lse: &mut [T]| {
            let of_heads = MatMut::new(out, batch * lq, heads * dv).grid(batch, heads);
            let tasks: Vec<_> = of_heads
                .into_iter()
                .zip(lse.chunks_mut(lq.max(1)))
                .enumerate()
                .flat_map(|(i, (out, lse))| {
                    let at = (i / heads, i % heads);
                    let parts = out.bands(TASK).into_iter().zip(lse.chunks_mut(TASK)).zip(0..);
                    parts.map(move |((out, lse), part)| (at, part * TASK, out, lse))
                })
                .collect();
            let cost = sizes.cost(1);
            par::each(tasks, TASK.min(lq) * lk, cost, |((b, h), first, mut out, lse)| {
                for rows in pieces(first..first + lse.len(), QUERIES) {
                    let here = rows.start - first..rows.end - first;
                    let out = out.part(here.clone(), 0..dv);
                    queries((q, k, v), how, &sizes, (b, h, h / group), rows, out, &mut lse[here]);
                }
            });
        });
    (out.transpose(1, 2), lse)
}

/// A few queries of one head against all keys.
fn queries<T: Real>(
    (q, k, v): (&Tensor<T>, &Tensor<T>, &Tensor<T>),
    how: &Tiled<'_, T>,
    sizes: &Sizes,
    (b, h, kh): (usize, usize, usize),
    rows: Range<usize>,
    mut out: MatMut<'_, T>,
    lse: &mut [T],
) {
    let (mut s, mut z) = (Square::new(), how.dropout.is_some().then(Square::new));
    let mut online = Online::new(how.sink.map(|sink| sink[h]));
    let all = (0..out.rows(), 0..out.cols());
    out.fill(T::ZERO);
    for cols in pieces(0..sizes.lk, TILE) {
        let Some(tile) = how.tile((b, h), rows.clone(), cols) else { continue };
        let (keys, values) = (head(k, b, kh, tile.cols.clone()), head(v, b, kh, tile.cols.clone()));
        let factor = how.scores(&tile, head(q, b, h, rows.clone()), keys, &mut s, None);
        online.step(&tile, &mut s, factor);
        if online.shrink[..rows.len()].iter().any(|&x| x != T::ONE) {
            scale_rows(out.part(all.0.clone(), all.1.clone()), &online.shrink);
        }
        if let Some(kept) = how.kept(sizes, &tile, z.as_mut()) {
            s.multiply(&tile, kept);
        }
        let out = out.part(all.0.clone(), all.1.clone());
        add_product(s.of(&tile), values, tile.partial, out);
    }
    let mut scale = [T::ZERO; QUERIES];
    for (i, lse) in lse.iter_mut().enumerate() {
        let total = online.sum[i];
        if total == T::ZERO {
            *lse = T::NEG_INFINITY;
        } else {
            *lse = online.top[i] + T::from_f64(total.to_f64().ln());
            scale[i] = T::ONE / total;
        }
    }
    scale_rows(out, &scale);
}
