//! Solutions of the exercises of `book::gemm`.

use crate::drawings::gemm::{record, size};
use retrograd::prelude::*;

#[test]
fn sizes_of_caches() {
    // 3 n² numbers of 4 bytes.
    let largest = |bytes: usize| (1..).take_while(|n| 12 * n * n <= bytes).last().unwrap();
    assert_eq!((largest(32 << 10), largest(1 << 20)), (52, 295));
}

#[test]
fn tiles() {
    // A tile of r rows and v vectors: r broadcasts and v loads for r v FMAs; r v sums, v vectors, a number.
    let per_load = |r: f64, v: f64| r * v / (r + v);
    let registers = |r: usize, v: usize| r * v + v + 1;
    let tiles = [(1, 1), (4, 1), (6, 4), (12, 2)];
    let ratios = tiles.map(|(r, v)| per_load(r as f64, v as f64));
    assert_eq!(ratios.map(|x| (100.0 * x).round() / 100.0), [0.5, 0.8, 2.4, 1.71]);
    assert_eq!(tiles.map(|(r, v)| registers(r, v)), [3, 6, 29, 27]);
    // Of all tiles with at most 16 registers.
    let all = (1..16).flat_map(|r| (1..16).map(move |v| (r, v)));
    let best = all.filter(|&(r, v)| registers(r, v) <= 16).max_by(|&(a, b), &(c, d)| {
        per_load(a as f64, b as f64).total_cmp(&per_load(c as f64, d as f64))
    });
    assert_eq!(best, Some((4, 3)));
    // The library's tile for AVX2 is 6 × 2 registers: 12 sums as well, fewer FMAs per load, one more register
    // free, and columns that are whole vectors of 16 lanes.
    assert_eq!((registers(4, 3), registers(6, 2)), (16, 15));
    assert!(per_load(4.0, 3.0) > per_load(6.0, 2.0));
    assert_eq!((size("MR"), size("NR_VECTORS_AVX512")), (6, 4));
}

const MR: usize = 6;
const NR: usize = 16;

/// A tile of at most MR × NR elements.
fn tile(a: &[f32], b: &[f32], n: usize, (i, j): (usize, usize), c: &mut [f32]) {
    let (rows, columns) = (MR.min(n - i), NR.min(n - j));
    let mut sums = [[0.0; NR]; MR];
    for k in 0..n {
        for (row, sums) in sums[..rows].iter_mut().enumerate() {
            for (column, sum) in sums[..columns].iter_mut().enumerate() {
                *sum += a[(i + row) * n + k] * b[k * n + j + column];
            }
        }
    }
    for row in 0..rows {
        c[(i + row) * n + j..][..columns].copy_from_slice(&sums[row][..columns]);
    }
}

#[test]
fn edges() {
    for n in [1, 6, 16, 17, 50] {
        let mut rng = Rng::new(n as u64);
        let (a, b) =
            (Tensor::<f32>::randn([n, n], &mut rng), Tensor::<f32>::randn([n, n], &mut rng));
        let mut c = vec![f32::NAN; n * n];
        for i in (0..n).step_by(MR) {
            for j in (0..n).step_by(NR) {
                tile(a.as_slice(), b.as_slice(), n, (i, j), &mut c);
            }
        }
        for (x, y) in c.into_iter().zip(a.matmul(&b).to_vec()) {
            assert!((x - y).abs() < 1e-4, "{n}");
        }
    }
}

#[test]
fn order_of_the_sums() {
    let n = 64;
    let mut rng = Rng::new(3);
    let (a, b) = (Tensor::<f32>::randn([n, n], &mut rng), Tensor::<f32>::randn([n, n], &mut rng));
    // Each element is a sum over k. In both loop orders its terms are added in the order of k.
    let (a, b) = (a.to_vec(), b.to_vec());
    let (mut ijk, mut ikj, mut blocked) = (vec![0.0; n * n], vec![0.0; n * n], vec![0.0; n * n]);
    for i in 0..n {
        for j in 0..n {
            for k in 0..n {
                ijk[i * n + j] += a[i * n + k] * b[k * n + j];
            }
        }
        for k in 0..n {
            for j in 0..n {
                ikj[i * n + j] += a[i * n + k] * b[k * n + j];
            }
        }
        // Two partial sums, which are added at the end.
        for j in 0..n {
            let part = |ks: std::ops::Range<usize>| {
                ks.fold(0.0f32, |sum, k| sum + a[i * n + k] * b[k * n + j])
            };
            blocked[i * n + j] = part(0..n / 2) + part(n / 2..n);
        }
    }
    assert_eq!(ijk, ikj);
    assert_ne!(ijk, blocked);
}

#[test]
fn matrix_times_vector() {
    // 2 n² operations on 4 n² bytes: half an operation per byte.
    let n = 1000.0;
    let vector = 2.0 * n * n / (4.0 * (n * n + 2.0 * n));
    assert!((vector - 0.5_f64).abs() < 0.01);
    // A product of square matrices has n / 6 operations per byte.
    let matrix = 2.0 * n * n * n / (4.0 * 3.0 * n * n);
    assert!((matrix - n / 6.0).abs() < 1e-9);
    // A core with 240 GFLOP/s and 20 GB/s of memory needs 12 operations per byte: n of at least 72.
    assert!(vector < 240.0 / 20.0 && matrix > 240.0 / 20.0 && 6.0 * 240.0 / 20.0 == 72.0);
}

#[test]
fn the_record_has_all_rungs() {
    let names: Vec<&str> = record().iter().map(|rung| rung.name).collect();
    let rungs =
        ["naive", "reordered", "blocked", "vectorised", "tiled", "packed", "threaded", "ours"];
    assert_eq!(names[..8], rungs);
    assert!(record().iter().all(|rung| rung.rate > 0.0 && rung.share <= 100.0));
}
