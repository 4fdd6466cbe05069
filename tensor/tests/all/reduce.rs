//! Reductions against f64 loops.

use crate::common::{Rng, bits, everywhere, indices, layouts, same, shapes};
use proptest::prelude::*;
use retrograd_support::random_tests;
use retrograd_tensor::settings::with_level;
use retrograd_tensor::simd::Level;
use retrograd_tensor::{AxisSet, Real, Tensor, with_threads};

/// The elements that are reduced to each element of the result, in row-major order.
fn groups<T: Real>(x: &Tensor<T>, axes: AxisSet) -> Vec<Vec<f64>> {
    let kept: Vec<usize> = (0..x.rank()).filter(|&i| !axes.contains(i)).collect();
    let dims: Vec<usize> = kept.iter().map(|&i| x.shape()[i]).collect();
    let mut out = vec![vec![]; dims.iter().product()];
    for i in indices(x.shape()) {
        let at = kept.iter().zip(&dims).fold(0, |n, (&a, &d)| n * d + i[a]);
        out[at].push(x.at(&i).to_f64());
    }
    out
}

fn axis_sets(rank: usize, seed: u64) -> AxisSet {
    (0..rank).filter(|i| seed >> i & 1 == 1).fold(AxisSet::EMPTY, AxisSet::insert)
}

fn mean(x: &[f64]) -> f64 {
    x.iter().sum::<f64>() / x.len() as f64
}

fn var(x: &[f64], correction: usize) -> f64 {
    let m = mean(x);
    x.iter().map(|x| (x - m).powi(2)).sum::<f64>() / x.len().saturating_sub(correction) as f64
}

fn log_sum_exp(x: &[f64]) -> f64 {
    let top = x.iter().fold(f64::NEG_INFINITY, |a, &b| a.max(b));
    if top.is_infinite() { top } else { top + x.iter().map(|x| (x - top).exp()).sum::<f64>().ln() }
}

#[track_caller]
fn close(what: &str, got: f64, want: f64, bound: f64) {
    let same = got == want || got.is_nan() && want.is_nan() || (got - want).abs() <= bound;
    assert!(same, "{what}: {got:e}, not {want:e} to {bound:e}");
}

fn against_the_model<T: Real>(x: &Tensor<T>, axes: AxisSet) {
    let u = T::EPSILON.to_f64() / 2.0;
    let groups = groups(x, axes);
    let check = |what: &str, [got, kept]: [Tensor<T>; 2], want: &dyn Fn(&[f64]) -> (f64, f64)| {
        assert_eq!(got.shape()[..], x.shape().reduced(axes, false)[..], "{what}");
        assert_eq!(kept.shape()[..], x.shape().reduced(axes, true)[..], "{what}");
        same(what, &kept.flatten(), &got.flatten());
        for (&got, group) in got.to_vec().iter().zip(&groups) {
            let (value, bound) = want(group);
            close(what, got.to_f64(), value, bound + f64::MIN_POSITIVE);
        }
    };
    let size = |g: &[f64]| g.iter().map(|x| x.abs()).sum::<f64>();
    let depth = |g: &[f64]| g.len() as f64 + 4.0;
    check("sum", [x.sum(axes), x.sum_keepdim(axes)], &|g| (g.iter().sum(), depth(g) * u * size(g)));
    check("mean", [x.mean(axes), x.mean_keepdim(axes)], &|g| {
        (mean(g), (depth(g) + 2.0) * u * size(g) / g.len() as f64)
    });
    check("prod", [x.prod(axes), x.prod_keepdim(axes)], &|g| {
        let p: f64 = g.iter().product();
        (p, depth(g) * u * p.abs() + 1e-44)
    });
    check("norm", [x.norm(axes), x.norm_keepdim(axes)], &|g| {
        let n = g.iter().map(|x| x * x).sum::<f64>().sqrt();
        (n, depth(g) * u * n)
    });
    check("logsumexp", [x.logsumexp(axes), x.logsumexp_keepdim(axes)], &|g| {
        let y = log_sum_exp(g);
        (y, (depth(g) + y.abs() + 8.0) * 2.0 * u)
    });
    for correction in [0, 1, 2] {
        // The variance of fewer than two elements is 0 or NaN.
        let bound = |g: &[f64]| {
            let m = g.iter().fold(0.0, |a: f64, b| a.max(b.abs()));
            (depth(g) + 10.0) * 4.0 * u * (var(g, correction).abs() + u * m * m)
        };
        check("var", [x.var(axes, correction), x.var_keepdim(axes, correction)], &|g| {
            (var(g, correction), bound(g))
        });
        check("std", [x.std(axes, correction), x.std_keepdim(axes, correction)], &|g| {
            let s = var(g, correction).sqrt();
            (s, 2.0 * bound(g) / s.max(1e-3) + 2.0 * u * s)
        });
    }
    if axes.iter().all(|i| x.shape()[i] > 0) {
        check("max", [x.max(axes), x.max_keepdim(axes)], &|g| {
            (g.iter().fold(f64::NEG_INFINITY, |a, &b| a.max(b)), 0.0)
        });
        check("min", [x.min(axes), x.min_keepdim(axes)], &|g| {
            (g.iter().fold(f64::INFINITY, |a, &b| a.min(b)), 0.0)
        });
    }
    let kept = x.sum_keepdim(axes);
    same("sum_to", &x.sum_to(*kept.shape()), &kept);
}

