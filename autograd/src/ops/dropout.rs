//! Dropout, which keeps its key and not its mask.

use crate::node::{Backward, Cx, Grads};
use crate::var::Var;
use retrograd_tensor::Real;
use retrograd_tensor::random::Key;

#[derive(Debug)]
struct Dropout {
    p: f64,
    key: Key,
}

impl<T: Real> Backward<T> for Dropout {
    fn name(&self) -> &'static str {
        "dropout"
    }
    fn backward(&self, _: &Cx<'_, T>, g: &Var<T>) -> Grads<T> {
        vec![Some(g.dropout(self.p, self.key))]
    }
}

impl<T: Real> Var<T> {
    /// Each element dropped (made 0) with probability `p`, the others divided by `1 - p`; see
    /// [`Tensor::dropout`](retrograd_tensor::Tensor::dropout). The key alone decides which: the
    /// same key, the same elements, and nothing but the key is kept for the backward pass.
    #[track_caller]
    pub fn dropout(&self, p: f64, key: Key) -> Var<T> {
        Var::from_op(self.value().dropout(p, key), &[self], |_| Dropout { p, key })
    }
}
