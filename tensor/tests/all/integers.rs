//! Arithmetic on integers: against `i128`, with errors where a result does not fit.

use crate::common::Rng;
use retrograd_support::panics::catch;
use retrograd_tensor::{Integer, Tensor, with_threads};

type Exact = fn(i128, i128) -> Option<i128>;

fn floor_div(a: i128, b: i128) -> Option<i128> {
    (b != 0).then(|| if b > 0 { a.div_euclid(b) } else { (-a).div_euclid(-b) })
}

fn pow(a: i128, b: i128) -> Option<i128> {
    // Larger exponents have the result of a smaller one of the same parity, or none.
    a.checked_pow(if b > 1000 { 1000 + b % 2 } else { b }.try_into().ok()?)
}

/// The operations on two tensors.
macro_rules! operations {
    ($t:ty) => {{
        type Op = fn(&Tensor<$t>, &Tensor<$t>) -> Tensor<$t>;
        let all: [(&str, Op, Exact); 9] = [
            ("add", |a, b| a + b, |a, b| Some(a + b)),
            ("sub", |a, b| a - b, |a, b| Some(a - b)),
            ("mul", |a, b| a * b, |a, b| Some(a * b)),
            ("div", |a, b| a / b, floor_div),
            ("remainder", Tensor::remainder, |a, b| floor_div(a, b).map(|q| a - q * b)),
            ("fmod", Tensor::fmod, |a, b| (b != 0).then(|| a % b)),
            ("maximum", Tensor::maximum, |a, b| Some(a.max(b))),
            ("minimum", Tensor::minimum, |a, b| Some(a.min(b))),
            ("pow", Tensor::pow, pow),
        ];
        all
    }};
}

/// Checks an operation on every pair of `x`, alone, and on all pairs with a result together.
fn check<I: Integer>(
    name: &str,
    op: fn(&Tensor<I>, &Tensor<I>) -> Tensor<I>,
    exact: Exact,
    x: &[I],
) {
    let mut results = 0;
    for (&a, &b) in x.iter().flat_map(|a| x.iter().map(move |b| (a, b))) {
        let got = catch(|| op(&Tensor::scalar(a), &Tensor::scalar(b)).item());
        let got = got.ok();
        let want = exact(a.to_i128(), b.to_i128()).and_then(I::checked_from);
        assert_eq!(got, want, "{name} of {a} and {b} in {}", I::DTYPE);
        results += usize::from(want.is_some());
    }
    assert!(results > 4, "{name} in {}", I::DTYPE);
}

#[test]
fn results_are_exact_or_errors() {
    let x = [0, 1, -1, 2, -2, 3, -3, 7, -7, 62, 63, i64::MAX, i64::MAX - 1, i64::MIN, i64::MIN + 1];
    for (name, op, exact) in operations!(i64) {
        check(name, op, exact, &x);
    }
    let x = [0, 1, 2, 3, 7, 31, 32, u32::MAX, u32::MAX - 1];
    for (name, op, exact) in operations!(u32) {
        check(name, op, exact, &x);
    }
    assert_eq!((-Tensor::from([1i64, -2])).to_vec(), [-1, 2]);
    assert_eq!(Tensor::from([1i64, -2]).abs().to_vec(), [1, 2]);
    assert!(catch(|| -Tensor::from([i64::MIN])).is_err());
    assert!(catch(|| -Tensor::from([1u32])).is_err());
    assert!(catch(|| Tensor::from([i64::MIN]).abs()).is_err());
    assert_eq!((-Tensor::from([0u32])).to_vec(), [0]);
}

#[test]
fn operands_are_broadcast_and_may_be_numbers() {
    let positions = Tensor::<i64>::indices(3);
    assert_eq!((&positions + 1).to_vec(), [1, 2, 3]);
    assert_eq!((10 - &positions * 2).to_vec(), [10, 8, 6]);
    assert_eq!((12 / (&positions + 1)).to_vec(), [12, 6, 4]);
    let distance = positions.unsqueeze(-1) - positions.unsqueeze(0);
    assert_eq!(distance, Tensor::from([[0, -1, -2], [1, 0, -1], [2, 1, 0]]));
    assert_eq!(distance.t().to_vec(), (-&distance).to_vec());
    let mut counts = Tensor::from([1u32, 2]);
    let before = counts.clone();
    counts.add_assign(&Tensor::scalar(5));
    assert_eq!((counts.to_vec(), before.to_vec()), (vec![6, 7], vec![1, 2]));
    assert_eq!(positions.gt(1).to_vec(), [false, false, true]);
}

#[test]
fn reductions_are_exact_or_errors() {
    let x = Tensor::from([[3i64, -5, 4], [0, 7, -1]]);
    assert_eq!((x.sum(..).item(), x.sum(0).to_vec()), (8, vec![3, 2, 3]));
    assert_eq!((x.prod(1).to_vec(), *x.prod_keepdim(1).shape()), (vec![-60, 0], [2, 1].into()));
    assert_eq!((x.max(1).to_vec(), x.min(..).item()), (vec![4, 7], -5));
    assert_eq!((x.argmax(0).to_vec(), x.argmin_keepdim(-1).to_vec()), (vec![0, 1, 0], vec![1, 2]));
    let none = Tensor::<i64>::zeros([2, 0]);
    assert_eq!((none.sum(1).to_vec(), none.prod(..).item()), (vec![0, 0], 1));
    assert!(catch(|| none.max(1)).is_err());
    // The sum of all fits, though partial sums do not.
    assert_eq!(Tensor::from([i64::MAX, 1, -1]).sum(..).item(), i64::MAX);
    assert!(catch(|| Tensor::from([i64::MAX, 1]).sum(..)).is_err());
    assert!(catch(|| Tensor::from([i64::MAX, 2]).prod(..)).is_err());
    assert_eq!(x.cumsum(1).to_vec(), [3, -2, 2, 0, 7, 6]);
    assert!(catch(|| Tensor::from([u32::MAX, 1]).cumsum(0)).is_err());
}

#[test]
fn integers_are_sorted() {
    let x = Tensor::from([[3i64, -5, 4, 3], [0, 7, -1, 7]]);
    let (values, from) = x.sort(-1, true);
    assert_eq!(values, Tensor::from([[4, 3, 3, -5], [7, 7, 0, -1]]));
    assert_eq!(from, Tensor::from([[2, 0, 3, 1], [1, 3, 0, 2]]));
    let (values, from) = x.topk(0, 1, false);
    assert_eq!((values.to_vec(), from.to_vec()), (vec![0, -5, -1, 3], vec![1, 0, 1, 0]));
    assert_eq!(Tensor::from([5u32, 0, 9]).argsort(0, false).to_vec(), [1, 0, 2]);
    assert_eq!(Tensor::from([true, false, true]).argsort(0, false).to_vec(), [1, 0, 2]);
}

#[test]
fn errors_name_the_first_element_on_any_number_of_threads() {
    let mut rng = Rng(3);
    let mut data: Vec<u32> = (0..100_000).map(|_| 5 + rng.below(100) as u32).collect();
    for at in [99_999, 70_003, 1_234, 40_000] {
        data[at] = 4;
    }
    let x = Tensor::from_vec(data, [100, 1000]).t();
    for threads in [1, 2, 4] {
        let error = with_threads(threads, || catch(|| &x - 5));
        let text = *error.expect_err("4 - 5").downcast::<String>().unwrap();
        assert_eq!(
            text,
            "sub: the result of 4 and 5 at index [0, 40] is no u32 \
             (hint: cast::<f64>() has a larger range)"
        );
    }
}
