//! Dropout, which keeps its key and not its mask.

use crate::graph::{InputGrads, Var};
use crate::op::Op;
use retrograd_tensor::Real;
#[cfg(doc)]
use retrograd_tensor::Tensor;
use retrograd_tensor::random::Key;

static DROPOUT: Op = Op::new("dropout", &["x"])
    .formula("y = x · m / (1 − p), m = 0 with probability p, else 1", "dx = g · m / (1 − p)");

/// # Dropout
impl<T: Real> Var<T> {
    /// As [`Tensor::dropout`]; the gradient is the same dropout of `g`. The key is all that is saved for
    /// it.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// use retrograd::tensor::random::Key;
    /// let x = Var::leaf(Tensor::<f32>::ones([1000]));
    /// let y = x.dropout(0.5, Key::new(1, 0));
    /// assert!(y.value().to_vec().iter().all(|&y| y == 0.0 || y == 2.0));
    /// let dx = y.sum(..).backward().get(&x).unwrap().to_vec();
    /// assert_eq!(dx, y.value().to_vec()); // the same elements are dropped
    /// ```
    #[track_caller]
    pub fn dropout(&self, p: f64, key: Key) -> Var<T> {
        let value = self.value().dropout(p, key);
        Var::from_op(DROPOUT.with("p", p), value, [self], |[x]| {
            let x = x.slot();
            move |_, g| InputGrads::of(&x, || g.dropout(p, key))
        })
    }
}
