//! What `einsum` leaves unsaid: implicit results, ellipses, broadcasting; and errors. Other formulas are compared
//! with loops in `matmul`.

use retrograd_support::panics::panic_text;
use retrograd_tensor::Tensor;

fn x(shape: &[usize]) -> Tensor<f64> {
    let mut n = 0.0;
    Tensor::from_fn(shape, |_| {
        n += 1.0;
        n
    })
}

#[test]
fn without_an_arrow_the_result_has_the_axes_that_are_named_once() {
    let (a, b) = (x(&[2, 3]), x(&[3, 4]));
    assert_eq!(Tensor::einsum("ij,jk", &[&a, &b]), a.matmul(&b));
    assert_eq!(Tensor::einsum("ji", &[&a]), a.t());
    assert_eq!(Tensor::einsum("ii", &[&x(&[3, 3])]).item(), 15.0);
}

#[test]
fn ellipses_stand_for_the_axes_that_are_not_named() {
    let (a, b) = (x(&[2, 1, 3, 4]), x(&[5, 4, 6]));
    assert_eq!(Tensor::einsum("...ij,...jk->...ik", &[&a, &b]), a.matmul(&b));
    assert_eq!(Tensor::einsum("...ij,...jk", &[&a, &b]), a.matmul(&b));
    assert_eq!(
        Tensor::einsum("i...,jk...->i...", &[&x(&[3]), &x(&[2, 2])]).to_vec(),
        [10.0, 20.0, 30.0]
    );
    assert_eq!(Tensor::einsum("...->...", &[&a]), a);
    assert_eq!(Tensor::einsum("i...j->j...i", &[&a]), a.permute([3, 1, 2, 0]));
    assert_eq!(Tensor::einsum("...ij->ij", &[&a]), a.sum([0, 1]));
    assert_eq!(Tensor::einsum("...ii->...i", &[&x(&[2, 3, 3])]), x(&[2, 3, 3]).diagonal(1, 2, 0));
    assert_eq!(Tensor::einsum("...", &[&Tensor::scalar(3.0f64)]).item(), 3.0);
}

#[test]
fn axes_of_size_one_are_broadcast() {
    let (column, row, whole) = (x(&[3, 1]), x(&[1, 4]), x(&[3, 4]));
    assert_eq!(Tensor::einsum("ij,ij->ij", &[&column, &whole]), column.mul(&whole));
    assert_eq!(Tensor::einsum("ij,ij->ij", &[&column, &row]), column.mul(&row));
    assert_eq!(Tensor::einsum("ij,ij->", &[&row, &whole]).item(), row.mul(&whole).sum(..).item());
    assert_eq!(Tensor::einsum("ij,ij->i", &[&column, &row]), column.mul(&row).sum(1));
    assert_eq!(
        Tensor::einsum("ij,jk->ik", &[&column, &x(&[2, 5])]),
        column.mul(&x(&[2, 5]).sum(0))
    );
    assert_eq!(*Tensor::einsum("ij,ij->ij", &[&column, &x(&[3, 0])]).shape(), [3, 0]);
    assert_eq!(Tensor::einsum("ij->ji", &[&row]), row.t());
}

#[test]
fn bad_formulas() {
    let (a, b) = (x(&[2, 3]), x(&[3, 4]));
    let e = |f: &str| panic_text(|| Tensor::einsum(f, &[&a, &b]));
    assert_eq!(e("ij,ik->jk"), "einsum: \"ij,ik->jk\": axis i is 2 and 3");
    assert_eq!(e("ij->ij"), "einsum: \"ij->ij\": 1 operands named, 2 given");
    assert!(e("ij,jk->iz").contains("axis z of the result is in no operand"));
    assert!(e("ij,jk->ii").contains("named twice"));
    assert!(e("ij,j.->i").contains("letters"));
    assert!(e("ij,j..->i").contains("letters"));
    assert!(e("ij,......->i").contains("letters"));
    assert_eq!(e("ij,...jik->k"), "einsum: \"ij,...jik->k\": 3 axes named, the operand is [3, 4]");
    assert_eq!(e("ij,k->k"), "einsum: \"ij,k->k\": 1 axes named, the operand is [3, 4]");
    assert_eq!(e("...,..."), "einsum: \"...,...\": axis ... is 2 and 3");
    assert_eq!(e("...,ii"), "einsum: \"...,ii\": axis i is 3 and 4 in one operand");
    let one = panic_text(|| Tensor::einsum("ii", &[&x(&[1, 3])]));
    assert_eq!(one, "einsum: \"ii\": axis i is 1 and 3 in one operand");
}
