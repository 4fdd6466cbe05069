//! Arithmetic on two operands, broadcast together. Rules need not undo the broadcast: the
//! engine sums every gradient to the shape of its input.

use crate::node::{Backward, Cx, Grads};
use crate::var::Var;
use retrograd_tensor::{Real, Tensor};
use std::ops;

#[derive(Debug)]
struct Add;

impl<T: Real> Backward<T> for Add {
    fn name(&self) -> &'static str {
        "add"
    }
    fn backward(&self, _: &Cx<'_, T>, g: &Var<T>) -> Grads<T> {
        vec![Some(g.clone()), Some(g.clone())]
    }
}

#[derive(Debug)]
struct Sub;

impl<T: Real> Backward<T> for Sub {
    fn name(&self) -> &'static str {
        "sub"
    }
    fn backward(&self, cx: &Cx<'_, T>, g: &Var<T>) -> Grads<T> {
        vec![Some(g.clone()), cx.needs(1).then(|| g.neg())]
    }
}

/// Each operand is saved only if the other one needs a gradient.
#[derive(Debug)]
struct Mul<T: Real> {
    a: Option<Tensor<T>>,
    b: Option<Tensor<T>>,
}

impl<T: Real> Backward<T> for Mul<T> {
    fn name(&self) -> &'static str {
        "mul"
    }
    fn backward(&self, cx: &Cx<'_, T>, g: &Var<T>) -> Grads<T> {
        vec![
            self.b.as_ref().map(|b| g.mul(&cx.input(1, b))),
            self.a.as_ref().map(|a| g.mul(&cx.input(0, a))),
        ]
    }
}

#[derive(Debug)]
struct Div<T: Real> {
    b: Tensor<T>,
    output: Option<Tensor<T>>,
}

impl<T: Real> Backward<T> for Div<T> {
    fn name(&self) -> &'static str {
        "div"
    }
    fn backward(&self, cx: &Cx<'_, T>, g: &Var<T>) -> Grads<T> {
        let share = g.div(&cx.input(1, &self.b));
        let db = self.output.as_ref().map(|y| share.mul(&cx.output(y)).neg());
        vec![cx.needs(0).then_some(share), db]
    }
}

#[derive(Debug)]
struct Pow<T: Real> {
    a: Tensor<T>,
    b: Tensor<T>,
    output: Tensor<T>,
}

impl<T: Real> Backward<T> for Pow<T> {
    fn name(&self) -> &'static str {
        "pow"
    }
    fn backward(&self, cx: &Cx<'_, T>, g: &Var<T>) -> Grads<T> {
        let (a, b) = (cx.input(0, &self.a), cx.input(1, &self.b));
        let zero = Tensor::scalar(T::ZERO);
        // d/da = b·a^(b-1): 0 for b = 0, also where a^(b-1) is infinite.
        let da = cx.needs(0).then(|| {
            let slope = b.mul(&a.pow(&b.add_scalar(-T::ONE)));
            let flat = self.b.eq(&zero).broadcast_to(self.output.shape());
            g.mul(&slope.masked_fill(&flat, T::ZERO))
        });
        // d/db = a^b·ln a: 0 for a = 0 and b >= 0, where ln a is infinite.
        let db = cx.needs(1).then(|| {
            let flat = self.a.eq(&zero) & self.b.ge(&zero);
            let safe = Var::where_(&self.a.eq(&zero), &Var::scalar(T::ONE), &a);
            let ln = Var::where_(&self.a.eq(&zero), &Var::scalar(T::NEG_INFINITY), &safe.ln());
            g.mul(&cx.output(&self.output).mul(&ln).masked_fill(&flat, T::ZERO))
        });
        vec![da, db]
    }
}

/// Maximum, or minimum: all to the operand that was chosen, half each on a tie; all to both if one
/// is NaN.
#[derive(Debug)]
struct Extreme {
    name: &'static str,
    /// Where the first operand is the result, also on a tie; not where one is NaN.
    first: Tensor<bool>,
    /// The same of the second.
    second: Tensor<bool>,
}

impl<T: Real> Backward<T> for Extreme {
    fn name(&self) -> &'static str {
        self.name
    }
    fn backward(&self, cx: &Cx<'_, T>, g: &Var<T>) -> Grads<T> {
        let tie = &self.first & &self.second;
        let shared = Var::where_(&tie, &g.mul_scalar(T::from_f64(0.5)), g);
        let share = |wins: &Tensor<bool>, other: &Tensor<bool>| {
            shared.masked_fill(&(other & &!wins), T::ZERO)
        };
        vec![
            cx.needs(0).then(|| share(&self.first, &self.second)),
            cx.needs(1).then(|| share(&self.second, &self.first)),
        ]
    }
}

