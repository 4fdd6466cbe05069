//! Dropout.

use crate::module::{Call, Layer, Module, Visitor};
use crate::pass::Pass;
use retrograd_autograd::Var;
use retrograd_tensor::Real;
use retrograd_tensor::error::{ErrorKind, assert};
use retrograd_tensor::random::Key;

/// In training, drops each element with probability `p` and divides the others by `1 - p`;
/// in evaluation, the identity.
///
/// Which elements are dropped is a function of the [`Pass`] and the index of the element, and the
/// backward pass recomputes it: no mask is stored. With `p = 1` the output is 0.
///
/// Srivastava et al. 2014.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dropout {
    p: f64,
}

impl Dropout {
    /// Dropout with probability `p`.
    ///
    /// # Panics
    /// If `p` is not in `[0, 1]`.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let x = Var::constant(Tensor::<f32>::ones([100]));
    /// let dropout = Dropout::new(0.5);
    /// assert_eq!(dropout.forward(&x, &mut Pass::eval()).value(), x.value());
    /// let y = dropout.forward(&x, &mut Pass::train(1));
    /// assert!(y.value().to_vec().iter().all(|&y| y == 0.0 || y == 2.0));
    /// ```
    #[track_caller]
    pub fn new(p: f64) -> Dropout {
        assert((0.0..=1.0).contains(&p), "dropout", ErrorKind::Value, || {
            format!("p must be in [0, 1], got {p}")
        });
        Dropout { p }
    }

    /// The probability.
    pub fn p(&self) -> f64 {
        self.p
    }

    /// The random key of this layer in a pass; `None` if nothing is dropped. A key is drawn even
    /// for `p = 0`, so that the keys of later layers do not depend on `p`.
    pub(crate) fn key(&self, pass: &mut Pass) -> Option<Key> {
        pass.key().filter(|_| self.p > 0.0)
    }
}

impl<T: Real> Module<T> for Dropout {
    fn visit(&self, _: &mut Visitor<'_, T>) {}
}

impl<T: Real> Layer<T> for Dropout {
    fn forward(&self, x: &Var<T>, pass: &mut Pass) -> Var<T> {
        Call::start(self).end(match self.key(pass) {
            Some(key) => x.dropout(self.p, key),
            None => x.clone(),
        })
    }
}
