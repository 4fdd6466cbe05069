//! Derivatives of all pointwise operations against dual numbers, in f64: an exact derivative that
//! shares only the formula of the function with `vjp`.

use retrograd_tensor::Real;
use retrograd_tensor::formula::{Dual, Expr};
use retrograd_tensor::ops::activation::{self, *};
use retrograd_tensor::ops::pointwise::{ForEachOp, Pointwise, Saves};
use retrograd_tensor::ops::unary::{self, *};
use retrograd_tensor::random::Rng;
use retrograd_tensor::settings::level;
use retrograd_tensor::simd::{Kernel, Lanes};
use retrograd_tensor::{Shape, Tensor};

/// Value and derivative at every point.
struct Forward<'a, P> {
    op: P,
    x: &'a [f64],
}

impl<P: Pointwise<f64>> Kernel<f64> for Forward<'_, P> {
    type Out = Vec<(f64, f64)>;

    #[inline(always)]
    fn run<S: Lanes<f64>>(self, s: S) -> Self::Out {
        let number = |v| s.max_lane(v);
        let at = |&x| self.op.f(Expr::new(Dual(s), (s.splat(x), s.splat(1.0)))).value();
        self.x.iter().map(at).map(|(y, slope)| (number(y), number(slope))).collect()
    }
}

/// Compares at 2000 points of an interval, and at those where a derivative may be one-sided or cancel.
fn check<P: Pointwise<f64>>(op: P, lo: f64, hi: f64) -> &'static str {
    let mut x = Tensor::<f64>::uniform([2000], lo, hi, &mut Rng::new(1)).to_vec();
    x.extend([-30.0, -1.0, 0.0, 1e-9, 0.5, 1.0, 30.0].into_iter().filter(|x| (lo..hi).contains(x)));
    let points = Tensor::from_vec(x.clone(), Shape::from([x.len()]));
    let saved = match P::SAVES {
        Saves::Output => points.map(op),
        Saves::Input | Saves::Nothing => points.clone(),
    };
    let vjp = saved.map_vjp(op, &Tensor::ones(*points.shape())).to_vec();
    let value = points.map(op).to_vec();
    let dual = f64::dispatch(level(), Forward { op, x: &x });
    for (i, (y, slope)) in dual.into_iter().enumerate() {
        let name = P::NAME;
        assert_eq!(y.to_bits(), value[i].to_bits(), "{name} at {}: {y}, {}", x[i], value[i]);
        let error = (slope - vjp[i]).abs();
        assert!(
            error <= 1e-13 * slope.abs().max(1.0),
            "{name} at {}: dual {slope}, vjp {}, {error:e} apart",
            x[i],
            vjp[i]
        );
    }
    P::NAME
}

/// Names of all operations.
struct Names(Vec<&'static str>);

impl ForEachOp<f64> for Names {
    fn op<P: Pointwise<f64>>(&mut self) {
        self.0.push(P::NAME);
    }
}

/// Checks each operation; evaluates to their names.
macro_rules! check {
    ($($op:expr, $lo:expr, $hi:expr;)+) => {
        vec![$(check($op, $lo, $hi)),+]
    };
}

#[test]
fn vjps_are_the_derivatives_of_dual_numbers() {
    let checked = check! {
        Neg, -10.0, 10.0;
        Abs, -10.0, 10.0;
        Sign, -10.0, 10.0;
        Floor, -10.0, 10.0;
        Ceil, -10.0, 10.0;
        Round, -10.0, 10.0;
        Trunc, -10.0, 10.0;
        Square, -10.0, 10.0;
        Huber { delta: 1.5 }, -10.0, 10.0;
        Sqrt, 0.01, 10.0;
        Rsqrt, 0.1, 10.0;
        Recip, 0.1, 10.0;
        Exp, -10.0, 10.0;
        Expm1, -10.0, 10.0;
        Ln, 0.01, 10.0;
        Log1p, -0.9, 10.0;
        Sin, -10.0, 10.0;
        Cos, -10.0, 10.0;
        Erf, -10.0, 10.0;
        Powf { p: 2.5 }, 0.1, 10.0;
        AddScalar { c: 2.0 }, -10.0, 10.0;
        MulScalar { c: -3.0 }, -10.0, 10.0;
        Clamp { lo: -2.0, hi: 3.0 }, -10.0, 10.0;
        NanToNum { nan: 1.0, posinf: 2.0, neginf: 3.0 }, -10.0, 10.0;
        Relu, -10.0, 10.0;
        ReluSquared, -50.0, 50.0;
        LeakyRelu { slope: 0.1 }, -10.0, 10.0;
        Elu { alpha: 0.7 }, -50.0, 800.0;
        Sigmoid, -50.0, 50.0;
        Tanh, -50.0, 50.0;
        Silu, -50.0, 50.0;
        Softsign, -50.0, 50.0;
        Hardswish, -10.0, 10.0;
        Softplus, -50.0, 50.0;
        Mish, -50.0, 50.0;
        Gelu, -50.0, 50.0;
        GeluTanh, -50.0, 50.0;
    };
    let mut all = Names(Vec::new());
    unary::for_each(&mut all);
    activation::for_each(&mut all);
    assert_eq!(checked, all.0);
}
