//! Statistics in one line, and iteration along the first axis.

use retrograd_tensor::random::Rng;
use retrograd_tensor::{DType, Tensor};

#[test]
fn descriptions_agree_with_reductions() {
    let x = Tensor::<f64>::randn([7, 11], &mut Rng::new(4));
    for layout in [x.clone(), x.t(), x.slice_step(1, .., -2)] {
        let d = layout.describe();
        assert_eq!((d.shape, d.dtype), (*layout.shape(), DType::F64));
        assert_eq!((d.min, d.max), (layout.min(..).item(), layout.max(..).item()));
        assert!((d.mean - layout.mean(..).item()).abs() < 1e-15);
        assert!((d.std - layout.std(.., 1).item()).abs() < 1e-14);
        assert_eq!((d.zeros, d.nan, d.infinite), (0, 0, 0));
    }
}

#[test]
fn descriptions_count_what_is_not_finite() {
    let (nan, inf) = (f32::NAN, f32::INFINITY);
    let d = Tensor::from([nan, 0.0, -0.0, inf, -inf, 1e-6, nan]).describe();
    assert_eq!((d.zeros, d.nan, d.infinite), (2, 2, 2));
    assert_eq!(
        format!("{d:.1}"),
        "f32 [7]: min 0.0, max 1.0e-06, mean 3.3e-07, std 5.8e-07, 2 zeros, 2 NaN, 2 infinite"
    );
    let text = |x: Tensor<f32>| x.describe().to_string();
    assert_eq!(text(Tensor::zeros([0, 3])), "f32 [0, 3]: no elements");
    assert_eq!(text(Tensor::full([2], nan)), "f32 [2]: 2 NaN");
    assert_eq!(text(Tensor::scalar(2.0)), "f32 []: min 2.0000, max 2.0000, mean 2.0000");
    assert_eq!(
        text(Tensor::full([2], f32::MAX)),
        "f32 [2]: min 3.4028e+38, max 3.4028e+38, mean 3.4028e+38, std 0.0000"
    );
    let d = Tensor::full([4], f64::MAX).describe();
    assert_eq!((d.mean, d.std), (f64::MAX, 0.0));
    let d = Tensor::from([[i64::MIN, 0], [4, i64::MAX]]).describe();
    assert_eq!((d.min, d.max, d.zeros), (i64::MIN as f64, i64::MAX as f64, 1));
    assert_eq!(Tensor::from([3u32, 5]).describe().mean, 4.0);
}

#[test]
fn rows_are_the_slices_of_the_first_axis() {
    let x = Tensor::<i64>::arange(0, 24, 1).reshape([4, 3, 2]);
    for layout in [x.clone(), x.permute([2, 0, 1]), x.flip(0)] {
        let rows: Vec<Tensor<i64>> = layout.rows().collect();
        assert_eq!(rows.len(), layout.size(0));
        assert_eq!(Tensor::stack(&rows.iter().collect::<Vec<_>>(), 0), layout);
        assert!(rows[0].shares_storage(&layout));
        let reversed: Vec<Tensor<i64>> = layout.rows().rev().collect();
        assert!(reversed.iter().eq(rows.iter().rev()));
    }
    let mut rows = x.rows();
    assert_eq!((rows.len(), rows.nth(2).unwrap(), rows.len()), (4, x.select(0, 2), 1));
    assert_eq!(
        (rows.next_back().unwrap(), rows.next(), rows.next_back()),
        (x.select(0, 3), None, None)
    );
    let mut sum = 0;
    for row in &x {
        for pair in &row {
            sum += pair.at(&[0]) - pair.at(&[1]);
        }
    }
    assert_eq!(sum, -12);
    assert_eq!(Tensor::<f32>::zeros([0, 2]).rows().count(), 0);
}

#[test]
fn literals_and_iterators_have_the_shape_of_their_nesting() {
    let x = Tensor::from([[[[1i64, 2], [3, 4]], [[5, 6], [7, 8]]]]);
    assert_eq!((*x.shape(), x.to_vec()), ([1, 2, 2, 2].into(), (1..9).collect()));
    assert_eq!(*Tensor::from([[[0.5]; 3]; 0]).shape(), [0, 3, 1]);
    let odd: Tensor<u32> = (0..9).filter(|n| n % 2 == 1).collect();
    assert_eq!(odd.to_vec(), [1, 3, 5, 7]);
    assert_eq!(*Tensor::<f64>::from_iter([]).shape(), [0]);
    assert_eq!(Tensor::from(vec![true, false]).to_vec(), [true, false]);
    let nested = Tensor::try_from(vec![vec![vec![1i64, 2]], vec![vec![3, 4]]]).unwrap();
    assert_eq!(nested, Tensor::from([[[1, 2]], [[3, 4]]]));
    let error = |x: Vec<Vec<Vec<i64>>>| Tensor::try_from(x).unwrap_err().to_string();
    assert_eq!(
        error(vec![vec![vec![1]], vec![]]),
        "try_from: matrix 1 has length 0, matrix 0 has length 1"
    );
    assert_eq!(
        error(vec![vec![vec![1], vec![]]]),
        "try_from: row 1 has length 0, row 0 has length 1"
    );
    assert_eq!(*Tensor::<i64>::try_from(Vec::<Vec<i64>>::new()).unwrap().shape(), [0, 0]);
}
