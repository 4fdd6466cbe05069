//! Comparison of fused operations with their definitions.

use super::checker::noise;
use super::report::{CheckError, Tally, unravel};
use crate::engine::through_definition;
use crate::graph::{Cx, Edge, InputGrad, InputGrads, Node, Outputs, Var};
use crate::var::no_grad;
use retrograd_tensor::Tensor;
use retrograd_tensor::settings::with_grad_enabled;

/// Compares the [`Fused`](crate::Fused) operation that computed `y` with its definition: the value
/// `y`, and the gradients of the inputs, by the kernel and by the [recorded rule](crate::Fused::recorded_vjp),
/// if there is one. Two numbers agree if they differ by at most `tolerance · max(1, m)`, where `m` is the
/// largest finite magnitude in the tensor that the definition computed; two NaNs agree. Returns `Ok(false)`,
/// without a comparison, if `y` was not computed by a fused operation.
///
/// ```
/// use retrograd::autograd::check;
/// use retrograd::prelude::*;
/// let x = Var::leaf(Tensor::from([1.0, -2.0, 0.5]));
/// assert_eq!(check::definition(&x.softmax(0), 1e-12), Ok(true));
/// assert_eq!(check::definition(&x.exp(), 1e-12), Ok(false));
/// ```
///
/// # Errors
/// [`CheckError::Definition`] if numbers differ, [`CheckError::Shape`] if shapes do.
///
/// # Panics
/// If a backward pass has freed the saved tensors of the graph.
#[track_caller]
pub fn definition(y: &Var<f64>, tolerance: f64) -> Result<bool, CheckError> {
    let Edge::Node(node, output) = &y.edge else { return Ok(false) };
    let rule = node.take_rule(true);
    assert!(rule.is_some(), "definition: the saved tensors were freed by a backward pass");
    let rule = rule.expect("just checked");
    let Some(definition) = rule.definition() else { return Ok(false) };

    let defined = no_grad(|| {
        definition.outputs(&Cx { in_definition: true, ..Cx::new(node, Some(node.inputs())) })
    });
    compare(None, y.value(), defined[*output].value(), tolerance)?;

    let cotangent = |(i, shape): (usize, &retrograd_tensor::Shape)| {
        Some(Var::constant(Tensor::from_vec(noise(1, i as u64, shape.numel()), shape)))
    };
    let g: Outputs<Option<Var<f64>>> = node.outputs().iter().enumerate().map(cotangent).collect();
    let cx = Cx::new(node, None);
    let by_kernel = no_grad(|| rule.backward(&cx, &g));
    let recorded = Cx::new(node, Some(node.inputs()));
    let recorded = with_grad_enabled(true, || definition.vjp(&recorded, &g));
    let by_definition = with_grad_enabled(true, || through_definition(node, definition, g));
    let by_definition = by_definition.unwrap_or_else(|why| panic!("{why}"));
    let by_definition = dense(node, by_definition);
    for computed in [Some(by_kernel), recorded].into_iter().flatten() {
        for (at, (computed, defined)) in
            dense(node, computed).iter().zip(&by_definition).enumerate()
        {
            compare(Some(at), computed, defined, tolerance)?;
        }
    }
    Ok(true)
}

/// The gradients of all inputs, with zeros for inputs without one.
fn dense(node: &Node<f64>, grads: InputGrads<f64>) -> Vec<Tensor<f64>> {
    let mut all: Vec<_> = node.inputs().iter().map(|x| Tensor::zeros(x.shape())).collect();
    for InputGrad { at, value, .. } in grads.0 {
        all[at].add_assign(&value.value().sum_to(*node.inputs()[at].shape()));
    }
    all
}

/// Compares the values of an output, or the gradients of input `input`.
fn compare(
    input: Option<usize>,
    kernel: &Tensor<f64>,
    definition: &Tensor<f64>,
    tolerance: f64,
) -> Result<(), CheckError> {
    if kernel.shape() != definition.shape() {
        let what = match input {
            Some(input) => format!("the gradient of input {input}, computed by the definition,"),
            None => "the definition".to_string(),
        };
        let (expected, got) = (kernel.shape().to_vec(), definition.shape().to_vec());
        return Err(CheckError::Shape { what, expected, got });
    }
    let (a, b) = (kernel.to_vec(), definition.to_vec());
    let finite = b.iter().filter(|x| x.is_finite());
    let allowed = tolerance * finite.fold(1.0f64, |m, x| m.max(x.abs()));
    let mut tally = Tally::default();
    for (i, (&a, &b)) in a.iter().zip(&b).enumerate() {
        let at = || unravel(i, kernel.shape());
        if a != b && !(a.is_nan() && b.is_nan()) {
            let output = || input.is_none().then(at);
            tally.add(a, b, allowed, || input.map(|input| (input, at())), output);
        }
    }
    match tally.worst {
        Some(worst) if tally.wrong > 0 => Err(CheckError::Definition { worst }),
        _ => Ok(()),
    }
}
