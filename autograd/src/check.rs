//! Checking gradients against differences: [`gradcheck`] for first, [`gradgradcheck`] for
//! second derivatives.
//!
//! Both work in `f64`, with the same code that `f32` runs. For few elements the whole
//! Jacobian is compared, entry by entry; for many, projections of it on random directions.
//! A tolerance never grows with the number of elements.
//!
//! Differences are taken on a contiguous copy of the logical elements, which is then written to memory
//! with the strides and offset of the original (gaps are filled with NaN), so the function is evaluated
//! in the layout under test. In a layout with overlapping elements, such as an expanded one,
//! single elements cannot be changed; differences are then taken of a contiguous tensor.

mod checker;
mod definition;
mod options;
mod report;

pub use definition::definition;
pub use options::{Check, Stencil};
pub use report::{CheckError, Compared, Report};

use crate::backprop::grad;
use crate::graph::Var;
use checker::{Checker, fresh, guarded, noise};
use report::{Tally, unravel};
use retrograd_tensor::Tensor;

/// Compares the gradients of `f` by a backward pass with differences.
///
/// `f` may give an output of any shape. The tracked inputs are checked; the others are handed
/// on as they are. Also checked: gradients have the shapes of their inputs, everything is
/// finite, every input that matters gets a gradient, and a second run gives the same bits
/// (other points are visited in between, so nothing may be left over from them).
///
/// ```
/// use retrograd::autograd::check::{Check, gradcheck};
/// use retrograd::prelude::*;
///
/// let a = Var::leaf(Tensor::from([[1.0f64, 2.0], [3.0, 4.0]]));
/// let b = Var::leaf(Tensor::from([0.5f64, -0.5]));
/// let report = gradcheck(|x| x[0].matmul(&x[1]), &[a, b], &Check::default()).unwrap();
/// assert_eq!(report.compared, 2 * (4 + 2)); // outputs times inputs
///
/// // A gradient that stops half-way does not go unnoticed.
/// let x = Var::leaf(Tensor::scalar(3.0f64));
/// let wrong = gradcheck(|x| x[0].mul(&x[0].detach()), &[x], &Check::default()).unwrap_err();
/// assert!(wrong.to_string().contains("analytic 3.0, numeric 5.99999"), "{wrong}");
/// ```
///
/// # Errors
/// A [`CheckError`], which names the worst element with both values.
pub fn gradcheck(
    f: impl Fn(&[Var<f64>]) -> Var<f64>,
    inputs: &[Var<f64>],
    check: &Check,
) -> Result<Report, CheckError> {
    first_order::<Function<'_>>(&f, inputs, check)
}

/// A function without its type, so that the checks are compiled once and not for every function. They
/// stay generic: only a crate that checks something compiles them.
type Function<'a> = dyn Fn(&[Var<f64>]) -> Var<f64> + 'a;

fn first_order<F: Fn(&[Var<f64>]) -> Var<f64> + ?Sized>(
    f: &F,
    inputs: &[Var<f64>],
    check: &Check,
) -> Result<Report, CheckError> {
    Checker::new(f, inputs, check)?.run()
}

/// Checks second derivatives: the derivatives of `(x, v) ↦ Jᵀv`, the gradient of `f` for a cotangent
/// `v`, with respect to the inputs *and* `v`. Also, that gradient must be the same whether
/// the backward pass is recorded or not, to 1e-12 of its largest element (and 1e-14).
///
/// ```
/// use retrograd::autograd::check::{Check, gradgradcheck};
/// use retrograd::prelude::*;
/// let x = Var::leaf(Tensor::from([0.3f64, -1.2, 0.8]));
/// gradgradcheck(|x| x[0].softmax(0), &[x], &Check::default()).unwrap();
/// ```
///
/// # Errors
/// A [`CheckError`]; inputs are numbered as for `f`, and `v` comes after them.
pub fn gradgradcheck(
    f: impl Fn(&[Var<f64>]) -> Var<f64>,
    inputs: &[Var<f64>],
    check: &Check,
) -> Result<Report, CheckError> {
    second_order::<Function<'_>>(&f, inputs, check)
}

fn second_order<F: Fn(&[Var<f64>]) -> Var<f64> + ?Sized>(
    f: &F,
    inputs: &[Var<f64>],
    check: &Check,
) -> Result<Report, CheckError> {
    let tracked: Vec<bool> = inputs.iter().map(|x| x.is_tracked()).collect();
    if !tracked.contains(&true) {
        return Err(CheckError::NothingTracked);
    }
    let y = f(&fresh(inputs));
    let v = noise(check.seed, 0, y.value().numel());
    let v = Var::leaf(Tensor::from_vec(v, y.shape()));
    let gradients = |x: &[Var<f64>]| {
        let (x, v) = (&x[..inputs.len()], &x[inputs.len()]);
        let x: Vec<Var<f64>> = x.iter().zip(&tracked).map(|(x, &t)| tracked_as(x, t)).collect();
        let y = f(&x);
        let wanted: Vec<&Var<f64>> = x.iter().filter(|x| x.is_tracked()).collect();
        if !y.is_tracked() {
            return wanted.iter().map(|x| Var::constant(Tensor::zeros(x.shape()))).collect();
        }
        let found = grad(&[(&y, Some(v))], &wanted).into_iter();
        let or_zero =
            |(g, x): (Option<_>, &&Var<f64>)| g.unwrap_or(Var::constant(Tensor::zeros(x.shape())));
        found.zip(&wanted).map(or_zero).collect::<Vec<_>>()
    };

    // The recorded gradient against the fast one.
    let leaves = fresh(inputs);
    let y = f(&leaves);
    if y.is_tracked() {
        let fast = guarded(|| y.backward_with(v.value()))?;
        let with_v: Vec<Var<f64>> = leaves.iter().chain([&v]).cloned().collect();
        let recorded = guarded(|| gradients(&with_v))?;
        let wanted = leaves.iter().enumerate().filter(|(_, x)| x.is_tracked());
        for ((input, x), recorded) in wanted.zip(recorded) {
            let recorded = recorded.value().to_vec();
            let fast = fast.get(x).map_or(vec![0.0; recorded.len()], |g| g.to_vec());
            let scale = fast.iter().chain(&recorded).fold(0.0f64, |m, g| m.max(g.abs()));
            let mut tally = Tally::default();
            for (i, (&analytic, &numeric)) in recorded.iter().zip(&fast).enumerate() {
                let at = || Some((input, unravel(i, x.shape())));
                tally.add(analytic, numeric, 1e-12 * scale + 1e-14, at, || None);
            }
            if tally.wrong > 0 {
                return Err(CheckError::Recorded { worst: tally.worst.expect("something wrong") });
            }
        }
    }

    let flat = |x: &[Var<f64>]| {
        let parts: Vec<Var<f64>> = gradients(x).iter().map(|g| g.flatten()).collect();
        Var::cat(&parts.iter().collect::<Vec<_>>(), 0)
    };
    let inputs: Vec<Var<f64>> = inputs.iter().chain([&v]).cloned().collect();
    gradcheck(flat, &inputs, check)
}

/// `x` itself, or made a leaf if it should be tracked and is not.
fn tracked_as(x: &Var<f64>, tracked: bool) -> Var<f64> {
    if tracked && !x.is_tracked() { Var::leaf(x.value().clone()) } else { x.clone() }
}
