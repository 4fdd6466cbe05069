//! The kernels of GEMM: every bit of every element, and no access out of bounds.

use crate::common::*;
use retrograd_tensor::internals::{Partition, Problem, b_in_place};
use retrograd_tensor::kernels::gemm::{Gemm, GemmKernel, Products, gemm};
use retrograd_tensor::matrix::{MatMut, MatRef};
use retrograd_tensor::settings::with_level;
use retrograd_tensor::simd::Level;
use retrograd_tensor::{MatmulPrecision, Real, Tensor, with_threads};

/// The memory order of a matrix.
#[derive(Clone, Copy, Debug)]
pub enum Order {
    Rows,
    Columns,
    /// Rows with gaps, from the last to the first.
    Backwards,
    /// Every other column.
    Sparse,
}
use Order::*;

/// The number of elements that a matrix in this order spans.
fn span(order: Order, rows: usize, cols: usize) -> usize {
    match order {
        Rows | Columns => rows * cols,
        Backwards => (rows.max(1) - 1) * (cols + 3) + cols,
        Sparse => (rows * cols * 2).saturating_sub(1),
    }
}

fn matrix<T>(order: Order, data: &[T], rows: usize, cols: usize) -> MatRef<'_, T> {
    let (offset, row_stride, col_stride) = match order {
        Rows => (0, cols as isize, 1),
        Columns => (0, 1, rows as isize),
        Backwards => ((rows.max(1) - 1) * (cols + 3), -(cols as isize + 3), 1),
        Sparse => (0, 2 * cols as isize, 2),
    };
    MatRef { data, offset, rows, cols, row_stride, col_stride }
}

/// An element type, and its multiply-add with one rounding.
trait Fused: Real {
    const MUL_ADD: fn(Self, Self, Self) -> Self;
}

impl Fused for f32 {
    const MUL_ADD: fn(f32, f32, f32) -> f32 = f32::mul_add;
}

impl Fused for f64 {
    const MUL_ADD: fn(f64, f64, f64) -> f64 = f64::mul_add;
}

/// A product by the definition: sequential multiply-adds in each block of `K`, blocks in order. They are fused
/// except in portable code.
fn by_definition<T: Fused>(
    level: Level,
    (a, b): (MatRef<'_, T>, MatRef<'_, T>),
    old: Option<&Tensor<T>>,
) -> Tensor<T> {
    let depth = with_level(level, || T::kc(a.cols)).expect("known for our kernels");
    let add: fn(T, T, T) -> T = match level {
        level if !level.is_fused() => |x, y, sum| x * y + sum,
        _ => T::MUL_ADD,
    };
    let terms: Vec<usize> = (0..a.cols).collect();
    Tensor::from_fn([a.rows, b.cols], |index| {
        let (i, j) = (index[0], index[1]);
        let term = |sum, &p: &usize| add(a.at(i, p), b.at(p, j), sum);
        let sum = |terms: &[usize]| terms.iter().fold(T::ZERO, term);
        let blocks = old.map(|old| old.at(index)).into_iter().chain(terms.chunks(depth).map(sum));
        blocks.reduce(|x, y| x + y).unwrap_or(T::ZERO)
    })
}

/// The levels with kernels of this library.
fn own<T: Gemm>() -> impl Iterator<Item = Level> {
    Level::available().into_iter().filter(|&l| with_level(l, || T::kc(1)).is_some())
}

/// Every element of a product, in both types and at every level with kernels of this library, has the bits of the
/// definition, for all sizes, strides and previous contents of the output; only the product is written.
fn check_bits(sizes: (usize, usize, usize), orders: (Order, Order), add: bool) {
    check_bits_of::<f32>(sizes, orders, add);
    check_bits_of::<f64>(sizes, orders, add);
}

