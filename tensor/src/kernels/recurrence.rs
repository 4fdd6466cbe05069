//! A linear recurrence whose state is a matrix for each head: the kernel of linear attention with
//! decay and of delta rules.
//!
//! With vectors `q, k, a, b, w` of `Dk` elements and `v` of `Dv`, for each token `t`:
//!
//! ```text
//! S_t = diag(w_t) S_{t-1} + b_t (a_tᵀ S_{t-1}) + k_t v_tᵀ
//! o_t = S_tᵀ q_t
//! ```
//!
//! The transition is diagonal plus a matrix of rank 1. The kernel takes one token after the other. A column of the
//! state depends on the same column before it and on nothing else, so the state of some columns stays in
//! the L1 cache for the whole sequence: there, a step takes as many operations as a token takes in
//! chunks of `Dk` tokens by matrix products, and needs neither quotients of decays, which overflow, nor the
//! inverse of a triangular matrix. Each element of a result is computed in the order of the tokens, so a
//! sequence in pieces has the bits of the whole one.
//!
//! For the backward pass the [forward](forward()) pass keeps the state before each chunk of [`CHUNK`] tokens. The
//! [backward](backward()) pass computes the states of a chunk again, a few columns at a time.

use crate::cost::Cost;
use crate::kernels::{Real, level_of};
use crate::matrix::MatRef;
use crate::observe::{self, KernelCall};
use crate::par;
use crate::settings;
use crate::shape::Shape;
use crate::simd::{Kernel, Lanes};
use crate::tensor::Tensor;
use std::sync::Mutex;

/// Tokens between two states that are kept.
pub const CHUNK: usize = 32;
/// Vectors of columns in a pass of the forward kernel.
const VECTORS: usize = 2;
/// Columns in a pass of the backward kernel.
const COLS: usize = 4;
/// The vectors `q`, `k`, `w`, `a` and `b` of a token. Without a transition of low rank, the last two have no meaning.
const R: usize = 5;

/// The vectors of all tokens: `q`, `k` and `w` `[B, H, L, Dk]`, `v` `[B, H, L, Dv]`, with any strides.
#[derive(Clone, Copy, Debug)]
pub struct Terms<'a, T: Real> {
    /// What reads the state.
    pub q: &'a Tensor<T>,
    /// The keys.
    pub k: &'a Tensor<T>,
    /// The values.
    pub v: &'a Tensor<T>,
    /// The decay of each row of the state.
    pub w: &'a Tensor<T>,
    /// `a` and `b`, if the transition is not diagonal.
    pub low_rank: Option<[&'a Tensor<T>; 2]>,
}

/// The gradients of [`forward`].
#[derive(Debug)]
pub struct Vjp<T: Real> {
    /// Of `q`, `k`, `w`, and of `a` and `b` if there are any.
    pub rows: Vec<Tensor<T>>,
    /// Of the values.
    pub dv: Tensor<T>,
    /// Of the first state.
    pub dstate: Tensor<T>,
}

#[derive(Clone, Copy)]
struct Sizes {
    batch: usize,
    heads: usize,
    l: usize,
    dk: usize,
    dv: usize,
}

impl Sizes {
    fn chunks(self) -> usize {
        self.l.div_ceil(CHUNK)
    }

    /// The report of a call with so many multiply-adds for each element of the state and token.
    fn describe<T: Real>(self, kernel: &'static str, fmas: u64, shape: Shape) -> KernelCall {
        let Sizes { batch, heads, l, dk, dv } = self;
        KernelCall {
            level: level_of::<T>(settings::level()),
            flops: 2 * fmas * (batch * heads * l * dk * dv) as u64,
            ..KernelCall::new("recurrence", kernel, T::DTYPE, shape)
        }
    }
}