random_tests! {
    ProptestConfig::with_cases(192);

    #[test]
    fn reductions_over_any_axes_equal_loops(dims in shapes(5), seed in any::<u64>()) {
        let x: Tensor<f32> = Rng(seed).normals(&dims);
        let axes = axis_sets(dims.len(), seed);
        against_the_model(&x, axes);
        against_the_model(&Rng(seed).normals::<f64>(&dims), axes);
        // All axes, by either name.
        same("all", &x.sum(..), &x.sum(AxisSet::all(x.rank())));
    }

    #[test]
    fn reductions_along_one_axis_equal_loops(dims in shapes(4), seed in any::<u64>()) {
        prop_assume!(!dims.is_empty());
        let mut rng = Rng(seed);
        let axis = rng.below(dims.len());
        let negative = axis as isize - dims.len() as isize;
        // Few distinct values, for many ties.
        let x: Tensor<f32> = Tensor::from_fn(dims.as_slice(), |_| rng.below(5) as f32 - 2.0);
        let keep = x.gt(0.0);
        for (name, x) in layouts(&x) {
            let groups = groups(&x, AxisSet::EMPTY.insert(axis));
            if dims[axis] > 0 {
                let first = |g: &Vec<f64>, better: fn(f64, f64) -> bool| {
                    (1..g.len()).fold(0, |at, i| if better(g[i], g[at]) { i } else { at }) as i64
                };
                let most: Vec<i64> = groups.iter().map(|g| first(g, |a, b| a > b)).collect();
                let least: Vec<i64> = groups.iter().map(|g| first(g, |a, b| a < b)).collect();
                prop_assert_eq!(x.argmax(axis as isize).to_vec(), most, "{}", name);
                prop_assert_eq!(x.argmin(negative).to_vec(), least, "{}", name);
            }
            // Small whole numbers: running sums are exact.
            let sums = x.cumsum(negative);
            let sums = if axis + 1 == x.rank() { sums } else { sums.transpose(axis as isize, -1) };
            let lines = if axis + 1 == x.rank() { x.clone() } else { x.transpose(axis as isize, -1) };
            let mut sum = 0.0;
            for (i, (&x, &y)) in lines.to_vec().iter().zip(&sums.to_vec()).enumerate() {
                sum = if i % dims[axis] == 0 { x } else { sum + x };
                prop_assert_eq!(y, sum);
            }
            let keep = x.gt(0.0);
            let any: Vec<bool> = groups.iter().map(|g| g.iter().any(|&v| v > 0.0)).collect();
            let all: Vec<bool> = groups.iter().map(|g| g.iter().all(|&v| v > 0.0)).collect();
            prop_assert_eq!(keep.any(axis as isize).to_vec(), any);
            prop_assert_eq!(keep.all(negative).to_vec(), all);
        }
        prop_assert_eq!(keep.count_true(), x.to_vec().iter().filter(|&&v| v > 0.0).count());
    }

    #[test]
    fn products_of_the_other_elements_equal_loops(dims in shapes(3), seed in any::<u64>(), zeros in 0usize..3) {
        let mut rng = Rng(seed);
        // Powers of two and zeros: exact in any order, without overflow.
        let mut data: Vec<f64> = (0..dims.iter().product())
            .map(|_| [1.0, -1.0, 0.5, 2.0, -2.0][rng.below(5)])
            .collect();
        for _ in 0..zeros.min(data.len()) {
            let at = rng.below(data.len());
            data[at] = 0.0;
        }
        let x = Tensor::from_vec(data, dims.as_slice());
        let axes = axis_sets(dims.len(), seed);
        let kept = |i: &[usize]| (0..i.len()).filter(|&a| !axes.contains(a)).map(|a| i[a]).collect::<Vec<_>>();
        let others = x.prod_of_others(axes);
        prop_assert_eq!(others.shape(), x.shape());
        let all = indices(&dims);
        for i in all.iter().step_by(1 + all.len() / 50) {
            let mates = all.iter().filter(|j| *j != i && kept(j) == kept(i));
            let want: f64 = mates.map(|j| x.at(j)).product();
            prop_assert!(others.at(i) == want);
        }
    }
}

