//! `c = a · b` for square matrices: `2 n³` operations on `3 n²` numbers. The FMA peak is the limit
//! if operands reach the registers in time. Every rung reduces stalls on loads and stores.

use crate::ladder::{Bound, Ladder, Rung};
use retrograd::prelude::{Rng, Tensor};
use retrograd::tensor::Real;
use retrograd::tensor::cost::Cost;
use retrograd::tensor::par;
use retrograd::tensor::settings::{level, with_level};
use retrograd::tensor::simd::{F32_LANES, Kernel, Lanes, Level};

/// KC: the rows of a block of `b`, which stays in a cache while all rows of `a` are multiplied by
/// it.
const KC: usize = 96;

pub fn ladder(n: usize) -> Ladder {
    assert!(n.is_multiple_of(96), "n must be a multiple of 96: there is no code for edge tiles");
    let mut rng = Rng::new(1);
    let (a, b) = (Tensor::randn([n, n], &mut rng), Tensor::randn([n, n], &mut rng));
    let rung = |name, what, f: fn(&[f32], &[f32], usize, &mut [f32])| {
        let (a, b) = (a.to_vec(), b.to_vec());
        Rung::new(name, what, move |c| {
            c.fill(0.0);
            f(&a, &b, n, c);
        })
    };
    let product = |name, what, level: Level| {
        let (a, b) = (a.clone(), b.clone());
        Rung::ours(name, what, move || with_level(level, || a.matmul(&b)))
    };
    Ladder {
        title: format!("matmul, {n} x {n} by {n} x {n}"),
        bound: Bound::Flops(2.0 * (n * n * n) as f64),
        outputs: n * n,
        rungs: vec![
            rung("naive", "every element is a row times a column, with strided access to b", naive),
            rung("reordered", "the innermost loop runs along rows of b and c", reordered),
            rung("blocked", "a block of b stays in the cache for all rows of a", blocked),
            rung(
                "vectorised",
                "vectors of 16 lanes, FMA; c is loaded and stored at every step",
                vectorised,
            ),
            rung("tiled", "micro-kernel: a tile of c stays in registers for a whole block", tiled),
            rung(
                "packed",
                "a and b are copied to the order in which the micro-kernel reads them",
                packed,
            ),
            rung("threaded", "rows of c are distributed over all threads", threaded).threaded(),
            product(
                "ours",
                "this library: reads operands in place or packs them, by size and strides",
                level(),
            ),
            product(
                "portable",
                "this library with the instructions of all CPUs only",
                Level::Scalar,
            ),
        ],
    }
}

fn naive(a: &[f32], b: &[f32], n: usize, c: &mut [f32]) {
    for i in 0..n {
        for j in 0..n {
            for k in 0..n {
                c[i * n + j] += a[i * n + k] * b[k * n + j];
            }
        }
    }
}

/// The same sums in another order. The compiler vectorises the inner loop for the baseline
/// instruction set (SSE2, NEON): 4 lanes.
fn reordered(a: &[f32], b: &[f32], n: usize, c: &mut [f32]) {
    for (a, c) in a.chunks_exact(n).zip(c.chunks_exact_mut(n)) {
        for (&x, b) in a.iter().zip(b.chunks_exact(n)) {
            for (c, &y) in c.iter_mut().zip(b) {
                *c += x * y;
            }
        }
    }
}

/// All rows of `a` are multiplied by a block of `b` while it is in the cache.
fn blocked(a: &[f32], b: &[f32], n: usize, c: &mut [f32]) {
    for (at, b) in b.chunks_exact(KC * n).enumerate() {
        for (a, c) in a.chunks_exact(n).zip(c.chunks_exact_mut(n)) {
            for (&x, b) in a[at * KC..][..KC].iter().zip(b.chunks_exact(n)) {
                for (c, &y) in c.iter_mut().zip(b) {
                    *c += x * y;
                }
            }
        }
    }
}

/// The widest vectors of the CPU. Each multiply-add still requires two loads and a store.
fn vectorised(a: &[f32], b: &[f32], n: usize, c: &mut [f32]) {
    f32::dispatch(level(), Vectorised { a, b, n, c });
}

struct Vectorised<'a> {
    a: &'a [f32],
    b: &'a [f32],
    n: usize,
    c: &'a mut [f32],
}

impl Kernel<f32> for Vectorised<'_> {
    type Out = ();
    #[inline(always)]
    fn run<S: Lanes<f32>>(self, s: S) {
        let Vectorised { a, b, n, c } = self;
        for (at, b) in b.chunks_exact(KC * n).enumerate() {
            for (a, c) in a.chunks_exact(n).zip(c.chunks_exact_mut(n)) {
                for (&x, b) in a[at * KC..][..KC].iter().zip(b.chunks_exact(n)) {
                    let x = s.splat(x);
                    for (c, y) in c.chunks_exact_mut(S::N).zip(b.chunks_exact(S::N)) {
                        s.store(s.fma(x, s.load(y), s.load(c)), c);
                    }
                }
            }
        }
    }
}

/// A tile of `c` of `ROWS` rows and `16 VECS` columns is accumulated in registers, by one rank-1
/// update for each `k`: `ROWS + VECS` loads, `ROWS · VECS` multiply-adds and no store.
fn tiled(a: &[f32], b: &[f32], n: usize, c: &mut [f32]) {
    match level() {
        Level::Avx512 => f32::dispatch(level(), Tiled::<12, 2> { a, b, n, c }),
        // AVX2 has 16 registers of 8 lanes: 12 are accumulators, the others hold operands.
        _ => f32::dispatch(level(), Tiled::<6, 1> { a, b, n, c }),
    }
}

