//! What is on the page of a step is what the step computed; checks, and the step as text.

use retrograd_autograd::Var;
use retrograd_study::{RecordedStep, XRay};
use retrograd_tensor::random::Rng;
use retrograd_tensor::{Real, Tensor};
use serde_json::{Value, json};
use std::cell::RefCell;
use std::slice::from_ref;

pub fn data(step: &RecordedStep) -> Value {
    serde_json::from_str(&step.json()).unwrap()
}

/// A number, which JSON has only if it is finite.
fn number(x: &Value) -> f64 {
    x.as_f64().unwrap_or_else(|| x.as_str().unwrap().parse().unwrap())
}

fn list(x: &Value) -> &[Value] {
    x.as_array().map_or(&[], Vec::as_slice)
}

/// A step of a network in which results are used several times.
#[test]
fn gradients_on_the_page_are_those_of_the_step() {
    let mut rng = Rng::new(5);
    let [w, v] = [[6, 4], [6, 6]].map(|shape| Var::leaf(Tensor::<f32>::randn(shape, &mut rng)));
    let b = Var::leaf(Tensor::<f32>::randn([6], &mut rng));
    let x = Var::constant(Tensor::randn([5, 4], &mut rng));
    let last = RefCell::new(None);
    let step = XRay::new("").leaf("w", &w).leaf("v", &v).leaf("b", &b).record(|| {
        let h = x.linear(&w, Some(&b)).tanh();
        let y = &(&h.linear(&v, Some(&b)).sigmoid() * &h) + &h;
        let loss = y.square().mean(..);
        last.replace(Some((loss.item(), loss.backward())));
    });
    let (loss, gradients) = last.into_inner().unwrap();
    let data = data(&step);
    assert_eq!(number(&data["made"]["loss"]) as f32, loss);
    let nodes = list(&data["nodes"]);
    for (name, leaf) in [("w", w), ("v", v), ("b", b)] {
        let n = nodes.iter().position(|node| node["name"] == name).unwrap();
        let arrivals: Vec<&Value> = list(&data["events"])
            .iter()
            .filter(|e| e["to"] == n && ["moved", "added"].contains(&e["what"].as_str().unwrap()))
            .collect();
        let wanted = gradients.get(&leaf).unwrap();
        let last = &data["values"][arrivals.last().unwrap()["value"].as_u64().unwrap() as usize];
        let shown: Vec<f32> = list(&last["full"]).iter().map(|x| number(x) as f32).collect();
        assert_eq!(shown, wanted.to_vec(), "{name}");
        assert!((number(&last["norm"]) - f64::from(wanted.norm(..).item())).abs() < 1e-5);
        // The parts of the explained elements sum to their gradients.
        let elements = list(&nodes[n]["elements"]);
        assert_eq!(elements.len(), wanted.numel().min(8), "{name}");
        for element in elements {
            let index: Vec<usize> =
                serde_json::from_str(element["index"].as_str().unwrap()).unwrap();
            let parts = list(&element["parts"]);
            assert_eq!(parts.len(), arrivals.len());
            let sum: f64 = parts.iter().map(|part| number(&part[1])).sum();
            let wanted = f64::from(wanted.at(&index));
            assert!((sum - wanted).abs() <= 1e-6 * wanted.abs().max(1.0), "{name}{index:?}");
        }
    }
    let events = list(&data["events"]);
    assert_eq!(events.iter().filter(|e| e["what"] == "added").count(), 3);
    let peak = events.iter().map(|e| e["live"].as_u64().unwrap()).max().unwrap();
    assert_eq!(peak as usize, step.recording().peak());
}

