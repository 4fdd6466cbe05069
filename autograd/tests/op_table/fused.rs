//! Operations at sizes and options that the table does not draw, in `f64`: fused operations against their
//! definitions (values and gradients), and values of softmax against compositions. Its derivatives are compared
//! with differences in the table.

use retrograd_autograd::{Recurrence, Var, check};
use retrograd_tensor::Tensor;
use retrograd_tensor::ops::activation::Gelu;
use retrograd_tensor::ops::loss::{CrossEntropy, Reduction};
use retrograd_tensor::random::Rng;

fn random(shape: &[usize], seed: u64) -> Tensor<f64> {
    Tensor::randn(shape, &mut Rng::new(100 + seed))
}

/// Asserts that a fused operation agrees with its definition.
fn assert_agrees_with_definition(
    name: &str,
    f: impl Fn(&[Var<f64>]) -> Var<f64>,
    x: &[Tensor<f64>],
) {
    let x: Vec<Var<f64>> = x.iter().map(|x| Var::leaf(x.clone())).collect();
    assert_eq!(check::definition(&f(&x), 1e-11), Ok(true), "{name}");
}

#[test]
fn softmax_and_logsumexp_agree_with_exponentials_and_sums() {
    for (shape, axis) in [(&[5][..], 0), (&[3, 7], 0), (&[3, 7], -1), (&[2, 5, 33], 1)] {
        let (x, keep) = (random(shape, 3), random(shape, 4).lt(0.5));
        let e = x.exp();
        let kept = keep.where_(&e, &Tensor::scalar(0.0));
        let sum = kept.sum_keepdim(axis);
        let share = &e / &e.sum_keepdim(axis);
        let var = Var::constant(x);
        for (name, fused, composed) in [
            ("log_softmax", var.log_softmax(axis), share.ln()),
            ("softmax", var.softmax(axis), share),
            ("logsumexp", var.logsumexp(axis), e.sum(axis).ln()),
            (
                "masked_softmax",
                var.masked_softmax(axis, &keep),
                kept / sum.masked_fill(&sum.eq(0.0), 1.0),
            ),
        ] {
            let off = (fused.value() - &composed).abs().max(..).item();
            assert!(off <= 1e-11, "{name} of {shape:?}: {off:e}");
        }
    }
}

#[test]
fn cross_entropy_agrees_with_its_definition() {
    let cases: [(&[usize], &[i64]); 4] = [
        (&[3, 5], &[4, -100, 0]),
        (&[3], &[1]),
        (&[2, 2, 9], &[8, 0, -100, 3]),
        (&[2, 3], &[-100; 2]),
    ];
    for (shape, targets) in cases {
        let (rows, width) = shape.split_at(shape.len() - 1);
        let targets = Tensor::from_vec(targets.to_vec(), rows);
        for label_smoothing in [0.0, 0.1, 1.0] {
            let options = CrossEntropy { label_smoothing, ..CrossEntropy::default() };
            for ignore_index in [None, Some(-100), Some(0)] {
                let options = CrossEntropy { ignore_index, ..options };
                let valid = targets.masked_fill(&targets.eq(-100), 0);
                let targets = if ignore_index == Some(-100) { &targets } else { &valid };
                let loss = |x: &[Var<f64>]| x[0].cross_entropy(targets, options);
                assert_agrees_with_definition("cross_entropy", loss, &[random(shape, 5)]);
            }
            let mut weights = random(&[shape[shape.len() - 1]], 6).square();
            weights = weights.slice_assign(0, 0.0);
            for reduction in
                [Reduction::None, Reduction::Sum, Reduction::Mean, Reduction::BatchMean]
            {
                let options = CrossEntropy { reduction, ..options };
                let loss =
                    |x: &[Var<f64>]| x[0].weighted_cross_entropy(&targets, &weights, options);
                assert_agrees_with_definition("cross_entropy", loss, &[random(shape, 5)]);
            }
            let x = [random(shape, 7), random(&[20, width[0]], 8)];
            let loss = |x: &[Var<f64>]| x[0].linear_cross_entropy(&x[1], &targets, options);
            assert_agrees_with_definition("linear_cross_entropy", loss, &x);
        }
    }
}

#[test]
fn feed_forward_networks_agree_with_their_definitions() {
    for rows in [&[4][..], &[], &[2, 3], &[0]] {
        let shapes =
            [&[rows, &[5]].concat()[..], &[7, 5], &[7], &[3, 7], &[3], &[rows, &[3]].concat()];
        let x = [0, 1, 2, 3, 4, 5].map(|i| random(shapes[i], i as u64));
        for parts in 0..8 {
            let has = |i: usize| parts >> i & 1 == 1;
            let network = |x: &[Var<f64>]| {
                let up = (&x[1], has(0).then_some(&x[2]));
                let down = (&x[3], has(1).then_some(&x[4]));
                match has(2) {
                    true => x[0].feed_forward_add(up, Gelu, down, &x[5]),
                    false => x[0].feed_forward(up, Gelu, down),
                }
            };
            assert_agrees_with_definition("feed_forward", network, &x);
        }
    }
}

/// Lengths around chunks, and widths around vectors and passes of columns.
#[test]
fn recurrences_agree_with_their_definition() {
    for (l, dk, dv) in [(1, 3, 5), (31, 16, 4), (32, 17, 33), (33, 8, 16), (70, 20, 35)] {
        let shapes = [[1, 2, l, dk]; 5].into_iter().chain([[1, 2, l, dv], [1, 2, dk, dv]]);
        let x: Vec<_> = (10..).zip(shapes).map(|(seed, shape)| random(&shape, seed)).collect();
        for is_low_rank in [false, true] {
            let output = |x: &[Var<f64>]| {
                // So that states do not grow with the length.
                let [a, b] = [1, 2].map(|i| &x[i] / dk as f64);
                let low_rank = is_low_rank.then_some([a, b]);
                let decay = Some(x[4].sigmoid());
                let of = Recurrence { decay, low_rank, ..Recurrence::new(&x[0], &x[3], &x[5]) };
                let [y, _] = of.run(Some(&x[6]));
                y
            };
            assert_agrees_with_definition("recurrence", output, &x);
        }
    }
}

/// Gradients of frozen inputs are not computed, and those of the others do not change.
#[test]
fn frozen_inputs_get_no_gradient_and_change_no_other() {
    let x = [&[4, 5][..], &[7, 5], &[7], &[3, 7], &[4, 3]];
    let x = [0, 1, 2, 3, 4].map(|i| random(x[i], i as u64 + 1));
    let gradients = |trained: usize, with_residual: bool| {
        let var = |i: usize| match trained >> i & 1 {
            1 => Var::leaf(x[i].clone()),
            _ => Var::constant(x[i].clone()),
        };
        let v = [0, 1, 2, 3, 4].map(var);
        let (up, down) = ((&v[1], Some(&v[2])), (&v[3], None));
        let y = match with_residual {
            true => v[0].feed_forward_add(up, Gelu, down, &v[4]),
            false => v[0].feed_forward(up, Gelu, down),
        };
        let found = y.square().sum(..).backward();
        v.each_ref().map(|v| found.get(v).map(|g| g.to_vec()))
    };
    for (inputs, with_residual) in [(4, false), (5, true)] {
        let all = gradients((1 << inputs) - 1, with_residual);
        for trained in 1..1 << inputs {
            for (i, g) in gradients(trained, with_residual).into_iter().enumerate() {
                assert_eq!(g, if trained >> i & 1 == 1 { all[i].clone() } else { None });
            }
        }
    }
}
