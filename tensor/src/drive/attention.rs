//! Tiled attention: blocks of queries against blocks of keys, without the matrix of weights.
//!
//! The forward pass keeps a running maximum and sum per query (online softmax), and saves only
//! the output and the log-sum-exp. The backward pass computes the weights of a tile again from
//! these. Tiles that the mask leaves empty are skipped; tiles that it leaves whole are computed
//! without looking at it. Rabe, Staats 2021 (arXiv 2112.05682); Dao et al. 2022 (2205.14135).
//!
//! One task makes all gradients of one (batch, key head), in a fixed order, so results do not
//! depend on threads.

use crate::matrix::{MatMut, MatRef};
use crate::par::{self, Cost};
use crate::random::Key;
use crate::shape::Shape;
use crate::simd::{self, Kernel, Lanes, Real};
use crate::tensor::Tensor;
use std::ops::Range;

/// Queries and keys in a tile.
pub const TILE: usize = 64;

/// One pair of a query and a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct At {
    /// The sequence.
    pub batch: usize,
    /// The query head.
    pub head: usize,
    /// The position of the query, in the positions of the keys.
    pub query: isize,
    /// The position of the key.
    pub key: usize,
}

/// What a mask leaves of a tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// No pair: the tile is skipped.
    Empty,
    /// Some pairs, perhaps: each is asked for.
    Partial,
    /// Every pair.
    Full,
}

/// Which pairs attend.
pub trait Rule: Sync {
    /// Whether this query may see this key.
    fn keep(&self, at: At) -> bool;
    /// What is left of a tile; [`Class::Partial`] is always a right answer.
    fn class(&self, batch: usize, head: usize, queries: Range<isize>, keys: Range<usize>) -> Class;
}

/// Everything about tiled attention but its tensors.
#[derive(Clone, Copy)]
pub struct Tiled<'a, T> {
    /// Multiplies `q · k`.
    pub scale: T,
    /// `c · tanh(s / c)` of the scaled score.
    pub softcap: Option<T>,
    /// Added to the score.
    pub bias: Option<&'a (dyn Fn(At) -> T + Sync)>,
    /// Which pairs attend.
    pub mask: &'a dyn Rule,
    /// Position of query 0.
    pub offset: isize,
    /// One more logit per query head, which takes weight and gives nothing.
    pub sink: Option<&'a [T]>,
    /// Probability and key: weight `(b, h, i, j)` is dropped as element `(b, h, i, j)` of a
    /// tensor `[B, H, Lq, Lk]` would be.
    pub dropout: Option<(f64, Key)>,
}

/// Sizes of a problem. Query head `h` reads key head `h / (heads / key_heads)`.
#[derive(Clone, Copy)]
struct Sizes {
    heads: usize,
    group: usize,
    lq: usize,
    lk: usize,
    dk: usize,
    dv: usize,
}

impl Sizes {
    fn of<T: Real>(q: &Tensor<T>, k: &Tensor<T>, v: &Tensor<T>) -> Sizes {
        let (q, k, v) = (q.shape(), k.shape(), v.shape());
        Sizes { heads: q[1], group: q[1] / k[1].max(1), lq: q[2], lk: k[2], dk: q[3], dv: v[3] }
    }
}

/// One head's matrix of a tensor `[B, H, L, D]`, rows `rows` of it.
fn head<'a, T: Real>(x: &'a Tensor<T>, b: usize, h: usize, rows: Range<usize>) -> MatRef<'a, T> {
    let strides = x.layout().strides();
    let at = x.layout().offset() as isize
        + b as isize * strides[0]
        + h as isize * strides[1]
        + rows.start as isize * strides[2];
    MatRef {
        data: x.data(),
        offset: at as usize,
        rows: rows.len(),
        cols: x.shape()[3],
        row_stride: strides[2],
        col_stride: strides[3],
    }
}

/// A scratch matrix, row-major.
fn scratch<T>(data: &[T], rows: usize, cols: usize) -> MatRef<'_, T> {
    MatRef { data, offset: 0, rows, cols, row_stride: cols as isize, col_stride: 1 }
}

