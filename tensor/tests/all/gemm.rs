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
enum Order {
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
    fn fused(x: Self, y: Self, sum: Self) -> Self;
}

impl Fused for f32 {
    fn fused(x: f32, y: f32, sum: f32) -> f32 {
        x.mul_add(y, sum)
    }
}

impl Fused for f64 {
    fn fused(x: f64, y: f64, sum: f64) -> f64 {
        x.mul_add(y, sum)
    }
}

/// One element by the definition: sequential multiply-adds in each block of `K`, blocks in order. They are fused
/// except in portable code.
fn by_definition<T: Fused>(
    level: Level,
    (a, b): (&MatRef<'_, T>, &MatRef<'_, T>),
    old: Option<T>,
    (i, j): (usize, usize),
) -> T {
    let depth = with_level(level, || T::kc(a.cols)).expect("known for our kernels");
    let add = |sum, p| match level {
        Level::Scalar => a.at(i, p) * b.at(p, j) + sum,
        _ => T::fused(a.at(i, p), b.at(p, j), sum),
    };
    let terms: Vec<usize> = (0..a.cols).collect();
    let blocks = terms.chunks(depth).map(|block| block.iter().fold(T::ZERO, |sum, &p| add(sum, p)));
    old.into_iter().chain(blocks).reduce(|x, y| x + y).unwrap_or(T::ZERO)
}

/// The levels with kernels of this library.
fn own<T: Gemm>() -> impl Iterator<Item = Level> {
    Level::available().into_iter().filter(|&l| with_level(l, || T::kc(1)).is_some())
}

fn fused() -> impl Iterator<Item = Level> {
    Level::available().into_iter().filter(|&l| l != Level::Scalar)
}

fn normals<T: Real>(rng: &mut Rng, n: usize) -> Vec<T> {
    (0..n).map(|_| T::from_f64(rng.normal())).collect()
}

/// Whether two numbers are equal, zeros with their signs.
fn is_same<T: Real>(x: T, y: T) -> bool {
    x.to_f64().to_bits() == y.to_f64().to_bits()
}

/// Every element of a product, in both types and at every level with kernels of this library, has the bits of the
/// definition, for all sizes, strides and previous contents of the output; only the product is written.
fn check_bits(sizes: (usize, usize, usize), orders: (Order, Order), add: bool) {
    check_bits_of::<f32>(sizes, orders, add);
    check_bits_of::<f64>(sizes, orders, add);
}