/// An input that occurs twice gets two gradients, each with its own terms.
#[test]
fn both_gradients_of_a_product_with_itself_are_explained() {
    let s = Var::leaf(Tensor::from([[1.0f64, 2.0], [3.0, 4.0]]));
    let step = XRay::new("").leaf("s", &s).record(|| s.matmul(&s).sum(..).backward());
    let page = data(&step);
    let elements = list(&page["nodes"][0]["elements"]);
    assert_eq!(elements.len(), 4);
    // Σ_j s[k, j] for the left operand, Σ_i s[i, k] for the right one.
    let left = [("1 · 1 + 1 · 2", 3.0), ("1 · 3 + 1 · 4", 7.0)];
    let right = [("1 · 1 + 1 · 3", 4.0), ("1 · 2 + 1 · 4", 6.0)];
    for (e, [i, j]) in elements.iter().zip([[0, 0], [1, 0], [0, 1], [1, 1]]) {
        let ((a, x), (b, y)) = (left[i], right[j]);
        assert_eq!(e["terms"], json!([[0, a], [1, b]]));
        assert_eq!(e["parts"], json!([[1, x], [1, y]]));
    }
}

/// For b = a² and y = b + b a at 3, the gradient is 2 a + 3 a² = 33. By recursion, the rule of b runs for each
/// gradient that arrives: with 1, and then with the sum of 1 and 3. So a receives 6, 24, and 9 from the product.
#[test]
fn the_lesson_shows_what_recursion_computes() {
    let a = Var::leaf(Tensor::scalar(3.0f64));
    let step = XRay::new("").leaf("a", &a).record(|| {
        let b = a.square();
        (&b + &(&b * &a)).backward()
    });
    let lesson = &data(&step)["lesson"];
    let row = &lesson["rows"][0];
    assert_eq!((number(&row["right"]), number(&row["wrong"])), (33.0, 6.0 + 24.0 + 9.0));
    assert_eq!(row["equal"], false);
    assert_eq!((lesson["visits"].as_u64(), lesson["naive_visits"].as_u64()), (Some(3), Some(4)));
    // A step with a NaN has no right gradients.
    let step = XRay::new("").leaf("a", &a).record(|| (&a * -1.0).ln().backward());
    assert!(data(&step)["lesson"].is_null());
}

/// Gradients of elements, and the checks beside them.
fn checks(step: &RecordedStep) -> Vec<(f64, Value)> {
    let data = data(step);
    let elements = list(&data["nodes"]).iter().flat_map(|node| list(&node["elements"]));
    let checked = elements.filter(|e| !e["check"].is_null());
    let gradient = |e: &Value| list(&e["parts"]).iter().map(|part| number(&part[1])).sum();
    checked.map(|e| (gradient(e), e["check"].clone())).collect()
}

fn deep_network<T: Real>() -> RecordedStep {
    let mut rng = Rng::new(3);
    let [w, v] = [[10, 6], [4, 10]].map(|shape| Var::leaf(Tensor::<T>::randn(shape, &mut rng)));
    let x = Var::constant(Tensor::randn([5, 6], &mut rng));
    let targets = Tensor::randn([5, 4], &mut rng);
    XRay::new("").leaf("w", &w).leaf("v", &v).checked(4).record_at(&[w, v], |v| {
        x.linear(&v[0], None)
            .tanh()
            .linear(&v[1], None)
            .log_softmax(-1)
            .mul(&Var::constant(targets.clone()))
            .sum(..)
            .backward()
    })
}

#[test]
fn differences_are_as_precise_as_they_say() {
    for (step, most) in [(deep_network::<f32>(), 5e-3), (deep_network::<f64>(), 1e-8)] {
        let checks = checks(&step);
        assert_eq!(checks.len(), 8);
        for (gradient, check) in checks {
            let [difference, error, h] =
                ["difference", "error", "step"].map(|name| number(&check[name]));
            assert!((gradient - difference).abs() <= 3.0 * error, "{gradient}: {check}");
            assert!(error <= most * gradient.abs().max(0.01), "{gradient}: {check}");
            assert!(check["agrees"] == true && h > 0.0);
        }
        assert!(step.findings().is_empty());
    }
}