impl<T: Real> Var<T> {
    /// `a + b`, broadcast.
    #[track_caller]
    pub fn add(&self, other: &Var<T>) -> Var<T> {
        Var::from_op(self.value().add(other.value()), &[self, other], |_| Add)
    }

    /// `a - b`, broadcast.
    #[track_caller]
    pub fn sub(&self, other: &Var<T>) -> Var<T> {
        Var::from_op(self.value().sub(other.value()), &[self, other], |_| Sub)
    }

    /// `a · b` elementwise, broadcast.
    #[track_caller]
    pub fn mul(&self, other: &Var<T>) -> Var<T> {
        Var::from_op(self.value().mul(other.value()), &[self, other], |needs| Mul {
            a: needs.at(1).then(|| self.value().clone()),
            b: needs.at(0).then(|| other.value().clone()),
        })
    }

    /// `a / b`, broadcast.
    #[track_caller]
    pub fn div(&self, other: &Var<T>) -> Var<T> {
        let value = self.value().div(other.value());
        let output = value.clone();
        Var::from_op(value, &[self, other], |needs| Div {
            b: other.value().clone(),
            output: needs.at(1).then_some(output),
        })
    }

    /// `a^b`, broadcast. NaN for negative `a` unless `b` is whole; `0⁰ = 1`. The derivative
    /// by `a` is 0 for `b = 0`; that by `b` is 0 for `a = 0` and `b >= 0`, and NaN for
    /// negative `a`.
    #[track_caller]
    pub fn pow(&self, other: &Var<T>) -> Var<T> {
        let value = self.value().pow(other.value());
        let output = value.clone();
        Var::from_op(value, &[self, other], |_| Pow {
            a: self.value().clone(),
            b: other.value().clone(),
            output,
        })
    }

    /// The larger of the two, broadcast; NaN if either is NaN. On a tie each gets half of
    /// the gradient, on NaN each all of it.
    #[track_caller]
    pub fn maximum(&self, other: &Var<T>) -> Var<T> {
        let (a, b) = (self.value(), other.value());
        Var::from_op(a.maximum(b), &[self, other], |_| Extreme {
            name: "maximum",
            first: a.ge(b),
            second: a.le(b),
        })
    }

    /// The smaller of the two, broadcast; NaN if either is NaN. On a tie each gets half of
    /// the gradient, on NaN each all of it.
    #[track_caller]
    pub fn minimum(&self, other: &Var<T>) -> Var<T> {
        let (a, b) = (self.value(), other.value());
        Var::from_op(a.minimum(b), &[self, other], |_| Extreme {
            name: "minimum",
            first: a.le(b),
            second: a.ge(b),
        })
    }
}

macro_rules! operator {
    ($trait:ident, $method:ident, |$a:ident, $c:ident| $scalar:expr) => {
        operator!(@ $trait, $method, Var<T>, Var<T>);
        operator!(@ $trait, $method, &Var<T>, Var<T>);
        operator!(@ $trait, $method, Var<T>, &Var<T>);
        operator!(@ $trait, $method, &Var<T>, &Var<T>);

        impl<T: Real> ops::$trait<T> for &Var<T> {
            type Output = Var<T>;
            #[track_caller]
            fn $method(self, $c: T) -> Var<T> {
                let $a = self;
                $scalar
            }
        }

        impl<T: Real> ops::$trait<T> for Var<T> {
            type Output = Var<T>;
            #[track_caller]
            fn $method(self, other: T) -> Var<T> {
                ops::$trait::$method(&self, other)
            }
        }
    };
    (@ $trait:ident, $method:ident, $a:ty, $b:ty) => {
        impl<T: Real> ops::$trait<$b> for $a {
            type Output = Var<T>;
            #[track_caller]
            #[allow(clippy::needless_borrow)]
            fn $method(self, other: $b) -> Var<T> {
                Var::$method(&self, &other)
            }
        }
    };
}

operator!(Add, add, |a, c| a.add_scalar(c));
operator!(Sub, sub, |a, c| a.add_scalar(-c));
operator!(Mul, mul, |a, c| a.mul_scalar(c));
operator!(Div, div, |a, c| Var::div(a, &Var::scalar(c)));

impl<T: Real> ops::Neg for &Var<T> {
    type Output = Var<T>;
    #[track_caller]
    fn neg(self) -> Var<T> {
        Var::neg(self)
    }
}

impl<T: Real> ops::Neg for Var<T> {
    type Output = Var<T>;
    #[track_caller]
    fn neg(self) -> Var<T> {
        Var::neg(&self)
    }
}
