//! Sorting along an axis: stable, with NaN above every number.

use retrograd_tensor::random::Rng;
use retrograd_tensor::{Tensor, with_threads};

const NAN: f32 = f32::NAN;

#[test]
fn nan_is_above_all_numbers_and_ties_keep_their_order() {
    let x = Tensor::from([0.0f32, NAN, f32::INFINITY, -0.0, 1.0, NAN, f32::NEG_INFINITY]);
    let (values, from) = x.sort(0, false);
    assert_eq!(from.to_vec(), [6, 0, 3, 4, 2, 1, 5]);
    assert_eq!(values.slice(0, ..5), x.index_select(0, &from.slice(0, ..5)));
    assert!(values.to_vec()[1].is_sign_positive() && values.to_vec()[2].is_sign_negative());
    assert_eq!(x.argsort(0, true).to_vec(), [1, 5, 2, 4, 0, 3, 6]);
    assert_eq!(x.topk(0, 3, true).1.to_vec(), [1, 5, 2]);
    assert_eq!(x.topk(0, 3, false).1.to_vec(), [6, 0, 3]);
}

#[test]
fn sorting_along_every_axis_equals_a_stable_sort() {
    let mut rng = Rng::new(5);
    // Few distinct values, for ties.
    let x = Tensor::<f64>::rand([6, 7, 50], &mut rng).mul_scalar(8.0);
    let x = Tensor::from_vec(x.to_vec().into_iter().map(f64::floor).collect(), [6, 7, 50]);
    for axis in 0..3 {
        for descending in [false, true] {
            let (values, from) = x.sort(axis, descending);
            assert_eq!(x.gather(axis, &from), values);
            let lines = [&x, &values].map(|t| t.transpose(axis, -1));
            let from = from.transpose(axis, -1);
            for i in 0..lines[0].size(0) {
                for j in 0..lines[0].size(1) {
                    let line = lines[0].select(0, i).select(0, j).to_vec();
                    let mut expected: Vec<i64> = (0..line.len() as i64).collect();
                    let at = |&i: &i64| line[i as usize];
                    expected.sort_by(|a, b| match descending {
                        false => at(a).total_cmp(&at(b)),
                        true => at(b).total_cmp(&at(a)),
                    });
                    assert_eq!(from.select(0, i).select(0, j).to_vec(), expected);
                }
            }
            for k in 0..x.size(axis) {
                let (top, index) = x.topk(axis, k, descending);
                assert_eq!(top, values.narrow(axis, 0, k));
                assert_eq!(index, x.argsort(axis, descending).narrow(axis, 0, k));
            }
        }
    }
}

/// Ties, infinities, NaN among others, and nothing but NaN, in rising, falling and random order.
#[test]
fn a_few_of_a_long_line_are_the_first_in_order() {
    let mut rng = Rng::new(9);
    let random = Tensor::<f32>::randn([1000], &mut rng).mul_scalar(3.0);
    let random: Vec<f32> = random.to_vec().into_iter().map(f32::round).collect();
    let some_nan = random.iter().map(|&x| if x > 2.0 { NAN } else { x }).collect();
    let mostly_nan = random.iter().map(|&x| if x > -8.0 { NAN } else { x }).collect();
    let infinite = random.iter().map(|&x| if x < 0.0 { -f32::INFINITY } else { x }).collect();
    let rising: Vec<f32> = (0..1000).map(|i| (i / 3) as f32).collect();
    let falling = rising.iter().rev().copied().collect();
    for line in [random, some_nan, mostly_nan, infinite, rising, falling, vec![NAN; 1000]] {
        let x = Tensor::from_vec(line, [1000]);
        for largest in [false, true] {
            let all = x.argsort(0, largest);
            for k in [1, 2, 40, 124, 125, 126] {
                assert_eq!(x.topk(0, k, largest).1, all.narrow(0, 0, k), "{k}, {largest}");
            }
        }
    }
}

#[test]
fn sorting_does_not_depend_on_threads_and_accepts_empty_axes() {
    let x = Tensor::<f32>::randn([300, 200], &mut Rng::new(6));
    let run = |n| with_threads(n, || (x.sort(0, true), x.topk(1, 7, true)));
    assert_eq!(run(1), run(3));
    for shape in [[0, 3], [3, 0]] {
        for axis in [0, 1] {
            let empty = Tensor::<f32>::zeros(shape);
            assert_eq!(*empty.sort(axis, false).0.shape(), shape);
            assert_eq!(empty.topk(axis, 0, true).1.size(axis), 0);
        }
    }
}
