//! The shape rule of layers that add to a residual stream.

use retrograd_autograd::Var;
use retrograd_tensor::Real;
use retrograd_tensor::error::{ErrorKind, assert};

/// Checks that `residual` has the shape of `x`, the input of the layer `module`.
///
/// # Panics
/// If it has another shape.
#[track_caller]
pub(crate) fn check_residual<T: Real>(module: &'static str, x: &Var<T>, residual: &Var<T>) {
    let (x, r) = (x.shape(), residual.shape());
    assert(x == r, module, ErrorKind::Mismatch, || {
        format!("an input {x:?} goes with a residual {x:?}, got {r:?}")
    });
}
