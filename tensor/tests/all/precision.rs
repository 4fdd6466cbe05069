//! Matrix multiplication in split precision. On CPUs that do not support it, products must equal
//! those of `f32`.

use crate::common::{Rng, bits, same};
#[cfg(unix)]
use crate::gemm::{Order::*, check_bounds};
use retrograd_support::panics::catch;
use retrograd_tensor::MatmulPrecision::{self, Bf16, Bf16x3, Bf16x6, F32};
use retrograd_tensor::kernels::gemm::Gemm;
#[cfg(unix)]
use retrograd_tensor::kernels::gemm::{Products, gemm};
use retrograd_tensor::matrix::{MatMut, MatRef};
use retrograd_tensor::ops::activation::Gelu;
use retrograd_tensor::settings::with_level;
use retrograd_tensor::simd::Level;
use retrograd_tensor::{Tensor, matmul_precision, with_matmul_precision, with_threads};

const SPLIT: [MatmulPrecision; 3] = [Bf16x6, Bf16x3, Bf16];

/// Sizes around those of tiles, panels and blocks, and sums of more than one block.
const SIZES: [(usize, usize, usize); 9] = [
    (16, 16, 16),
    (32, 32, 32),
    (33, 31, 17),
    (47, 70, 48),
    (64, 128, 49),
    (130, 600, 130),
    (16, 1100, 40),
    (700, 40, 20),
    (20, 33, 1500),
];

fn random(dims: [usize; 2], seed: u64) -> Tensor<f32> {
    Rng(seed).normals(&dims)
}

/// The same matrix with contiguous rows, contiguous columns, and neither.
fn layouts(x: &Tensor<f32>) -> [Tensor<f32>; 3] {
    let columns = x.t().contiguous().t();
    let sparse = Tensor::stack(&[x, x], 2).select(2, 1);
    [x.clone(), columns, sparse]
}

fn product(precision: MatmulPrecision, a: &Tensor<f32>, b: &Tensor<f32>) -> Tensor<f32> {
    with_matmul_precision(precision, || a.matmul(b))
}

/// The nearest number with 8 significant bits, ties to even; subnormal numbers are 0.
fn rounded(x: f32) -> f32 {
    if x.abs() < f32::MIN_POSITIVE {
        return 0.0;
    }
    let bits = x.to_bits();
    f32::from_bits((bits + 0x7fff + (bits >> 16 & 1)) & 0xffff_0000)
}

/// One element by the definition of Intel's instruction, with the same order of additions.
fn by_definition(precision: MatmulPrecision, row: &[f32], column: &[f32]) -> f32 {
    let (terms, order): (usize, &[(usize, usize)]) = match precision {
        Bf16x6 => (3, &[(0, 2), (0, 1), (1, 1), (1, 0), (2, 0), (0, 0)]),
        Bf16x3 => (2, &[(0, 1), (0, 0), (1, 0)]),
        _ => (1, &[(0, 0)]),
    };
    let split = |x: Option<&f32>| {
        let mut rest = x.map_or(0.0, |&x| x);
        (0..terms).map(move |_| {
            let term = rounded(rest);
            rest -= term;
            term
        })
    };
    let block = |(row, column): (&[f32], &[f32])| {
        let mut sum = 0.0;
        for (row, column) in row.chunks(32).zip(column.chunks(32)) {
            let of = |x: &[f32], p: usize| split(x.get(p)).collect::<Vec<_>>();
            let pairs: Vec<_> = (0..32).map(|p| (of(row, p), of(column, p))).collect();
            for &(s, t) in order {
                let chain = |half: &[(Vec<f32>, Vec<f32>)]| {
                    half.iter().fold(0.0f32, |sum, (a, b)| a[s].mul_add(b[t], sum))
                };
                sum += chain(&pairs[..16]) + chain(&pairs[16..]);
            }
        }
        sum
    };
    let k = row.len();
    let depth = k.div_ceil(k.div_ceil(512));
    row.chunks(depth).zip(column.chunks(depth)).map(block).reduce(|x, y| x + y).unwrap_or(0.0)
}