impl<T: Real> Terms<'_, T> {
    fn sizes(&self) -> Sizes {
        let [batch, heads, l, dk] = self.k.shape()[..] else { panic!("recurrence: rank of k") };
        Sizes { batch, heads, l, dk, dv: self.v.shape()[3] }
    }

    /// `q`, `k`, `v`, `w`, and `a` and `b`, with contiguous rows.
    fn in_rows(&self) -> Vec<Tensor<T>> {
        let all = [self.q, self.k, self.v, self.w].into_iter();
        all.chain(self.low_rank.into_iter().flatten()).map(in_rows).collect()
    }
}

fn in_rows<T: Real>(x: &Tensor<T>) -> Tensor<T> {
    if x.layout().strides()[3] == 1 { x.clone() } else { x.contiguous() }
}

/// The matrix of head `i` of all sequences.
fn head<T: Real>(x: &Tensor<T>, i: usize) -> MatRef<'_, T> {
    let (shape, strides) = (x.shape(), x.layout().strides());
    let at = (i / shape[1]) as isize * strides[0] + (i % shape[1]) as isize * strides[1];
    MatRef {
        data: x.data(),
        offset: (x.layout().offset() as isize + at) as usize,
        rows: shape[2],
        cols: shape[3],
        row_stride: strides[2],
        col_stride: strides[3],
    }
}

/// Calls `f` with each head, whose parts of the outputs have equal sizes.
fn each<T: Real>(
    n: usize,
    [a, b]: [&mut [T]; 2],
    Sizes { l, dk, dv, .. }: Sizes,
    cost: Cost,
    f: &(dyn Fn(usize, [&mut [T]; 2]) + Sync),
) {
    let of_heads = parts(a, n).into_iter().zip(parts(b, n));
    let of_heads: Vec<_> = of_heads.map(|(a, b)| Mutex::new([a, b])).collect();
    par::map(n, l * dk * dv, cost, |i| {
        let mut of_head = of_heads[i].lock().expect("one task uses it");
        f(i, of_head.each_mut().map(|x| &mut **x));
    });
}

/// `n` parts of equal sizes, possibly empty.
fn parts<T>(x: &mut [T], n: usize) -> Vec<&mut [T]> {
    let size = x.len() / n.max(1);
    let mut rest = x;
    let part = |_| {
        let (part, others) = std::mem::take(&mut rest).split_at_mut(size);
        rest = others;
        part
    };
    (0..n).map(part).collect()
}

/// The outputs `[B, H, L, Dv]`, the state after the last token `[B, H, Dk, Dv]`, and, if `keeps`, what
/// [`backward`] needs: `[B, H, ..]` with the rows `aᵀ S` of each token, if there is an `a`, and states.
///
/// # Panics
/// If the shapes do not match.
#[inline(never)]
pub fn forward<T: Real>(
    terms: &Terms<'_, T>,
    state: &Tensor<T>,
    keeps: bool,
) -> (Tensor<T>, Tensor<T>, Tensor<T>) {
    let call = observe::begin();
    let sizes @ Sizes { batch, heads, l, dk, dv } = terms.sizes();
    let (operands, state, n) = (terms.in_rows(), in_rows(state), batch * heads);
    let reads = if terms.low_rank.is_some() { l } else { 0 };
    let kept = if keeps { reads + sizes.chunks() * dk } else { 0 };
    let shape = |rows| Shape::from([batch, heads, rows, dv]);
    let (results, kept) =
        Tensor::build2("recurrence", shape(l + dk), shape(kept), |results, kept| {
            each(n, [results, kept], sizes, Cost(80), &|i, [results, kept]| {
                let (out, last) = results.split_at_mut(l * dv);
                let first = head(&state, i);
                for i in 0..dk {
                    last[i * dv..][..dv].copy_from_slice(first.row(i));
                }
                let x: Vec<_> = operands.iter().map(|x| head(x, i)).collect();
                let kept = keeps.then(|| kept.split_at_mut(reads * dv));
                T::dispatch(settings::level(), Forward { x: &x, state: last, out, kept });
            });
        });
    let (out, last) = (results.narrow(-2, 0, l), results.narrow(-2, l, dk));
    observe::end(call, || {
        let fmas = if terms.low_rank.is_some() { 5 } else { 3 };
        let read = operands.iter().chain([&state]).map(Tensor::distinct_bytes).sum();
        let written = results.distinct_bytes() + kept.distinct_bytes();
        KernelCall { read, written, ..sizes.describe::<T>("steps", fmas, *out.shape()) }
    });
    (out, last, kept)
}