/// An operand with a copy of it in which NaN and infinities are 0, if it has any.
struct Guarded<'a, T: Real> {
    x: &'a Tensor<T>,
    finite: Option<Tensor<T>>,
}

impl<'a, T: Real> Guarded<'a, T> {
    fn new(x: &'a Tensor<T>) -> Self {
        Guarded { x, finite: x.without_non_finite() }
    }

    /// `out += a · x` for some rows of a head, where a zero in `a` annihilates whatever stands
    /// in `x`.
    fn add_product(&self, a: MatRef<'_, T>, b: usize, h: usize, rows: Range<usize>, out: &mut [T]) {
        let finite = self.finite.as_ref().unwrap_or(self.x);
        let x = head(finite, b, h, rows.clone());
        T::gemm(a, x, true, MatMut::new(out, a.rows, x.cols));
        if self.finite.is_some() {
            a.add_product_with_non_finite(head(self.x, b, h, rows), out);
        }
    }
}

/// `c · tanh(s / c)` and its slope at the capped score.
fn cap<T: Real>(s: T, c: T) -> T {
    c * T::from_f64((s / c).to_f64().tanh())
}

impl<T: Real> Tiled<'_, T> {
    fn position(&self, i: usize) -> isize {
        i as isize + self.offset
    }

    fn class(&self, b: usize, h: usize, rows: &Range<usize>, cols: &Range<usize>) -> Class {
        let queries = self.position(rows.start)..self.position(rows.end);
        self.mask.class(b, h, queries, cols.clone())
    }

    /// The scores of a tile, capped and with bias; those that do not attend are -inf. With
    /// `slopes`, also the derivative of each by the scaled product.
    #[allow(clippy::too_many_arguments)]
    fn scores(
        &self,
        q: MatRef<'_, T>,
        k: MatRef<'_, T>,
        (b, h): (usize, usize),
        rows: &Range<usize>,
        cols: &Range<usize>,
        class: Class,
        s: &mut [T],
        mut slopes: Option<&mut [T]>,
    ) {
        T::gemm(q, k.t(), false, MatMut::new(s, q.rows, k.rows));
        let width = cols.len();
        let plain = self.softcap.is_none() && self.bias.is_none() && class == Class::Full;
        if let Some(slopes) = &mut slopes {
            slopes.fill(self.scale);
        }
        if plain {
            s.iter_mut().for_each(|x| *x *= self.scale);
            return;
        }
        for (i, row) in s.chunks_exact_mut(width).enumerate() {
            let query = self.position(rows.start + i);
            for (j, x) in row.iter_mut().enumerate() {
                let at = At { batch: b, head: h, query, key: cols.start + j };
                if class == Class::Partial && !self.mask.keep(at) {
                    *x = T::NEG_INFINITY;
                    continue;
                }
                *x *= self.scale;
                if let Some(c) = self.softcap {
                    *x = cap(*x, c);
                    if let Some(slopes) = &mut slopes {
                        let t = *x / c;
                        slopes[i * width + j] = self.scale * (T::ONE - t * t);
                    }
                }
                if let Some(bias) = self.bias {
                    *x += bias(at);
                }
            }
        }
    }

    /// Multiplies the weights of a tile by 0 or `1/(1-p)`.
    fn drop(
        &self,
        sizes: &Sizes,
        (b, h): (usize, usize),
        rows: &Range<usize>,
        cols: &Range<usize>,
        p: &mut [T],
    ) {
        let Some((probability, key)) = self.dropout else { return };
        let kept = T::from_f64(1.0 / (1.0 - probability));
        for (i, row) in rows.clone().zip(p.chunks_exact_mut(cols.len())) {
            let first = ((b * sizes.heads + h) * sizes.lq + i) * sizes.lk + cols.start;
            for (j, x) in row.iter_mut().enumerate() {
                let dropped = key.happens((first + j) as u64, probability);
                *x = if dropped { T::ZERO } else { *x * kept };
            }
        }
    }

    fn sink(&self, h: usize) -> T {
        self.sink.map_or(T::NEG_INFINITY, |sink| sink[h])
    }
}