fn check_bits_of<T: Fused>((m, k, n): (usize, usize, usize), orders: (Order, Order), add: bool) {
    let mut rng = Rng((m * 1000 + k * 7 + n) as u64);
    let a: Vec<T> = normals(&mut rng, span(orders.0, m, k));
    let b: Vec<T> = normals(&mut rng, span(orders.1, k, n));
    let old: Vec<T> = normals(&mut rng, m * (n + 2));
    let (a, b) = (matrix(orders.0, &a, m, k), matrix(orders.1, &b, k, n));
    for level in own::<T>() {
        let mut out = old.clone();
        let mut whole = MatMut::new(&mut out, m, n + 2);
        with_level(level, || T::gemm(a, b, add, whole.part(0..m, 1..n + 1)));
        for i in 0..m {
            for j in 0..n + 2 {
                let old = old[i * (n + 2) + j];
                let want = match j {
                    _ if j == 0 || j == n + 1 => old,
                    _ => by_definition(level, (&a, &b), add.then_some(old), (i, j - 1)),
                };
                let got = out[i * (n + 2) + j];
                assert!(
                    is_same(got, want),
                    "{level}: {m}x{k}x{n} {orders:?} add {add}: ({i}, {j}) is {got}, not {want}"
                );
            }
        }
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
    check_threads::<f32>(fused().last().unwrap_or(Level::Scalar));
    check_threads::<f64>(fused().last().unwrap_or(Level::Scalar));
    check_threads::<f32>(Level::Scalar);
}

fn check_threads<T: Fused>(level: Level) {
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
    ];
    for (m, k, n) in shapes {
        let (a, b): (Vec<T>, Vec<T>) = (normals(&mut rng, m * k), normals(&mut rng, k * n));
        let product = Products::one(matrix(Rows, &a, m, k), matrix(Columns, &b, k, n));
        let multiply = |threads, add| {
            let mut out = vec![T::from_f64(0.5); m * n];
            with_level(level, || with_threads(threads, || gemm(&product, add, &mut out)));
            out
        };
        for add in [false, true] {
            let one = multiply(1, add);
            for threads in [2, 3, 5, 8] {
                let others = multiply(threads, add);
                let same = one.iter().zip(&others).all(|(&x, &y)| is_same(x, y));
                assert!(same, "{level}: {m}x{k}x{n}, {threads} threads");
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

fn check_batches<T: Fused>() {
    let mut rng = Rng(8);
    for (m, k, n) in
        [(4, 4, 4), (16, 16, 16), (7, 5, 1), (33, 20, 31), (3, 40, 600), (1, 20, 70), (2, 0, 3)]
    {
        let a: Tensor<T> = rng.normals(&[90, 3, m, k]);
        let (b, row) = (rng.normals(&[3, k, n]), rng.normals(&[90, 1, n, k]));
        for level in Level::available() {
            let check = |a: &Tensor<T>, b: &Tensor<T>, at: &dyn Fn(usize, usize) -> Tensor<T>| {
                let all = with_level(level, || with_threads(3, || a.matmul(b)));
                for (i, j) in (0..90).flat_map(|i| (0..3).map(move |j| (i, j))) {
                    let one = with_level(level, || a.select(0, i).select(0, j).matmul(&at(i, j)));
                    let same = all.select(0, i).select(0, j).to_vec().into_iter().zip(one.to_vec());
                    assert!(same.into_iter().all(|(x, y)| is_same(x, y)), "{level}: {m}x{k}x{n}");
                }
            };
            check(&a, &b, &|_, j| b.select(0, j));
            check(&a, &row.transpose(-1, -2), &|i, _| row.select(0, i).select(0, 0).t());
        }
    }
}

/// Half of a symmetric product, mirrored, has the bits of the whole one.
#[test]
fn symmetric_products_have_the_bits_of_whole_ones() {
    fn check<T: Fused>() {
        let mut rng = Rng(9);
        for (n, k) in [(3, 5), (127, 9), (128, 530), (200, 70), (333, 1)] {
            let x: Tensor<T> = rng.normals(&[n, k]);
            for level in Level::available() {
                for threads in [1, 3] {
                    let [half, whole] = with_level(level, || {
                        let gram = with_threads(threads, || x.symmetric_matmul(&x.t()));
                        let square = with_threads(threads, || gram.symmetric_matmul(&gram));
                        let all = x.matmul(&x.t());
                        [
                            [gram, square].map(|x| x.to_vec()),
                            [all.clone(), all.matmul(&all)].map(|x| x.to_vec()),
                        ]
                    });
                    let same =
                        half.concat().into_iter().zip(whole.concat()).all(|(x, y)| is_same(x, y));
                    assert!(same, "{level}: {n}x{k}, {threads} threads");
                }
            }
        }
    }
    check::<f32>();
    check::<f64>();
}

/// Partial products of more elements than one chunk of additions, with every fused level.
#[test]
fn split_k_has_the_bits_of_one_thread() {
    let [m, k, n] = [160, 4096, 160];
    assert!(matches!(problem([m, k, n]).partition(8), Partition::SplitK { .. }));
    let mut rng = Rng(1);
    let (a, b) = (normals::<f32>(&mut rng, m * k), normals(&mut rng, k * n));
    let pair = Products::one(matrix(Rows, &a, m, k), matrix(Rows, &b, k, n));
    for level in own::<f32>() {
        for add in [false, true] {
            let product = |threads| {
                let mut out = vec![0.5f32; m * n];
                with_level(level, || with_threads(threads, || gemm(&pair, add, &mut out)));
                out
            };
            assert_eq!(product(1), product(8), "{level}, accumulate {add}");
        }
    }
}

/// Infinities, NaN and subnormal numbers give the results of the definition.
#[test]
fn special_values_propagate_as_in_the_definition() {
    let mut rng = Rng(6);
    let (m, k, n) = (13, 9, 37);
    for _ in 0..50 {
        let a: Vec<f32> = (0..m * k).map(|_| rng.adversarial() as f32).collect();
        let b: Vec<f32> = (0..k * n).map(|_| rng.adversarial() as f32).collect();
        let (a, b) = (matrix(Rows, &a, m, k), matrix(Columns, &b, k, n));
        for level in own::<f32>() {
            let mut out = vec![0.0; m * n];
            with_level(level, || f32::gemm(a, b, false, MatMut::new(&mut out, m, n)));
            for (at, &got) in out.iter().enumerate() {
                let want = by_definition(level, (&a, &b), None, (at / n, at % n));
                let same = got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan();
                assert!(same, "{level}: {got}, not {want}");
            }
        }
    }
}

/// Operands and results at the ends of mapped memory, for every length of a tail.
#[cfg(unix)]
#[test]
fn no_access_is_out_of_bounds() {
    check_bounds::<f32>();
    check_bounds::<f64>();
}

#[cfg(unix)]
fn check_bounds<T: Fused>() {
    use crate::common::guard::Guarded;
    let mut pages = [(); 3].map(|()| Guarded::new(320));
    let mut rng = Rng(7);
    for tail in 0..=130usize {
        let few = [1, 2, 3, 8].into_iter().flat_map(|m| [(m, tail, 37), (m, 35, tail)]);
        // Long rows, which are packed, at every 26th tail.
        let long = [(7, 70, 513 + tail)].into_iter().filter(|_| tail.is_multiple_of(26));
        let some = [(tail, 5, 70), (13, tail, 17), (7, 19, tail)].into_iter();
        for (m, k, n) in some.chain(few).chain(long) {
            for at_end in [true, false] {
                let orders =
                    [(Rows, Rows), (Columns, Columns), (Rows, Columns), (Backwards, Sparse)];
                for orders in orders {
                    let [a, b, out] = &mut pages;
                    let a = a.slice::<T>(span(orders.0, m, k), at_end);
                    let b = b.slice::<T>(span(orders.1, k, n), at_end);
                    let out = out.slice::<T>(m * n, at_end);
                    a.iter_mut()
                        .chain(&mut *b)
                        .for_each(|x| *x = T::from_f64(rng.below(7) as f64 - 3.0));
                    let (a, b) = (matrix(orders.0, a, m, k), matrix(orders.1, b, k, n));
                    for level in Level::available() {
                        with_level(level, || T::gemm(a, b, false, MatMut::new(out, m, n)));
                        // Small integers: exact in any order.
                        let want = |i, j| (0..k).map(|p| a.at(i, p) * b.at(p, j)).sum::<T>();
                        for (x, i) in out.iter().zip(0..) {
                            assert_eq!(*x, want(i / n, i % n), "{level} {m}x{k}x{n} {orders:?}");
                        }
                    }
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
        assert!((1.0..most).contains(&all), "{shape:?}: {all}");
    }
    assert_eq!(problem([600, 500, 400]).shares(1).len(), 1);
}

#[test]
fn small_products_with_long_sums_use_split_k() {
    assert_eq!(problem([65, 16384, 64]).partition(2), Partition::SplitK { depth: 512 });
    assert_eq!(problem([16, 16384, 16]).partition(4), Partition::SplitK { depth: 512 });
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
        (512, 128, 512, true), // 4 lines per set
        (6, 512, 512, true),   // every element is read once
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