/// One head.
struct Forward<'a, T> {
    /// `q`, `k`, `v`, `w`, and `a` and `b` if there are any.
    x: &'a [MatRef<'a, T>],
    /// The first state, and then the last one.
    state: &'a mut [T],
    out: &'a mut [T],
    /// `aᵀ S` of each token, and states.
    kept: Option<(&'a mut [T], &'a mut [T])>,
}

impl<T: Real> Kernel<T> for Forward<'_, T> {
    type Out = ();
    const EIGHT_F64: bool = true;

    #[inline(always)]
    fn run<S: Lanes<T>>(self, s: S) {
        let (x, is_low_rank) = padded(self.x);
        steps(s, self, x, is_low_rank);
    }
}

/// The operands, with `w` in place of `a` and `b` if there are none, and whether there are. So there is one function for
/// both, which every program has for each instruction set.
fn padded<'a, T>(x: &[MatRef<'a, T>]) -> ([MatRef<'a, T>; 6], bool)
where
    MatRef<'a, T>: Copy,
{
    match *x {
        [q, k, v, w, a, b] => ([q, k, v, w, a, b], true),
        _ => ([x[0], x[1], x[2], x[3], x[3], x[3]], false),
    }
}

/// All steps of one head, with a transition of low rank or a diagonal one.
#[inline(always)]
fn steps<T: Real, S: Lanes<T>>(
    s: S,
    Forward { state, out, mut kept, .. }: Forward<'_, T>,
    [q, k, v, w, a, b]: [MatRef<'_, T>; 6],
    is_low_rank: bool,
) {
    let (l, dk, dv, width) = (k.rows, k.cols, v.cols, VECTORS * S::N);
    let zero = s.splat(T::ZERO);
    let mut strip = vec![T::ZERO; dk * width];
    for first in (0..dv).step_by(width) {
        let n = width.min(dv - first);
        for i in 0..dk {
            strip[i * width..][..n].copy_from_slice(&state[i * dv + first..][..n]);
        }
        for t in 0..l {
            let (q, k, w, a, b) = (q.row(t), k.row(t), w.row(t), a.row(t), b.row(t));
            let values = &v.row(t)[first..first + n];
            let (mut x, mut u, mut o) = ([zero; VECTORS], [zero; VECTORS], [zero; VECTORS]);
            for c in 0..VECTORS {
                let from = (c * S::N).min(n);
                x[c] = s.load_or(&values[from..(from + S::N).min(n)], T::ZERO);
            }
            if let Some((_, states)) = kept.as_mut().filter(|_| t % CHUNK == 0) {
                for i in 0..dk {
                    let at = (t / CHUNK * dk + i) * dv + first;
                    states[at..at + n].copy_from_slice(&strip[i * width..][..n]);
                }
            }
            if is_low_rank {
                for i in 0..dk {
                    let row = &strip[i * width..][..width];
                    for c in 0..VECTORS {
                        u[c] = s.fma(s.splat(a[i]), s.load(&row[c * S::N..]), u[c]);
                    }
                }
            }
            for i in 0..dk {
                let row = &mut strip[i * width..][..width];
                for c in 0..VECTORS {
                    let row = &mut row[c * S::N..][..S::N];
                    let mut y = s.mul(s.splat(w[i]), s.load(row));
                    if is_low_rank {
                        y = s.fma(s.splat(b[i]), u[c], y);
                    }
                    y = s.fma(s.splat(k[i]), x[c], y);
                    s.store(y, row);
                    o[c] = s.fma(s.splat(q[i]), y, o[c]);
                }
            }
            for c in 0..VECTORS {
                let (from, to) = ((c * S::N).min(n), (c * S::N + S::N).min(n));
                let place = t * dv + first;
                s.store_part(o[c], &mut out[place + from..place + to]);
                if let (true, Some((reads, _))) = (is_low_rank, &mut kept) {
                    s.store_part(u[c], &mut reads[place + from..place + to]);
                }
            }
        }
        for i in 0..dk {
            state[i * dv + first..][..n].copy_from_slice(&strip[i * width..][..n]);
        }
    }
}

/// The VJP of [`forward`] from what it kept, for the cotangents `[B, H, L, Dv]` of the outputs and
/// `[B, H, Dk, Dv]` of the last state. With `u = aᵀ S_{t-1}` and the cotangent `G` of `S_t`, to which the outputs add
/// `q gᵀ`:
///
/// ```text
/// dq = S_t g      dk = G v      dv = Gᵀ k      db = G u      du = Gᵀ b
/// dw = Σ G · S_{t-1}, over columns             da = S_{t-1} du
/// the cotangent of S_{t-1} is diag(w) G + a duᵀ
/// ```
///
/// # Panics
/// If the shapes do not match.
#[inline(never)]
pub fn backward<T: Real>(
    terms: &Terms<'_, T>,
    kept: &Tensor<T>,
    [g, g_state]: [&Tensor<T>; 2],
) -> Vjp<T> {
    let call = observe::begin();
    let sizes @ Sizes { batch, heads, l, dk, dv } = terms.sizes();
    let (operands, g, n) = (terms.in_rows(), in_rows(g), batch * heads);
    let results = operands.len() - 1;
    let shape = |rows, width| Shape::from([batch, heads, rows, width]);
    let (of_rows, of_values) = (shape(results * l, dk), shape(l + dk, dv));
    let (rows, values) = Tensor::build2("recurrence_vjp", of_rows, of_values, |rows, values| {
        each(n, [rows, values], sizes, Cost(240), &|i, [rows, values]| {
            let x: Vec<_> = operands.iter().map(|x| head(x, i)).collect();
            let (kept, g, g_state) = (head(kept, i), head(&g, i), head(g_state, i));
            let backward = Backward { x: &x, kept, g, g_state, rows, values };
            T::dispatch(settings::level(), backward);
        });
    });
    observe::end(call, || {
        let fmas = if terms.low_rank.is_some() { 13 } else { 8 };
        let read = operands.iter().chain([kept, &g, g_state]).map(Tensor::distinct_bytes).sum();
        let written = rows.distinct_bytes() + values.distinct_bytes();
        KernelCall { read, written, ..sizes.describe::<T>("steps, backward", fmas, of_values) }
    });
    Vjp {
        rows: (0..results).map(|i| rows.narrow(-2, i * l, l)).collect(),
        dv: values.narrow(-2, 0, l),
        dstate: values.narrow(-2, l, dk),
    }
}

/// One head.
struct Backward<'a, T> {
    /// `q`, `k`, `v`, `w`, and `a` and `b` if there are any.
    x: &'a [MatRef<'a, T>],
    kept: MatRef<'a, T>,
    g: MatRef<'a, T>,
    g_state: MatRef<'a, T>,
    /// The gradients of `q`, `k`, `w`, and of `a` and `b`.
    rows: &'a mut [T],
    /// The gradients of the values, then that of the first state.
    values: &'a mut [T],
}

impl<T: Real> Kernel<T> for Backward<'_, T> {
    type Out = ();
    const EIGHT_F64: bool = true;

    #[inline(always)]
    fn run<S: Lanes<T>>(self, s: S) {
        let ([q, k, v, w, a, b], is_low_rank) = padded(self.x);
        steps_back(s, self, v, [q, k, w, a, b], is_low_rank);
    }
}

