//! Functions of one number: one rule for all of them.

use crate::algebra;
use crate::node::{Backward, Cx, Grads};
use crate::var::Var;
use retrograd_tensor::ops::pointwise::{Pointwise, Saves};
use retrograd_tensor::{Real, Tensor};

#[derive(Debug)]
struct Rule<T: Real, P> {
    op: P,
    saved: Option<Tensor<T>>,
}

impl<T: Real, P: Pointwise<T>> Backward<T> for Rule<T, P> {
    fn name(&self) -> &'static str {
        P::NAME
    }

    fn backward(&self, cx: &Cx<'_, T>, g: &Var<T>) -> Grads<T> {
        let saved = self.saved.as_ref().unwrap_or(g.value());
        let dx = if cx.recording() {
            let saved = match P::SAVES {
                Saves::Input => cx.input(0, saved),
                Saves::Output => cx.output(saved),
                Saves::Nothing => g.clone(),
            };
            algebra::vjp(self.op, &saved, g)
        } else {
            Var::constant(saved.map_vjp(self.op, g.value()))
        };
        vec![Some(dx)]
    }
}

impl<T: Real> Var<T> {
    /// `f` of every element, for any order of derivatives.
    ///
    /// ```
    /// use retrograd_autograd::{Var, grad};
    /// use retrograd_tensor::ops::pointwise::{Pointwise, Saves};
    /// use retrograd_tensor::{Real, Tensor, cost::Cost, simd::Algebra};
    ///
    /// /// f(x) = x³
    /// #[derive(Clone, Copy, Debug)]
    /// struct Cube;
    ///
    /// impl<T: Real> Pointwise<T> for Cube {
    ///     const NAME: &'static str = "cube";
    ///     const SAVES: Saves = Saves::Input;
    ///     const COST: Cost = Cost::CHEAP;
    ///     fn f<A: Algebra<T>>(self, a: A, x: A::V) -> A::V {
    ///         a.mul(x, a.mul(x, x))
    ///     }
    ///     fn vjp<A: Algebra<T>>(self, a: A, x: A::V, g: A::V) -> A::V {
    ///         a.mul(g, a.mul(a.splat(T::from_f64(3.0)), a.mul(x, x)))
    ///     }
    /// }
    ///
    /// let x = Var::leaf(Tensor::scalar(2.0f64));
    /// let y = x.map(Cube);
    /// let dy = grad(&[(&y, None)], &[&x])[0].clone().unwrap();
    /// let ddy = grad(&[(&dy, None)], &[&x])[0].clone().unwrap();
    /// assert_eq!((y.item(), dy.item(), ddy.item()), (8.0, 12.0, 12.0));
    /// ```
    #[inline(never)]
    #[track_caller]
    pub fn map<P: Pointwise<T>>(&self, op: P) -> Var<T> {
        let value = self.value().map(op);
        let output = value.clone();
        Var::from_op(value, &[self], |_| Rule {
            op,
            saved: match P::SAVES {
                Saves::Input => Some(self.value().clone()),
                Saves::Output => Some(output),
                Saves::Nothing => None,
            },
        })
    }
}