/// The tiles of one axis.
fn tiles(len: usize) -> impl Iterator<Item = Range<usize>> {
    (0..len).step_by(TILE).map(move |start| start..(start + TILE).min(len))
}

/// Output `[B, H, Lq, Dv]` and log-sum-exp `[B, H, Lq]` of attention from queries
/// `[B, H, Lq, Dk]` to keys `[B, Hk, Lk, Dk]` and values `[B, Hk, Lk, Dv]`.
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
    let Sizes { heads, group, lq, lk, dk, dv } = sizes;
    let batch = q.shape()[0];
    let (shape, lse_shape) = (Shape::from([batch, heads, lq, dv]), Shape::from([batch, heads, lq]));
    let v = Guarded::new(v);
    let level = simd::level();
    Tensor::build2("attention", shape, lse_shape, |out, lse| {
        out.fill(T::ZERO);
        if lse.is_empty() {
            return;
        }
        // Chunks are whole heads; `out` may be empty (Dv = 0) where `lse` is not.
        let tasks: Vec<(usize, &mut [T], &mut [T])> = if dv == 0 {
            lse.chunks_mut(lq).enumerate().map(|(i, l)| (i, Default::default(), l)).collect()
        } else {
            let lse = lse.chunks_mut(lq);
            out.chunks_mut(lq * dv).zip(lse).enumerate().map(|(i, (o, l))| (i, o, l)).collect()
        };
        par::each(tasks, lq * lk, cost(dk + dv), |(i, out, lse)| {
            let (b, h) = (i / heads, i % heads);
            let mut s = [T::ZERO; TILE * TILE];
            for rows in tiles(lq) {
                let n = rows.len();
                let mut top = vec![how.sink(h); n];
                let mut sum: Vec<T> = top
                    .iter()
                    .map(|&t| if t == T::NEG_INFINITY { T::ZERO } else { T::ONE })
                    .collect();
                let acc = &mut out[rows.start * dv..rows.end * dv];
                for cols in tiles(lk) {
                    let class = how.class(b, h, &rows, &cols);
                    if class == Class::Empty {
                        continue;
                    }
                    let s = &mut s[..n * cols.len()];
                    let keys = head(k, b, h / group, cols.clone());
                    how.scores(
                        head(q, b, h, rows.clone()),
                        keys,
                        (b, h),
                        &rows,
                        &cols,
                        class,
                        s,
                        None,
                    );
                    T::dispatch(
                        level,
                        Online { s, width: cols.len(), top: &mut top, sum: &mut sum, acc, dv },
                    );
                    how.drop(&sizes, (b, h), &rows, &cols, s);
                    v.add_product(scratch(s, n, cols.len()), b, h / group, cols, acc);
                }
                for (i, row) in rows.clone().enumerate() {
                    let total = sum[i];
                    lse[row] = if total == T::ZERO {
                        T::NEG_INFINITY
                    } else {
                        top[i] + T::from_f64(total.to_f64().ln())
                    };
                    let scale = if total == T::ZERO { T::ZERO } else { T::ONE / total };
                    acc[i * dv..(i + 1) * dv].iter_mut().for_each(|x| *x *= scale);
                }
            }
        });
    })
}

/// Estimated picoseconds per pair of query and key, from the numbers that meet there.
fn cost(width: usize) -> Cost {
    Cost(2_000 + 40 * width as u32)
}

/// One tile of online softmax: scores become weights relative to the new maximum, and sums and
/// outputs so far are scaled to it.
struct Online<'a, T> {
    s: &'a mut [T],
    width: usize,
    top: &'a mut [T],
    sum: &'a mut [T],
    acc: &'a mut [T],
    dv: usize,
}

