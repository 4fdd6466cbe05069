//! Repetition, rolling, diagonals and order statistics at their limits.

use retrograd_tensor::{Tensor, with_threads};

const NAN: f64 = f64::NAN;
const INF: f64 = f64::INFINITY;

#[test]
fn repetitions_equal_those_element_by_element() {
    let x = Tensor::<i64>::arange(0, 24, 1).reshape([2, 3, 4]);
    for layout in [x.clone(), x.transpose(0, 2), x.flip([0, 1]), x.slice_step(2, .., 2)] {
        for times in [[1, 1, 1], [2, 1, 3], [0, 2, 1], [1, 4, 2]] {
            let y = layout.repeat(&times);
            let want = Tensor::from_fn(*y.shape(), |i| {
                let at: Vec<usize> =
                    i.iter().zip(layout.shape().iter()).map(|(i, n)| i % n).collect();
                layout.at(&at)
            });
            assert_eq!(y, want, "{times:?}");
        }
        for axis in 0..3 {
            let y = layout.repeat_interleave(axis, 3);
            let want = Tensor::from_fn(*y.shape(), |i| {
                let mut at = i.to_vec();
                at[axis as usize] /= 3;
                layout.at(&at)
            });
            assert_eq!(y, want);
            for shift in -7..8 {
                let n = layout.size(axis) as isize;
                let want = Tensor::from_fn(*layout.shape(), |i| {
                    let mut at = i.to_vec();
                    at[axis as usize] = (at[axis as usize] as isize - shift).rem_euclid(n) as usize;
                    layout.at(&at)
                });
                assert_eq!(layout.roll(axis, shift), want, "axis {axis} by {shift}");
            }
        }
    }
    assert_eq!(*Tensor::<f32>::zeros([2, 0]).roll(1, 3).shape(), [2, 0]);
    // Only the result must fit.
    let many = 1 << (usize::BITS - 24);
    let empty = Tensor::<f32>::zeros([0, many]);
    assert_eq!(*empty.repeat_interleave(0, many).shape(), [0, many]);
    assert_eq!(*empty.repeat(&[many, 1]).shape(), [0, many]);
    let row = Tensor::<f32>::zeros([1, 4]);
    assert_eq!(*row.repeat(&[many, 1 << 22, 0]).shape(), [many, 1 << 22, 0]);
    assert_eq!(Tensor::scalar(7i64).repeat(&[2, 2]), Tensor::from([[7, 7], [7, 7]]));
    assert_eq!(Tensor::scalar(7i64).tile(&[]).item(), 7);
    assert_eq!(*x.tile(&[2]).shape(), [2, 3, 8]);
    assert_eq!(*x.tile(&[2, 1, 1, 1]).shape(), [2, 2, 3, 4]);
}

#[test]
fn diagonals_are_inverse_to_each_other() {
    let x = Tensor::<i64>::arange(1, 13, 1).reshape([2, 2, 3]);
    for offset in -3..4 {
        let y = x.diag_embed(offset);
        let n = 3 + offset.unsigned_abs();
        assert_eq!(*y.shape(), [2, 2, n, n]);
        assert_eq!(y.diagonal(-2, -1, offset), x);
        assert_eq!(y.sum(..).item(), x.sum(..).item());
    }
    let square = x.reshape([3, 4]);
    assert_eq!(square.diag(1).to_vec(), [2, 7, 12]);
    assert_eq!(square.diag(-3).to_vec(), [0i64; 0]);
    assert_eq!(square.trace().item(), 1 + 6 + 11);
    assert_eq!(*Tensor::<f32>::zeros([0]).diag(2).shape(), [2, 2]);
}

#[test]
fn quantiles_are_between_neighbours_and_nan_spreads() {
    let x = Tensor::from([[3.0, -1.0, 2.0, 0.5], [1.0, NAN, 5.0, -INF], [4.0, 4.0, 4.0, 4.0]]);
    let at = |q: f64| x.quantile(1, q).to_vec();
    for (q, first) in [(0.0, -1.0), (0.25, 0.125), (0.5, 1.25), (0.75, 2.25), (1.0, 3.0)] {
        let y = at(q);
        assert!((y[0] - first).abs() < 1e-15 && y[1].is_nan() && y[2] == 4.0, "{q}: {y:?}");
    }
    let middle = x.median(1).to_vec();
    assert!(middle[0] == 0.5 && middle[1].is_nan() && middle[2] == 4.0, "{middle:?}");
    assert_eq!(*x.median([0, 1]).shape(), [0usize; 0]);
    assert_eq!(x.slice(1, ..1).median(..).item(), 3.0);
    // Over several axes, of any layout, on any number of threads.
    let y = Tensor::<f64>::arange(0.0, 24.0, 1.0).reshape([2, 3, 4]).permute([2, 0, 1]);
    let run = |n| with_threads(n, || (y.quantile([0, 2], 0.5), y.median(1)));
    assert_eq!(run(1).0.to_vec(), [5.5, 17.5]);
    assert_eq!(run(1).1, y.select(1, 0));
    assert_eq!(run(1), run(3));
}