fn check_bits_of<T: Fused>((m, k, n): (usize, usize, usize), orders: (Order, Order), add: bool) {
    let mut rng = Rng((m * 1000 + k * 7 + n) as u64);
    let a = rng.normals(&[span(orders.0, m, k)]).to_vec();
    let b = rng.normals(&[span(orders.1, k, n)]).to_vec();
    let old = rng.normals::<T>(&[m, n + 2]);
    let (a, b) = (matrix(orders.0, &a, m, k), matrix(orders.1, &b, k, n));
    for level in own::<T>() {
        let mut out = old.to_vec();
        let mut whole = MatMut::new(&mut out, m, n + 2);
        with_level(level, || T::gemm(a, b, add, whole.part(0..m, 1..n + 1)));
        let inner = old.narrow(1, 1, n);
        let product = by_definition(level, (a, b), add.then_some(&inner));
        let what = format!("{level}: {m}x{k}x{n} {orders:?} add {add}");
        let want = old.slice_assign((.., 1..n + 1), &product);
        same(&what, &Tensor::from_vec(out, [m, n + 2]), &want);
    }
}

#[test]
fn bits_are_those_of_the_definition() {
    let orders = [Rows, Columns, Backwards, Sparse];
    for m in [0, 1, 2, 3, 4, 5, 6, 7, 12, 13, 23, 24, 25, 31] {
        for n in [0, 1, 15, 16, 17, 31, 33, 48, 63, 64, 65, 79, 80, 81, 96, 128, 130, 145] {
            let k = [1, 7, 16, 33][(m + n) % 4];
            check_bits((m, k, n), (orders[m % 4], orders[n % 4]), (m + n) % 3 == 0);
        }
    }
    for (i, a) in orders.into_iter().enumerate() {
        for (j, b) in orders.into_iter().enumerate() {
            check_bits((29, 37, 83), (a, b), (i + j) % 2 == 0);
        }
    }
}

#[test]
fn bits_of_products_larger_than_a_block() {
    for k in [0, 511, 512, 513, 1024, 1025, 1600] {
        check_bits((7, k, 19), (Rows, Columns), k % 2 == 0);
        check_bits((25, k, 65), (Columns, Rows), k % 2 == 1);
        check_bits((1, k, 83), (Rows, Columns), k % 2 == 1);
    }
    // Short sums, along rows of a large product.
    check_bits_of::<f32>((251, 3, 2100), (Rows, Backwards), true);
    check_bits_of::<f32>((277, 9, 2100), (Columns, Rows), false);
    check_bits_of::<f64>((275, 2, 2100), (Columns, Columns), true);
    // A few rows, and a B that comes from memory.
    for m in 1..=4 {
        check_bits_of::<f32>((m, 2049 + m, 2055), (Columns, Rows), m % 2 == 0);
    }
    check_bits_of::<f64>((3, 2100, 2001), (Rows, Rows), true);
    // More rows and columns than a block has.
    check_bits((245, 9, 70), (Columns, Rows), false);
    check_bits((490, 20, 130), (Columns, Rows), true);
    check_bits((250, 600, 129), (Columns, Rows), false);
    // On both sides of the thresholds for packing: few rows, rows close together.
    for (m, n) in [(127, 96), (129, 96), (511, 80), (513, 80), (64, 528)] {
        check_bits((m, 70, n), (Rows, Rows), m % 2 == 0);
    }
    check_bits((121, 5, 1030), (Rows, Columns), false);
    check_bits((3, 5, 1100), (Rows, Rows), true);
}

/// Contiguous columns and few rows, skinny and packed; whole and partial vectors, more than one
/// block of the sum.
#[test]
fn bits_of_skinny_products() {
    for m in 1..=9 {
        check_bits((m, 15 + m, 30 + m), (Rows, Columns), m % 2 == 0);
        check_bits((m, 530, 490 + 2 * m), (Rows, Columns), m % 2 == 1);
        check_bits((m, 600, 440), (Columns, Columns), m % 3 == 0);
        check_bits((m, 8300, 31 + m), (Sparse, Columns), false);
    }
}

/// For every partition: rows, columns, and split-K.
#[test]
fn bits_do_not_depend_on_threads() {
    let levels = Level::available();
    levels.iter().for_each(|&level| check_threads::<f32>(level));
    check_threads::<f64>(levels[levels.len() - 1]);
}

