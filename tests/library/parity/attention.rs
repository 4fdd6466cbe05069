//! Attention against PyTorch's, forward and backward, by tests/fixtures/attention.safetensors.

use super::{Bound, Fixture, close, parameters};
use retrograd::nn::attention::{
    Bias, Mask, MultiHeadAttention, MultiHeadConfig, Path, Spec, attend,
};
use retrograd::prelude::*;

const BOUND: Bound = Bound::Absolute(1e-10);

#[test]
fn scaled_dot_product_attention() {
    let f = Fixture::load("attention.safetensors");
    // With PyTorch's is_causal query i attends to the keys up to i, for any lengths.
    let causal = || Spec::new().causal_top_left();
    let cases = [
        ("plain", Spec::new()),
        ("scale", Spec::new().scale(0.3)),
        ("keep", Spec::new()),
        ("keep_per_head", Spec::new()),
        ("keep_nothing", Spec::new()),
        ("bias", Spec::new()),
        ("causal", causal()),
        ("causal_more_keys", causal()),
        ("causal_more_queries", causal()),
        ("gqa", Spec::new()),
        ("mqa_causal_scale", causal().scale(0.7)),
        ("minus_infinity", Spec::new()),
        ("minus_infinity_row", Spec::new()),
    ];
    for (name, mut spec) in cases {
        let at = |part: &str| format!("sdpa.{name}.{part}");
        let [q, k, v] = ["q", "k", "v"].map(|x| f.leaf(&at(x)));
        if let Some(keep) = f.bool(&at("keep")) {
            let of = if keep.rank() == 2 { Mask::keep_pairs } else { Mask::keep };
            spec = spec.mask(of(&keep));
        }
        let bias = f.find(&at("bias")).map(|_| f.leaf(&at("bias")));
        let hidden = f.bool(&at("minus_infinity"));
        // For each path, because a backward pass consumes its graph.
        let spec = || match (&bias, &hidden) {
            (None, _) => spec.clone(),
            (Some(bias), None) => spec.clone().bias(Bias::Additive(bias.clone())),
            // A bias of minus infinity masks in PyTorch, too.
            (Some(bias), Some(hidden)) => {
                let bias = bias.masked_fill(hidden, f64::NEG_INFINITY);
                spec.clone().bias(Bias::Additive(bias))
            }
        };
        let mut leaves = vec![("g_q", q), ("g_k", k), ("g_v", v)];
        leaves.extend(bias.clone().map(|bias| ("g_bias", bias)));
        let tiled = spec().needs_composed().is_none().then_some(Path::Tiled);
        for path in [Path::Composed, Path::default()].into_iter().chain(tiled) {
            let [(_, q), (_, k), (_, v), ..] = &leaves[..] else { unreachable!() };
            let y = attend(q, k, v, &spec().path(path));
            let worst = f.check(&format!("sdpa.{name}"), &y, &leaves, BOUND);
            println!("{:40} {path:?} {worst:.1e}", format!("sdpa.{name}"));
        }
    }
    f.all_read(|name| name.starts_with("sdpa."));
}

#[test]
fn multihead_attention() {
    let f = Fixture::load("attention.safetensors");
    let plain = MultiHeadConfig::new(4, 2);
    let widths = MultiHeadConfig { key_width: 5, value_width: 3, ..plain.clone() };
    let no_bias = MultiHeadConfig { bias: false, ..plain.clone() };
    let bias_kv = MultiHeadConfig { bias_kv: true, ..plain.clone() };
    let cases = [
        ("plain", plain.clone()),
        ("per_head", plain.clone()),
        ("no_bias", no_bias),
        ("padding", plain.clone()),
        ("drop", plain.clone()),
        ("drop_per_head", plain.clone()),
        ("add", plain.clone()),
        ("causal_padding", plain.clone()),
        ("widths", widths.clone()),
        ("widths_no_bias", MultiHeadConfig { bias: false, ..widths.clone() }),
        ("bias_kv", bias_kv.clone()),
        ("zero_attn", MultiHeadConfig { zero_attn: true, ..plain.clone() }),
        ("everything", MultiHeadConfig { zero_attn: true, ..bias_kv }),
        ("widths_bias_kv_add", MultiHeadConfig { bias_kv: true, ..widths.clone() }),
        ("unbatched", plain.clone()),
        ("unbatched_padding", plain.clone()),
        ("unbatched_per_head", plain.clone()),
        ("unbatched_everything", MultiHeadConfig { bias_kv: true, ..widths }),
    ];
    for (name, config) in cases {
        let at = |part: &str| format!("mha.{name}.{part}");
        let module = MultiHeadAttention::<f64>::new(&config, &mut Rng::new(1));
        module.load_state_dict(&f.dict(&at("state"))).unwrap();
        let [q, k, v] = ["query", "key", "value"].map(|x| f.leaf(&at(x)));
        let mut spec = Spec::new();
        if let Some(drop) = f.bool(&at("drop_keys")) {
            // [B, Lk], or [Lk] of one sequence.
            let padding = if drop.rank() == 1 { drop.unsqueeze(0) } else { drop };
            spec = spec.mask(Mask::drop_keys(&padding));
        }
        if let Some(drop) = f.bool(&at("drop")) {
            spec = spec.mask(match drop.rank() {
                2 => Mask::drop_pairs(&drop),
                // [H, Lq, Lk] of one sequence.
                3 => Mask::drop(&drop.unsqueeze(0)),
                _ => Mask::drop(&drop),
            });
        }
        if f.find(&at("add")).is_some() {
            spec = spec.bias(Bias::Additive(Var::constant(f.real(&at("add")))));
        }
        let (y, w) = module.forward_with_weights(&q, &k, &v, &spec, &mut Pass::eval());
        let want = f.real(&at("weights"));
        let w = if want.rank() < w.rank() { w.mean(-3) } else { w };
        let alone = module.forward(&q, &k, &v, &spec, &mut Pass::eval());
        let mut worst = close(&at("weights"), w.value(), &want, BOUND);
        for y in [&y, &alone] {
            worst = worst.max(close(&at("out"), y.value(), &f.real(&at("out")), BOUND));
        }
        let seeds = ["gout", "gweights"].map(|x| Var::constant(f.real(&at(x))));
        let grads = (y.mul(&seeds[0]).sum(..) + w.mul(&seeds[1]).sum(..)).backward();
        let inputs = [("g_query", q), ("g_key", k), ("g_value", v)];
        let mut leaves = parameters(&module);
        leaves.extend(inputs.map(|(name, x)| (name.to_string(), x)));
        worst = worst.max(f.gradients(&format!("mha.{name}"), grads, &leaves, BOUND));
        println!("{:40} {worst:.1e}", format!("mha.{name}"));
    }
    f.all_read(|name| name.starts_with("mha."));
}
