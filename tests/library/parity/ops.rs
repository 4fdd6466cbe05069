//! Every operation and every loss, under every reduction, that a file records, forward and backward, against what
//! PyTorch computed in float64.

use super::{Bound, Fixture};
use crate::programs::language::{along, binary, reduce, unary};
use retrograd::nn::checkpoint::Storable;
use retrograd::prelude::*;
use serde_json::Value;

/// An operation of a file.
struct Case<'a> {
    file: &'a Fixture,
    name: &'a str,
    params: &'a Value,
}

impl Case<'_> {
    fn real<T: Storable>(&self, part: &str) -> Option<Tensor<T>> {
        let name = format!("{}.{part}", self.name);
        self.file.find(&name).is_some().then(|| self.file.real(&name))
    }

    fn integers(&self, part: &str) -> Option<Tensor<i64>> {
        Some(self.file.find(&format!("{}.{part}", self.name))?.to_i64().unwrap())
    }
}

/// The operation of that name, and the indices it returns, if any.
fn apply<T: Storable>(
    case: &Case<'_>,
    x: &[Var<T>],
    reduction: Reduction,
) -> (Var<T>, Option<Tensor<i64>>) {
    let Case { name, params, .. } = *case;
    let number = |key: &str| params[key].as_f64().unwrap_or_else(|| panic!("{name} has no {key}"));
    let real = |key: &str| T::from_f64(number(key));
    let dim = || number("dim") as isize;
    let whole = |key: &str| number(key) as isize;
    let list = |key: &str| -> Vec<isize> {
        let items = params[key].as_array().unwrap_or_else(|| panic!("{name} has no {key}"));
        items.iter().map(|n| n.as_i64().expect("a whole number") as isize).collect()
    };
    let times = || list("times").into_iter().map(|n| n as usize).collect::<Vec<usize>>();
    let options = || CrossEntropy {
        ignore_index: Some(number("ignore_index") as i64),
        label_smoothing: params["label_smoothing"].as_f64().unwrap_or(0.0),
        reduction,
        axis: params["axis"].as_i64().map_or(CrossEntropy::default().axis, |axis| axis as isize),
    };
    let a = &x[0];
    let b = || &x[1];
    let idx = || case.integers("idx").or(case.integers("targets")).expect("indices");
    let y = match name.split('.').next().expect("a name") {
        "leaky_relu" => a.leaky_relu(real("slope")),
        "elu" => a.elu(real("alpha")),
        "clamp" => a.clamp(real("min"), real("max")),
        "pow_scalar" => a.powf(real("exponent")),
        "pow_tensor" => a.pow(b()),
        "mul_broadcast" => a.mul(b()),
        "div_broadcast" => a.div(b()),
        "matmul_batched" => a.matmul(b()),
        _ if name.starts_with("einsum_") => {
            Var::einsum(params["spec"].as_str().expect("a formula"), &[a, b()])
        }
        "prod" => a.prod(dim()),
        "var" => a.var(dim(), number("correction") as usize),
        "std" => a.std(dim(), number("correction") as usize),
        "amax" => a.max(dim()),
        "amin" => a.min(dim()),
        "topk" => {
            let largest = params["largest"].as_bool().expect("a truth value");
            let (y, at) = a.topk(dim(), number("k") as usize, largest);
            return (y, Some(at));
        }
        "sort" => {
            let (y, at) = a.sort(dim(), params["descending"].as_bool().expect("a truth value"));
            return (y, Some(at));
        }
        "softmax_axis0" => a.softmax(dim()),
        "layer_norm" => a.layer_norm(Some(b()), Some(&x[2]), number("eps")),
        "rms_norm" => a.rms_norm(Some(b()), number("eps")),
        _ if name.starts_with("cross_entropy") => match case.real("weight") {
            None => a.cross_entropy(&idx(), options()),
            Some(weight) => a.weighted_cross_entropy(&idx(), &weight, options()),
        },
        "nll_loss" => match case.real("weight") {
            None => a.nll_loss(&idx(), options()),
            Some(weight) => a.weighted_nll_loss(&idx(), &weight, options()),
        },
        "mse_loss" => a.mse_loss(b(), reduction),
        "l1_loss" => a.l1_loss(b(), reduction),
        "smooth_l1_loss" => a.smooth_l1_loss(b(), number("beta"), reduction),
        "huber_loss" => a.huber_loss(b(), number("delta"), reduction),
        "binary_cross_entropy" => a.binary_cross_entropy(b(), reduction),
        "binary_cross_entropy_with_logits" => {
            a.binary_cross_entropy_with_logits(b(), case.real("weight").as_ref(), reduction)
        }
        "kl_div" => a.kl_div(b(), name.ends_with("log_target"), reduction),
        "gather" => a.gather(dim(), &idx()),
        "index_select" => a.index_select(dim(), &idx()),
        "scatter_add" => a.scatter_add(dim(), &idx(), b()),
        "embedding" => a.embedding(&idx()),
        "repeat" => a.repeat(&times()),
        "tile" => a.tile(&times()),
        "repeat_interleave" => a.repeat_interleave(dim(), number("n") as usize),
        "roll" => a.roll(dim(), whole("shift")),
        "flip" => a.flip(&list("dims")[..]),
        "diag_of_vector" | "diag_of_matrix" => a.diag(whole("offset")),
        "diag_embed" => a.diag_embed(whole("offset")),
        "trace" => a.trace(),
        "masked_select" => a.masked_select(&idx().gt(0)),
        "quantile" => a.quantile(dim(), number("q")),
        "quantile_of_all" => a.quantile(.., number("q")),
        "median" => a.median(dim()),
        "vector_norm_inf" => a.vector_norm(dim(), f64::INFINITY),
        _ if name.starts_with("vector_norm_") => a.vector_norm(dim(), number("p")),
        _ if name.starts_with("normalize_") => a.normalize(dim(), number("p"), number("eps")),
        op => unary(op, a)
            .or_else(|| binary(op, a, x.get(1)?))
            .or_else(|| along(op, a, dim()))
            .or_else(|| reduce(op, a, &[dim()]))
            .unwrap_or_else(|| panic!("{name} is in the file, but not in this test")),
    };
    (y, None)
}

