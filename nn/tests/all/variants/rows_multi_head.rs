//! Attention with one head, and variants of multi-head attention.

use super::row;
use crate::common::*;
use retrograd_autograd::Var;
use retrograd_nn::attention::{
    Bias, Concat, CrossAttention, HeadSizes, Incremental, Mask, MultiHeadAttention,
    MultiHeadConfig, MultiHeadWrapper, PlainSelfAttention, Projections, RenormalizedSelfAttention,
    SelfAttention, Spec,
};
use retrograd_nn::{CausalSelfAttention, GptConfig, Layer, Linear, Pass};
use retrograd_tensor::Tensor;

#[test]
fn plain() {
    row(
        "PlainSelfAttention",
        |_| PlainSelfAttention,
        &[&[2, 3, 4]],
        |m, x| m.forward(&x[0], &mut eval()),
    );
}

#[test]
fn self_attention() {
    let masks = [
        Mask::full(),
        Mask::causal(),
        Mask::lengths(&[3, 0]),
        Mask::drop_pairs(&Tensor::from_fn([3, 3], |i| i[0] == i[1])),
    ];
    for mask in masks {
        row(
            &format!("SelfAttention, {mask:?}"),
            |rng| SelfAttention::new(4, 3, 2, rng),
            &[&[2, 3, 4]],
            |m, x| m.forward(&x[0], mask.clone(), &mut eval()),
        );
    }
    row(
        "SelfAttention with biases and softcap",
        |rng| SelfAttention::with_bias(4, 3, 2, rng),
        &[&[3, 4]],
        |m, x| m.forward(&x[0], Spec::new().softcap(2.0), &mut eval()),
    );
    row(
        "SelfAttention with dropout",
        |rng| SelfAttention::new(4, 3, 2, rng).dropout(0.3),
        &[&[2, 3, 4]],
        |m, x| m.forward(&x[0], Mask::full(), &mut Pass::train(1)),
    );
}

#[test]
fn renormalized() {
    row(
        "RenormalizedSelfAttention",
        |rng| RenormalizedSelfAttention::new(4, 3, 2, rng),
        &[&[2, 3, 4]],
        |m, x| m.forward(&x[0], &Mask::causal(), &mut eval()),
    );
}

#[test]
fn cross() {
    row(
        "CrossAttention",
        |rng| CrossAttention::new(4, 5, 3, 2, rng),
        &[&[2, 3, 4], &[2, 4, 5]],
        |m, x| m.forward(&x[0], &x[1], Mask::lengths(&[4, 2]), &mut eval()),
    );
}

#[test]
fn multi_head() {
    let plain = MultiHeadConfig::new(4, 2);
    let configs = [
        plain.clone(),
        MultiHeadConfig { bias: false, ..plain.clone() },
        MultiHeadConfig { key_width: 3, value_width: 5, ..plain.clone() },
        MultiHeadConfig { bias_kv: true, zero_attn: true, ..plain.clone() },
        MultiHeadConfig { dropout: 0.4, key_width: 3, bias_kv: true, ..plain.clone() },
    ];
    for config in configs {
        let MultiHeadConfig { key_width, value_width, .. } = config;
        row(
            &format!("MultiHeadAttention, {config:?}").replace("MultiHeadConfig ", ""),
            |rng| MultiHeadAttention::new(&config, rng),
            &[&[2, 3, 4], &[2, 4, key_width], &[2, 4, value_width]],
            |m, x| m.forward(&x[0], &x[1], &x[2], Mask::lengths(&[4, 3]), &mut Pass::train(2)),
        );
    }
    row(
        "MultiHeadAttention, output and weights",
        |rng| MultiHeadAttention::new(&MultiHeadConfig { bias_kv: true, ..plain.clone() }, rng),
        &[&[3, 4]],
        |m, x| {
            let how = Spec::new().causal().bias(Bias::alibi(2));
            let (y, w) = m.forward_with_weights(&x[0], &x[0], &x[0], how, &mut eval());
            Var::cat(&[&y.flatten(), &w.mean(-3).flatten()], 0)
        },
    );
}

#[test]
fn wrapper() {
    for concat in [Concat::Features, Concat::First] {
        row(
            &format!("MultiHeadWrapper, {concat:?}"),
            |rng| MultiHeadWrapper::new(3, 4, 2, 2, rng).concat(concat),
            &[&[2, 3, 4]],
            |m, x| m.forward(&x[0], Mask::causal(), &mut eval()),
        );
    }
    row(
        "MultiHeadWrapper, projected",
        |rng| {
            let heads = MultiHeadWrapper::new(2, 4, 2, 2, rng);
            heads.project(Linear::new(4, 4, rng))
        },
        &[&[3, 4]],
        |m, x| m.forward(&x[0], Mask::causal(), &mut eval()),
    );
}

#[test]
fn grouped_query() {
    for key_heads in [1, 2, 4] {
        row(
            &format!("grouped query, 4 heads, {key_heads} of keys"),
            |rng| Projections::new(HeadSizes::new(4, 4).key_heads(key_heads), rng),
            &[&[2, 3, 4]],
            |m, x| m.forward(&x[0], Mask::causal(), &mut eval()),
        );
    }
}

#[test]
fn causal_self_attention() {
    let config = GptConfig { width: 4, ..config() };
    row(
        "CausalSelfAttention",
        |rng| CausalSelfAttention::new(&config, rng),
        &[&[2, 3, 4]],
        |m, x| m.forward(&x[0], &mut eval()),
    );
}
