//! Derivatives of all pointwise operations against dual numbers, in f64: an exact derivative that
//! shares only the formula of the function with `vjp`.

use retrograd_tensor::Real;
use retrograd_tensor::formula::{Dual, Expr};
use retrograd_tensor::ops::pointwise::{ForEachOp, Pointwise, Saves};
use retrograd_tensor::ops::{activation, unary};
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

/// Compares at 4000 points, and at those where a derivative may be one-sided or cancel, where the value
/// is finite.
fn check<P: Pointwise<f64>>(op: P) {
    let rng = &mut Rng::new(1);
    let mut x = Tensor::<f64>::uniform([2000], -10.0, 10.0, rng).to_vec();
    x.extend(Tensor::<f64>::uniform([2000], -50.0, 50.0, rng).to_vec());
    x.extend([-800.0, -30.0, -1.0, 0.0, 1e-9, 0.5, 1.0, 30.0, 800.0]);
    let points = Tensor::from_vec(x.clone(), Shape::from([x.len()]));
    let saved = match P::SAVES {
        Saves::Output => points.map(op),
        Saves::Input | Saves::Nothing => points.clone(),
    };
    let vjp = saved.map_vjp(op, &Tensor::ones(*points.shape())).to_vec();
    let value = points.map(op).to_vec();
    let dual = f64::dispatch(level(), Forward { op, x: &x });
    let mut compared = 0;
    for (i, (y, slope)) in dual.into_iter().enumerate().filter(|(i, _)| value[*i].is_finite()) {
        let name = P::NAME;
        assert_eq!(y.to_bits(), value[i].to_bits(), "{name} at {}: {y}, {}", x[i], value[i]);
        let error = (slope - vjp[i]).abs();
        assert!(
            error <= 1e-13 * slope.abs().max(1.0) || slope == vjp[i],
            "{name} at {}: dual {slope}, vjp {}, {error:e} apart",
            x[i],
            vjp[i]
        );
        compared += 1;
    }
    assert!(compared > 1000, "{} is finite at {compared} points", P::NAME);
}

/// Checks every operation.
struct Checked;

impl ForEachOp<f64> for Checked {
    fn op<P: Pointwise<f64>>(&mut self) {
        check(P::default());
    }
}

#[test]
fn vjps_are_the_derivatives_of_dual_numbers() {
    unary::for_each(&mut Checked);
    activation::for_each(&mut Checked);
}