fn check_threads<T: Real>(level: Level) {
    let mut rng = Rng(5);
    let shapes = [
        (512, 256, 512),
        (768, 128, 65),
        (48, 9000, 32),
        (16, 40_000, 8),
        (1, 700, 5000),
        (5, 700, 3000),
        (3000, 9, 2000),
        (8, 384, 1152),
        // More elements than one chunk of additions.
        (160, 4096, 160),
    ];
    for (m, k, n) in shapes {
        let [a, b] = [m * k, k * n].map(|n| rng.normals::<T>(&[n]).to_vec());
        let product = Products::one(matrix(Rows, &a, m, k), matrix(Columns, &b, k, n));
        for add in [false, true] {
            let multiply = |threads| {
                let mut out = vec![T::from_f64(0.5); m * n];
                with_level(level, || with_threads(threads, || gemm(&product, add, &mut out)));
                out
            };
            let one = multiply(1);
            for threads in [2, 3, 5, 8] {
                let same = |(x, y): (&T, T)| x.to_f64().to_bits() == y.to_f64().to_bits();
                let all = one.iter().zip(multiply(threads)).all(same);
                assert!(all, "{level}: {m}x{k}x{n}, {threads} threads");
            }
        }
    }
}

/// Products in a batch have the bits of single products: all kernels, broadcast and transposed operands,
/// columns, several threads.
#[test]
fn products_of_a_batch_are_products() {
    check_batches::<f32>();
    check_batches::<f64>();
}

fn check_batches<T: Real>() {
    let mut rng = Rng(8);
    let at = |x: &Tensor<T>, i: usize| x.select(0, i / 3).select(0, i % 3);
    for (m, k, n) in
        [(4, 4, 4), (16, 16, 16), (7, 5, 1), (33, 20, 31), (3, 40, 600), (1, 20, 70), (2, 0, 3)]
    {
        let a: Tensor<T> = rng.normals(&[90, 3, m, k]);
        for b in [rng.normals(&[3, k, n]), rng.normals(&[90, 1, n, k]).transpose(-1, -2)] {
            let all_b = b.broadcast_to([90, 3, k, n]);
            for level in Level::available() {
                let all = with_level(level, || with_threads(3, || a.matmul(&b)));
                for i in 0..270 {
                    let one = with_level(level, || at(&a, i).matmul(&at(&all_b, i)));
                    same(&format!("{level}: {m}x{k}x{n}"), &at(&all, i), &one);
                }
            }
        }
    }
}

/// Half of a symmetric product, mirrored, has the bits of the whole one.
#[test]
fn symmetric_products_have_the_bits_of_whole_ones() {
    check_symmetric::<f32>();
    check_symmetric::<f64>();
}

fn check_symmetric<T: Real>() {
    let mut rng = Rng(9);
    for (n, k) in [(3, 5), (127, 9), (128, 530), (200, 70), (333, 1)] {
        let x: Tensor<T> = rng.normals(&[n, k]);
        let check = |what: &str, threads| {
            let gram = with_threads(threads, || x.symmetric_matmul(&x.t()));
            same(what, &gram, &x.matmul(&x.t()));
            let square = with_threads(threads, || gram.symmetric_matmul(&gram));
            same(what, &square, &gram.matmul(&gram));
        };
        for level in Level::available() {
            for threads in [1, 3] {
                with_level(level, || check(&format!("{level}, {threads} threads"), threads));
            }
        }
    }
}

/// Infinities, NaN and subnormal numbers give the results of the definition.
#[test]
fn special_values_propagate_as_in_the_definition() {
    let mut rng = Rng(6);
    let (m, k, n) = (13, 9, 37);
    for _ in 0..50 {
        let a = rng.adversarial_values(&[m * k]).to_vec();
        let b = rng.adversarial_values(&[k * n]).to_vec();
        let (a, b) = (matrix(Rows, &a, m, k), matrix(Columns, &b, k, n));
        for level in own::<f32>() {
            let mut out = vec![0.0; m * n];
            with_level(level, || f32::gemm(a, b, false, MatMut::new(&mut out, m, n)));
            let want = by_definition(level, (a, b), None);
            same(level.name(), &Tensor::from_vec(out, [m, n]), &want);
        }
    }
}

