//! Every operation recorded in `fixtures/ops.safetensors` and `fixtures/more_ops.safetensors`, forward and
//! backward, against what PyTorch computed in float64.

use retrograd::autograd::Var;
use retrograd::tensor::ops::loss::CrossEntropy;
use retrograd::tensor::{Real, Tensor};
use safetensors::{Dtype, SafeTensors};
use serde_json::Value;
use std::collections::BTreeMap;

/// The file: floats, integers and the constants of each operation.
struct Fixture {
    floats: BTreeMap<String, Tensor<f64>>,
    integers: BTreeMap<String, Tensor<i64>>,
    params: BTreeMap<String, Value>,
}

fn read(file: &str) -> Fixture {
    let bytes = std::fs::read(retrograd_support::fixture(file)).expect("the fixture");
    let (_, header) = SafeTensors::read_metadata(&bytes).expect("a header");
    let meta = header.metadata().as_ref().expect("metadata");
    let params = serde_json::from_str(&meta["params"]).expect("params are JSON");
    let mut fixture = Fixture { floats: BTreeMap::new(), integers: BTreeMap::new(), params };
    for (name, view) in SafeTensors::deserialize(&bytes).expect("tensors").iter() {
        let words = view.data().chunks_exact(8).map(|b| b.try_into().expect("eight bytes"));
        match view.dtype() {
            Dtype::F64 => {
                let data = words.map(f64::from_le_bytes).collect();
                fixture.floats.insert(name.into(), Tensor::from_vec(data, view.shape()));
            }
            Dtype::I64 => {
                let data = words.map(i64::from_le_bytes).collect();
                fixture.integers.insert(name.into(), Tensor::from_vec(data, view.shape()));
            }
            other => panic!("{name} is {other:?}"),
        }
    }
    fixture
}

/// The operation of that name, and the indices it returns, if any.
fn apply<T: Real>(
    name: &str,
    x: &[Var<T>],
    idx: Option<&Tensor<i64>>,
    params: &Value,
) -> (Var<T>, Option<Tensor<i64>>) {
    let number = |key: &str| params[key].as_f64().unwrap_or_else(|| panic!("{name} has no {key}"));
    let real = |key: &str| T::from_f64(number(key));
    let dim = || number("dim") as isize;
    let whole = |key: &str| number(key) as isize;
    let list = |key: &str| -> Vec<isize> {
        let items = params[key].as_array().unwrap_or_else(|| panic!("{name} has no {key}"));
        items.iter().map(|n| n.as_i64().expect("a whole number") as isize).collect()
    };
    let times = || list("times").into_iter().map(|n| n as usize).collect::<Vec<usize>>();
    let a = &x[0];
    let b = || &x[1];
    let idx = || idx.unwrap_or_else(|| panic!("{name} has no idx"));
    let y = match name {
        "exp" => a.exp(),
        "ln" => a.ln(),
        "log1p" => a.log1p(),
        "expm1" => a.expm1(),
        "sqrt" => a.sqrt(),
        "rsqrt" => a.rsqrt(),
        "recip" => a.recip(),
        "abs" => a.abs(),
        "sin" => a.sin(),
        "cos" => a.cos(),
        "tanh" => a.tanh(),
        "sigmoid" => a.sigmoid(),
        "relu" => a.relu(),
        "leaky_relu" => a.leaky_relu(real("slope")),
        "elu" => a.elu(real("alpha")),
        "gelu" => a.gelu(),
        "gelu_tanh" => a.gelu_tanh(),
        "silu" => a.silu(),
        "softplus" => a.softplus(),
        "erf" => a.erf(),
        "clamp" => a.clamp(real("min"), real("max")),
        "pow_scalar" => a.powf(real("exponent")),
        "pow_tensor" => a.pow(b()),
        "maximum" => a.maximum(b()),
        "minimum" => a.minimum(b()),
        "mul_broadcast" => a.mul(b()),
        "div_broadcast" => a.div(b()),
        "matmul_batched" => a.matmul(b()),
        _ if name.starts_with("einsum_") => {
            Var::einsum(params["spec"].as_str().expect("a formula"), &[a, b()])
        }
        "prod" => a.prod(dim()),
        "var" => a.var(dim(), number("correction") as usize),
        "std" => a.std(dim(), number("correction") as usize),
        "logsumexp" => a.logsumexp(dim()),
        "norm" => a.norm(dim()),
        "amax" => a.max(dim()),
        "amin" => a.min(dim()),
        "cumsum" => a.cumsum(dim()),
        "topk" => {
            let largest = params["largest"].as_bool().expect("a truth value");
            let (y, at) = a.topk(dim(), number("k") as usize, largest);
            return (y, Some(at));
        }
        "sort" => {
            let (y, at) = a.sort(dim(), params["descending"].as_bool().expect("a truth value"));
            return (y, Some(at));
        }
        "softmax" | "softmax_axis0" => a.softmax(dim()),
        "log_softmax" => a.log_softmax(dim()),
        "layer_norm" => a.layer_norm(Some(b()), Some(&x[2]), number("eps")),
        "rms_norm" => a.rms_norm(Some(b()), number("eps")),
        _ if name.starts_with("cross_entropy") => {
            let how = CrossEntropy {
                ignore_index: Some(number("ignore_index") as i64),
                label_smoothing: number("label_smoothing"),
                ..CrossEntropy::default()
            };
            a.cross_entropy(idx(), how)
        }
        "gather" => a.gather(dim(), idx()),
        "index_select" => a.index_select(dim(), idx()),
        "scatter_add" => a.scatter_add(dim(), idx(), b()),
        "embedding" => a.embedding(idx()),
        "repeat" => a.repeat(&times()),
        "tile" => a.tile(&times()),
        "repeat_interleave" => a.repeat_interleave(dim(), number("n") as usize),
        "roll" => a.roll(dim(), whole("shift")),
        "flip" => a.flip(&list("dims")[..]),
        "diag_of_vector" | "diag_of_matrix" => a.diag(whole("offset")),
        "diag_embed" => a.diag_embed(whole("offset")),
        "trace" => a.trace(),
        "masked_select" => a.masked_select(&idx().gt(0)),
        "cumprod" => a.cumprod(dim()),
        "quantile" => a.quantile(dim(), number("q")),
        "quantile_of_all" => a.quantile(.., number("q")),
        "median" => a.median(dim()),
        "vector_norm_inf" => a.vector_norm(dim(), f64::INFINITY),
        _ if name.starts_with("vector_norm_") => a.vector_norm(dim(), number("p")),
        _ if name.starts_with("normalize_") => a.normalize(dim(), number("p"), number("eps")),
        "hardswish" => a.hardswish(),
        _ => panic!("{name} is in the file, but not in this test"),
    };
    (y, None)
}