impl<T: Real> Kernel<T> for Online<'_, T> {
    type Out = ();

    #[inline(always)]
    fn run<S: Lanes<T>>(self, s: S) {
        use crate::drive::rows::{fold_row, update_row};
        let Online { s: scores, width, top, sum, acc, dv } = self;
        for (i, row) in scores.chunks_exact_mut(width).enumerate() {
            let low = s.splat(T::NEG_INFINITY);
            let here = fold_row(
                s,
                row,
                T::NEG_INFINITY,
                low,
                #[inline(always)]
                |m, x| s.max(m, x),
            );
            let here = s.max_lane(here);
            let new = if here > top[i] || here.is_nan() { here } else { top[i] };
            if new == T::NEG_INFINITY {
                row.fill(T::ZERO);
                continue;
            }
            if new != top[i] {
                let shrink = T::from_f64((top[i] - new).to_f64().exp());
                sum[i] *= shrink;
                let shrink = s.splat(shrink);
                update_row(
                    s,
                    &mut acc[i * dv..(i + 1) * dv],
                    #[inline(always)]
                    |x| s.mul(x, shrink),
                );
                top[i] = new;
            }
            let new = s.splat(new);
            update_row(
                s,
                row,
                #[inline(always)]
                |x| T::exp(s, s.sub(x, new)),
            );
            let more = fold_row(
                s,
                row,
                T::ZERO,
                s.splat(T::ZERO),
                #[inline(always)]
                |a, x| s.add(a, x),
            );
            sum[i] += s.sum(more);
        }
    }
}

/// Gradients of attention for the cotangent `g` of its output, from what [`forward`] gave.
pub struct Vjp<T: Real> {
    /// Of the queries.
    pub dq: Tensor<T>,
    /// Of the keys.
    pub dk: Tensor<T>,
    /// Of the values.
    pub dv: Tensor<T>,
    /// Of the sinks `[H]`, if there are any.
    pub dsink: Option<Tensor<T>>,
}

