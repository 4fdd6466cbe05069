//! Pointwise operations: differentiable functions of one number.

use crate::cost::Cost;
use crate::formula::{Algebra, Expr, Terms};
use crate::kernels::Real;
use crate::kernels::elementwise::{Elementwise, elementwise};
use crate::simd::Lanes;
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
/// use retrograd::prelude::*;
/// use retrograd::tensor::Real;
/// use retrograd::tensor::cost::Cost;
/// use retrograd::tensor::formula::{Algebra, Expr};
/// use retrograd::tensor::ops::pointwise::{Pointwise, Saves};
///
/// /// f(x) = x³
/// #[derive(Clone, Copy, Debug, Default)]
/// struct Cube;
///
/// impl<T: Real> Pointwise<T> for Cube {
///     const NAME: &'static str = "cube";
///     const SAVES: Saves = Saves::Input;
///     const COST: Cost = Cost::CHEAP;
///     fn f<A: Algebra<T>>(self, x: Expr<T, A>) -> Expr<T, A> {
///         x * x * x
///     }
///     fn vjp<A: Algebra<T>>(self, x: Expr<T, A>, g: Expr<T, A>) -> Expr<T, A> {
///         3.0 * x * x * g
///     }
/// }
///
/// let x = Tensor::from([1.0f32, 2.0]);
/// assert_eq!(x.map(Cube).to_vec(), [1.0, 8.0]);
/// assert_eq!(x.map_vjp(Cube, &Tensor::ones([2])).to_vec(), [3.0, 12.0]);
/// ```
///
/// The default value is an example of the operation: its formulas are printed.
pub trait Pointwise<T: Real>: Copy + Debug + Default + Send + Sync + 'static {
    /// The name of the operation in graphs and errors.
    const NAME: &'static str;
    /// The saved value that [`Pointwise::vjp`] is given.
    const SAVES: Saves;
    /// Estimated time per element.
    const COST: Cost;
    /// `f(x)`. Mark it `#[inline(always)]`.
    fn f<A: Algebra<T>>(self, x: Expr<T, A>) -> Expr<T, A>;
    /// `g · f'`, from the value that [`Pointwise::SAVES`] names (unspecified for
    /// [`Saves::Nothing`]).
    fn vjp<A: Algebra<T>>(self, saved: Expr<T, A>, g: Expr<T, A>) -> Expr<T, A>;
    /// Passes the numbers besides `x` in the formula to `_f`, by name; a record of a step lists them.
    fn constants(self, _f: &mut impl FnMut(&'static str, f64)) {}
    /// `f(x)` and `f'(x)`, which share common subexpressions.
    #[inline(always)]
    fn value_and_derivative<A: Algebra<T>>(self, x: Expr<T, A>) -> (Expr<T, A>, Expr<T, A>) {
        let y = self.f(x);
        let saved = if Self::SAVES == Saves::Output { y } else { x };
        (y, self.vjp(saved, x.constant(1.0)))
    }
}

/// Defines pointwise operations: for each a struct (with fields of type `T`, if there are parameters), its
/// [`Pointwise`] formulas, `f` beside `vjp`, and the method of [`Tensor`] that applies it (or only a name);
/// and the function `for_each`, which lists them. In formulas, a field is a [`Parameter`]. `= 0.01` after a
/// field is an example, which `Default` gives.
///
/// ```text
/// /// `x / (1 + |x|)`
/// Softsign, pub fn softsign, saves Input, costs CHEAP;
/// f(x) { x / (1.0 + x.abs()) }
/// vjp(x, g) { let d = 1.0 + x.abs(); g / d / d }
/// ```
macro_rules! pointwise {
    (
        $title:literal
        $(
            $(#[$doc:meta])*
            $Op:ident $({ $($(#[$field_doc:meta])* $field:ident = $example:literal),+ $(,)? })?
                $(, pub fn $method:ident)? $(, named $name:literal)?
                , saves $saves:ident, costs $cost:ident;
            f($x:pat_param) $f:block
            vjp($saved:pat_param, $g:pat_param) $vjp:block
        )+
    ) => {
        $(
            pointwise!(@struct [$(#[$doc])*] [$($method)?] $Op $({
                $($(#[$field_doc])* $field = $example),+
            })?);

            impl<T: Real> Pointwise<T> for pointwise!(@type $Op $({ $($field)+ })?) {
                const NAME: &'static str = concat!($(stringify!($method))? $($name)?);
                const SAVES: Saves = Saves::$saves;
                const COST: Cost = Cost::$cost;
                #[inline(always)]
                fn f<A: Algebra<T>>(self, $x: Expr<T, A>) -> Expr<T, A> {
                    $($(
                        #[allow(unused_variables)] // A formula may not need every parameter.
                        let $field = Parameter::new(stringify!($field), self.$field.to_f64());
                    )+)?
                    $f
                }
                #[inline(always)]
                fn vjp<A: Algebra<T>>(self, $saved: Expr<T, A>, $g: Expr<T, A>) -> Expr<T, A> {
                    $($(
                        #[allow(unused_variables)]
                        let $field = Parameter::new(stringify!($field), self.$field.to_f64());
                    )+)?
                    $vjp
                }
                $(fn constants(self, f: &mut impl FnMut(&'static str, f64)) {
                    $(f(stringify!($field), self.$field.to_f64());)+
                })?
            }
        )+

        #[doc = $title]
        impl<T: Real> Tensor<T> {
            $(pointwise!(@method [$(#[$doc])*] [$($method)?] $Op $({ $($field)+ })?);)+
        }

        /// Calls `f` with every operation of this file.
        #[doc(hidden)]
        pub fn for_each<T: Real>(f: &mut impl ForEachOp<T>) {
            $(f.op::<pointwise!(@type $Op $({ $($field)+ })?)>();)+
        }
    };
    (@struct [$($doc:tt)*] [$method:ident] $($op:tt)+) => {
        pointwise!(@struct [
            #[doc = concat!("The operation of [`Tensor::", stringify!($method), "`].")]
        ] [] $($op)+);
    };
    (@struct [$(#[$doc:meta])*] [] $Op:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default)]
        pub struct $Op;
    };
    (@struct [$(#[$doc:meta])*] [] $Op:ident {
        $($(#[$field_doc:meta])* $field:ident = $example:literal),+
    }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub struct $Op<T> {
            $($(#[$field_doc])* pub $field: T),+
        }

        impl<T: Real> Default for $Op<T> {
            fn default() -> Self {
                $Op { $($field: T::from_f64($example)),+ }
            }
        }
    };
    (@type $Op:ident) => { $Op };
    (@type $Op:ident { $($field:ident)+ }) => { $Op<T> };
    (@method [$($doc:tt)*] [] $($op:tt)+) => {};
    (@method [$(#[$doc:meta])*] [$method:ident] $Op:ident $({ $($field:ident)+ })?) => {
        $(#[$doc])*
        #[track_caller]
        pub fn $method(&self $($(, $field: T)+)?) -> Tensor<T> {
            self.map($Op $({ $($field),+ })?)
        }
    };
}
pub(crate) use pointwise;

/// A generic function that is called for each operation of a file by its `for_each`: so that no list of
/// all operations is written a second time.
#[doc(hidden)]
pub trait ForEachOp<T: Real> {
    /// Called with the type of the operation.
    fn op<P: Pointwise<T>>(&mut self);
}

/// The formulas of a pointwise operation as text, from its code: of the function of `x`, and of the
/// vector-Jacobian product with the gradient `g`, from `x` or from the result `y`.
///
/// ```
/// use retrograd::tensor::ops::{activation::{Gelu, Sigmoid}, pointwise::formulas};
///
/// assert_eq!(formulas::<f32, Gelu>(), ["y = x · Φ(x)", "dx = g · (x · φ(x) + Φ(x))"]);
/// assert_eq!(formulas::<f32, Sigmoid>(), ["y = σ(x)", "dx = g · y · (1 − y)"]);
/// ```
pub fn formulas<T: Real, P: Pointwise<T>>() -> [String; 2] {
    let (op, terms) = (P::default(), Terms::default());
    let [x, y, g] = ["x", "y", "g"].map(|name| terms.name(name));
    let saved = if P::SAVES == Saves::Output { y } else { x };
    let [f, vjp] = [op.f(x), op.vjp(saved, g)].map(|formula| terms.print(formula));
    [format!("y = {f}"), format!("dx = {vjp}")]
}

#[derive(Clone, Copy)]
struct Forward<P>(P);

impl<T: Real, P: Pointwise<T>> Elementwise<T, 1> for Forward<P> {
    const COST: Cost = P::COST;
    #[inline(always)]
    fn f<S: Lanes<T>>(self, [x]: [Expr<T, S>; 1]) -> Expr<T, S> {
        self.0.f(x)
    }
}

#[derive(Clone, Copy)]
struct Vjp<P>(P);

impl<T: Real, P: Pointwise<T>> Elementwise<T, 2> for Vjp<P> {
    const COST: Cost = P::COST;
    #[inline(always)]
    fn f<S: Lanes<T>>(self, [saved, g]: [Expr<T, S>; 2]) -> Expr<T, S> {
        self.0.vjp(saved, g)
    }
}

/// # Pointwise operations of your own
impl<T: Real> Tensor<T> {
    /// `f` of every element.
    #[track_caller]
    pub fn map<P: Pointwise<T>>(&self, op: P) -> Tensor<T> {
        elementwise(P::NAME, Forward(op), [self])
    }

    /// `g · f'` elementwise, where `self` is the value that the operation saves.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// use retrograd::tensor::ops::unary::Square;
    /// let (x, g) = (Tensor::from([3.0f32]), Tensor::from([10.0]));
    /// assert_eq!(x.map_vjp(Square, &g).item(), 60.0);
    /// ```
    #[track_caller]
    pub fn map_vjp<P: Pointwise<T>>(&self, op: P, g: &Tensor<T>) -> Tensor<T> {
        elementwise(P::NAME, Vjp(op), [self, g])
    }
}