/// NaN at every position and in every lane.
#[test]
fn nan_propagates_from_every_position() {
    for n in [1usize, 2, 15, 16, 17, 63, 64, 65, 130] {
        for at in 0..n {
            let mut data: Vec<f32> = (0..n).map(|i| ((i * 37) % 101) as f32 - 50.0).collect();
            data[at] = f32::NAN;
            if at + 3 < n {
                data[at + 3] = f32::NAN;
            }
            let x = Tensor::from_vec(data, [n]);
            for level in Level::available() {
                with_level(level, || {
                    assert!(x.max(..).item().is_nan() && x.min(..).item().is_nan(), "{level} {at}");
                    let rows = x.unsqueeze(1).broadcast_to([n, 3]);
                    assert!(rows.max(0).to_vec().iter().all(|x| x.is_nan()));
                    assert!(rows.min(0).to_vec().iter().all(|x| x.is_nan()));
                    assert_eq!(x.argmax(0).item(), at as i64);
                    assert_eq!(x.argmin(0).item(), at as i64);
                    assert!(x.sum(..).item().is_nan() && x.logsumexp(..).item().is_nan());
                });
            }
        }
    }
    // Also at a large offset in a large tensor.
    for at in [0, 4095, 4096, 65_535, 65_536, 199_999] {
        let mut x = Tensor::<f32>::zeros([200_000]);
        x.make_mut()[at] = f32::NAN;
        assert!(x.max(..).item().is_nan() && x.min(..).item().is_nan());
        assert_eq!(x.argmax(0).item(), at as i64);
    }
}

/// Sums are blocked.
#[test]
fn long_sums_are_accurate() {
    let ones = Tensor::<f32>::ones([1 << 25]);
    assert_eq!(ones.sum(..).item(), (1 << 25) as f32);
    assert_eq!(ones.mean(..).item(), 1.0);
    let tall = ones.reshape([1 << 23, 4]);
    assert_eq!(tall.sum(0).to_vec(), [(1 << 23) as f32; 4]);
    // One element, repeated without a copy.
    let wide = Tensor::<f32>::scalar(1.0).broadcast_to([1 << 13, 1 << 12]);
    assert_eq!(wide.sum(..).item(), (1 << 25) as f32);

    let mut rng = Rng(9);
    let n = 10_000_000;
    let data: Vec<f32> = (0..n).map(|_| rng.unit() as f32).collect();
    let exact: f64 = data.iter().map(|&x| f64::from(x)).sum();
    let bound = (n as f64).log2() * 2f64.powi(-23);
    let x = Tensor::from_vec(data, [n]);
    for level in Level::available() {
        let error = |y: f32| (f64::from(y) - exact).abs() / exact;
        let along = with_level(level, || x.sum(..).item());
        assert!(error(along) <= bound, "{level}: {:e}", error(along));
        let across = with_level(level, || x.reshape([n / 10, 10]).sum(0).sum(0).item());
        assert!(error(across) <= bound, "{level}: {:e}", error(across));
    }
}