/// Operands and results at the ends of mapped memory, for every length of a tail.
#[cfg(unix)]
#[test]
fn no_access_is_out_of_bounds() {
    fn check<T: Real>() {
        let sizes = (0..=130usize).flat_map(|tail| {
            let few = [1, 2, 3, 8].into_iter().flat_map(move |m| [(m, tail, 37), (m, 35, tail)]);
            // Long rows, which are packed, at every 26th tail.
            let long = [(7, 70, 513 + tail)].into_iter().filter(move |_| tail.is_multiple_of(26));
            [(tail, 5, 70), (13, tail, 17), (7, 19, tail)].into_iter().chain(few).chain(long)
        });
        let orders = [(Rows, Rows), (Columns, Columns), (Rows, Columns), (Backwards, Sparse)];
        check_bounds::<T, _>(sizes, &orders, &Level::available(), |level, a, b, out| {
            let out = MatMut::new(out, a.rows, b.cols);
            with_level(level, || T::gemm(a, b, false, out));
        });
    }
    check::<f32>();
    check::<f64>();
}

/// Products of small integers, which are exact in any order of additions.
#[cfg(unix)]
pub fn check_bounds<T: Real, W: Copy + std::fmt::Display>(
    sizes: impl Iterator<Item = (usize, usize, usize)>,
    orders: &[(Order, Order)],
    ways: &[W],
    multiply: impl Fn(W, MatRef<'_, T>, MatRef<'_, T>, &mut [T]),
) {
    let mut pages = [(); 3].map(|()| guard::Guarded::new(320));
    let mut rng = Rng(7);
    for (m, k, n) in sizes {
        for (at_end, &orders) in
            [true, false].iter().flat_map(|e| orders.iter().map(move |o| (e, o)))
        {
            let [a, b, out] = &mut pages;
            let a = a.slice::<T>(span(orders.0, m, k), *at_end);
            let b = b.slice::<T>(span(orders.1, k, n), *at_end);
            let out = out.slice::<T>(m * n, *at_end);
            let mut number = || T::from_f64(rng.below(7) as f64 - 3.0);
            a.iter_mut().chain(&mut *b).for_each(|x| *x = number());
            let (a, b) = (matrix(orders.0, a, m, k), matrix(orders.1, b, k, n));
            for &way in ways {
                multiply(way, a, b, out);
                let want = |i, j| (0..k).map(|p| a.at(i, p) * b.at(p, j)).sum::<T>();
                for (x, i) in out.iter().zip(0..) {
                    assert_eq!(*x, want(i / n, i % n), "{way} {m}x{k}x{n} {orders:?}");
                }
            }
        }
    }
}

/// A product of `f32` matrices with contiguous rows.
fn problem([m, k, n]: [usize; 3]) -> Problem {
    let sizes = |rows, cols| matrix(Rows, &[], rows, cols);
    Problem::new::<f32>(&sizes(m, k), &sizes(k, n), Some(512), MatmulPrecision::F32)
}

#[test]
fn large_products_are_balanced_between_threads() {
    // A few blocks per thread, of equal sizes.
    let shapes = [[4096, 384, 1152], [1024, 1024, 1024], [768, 128, 512], [768, 512, 128]];
    for shape in shapes {
        for threads in [2, 4, 8] {
            let Partition::Blocks { rows, cols } = problem(shape).partition(threads) else {
                panic!("{shape:?} by split-K")
            };
            let blocks = shape[0].div_ceil(rows) * shape[2].div_ceil(cols);
            assert_eq!(blocks % threads, 0, "{shape:?} by {rows} x {cols}");
            let share = shape[0] * shape[2] / threads;
            let most = blocks / threads * rows * cols;
            assert!(most * 10 < share * 11, "{shape:?} by {rows} x {cols}, {threads} threads");
        }
    }
}

#[test]
fn shares_are_those_of_the_tasks() {
    for (shape, threads) in [([4096, 384, 1152], 2), ([65, 16384, 64], 2), ([7, 5, 3], 64)] {
        let p = problem(shape);
        let shares = p.shares(threads);
        let tasks = match p.partition(threads) {
            Partition::Blocks { rows, cols } => {
                vec![shape[0].div_ceil(rows) * shape[2].div_ceil(cols)]
            }
            Partition::SplitK { depth } => vec![shape[1].div_ceil(depth), 1],
        };
        assert_eq!(shares.iter().map(Vec::len).collect::<Vec<_>>(), tasks, "{shape:?}");
        // Every task has an overhead of its own, and the whole has one.
        let all: f64 = shares[0].iter().sum();
        let most = if shape[1] < 100 { 2.0 } else { 1.3 };
        let is_small = cfg!(target_arch = "wasm32") && shape[1] < 100; // tiles of two rows
        assert!(is_small || (1.0..most).contains(&all), "{shape:?}: {all}");
    }
    assert_eq!(problem([600, 500, 400]).shares(1).len(), 1);
}

