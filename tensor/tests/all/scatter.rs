//! Selection, sums and replacement at indices, against loops over all elements.

use crate::common::{indices, same};
use retrograd_tensor::layout::Layout;
use retrograd_tensor::random::Rng;
use retrograd_tensor::{Ellipsis, NewAxis, ScatterReduce, StepBy, Tensor};

type Combine = fn(f64, f64) -> f64;

/// The loop that defines a scatter.
fn scattered(
    x: &Tensor<f64>,
    axis: usize,
    idx: &Tensor<i64>,
    src: &Tensor<f64>,
    f: Combine,
) -> Tensor<f64> {
    let mut out = x.contiguous();
    let dims = x.shape().to_vec();
    for at in indices(idx.shape()) {
        let mut to = at.clone();
        to[axis] = idx.at(&at) as usize;
        let flat = to.iter().zip(&dims).fold(0, |flat, (&i, &n)| flat * n + i);
        let data = out.make_mut();
        data[flat] = f(data[flat], src.at(&at));
    }
    out
}

fn extremum(a: f64, b: f64, is_better: bool) -> f64 {
    if a.is_nan() || !(b.is_nan() || is_better) { a } else { b }
}

#[test]
fn scatters_equal_loops() {
    let mut rng = Rng::new(5);
    for shape in [[3, 4, 5], [1, 7, 2], [5, 1, 1], [2, 3, 0]] {
        for axis in 0..3 {
            for (n, fewer) in [(0, false), (1, true), (3, false), (9, true)] {
                let mut dims = shape.map(|d| if fewer { d.min(2) } else { d });
                dims[axis] = n;
                if shape[axis] == 0 && dims.iter().product::<usize>() > 0 {
                    continue;
                }
                let mut x = Tensor::<f64>::randn(shape, &mut rng);
                let mut src = Tensor::<f64>::randn(dims, &mut rng);
                for t in [&mut x, &mut src] {
                    if let Some(first) = t.make_mut().first_mut() {
                        *first = f64::NAN;
                    }
                }
                let idx = match shape[axis] {
                    0 => Tensor::<i64>::zeros(dims),
                    size => Tensor::randint(0, size as i64, dims, &mut rng),
                };
                let turned = |t: &Tensor<f64>| Tensor::from_vec(t.t().to_vec(), t.t().shape()).t();
                for (x, src) in [(x.clone(), src.clone()), (turned(&x), turned(&src))] {
                    let at = axis as isize - 3;
                    let gathered = Tensor::from_fn(dims, |i| {
                        let mut from = i.to_vec();
                        from[axis] = idx.at(i) as usize;
                        x.at(&from)
                    });
                    same("gather", &x.gather(axis as isize, &idx), &gathered);
                    let check = |name: &str, got: Tensor<f64>, f: Combine| {
                        same(name, &got, &scattered(&x, axis, &idx, &src, f));
                    };
                    check("scatter_add", x.scatter_add(at, &idx, &src), |a, b| a + b);
                    check("scatter", x.scatter(at, &idx, &src), |_, new| new);
                    check("a number", x.scatter(at, &idx, 0.5), |_, _| 0.5);
                    let reduced = |how| x.scatter_reduce(at, &idx, &src, how);
                    check("sum", reduced(ScatterReduce::Sum), |a, b| a + b);
                    check("product", reduced(ScatterReduce::Prod), |a, b| a * b);
                    check("largest", reduced(ScatterReduce::Amax), |a, b| extremum(a, b, b > a));
                    check("smallest", reduced(ScatterReduce::Amin), |a, b| extremum(a, b, b < a));
                    if !fewer {
                        // One index for each slice.
                        let one = match shape[axis] {
                            0 => Tensor::<u32>::zeros([n]),
                            size => Tensor::randint(0, size as u32, [n], &mut rng),
                        };
                        let mut along = [1; 3];
                        along[axis] = n;
                        let all = one.reshape(along).broadcast_to(dims);
                        same("index_select", &x.index_select(at, &one), &x.gather(at, &all));
                        let sum = x.scatter_add(at, &all, &src);
                        same("index_add", &x.index_add(at, &one, &src), &sum);
                    }
                }
            }
        }
    }
}

#[test]
fn products_of_others_are_exact_where_factors_are_zero() {
    let x = Tensor::from([2.0f64, 3.0]);
    let idx = Tensor::from([0i64, 0, 1, 0]);
    let (of_x, of_src) = x.scatter_prod_of_others(0, &idx, &Tensor::from([5.0, 0.0, 7.0, 11.0]));
    assert_eq!(of_x.to_vec(), [0.0, 7.0]);
    assert_eq!(of_src.to_vec(), [0.0, 110.0, 3.0, 0.0]);
}

#[test]
fn assigned_elements_are_read_back() {
    let x = Tensor::<i64>::arange(0, 60, 1).reshape([3, 4, 5]);
    /// Assigns, and compares with a loop over all elements.
    macro_rules! check {
        ($($indices:expr;)+) => {$({
            let old = x.i($indices);
            let new = -old.contiguous() - 100;
            let y = x.slice_assign($indices, &new);
            assert_eq!(y.i($indices), new);
            let replaced = old.to_vec();
            for (&was, &is) in x.as_slice().iter().zip(y.as_slice()) {
                assert_eq!(is, if replaced.contains(&was) { -was - 100 } else { was });
            }
            assert_eq!(x.t().contiguous().t().slice_assign($indices, &new), y);
            let number = x.slice_assign($indices, -7);
            assert_eq!(number.eq(-7).count_true(), old.numel());
        })+};
    }
    check! {
        1;
        ..;
        (.., -1);
        (.., 1..3, StepBy(.., -2));
        (Ellipsis, 2..);
        (2, 3, 4);
        (NewAxis, 0..2, .., 3);
        (.., 2..2);
    }
    let columns = x.slice_assign((Ellipsis, ..2), Tensor::from([1, 2]));
    assert_eq!(columns.i((1, 2)).to_vec(), [1, 2, 32, 33, 34]);
    let row = Tensor::<i64>::zeros([5]);
    assert_eq!(x.select_scatter(-2, 3, &row).i((.., 3)), Tensor::zeros([3, 5]));
    assert_eq!(x.select_scatter(0, 1, &row), x.slice_assign(1, &row));
    let mask = Tensor::<bool>::zeros([2, 2]).slice_assign((0, 1), true);
    assert_eq!(mask.to_vec(), [false, true, false, false]);
    let diagonal = Layout::contiguous([3, 3].into()).diagonal("d", 0, 1, 0).unwrap();
    let eye = Tensor::<f32>::zeros([3, 3]).as_strided_scatter(&diagonal, &Tensor::scalar(1.0));
    assert_eq!(eye, Tensor::eye(3));
}