/// The mean of large numbers has a rounding error, which must not affect the variance.
#[test]
fn variance_of_large_numbers_is_accurate() {
    let mut rng = Rng(5);
    for n in [2usize, 10, 384, 1000, 100_000] {
        let spread: Vec<f32> = (0..n).map(|i| if i % 2 == 0 { 1.0 } else { -1.0 }).collect();
        let random: Vec<f32> = (0..n).map(|_| rng.normal() as f32).collect();
        for offsets in [spread, random] {
            let data: Vec<f32> = offsets.iter().map(|d| 1e6 + d).collect();
            let exact: Vec<f64> = data.iter().map(|&x| f64::from(x)).collect();
            let want = var(&exact, 0);
            let x = Tensor::from_vec(data, [n]);
            for x in [x.clone(), x.unsqueeze(1).broadcast_to([n, 3])] {
                let got = f64::from(x.var(0, 0).to_vec()[0]);
                assert!((got / want - 1.0).abs() <= 1e-4, "n = {n}: {got}, not {want}");
            }
        }
    }
}

/// Reductions over empty axes give the neutral element, if there is one.
#[test]
fn reductions_over_empty_axes() {
    let x = Tensor::<f32>::zeros([2, 0, 3]);
    assert_eq!(x.sum(1).to_vec(), [0.0; 6]);
    assert_eq!(x.sum(..).item(), 0.0);
    assert_eq!(x.prod(1).to_vec(), [1.0; 6]);
    assert!(x.mean([0, 1]).to_vec().iter().all(|x| x.is_nan()));
    assert!(x.var(1, 1).to_vec().iter().all(|x| x.is_nan()));
    assert_eq!(x.logsumexp(1).to_vec(), [f32::NEG_INFINITY; 6]);
    assert_eq!(x.norm(1).to_vec(), [0.0; 6]);
    // Kept axes without elements: an empty result, also of reductions without a neutral element.
    assert_eq!(x.max(0).shape()[..], [0, 3]);
    assert_eq!(x.min([0, 2]).shape()[..], [0]);
    assert_eq!(x.argmax(-1).shape()[..], [2, 0]);
    assert_eq!(Tensor::<f32>::zeros([0, 5]).max(1).shape()[..], [0]);
    assert_eq!(Tensor::<f32>::zeros([0, 0]).max(1).shape()[..], [0]);
    assert_eq!(x.sum_to([2, 1, 3]).to_vec(), [0.0; 6]);
    assert_eq!(x.cumsum(0).shape()[..], [2, 0, 3]);
    assert_eq!(x.cumsum(1).shape()[..], [2, 0, 3]);
    let none = Tensor::<bool>::zeros([2, 0]);
    assert_eq!((none.any(1).to_vec(), none.all(1).to_vec()), (vec![false; 2], vec![true; 2]));
    assert_eq!(none.any(0).shape()[..], [0]);
    assert_eq!(x.prod_of_others(1).shape()[..], [2, 0, 3]);
}

/// The error of each cumulative sum is at most half a unit in the last place, for any length.
#[test]
fn errors_of_cumulative_sums_do_not_accumulate() {
    let n = 100_000;
    let line = Tensor::<f32>::rand([n], &mut retrograd_tensor::random::Rng::new(5));
    for line in [line.slice(0, 0..2500), line.clone(), &line - 0.5] {
        let mut sum = 0.0f64;
        for (i, (x, y)) in line.to_vec().into_iter().zip(line.cumsum(0).to_vec()).enumerate() {
            sum += f64::from(x);
            assert_eq!(y, sum as f32, "at {i}");
        }
    }
    // Along the other axis, and on every level.
    let tall = line.slice(0, 0..99_999).reshape([33_333, 3]);
    let turned = tall.t().contiguous().cumsum(1).t().to_vec();
    for level in Level::available() {
        assert_eq!(with_level(level, || tall.cumsum(0)).to_vec(), turned);
    }
}

