//! Encoder and decoder layers against PyTorch's, forward and backward, by
//! tests/fixtures/transformer.safetensors.

use retrograd::nn::attention::Mask;
use retrograd::nn::checkpoint::{AnyTensor, Checkpoint};
use retrograd::nn::{
    StateDict, TransformerDecoderLayer, TransformerEncoderLayer, TransformerLayerConfig,
};
use retrograd::prelude::*;

const BOUND: f64 = 1e-11;

fn fixture() -> Checkpoint {
    Checkpoint::load(&retrograd_support::fixture("transformer.safetensors")).unwrap()
}

fn real(file: &Checkpoint, name: &str) -> Tensor<f64> {
    match file.tensors.get(name) {
        Some(AnyTensor::F64(x)) => x.clone(),
        other => panic!("{name}: {other:?}"),
    }
}

fn same(ours: &Tensor<f64>, theirs: &Tensor<f64>, name: &str) {
    assert_eq!(ours.shape(), theirs.shape(), "{name}");
    let off = (ours - theirs).abs().max(..).item();
    assert!(off <= BOUND, "{name}: {off}");
}

/// Loads the state dict of a case, and compares the output and all gradients.
fn check(case: &str, module: &dyn Module<f64>, f: impl Fn(&Var<f64>, &Var<f64>) -> Var<f64>) {
    let file = fixture();
    let read = |name: &str| real(&file, &format!("{case}.{name}"));
    let prefix = format!("{case}.state.");
    let names: Vec<String> =
        file.tensors.keys().filter_map(|name| name.strip_prefix(&prefix).map(Into::into)).collect();
    let state: StateDict<f64> =
        names.iter().map(|name| (name.clone(), real(&file, &format!("{prefix}{name}")))).collect();
    module.load_state_dict(&state).unwrap();
    let x = Var::leaf(read("x"));
    let memory = file.tensors.contains_key(&format!("{case}.memory"));
    let memory = Var::leaf(if memory { read("memory") } else { Tensor::zeros([1]) });
    let out = f(&x, &memory);
    same(out.value(), &read("out"), case);
    let grads = out.backward_with(&read("gout"));
    same(grads.get(&x).unwrap(), &read("g_x"), case);
    if let Some(g) = grads.get(&memory) {
        same(g, &read("g_memory"), case);
    }
    let parameters = module.named_parameters();
    assert_eq!(parameters.len(), names.len(), "{case}");
    for (name, parameter) in parameters {
        let g = grads.get(&parameter.to_var()).unwrap_or_else(|| panic!("{case}: {name}"));
        same(g, &read(&format!("grad.{name}")), &format!("{case}: {name}"));
    }
}

fn config(norm_first: bool) -> TransformerLayerConfig {
    let activation = if norm_first { Activation::Gelu } else { Activation::Relu };
    let config = TransformerLayerConfig::new(6, 2);
    TransformerLayerConfig { hidden: 10, dropout: 0.0, activation, norm_first, ..config }
}

#[test]
fn encoder_layers() {
    for (case, norm_first) in [("encoder_post", false), ("encoder_pre", true)] {
        let layer = TransformerEncoderLayer::new(config(norm_first), &mut Rng::new(1));
        check(case, &layer, |x, _| layer.forward(x, Mask::lengths(&[4, 2]), &mut Pass::eval()));
    }
}

#[test]
fn decoder_layers() {
    for (case, norm_first) in [("decoder_post", false), ("decoder_pre", true)] {
        let layer = TransformerDecoderLayer::new(config(norm_first), &mut Rng::new(1));
        check(case, &layer, |x, memory| {
            let padding = Mask::lengths(&[3, 5]);
            layer.forward(x, memory, Mask::causal(), padding, &mut Pass::eval())
        });
    }
}
