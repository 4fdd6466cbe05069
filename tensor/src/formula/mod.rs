//! Formulas: written once, as mathematics, and evaluated in several algebras.
//!
//! A formula is a function of [`Expr`]s, numbers with operators and methods, in any [`Algebra`]: vectors
//! of every instruction set ([`Lanes`](crate::simd::Lanes)), [dual numbers](Dual), the variables of a
//! graph, and [text](Terms).

/// Methods that are one expression each, compiled into their callers.
macro_rules! inlined_methods {
    ($(
        $(#[$doc:meta])*
        $vis:vis $name:ident($self:ident $(, $x:ident: $t:ty)*) -> $out:ty = $y:expr;
    )+) => {$(
        $(#[$doc])*
        #[inline(always)]
        $vis fn $name($self $(, $x: $t)*) -> $out {
            $y
        }
    )+};
}
pub(crate) use inlined_methods;

mod algebra;
mod dual;
mod expr;
mod text;

pub use algebra::{Algebra, Parameter};
pub use dual::Dual;
pub use expr::{Expr, ExprOperand, Truth};
pub use text::{Terms, Text};