/// Reductions of a scalar.
#[test]
fn reductions_of_a_scalar() {
    let x = Tensor::scalar(3.0f32);
    let none: [isize; 0] = [];
    let all = [x.sum(..), x.mean(..), x.prod(..), x.max(..), x.min(..), x.norm(..), x.sum(none)];
    for (i, y) in all.iter().enumerate() {
        assert_eq!((y.rank(), y.item()), (0, 3.0), "operation {i}");
    }
    assert!((x.logsumexp(..).item() - 3.0).abs() < 1e-6);
    assert_eq!(x.var(.., 0).item(), 0.0);
    assert!(x.var(.., 1).item().is_nan());
    assert_eq!(x.prod_of_others(..).item(), 1.0);
    assert_eq!(x.sum_to(retrograd_tensor::Shape::SCALAR).item(), 3.0);
    assert_eq!(x.broadcast_to([2, 3]).sum_to(retrograd_tensor::Shape::SCALAR).item(), 18.0);
}

#[test]
fn reductions_of_infinities() {
    let inf = f32::INFINITY;
    let x = |v: [f32; 3]| Tensor::from(v);
    assert_eq!(x([-inf, -inf, -inf]).logsumexp(..).item(), -inf);
    assert_eq!(x([-inf, inf, 3.0]).logsumexp(..).item(), inf);
    assert_eq!(x([-inf, 1e38, 3.0]).logsumexp(..).item(), 1e38);
    assert_eq!(x([-inf, -inf, -inf]).max(..).item(), -inf);
    assert_eq!(x([inf, inf, inf]).min(..).item(), inf);
    assert_eq!(x([-inf, -inf, -inf]).argmax(0).item(), 0);
    assert!(x([-inf, inf, 0.0]).sum(..).item().is_nan());
}

#[test]
fn threads_and_levels_have_equal_bits() {
    let mut rng = Rng(6);
    let long: Tensor<f32> = rng.normals(&[300_007]);
    let tall: Tensor<f32> = rng.normals(&[3001, 101]);
    let cube: Tensor<f32> = rng.normals(&[37, 41, 203]);
    let turned = tall.t().contiguous().t();
    let set = |axes: &[usize]| axes.iter().fold(AxisSet::EMPTY, |s, &a| s.insert(a));
    everywhere("sum", || long.sum(..));
    for axes in [set(&[0]), set(&[1]), set(&[0, 1])] {
        let (a, _) = everywhere("sum", || tall.sum(axes));
        let (b, _) = everywhere("sum", || turned.sum(axes));
        same("sum", &a, &b);
    }
    for axes in [set(&[1]), set(&[0, 2]), set(&[1, 2])] {
        everywhere("sum", || cube.sum(axes));
    }
    everywhere("cumsum", || tall.cumsum(0));
    everywhere("prod_of_others", || cube.prod_of_others([0, 2]));
    for threads in [1, 2, 4] {
        with_threads(threads, || {
            assert_eq!(tall.argmax(0).to_vec(), turned.argmax(0).to_vec());
            assert_eq!(
                bits(&long.cast::<f64>().sum(..)),
                bits(&with_threads(1, || long.cast::<f64>().sum(..)))
            );
        });
    }
}

/// Over several axes at once, `arg` forms count in row-major order within those axes, and every
/// `_keepdim` form is the other with axes of size 1.
#[test]
fn reductions_over_several_axes_and_with_kept_axes() {
    let x = Rng(7).normals::<f64>(&[3, 4, 2]).permute([2, 0, 1]);
    let order = x.permute([1, 0, 2]).reshape([3, 8]);
    assert_eq!(x.argmax([0, 2]).to_vec(), order.argmax(1).to_vec());
    assert_eq!(x.argmin([2, 0]).to_vec(), order.argmin(-1).to_vec());
    let flat = x.to_vec();
    let top = flat.iter().position(|&v| flat.iter().all(|&w| w <= v)).unwrap();
    assert_eq!(x.argmax(..).item(), top as i64);
    assert_eq!(x.argmax([]).to_vec(), [0; 24]);
    assert_eq!(Tensor::scalar(3.0f64).argmin(..).item(), 0);

    let big = x.gt(0.5);
    let count = |t: &Tensor<bool>| t.to_vec().into_iter().filter(|&b| b).count();
    assert_eq!(big.any(..).item(), count(&big) > 0);
    assert_eq!(big.all([0, 1]).to_vec(), {
        let rows = big.permute([2, 0, 1]).reshape([4, 6]);
        (0..4).map(|i| count(&rows.select(0, i)) == 6).collect::<Vec<_>>()
    });
    assert!(!big.narrow(0, 0, 0).any(..).item() && big.narrow(0, 0, 0).all(..).item());

    for axes in [&[1][..], &[0, 2], &[-1, 1], &[]] {
        let shape = *x.sum_keepdim(axes).shape();
        assert_eq!(x.argmax_keepdim(axes).to_vec(), x.argmax(axes).to_vec());
        assert_eq!(x.argmin_keepdim(axes).to_vec(), x.argmin(axes).to_vec());
        assert_eq!(*x.argmax_keepdim(axes).shape(), shape);
        assert_eq!(*x.argmin_keepdim(axes).shape(), shape);
        assert_eq!(*big.any_keepdim(axes).shape(), shape);
        assert_eq!(*big.all_keepdim(axes).shape(), shape);
    }
}

