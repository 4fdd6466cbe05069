//! Dropout of the weights.

use crate::common::variants::{CAUSAL, MASKED, NOT_CAUSAL, Variant};
use crate::common::*;
use retrograd_nn::attention::*;
use retrograd_nn::{Dropout, Pass};
use retrograd_tensor::Tensor;
use retrograd_tensor::random::Rng;

#[test]
fn dropout_is_a_function_of_the_pass_and_keeps_the_mean() {
    let x = leaf(&[2, 5, 4], 1);
    let s = SelfAttention::new(4, 3, 2, &mut Rng::new(1)).dropout(0.4);
    let a = s.forward(&x, Mask::causal(), &mut Pass::train(1));
    assert_ne!(
        s.forward(&x, Mask::causal(), &mut Pass::train(2)).value().to_vec(),
        a.value().to_vec()
    );
    assert_eq!(
        s.forward(&x, Mask::causal(), &mut Pass::train(1)).value().to_vec(),
        a.value().to_vec()
    );

    let all = SelfAttention::new(4, 3, 2, &mut Rng::new(1)).dropout(1.0);
    let y = all.forward(&x, Mask::full(), &mut Pass::train(1));
    assert!(y.value().to_vec().iter().all(|&y| y == 0.0));

    // The mean over passes is the output without dropout.
    let s = SelfAttention::new(4, 3, 2, &mut Rng::new(1)).dropout(0.4);
    let dry = s.forward(&x, Mask::full(), &mut eval()).into_value();
    let n = 4000;
    let mut sum = Tensor::zeros(dry.shape());
    for seed in 0..n {
        sum = &sum + s.forward(&x, Mask::full(), &mut Pass::train(seed)).value();
    }
    let mean = sum.mul_scalar(1.0 / n as f64);
    close(&format!("mean of {n} passes with dropout 0.4 = none"), 0.06, &mean, &dry);
}

/// Every variant applies the dropout of its projections, in training only.
#[test]
fn dropout_of_projections_applies_in_every_variant() {
    let x = constant(&[2, 6, 8], 3);
    let pool: Variant =
        |p, x, spec, pass| AttentionPool::new(p, 2, &mut Rng::new(2)).forward(x, &spec, pass);
    let all = [("pooling", pool)].into_iter().chain(CAUSAL).chain(MASKED).chain(NOT_CAUSAL);
    for (name, run) in all {
        let of = |dropout: f64, mut pass: Pass| {
            let mut p = Projections::new(HeadSizes::new(8, 4), &mut Rng::new(1));
            p.dropout = Dropout::new(dropout);
            run(p, &x, Spec::new(), &mut pass).into_value().to_vec()
        };
        let dry = of(0.0, Pass::train(1));
        assert_eq!(of(0.5, Pass::eval()), dry, "{name}: dropout in evaluation");
        assert_ne!(of(0.5, Pass::train(1)), dry, "{name}: no dropout in training");
        let nothing = of(1.0, Pass::train(1));
        assert!(nothing.iter().all(|&y| y == 0.0), "{name}: with dropout 1, the output is not 0");
    }
}