#[track_caller]
fn close<T: Real>(what: &str, got: &Tensor<T>, want: &Tensor<f64>, tolerance: f64) {
    assert_eq!(got.shape(), want.shape(), "shape of {what}");
    // Relative to the element, or to the largest where elements cancel.
    let top = want.to_vec().iter().fold(0.0f64, |a, b| a.max(b.abs()));
    for (i, (g, w)) in got.to_vec().iter().zip(want.to_vec()).enumerate() {
        let error = (g.to_f64() - w).abs();
        let bound = tolerance * w.abs().max(0.1 * top);
        assert!(error <= bound, "{what}: element {i} is {g:?}, not {w:e}, off by {error:e}");
    }
}

trait As<T: Real> {
    fn to(&self) -> Tensor<T>;
}

impl<T: Real> As<T> for Tensor<f64> {
    fn to(&self) -> Tensor<T> {
        Tensor::from_vec(self.to_vec().into_iter().map(T::from_f64).collect(), *self.shape())
    }
}

fn check_all<T: Real>(file: &str, count: usize, tolerance: f64) {
    let fixture = read(file);
    assert_eq!(fixture.params.len(), count, "operations in the file");
    for (name, params) in &fixture.params {
        let float = |part: &str| fixture.floats.get(&format!("{name}.{part}"));
        let inputs: Vec<Tensor<f64>> =
            (0..).map_while(|i| float(&format!("in{i}")).cloned()).collect();
        assert!(!inputs.is_empty(), "{name} has no input");
        let idx = fixture.integers.get(&format!("{name}.idx"));
        let leaves: Vec<Var<T>> = inputs.iter().map(|x| Var::leaf(x.to())).collect();
        let (y, at) = apply(name, &leaves, idx, params);
        close(&format!("{name}.out"), y.value(), float("out").expect("an output"), tolerance);
        let want_at = fixture.integers.get(&format!("{name}.out_idx"));
        assert_eq!(at.as_ref(), want_at, "{name}.out_idx");
        let g: Tensor<T> = float("gout").expect("a cotangent").to();
        let grads = y.backward_with(&g);
        assert_eq!(grads.len(), leaves.len(), "{name}");
        for (i, leaf) in leaves.iter().enumerate() {
            let got = grads.get(leaf).unwrap_or_else(|| panic!("{name}: input {i} got none"));
            let want = float(&format!("g{i}")).expect("a gradient");
            close(&format!("{name}.g{i}"), got, want, tolerance);
        }
        assert!(float(&format!("g{}", leaves.len())).is_none(), "{name}: one input per gradient");

        // The same for inputs and cotangents that are not contiguous.
        let odd = |x: &Tensor<T>| {
            let order: Vec<isize> = (0..x.rank() as isize).rev().collect();
            let turned = x.permute(&order);
            Tensor::from_vec(turned.to_vec(), *turned.shape()).permute(&order)
        };
        let leaves: Vec<Var<T>> = inputs.iter().map(|x| Var::leaf(odd(&x.to()))).collect();
        let (z, _) = apply(name, &leaves, idx, params);
        assert!(z.value() == y.value(), "{name} of another layout");
        let turned = z.backward_with(&odd(&g));
        for (i, leaf) in leaves.iter().enumerate() {
            let want = float(&format!("g{i}")).expect("a gradient");
            close(
                &format!("{name}.g{i} of another layout"),
                turned.get(leaf).unwrap(),
                want,
                tolerance,
            );
        }
    }
}

#[test]
fn operations_agree_with_pytorch_in_f64() {
    check_all::<f64>("ops.safetensors", 52, 1e-12);
    check_all::<f64>("more_ops.safetensors", 33, 1e-12);
}

#[test]
fn operations_agree_with_pytorch_in_f32() {
    check_all::<f32>("ops.safetensors", 52, 1e-5);
    check_all::<f32>("more_ops.safetensors", 33, 1e-5);
}

#[test]
fn counts_agree_with_pytorch() {
    let Fixture { floats, integers, .. } = read("more_ops.safetensors");
    let x = &floats["histc.in"];
    assert_eq!(x.histc(7, -1.5, 2.0), floats["histc.out"]);
    assert_eq!(x.histc(5, 0.0, 0.0), floats["histc.own_range"]);
    let n = &integers["bincount.in"];
    assert_eq!(n.bincount(0), integers["bincount.out"]);
    assert_eq!(n.bincount(12), integers["bincount.longer"]);
    assert_eq!(floats["nonzero.in"].nonzero(), integers["nonzero.out"]);
}
