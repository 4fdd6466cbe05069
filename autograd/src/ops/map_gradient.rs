//! The identity whose gradient is changed.

use crate::graph::{InputGrads, Var};
use crate::op::{Kind, Op};
use retrograd_tensor::Real;

static MAP_GRADIENT: Op =
    Op::new("map_gradient", &["x"]).kind(Kind::View).formula("y = x", "dx = f(g)");

/// # Gradients
impl<T: Real> Var<T> {
    /// The same value; in a backward pass, the gradient `g` of the result becomes the gradient `f(g)` of this variable:
    /// scaled, clipped, reversed or printed. `g` is the sum over all uses of the result, and `f(g)` has its shape. In a
    /// recorded pass ([`grad`](crate::grad)), `f` is differentiated as well; forward mode ([`jvp`](crate::jvp)) applies
    /// the transpose of its derivative at 0. [`observe`](crate::observe) sees gradients
    /// without changing them.
    ///
    /// ```
    /// use retrograd::prelude::*;
    ///
    /// // Gradient reversal: the head learns to predict, the features learn to prevent it.
    /// let features = Var::leaf(Tensor::from([1.0f32, -2.0]));
    /// let head = Var::leaf(Tensor::from([3.0, 4.0]));
    /// let grads = features.map_gradient(|g| -g).dot(&head).backward();
    /// assert_eq!(grads.get(&head).unwrap().to_vec(), [1.0, -2.0]);
    /// assert_eq!(grads.get(&features).unwrap().to_vec(), [-3.0, -4.0]);
    /// ```
    ///
    /// Ganin and Lempitsky 2015 (arXiv 1409.7495).
    #[track_caller]
    pub fn map_gradient(&self, f: impl Fn(&Var<T>) -> Var<T> + Send + Sync + 'static) -> Var<T> {
        Var::from_op(&MAP_GRADIENT, self.value().clone(), [self], |[x]| {
            let x = x.slot();
            move |_, g| InputGrads::of(&x, || f(g))
        })
    }
}