#[test]
fn histograms_count_bounds_and_leave_out_nan() {
    let x = Tensor::from([0.0, 0.5, 1.0, 1.5, 2.0, NAN, INF, -0.1]);
    assert_eq!(x.histc(2, 0.0, 2.0).to_vec(), [2.0, 3.0]);
    assert_eq!(Tensor::from([3.0f64; 4]).histc(2, 0.0, 0.0).to_vec(), [0.0, 4.0]);
    assert_eq!(Tensor::<f64>::zeros([0]).histc(3, 0.0, 0.0).to_vec(), [0.0; 3]);
    let many = Tensor::<f32>::from_fn([100_000], |i| (i[0] % 10) as f32);
    assert_eq!(many.histc(9, 0.0, 9.0).to_vec(), [1e4, 1e4, 1e4, 1e4, 1e4, 1e4, 1e4, 1e4, 2e4]);
    assert_eq!(Tensor::<i64>::zeros([0]).bincount(0).to_vec(), [0i64; 0]);
    assert_eq!(*Tensor::<f64>::zeros([2, 3]).nonzero().shape(), [0, 2]);
    assert_eq!(*Tensor::scalar(true).nonzero().shape(), [1, 0]);
    assert_eq!(Tensor::from([NAN, 0.0, -0.0]).nonzero().to_vec(), [0]);
    let mask = Tensor::from([[true], [false]]);
    assert_eq!(Tensor::from([1.0, 2.0]).masked_select(&mask).to_vec(), [1.0, 2.0]);
    assert_eq!(
        x.reshape([2, 4]).t().masked_select(&x.isnan().not().reshape([2, 4]).t()).numel(),
        7
    );
}

#[test]
fn cumulative_products_along_every_axis() {
    let x = Tensor::from([[[2.0f64, 3.0], [0.0, -1.0]], [[4.0, 5.0], [6.0, 7.0]]]);
    assert_eq!(x.cumprod(0).to_vec(), [2.0, 3.0, 0.0, -1.0, 8.0, 15.0, 0.0, -7.0]);
    assert_eq!(x.cumprod(1).to_vec(), [2.0, 3.0, 0.0, -3.0, 4.0, 5.0, 24.0, 35.0]);
    assert_eq!(x.t().cumprod(1), x.cumprod(-1).t());
    assert_eq!(*Tensor::<f32>::zeros([2, 0]).cumprod(1).shape(), [2, 0]);
}

#[test]
fn norms_of_all_exponents() {
    let x = Tensor::from([[3.0f64, -4.0, 0.0], [0.0, 0.0, 0.0]]);
    for (p, want) in [
        (0.0, 2.0),
        (1.0, 7.0),
        (2.0, 5.0),
        (3.0, 91f64.cbrt()),
        (INF, 4.0),
        (-INF, 0.0),
        (-1.0, 0.0),
    ] {
        let y = x.vector_norm(1, p).to_vec();
        assert!((y[0] - want).abs() < 1e-14 && y[1] == 0.0, "{p}: {y:?}");
        assert_eq!(x.vector_norm_keepdim(1, p).to_vec(), y);
    }
    let none = Tensor::<f64>::zeros([2, 0]);
    assert_eq!(none.vector_norm(1, 3.0).to_vec(), [0.0, 0.0]);
    assert_eq!(x.normalize(1, 1.0, 1e-12).to_vec(), [3.0 / 7.0, -4.0 / 7.0, 0.0, 0.0, 0.0, 0.0]);
    assert_eq!(x.normalize(1, 2.0, 10.0).to_vec(), [0.3, -0.4, 0.0, 0.0, 0.0, 0.0]);
}
