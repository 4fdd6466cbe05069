//! The shape rule of layers that add to a residual stream.

use retrograd_autograd::Var;
use retrograd_tensor::Real;

/// Panics unless `residual` has the shape of `x`, to the half of a block `who`.
#[track_caller]
pub(crate) fn check_residual<T: Real>(who: &str, x: &Var<T>, residual: &Var<T>) {
    let (x, r) = (x.shape(), residual.shape());
    assert!(x == r, "{who}: an input {x:?} goes with a residual {x:?}, got {r:?}");
}