#[test]
fn the_largest_of_the_explained_elements_are_checked() {
    let x = Var::leaf(Tensor::from([1.0f64, -3.0, 2.0, 0.5]));
    let step = XRay::new("")
        .leaf("x", &x)
        .checked(2)
        .record_at(&[x], |v| v[0].square().sum(..).backward());
    let checked: Vec<f64> = checks(&step).iter().map(|(gradient, _)| *gradient).collect();
    assert_eq!(checked, [-6.0, 4.0]);
}

#[test]
fn code_that_does_something_else_each_time_is_not_checked() {
    let x = Var::leaf(Tensor::scalar(3.0f64));
    let left_out = |step: &RecordedStep| {
        assert!(checks(step).is_empty());
        data(step)["left_out"].to_string()
    };
    let mut run = 0.0;
    let step = XRay::new("").leaf("x", &x).checked(1).record_at(from_ref(&x), |v| {
        run += 1.0;
        (&v[0] * run).backward()
    });
    assert!(left_out(&step).contains("computed another loss when it was repeated"));
    let found = "the runs of the recorded code differ (the loss was 6.0, then ";
    assert!(step.findings()[0].starts_with(found), "{:?}", step.findings());
    let mut run = 0;
    let step = XRay::new("").record(|| {
        run += 1;
        if run == 3 { x.square().exp().backward() } else { x.square().backward() }
    });
    let found = "the runs of the recorded code differ (from event 2 on): ";
    assert!(step.findings()[0].starts_with(found), "{:?}", step.findings());
    let step = XRay::new("")
        .leaf("x", &x)
        .checked(1)
        .record_at(from_ref(&x), |v| (v[0].square().backward(), v[0].exp().backward()));
    assert!(left_out(&step).contains("no backward pass of a scalar, or several"));
    let step = XRay::new("").leaf("x", &x).checked(1).record(|| x.square().backward());
    assert!(left_out(&step).contains("no parameter can be changed"));
}

#[test]
fn a_given_gradient_is_a_factor() {
    let x = Var::leaf(Tensor::scalar(3.0f64));
    let step = XRay::new("")
        .leaf("x", &x)
        .checked(1)
        .record_at(&[x], |v| v[0].square().backward_with(&Tensor::scalar(0.25)));
    let found = checks(&step);
    assert_eq!((found.len(), found[0].0, &found[0].1["agrees"]), (1, 1.5, &json!(true)));
}

fn long() -> RecordedStep {
    let x = Var::leaf(Tensor::from([0.5f32, -1.0]));
    XRay::new("A chain")
        .leaf("x", &x)
        .record(|| (0..100).fold(x.clone(), |x, _| x.tanh()).sum(..).backward())
}

#[test]
fn long_tapes_are_cut_in_the_middle() {
    let tape = long().tape(30);
    assert!(tape.lines().count() <= 30, "{tape}");
    assert!(["    .. ", "  0 tanh", "100 sum"].iter().all(|part| tape.contains(part)), "{tape}");
    assert_eq!(long().tape(1000).lines().count(), 2 + 2 * 101);
}

#[test]
fn costs_name_every_operation() {
    let costs = long().costs();
    let lines: Vec<&str> = costs.lines().collect();
    assert_eq!(lines.len(), 3, "{costs}");
    assert!(lines[0].contains(" spread ") && lines[1].matches('%').count() == 2, "{costs}");
    assert!(lines.iter().any(|line| line.starts_with("tanh") && line.contains(" 100 ")), "{costs}");
}

#[test]
fn the_trace_has_a_slice_for_each_operation_and_rule() {
    let trace: Value = serde_json::from_str(&long().chrome_trace()).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let slices: Vec<&Value> = events.iter().filter(|e| e["ph"] == "X").collect();
    let named = |name: &str| slices.iter().filter(|e| e["name"] == name).count();
    assert_eq!((named("tanh"), named("tanh backward"), named("sum")), (100, 100, 1));
    assert!(slices.iter().all(|e| e["dur"].as_f64().unwrap() >= 0.0));
}
