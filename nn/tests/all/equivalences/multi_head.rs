//! Multi-head attention by several computations.

use crate::common::*;
use retrograd_nn::attention::{
    Bias, Concat, Mask, MultiHeadAttention, MultiHeadConfig, MultiHeadWrapper, Sink, Spec,
};
use retrograd_nn::{CausalSelfAttention, GptConfig, Layer, Linear, Module};
use retrograd_tensor::Tensor;
use retrograd_tensor::random::Rng;

pub fn multi_head(t: &mut Table) {
    wrapper(t);
    fused_causal(t);

    // A key and value of 0 is a logit of 0 with a value of 0, as a sink.
    let config = MultiHeadConfig { zero_attn: true, ..MultiHeadConfig::new(4, 2) };
    let zero = MultiHeadAttention::new(&config, &mut Rng::new(1));
    let m = mha(4, 2);
    zero.load_state_dict(&m.state_dict()).unwrap();
    let x = [randn(&[2, 5, 4], 1)];
    for (case, spec) in [
        ("full", Spec::new()),
        ("causal, ALiBi", Spec::new().causal().bias(Bias::alibi(2))),
        ("padded", Mask::lengths(&[5, 0]).into()),
    ] {
        t.case(case).same(
            "zero_attn = a sink of 0",
            &x,
            |x| zero.forward(&x[0], &x[0], &x[0], &spec, &mut eval()),
            |x| m.forward(&x[0], &x[0], &x[0], spec.clone().sink(Sink::Zero), &mut eval()),
        );
    }
}

fn wrapper(t: &mut Table) {
    let (heads, width, d) = (3, 6, 2);
    let mut rng = Rng::new(1);
    let w = MultiHeadWrapper::new(heads, width, d, d, &mut rng);
    let w = w.project(Linear::new(width, width, &mut rng));
    let m = mha(width, heads);
    let state = w.state_dict();
    let stack = |name: &str| {
        let parts: Vec<_> = (0..heads).map(|h| &state[&format!("heads.{h}.{name}")]).collect();
        Tensor::cat(&parts, 0)
    };
    let all = ["W_query.weight", "W_key.weight", "W_value.weight"].map(stack);
    let dict = [
        ("in_proj_weight", Tensor::cat(&all.each_ref(), 0)),
        ("in_proj_bias", Tensor::zeros([3 * width])),
        ("out_proj.weight", state["out_proj.weight"].clone()),
        ("out_proj.bias", state["out_proj.bias"].clone()),
    ];
    m.load_state_dict(&dict.into_iter().map(|(n, t)| (n.to_string(), t)).collect()).unwrap();
    let x = [randn(&[2, 5, width], 1)];
    t.same(
        "wrapper of H heads = MHA of block weights",
        &x,
        |x| w.forward_with_weights(&x[0], Mask::causal(), &mut eval()),
        |x| m.forward_with_weights(&x[0], &x[0], &x[0], Mask::causal(), &mut eval()),
    );

    // Concatenated along the first axis, the same numbers have other indices.
    let sides = MultiHeadWrapper::from_heads(w.heads.clone());
    let below = sides.clone().concat(Concat::First);
    t.exact().same(
        "wrapper: first axis = features, moved",
        &x,
        |x| {
            let y = sides.forward(&x[0], Mask::full(), &mut eval());
            y.reshape([2, 5, heads, d]).permute([2, 0, 1, 3])
        },
        |x| below.forward(&x[0], Mask::full(), &mut eval()).reshape([heads, 2, 5, d]),
    );
}

/// The same weights under nanoGPT's names and PyTorch's; any number of batch axes.
fn fused_causal(t: &mut Table) {
    let config = GptConfig { width: 4, ..config() };
    let c = CausalSelfAttention::new(&config, &mut Rng::new(1));
    let m = mha(4, 2);
    let names = [
        ("c_attn.weight", "in_proj_weight"),
        ("c_attn.bias", "in_proj_bias"),
        ("c_proj.weight", "out_proj.weight"),
        ("c_proj.bias", "out_proj.bias"),
    ];
    let state = m.state_dict();
    let dict = names.map(|(ours, theirs)| (ours.to_string(), state[theirs].clone()));
    c.load_state_dict(&dict.into_iter().collect()).unwrap();
    for shape in [&[5, 4][..], &[2, 5, 4], &[2, 3, 5, 4], &[2, 0, 5, 4]] {
        let x = [randn(shape, 1)];
        t.case(format!("{shape:?}")).same(
            "fused causal = MHA with a causal mask",
            &x,
            |x| c.forward_with_weights(&x[0], &mut eval()),
            |x| {
                let batch: usize = shape[..shape.len() - 2].iter().product();
                let flat = x[0].reshape([batch, 5, 4]);
                let (y, w) =
                    m.forward_with_weights(&flat, &flat, &flat, Mask::causal(), &mut eval());
                let weights = [&shape[..shape.len() - 2], &[2, 5, 5]].concat();
                (y.reshape(shape), w.reshape(&weights[..]))
            },
        );
        t.same(
            "fused causal = the same with weights",
            &x,
            |x| c.forward_with_weights(&x[0], &mut eval()).0,
            |x| c.forward(&x[0], &mut eval()),
        );
    }
}
