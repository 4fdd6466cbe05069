//! Attention with one head, and without weights.

use crate::common::*;
use retrograd_nn::Module;
use retrograd_nn::attention::{
    CrossAttention, Mask, MultiHeadAttention, MultiHeadConfig, RenormalizedSelfAttention,
    SelfAttention, Spec, plain_self_attention,
};
use retrograd_tensor::Tensor;
use retrograd_tensor::random::Rng;

pub fn self_attention(t: &mut Table) {
    let x = [randn(&[2, 5, 4], 1)];

    let s = SelfAttention::new(4, 3, 2, &mut Rng::new(1));
    let c = CrossAttention::new(4, 4, 3, 2, &mut Rng::new(2));
    c.load_state_dict(&s.state_dict()).unwrap();
    t.exact().same(
        "cross with x1 = x2 = self, one head",
        &x,
        |x| s.forward_with_weights(&x[0], Mask::causal(), &mut eval()),
        |x| c.forward_with_weights(&x[0], &x[0], Mask::causal(), &mut eval()),
    );
    let config = MultiHeadConfig { bias: false, ..MultiHeadConfig::new(4, 1) };
    let m = MultiHeadAttention::new(&config, &mut Rng::new(1));
    m.out_proj.weight.set(Tensor::eye(4));
    let s = SelfAttention::new(4, 4, 4, &mut Rng::new(2));
    let state = m.state_dict();
    let parts = |i| state["in_proj_weight"].narrow(0, 4 * i, 4);
    let names = ["W_query.weight", "W_key.weight", "W_value.weight"];
    let dict = names.iter().enumerate().map(|(i, n)| (n.to_string(), parts(i))).collect();
    s.load_state_dict(&dict).unwrap();
    t.same(
        "MHA(H = 1, W_out = 1) = self-attention",
        &x,
        |x| m.forward(&x[0], &x[0], &x[0], Mask::causal(), &mut eval()),
        |x| s.forward(&x[0], Mask::causal(), &mut eval()),
    );

    let s = SelfAttention::new(4, 4, 4, &mut Rng::new(2));
    s.for_each_parameter(&mut |_, p| p.set(Tensor::eye(4)));
    t.same(
        "self-attention of identities, scale 1 = plain",
        &x,
        |x| s.forward(&x[0], Spec::new().scale(1.0), &mut eval()),
        |x| plain_self_attention(&x[0]),
    );
    // For a sequence without a batch axis.
    let y = [x[0].softmax(-1).select(0, 1)];
    t.same(
        "plain = softmax(x xᵀ) x",
        &y,
        |y| plain_self_attention(&y[0]),
        |y| y[0].matmul(&y[0].t()).softmax(-1).matmul(&y[0]),
    );

    let r = RenormalizedSelfAttention::new(4, 3, 2, &mut Rng::new(1));
    let s = SelfAttention::new(4, 3, 2, &mut Rng::new(2));
    s.load_state_dict(&r.state_dict()).unwrap();
    for mask in [
        Mask::full(),
        Mask::causal(),
        Mask::lengths(&[5, 2]),
        Mask::causal() & !Mask::first(2), // the first two queries are fully masked
    ] {
        t.case(format!("{mask:?}")).same(
            "renormalised = masked softmax",
            &x,
            |x| r.forward_with_weights(&x[0], &mask, &mut eval()),
            |x| s.forward_with_weights(&x[0], mask.clone(), &mut eval()),
        );
    }
}
