//! What the page of a step says of tensors, of times, and of modules.

use crate::xray::data;
use retrograd_autograd::{InputGrads, Op, Var};
use retrograd_nn::{Layer, Linear, Pass};
use retrograd_study::XRay;
use retrograd_tensor::observe::{self, KernelCall};
use retrograd_tensor::random::Rng;
use retrograd_tensor::{DType, Real, Shape, Tensor};
use serde_json::{Value, json};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// What is said of the values of a leaf.
fn values<T: Real>(x: &Tensor<T>) -> Value {
    let x = Var::leaf(x.clone());
    let data = data(&XRay::new("").leaf("x", &x).record(|| x.sum(..).backward()));
    data["values"][data["nodes"][0]["value"].as_u64().unwrap() as usize].clone()
}

#[test]
fn statistics_are_those_of_the_finite_elements() {
    let v = values(&Tensor::from([3.0f32, -1.0, 0.0, f32::NAN, f32::INFINITY, 2.0]));
    let wanted = [
        ("count", json!(6)),
        ("zeros", json!(1)),
        ("nan", json!(1)),
        ("inf", json!(1)),
        ("min", json!(-1.0)),
        ("max", json!(3.0)),
        ("mean", json!(1.0)),
        ("std", json!(2.5f64.sqrt())),
        ("norm", json!(14f64.sqrt())),
        ("full", json!([3.0, -1.0, 0.0, "NaN", "Infinity", 2.0])),
    ];
    for (name, value) in wanted {
        assert_eq!(v[name], value, "{name}");
    }
    let histogram = v["histogram"].as_array().unwrap().iter();
    assert_eq!(histogram.map(|n| n.as_u64().unwrap()).sum::<u64>(), 4);
}

#[test]
fn extreme_tensors_have_a_summary() {
    for x in
        [vec![], vec![f64::NAN; 300], vec![f64::MAX, f64::MIN], vec![0.0; 1000], vec![5e-324; 3]]
    {
        let n = x.len();
        assert_eq!(values(&Tensor::from_vec(x, [n]))["count"], n);
    }
    assert_eq!(values(&Tensor::<f32>::zeros([0]))["min"], Value::Null);
}

#[test]
fn bits_and_shapes_have_different_digests() {
    let x = Tensor::from([[1.0f32, 2.0], [3.0, 4.0]]);
    let digest = |x: &Tensor<f32>| values(x)["digest"].clone();
    assert_eq!(digest(&x), digest(&x.t().t()));
    let others = [&x.reshape([4]), &x.t(), &(&x + 1e-7)];
    assert!(others.iter().all(|y| digest(y) != digest(&x)));
}

#[test]
fn a_picture_shows_the_largest_of_each_part() {
    let mut x = vec![0.5f32; 64 * 96];
    x[3 * 96 + 5] = -4.0; // row 1 and column 1 of the picture
    let picture = &values(&Tensor::from_vec(x, [64, 96]))["picture"];
    let size = |picture: &Value| ["rows", "columns", "scale"].map(|part| picture[part].as_f64());
    assert_eq!(size(picture), [32.0, 32.0, 4.0].map(Some));
    // Levels from -31 to 31 are digits of base64 from 1 on.
    let cells = picture["cells"].as_str().unwrap();
    assert_eq!(cells.chars().nth(33), Some('B')); // -31
    assert_eq!(cells.matches('k').count(), 32 * 32 - 1); // 0.125
    let long = &values(&Tensor::<f32>::ones([300]))["picture"];
    assert_eq!((size(long), &long["note"]), ([10.0, 32.0, 1.0].map(Some), &Value::Null));
}

/// One of three runs was interrupted, and two did something else.
#[test]
fn times_are_the_least_of_several_runs() {
    let x = Var::leaf(Tensor::from([1.0f32, 2.0]));
    // The least time of each run, and the most.
    let (mut run, mut times) = (0, Vec::new());
    let step = XRay::new("").leaf("x", &x).record(|| {
        run += 1;
        let start = Instant::now();
        let call = observe::begin();
        let least = Duration::from_millis([0, 30, 90, 10, 0, 0, 0][run - 1]);
        sleep(least);
        observe::end(call, || KernelCall::new("slow", "sleep", DType::F32, Shape::from([2])));
        let op = const { &Op::new("slow", &["x"]) };
        let y = Var::from_op(op, x.value().clone(), [&x], |[x]| {
            let x = x.slot();
            move |_, g| InputGrads::of(&x, || g.clone())
        });
        times.push([least, start.elapsed()].map(|time| time.as_secs_f64()));
        let y = if [5, 6].contains(&run) { y.exp() } else { y };
        y.sum(..).backward()
    });
    let data = data(&step);
    // To fill caches, with times, and with values.
    assert_eq!((run, &data["made"]["runs"]), (7, &json!(3)));
    let [least, most] = [0, 1].map(|i| {
        let mut times: Vec<f64> = times[1..4].iter().map(|time| time[i]).collect();
        times.sort_by(f64::total_cmp);
        times
    });
    let slow = &data["nodes"][1];
    for (i, found) in [&slow["seconds"], &slow["medians"][0]].into_iter().enumerate() {
        let found = found.as_f64().unwrap();
        assert!((least[i]..=most[i]).contains(&found), "{found}: {least:?} {most:?}");
    }
}

#[test]
fn a_parameter_has_its_value_again_also_after_a_panic() {
    let model = Linear::<f32>::without_bias(2, 1, &mut Rng::new(1));
    let original = Tensor::from([[1.0f32, 2.0]]);
    model.weight.set(original.clone());
    let x = Var::constant(Tensor::from([[0.0f32, 1.0]]));
    let weights = || model.weight.value().to_vec();
    let loss = || model.forward(&x, &mut Pass::eval()).square().sum(..).backward();
    let mut seen = Vec::new();
    let step = XRay::of(&model).checked(1).record(|| {
        seen.push(weights());
        loss()
    });
    let data = data(&step);
    let nodes = data["nodes"].as_array().unwrap().iter();
    let mut elements = nodes.flat_map(|node| node["elements"].as_array().into_iter().flatten());
    let check = &elements.find(|element| !element["check"].is_null()).unwrap()["check"];
    assert!((check["difference"].as_f64().unwrap() - 4.0).abs() < 1e-2, "{check}");
    seen.retain(|w| *w != [1.0, 2.0]);
    assert!(seen.len() >= 4 && seen.iter().all(|w| w[0] == 1.0), "{seen:?}");
    assert_eq!(weights(), [1.0, 2.0]);
    let run = catch_unwind(AssertUnwindSafe(|| {
        XRay::of(&model).checked(1).record(|| {
            assert_eq!(weights(), [1.0, 2.0], "in the middle");
            loss()
        })
    }));
    assert!(run.is_err());
    assert_eq!(weights(), [1.0, 2.0]);
}

#[test]
fn a_module_outside_of_the_others_has_no_parent() {
    let names = ["a", "b", "a.c"].into_iter();
    let xray = names.fold(XRay::new(""), |xray, path| xray.module(path, "T"));
    let x = Var::leaf(Tensor::scalar(1.0f32));
    let modules = &data(&xray.record(|| x.exp().backward()))["modules"];
    let parents = modules.as_array().unwrap().iter().map(|module| module["parent"].as_i64());
    assert!(parents.eq([-1, -1, 0].map(Some)), "{modules}");
}