#[test]
fn bits_are_those_of_the_definition() {
    for (i, (m, k, n)) in SIZES.into_iter().enumerate() {
        let (a, b) = (random([m, k], i as u64), random([k, n], 100 + i as u64));
        let plain = a.matmul(&b);
        let b_columns = b.t().contiguous();
        for precision in SPLIT {
            let want = product(precision, &a, &b);
            if !precision.is_supported() {
                same("as f32", &want, &plain);
                continue;
            }
            let (rows, columns) = (a.to_vec(), b_columns.to_vec());
            let element = |(i, j): (usize, usize)| {
                by_definition(precision, &rows[i * k..][..k], &columns[j * k..][..k])
            };
            let mut rng = Rng(7);
            let corners = [(0, 0), (m - 1, n - 1), (0, n - 1), (m - 1, 0)];
            let others: Vec<_> = (0..40).map(|_| (rng.below(m), rng.below(n))).collect();
            for at in corners.into_iter().chain(others) {
                let got = want.to_vec()[at.0 * n + at.1];
                assert_eq!(got, element(at), "{precision} {m}x{k}x{n} at {at:?}");
            }
            for a in layouts(&a) {
                for b in layouts(&b) {
                    same("another layout", &product(precision, &a, &b), &want);
                }
            }
        }
    }
}

#[test]
fn errors_are_within_their_documented_bounds() {
    // Relative to the sum of magnitudes: the errors of products, and those of sums in `f32`.
    let bound = |precision: MatmulPrecision| match precision {
        F32 | Bf16x6 => 2f64.powi(-20),
        Bf16x3 => 2f64.powi(-15) + 2f64.powi(-20),
        Bf16 => 2f64.powi(-7) + 2f64.powi(-20),
    };
    let mut worst = [0f64; 4];
    for (i, (m, k, n)) in SIZES.into_iter().enumerate() {
        let (a, b) = (random([m, k], 50 + i as u64), random([k, n], 150 + i as u64));
        let wide = |x: &Tensor<f32>| x.cast::<f64>();
        let exact = wide(&a).matmul(&wide(&b));
        let magnitude = wide(&a).abs().matmul(&wide(&b).abs());
        for (precision, worst) in MatmulPrecision::ALL.into_iter().zip(&mut worst) {
            let error = wide(&product(precision, &a, &b)).sub(&exact).abs().div(&magnitude);
            *worst = worst.max(error.max(..).item());
            assert!(*worst < bound(precision), "{precision} {m}x{k}x{n}: {worst:e}");
        }
    }
    if Bf16.is_supported() {
        let [full, x6, x3, x1] = worst;
        assert!(x6 < full && 30.0 * x6 < x3 && 30.0 * x3 < x1, "{worst:?}");
    }
}

#[test]
fn whole_numbers_are_exact() {
    let whole = |dims: [usize; 2], below: usize, seed: u64| {
        let mut rng = Rng(seed);
        Tensor::from_fn(dims, |_| rng.below(below) as f32 - (below / 2) as f32)
    };
    // The factors have this number of bits and a sign; the sums have at most 24 bits.
    let bits = [(Bf16x6, 17, 1), (Bf16x6, 9, 8), (Bf16x6, 1, 17), (Bf16x3, 14, 3), (Bf16, 7, 7)];
    for (precision, of_a, of_b) in bits {
        let (a, b) = (whole([40, 64], 2 << of_a, 1), whole([64, 50], 2 << of_b, 2));
        same("whole", &product(precision, &a, &b), &product(F32, &a, &b));
    }
}

