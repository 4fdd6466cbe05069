//! Selection and addition at indices, against loops over all elements.

use retrograd_tensor::random::Rng;
use retrograd_tensor::{Tensor, with_threads};
use std::panic::catch_unwind;

/// The message of the panic of `f`.
fn panic_message(f: impl FnOnce() + std::panic::UnwindSafe) -> String {
    let payload = catch_unwind(f).expect_err("must panic");
    payload
        .downcast_ref::<String>()
        .cloned()
        .unwrap_or_else(|| payload.downcast_ref::<&str>().expect("a panic with a text").to_string())
}

fn shapes() -> impl Iterator<Item = ([usize; 3], usize, [usize; 3])> {
    let shapes = [[3, 4, 5], [1, 7, 2], [5, 1, 1], [2, 3, 0]];
    let counts = [0, 1, 3, 9];
    shapes.into_iter().flat_map(move |shape| {
        (0..3).flat_map(move |axis| {
            counts.into_iter().flat_map(move |n| {
                let mut whole = shape;
                whole[axis] = n;
                // Also with fewer slices than the tensor has.
                let fewer = std::array::from_fn(|i| if i == axis { n } else { shape[i].min(2) });
                [(shape, axis, whole), (shape, axis, fewer)]
            })
        })
    })
}

#[test]
fn gather_and_scatter_add_equal_loops() {
    let mut rng = Rng::new(1);
    for (shape, axis, idx_shape) in shapes() {
        if shape[axis] == 0 && idx_shape.iter().product::<usize>() > 0 {
            continue;
        }
        let x = Tensor::<f64>::randn(shape, &mut rng);
        let src = Tensor::<f64>::randn(idx_shape, &mut rng);
        let idx = match shape[axis] {
            0 => Tensor::<i64>::zeros(idx_shape),
            n => Tensor::<i64>::randint(0, n as i64, idx_shape, &mut rng),
        };
        let target = |i: &[usize]| {
            let mut at = i.to_vec();
            at[axis] = idx.at(i) as usize;
            at
        };
        let gathered = Tensor::from_fn(idx_shape, |i| x.at(&target(i)));
        let mut added = x.clone();
        let sums = added.make_mut();
        // Visits all indices in order.
        Tensor::from_fn(idx_shape, |i| {
            let flat = target(i).iter().zip(shape).fold(0, |flat, (&i, n)| flat * n + i);
            sums[flat] += src.at(i);
            src.at(i)
        });
        // The results do not depend on layouts.
        let turned = |t: &Tensor<f64>| Tensor::from_vec(t.t().to_vec(), t.t().shape()).t();
        for (x, src) in [(x.clone(), src.clone()), (turned(&x), turned(&src))] {
            assert_eq!(x.gather(axis as isize, &idx), gathered);
            assert_eq!(x.gather(axis as isize - 3, &idx), gathered);
            assert_eq!(x.scatter_add(axis as isize, &idx, &src), added);
        }
    }
}

#[test]
fn index_select_and_index_add_equal_loops() {
    let mut rng = Rng::new(2);
    for (shape, axis, idx_shape) in shapes() {
        let n = idx_shape[axis];
        if shape[axis] == 0 && n > 0 {
            continue;
        }
        let x = Tensor::<f64>::randn(shape, &mut rng);
        let idx = match shape[axis] {
            0 => Tensor::<u32>::zeros([n]),
            size => Tensor::<u32>::randint(0, size as u32, [n], &mut rng),
        };
        let mut dims = shape;
        dims[axis] = n;
        let src = Tensor::<f64>::randn(dims, &mut rng);
        // Both are gather and scatter_add with the index repeated.
        let mut wide = [1; 3];
        wide[axis] = n;
        let wide = idx.reshape(wide).broadcast_to(dims);
        assert_eq!(x.index_select(axis as isize, &idx), x.gather(axis as isize, &wide));
        let added = x.index_add(axis as isize, &idx, &src);
        assert_eq!(added, x.scatter_add(axis as isize, &wide, &src));
    }
}

#[test]
fn embedding_and_its_gradient_equal_loops() {
    let table = Tensor::<f32>::arange(0.0, 8.0, 1.0).reshape([4, 2]);
    let idx = Tensor::from([[3i64, 0], [3, 1]]);
    let y = table.embedding(&idx);
    assert_eq!(*y.shape(), [2, 2, 2]);
    assert_eq!(y.to_vec(), [6.0, 7.0, 0.0, 1.0, 6.0, 7.0, 2.0, 3.0]);
    let grad = Tensor::embedding_vjp(&y, &idx, 4);
    assert_eq!(grad.to_vec(), [0.0, 1.0, 2.0, 3.0, 0.0, 0.0, 12.0, 14.0]);
    // One index, no index, no columns, no rows.
    assert_eq!(table.embedding(&Tensor::<u32>::scalar(2)).to_vec(), [4.0, 5.0]);
    let none = Tensor::<i64>::zeros([0, 3]);
    assert_eq!(*table.embedding(&none).shape(), [0, 3, 2]);
    assert_eq!(Tensor::embedding_vjp(&Tensor::<f32>::zeros([0, 3, 2]), &none, 0).numel(), 0);
    let narrow = Tensor::<f32>::zeros([4, 0]);
    assert_eq!(*narrow.embedding(&idx).shape(), [2, 2, 0]);
    assert_eq!(*Tensor::embedding_vjp(&narrow.embedding(&idx), &idx, 4).shape(), [4, 0]);
}

