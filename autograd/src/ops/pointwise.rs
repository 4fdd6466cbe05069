//! Functions of one number: one rule for all of them.

use crate::algebra::vjp_on_variables;
use crate::graph::{InputGrads, Var};
use crate::observe::saved;
use crate::op::{Call, Formula, Kind, Op};
use retrograd_tensor::ops::pointwise::{Pointwise, Saves, formulas};
use retrograd_tensor::{Real, Tensor};
use std::fmt::{self, Debug};
use std::marker::PhantomData;
use std::sync::Arc;

/// The [`Op`] of a pointwise function.
struct OpOf<T, P>(PhantomData<(T, P)>);

impl<T: Real, P: Pointwise<T>> OpOf<T, P> {
    const OP: &'static Op = &Op::new(P::NAME, &["x"]).kind(Kind::Pointwise).printed(Self::formula);

    fn formula() -> Formula {
        let [forward, backward] = formulas::<T, P>();
        Formula { forward: forward.into(), backward: backward.into() }
    }
}

/// # Pointwise operations of your own
impl<T: Real> Var<T> {
    /// `f` of every element, differentiable to any order. [`Pointwise`] shows how to write one.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// use retrograd::tensor::ops::activation::Softsign;
    ///
    /// let x = Var::leaf(Tensor::scalar(1.0f64));
    /// let y = x.map(Softsign); // x / (1 + |x|)
    /// let dy = grad(&[(&y, None)], &[&x])[0].clone().unwrap();
    /// let ddy = grad(&[(&dy, None)], &[&x])[0].clone().unwrap();
    /// assert_eq!((y.item(), dy.item(), ddy.item()), (0.5, 0.25, -0.25));
    /// ```
    #[inline(never)]
    #[track_caller]
    pub fn map<P: Pointwise<T>>(&self, op: P) -> Var<T> {
        let value = self.value().map(op);
        let output = value.clone();
        let mut call = Call::from(OpOf::<T, P>::OP);
        op.constants(&mut |name, x| call.attributes.push((name, x.into())));
        Var::from_op(call, value, [self], |[x]| {
            let x = x.save_if(P::SAVES == Saves::Input);
            let y = (P::SAVES == Saves::Output).then(|| saved("y", output));
            move |cx, g| {
                InputGrads::of(&x, || match P::SAVES {
                    Saves::Input => gradient(op, &cx.input(&x), g),
                    Saves::Output => gradient(op, &cx.output(y.as_ref().expect("saved")), g),
                    // The formula does not read the saved value.
                    Saves::Nothing => gradient(op, g, g),
                })
            }
        })
    }

    /// [`Var::map`] by an operation that is known only when the program runs.
    #[track_caller]
    pub fn apply(&self, op: &PointwiseFn<T>) -> Var<T> {
        op.0.apply(self)
    }
}

/// The methods of [`Var`] that apply pointwise operations, which have these numbers as fields.
macro_rules! pointwise_methods {
    ($($(#[$doc:meta])* pub fn $method:ident $(($($field:ident),+))? = $Op:ident;)+) => {$(
        $(#[$doc])*
        #[track_caller]
        pub fn $method(&self $($(, $field: T)+)?) -> Var<T> {
            self.map($Op $({ $($field),+ })?)
        }
    )+};
}
pub(super) use pointwise_methods;

/// `g · f'`: by the kernel if both are constants, else by the same formula on variables.
fn gradient<T: Real, P: Pointwise<T>>(op: P, saved: &Var<T>, g: &Var<T>) -> Var<T> {
    if saved.is_tracked() || g.is_tracked() {
        return vjp_on_variables(op, saved, g);
    }
    Var::constant(saved.value().map_vjp(op, g.value()))
}

/// A [`Pointwise`] operation as a value, whose type does not name the operation.
///
/// ```
/// use retrograd::autograd::PointwiseFn;
/// use retrograd::tensor::ops::activation::{Gelu, Relu};
///
/// let activation = |name: &str| -> PointwiseFn<f32> {
///     if name == "relu" { Relu.into() } else { Gelu.into() }
/// };
/// assert_eq!(activation("relu").name(), "relu");
/// ```
#[derive(Clone)]
pub struct PointwiseFn<T: Real>(Arc<dyn DynPointwise<T>>);

impl<T: Real> PointwiseFn<T> {
    /// The name of the operation.
    pub fn name(&self) -> &'static str {
        self.0.name()
    }

    /// `f` of every element.
    #[track_caller]
    pub(crate) fn map(&self, x: &Tensor<T>) -> Tensor<T> {
        self.0.map(x)
    }

    /// `f(x · Wᵀ + b)` and `f'(x · Wᵀ + b)`, see [`Tensor::linear_activation`].
    #[track_caller]
    pub(crate) fn linear_activation(
        &self,
        x: &Tensor<T>,
        weight: &Tensor<T>,
        bias: Option<&Tensor<T>>,
    ) -> (Tensor<T>, Tensor<T>) {
        self.0.linear_activation(x, weight, bias)
    }
}

impl<T: Real, P: Pointwise<T>> From<P> for PointwiseFn<T> {
    #[track_caller]
    fn from(op: P) -> Self {
        PointwiseFn(Arc::new(op))
    }
}

impl<T: Real> Debug for PointwiseFn<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The methods of an operation that do not depend on its type.
trait DynPointwise<T: Real>: Debug + Send + Sync {
    fn name(&self) -> &'static str;
    #[track_caller]
    fn apply(&self, x: &Var<T>) -> Var<T>;
    #[track_caller]
    fn map(&self, x: &Tensor<T>) -> Tensor<T>;
    #[track_caller]
    fn linear_activation(
        &self,
        x: &Tensor<T>,
        weight: &Tensor<T>,
        bias: Option<&Tensor<T>>,
    ) -> (Tensor<T>, Tensor<T>);
}

impl<T: Real, P: Pointwise<T>> DynPointwise<T> for P {
    fn name(&self) -> &'static str {
        P::NAME
    }
    #[track_caller]
    fn apply(&self, x: &Var<T>) -> Var<T> {
        x.map(*self)
    }
    fn map(&self, x: &Tensor<T>) -> Tensor<T> {
        x.map(*self)
    }
    fn linear_activation(
        &self,
        x: &Tensor<T>,
        weight: &Tensor<T>,
        bias: Option<&Tensor<T>>,
    ) -> (Tensor<T>, Tensor<T>) {
        x.linear_activation(weight, bias, *self)
    }
}