#[test]
fn bits_depend_neither_on_threads_nor_on_other_rows() {
    // Partitioned into blocks, and by split-K.
    for (m, k, n) in [(600, 512, 700), (48, 9000, 40)] {
        let (a, b) = (random([m, k], 1), random([k, n], 2));
        for precision in SPLIT {
            let run = |threads| with_threads(threads, || product(precision, &a, &b));
            let one = run(1);
            for threads in [2, 3] {
                same("threads", &run(threads), &one);
            }
            same("one row", &product(precision, &a.slice(0, 20..21), &b), &one.slice(0, 20..21));
            let some = product(precision, &a.slice(0, 7..39), &b.slice(1, 5..35));
            same("some rows", &some, &one.slice(0, 7..39).slice(1, 5..35));
        }
    }
}

#[test]
fn accumulation_batches_and_linear_layers() {
    let (a, b) = (random([600, 300], 1), random([300, 300], 2));
    let bias: Tensor<f32> = Rng(3).normals(&[300]);
    let c = random([600, 300], 4);
    for precision in SPLIT {
        with_matmul_precision(precision, || {
            let h = a.matmul(&b);
            same("linear", &a.linear(&b.t(), Some(&bias)), &h.add(&bias));
            let (y, slope) = a.linear_activation(&b.t(), Some(&bias), Gelu);
            same("gelu", &y, &h.add(&bias).gelu());
            let ones = Tensor::ones([600, 300]);
            same("its derivative", &slope, &h.add(&bias).map_vjp(Gelu, &ones));
            same("times", &a.matmul_times(&b, &c), &h.mul(&c));
            let batch = a.reshape([6, 100, 300]);
            same("batch", &batch.matmul(&b), &h.reshape([6, 100, 300]));
            let each: Vec<_> = (0..6).map(|i| batch.select(0, i).matmul(&b)).collect();
            let stacked = Tensor::stack(&[&b, &b, &b, &b, &b, &b], 0);
            same(
                "pairs",
                &batch.matmul(&stacked),
                &Tensor::stack(&each.iter().collect::<Vec<_>>(), 0),
            );
        });
    }
}

/// Products that are accumulated to an output with separate rows.
#[test]
fn products_accumulate_to_rows_with_a_stride() {
    let (m, k, n) = (50, 600, 45);
    let (a, b) = (random([m, k], 1), random([k, n], 2));
    let old: Tensor<f32> = Rng(3).normals(&[m, n + 5]);
    for precision in SPLIT.into_iter().filter(|p| p.is_supported()) {
        let parts: Vec<_> = [0..300, 300..600]
            .into_iter()
            .map(|sum| product(precision, &a.slice(1, sum.clone()), &b.slice(0, sum)))
            .collect();
        same("parts of the sum", &parts[0].add(&parts[1]), &product(precision, &a, &b));
        let mut out = old.to_vec();
        let whole = |t: &Tensor<f32>| (t.to_vec(), t.size(1));
        let ((a, k), (b, n)) = (whole(&a), whole(&b));
        let made = with_matmul_precision(precision, || f32::precision(k, n));
        let mut whole = MatMut::new(&mut out, m, n + 5);
        let (a, b) = (MatRef::new(&a, m, k), MatRef::new(&b, k, n));
        f32::gemm_with_epilogue(a, b, true, whole.part(0..m, 2..n + 2), None, made);
        let out = Tensor::from_vec(out, [m, n + 5]);
        let before = old.slice(1, 2..n + 2);
        same("added", &out.slice(1, 2..n + 2), &before.add(&parts[0]).add(&parts[1]));
        same("columns before", &out.slice(1, 0..2), &old.slice(1, 0..2));
        same("columns after", &out.slice(1, n + 2..n + 5), &old.slice(1, n + 2..n + 5));
    }
}