#[test]
fn sums_do_not_depend_on_threads() {
    let mut rng = Rng::new(3);
    let idx = Tensor::<i64>::randint(0, 65, [4096], &mut rng);
    let grad = Tensor::<f32>::randn([4096, 128], &mut rng);
    let lines = Tensor::<i64>::randint(0, 50, [600, 700], &mut rng);
    let src = Tensor::<f32>::randn([600, 700], &mut rng);
    let run = |threads| {
        with_threads(threads, || {
            let zero = Tensor::<f32>::zeros([600, 50]);
            let tall = Tensor::<f32>::zeros([50, 700]);
            [
                Tensor::embedding_vjp(&grad, &idx, 65),
                zero.scatter_add(1, &lines, &src),
                tall.scatter_add(0, &lines, &src),
                grad.embedding(&idx),
                src.gather(1, &lines),
            ]
        })
    };
    let one = run(1);
    assert_eq!(one, run(2));
    assert_eq!(one, run(5));
    // In ascending order of position.
    let mut table = vec![0.0f32; 65 * 128];
    for (at, &v) in idx.as_slice().iter().enumerate() {
        for c in 0..128 {
            table[v as usize * 128 + c] += grad.as_slice()[at * 128 + c];
        }
    }
    assert_eq!(one[0].to_vec(), table);
}

#[test]
fn every_index_is_checked_and_printed_with_its_sign() {
    let table = Tensor::<f32>::zeros([256, 2]);
    for bad in [-1, 256, i64::MIN, i64::MAX] {
        let idx = Tensor::from([0, 1, 2, 3, 4, 5, 6, bad]);
        let expected = format!("index {bad} at position 7 is outside 0..256");
        let wide = idx.reshape([8, 1]);
        let grad = Tensor::<f32>::zeros([8, 2]);
        assert_eq!(panic_message(|| drop(table.embedding(&idx))), format!("embedding: {expected}"));
        assert_eq!(panic_message(|| drop(table.gather(0, &wide))), format!("gather: {expected}"));
        assert_eq!(
            panic_message(|| drop(table.index_select(0, &idx))),
            format!("index_select: {expected}")
        );
        assert_eq!(
            panic_message(|| drop(table.index_add(0, &idx, &grad))),
            format!("index_add: {expected}")
        );
        assert_eq!(
            panic_message(|| drop(table.scatter_add(0, &wide, &grad.narrow(1, 0, 1)))),
            format!("scatter_add: {expected}")
        );
        assert_eq!(
            panic_message(|| drop(Tensor::embedding_vjp(&grad, &idx, 256))),
            format!("embedding_vjp: {expected}")
        );
    }
    // The position is that of the caller, for every axis.
    let idx = Tensor::from([[0i64, 0], [0, 9], [0, 0]]);
    assert_eq!(
        panic_message(|| drop(Tensor::<f32>::zeros([3, 2]).scatter_add(
            0,
            &idx,
            &Tensor::zeros([3, 2])
        ))),
        "scatter_add: index 9 at position 3 is outside 0..3"
    );
}

#[test]
fn errors_name_invalid_shapes() {
    let x = Tensor::<f32>::zeros([3, 4]);
    let idx = Tensor::<i64>::zeros([5, 4]);
    assert_eq!(
        panic_message(|| drop(x.gather(1, &idx))),
        "gather: axis 0 of indices [5, 4] is longer than that of [3, 4]"
    );
    assert_eq!(
        panic_message(|| drop(x.gather(1, &Tensor::<i64>::zeros([3])))),
        "gather: indices [3] must have rank 2, not 1"
    );
    assert_eq!(
        panic_message(|| drop(x.scatter_add(0, &idx, &x))),
        "scatter_add: the values must have shape [5, 4], not [3, 4]"
    );
    assert_eq!(
        panic_message(|| drop(x.index_select(2, &Tensor::<i64>::zeros([1])))),
        "index_select: axis 2 is out of range for [3, 4], which has rank 2"
    );
    assert_eq!(
        panic_message(|| drop(Tensor::<f32>::zeros([3]).embedding(&idx))),
        "embedding: the table [3] must have rank 2, not 1"
    );
    assert_eq!(
        panic_message(|| drop(Tensor::embedding_vjp(&x, &idx, 3))),
        "embedding_vjp: the gradient [3, 4] must have rank 3, not 2"
    );
}
