//! Solutions of the exercises of `book::broadcasting`.

use retrograd::autograd::check::{Check, gradcheck};
use retrograd::prelude::*;

fn sum_to(x: &Tensor<f64>, shape: &[usize]) -> Tensor<f64> {
    let mut x = x.clone();
    while x.rank() > shape.len() {
        x = x.sum(0);
    }
    for (axis, &size) in shape.iter().enumerate() {
        if size == 1 && x.size(axis as isize) != 1 {
            x = x.sum_keepdim(axis as isize);
        }
    }
    x
}

#[test]
fn sum_to_by_hand() {
    let x = Tensor::<f64>::randn([2, 3, 4], &mut Rng::new(1));
    for shape in [&[2, 3, 4][..], &[3, 4], &[1, 4], &[3, 1], &[2, 1, 1], &[4], &[1], &[]] {
        let (mine, theirs) = (sum_to(&x, shape), x.sum_to(shape));
        assert_eq!(mine.shape(), theirs.shape());
        assert!((mine - theirs).abs().max(..).item() < 1e-13);
    }
}

#[test]
fn pairwise_distances() {
    let mut rng = Rng::new(2);
    let points = [
        Var::leaf(Tensor::<f64>::randn([5, 2], &mut rng)),
        Var::leaf(Tensor::<f64>::randn([3, 2], &mut rng)),
    ];
    let distances = |v: &[Var<f64>]| {
        let difference = v[0].unsqueeze(1) - v[1].unsqueeze(0); // [5, 1, 2] - [1, 3, 2]
        difference.square().sum(-1).sqrt()
    };
    let all = distances(&points);
    assert_eq!(*all.shape(), [5, 3]);
    let [a, b] = [points[0].value().select(0, 4), points[1].value().select(0, 2)];
    assert!(((a - b).square().sum(..).item().sqrt() - all.value().at(&[4, 2])).abs() < 1e-15);
    assert!(gradcheck(distances, &points, &Check::precise()).is_ok());
}

#[test]
fn no_rows() {
    let bias = Var::leaf(Tensor::from([1.0f64, 2.0]));
    let y = Var::constant(Tensor::zeros([0, 2])) + &bias;
    assert_eq!(*y.shape(), [0, 2]);
    // The sum of no rows.
    assert_eq!(y.sum(..).backward().get(&bias).unwrap().to_vec(), [0.0, 0.0]);
}

#[test]
fn gradient_of_the_maximum() {
    let x = Var::leaf(Tensor::from([[1.0f64, 5.0, 2.0], [7.0, 0.0, 3.0]]));
    let g = Tensor::from([10.0f64, 100.0]);
    let best = x.value().argmax(1);
    let by_hand = Tensor::<f64>::one_hot(&best, 3) * g.unsqueeze(1);
    assert_eq!(x.max(1).backward_with(&g).get(&x).unwrap().to_vec(), by_hand.to_vec());
}

#[test]
fn centring_is_its_own_adjoint() {
    let x = Var::leaf(Tensor::<f64>::randn([4, 6], &mut Rng::new(3)));
    let g = Tensor::<f64>::randn([4, 6], &mut Rng::new(4));
    let centred = &x - &x.mean_keepdim(1);
    let adjoint = centred.backward_with(&g).get(&x).unwrap().clone();
    let same = &g - &g.mean_keepdim(1);
    // Self-adjoint; and an orthogonal projection, since centring twice is centring once.
    assert!((adjoint - same).abs().max(..).item() < 1e-15);
    let twice = centred.value() - centred.value().mean_keepdim(1);
    assert!((twice - centred.value()).abs().max(..).item() < 1e-15);
}