/// Rows and columns with factors that are non-finite, or round to non-finite numbers, are equal to
/// those of `f32` in each block of the sum; others are not affected.
#[test]
fn non_finite_factors_give_the_results_of_f32() {
    let (m, k, n) = (370, 700, 90);
    let (clean_a, clean_b) = (random([m, k], 1), random([k, n], 2));
    let (mut a, mut b) = (clean_a.to_vec(), clean_b.to_vec());
    (a[5 * k + 7], a[33 * k + 699], a[369 * k]) = (f32::NAN, f32::INFINITY, f32::MAX);
    (b[n + 3], b[699 * n + 89]) = (f32::NEG_INFINITY, 1e38);
    let (a, b) = (Tensor::from_vec(a, [m, k]), Tensor::from_vec(b, [k, n]));
    let want = bits(&product(F32, &a, &b));
    for precision in SPLIT {
        let run = |threads| with_threads(threads, || product(precision, &a, &b));
        let got = run(1);
        (2..4).for_each(|threads| same("threads", &run(threads), &got));
        let clean = bits(&product(precision, &clean_a, &clean_b));
        for (at, got) in bits(&got).into_iter().enumerate() {
            let (i, j) = (at / n, at % n);
            let finite = f64::from_bits(want[at]).is_finite();
            assert!(if finite { f64::from_bits(got).is_finite() } else { got == want[at] }, "{at}");
            if ![5, 33, 369].contains(&i) && ![3, 89].contains(&j) {
                assert_eq!(got, clean[at], "({i}, {j})");
            }
        }
    }
}

#[test]
fn small_products_and_other_levels_use_f32() {
    let (a, b) = (random([15, 100], 1), random([100, 100], 2));
    let c = random([64, 64], 3);
    for precision in SPLIT {
        same("few columns", &product(precision, &b, &a.t()), &b.matmul(&a.t()));
        same("few terms", &product(precision, &a.t(), &a), &a.t().matmul(&a));
        for level in Level::available().into_iter().filter(|&l| l != Level::Avx512) {
            with_level(level, || {
                assert!(!precision.is_supported());
                same("another level", &product(precision, &c, &c), &c.matmul(&c));
            });
        }
        let x = random([64, 64], 4).cast::<f64>();
        same("f64", &with_matmul_precision(precision, || x.matmul(&x)), &x.matmul(&x));
    }
}

/// Operands and results at the ends of mapped memory, for every length of a tail.
#[cfg(unix)]
#[test]
fn no_access_is_out_of_bounds() {
    let sizes = (16..=130).flat_map(|tail| [(tail, 17, 40), (18, tail, 33), (35, 20, tail)]);
    let orders = [(Rows, Rows), (Columns, Columns)];
    check_bounds::<f32, _>(sizes, &orders, &SPLIT, |precision, a, b, out| {
        with_matmul_precision(precision, || gemm(&Products::one(a, b), false, out));
    });
}

#[test]
fn subnormal_numbers_are_flushed_to_zero() {
    let (tiny, large) = (Tensor::full([32, 32], 1e-39f32), Tensor::full([32, 32], 1e30f32));
    let small = Tensor::full([32, 32], 1e-20f32);
    for precision in SPLIT.into_iter().filter(|p| p.is_supported()) {
        same("factors", &product(precision, &tiny, &large), &Tensor::zeros([32, 32]));
        same("sums", &product(precision, &small, &small), &Tensor::zeros([32, 32]));
    }
}

#[test]
fn scopes_nest_and_are_restored_after_a_panic() {
    with_matmul_precision(Bf16, || {
        with_matmul_precision(Bf16x3, || assert_eq!(matmul_precision(), Bf16x3));
        let panicking = || with_matmul_precision(F32, || panic!("on purpose"));
        assert!(catch(panicking).is_err());
        assert_eq!(matmul_precision(), Bf16);
    });
    assert_eq!(matmul_precision(), F32);
}

#[test]
fn names_of_precisions_are_parsed() {
    for precision in MatmulPrecision::ALL {
        assert_eq!(precision.to_string().parse(), Ok(precision));
    }
    let error = "half".parse::<MatmulPrecision>().unwrap_err().to_string();
    assert_eq!(error, "\"half\" is not a matmul precision (one of: f32, bf16x6, bf16x3, bf16)");
}
