//! Attention against PyTorch's, forward and backward, by tests/fixtures/attention.safetensors.
//! Run with `--nocapture` for the table.

use retrograd::nn::StateDict;
use retrograd::nn::attention::{Bias, Mask, MultiHeadAttention, MultiHeadConfig, Spec, attend};
use retrograd::nn::checkpoint::{AnyTensor, Checkpoint};
use retrograd::prelude::*;
use retrograd_support::fixture;
use std::collections::BTreeSet;

const BOUND: f64 = 1e-10;

struct Fixture {
    file: Checkpoint,
    used: BTreeSet<String>,
    worst: f64,
}

impl Fixture {
    fn load() -> Fixture {
        let file = Checkpoint::load(&fixture("attention.safetensors")).unwrap();
        Fixture { file, used: BTreeSet::new(), worst: 0.0 }
    }

    fn find(&mut self, name: &str) -> Option<AnyTensor> {
        self.used.insert(name.to_string());
        self.file.tensors.get(name).cloned()
    }

    fn real(&mut self, name: &str) -> Tensor<f64> {
        match self.find(name) {
            Some(AnyTensor::F64(x)) => x,
            other => panic!("{name}: {other:?}"),
        }
    }

    fn leaf(&mut self, name: &str) -> Var<f64> {
        Var::leaf(self.real(name))
    }

    fn bool(&mut self, name: &str) -> Option<Tensor<bool>> {
        match self.find(name)? {
            AnyTensor::Bool(x) => Some(x),
            other => panic!("{name}: {other:?}"),
        }
    }

    fn same(&mut self, ours: &Tensor<f64>, name: &str) {
        let theirs = self.real(name);
        assert_eq!(ours.shape(), theirs.shape(), "{name}");
        for (a, b) in ours.to_vec().into_iter().zip(theirs.to_vec()) {
            let off = (a - b).abs();
            assert!(off <= BOUND, "{name}: {a} and {b}");
            self.worst = self.worst.max(off);
        }
    }

    fn report(&mut self, case: &str) {
        println!("{case:40} worst difference {:.1e}", self.worst);
        self.worst = 0.0;
    }

    /// Asserts that all tensors below a prefix were compared.
    fn complete(&self, prefix: &str) {
        let names = self.file.tensors.keys().filter(|name| name.starts_with(prefix));
        let left: Vec<_> = names.filter(|name| !self.used.contains(*name)).collect();
        assert!(left.is_empty(), "not compared: {left:?}");
    }
}

#[test]
fn scaled_dot_product_attention() {
    let mut f = Fixture::load();
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
        let paths = [retrograd::nn::attention::Path::Composed, Default::default()];
        let tiled = spec().needs_composed().is_none();
        for path in paths.into_iter().chain(tiled.then_some(retrograd::nn::attention::Path::Tiled))
        {
            let y = attend(&q, &k, &v, &spec().path(path));
            f.same(y.value(), &at("out"));
            let gout = f.real(&at("gout"));
            let grads = y.backward_with(&gout);
            let leaves = [("g_q", Some(&q)), ("g_k", Some(&k)), ("g_v", Some(&v))];
            for (part, x) in leaves.into_iter().chain([("g_bias", bias.as_ref())]) {
                if let Some(x) = x {
                    f.same(grads.get(x).unwrap(), &at(part));
                }
            }
        }
        f.report(&format!("sdpa.{name}"));
    }
    f.complete("sdpa.");
}

#[test]
fn multihead_attention() {
    let mut f = Fixture::load();
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
        let state: StateDict<f64> = f.file.get(&at("state")).unwrap();
        module.load_state_dict(&state).unwrap();
        f.used.extend(state.keys().map(|n| at(&format!("state.{n}"))));

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
        f.same(y.value(), &at("out"));
        f.same(w.value(), &at("weights"));
        f.same(module.forward(&q, &k, &v, &spec, &mut Pass::eval()).value(), &at("out"));

        let seeds = (f.real(&at("gout")), f.real(&at("gweights")));
        let loss = y.mul(&Var::constant(seeds.0)).sum(..) + w.mul(&Var::constant(seeds.1)).sum(..);
        let grads = loss.backward();
        for (part, x) in [("g_query", &q), ("g_key", &k), ("g_value", &v)] {
            f.same(grads.get(x).unwrap(), &at(part));
        }
        for (param, p) in module.named_parameters() {
            f.same(grads.by_id(p.id()).unwrap(), &at(&format!("grad.{param}")));
        }
        f.report(&format!("mha.{name}"));
    }
    f.complete("mha.");
}
