//! The rows of a table at indices, and their gradient. The other selections are in `scatter.rs`.

use retrograd_tensor::Tensor;
use retrograd_tensor::random::Rng;

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

/// Gradients of rows are added in ascending order of position.
#[test]
fn sums_are_added_in_order() {
    let mut rng = Rng::new(3);
    let idx = Tensor::<i64>::randint(0, 65, [4096], &mut rng);
    let grad = Tensor::<f32>::randn([4096, 128], &mut rng);
    let mut table = vec![0.0f32; 65 * 128];
    for (at, &v) in idx.as_slice().iter().enumerate() {
        for c in 0..128 {
            table[v as usize * 128 + c] += grad.as_slice()[at * 128 + c];
        }
    }
    assert_eq!(Tensor::embedding_vjp(&grad, &idx, 65).to_vec(), table);
}

#[test]
fn scatter_add_reads_a_permuted_index_in_order() {
    // The index is contiguous only once its axes are exchanged.
    let idx = Tensor::from([[1i64, 0], [0, 1], [1, 0]]).t();
    let src = Tensor::from([[1.0f64, 2.0, 3.0], [4.0, 5.0, 6.0]]);
    let x = Tensor::zeros([2, 3]);
    let expected = x.scatter_add(0, &Tensor::from_vec(idx.to_vec(), [2, 3]), &src);
    assert_eq!(expected.to_vec(), [4.0, 2.0, 6.0, 1.0, 5.0, 3.0]);
    assert_eq!(x.scatter_add(0, &idx, &src), expected);
}
