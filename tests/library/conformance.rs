//! The cases of `conformance/cases.json`.

use crate::programs::language::{along, binary, reduce, unary};
use retrograd::autograd::Id;
use retrograd::prelude::*;
use serde_json::{Map, Value};
use std::collections::{HashMap, HashSet};

/// Variables by name; a gradient that is absent is `None`.
type Variables = HashMap<String, Option<Var<f64>>>;

/// Runs steps. With `used`, only the first use of a variable counts for its gradient: a known fault.
fn run(steps: &Value, env: &mut Variables, mut used: Option<&mut HashSet<Id>>) {
    for step in steps.as_array().unwrap() {
        let (name, op) = (text(&step["name"]), text(&step["op"]));
        let names: Vec<&str> = step["of"].as_array().unwrap().iter().map(text).collect();
        if op == "repeat" {
            env.insert(name.into(), env[names[0]].clone());
            for _ in 0..step["times"].as_u64().unwrap() {
                run(&step["steps"], env, used.as_deref_mut());
            }
            continue;
        }
        let mut of: Vec<Var<f64>> = names.iter().filter_map(|name| env[*name].clone()).collect();
        let result = match op {
            "grad" | "backward" => gradient(op, &of),
            _ => {
                for x in &mut of {
                    if let (Some(used), Some(id)) = (&mut used, x.id())
                        && !used.insert(id)
                    {
                        *x = x.detach();
                    }
                }
                Some(apply(op, &of, step))
            }
        };
        env.insert(name.into(), result);
    }
}

/// The gradient with respect to the last variable: of the first, or accumulated over passes from all others.
fn gradient(op: &str, of: &[Var<f64>]) -> Option<Var<f64>> {
    let (x, ys) = of.split_last()?;
    let mut ys = ys.iter().filter(|y| y.is_tracked()).map(|y| y.sum(..));
    if op == "grad" {
        return grad(&[(&ys.next()?, None)], &[x])[0].clone();
    }
    let mut grads = Gradients::empty();
    for y in ys {
        grads.accumulate(Backprop::from(&y).retain_graph().run());
    }
    Some(Var::constant(grads.get(x)?.clone()))
}

fn apply(op: &str, of: &[Var<f64>], step: &Value) -> Var<f64> {
    let (a, b) = (&of[0], || &of[1]);
    let axis = || step["axis"].as_i64().unwrap() as isize;
    match op {
        "pow" => a.powf(step["exponent"].as_f64().unwrap()),
        "log" => a.ln(),
        "sum" if step.get("axis").is_none() => a.sum(..),
        "matmul" => a.matmul(b()),
        "reshape" => a.reshape(sizes(&step["shape"])),
        "transpose" => a.t(),
        "broadcast" => a.broadcast_to(sizes(&step["shape"])),
        "slice" => {
            let ranges = step["ranges"].as_array().unwrap().iter().map(sizes);
            ranges.zip(0..).fold(a.clone(), |a, (r, axis)| a.slice(axis, r[0]..r[1]))
        }
        "where" => {
            let mask: Vec<bool> = serde_json::from_value(step["mask"].clone()).unwrap();
            Var::where_(&Tensor::from_vec(mask, *a.shape()), a, b())
        }
        "detach" => a.detach(),
        "set_item" => a.select_scatter(0, step["at"].as_u64().unwrap() as usize, b()),
        op => unary(op, a)
            .or_else(|| binary(op, a, of.get(1)?))
            .or_else(|| along(op, a, axis()))
            .or_else(|| reduce(op, a, &[axis()]))
            .unwrap_or_else(|| panic!("there is no operation {op}")),
    }
}

/// `pass` and the conventions of the results, or what is wrong.
fn judge(case: &Value, used: Option<&mut HashSet<Id>>) -> String {
    let leaf = |x: &Value| Var::leaf(Tensor::from_vec(numbers(&x["values"]), sizes(&x["shape"])));
    let inputs = object(&case["inputs"]).iter();
    let mut env = inputs.map(|(name, x)| (name.clone(), Some(leaf(x)))).collect();
    run(&case["steps"], &mut env, used);
    let mut conventions = Vec::new();
    for (name, want) in object(&case["expect"]) {
        let zeros = || Tensor::zeros(sizes(&want["shape"]));
        let got = env[name].as_ref().map_or_else(zeros, |x| x.value().clone());
        let relative = if case["exact"] == true { 0.0 } else { 1e-12 };
        let agrees = |values: &Value| {
            !values.is_null()
                && got.shape()[..] == sizes(&want["shape"])
                && close(&got.to_vec(), &numbers(values), relative)
        };
        match want["accepted"].as_object() {
            None if agrees(&want["values"]) => {}
            Some(accepted) if let Some((name, _)) = accepted.iter().find(|(_, v)| agrees(v)) => {
                conventions.push(name.as_str());
            }
            _ => return format!("{name} is {got:?}"),
        }
    }
    format!("pass {}", conventions.join(", ")).trim_end().into()
}

/// Whether numbers are those expected, relative to the largest.
fn close(got: &[f64], want: &[f64], relative: f64) -> bool {
    let largest = want.iter().filter(|x| x.is_finite()).fold(0.0f64, |a, b| a.max(b.abs()));
    got.iter()
        .zip(want)
        .all(|(a, b)| a == b || (a - b).abs() <= relative * largest || a.is_nan() && b.is_nan())
}

fn text(x: &Value) -> &str {
    x.as_str().unwrap()
}

fn object(x: &Value) -> &Map<String, Value> {
    x.as_object().unwrap()
}

fn sizes(x: &Value) -> Vec<usize> {
    serde_json::from_value(x.clone()).unwrap()
}

/// Numbers, of which NaN and infinities are text.
fn numbers(x: &Value) -> Vec<f64> {
    let number = |x: &Value| x.as_f64().unwrap_or_else(|| text(x).parse().unwrap());
    x.as_array().unwrap().iter().map(number).collect()
}

fn cases() -> Vec<Value> {
    serde_json::from_str(&retrograd_support::read("conformance/cases.json")).unwrap()
}

/// Every case passes, by the conventions that the table says.
#[test]
fn all_cases_pass() {
    let page = retrograd_support::read("conformance/README.md");
    for case in cases() {
        let row = format!("| `{}` | {} |", text(&case["name"]), judge(&case, None));
        assert!(page.contains(&row) && row.contains("| pass"), "the table lacks {row}");
    }
}

/// Only the cases in which no variable is used twice do not find the fault.
#[test]
fn an_engine_that_does_not_add_gradients_fails() {
    let passes = |case: &Value| judge(case, Some(&mut HashSet::new())).starts_with("pass");
    let cases = cases().into_iter().filter(passes);
    let passed: Vec<String> = cases.map(|case| text(&case["name"]).into()).collect();
    let without_reuse = "broadcast_axis_of_zero mean_of_nothing scalar_to_a_million tied_maximum \
                         sqrt_behind_mask sqrt_behind_two_masks";
    assert_eq!(passed.join(" "), without_reuse);
}
