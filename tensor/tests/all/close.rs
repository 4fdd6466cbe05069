//! Comparisons up to rounding errors.

use crate::common::SPECIAL;
use retrograd_tensor::{NotClose, Tensor};

#[test]
fn special_values_are_close_as_in_numpy() {
    let n = SPECIAL.len();
    let (column, row) =
        (Tensor::from_vec(SPECIAL.to_vec(), [n, 1]), Tensor::from_vec(SPECIAL.to_vec(), [n]));
    for (rtol, atol) in [(0.0, 0.0), (1e-5, 1e-8), (0.5, 0.0), (0.0, 1.5), (f64::INFINITY, 0.0)] {
        let close = column.isclose(&row, rtol, atol);
        for i in 0..n {
            for j in 0..n {
                let (a, b) = (f64::from(SPECIAL[i]), f64::from(SPECIAL[j]));
                let finite = a.is_finite() && b.is_finite();
                let want = a == b || finite && (a - b).abs() <= atol + rtol * b.abs();
                assert_eq!(close.at(&[i, j]), want, "{a} and {b} by {rtol}, {atol}");
            }
        }
        assert!(!row.allclose(&row, rtol, atol), "NaN is not close to itself");
        let numbers = row.nan_to_num(0.0, f32::INFINITY, f32::NEG_INFINITY);
        assert!(numbers.allclose(&numbers, rtol, atol));
    }
}

#[test]
fn the_worst_element_is_named() {
    let expected = Tensor::from([[1.0f32, 10.0, 100.0], [-1.0, 0.0, 2.0]]);
    let mut actual = expected.clone();
    assert_eq!(actual.close_to(&expected, 0.0, 0.0), Ok(()));
    actual.make_mut().copy_from_slice(&[1.01, 10.5, 101.0, -1.25, 0.001, 2.0]);
    let worst = |actual: &Tensor, rtol, atol| match actual.close_to(&expected, rtol, atol) {
        Err(NotClose::Elements { index, mismatched, total: 6, .. }) => (index, mismatched),
        other => panic!("{other:?}"),
    };
    assert_eq!(worst(&actual, 0.0, 0.5), (vec![0, 2], 1)); // the largest difference
    assert_eq!(worst(&actual, 0.02, 0.002), (vec![1, 0], 2)); // the largest multiple of the allowed
    assert_eq!(worst(&actual, 0.02, 0.0), (vec![1, 1], 3)); // nothing is allowed
    assert_eq!(worst(&actual.t().contiguous().t(), 0.02, 0.0), (vec![1, 1], 3));
    for odd in [f32::NAN, f32::INFINITY] {
        let mut actual = actual.clone();
        actual.make_mut()[5] = odd;
        assert_eq!(worst(&actual, 0.02, 0.0), (vec![1, 1], 4), "the first of equals");
        assert_eq!(worst(&actual, 0.02, 1.0), (vec![1, 2], 1));
    }
    let error = Tensor::<f32>::zeros([2]).close_to(&expected, 1.0, 1.0).unwrap_err();
    assert_eq!(error.to_string(), "the shape is [2], expected [2, 3]");
    let text = actual.close_to(&expected, 0.0, 0.5).unwrap_err().to_string();
    assert_eq!(
        text,
        "1 of 6 elements are not close; the worst, at [0, 2], is 101.0, expected 100.0: a difference \
         of 1.000e0, where 5.000e-1 is allowed"
    );
}

#[test]
fn distances_are_counted_in_numbers() {
    let distance = |a: f32, b: f32| Tensor::from([a]).max_ulp_distance(&Tensor::from([b]));
    assert_eq!((distance(1.0, 1.0), distance(0.0, -0.0), distance(f32::NAN, -f32::NAN)), (0, 0, 0));
    assert_eq!(distance(1.0, 1.0f32.next_up()), 1);
    assert_eq!(distance(1e-45, -1e-45), 2);
    assert_eq!(distance(1.0, 2.0), 1 << 23);
    assert_eq!(distance(f32::MAX, f32::INFINITY), 1);
    assert_eq!(distance(1.0, f32::NAN), u64::MAX);
    let x = Tensor::from([f64::NEG_INFINITY, 1.0]);
    assert_eq!(x.max_ulp_distance(&Tensor::from([f64::INFINITY, 1.0])), 2 * (0x7ff << 52));
    assert_eq!(Tensor::<f64>::zeros([0]).max_ulp_distance(&Tensor::zeros([0])), 0);
}
