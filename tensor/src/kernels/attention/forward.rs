//! The forward pass of tiled attention: online softmax.

use super::scores::OfRules;
use super::tile::{OnlineSoftmax, TileBuffer, TileCounts, add_product, scale_rows};
use super::transposed::TransposedTile;
use super::{AttentionOptions, QUERIES, Sizes, bytes, head, pieces};
use crate::kernels::Real;
use crate::matrix::MatMut;
use crate::observe::{self, KernelCall};
use crate::par;
use crate::shape::Shape;
use crate::tensor::Tensor;
use std::ops::Range;

/// Queries per task.
const TASK: usize = 256;

/// Output `[B, H, Lq, Dv]` and log-sum-exp `[B, H, Lq]` of attention from queries `[B, H, Lq, Dk]`
/// to keys `[B, Hk, Lk, Dk]` and values `[B, Hk, Lk, Dv]`. The memory layout of the output is `[B,
/// Lq, H, Dv]`.
///
/// The output of a query without visible keys is 0, and its log-sum-exp -inf (or its sink). Masked
/// keys and values have no influence, even if they are non-finite.
#[inline(never)]
pub fn forward<T: Real>(
    q: &Tensor<T>,
    k: &Tensor<T>,
    v: &Tensor<T>,
    options: &AttentionOptions<'_, T>,
) -> (Tensor<T>, Tensor<T>) {
    let call = observe::begin();
    let counts = call.as_ref().map(|_| TileCounts::default());
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
            par::each(tasks, TASK.min(lq) * lk, cost, |((b, h), first, out, lse)| {
                let (sizes, counts) = (&sizes, counts.as_ref());
                queries((q, k, v), options, sizes, counts, (b, h, h / group), first, out, lse);
            });
        });
    observe::end(call, || KernelCall {
        read: bytes(&[q, k, v]),
        written: bytes(&[&out, &lse]),
        ..counts.unwrap_or_default().describe::<T>("attention", &sizes, (1, 1))
    });
    (out.transpose(1, 2), lse)
}

/// Attention of some queries of one head, from index `first` on, to all keys.
#[allow(clippy::too_many_arguments)]
fn queries<T: Real>(
    (q, k, v): (&Tensor<T>, &Tensor<T>, &Tensor<T>),
    options: &AttentionOptions<'_, T>,
    sizes: &Sizes,
    counts: Option<&TileCounts>,
    (b, h, kh): (usize, usize, usize),
    first: usize,
    mut out: MatMut<'_, T>,
    lse: &mut [T],
) {
    let mut s = TileBuffer::new();
    let mut z = options.dropout.is_some().then(TileBuffer::new);
    let online = || OnlineSoftmax::new(options.sink.map(|sink| sink[h]));
    let mut blocks: Vec<(Range<usize>, OnlineSoftmax<T>)> =
        pieces(first..first + lse.len(), QUERIES).map(|rows| (rows, online())).collect();
    // With a single query, each key is used once, so transposing it first does not pay.
    let mut transposed = (lse.len() > 1).then(|| TransposedTile::new(sizes.dk));
    out.fill(T::ZERO);
    let mut of_rules = OfRules::new(options.rules, lse.len(), false);
    for (is_scan, cols) in of_rules.sweeps(sizes.lk) {
        of_rules.is_scan = is_scan;
        let mut done = false;
        for (rows, online) in &mut blocks {
            let Some(tile) = options.tile((b, h), rows.clone(), cols.clone()) else {
                TileCounts::skip(counts.filter(|_| !is_scan));
                continue;
            };
            let keys = match &mut transposed {
                None => head(k, b, kh, tile.cols.clone()).t(),
                Some(transposed) => {
                    if !std::mem::replace(&mut done, true) {
                        transposed.transpose_from(head(k, b, kh, cols.clone()));
                    }
                    transposed.columns(tile.whole_cols(cols.start))
                }
            };
            let queries = head(q, b, h, rows.clone());
            of_rules.first = rows.start - first;
            let factor = options.scores(&tile, queries, keys, &mut s, None, &mut of_rules);
            if is_scan {
                continue;
            }
            TileCounts::add(counts, &tile);
            online.step(&tile, &mut s, factor);
            let mut out = out.part(rows.start - first..rows.end - first, 0..sizes.dv);
            if online.rescale[..rows.len()].iter().any(|&x| x != T::ONE) {
                scale_rows(out.part(0..rows.len(), 0..sizes.dv), &online.rescale);
            }
            if let Some(factors) = options.dropout_factors(sizes, &tile, z.as_mut()) {
                s.multiply(&tile, factors);
            }
            let values = head(v, b, kh, tile.cols.clone());
            add_product(s.of(&tile), values, tile.partial, out.whole());
            for rule in options.rules {
                rule.outputs(&tile, &s, out.whole());
            }
        }
    }
    for ((rows, online), lse) in blocks.into_iter().zip(lse.chunks_mut(QUERIES)) {
        let mut scale = [T::ZERO; QUERIES];
        for (i, lse) in lse.iter_mut().enumerate() {
            let total = online.running_sum[i];
            if total == T::ZERO {
                *lse = T::NEG_INFINITY;
            } else {
                *lse = online.running_max[i] + T::from_f64(total.to_f64().ln());
                scale[i] = T::ONE / total;
            }
        }
        scale_rows(out.part(rows.start - first..rows.end - first, 0..sizes.dv), &scale);
    }
}