/// All steps of one head, from the last one to the first. States and their cotangents are transposed here: a column is
/// contiguous, and padded to whole vectors.
#[inline(always)]
fn steps_back<T: Real, S: Lanes<T>>(
    s: S,
    Backward { kept, g, g_state, rows, values, .. }: Backward<'_, T>,
    v: MatRef<'_, T>,
    x: [MatRef<'_, T>; R],
    is_low_rank: bool,
) {
    let (l, dk, dv) = (v.rows, x[0].cols, v.cols);
    let (width, padded) = (dk.next_multiple_of(S::N), dv.next_multiple_of(COLS));
    let reads = if is_low_rank { l } else { 0 };
    let mut cotangent = vec![T::ZERO; padded * width];
    for (j, i) in (0..dv).flat_map(|j| (0..dk).map(move |i| (j, i))) {
        cotangent[j * width + i] = g_state.at(i, j);
    }
    // Of each token of a chunk: the state before it in some columns, the vectors, and their gradients; the elements of
    // `g`, `v` and `u`.
    let mut states = vec![T::ZERO; (CHUNK + 1) * COLS * width];
    let mut vectors = vec![T::ZERO; CHUNK * R * width];
    let mut sums = vec![T::ZERO; CHUNK * R * width];
    let mut scalars = vec![T::ZERO; CHUNK * 3 * padded];
    for chunk in (0..l.div_ceil(CHUNK)).rev() {
        let (first, tokens) = (chunk * CHUNK, CHUNK.min(l - chunk * CHUNK));
        sums.fill(T::ZERO);
        for t in 0..tokens {
            for r in 0..R {
                vectors[(t * R + r) * width..][..dk].copy_from_slice(x[r].row(first + t));
            }
            for (i, x) in [g, v, kept].into_iter().enumerate().take(2 + usize::from(is_low_rank)) {
                scalars[(t * 3 + i) * padded..][..dv].copy_from_slice(x.row(first + t));
            }
        }
        for j in (0..dv).step_by(COLS) {
            for i in 0..dk {
                let row = &kept.row(reads + chunk * dk + i)[j..dv.min(j + COLS)];
                for c in 0..row.len() {
                    states[c * width + i] = row[c];
                }
            }
            let scalars = |t: usize| {
                let mut of = [[T::ZERO; COLS]; 3];
                for i in 0..3 {
                    let from = &scalars[(t * 3 + i) * padded + j..][..COLS];
                    of[i].copy_from_slice(from);
                }
                of
            };
            for t in 0..tokens {
                let (before, after) = states.split_at_mut((t + 1) * COLS * width);
                let vectors = &vectors[t * R * width..][..R * width];
                let before = &before[t * COLS * width..];
                next(s, is_low_rank, width, vectors, scalars(t), before, after);
            }
            for t in (0..tokens).rev() {
                let (at, of) = (t * COLS * width, scalars(t));
                let (before, after) = states[at..][..2 * COLS * width].split_at(COLS * width);
                let vectors = &vectors[t * R * width..][..R * width];
                let sums = &mut sums[t * R * width..][..R * width];
                let cotangent = &mut cotangent[j * width..][..COLS * width];
                let states = [before, after];
                let dv_t = step_back(s, is_low_rank, width, vectors, of, states, sums, cotangent);
                let n = COLS.min(dv - j);
                for c in 0..n {
                    values[(first + t) * dv + j + c] = dv_t[c];
                }
            }
        }
        let results = if is_low_rank { R } else { R - 2 };
        for (r, t) in (0..results).flat_map(|r| (0..tokens).map(move |t| (r, t))) {
            let sum = &sums[(t * R + r) * width..][..dk];
            rows[(r * l + first + t) * dk..][..dk].copy_from_slice(sum);
        }
    }
    for (i, j) in (0..dk).flat_map(|i| (0..dv).map(move |j| (i, j))) {
        values[(l + i) * dv + j] = cotangent[j * width + i];
    }
}

/// The state after a token, in some columns.
#[inline(always)]
fn next<T: Real, S: Lanes<T>>(
    s: S,
    is_low_rank: bool,
    width: usize,
    vectors: &[T],
    [_, v, u]: [[T; COLS]; 3],
    before: &[T],
    after: &mut [T],
) {
    let k = &vectors[width..][..width];
    let w = &vectors[2 * width..][..width];
    let b = &vectors[(R - 1) * width..][..width];
    let (mut vs, mut us) = ([s.splat(T::ZERO); COLS], [s.splat(T::ZERO); COLS]);
    for c in 0..COLS {
        (vs[c], us[c]) = (s.splat(v[c]), s.splat(u[c]));
    }
    for c in 0..COLS {
        let before = &before[c * width..][..width];
        let after = &mut after[c * width..][..width];
        let mut at = 0;
        while at + S::N <= width {
            let mut y = s.mul(s.load(&w[at..]), s.load(&before[at..]));
            if is_low_rank {
                y = s.fma(s.load(&b[at..]), us[c], y);
            }
            s.store(s.fma(s.load(&k[at..]), vs[c], y), &mut after[at..]);
            at += S::N;
        }
    }
}

/// The gradients of a token's values, in some columns, and the cotangent of the state before it; adds to the gradients
/// of its vectors.
#[inline(always)]
#[allow(clippy::too_many_arguments)]
fn step_back<T: Real, S: Lanes<T>>(
    s: S,
    is_low_rank: bool,
    width: usize,
    vectors: &[T],
    [g, v, u]: [[T; COLS]; 3],
    [before, after]: [&[T]; 2],
    sums: &mut [T],
    cotangent: &mut [T],
) -> [T; COLS] {
    let zero = s.splat(T::ZERO);
    let (mut gs, mut vs, mut us) = ([zero; COLS], [zero; COLS], [zero; COLS]);
    for c in 0..COLS {
        (gs[c], vs[c], us[c]) = (s.splat(g[c]), s.splat(v[c]), s.splat(u[c]));
    }
    let q = &vectors[..width];
    let k = &vectors[width..][..width];
    let w = &vectors[2 * width..][..width];
    let a = &vectors[(R - 2) * width..][..width];
    let b = &vectors[(R - 1) * width..][..width];
    let (mut dv, mut du) = ([zero; COLS], [zero; COLS]);
    let mut at = 0;
    while at + S::N <= width {
        let (q, k, b) = (s.load(&q[at..]), s.load(&k[at..]), s.load(&b[at..]));
        let mut sum = [zero; R];
        for r in 0..R {
            sum[r] = s.load(&sums[r * width + at..]);
        }
        for c in 0..COLS {
            let here = c * width + at;
            let y = &mut cotangent[here..][..S::N];
            let dy = s.fma(q, gs[c], s.load(y));
            s.store(dy, y);
            sum[0] = s.fma(s.load(&after[here..]), gs[c], sum[0]);
            sum[1] = s.fma(dy, vs[c], sum[1]);
            sum[2] = s.fma(dy, s.load(&before[here..]), sum[2]);
            dv[c] = s.fma(k, dy, dv[c]);
            if is_low_rank {
                sum[R - 1] = s.fma(dy, us[c], sum[R - 1]);
                du[c] = s.fma(b, dy, du[c]);
            }
        }
        for r in 0..R {
            s.store(sum[r], &mut sums[r * width + at..]);
        }
        at += S::N;
    }
    let mut of_values = [T::ZERO; COLS];
    for c in 0..COLS {
        of_values[c] = s.sum(dv[c]);
        if is_low_rank {
            du[c] = s.splat(s.sum(du[c]));
        }
    }
    let mut at = 0;
    while at + S::N <= width {
        let (w, a) = (s.load(&w[at..]), s.load(&a[at..]));
        let mut sum = s.load(&sums[(R - 2) * width + at..]);
        for c in 0..COLS {
            let here = c * width + at;
            let y = &mut cotangent[here..][..S::N];
            let mut dy = s.mul(w, s.load(y));
            if is_low_rank {
                dy = s.fma(a, du[c], dy);
                sum = s.fma(s.load(&before[here..]), du[c], sum);
            }
            s.store(dy, y);
        }
        if is_low_rank {
            s.store(sum, &mut sums[(R - 2) * width + at..]);
        }
        at += S::N;
    }
    of_values
}