struct Tiled<'a, const ROWS: usize, const VECS: usize> {
    a: &'a [f32],
    b: &'a [f32],
    n: usize,
    c: &'a mut [f32],
}

impl<const ROWS: usize, const VECS: usize> Kernel<f32> for Tiled<'_, ROWS, VECS> {
    type Out = ();
    #[inline(always)]
    fn run<S: Lanes<f32>>(self, s: S) {
        let Tiled { a, b, n, c } = self;
        for (at, b) in b.chunks_exact(KC * n).enumerate() {
            for (a, c) in a.chunks_exact(ROWS * n).zip(c.chunks_exact_mut(ROWS * n)) {
                let rows: [&[f32]; ROWS] = std::array::from_fn(|i| &a[i * n + at * KC..][..KC]);
                for j in (0..n).step_by(VECS * S::N) {
                    let mut sums = [[s.splat(0.0); VECS]; ROWS];
                    for (k, b) in b.chunks_exact(n).enumerate() {
                        let b = &b[j..];
                        let y: [S::V; VECS] = std::array::from_fn(|v| s.load(&b[v * S::N..]));
                        for i in 0..ROWS {
                            let x = s.splat(rows[i][k]);
                            for v in 0..VECS {
                                sums[i][v] = s.fma(x, y[v], sums[i][v]);
                            }
                        }
                    }
                    add_to(s, sums, &mut c[j..], n);
                }
            }
        }
    }
}

/// Adds a tile to `c`, whose rows are `n` numbers apart.
#[inline(always)]
fn add_to<S: Lanes<f32>, const ROWS: usize, const VECS: usize>(
    s: S,
    sums: [[S::V; VECS]; ROWS],
    c: &mut [f32],
    n: usize,
) {
    for i in 0..ROWS {
        for v in 0..VECS {
            let c = &mut c[i * n + v * S::N..];
            s.store(s.add(s.load(c), sums[i][v]), c);
        }
    }
}

/// Blocks of `a` and `b` are packed. Unpacked rows of `b` are `n` elements apart, on different
/// pages and (if `n` has a large power of two as a factor) in few sets of the cache; packed panels,
/// one tile wide, are read sequentially.
fn packed(a: &[f32], b: &[f32], n: usize, c: &mut [f32]) {
    match level() {
        Level::Avx512 => packed_tiles::<12, 2>(a, b, n, c),
        _ => packed_tiles::<6, 1>(a, b, n, c),
    }
}

fn packed_tiles<const ROWS: usize, const VECS: usize>(
    a: &[f32],
    b: &[f32],
    n: usize,
    c: &mut [f32],
) {
    let width = VECS * F32_LANES;
    let (mut left, mut right) = (vec![0.0; ROWS * KC], vec![0.0; KC * n]);
    for (at, b) in b.chunks_exact(KC * n).enumerate() {
        for (j, panel) in right.chunks_exact_mut(KC * width).enumerate() {
            for (panel, b) in panel.chunks_exact_mut(width).zip(b.chunks_exact(n)) {
                panel.copy_from_slice(&b[j * width..][..width]);
            }
        }
        for (a, c) in a.chunks_exact(ROWS * n).zip(c.chunks_exact_mut(ROWS * n)) {
            for (i, a) in a.chunks_exact(n).enumerate() {
                for (k, &x) in a[at * KC..][..KC].iter().enumerate() {
                    left[k * ROWS + i] = x;
                }
            }
            let (left, right) = (&left, &right);
            f32::dispatch(level(), Panels::<ROWS, VECS> { left, right, n, c });
        }
    }
}

/// The product of a packed panel of `ROWS` rows of `a` and all packed panels of `b`.
struct Panels<'a, const ROWS: usize, const VECS: usize> {
    left: &'a [f32],
    right: &'a [f32],
    n: usize,
    c: &'a mut [f32],
}

impl<const ROWS: usize, const VECS: usize> Kernel<f32> for Panels<'_, ROWS, VECS> {
    type Out = ();
    #[inline(always)]
    fn run<S: Lanes<f32>>(self, s: S) {
        let width = VECS * S::N;
        for (j, panel) in self.right.chunks_exact(KC * width).enumerate() {
            let mut sums = [[s.splat(0.0); VECS]; ROWS];
            for (x, y) in self.left.chunks_exact(ROWS).zip(panel.chunks_exact(width)) {
                let y: [S::V; VECS] = std::array::from_fn(|v| s.load(&y[v * S::N..]));
                for i in 0..ROWS {
                    let x = s.splat(x[i]);
                    for v in 0..VECS {
                        sums[i][v] = s.fma(x, y[v], sums[i][v]);
                    }
                }
            }
            add_to(s, sums, &mut self.c[j * width..], self.n);
        }
    }
}

/// Every thread computes some rows of `c`, and packs a copy of `b` of its own.
fn threaded(a: &[f32], b: &[f32], n: usize, c: &mut [f32]) {
    let rows = (n / par::threads()).next_multiple_of(12).min(n);
    let parallel = Cost(u32::MAX); // at any size
    par::fill(c, rows * n, parallel, |first, c| packed(&a[first..][..c.len()], b, n, c));
}
