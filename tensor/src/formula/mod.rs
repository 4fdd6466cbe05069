//! Formulas: written once, as mathematics, and evaluated in several algebras.
//!
//! A formula is a function of [`Expr`]s, numbers with operators and methods, in any [`Algebra`]: vectors
//! of every instruction set ([`Lanes`](crate::simd::Lanes)), [dual numbers](Dual), the variables of a
//! graph, and text ([`Formula`](crate::ops::formula::Formula)).

mod algebra;
mod dual;
mod expr;

pub use algebra::Algebra;
pub use dual::Dual;
pub use expr::{Expr, Term, Truth};
