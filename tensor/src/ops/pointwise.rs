//! Pointwise operations: differentiable functions of one number.

use crate::cost::Cost;
use crate::kernels::Real;
use crate::kernels::elementwise::{Elementwise, elementwise};
use crate::simd::{Algebra, Lanes};
use crate::tensor::Tensor;
use std::fmt::Debug;

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
    /// Passes the numbers besides `x` in the formula to `_f`, by name; a record of a step lists them.
    fn constants(self, _f: &mut impl FnMut(&'static str, f64)) {}
    /// `f(x)` and `f'(x)`, which share common subexpressions.
    #[inline(always)]
    fn value_and_derivative<A: Algebra<T>>(self, a: A, x: A::V) -> (A::V, A::V) {
        let y = self.f(a, x);
        let saved = if Self::SAVES == Saves::Output { y } else { x };
        (y, self.vjp(a, saved, a.splat(T::ONE)))
    }
}

/// Defines pointwise operations: for each a struct (with fields of type `T`, if there are parameters)
/// and its [`Pointwise`] formulas, `f` beside `vjp`; and the function `for_each`, which lists them.
///
/// ```text
/// /// `x / (1 + |x|)`
/// Softsign = "softsign", saves Input, costs CHEAP;
/// f(self, a, x) { a.div(x, a.add(a.splat(T::ONE), a.abs(x))) }
/// vjp(self, a, x, g) { .. }
/// ```
macro_rules! pointwise {
    (
        $(
            $(#[$doc:meta])*
            $Op:ident $({ $($(#[$field_doc:meta])* $field:ident),+ $(,)? })?
                = $name:literal, saves $saves:ident, costs $cost:ident;
            f($self:ident, $a:pat_param, $x:pat_param) $f:block
            vjp($self_:ident, $a_:pat_param, $saved:pat_param, $g:pat_param) $vjp:block
        )+
    ) => {
        $(
            pointwise!(@struct [$(#[$doc])*] $Op $({ $($(#[$field_doc])* $field),+ })?);

            impl<T: Real> Pointwise<T> for pointwise!(@type $Op $({ $($field)+ })?) {
                const NAME: &'static str = $name;
                const SAVES: Saves = Saves::$saves;
                const COST: Cost = Cost::$cost;
                #[inline(always)]
                fn f<A: Algebra<T>>($self, $a: A, $x: A::V) -> A::V $f
                #[inline(always)]
                fn vjp<A: Algebra<T>>($self_, $a_: A, $saved: A::V, $g: A::V) -> A::V $vjp
                $(fn constants(self, f: &mut impl FnMut(&'static str, f64)) {
                    $(f(stringify!($field), self.$field.to_f64());)+
                })?
            }
        )+

        /// Calls `f` for every operation of this file.
        #[doc(hidden)]
        pub fn for_each<T: Real>(f: &mut impl ForEachOp<T>) {
            $(f.op::<pointwise!(@type $Op $({ $($field)+ })?)>();)+
        }
    };
    (@struct [$(#[$doc:meta])*] $Op:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub struct $Op;
    };
    (@struct [$(#[$doc:meta])*] $Op:ident { $($(#[$field_doc:meta])* $field:ident),+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub struct $Op<T> {
            $($(#[$field_doc])* pub $field: T),+
        }
    };
    (@type $Op:ident) => { $Op };
    (@type $Op:ident { $($field:ident)+ }) => { $Op<T> };
}
pub(crate) use pointwise;

/// A generic function that is called for each operation of a file by its `for_each`: so that no list of
/// all operations is written a second time.
#[doc(hidden)]
pub trait ForEachOp<T: Real> {
    /// Called with the type of the operation.
    fn op<P: Pointwise<T>>(&mut self);
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

/// # Pointwise operations of your own
impl<T: Real> Tensor<T> {
    /// `f` of every element.
    ///
    /// ```
    /// # use retrograd_tensor::Tensor;
    /// use retrograd_tensor::ops::unary::Sqrt;
    /// assert_eq!(Tensor::from([4.0f32, 9.0]).map(Sqrt).to_vec(), [2.0, 3.0]);
    /// ```
    #[track_caller]
    pub fn map<P: Pointwise<T>>(&self, op: P) -> Tensor<T> {
        elementwise(P::NAME, Forward(op), [self])
    }

    /// `g · f'` elementwise, where `self` is the value that the operation saves.
    ///
    /// ```
    /// # use retrograd_tensor::Tensor;
    /// use retrograd_tensor::ops::unary::Square;
    /// let (x, g) = (Tensor::from([3.0f32]), Tensor::from([10.0]));
    /// assert_eq!(x.map_vjp(Square, &g).item(), 60.0);
    /// ```
    #[track_caller]
    pub fn map_vjp<P: Pointwise<T>>(&self, op: P, g: &Tensor<T>) -> Tensor<T> {
        elementwise(P::NAME, Vjp(op), [self, g])
    }
}
