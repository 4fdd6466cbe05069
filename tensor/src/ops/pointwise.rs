//! Pointwise operations: differentiable functions of one number.

use crate::cost::Cost;
use crate::kernels::Real;
use crate::kernels::elementwise::{Elementwise, elementwise};
use crate::simd::{Algebra, Lanes};
use crate::tensor::Tensor;
use std::fmt::Debug;
use std::hint::black_box;

/// The value that the derivative is computed from, which is saved for the backward pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Saves {
    /// `x`.
    Input,
    /// `f(x)`.
    Output,
    /// None: the derivative is constant.
    Nothing,
}

/// A function of one number with its derivative, written once for every instruction set.
///
/// ```
/// use retrograd_tensor::ops::pointwise::{Pointwise, Saves};
/// use retrograd_tensor::simd::Algebra;
/// use retrograd_tensor::{Real, Tensor, cost::Cost};
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
/// let x = Tensor::from([1.0f32, 2.0]);
/// assert_eq!(x.map(Cube).to_vec(), [1.0, 8.0]);
/// assert_eq!(x.map_vjp(Cube, &Tensor::ones([2])).to_vec(), [3.0, 12.0]);
/// ```
pub trait Pointwise<T: Real>: Copy + Debug + Send + Sync + 'static {
    /// The name of the operation in graphs and errors.
    const NAME: &'static str;
    /// The saved value that [`Pointwise::vjp`] is given.
    const SAVES: Saves;
    /// Estimated time per element.
    const COST: Cost;
    /// `f(x)`. Mark it `#[inline(always)]`.
    fn f<A: Algebra<T>>(self, a: A, x: A::V) -> A::V;
    /// `g · f'`, from the value that [`Pointwise::SAVES`] names (unspecified for
    /// [`Saves::Nothing`]).
    fn vjp<A: Algebra<T>>(self, a: A, saved: A::V, g: A::V) -> A::V;
    /// `f(x)` and `f'(x)`, which share common subexpressions.
    #[inline(always)]
    fn value_and_derivative<A: Algebra<T>>(self, a: A, x: A::V) -> (A::V, A::V) {
        let y = self.f(a, x);
        let saved = if Self::SAVES == Saves::Output { y } else { x };
        (y, self.vjp(a, saved, a.splat(T::ONE)))
    }
}

#[derive(Clone, Copy)]
struct Forward<P>(P);

impl<T: Real, P: Pointwise<T>> Elementwise<T, 1> for Forward<P> {
    const COST: Cost = P::COST;
    #[inline(always)]
    fn f<S: Lanes<T>>(self, s: S, [x]: [S::V; 1]) -> S::V {
        self.0.f(s, x)
    }
}

#[derive(Clone, Copy)]
struct Vjp<P>(P);

impl<T: Real, P: Pointwise<T>> Elementwise<T, 2> for Vjp<P> {
    const COST: Cost = P::COST;
    #[inline(always)]
    fn f<S: Lanes<T>>(self, s: S, [saved, g]: [S::V; 2]) -> S::V {
        self.0.vjp(s, saved, g)
    }
}

impl<T: Real> Tensor<T> {
    /// `f` of every element.
    #[track_caller]
    pub fn map<P: Pointwise<T>>(&self, op: P) -> Tensor<T> {
        elementwise(P::NAME, Forward(op), [self])
    }

    /// `g · f'` elementwise, where `self` is the value that the operation saves.
    #[track_caller]
    pub fn map_vjp<P: Pointwise<T>>(&self, op: P, g: &Tensor<T>) -> Tensor<T> {
        elementwise(P::NAME, Vjp(op), [self, g])
    }
}

/// Compiles an operation, see [`compiled`](crate::compiled).
pub(crate) fn compile<T: Real, P: Pointwise<T>>() {
    black_box(Tensor::<T>::map::<P> as fn(_, _) -> _);
    black_box(Tensor::<T>::map_vjp::<P> as fn(_, _, _) -> _);
}
