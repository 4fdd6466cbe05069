//! Solutions of the exercises of `book::tensors`.

use retrograd::prelude::*;
use retrograd::tensor::storage::pool_stats;

#[test]
fn strides_of_four_axes() {
    let x = Tensor::<f32>::indices_as_f32([2, 3, 4, 5]);
    assert_eq!(x.layout().strides(), [60, 20, 5, 1]);
    // 60 + 2 · 20 + 3 · 5 + 4: the last of 120 elements.
    assert_eq!(x.at(&[1, 2, 3, 4]), 119.0);
}

/// Numbers in order of their positions.
trait Positions {
    fn indices_as_f32(shape: impl Into<Shape>) -> Tensor;
}

impl Positions for Tensor {
    fn indices_as_f32(shape: impl Into<Shape>) -> Tensor {
        let shape = shape.into();
        let n: usize = shape.iter().product();
        Tensor::from_vec((0..n).map(|i| i as f32).collect(), shape)
    }
}

#[test]
fn matmul_by_hand() {
    let mut rng = Rng::new(1);
    let (a, b) = (Tensor::<f64>::randn([3, 4], &mut rng), Tensor::<f64>::randn([4, 5], &mut rng));
    let mut c = vec![0.0; 3 * 5];
    for i in 0..3 {
        for j in 0..5 {
            for k in 0..4 {
                c[i * 5 + j] += a.at(&[i, k]) * b.at(&[k, j]);
            }
        }
    }
    for (x, y) in a.matmul(&b).to_vec().into_iter().zip(c) {
        assert!((x - y).abs() < 1e-12);
    }
}

#[test]
fn a_clone_takes_no_memory() {
    // The counters are those of the process: other tests take blocks, but not of this size.
    let x = Tensor::<f32>::ones([1_000_000]);
    let mut y = x.clone();
    assert!(y.shares_storage(&x)); // no bytes
    let before = pool_stats();
    y.make_mut()[0] = 2.0; // all 4 MB
    let after = pool_stats();
    assert!(after.fresh + after.reused > before.fresh + before.reused);
    assert!(!y.shares_storage(&x));
    assert_eq!(size_of_val(y.as_slice()), 4_000_000);
    assert_eq!((x.as_slice()[0], y.as_slice()[0]), (1.0, 2.0));
}

#[test]
fn the_first_wrong_sum() {
    let mut sum = 0.0f32;
    let wrong = (1u32..).find(|&n| {
        sum += 1.0;
        f64::from(sum) != f64::from(n)
    });
    assert_eq!(wrong, Some((1 << 24) + 1));
}

#[test]
fn reductions_of_nothing() {
    let x = Tensor::<f32>::zeros([0, 3]);
    assert_eq!(x.sum(0).to_vec(), [0.0; 3]); // the neutral element of addition
    assert_eq!(x.prod(0).to_vec(), [1.0; 3]); // and of multiplication
    assert!(x.mean(..).item().is_nan()); // 0 / 0
}
