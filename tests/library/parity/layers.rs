//! Encoder and decoder layers, norms over several axes and the statistics of layer norm, against PyTorch's, forward and
//! backward.

use super::{Bound, Fixture, close, parameters};
use retrograd::nn::attention::Mask;
use retrograd::nn::{TransformerDecoderLayer, TransformerEncoderLayer, TransformerLayerConfig};
use retrograd::prelude::*;
use retrograd_support::panics_with;

/// Loads the state dict of a case, and compares the output and all gradients.
fn check(case: &str, module: &dyn Module<f64>, f: impl Fn(&Var<f64>, &Var<f64>) -> Var<f64>) {
    let file = Fixture::load("transformer.safetensors");
    module.load_state_dict(&file.dict(&format!("{case}.state"))).unwrap();
    let mut leaves = parameters(module);
    let x = file.leaf(&format!("{case}.x"));
    leaves.push(("g_x".into(), x.clone()));
    let memory = file.find(&format!("{case}.memory")).is_some();
    let memory = memory.then(|| file.leaf(&format!("{case}.memory")));
    leaves.extend(memory.clone().map(|memory| ("g_memory".into(), memory)));
    let out = f(&x, memory.as_ref().unwrap_or(&x));
    file.check(case, &out, &leaves, Bound::Absolute(1e-11));
    file.all_read(|name| name.starts_with(&format!("{case}.")));
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
fn the_dropout_of_a_layer_is_that_of_its_attention_too() {
    let all = TransformerLayerConfig { dropout: 1.0, ..config(false) };
    let attention = TransformerEncoderLayer::<f64>::new(all, &mut Rng::new(1)).self_attn;
    let x = Var::constant(Tensor::ones([1, 3, 6]));
    let y = attention.forward(&x, &x, &x, Mask::full(), &mut Pass::train(1));
    assert_eq!(y.value(), &Tensor::zeros([1, 3, 6]));
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

#[test]
fn norms_over_several_axes() {
    let (f, bound) = (Fixture::load("norms.safetensors"), Bound::Absolute(1e-12));
    let [x, weight, bias] = ["x", "weight", "bias"].map(|name| f.leaf(name));
    let shape = [3, 4];
    let (y, mean, rstd) = x.layer_norm_with_stats(&shape, Some(&weight), Some(&bias), 1e-3);
    for (name, ours) in [("native_layer_norm.mean", mean), ("native_layer_norm.rstd", rstd)] {
        close(name, ours.value(), &f.real(name), bound);
    }
    let layer = x.layer_norm_over(&shape, Some(&weight), Some(&bias), 1e-5);
    let rms = x.rms_norm_over(&shape, Some(&weight), 1e-6);
    let leaves = [("g_x", x.clone()), ("g_weight", weight.clone()), ("g_bias", bias.clone())];
    f.check("native_layer_norm", &y, &leaves, bound);
    f.check("layer_norm", &layer, &leaves, bound);
    f.check("rms_norm", &rms, &leaves[..2], bound);
    f.all_read(|_| true);
    // The modules, of the same shape.
    let (norm, rms_norm) = (LayerNorm::<f64>::over(&shape), RmsNorm::<f64>::over(&shape));
    norm.weight.set(weight.value().clone());
    norm.bias.as_ref().unwrap().set(bias.value().clone());
    rms_norm.weight.set(weight.value().clone());
    let mut pass = Pass::eval();
    assert_eq!(norm.forward(&x, &mut pass).value(), layer.value());
    assert_eq!(rms_norm.forward(&x, &mut pass).value(), rms.value());
}

#[test]
fn norms_refuse_shapes_that_do_not_fit() {
    let x = Var::constant(Tensor::<f32>::zeros([2, 3, 4]));
    let vector = Var::constant(Tensor::zeros([12]));
    let not = "is not that of the last axes of [2, 3, 4]";
    panics_with! {
        x.layer_norm_over(&[2, 3], None, None, 1e-5) => not;
        x.layer_norm_over(&[], None, None, 1e-5) => not;
        x.rms_norm_over(&[5, 2, 3, 4], None, 1e-5) => not;
        x.layer_norm_with_stats(&[3, 4], Some(&vector), None, 1e-5) =>
            "weight has shape [12], not [3, 4]";
        LayerNorm::<f32>::over(&[]) => "at least one axis";
    }
}
