//! Every loss function recorded in `fixtures/losses.safetensors`, under every reduction, against what
//! PyTorch computed in float64.

use retrograd::prelude::*;
use safetensors::{Dtype, SafeTensors};
use serde_json::Value;
use std::collections::BTreeMap;

/// The file: floats, targets and the options of each loss.
struct Fixture {
    floats: BTreeMap<String, Tensor<f64>>,
    targets: BTreeMap<String, Tensor<i64>>,
    params: BTreeMap<String, Value>,
}

fn read() -> Fixture {
    let bytes =
        std::fs::read(retrograd_support::fixture("losses.safetensors")).expect("the fixture");
    let (_, header) = SafeTensors::read_metadata(&bytes).expect("a header");
    let meta = header.metadata().as_ref().expect("metadata");
    let params = serde_json::from_str(&meta["params"]).expect("params are JSON");
    let mut fixture = Fixture { floats: BTreeMap::new(), targets: BTreeMap::new(), params };
    for (name, view) in SafeTensors::deserialize(&bytes).expect("tensors").iter() {
        let words = view.data().chunks_exact(8).map(|b| b.try_into().expect("eight bytes"));
        match view.dtype() {
            Dtype::F64 => {
                let data = words.map(f64::from_le_bytes).collect();
                fixture.floats.insert(name.into(), Tensor::from_vec(data, view.shape()));
            }
            Dtype::I64 => {
                let data = words.map(i64::from_le_bytes).collect();
                fixture.targets.insert(name.into(), Tensor::from_vec(data, view.shape()));
            }
            other => panic!("{name} is {other:?}"),
        }
    }
    fixture
}

/// The loss of that name.
fn loss(
    name: &str,
    x: &[Var<f64>],
    targets: Option<&Tensor<i64>>,
    weight: Option<&Tensor<f64>>,
    params: &Value,
    reduction: Reduction,
) -> Var<f64> {
    let number = |key: &str| params[key].as_f64().unwrap_or_else(|| panic!("{name} has no {key}"));
    let options = || CrossEntropy {
        ignore_index: Some(number("ignore_index") as i64),
        label_smoothing: params["label_smoothing"].as_f64().unwrap_or(0.0),
        reduction,
        axis: number("axis") as isize,
    };
    let targets = || targets.unwrap_or_else(|| panic!("{name} has no targets"));
    match name.split('.').next().expect("a name") {
        "mse_loss" => x[0].mse_loss(&x[1], reduction),
        "l1_loss" => x[0].l1_loss(&x[1], reduction),
        "smooth_l1_loss" => x[0].smooth_l1_loss(&x[1], number("beta"), reduction),
        "huber_loss" => x[0].huber_loss(&x[1], number("delta"), reduction),
        "binary_cross_entropy" => x[0].binary_cross_entropy(&x[1], reduction),
        "binary_cross_entropy_with_logits" => {
            x[0].binary_cross_entropy_with_logits(&x[1], weight, reduction)
        }
        "kl_div" => x[0].kl_div(&x[1], name.ends_with("log_target"), reduction),
        "cross_entropy" => match weight {
            None => x[0].cross_entropy(targets(), options()),
            Some(weight) => x[0].weighted_cross_entropy(targets(), weight, options()),
        },
        "nll_loss" => match weight {
            None => x[0].nll_loss(targets(), options()),
            Some(weight) => x[0].weighted_nll_loss(targets(), weight, options()),
        },
        _ => panic!("{name} is in the file, but not in this test"),
    }
}

#[track_caller]
fn close(what: &str, got: &Tensor<f64>, want: &Tensor<f64>) {
    assert_eq!(got.shape(), want.shape(), "shape of {what}");
    // Relative to the element, or to 0.1 where it is smaller.
    for (i, (got, want)) in got.to_vec().into_iter().zip(want.to_vec()).enumerate() {
        let error = (got - want).abs();
        let bound = 1e-13 * want.abs().max(0.1);
        assert!(error <= bound, "{what}: element {i} is {got}, not {want}, off by {error:e}");
    }
}

#[test]
fn losses_agree_with_pytorch() {
    let fixture = read();
    assert_eq!(fixture.params.len(), 19, "losses in the file");
    let mut compared = 0;
    for (name, params) in &fixture.params {
        let float = |part: &str| fixture.floats.get(&format!("{name}.{part}"));
        let inputs: Vec<Var<f64>> =
            (0..).map_while(|i| float(&format!("in{i}")).cloned().map(Var::leaf)).collect();
        assert!(!inputs.is_empty(), "{name} has no input");
        let targets = fixture.targets.get(&format!("{name}.targets"));
        for reduction in params["reductions"].as_array().expect("a list") {
            let word = reduction.as_str().expect("a word");
            let reduction = match word {
                "none" => Reduction::None,
                "sum" => Reduction::Sum,
                "mean" => Reduction::Mean,
                "batchmean" => Reduction::BatchMean,
                _ => panic!("{name} has a reduction {word}"),
            };
            let part = |part: &str| float(&format!("{word}.{part}")).expect("in the file");
            let y = loss(name, &inputs, targets, float("weight"), params, reduction);
            close(&format!("{name}.{word}.out"), y.value(), part("out"));
            let grads = y.backward_with(part("gout"));
            for (i, x) in inputs.iter().enumerate() {
                let what = format!("{name}.{word}.g{i}");
                close(&what, grads.get(x).expect("a gradient"), part(&format!("g{i}")));
                compared += 1;
            }
        }
    }
    assert_eq!(compared, 97);
}