#[test]
fn small_products_with_long_sums_use_split_k() {
    assert_eq!(problem([65, 16384, 64]).partition(2), Partition::SplitK { depth: 512 });
    assert_eq!(problem([16, 16384, 16]).partition(4), Partition::SplitK { depth: 512 });
    assert!(matches!(problem([160, 4096, 160]).partition(8), Partition::SplitK { .. }));
    assert!(matches!(problem([16, 512, 16]).partition(4), Partition::Blocks { .. }));
}

#[test]
fn split_k_never_takes_much_memory() {
    for (m, n) in [(1024, 1024), (384, 1152), (2048, 2048), (4096, 4096)] {
        for k in [4096, 65536] {
            for threads in [2, 3, 8, 64] {
                let p = problem([m, k, n]).partition(threads);
                assert!(matches!(p, Partition::Blocks { .. }), "{m} x {k} x {n}: {p:?}");
            }
        }
    }
}

#[test]
fn the_smallest_products_have_a_block() {
    for shape in [[1, 0, 1], [1, 5000, 1], [1, 64, 4096], [4096, 64, 1], [5, 700, 3]] {
        for threads in [1, 2, 3, 64] {
            if let Partition::Blocks { rows, cols } = problem(shape).partition(threads) {
                assert!((1..=shape[0]).contains(&rows) && (1..=shape[2]).contains(&cols));
            }
        }
    }
}

/// Whether `b` `[k, n]` with rows `distance` apart is read in place by tiles of four vectors.
fn in_place(m: usize, k: usize, n: usize, distance: usize) -> bool {
    let (a, b) = (vec![0.0; m * k], vec![0.0; k * distance]);
    let b = MatRef { cols: n, row_stride: distance as isize, ..MatRef::new(&b, k, distance) };
    b_in_place::<f32, 4>(&MatRef::new(&a, m, k), &b)
}

#[test]
fn panels_that_exceed_their_cache_sets_are_packed() {
    for (m, k, distance, expected) in [
        (512, 384, 384, true),
        (512, 504, 504, true),
        (512, 512, 512, false), // 16 lines per set of L2
        (256, 512, 512, false),
        (256, 256, 256, true),
        (512, 128, 512, true),                        // 4 lines per set
        (6, 512, 512, !cfg!(target_arch = "wasm32")), // every element is read once by the tile
        (516, 384, 384, false),
        (512, 512, 520, false), // rows are too far apart
        (4096, 32, 512, false), // 16 lines per set of L1
        (4096, 16, 512, true),
        (4096, 64, 520, true),
    ] {
        assert_eq!(in_place(m, k, 384.min(distance), distance), expected, "{m} {k} {distance}");
    }
}

#[test]
fn few_rows_and_contiguous_columns_are_suitable() {
    let data = [0.0; 9 * 64 + 64 * 32];
    let is_skinny = |a: Order, b: Order, (m, k): (usize, usize)| {
        let (a, b) = (matrix(a, &data, m, k), matrix(b, &data, k, 32));
        f32::kernel(&a, &b, MatmulPrecision::F32) == GemmKernel::Skinny
    };
    for level in fused() {
        with_level(level, || {
            assert!(is_skinny(Rows, Columns, (1, 64)) && is_skinny(Rows, Columns, (8, 64)));
            assert!(!is_skinny(Rows, Columns, (9, 64)), "{level}: many rows");
            assert!(!is_skinny(Rows, Rows, (1, 64)), "{level}: contiguous rows of b");
            assert!(!is_skinny(Columns, Columns, (8, 64)), "{level}: contiguous columns of a");
            assert!(!is_skinny(Rows, Columns, (1, 15)), "{level}: nothing to transpose");
        });
    }
}
