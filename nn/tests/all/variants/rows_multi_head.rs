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
use retrograd_tensor::random::Rng;

fn heads(concat: Concat, rng: &mut Rng) -> MultiHeadWrapper<f64> {
    MultiHeadWrapper::new(3, 4, 2, 2, rng).concat(concat)
}

fn grouped(key_heads: usize, rng: &mut Rng) -> Projections<f64> {
    Projections::new(HeadSizes::new(4, 4).key_heads(key_heads), rng)
}

rows! { |m, x| m.forward(&x[0], &mut eval());
    plain, [[2, 3, 4]], |_| PlainSelfAttention;
    causal_self_attention, [[2, 3, 4]], |r| {
        CausalSelfAttention::new(&GptConfig { width: 4, ..config() }, r)
    };
}
rows! { |m, x| m.forward(&x[0], Mask::causal(), &mut eval());
    wrapper, [[2, 3, 4]], |r| heads(Concat::Features, r);
    wrapper_first, [[2, 3, 4]], |r| heads(Concat::First, r);
    wrapper_projected, [[3, 4]], |r| {
        MultiHeadWrapper::new(2, 4, 2, 2, r).project(Linear::new(4, 4, r))
    };
    grouped_query, [[2, 3, 4]], |r| grouped(1, r);
    grouped_query_2, [[2, 3, 4]], |r| grouped(2, r);
    grouped_query_4, [[2, 3, 4]], |r| grouped(4, r);
}
rows! { |m, x| m.forward(&x[0], &Mask::causal(), &mut eval());
    renormalized, [[2, 3, 4]], |r| RenormalizedSelfAttention::new(4, 3, 2, r);
}
rows! { |m, x| m.forward(&x[0], &x[1], Mask::lengths(&[4, 2]), &mut eval());
    cross, [[2, 3, 4], [2, 4, 5]], |r| CrossAttention::new(4, 5, 3, 2, r);
}
rows! { |m, x| m.forward(&x[0], Spec::new().softcap(2.0), &mut eval());
    self_attention_with_biases_and_softcap, [[3, 4]], |r| SelfAttention::with_bias(4, 3, 2, r);
}
rows! { |m, x| m.forward(&x[0], Mask::full(), &mut Pass::train(1));
    self_attention_with_dropout, [[2, 3, 4]], |r| SelfAttention::new(4, 3, 2, r).dropout(0.3);
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