/// Compares every case of a file, also with inputs and cotangents that are not contiguous.
fn check_all<T: Storable>(file: &str, count: usize, bound: Bound) {
    let file = Fixture::load(file);
    let params = file.note("params");
    let params = params.as_object().expect("an object");
    assert_eq!(params.len(), count, "operations in the file");
    for (name, params) in params {
        let case = Case { file: &file, name, params };
        let inputs: Vec<Tensor<T>> = (0..).map_while(|i| case.real(&format!("in{i}"))).collect();
        assert!(!inputs.is_empty(), "{name} has no input");
        let leaves = |layout: &dyn Fn(&Tensor<T>) -> Tensor<T>| {
            let leaves = inputs.iter().map(|x| Var::leaf(layout(x))).enumerate();
            leaves.map(|(i, x)| (format!("g{i}"), x)).collect::<Vec<_>>()
        };
        let words = params["reductions"].as_array().cloned().unwrap_or(vec![Value::Null]);
        for word in words {
            let (at, reduction) = match word.as_str() {
                None => (name.clone(), Reduction::Mean),
                Some(word) => (format!("{name}.{word}"), reduction(word)),
            };
            let run = |leaves: &[(String, Var<T>)]| {
                let x: Vec<Var<T>> = leaves.iter().map(|(_, x)| x.clone()).collect();
                apply(&case, &x, reduction)
            };
            let usual = leaves(&Tensor::clone);
            let (y, indices) = run(&usual);
            assert_eq!(indices, case.integers("out_idx"), "{name}.out_idx");
            file.check(&at, &y, &usual, bound);

            let odd = |x: &Tensor<T>| {
                let order: Vec<isize> = (0..x.rank() as isize).rev().collect();
                let turned = x.permute(&order);
                Tensor::from_vec(turned.to_vec(), *turned.shape()).permute(&order)
            };
            let turned = leaves(&odd);
            let (z, _) = run(&turned);
            assert!(z.value() == y.value(), "{at} of another layout");
            let cotangent = odd(&file.real(&format!("{at}.gout")));
            file.gradients(&at, z.backward_with(&cotangent), &turned, bound);
        }
    }
    let counts = ["histc.", "bincount.", "nonzero."];
    file.all_read(|name| !counts.iter().any(|count| name.starts_with(count)));
}

fn reduction(word: &str) -> Reduction {
    match word {
        "none" => Reduction::None,
        "sum" => Reduction::Sum,
        "mean" => Reduction::Mean,
        "batchmean" => Reduction::BatchMean,
        _ => panic!("a reduction {word}"),
    }
}

#[test]
fn operations_agree_with_pytorch_in_f64() {
    check_all::<f64>("ops.safetensors", 52, Bound::RelativeToLargest(1e-12));
    check_all::<f64>("more_ops.safetensors", 33, Bound::RelativeToLargest(1e-12));
}

#[test]
fn operations_agree_with_pytorch_in_f32() {
    check_all::<f32>("ops.safetensors", 52, Bound::RelativeToLargest(1e-5));
    check_all::<f32>("more_ops.safetensors", 33, Bound::RelativeToLargest(1e-5));
}

#[test]
fn losses_agree_with_pytorch() {
    check_all::<f64>("losses.safetensors", 19, Bound::Relative(1e-13));
}

#[test]
fn counts_agree_with_pytorch() {
    let file = Fixture::load("more_ops.safetensors");
    let real = |name: &str| file.real::<f64>(name);
    let integers = |name: &str| file.tensor(name).to_i64().unwrap();
    let x = real("histc.in");
    assert_eq!(x.histc(7, -1.5, 2.0), real("histc.out"));
    assert_eq!(x.histc(5, 0.0, 0.0), real("histc.own_range"));
    let n = integers("bincount.in");
    assert_eq!(n.bincount(0), integers("bincount.out"));
    assert_eq!(n.bincount(12), integers("bincount.longer"));
    assert_eq!(real("nonzero.in").nonzero(), integers("nonzero.out"));
}
