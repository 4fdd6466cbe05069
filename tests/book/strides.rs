//! Solutions of the exercises of `book::strides`.

use retrograd::prelude::*;
use std::collections::BTreeSet;

#[test]
fn anti_diagonal() {
    let x = Tensor::<f32>::arange(0.0, 9.0, 1.0).reshape([3, 3]);
    let y = x.flip(1).diagonal(0, 1, 0);
    assert_eq!((y.layout().strides(), y.layout().offset()), (&[2][..], 2));
    assert_eq!(y.to_vec(), [2.0, 4.0, 6.0]);
    assert!(y.shares_storage(&x));
}

#[test]
fn strides_of_axes_of_one() {
    // The index of an axis of size 1 is always 0, so its stride is never used.
    let x = Tensor::<f32>::arange(0.0, 8.0, 1.0).reshape([2, 4]);
    let row = x.slice_step(0, .., 2); // one row, whose first stride is never used
    assert_eq!(row.shape().to_vec(), [1, 4]);
    assert_ne!(row.layout().strides(), Tensor::<f32>::zeros([1, 4]).layout().strides());
    assert!(row.is_contiguous());
}

#[test]
fn reshapes_of_slices() {
    let x = Tensor::<f32>::arange(0.0, 12.0, 1.0).reshape([3, 4]);
    // Whole rows lie without gaps: strides [4, 1] and sizes [2, 4].
    assert!(x.slice(0, 1..3).reshape([8]).shares_storage(&x));
    // Parts of rows do not: 4 is not 2 · 1.
    assert!(!x.slice(1, 1..3).reshape([6]).shares_storage(&x));
}

#[test]
fn convolution_by_windows() {
    let x = Var::leaf(Tensor::from([1.0f64, -2.0, 0.5, 3.0, 1.0]));
    let w = Var::leaf(Tensor::from([0.5f64, 1.0, -1.0]));
    let y = x.unfold(0, 3, 1).matmul(&w);
    assert_eq!(y.value().to_vec(), [-2.0, -3.5, 2.25]);
    let g = Tensor::from([1.0f64, 10.0, 100.0]);
    let grads = y.backward_with(&g);
    // The gradient of x is the full correlation of g with the weights: x[i] is in window i - k with
    // weight k.
    let mut wanted = [0.0; 5];
    for (window, g) in g.to_vec().into_iter().enumerate() {
        for (k, w) in w.value().to_vec().into_iter().enumerate() {
            wanted[window + k] += g * w;
        }
    }
    assert_eq!(grads.get(&x).unwrap().to_vec(), wanted);
    assert_eq!(
        grads.get(&w).unwrap().to_vec(),
        [1.0 - 20.0 + 50.0, -2.0 + 5.0 + 300.0, 0.5 + 30.0 + 100.0]
    );
}

#[test]
fn injective_layouts() {
    let x = Tensor::<f32>::arange(0.0, 24.0, 1.0).reshape([2, 3, 4]);
    let views = [
        x.clone(),
        x.transpose(0, 2),
        x.flip(1).slice_step(2, .., 3),
        x.select(0, 1).broadcast_to([5, 3, 4]),
        x.unfold(2, 2, 1),
        x.unfold(2, 2, 2),
        x.diagonal(1, 2, 0),
    ];
    for view in views {
        let layout = view.layout();
        let mut positions = BTreeSet::new();
        let indices = Tensor::from_fn(*view.shape(), |index| {
            positions.insert(layout.position("test", index).unwrap());
            0.0f32
        });
        // As many positions as elements: none is shared. Sufficient is that, sorted by magnitude, each
        // stride exceeds the sum of (size - 1) · stride of those before it.
        assert_eq!(layout.is_injective(), positions.len() == indices.numel(), "{layout:?}");
    }
}