/// Tensors in every order of memory, and in row-major order backwards.
fn in_memory_orders(dims: [usize; 3]) -> Vec<Tensor<f32>> {
    let x = Rng(3).normals::<f32>(&dims);
    let mut all = vec![x.flip([0, 2]).contiguous().flip([0, 2])];
    for order in [[0, 1, 2], [0, 2, 1], [2, 1, 0], [1, 2, 0], [1, 0, 2], [2, 0, 1]] {
        let mut back = [0; 3];
        (0..3).for_each(|i| back[order[i] as usize] = i as isize);
        all.push(x.permute(order).contiguous().permute(back));
    }
    all
}

/// Sums keep their logical order, also where columns are read in squares and a reduced axis ends within one, and
/// where sequences that are adjacent in memory are transposed a few at a time.
#[test]
fn reductions_do_not_depend_on_the_order_of_memory() {
    let shapes = [[3, 300, 70], [2, 33, 65], [300, 2, 130], [1, 600, 64], [70, 17, 9]];
    let adjacent = [[3, 37, 300], [37, 300, 3], [300, 3, 37], [3, 300, 37], [300, 37, 3]];
    for dims in shapes.into_iter().chain(adjacent) {
        let all = in_memory_orders(dims);
        for level in Level::available() {
            for axes in (1..8).map(|seed| axis_sets(3, seed)) {
                let results =
                    |x: &Tensor<f32>| [x.sum(axes), x.max(axes), x.slice(1, 1..).sum(axes)];
                let want = with_level(level, || results(&all[0].contiguous()));
                for x in &all {
                    for (got, want) in with_level(level, || results(x)).iter().zip(&want) {
                        same(&format!("{axes:?} {level}"), got, want);
                    }
                }
            }
        }
    }
}

/// Sums of terms have the bits of sums of a tensor of all terms, for any number of threads.
#[test]
fn reductions_of_terms_are_those_of_tensors() {
    let shapes = [[1, 1, 200_000], [3, 1, 70_000], [1, 700, 200], [1, 70_000, 3], [300, 7, 90]];
    for dims in shapes.into_iter().chain([[40, 50, 60], [2, 90_000, 1], [1, 3, 70_000]]) {
        for x in in_memory_orders(dims) {
            for axes in (1..8).map(|seed| axis_sets(3, seed)) {
                let off = x.sub(&x.mean_keepdim(axes));
                let off = off.sub(&off.mean_keepdim(axes));
                let var = &off.square().sum(axes) / x.count(axes) as f32;
                let kept = x.max_keepdim(axes);
                let terms = x.sub(&kept).exp().sum(axes).ln().add(&x.max(axes));
                let norm = x.square().sum(axes).sqrt();
                let [all, others] = [&x, &off].map(|t| t.reshape([x.numel()]));
                for threads in [1, 3] {
                    with_threads(threads, || {
                        same("var", &x.var(axes, 0), &var);
                        same("logsumexp", &x.logsumexp(axes), &terms);
                        same("norm", &x.norm(axes), &norm);
                        same("dot", &all.dot(&others), &all.mul(&others).sum(..));
                    });
                }
            }
        }
    }
}
