//! Functions of one number: one rule for all of them.

use crate::node::{Backward, Cx, Grads};
use crate::var::Var;
use retrograd_tensor::ops::pointwise::{Pointwise, Saves};
use retrograd_tensor::{Real, Tensor};

/// A [`Pointwise`] function whose derivative can be differentiated again.
///
/// [`Pointwise::vjp`] is the fast kernel; [`Differentiable::vjp_var`] says the same with
/// operations on variables, for passes that are recorded.
///
/// ```
/// use retrograd_autograd::{Var, grad, ops::pointwise::Differentiable};
/// use retrograd_tensor::ops::pointwise::{Pointwise, Saves};
/// use retrograd_tensor::{Real, Tensor, par::Cost, simd::Lanes};
///
/// /// f(x) = x³
/// #[derive(Clone, Copy, Debug)]
/// struct Cube;
///
/// impl<T: Real> Pointwise<T> for Cube {
///     const NAME: &'static str = "cube";
///     const SAVES: Saves = Saves::Input;
///     const COST: Cost = Cost::CHEAP;
///     fn f<S: Lanes<T>>(self, s: S, x: S::V) -> S::V {
///         s.mul(x, s.mul(x, x))
///     }
///     fn vjp<S: Lanes<T>>(self, s: S, x: S::V, g: S::V) -> S::V {
///         s.mul(g, s.mul(s.splat(T::from_f64(3.0)), s.mul(x, x)))
///     }
/// }
///
/// impl<T: Real> Differentiable<T> for Cube {
///     fn vjp_var(self, x: &Var<T>, g: &Var<T>) -> Var<T> {
///         g * &x.square() * T::from_f64(3.0)
///     }
/// }
///
/// let x = Var::leaf(Tensor::scalar(2.0f64));
/// let y = x.map(Cube);
/// let dy = grad(&[(&y, None)], &[&x])[0].clone().unwrap();
/// let ddy = grad(&[(&dy, None)], &[&x])[0].clone().unwrap();
/// assert_eq!((y.item(), dy.item(), ddy.item()), (8.0, 12.0, 12.0));
/// ```
pub trait Differentiable<T: Real>: Pointwise<T> {
    /// `g · f'`, given what [`Pointwise::SAVES`] says (`g` itself, if nothing).
    fn vjp_var(self, saved: &Var<T>, g: &Var<T>) -> Var<T>;
}

#[derive(Debug)]
struct Rule<T: Real, P> {
    op: P,
    saved: Option<Tensor<T>>,
}

impl<T: Real, P: Differentiable<T>> Backward<T> for Rule<T, P> {
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
            self.op.vjp_var(&saved, g)
        } else {
            Var::constant(saved.map_vjp(self.op, g.value()))
        };
        vec![Some(dx)]
    }
}

impl<T: Real> Var<T> {
    /// `f` of every element.
    #[inline(never)]
    #[track_caller]
    pub fn map<P: Differentiable<T>>(&self, op: P) -> Var<T> {
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
