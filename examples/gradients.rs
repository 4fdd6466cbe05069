//! One derivative computed in three ways: by hand, by finite differences, and by the engine. Then a
//! custom operation, the detection of an incorrect rule, higher derivatives, and the graph.
//!
//! Run with `cargo run --release --example gradients`. With `-- --xray step.html` it also writes a page of the
//! forward and backward pass of the custom operation in a small network, with central differences beside the gradients.

use retrograd::autograd::check::{Check, gradcheck, gradgradcheck};
use retrograd::autograd::{InputGrads, Op, to_dot};
use retrograd::prelude::*;
use retrograd::study::{RecordedStep, XRay};
use std::process::ExitCode;

fn main() -> ExitCode {
    retrograd::study::from_env();
    println!("1. By hand. For y = Σ tanh(x W), with h = tanh(x W):");
    println!("   dy/dh = 1, dy/d(xW) = 1 - h², dy/dW = xᵀ (1 - h²)\n");
    let x = Tensor::from([[0.5f64, -1.0, 2.0], [1.5, 0.3, -0.7]]);
    let w = Tensor::from([[0.1f64, -0.2], [0.4, 0.3], [-0.5, 0.2]]);
    let h = x.matmul(&w).tanh();
    let by_hand = x.t().matmul(&(Tensor::ones(h.shape()) - h.square()));
    println!("{by_hand}\n");

    println!("2. By finite differences, [y(W + ε) - y(W - ε)] / 2ε for each element of W:\n");
    let y = |w: &Tensor<f64>| x.matmul(w).tanh().sum(..).item();
    let eps = 1e-6;
    let by_differences = Tensor::from_fn([3, 2], |at| {
        let moved = |by| w.add(&Tensor::from_fn([3, 2], |i| if i == at { by } else { 0.0 }));
        (y(&moved(eps)) - y(&moved(-eps))) / (2.0 * eps)
    });
    println!("{by_differences}\n");

    println!("3. By the engine: operations on a Var record a graph, backward() traverses it:\n");
    let leaf = Var::leaf(w);
    let y = Var::constant(x.clone()).matmul(&leaf).tanh().sum(..);
    let graph = to_dot(&[&y]);
    println!("{}\n", y.backward().get(&leaf).expect("y depends on W"));

    println!("gradcheck compares steps 2 and 3 for any function and any shapes:");
    let report = gradcheck(
        |v| Var::constant(x.clone()).matmul(&v[0]).tanh().sum(..),
        std::slice::from_ref(&leaf),
        &Check::precise(),
    );
    println!("   {}\n", report.expect("the engine is right"));

    println!("4. A custom operation: y = x³, with its backward rule.");
    let points = [Var::leaf(Tensor::from([0.5f64, -1.0, 2.0]))];
    let first = gradcheck(|v| cube(&v[0], 3.0), &points, &Check::precise());
    println!("   first derivatives:  {}", first.expect("3x² is right"));
    let second = gradgradcheck(|v| cube(&v[0], 3.0), &points, &Check::default());
    println!("   second derivatives: {}\n", second.expect("6x is right"));

    println!("5. The same operation with an incorrect rule, 2x² instead of 3x²:");
    let error = gradcheck(|v| cube(&v[0], 2.0), &points, &Check::precise()).unwrap_err();
    println!("   {error}\n");

    println!("6. Higher derivatives: for y = x⁴ at 2,");
    let x = Var::leaf(Tensor::scalar(2.0f64));
    let mut y = x.powf(4.0);
    for order in 1..=4 {
        y = grad(&[(&y, None)], &[&x])[0].clone().expect("y depends on x");
        println!("   order {order}: {}", y.item());
    }

    println!("\n7. The graph of step 3, for Graphviz (dot -Tsvg):\n");
    println!("{graph}");
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => {}
        ["--xray", path] => {
            if let Err(why) = network_with_cube().write(path) {
                eprintln!("error: cannot write the page: {why}");
                return ExitCode::FAILURE;
            }
            println!("8. The custom operation in a network, event by event: {path}");
        }
        _ => {
            eprintln!("usage: gradients [--xray FILE.html]");
            return ExitCode::from(2);
        }
    }
    ExitCode::SUCCESS
}

/// Records `Σ cube(tanh(x W)) / n` and its gradients.
fn network_with_cube() -> RecordedStep {
    let x = Var::constant(Tensor::from([[0.5f64, -1.0, 2.0], [1.5, 0.3, -0.7]]));
    let w = Var::leaf(Tensor::from([[0.1f64, -0.2], [0.4, 0.3], [-0.5, 0.2]]));
    XRay::new("A custom operation")
        .leaf("W", &w)
        .checked(w.shape().numel())
        .record_at(&[w], |v| cube(&x.matmul(&v[0]).tanh(), 3.0).mean(..).backward())
}

static CUBE: Op = Op::new("cube", &["x"]).formula("y = x³", "dx = g · 3 · x²");

/// `x³`. The factor of the derivative is an argument, so that it can be wrong.
fn cube(x: &Var<f64>, factor: f64) -> Var<f64> {
    Var::from_op(&CUBE, x.value().powf(3.0), [x], |[x]| {
        let x = x.save();
        // Written with operations on variables, so it can be differentiated again.
        move |cx, g| InputGrads::of(&x, || g * &cx.input(&x).square() * factor)
    })
}
