//! Padding, and the order of keys.

use super::{LEN, Vars};
use crate::common::*;
use retrograd_autograd::Var;
use retrograd_nn::attention::*;
use retrograd_tensor::Tensor;
use retrograd_tensor::random::Rng;

pub fn order(t: &mut Table) {
    let m = mha(4, 2);
    let x = [randn(&[2, 5, 4], 1)];
    let padding = Tensor::from_fn([2, 1, 1, 5], |i| i[3] >= 3);
    for (name, mask) in [("lengths", Mask::lengths(&[3, 3])), ("dense", Mask::drop(&padding))] {
        t.same(
            &format!("padded = truncated, by {name}"),
            &x,
            |x| m.forward(&x[0], &x[0], &x[0], mask.clone(), &mut eval()).narrow(1, 0, 3),
            |x| {
                let short = x[0].narrow(1, 0, 3);
                m.forward(&short, &short, &short, Mask::full(), &mut eval())
            },
        );
    }

    let order = Tensor::from([3i64, 0, 4, 1, 2]);
    let x = [randn(&[2, 3, 4], 1), randn(&[2, 5, 6], 2)];
    let c = CrossAttention::new(4, 6, 3, 2, &mut Rng::new(1));
    t.same(
        "permuted keys and values, one head",
        &x,
        |x| c.forward(&x[0], &x[1], Mask::full(), &mut eval()),
        |x| c.forward(&x[0], &x[1].index_select(1, &order), Mask::full(), &mut eval()),
    );
    let config = MultiHeadConfig { key_width: 6, value_width: 6, ..MultiHeadConfig::new(4, 2) };
    let m = MultiHeadAttention::new(&config, &mut Rng::new(1));
    t.same(
        "permuted keys and values, heads",
        &x,
        |x| {
            let (y, w) = m.forward_with_weights(&x[0], &x[1], &x[1], Mask::full(), &mut eval());
            (y, w.index_select(-1, &order))
        },
        |x| {
            let moved = x[1].index_select(1, &order);
            m.forward_with_weights(&x[0], &moved, &moved, Mask::full(), &mut eval())
        },
    );

    let mut rng = Rng::new(6);
    let pool = AttentionPool::new(uneven(), 3, &mut rng);
    let x = [randn(&[2, LEN, 8], 7)];
    let order: Tensor<i64> = Tensor::randperm(LEN, &mut rng);
    let run = |x: &Var<f64>, spec: Spec<f64>| pool.forward(x, &spec, &mut eval());
    let whole = |x: Vars<'_>| run(&x[0], Spec::new());
    t.same("pooling, keys in another order", &x, whole, |x| {
        run(&x[0].index_select(1, &order), Spec::new())
    });
    t.same(
        "pooling, padded = truncated",
        &x,
        |x| run(&x[0], Spec::new().mask(Mask::lengths(&[4]))),
        |x| run(&x[0].slice(1, 0..4), Spec::new()),
    );
    assert_eq!(*whole(&[Var::constant(x[0].clone())]).shape(), [2, 3, 8]);
    let one = AttentionPool::new(uneven(), 1, &mut rng);
    let single = Var::constant(x[0].slice(0, 0..1).squeeze(0));
    assert_eq!(*one.forward(&single, &Spec::new(), &mut eval()).shape(), [1, 8]);
}