/// The VJP of [`forward`]. With `D = Σ g · out` per query: `dV = Pᵀ g`, `dS = P ∘ (g Vᵀ - D)`,
/// `dQ = dS K`, `dK = dSᵀ Q`, where `P` has passed dropout in `dV` and in `g Vᵀ`.
pub fn backward<T: Real>(
    (q, k, v): (&Tensor<T>, &Tensor<T>, &Tensor<T>),
    (out, lse): (&Tensor<T>, &Tensor<T>),
    g: &Tensor<T>,
    how: &Tiled<'_, T>,
) -> Vjp<T> {
    let sizes = Sizes::of(q, k, v);
    let Sizes { heads, group, lq, lk, dk, dv } = sizes;
    let (batch, key_heads) = (q.shape()[0], k.shape()[1]);
    let (lse, g) = (lse.contiguous(), g.contiguous());
    let dots = g.mul(out).sum(-1);
    let (lse_data, dots_data) = (lse.as_slice(), dots.as_slice());
    let (q_guarded, k_guarded) = (Guarded::new(q), Guarded::new(k));
    let level = simd::level();

    // The gradients of one (batch, key head) and its group of queries.
    let parts = par::map(batch * key_heads, group * lq * lk, cost(2 * (dk + dv)), |task| {
        let (b, kh) = (task / key_heads, task % key_heads);
        let mut dq = vec![T::ZERO; group * lq * dk];
        let (mut dkey, mut dvalue) = (vec![T::ZERO; lk * dk], vec![T::ZERO; lk * dv]);
        let mut buffers = [(); 3].map(|()| vec![T::ZERO; TILE * TILE]);
        for cols in tiles(lk) {
            let (keys, values) = (head(k, b, kh, cols.clone()), head(v, b, kh, cols.clone()));
            for (in_group, rows) in (0..group).flat_map(|i| tiles(lq).map(move |r| (i, r))) {
                let h = kh * group + in_group;
                let class = how.class(b, h, &rows, &cols);
                if class == Class::Empty {
                    continue;
                }
                let (n, m) = (rows.len(), cols.len());
                let [s, dp, slopes] = &mut buffers;
                let (s, dp, slopes) = (&mut s[..n * m], &mut dp[..n * m], &mut slopes[..n * m]);
                let (queries, gs) = (head(q, b, h, rows.clone()), head(&g, b, h, rows.clone()));
                how.scores(queries, keys, (b, h), &rows, &cols, class, s, Some(slopes));
                T::gemm(gs, values.t(), false, MatMut::new(dp, n, m));
                let first = (b * heads + h) * lq;
                let of = |x: &'_ [T]| x[first + rows.start..first + rows.end].to_vec();
                let (lse, dots) = (of(lse_data), of(dots_data));
                T::dispatch(level, Weights { s, width: m, lse: &lse });
                // Dropout of the weights, and of the gradient that comes back through it.
                let mut dropped = s.to_vec();
                how.drop(&sizes, (b, h), &rows, &cols, &mut dropped);
                if how.dropout.is_some() {
                    how.drop(&sizes, (b, h), &rows, &cols, dp);
                }
                // dV += droppedᵀ g
                let into = &mut dvalue[cols.start * dv..cols.end * dv];
                let into = MatMut::new(into, m, dv);
                T::gemm(scratch(&dropped, n, m).t(), gs, true, into);
                // dS, where a weight of 0 gives 0 whatever the rest holds.
                for (i, (row, dp)) in s.chunks_exact_mut(m).zip(dp.chunks_exact(m)).enumerate() {
                    for (j, x) in row.iter_mut().enumerate() {
                        if *x != T::ZERO {
                            *x = *x * (dp[j] - dots[i]) * slopes[i * m + j];
                        }
                    }
                }
                let at = (in_group * lq + rows.start) * dk;
                let into = &mut dq[at..at + n * dk];
                k_guarded.add_product(scratch(s, n, m), b, kh, cols.clone(), into);
                let into = &mut dkey[cols.start * dk..cols.end * dk];
                q_guarded.add_product(scratch(s, n, m).t(), b, h, rows, into);
            }
        }
        HeadGrads { dq, dk: dkey, dv: dvalue }
    });
    let dsink = how.sink.map(|sink| {
        // The sink's own weight is e^(sink - lse), and its value is 0: dSink = -Σ p · D.
        let sink = Tensor::from_vec(sink.to_vec(), [1, heads, 1]);
        let dead = lse.eq(&Tensor::scalar(T::NEG_INFINITY));
        let p = sink.sub(&lse.masked_fill(&dead, T::INFINITY)).exp();
        p.mul(&dots).sum([0, 2]).neg()
    });
    Vjp {
        dq: join(q.shape(), parts.iter().map(|p| &p.dq)),
        dk: join(k.shape(), parts.iter().map(|p| &p.dk)),
        dv: join(v.shape(), parts.iter().map(|p| &p.dv)),
        dsink,
    }
}

/// The gradients of one key head and the queries that read it.
struct HeadGrads<T> {
    dq: Vec<T>,
    dk: Vec<T>,
    dv: Vec<T>,
}

/// One tensor of parts that lie one after the other.
fn join<'a, T: Real>(shape: &Shape, parts: impl Iterator<Item = &'a Vec<T>>) -> Tensor<T> {
    Tensor::build("attention_vjp", *shape, |mut out| {
        for part in parts {
            let (here, rest) = out.split_at_mut(part.len());
            here.copy_from_slice(part);
            out = rest;
        }
    })
}

/// Scores to weights, given the log-sum-exp of every row: `e^(s - lse)`, 0 where a row is empty.
struct Weights<'a, T> {
    s: &'a mut [T],
    width: usize,
    lse: &'a [T],
}

impl<T: Real> Kernel<T> for Weights<'_, T> {
    type Out = ();

    #[inline(always)]
    fn run<S: Lanes<T>>(self, s: S) {
        use crate::drive::rows::update_row;
        for (row, &lse) in self.s.chunks_exact_mut(self.width).zip(self.lse) {
            if lse == T::NEG_INFINITY {
                row.fill(T::ZERO);
                continue;
            }
            let lse = s.splat(lse);
            update_row(
                s,
                row,
                #[inline(always)]
                |x| T::exp(s, s.sub(x, lse)),
            );
        }
    }
}
