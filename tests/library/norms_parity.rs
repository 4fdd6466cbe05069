//! Norms over several axes, and the statistics of layer norm, against PyTorch's, forward and backward, by
//! tests/fixtures/norms.safetensors.

use retrograd::nn::checkpoint::{AnyTensor, Checkpoint};
use retrograd::prelude::*;

fn real(file: &Checkpoint, name: &str) -> Tensor<f64> {
    match file.tensors.get(name) {
        Some(AnyTensor::F64(x)) => x.clone(),
        other => panic!("{name}: {other:?}"),
    }
}

#[test]
fn norms_over_several_axes() {
    let file = Checkpoint::load(&retrograd_support::fixture("norms.safetensors")).unwrap();
    let inputs = ["x", "weight", "bias"].map(|name| Var::leaf(real(&file, name)));
    let [x, weight, bias] = &inputs;
    let shape = [3, 4];
    let same = |ours: &Tensor<f64>, name: &str| {
        let theirs = real(&file, name);
        assert_eq!(ours.shape(), theirs.shape(), "{name}");
        let off = (ours - &theirs).abs().max(..).item();
        assert!(off <= 1e-12, "{name}: {off}");
    };
    let (y, mean, rstd) = x.layer_norm_with_stats(&shape, Some(weight), Some(bias), 1e-3);
    same(mean.value(), "native_layer_norm.mean");
    same(rstd.value(), "native_layer_norm.rstd");
    let layer = x.layer_norm_over(&shape, Some(weight), Some(bias), 1e-5);
    let rms = x.rms_norm_over(&shape, Some(weight), 1e-6);
    for (name, y) in [("native_layer_norm", &y), ("layer_norm", &layer), ("rms_norm", &rms)] {
        same(y.value(), &format!("{name}.out"));
        let grads = y.backward_with(&real(&file, &format!("{name}.gout")));
        for (input, of) in inputs.iter().zip(["x", "weight", "bias"]) {
            match grads.get(input) {
                Some(g) => same(g, &format!("{name}.g_{of}")),
                None => assert_eq!((name, of), ("rms_norm", "bias")),
            }
        }
    }
    // The modules, of the same shape.
    let (norm, rms_norm) = (LayerNorm::<f64>::over(&shape), RmsNorm::<f64>::over(&shape));
    norm.weight.set(weight.value().clone());
    norm.bias.as_ref().unwrap().set(bias.value().clone());
    rms_norm.weight.set(weight.value().clone());
    let mut pass = Pass::eval();
    assert_eq!(norm.forward(x, &mut pass).value(), layer.value());
    assert_eq!(rms_norm.forward(x, &mut pass).value(), rms.value());
}

#[test]
fn shapes_that_do_not_fit_are_refused() {
    let refused = |part: &str, f: &dyn Fn()| {
        let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(f)).unwrap_err();
        let text = panic.downcast_ref::<String>().unwrap();
        assert!(text.contains(part), "{text:?} without {part:?}");
    };
    let x = Var::constant(Tensor::<f32>::zeros([2, 3, 4]));
    let vector = Var::constant(Tensor::zeros([12]));
    let not = "is not that of the last axes of [2, 3, 4]";
    refused(not, &|| drop(x.layer_norm_over(&[2, 3], None, None, 1e-5)));
    refused(not, &|| drop(x.layer_norm_over(&[], None, None, 1e-5)));
    refused(not, &|| drop(x.rms_norm_over(&[5, 2, 3, 4], None, 1e-5)));
    refused("weight has shape [12], not [3, 4]", &|| {
        drop(x.layer_norm_with_stats(&[3, 4], Some(&vector), None, 1e-5))
    });
    refused("at least one axis", &|| drop(LayerNorm::<f32>::over(&[])));
}
