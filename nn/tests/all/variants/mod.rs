//! Checks of every attention variant as a trainable module: one row each.
//!
//! Each row is checked: gradients by inputs and parameters against finite differences to second
//! order, visiting and loading of parameters, and equal bits on any number of threads. Run with
//! `--nocapture` for the table.

use crate::common::*;
use retrograd_autograd::Var;
use retrograd_autograd::check::Report;
use retrograd_nn::Module;
use retrograd_nn::attention::{HeadSizes, Projections};
use retrograd_nn::testing::{VariantReport, check_variant};
use retrograd_study::record::{What, find_nonfinite, record};
use retrograd_tensor::Tensor;
use retrograd_tensor::random::Rng;

/// Rows of modules with the same forward pass: a name, the shapes of the inputs, and how the module is built.
macro_rules! rows {
    ($run:expr; $($name:ident, [$($shape:expr),*], $build:expr;)+) => {$(
        #[test]
        fn $name() {
            super::row(stringify!($name), $build, &[$(&$shape),*], $run);
        }
    )+};
}

mod rows_classic;
mod rows_modern;
mod rows_multi_head;

/// Checks a module by its forward pass on inputs of these shapes, and prints the row.
fn row<M: Module<f64> + Sync>(
    name: &str,
    build: impl Fn(&mut Rng) -> M + Sync,
    shapes: &[&[usize]],
    run: impl Fn(&M, &[Var<f64>]) -> Var<f64> + Sync,
) {
    let inputs = inputs(shapes);
    let module = build(&mut Rng::new(1));
    check_record(name, &inputs, &|x| run(&module, x));
    print_report(name, &check_variant(name, build, &inputs, run));
}

fn inputs(shapes: &[&[usize]]) -> Vec<Tensor<f64>> {
    (5..).zip(shapes).map(|(seed, shape)| randn(shape, seed)).collect()
}

fn print_report(name: &str, r: &VariantReport) {
    let worst = |report: &Report| report.worst.as_ref().map_or(0.0, |w| w.error);
    println!(
        "{name:48} {:3} parameters {:6} first {:.1e} {:6} second {:.1e}",
        r.parameters,
        r.first.compared,
        worst(&r.first),
        r.second.compared,
        worst(&r.second)
    );
}

/// A record changes no bit, every operation has a formula, lists what it keeps for its rule, and begins no NaN.
fn check_record(name: &str, inputs: &[Tensor<f64>], run: &dyn Fn(&[Var<f64>]) -> Var<f64>) {
    let step = || {
        let x: Vec<_> = inputs.iter().map(|x| Var::leaf(x.contiguous())).collect();
        let grads = run(&x).square().sum(..).backward();
        let of = |x: &Var<f64>| grads.get(x).map(|g| g.to_vec());
        x.iter().map(of).collect::<Vec<_>>()
    };
    let plain = step();
    let (recorded, recording) = record(step);
    assert_eq!(plain, recorded, "{name}: a record changes the gradients");
    for op in recording.operations.iter().filter(|op| op.id.is_some()) {
        assert!(op.call.formula().is_some(), "{name}: `{}` has no formula", op.name());
    }
    for event in &recording.events {
        if let What::RuleEnded { operation, unlisted, .. } = event.what {
            let op = recording.operations[operation].name();
            assert_eq!(unlisted, 0, "{name}: `{op}` keeps bytes without a name (observe::saved)");
        }
    }
    let (_, found) = find_nonfinite(step);
    assert!(found.is_none(), "{name}: {}", found.unwrap());
}

/// Projections of width 4 in 2 heads.
fn small(rng: &mut Rng) -> Projections<f64> {
    Projections::new(HeadSizes::new(4, 2), rng)
}

/// The same with one key head for both heads.
fn grouped(rng: &mut Rng) -> Projections<f64> {
    Projections::new(HeadSizes::new(4, 2).key_heads(1), rng)
}
