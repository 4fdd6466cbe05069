//! A state dict of nanoGPT: with the prefix of a compiled model, causal masks as buffers, and the
//! tied head under two names.

use retrograd::nn::checkpoint::{AnyTensor, Checkpoint};
use retrograd::nn::{StateDict, pretrained};
use retrograd::prelude::*;
use safetensors::{Dtype, tensor::TensorView};
use std::collections::BTreeMap;
use std::path::Path;

/// The weights of a fixture, written by the reference implementation of the format.
fn nanogpt_file(weights: &StateDict<f64>, layers: usize, context: usize, to: &Path) {
    let mut all: BTreeMap<String, Tensor<f64>> =
        weights.iter().map(|(name, w)| (format!("_orig_mod.{name}"), w.clone())).collect();
    let head = weights["transformer.wte.weight"].clone();
    all.insert("_orig_mod.lm_head.weight".into(), head);
    for layer in 0..layers {
        let mask = Tensor::<f64>::ones([1, 1, context, context]).tril(0);
        all.insert(format!("_orig_mod.transformer.h.{layer}.attn.bias"), mask);
    }
    let bytes = |t: &Tensor<f64>| t.to_vec().into_iter().flat_map(f64::to_le_bytes).collect();
    let data: Vec<(String, Vec<usize>, Vec<u8>)> =
        all.into_iter().map(|(name, t)| (name, t.shape().to_vec(), bytes(&t))).collect();
    let views = data.iter().map(|(name, shape, bytes)| {
        (name.as_str(), TensorView::new(Dtype::F64, shape.clone(), bytes).unwrap())
    });
    std::fs::write(to, safetensors::serialize(views, None).unwrap()).unwrap();
}

#[test]
fn state_dicts_of_nanogpt_can_be_loaded() {
    let fixture =
        Checkpoint::load(&retrograd_support::fixture("gpt_training.safetensors")).unwrap();
    let weights: StateDict<f64> = fixture.get("weights").unwrap();
    let config: String = fixture.read_note("config").unwrap();
    let config: serde_json::Value = serde_json::from_str(&config).unwrap();
    let size = |name: &str| config[name].as_u64().unwrap() as usize;
    let config = GptConfig {
        vocab: size("vocab_size"),
        context: size("block_size"),
        layers: size("n_layer"),
        heads: size("n_head"),
        width: size("n_embd"),
        dropout: 0.0,
        bias: true,
        tied: true,
        ..GptConfig::default()
    };
    let folder = tempfile::TempDir::new().unwrap();
    let path = folder.path().join("model.safetensors");
    nanogpt_file(&weights, config.layers, config.context, &path);

    let model = Gpt::<f64>::new(config, &mut Rng::new(0)).unwrap();
    let file = Checkpoint::load(&path).unwrap();
    let everything: StateDict<f64> = file.get("").unwrap();
    assert_eq!(everything.len(), file.tensors.len());
    assert!(everything.keys().all(
        |name| name.starts_with("_orig_mod.transformer") || name == "_orig_mod.lm_head.weight"
    ));

    let mut dict: StateDict<f64> = file.get("_orig_mod").unwrap();
    let error = model.load_state_dict(&dict).unwrap_err();
    assert_eq!(error.unexpected, ["transformer.h.0.attn.bias", "transformer.h.1.attn.bias"]);
    assert!(
        error.missing.is_empty() && error.mismatched.is_empty() && error.conflicting.is_empty()
    );
    dict.retain(|name, _| !name.ends_with(".attn.bias"));
    // The map does both.
    let mapped: StateDict<f64> = pretrained::nanogpt().import(&file).unwrap();
    assert!(mapped == dict, "{:?}", mapped.keys());
    model.load_state_dict(&mapped).unwrap();

    let first = |name: &str| match &fixture.tensors[name] {
        AnyTensor::I64(t) => t.select(0, 0),
        other => panic!("{name}: {other:?}"),
    };
    let AnyTensor::F64(losses) = &fixture.tensors["losses"] else { panic!("losses in f64") };
    let loss = model.loss(&first("batches.x"), &first("batches.y"), &mut Pass::eval()).item();
    assert!((loss - losses.at(&[0])).abs() < 1e-12, "{loss}");
}
