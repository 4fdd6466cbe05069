//! Collecting the attention weights of calls.

use retrograd_autograd::Var;
use retrograd_tensor::{Real, Tensor};
use std::sync::{Arc, Mutex, PoisonError};

/// Collects the attention weights of all calls whose [`Spec`](super::Spec) refers to it. Clones refer
/// to the same list.
///
/// ```
/// use retrograd::nn::attention::{Capture, Spec, attend};
/// use retrograd::prelude::*;
///
/// let x = Var::constant(Tensor::<f32>::ones([3, 2]));
/// let capture = Capture::new();
/// attend(&x, &x, &x, &Spec::new().causal().capture(&capture));
/// let weights = capture.take();
/// assert_eq!(weights[0].to_vec(), [1.0, 0.0, 0.0, 0.5, 0.5, 0.0, 1.0 / 3.0, 1.0 / 3.0, 1.0 / 3.0]);
/// ```
#[derive(Clone, Debug)]
pub struct Capture<T: Real = f32>(Arc<Mutex<Vec<Tensor<T>>>>);

impl<T: Real> Default for Capture<T> {
    fn default() -> Self {
        Capture(Arc::default())
    }
}

impl<T: Real> Capture<T> {
    /// An empty list.
    pub fn new() -> Self {
        Capture::default()
    }

    /// Removes and returns the weights so far, in the order of the calls: each with the leading axes of
    /// the queries, then queries and keys.
    pub fn take(&self) -> Vec<Tensor<T>> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn push(&self, weights: &Var<T>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(weights.value().clone());
    }
}
