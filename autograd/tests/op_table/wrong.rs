//! Operations with deliberate defects: each must be rejected by the check for its kind of defect.

use crate::draw::{Case, Domain::*, shapes::*};
use crate::table::{Row, rows};
use crate::{check_row, message};
use retrograd_autograd::check::{self, Check, CheckError, gradcheck, gradgradcheck};
use retrograd_autograd::{Cx, Fused, InputGrads, Op, Slot, Var};
use retrograd_tensor::settings::level;
use retrograd_tensor::simd::Level;
use retrograd_tensor::{Real, Shape, Tensor};
use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};

static WRONG_ONE: Op = Op::new("wrong", &["x"]);
static WRONG_PAIR: Op = Op::new("wrong", &["a", "b"]);

/// A function of one number with a rule of the input and the cotangent.
fn unary<T: Real>(
    x: &Var<T>,
    f: impl Fn(&Tensor<T>) -> Tensor<T>,
    rule: impl Fn(&Var<T>, &Var<T>) -> Var<T> + Send + Sync + 'static,
) -> Var<T> {
    Var::from_op(&WRONG_ONE, f(x.value()), [x], |[x]| {
        let x = x.save();
        move |cx, g| InputGrads::of(&x, || rule(&cx.input(&x), g))
    })
}

/// A function of two tensors with rules of both and the cotangent.
fn binary<T: Real>(
    value: Tensor<T>,
    inputs: [&Var<T>; 2],
    rule: impl Fn([&Var<T>; 2], &Var<T>) -> [Var<T>; 2] + Send + Sync + 'static,
) -> Var<T> {
    Var::from_op(&WRONG_PAIR, value, inputs, |[a, b]| {
        let (a, b) = (a.save(), b.save());
        move |cx, g| {
            let [da, db] = rule([&cx.input(&a), &cx.input(&b)], g);
            InputGrads::of(&a, || da).and(&b, || db)
        }
    })
}

fn number<T: Real>(x: f64) -> T {
    T::from_f64(x)
}

fn missing_factor<T: Real>(x: &Var<T>) -> Var<T> {
    unary(x, |x| x.square(), |x, g| g * x)
}

fn wrong_sign<T: Real>(x: &Var<T>) -> Var<T> {
    unary(x, |x| x.cos(), |x, g| g * &x.sin())
}

fn wrong_constant<T: Real>(x: &Var<T>) -> Var<T> {
    unary(x, |x| x.exp(), |x, g| g * &x.exp() * number::<T>(1.0 + 5e-7))
}

fn nan_value<T: Real>(x: &Var<T>) -> Var<T> {
    unary(x, |x| x * T::NAN, |_, g| g.clone())
}

fn nan_gradient<T: Real>(x: &Var<T>) -> Var<T> {
    let zero_times_infinity = |g: &Var<T>| g * number::<T>(0.0) * T::INFINITY;
    unary(x, |x| x.clone(), move |_, g| zero_times_infinity(g))
}

/// The gradient of a broadcast operand is that of its first copy, not the sum over all.
fn no_broadcast_sum<T: Real>(a: &Var<T>, b: &Var<T>) -> Var<T> {
    let first = |g: &Var<T>, shape: &Shape| {
        let mut g = g.clone();
        while g.rank() > shape.rank() {
            g = g.narrow(0, 0, g.size(0).min(1)).sum(0);
        }
        for (axis, &size) in shape.iter().enumerate() {
            g = g.narrow(axis as isize, 0, size.min(g.shape()[axis]));
        }
        g
    };
    let value = a.value().add(b.value());
    binary(value, [a, b], move |[a, b], g| [first(g, a.shape()), first(g, b.shape())])
}

fn transposed<T: Real>(a: &Var<T>, b: &Var<T>) -> Var<T> {
    binary(a.value().matmul(b.value()), [a, b], |[a, b], g| [g.matmul(b), a.t().matmul(g)])
}

fn wrong_operand<T: Real>(a: &Var<T>, b: &Var<T>) -> Var<T> {
    binary(a.value().sub(b.value()), [a, b], |_, g| [g.neg(), g.clone()])
}

fn one_element<T: Real>(x: &Var<T>) -> Var<T> {
    unary(
        x,
        |x| x.clone(),
        |x, g| {
            let n = x.value().numel();
            let twice =
                Tensor::from_fn([n], |i| number::<T>(if i[0] + 1 == n { 2.0 } else { 1.0 }));
            g.mul(&Var::constant(twice.reshape(x.shape())))
        },
    )
}

fn strides_ignored<T: Real>(x: &Var<T>) -> Var<T> {
    let contiguous = x.value().is_contiguous();
    unary(x, |x| x.clone(), move |_, g| if contiguous { g.clone() } else { g * number::<T>(1.5) })
}

fn cotangent_strides_ignored<T: Real>(x: &Var<T>) -> Var<T> {
    let rule =
        |g: &Var<T>| if g.value().is_contiguous() { g.clone() } else { g * number::<T>(1.5) };
    unary(x, |x| x.clone(), move |_, g| rule(g))
}

fn second_order_detached<T: Real>(x: &Var<T>) -> Var<T> {
    unary(x, |x| x.exp(), |x, g| g * &x.exp().detach())
}

/// `exp(x)`, whose definition is another function: its values are larger by `shift`, its derivatives by `slope`.
struct Defined<T: Real> {
    x: Slot<T>,
    slope: T,
    shift: T,
}

impl<T: Real> Fused<T> for Defined<T> {
    fn vjp(&self, [g]: [&Tensor<T>; 1]) -> InputGrads<T> {
        InputGrads::of(&self.x, || g * &self.x.value().exp())
    }
    fn definition(&self, cx: &Cx<'_, T>) -> [Var<T>; 1] {
        let x = cx.input(&self.x);
        [x.exp() + (&x - &x.detach()) * self.slope + self.shift]
    }
}

fn wrong_definition<T: Real>(x: &Var<T>, slope: f64, shift: f64) -> Var<T> {
    let [y] = Var::from_fused(&WRONG_ONE, [x.value().exp()], [x], |[x]| Defined {
        x: x.save(),
        slope: number(slope),
        shift: number(shift),
    });
    y
}

fn nondeterministic<T: Real>(x: &Var<T>) -> Var<T> {
    static RUNS: AtomicU64 = AtomicU64::new(0);
    let jitter = || number::<T>(1.0 + 1e-13 * RUNS.fetch_add(1, Ordering::Relaxed) as f64);
    unary(x, |x| x.square(), move |x, g| g * x * number::<T>(2.0) * jitter())
}

thread_local! {
    static SAVED: RefCell<Vec<f64>> = const { RefCell::new(Vec::new()) };
}

/// Saves its input in memory that the next call overwrites.
fn stale<T: Real>(x: &Var<T>, keep_first: bool) -> Var<T> {
    SAVED.with_borrow_mut(|saved| {
        if !keep_first || saved.len() != x.value().numel() {
            *saved = x.value().to_vec().into_iter().map(T::to_f64).collect();
        }
    });
    unary(
        x,
        |x| x.square(),
        |x, g| {
            let saved =
                SAVED.with_borrow(|s| s.iter().map(|&s| number::<T>(s)).collect::<Vec<T>>());
            g * &Var::constant(Tensor::from_vec(saved, x.shape())) * number::<T>(2.0)
        },
    )
}

fn depends_on_tracking<T: Real>(a: &Var<T>, b: &Var<T>) -> Var<T> {
    let both = a.is_tracked() && b.is_tracked();
    binary(a.value().add(b.value()), [a, b], move |_, g| {
        let g = if both { g.clone() } else { g * number::<T>(0.5) };
        [g.clone(), g]
    })
}

fn loses_digits<T: Real>(x: &Var<T>) -> Var<T> {
    let far = number::<T>(1e5);
    unary(x, |x| x.add_scalar(far).add_scalar(-far), |_, g| g.clone())
}

fn depends_on_threads<T: Real>(x: &Var<T>) -> Var<T> {
    let noise = number::<T>(1.0 + 1e-6 * retrograd_tensor::threads() as f64);
    unary(x, move |x| x * noise, move |_, g| g * noise)
}

fn depends_on_level<T: Real>(x: &Var<T>) -> Var<T> {
    let factor =
        number::<T>(if level() == *Level::available().last().unwrap() { 1.0 + 1e-12 } else { 1.0 });
    unary(x, move |x| x * factor, move |_, g| g * factor)
}

fn detached_if_empty<T: Real>(x: &Var<T>) -> Var<T> {
    if x.value().numel() == 0 { x.detach() } else { x.neg() }
}

#[rustfmt::skip]
const WRONG: &[(&str, &[Row])] = &[
    ("differences", rows![missing_factor any [Plain], Nonzero, |x, c| missing_factor(&x[0]);]),
    ("differences", rows![wrong_sign any [Plain], Nonzero, |x, c| wrong_sign(&x[0]);]),
    ("differences", rows![wrong_constant any [Plain], Nonzero, |x, c| wrong_constant(&x[0]);]),
    ("f32", rows![nan_value any [Plain], Zero, |x, c| nan_value(&x[0]);]),
    ("f32", rows![nan_gradient any [Plain], Zero, |x, c| nan_gradient(&x[0]);]),
    ("layouts", rows![detached_operand pair [Plain], Nonzero, |x, c| x[0].mul(&x[1].detach());]),
    ("layouts", rows![detached any [Plain], Nonzero, |x, c| x[0].exp().detach();]),
    ("layouts", rows![detached_if_empty any [Plain], Zero, |x, c| detached_if_empty(&x[0]);]),
    ("differences", rows![detached_inside any [Plain], Nonzero, |x, c| x[0].mul(&x[0].detach());]),
    ("differences", rows![no_broadcast_sum pair [Plain], Zero, |x, c| no_broadcast_sum(&x[0], &x[1]);]),
    ("differences", rows![transposed square_factors [Plain], Nonzero, |x, c| transposed(&x[0], &x[1]);]),
    ("differences", rows![wrong_operand pair [Plain], Zero, |x, c| wrong_operand(&x[0], &x[1]);]),
    ("differences", rows![one_element filled [Plain], Zero, |x, c| one_element(&x[0]);]),
    ("layouts", rows![strides_ignored any [Plain], Zero, |x, c| strides_ignored(&x[0]);]),
    ("cotangents", rows![cotangent_strides_ignored any [Plain], Zero, |x, c| cotangent_strides_ignored(&x[0]);]),
    ("second", rows![second_order_detached any [Plain], Nonzero, |x, c| second_order_detached(&x[0]);]),
    ("definition", rows![wrong_definition_value any [Plain], Nonzero, |x, c| wrong_definition(&x[0], 0.0, 1e-9);]),
    ("definition", rows![wrong_definition any [Plain], Nonzero, |x, c| wrong_definition(&x[0], 1e-9, 0.0);]),
    ("second", rows![curved_after_all any [Plain], Zero, |x, c| x[0].square();]),
    ("second", rows![flat_after_all any [Plain], Nonzero, |x, c| x[0].neg();]),
    ("layouts", rows![nondeterministic any [Plain], Nonzero, |x, c| nondeterministic(&x[0]);]),
    ("differences", rows![stale_first any [Plain], Nonzero, |x, c| stale(&x[0], true);]),
    ("differences", rows![stale_last any [Plain], Nonzero, |x, c| stale(&x[0], false);]),
    ("subsets", rows![depends_on_tracking pair [Plain], Zero, |x, c| depends_on_tracking(&x[0], &x[1]);]),
    ("no-grad", rows![recorded_under_no_grad any [Plain], Zero, |x, c| x[0].clone();]),
    ("f32", rows![loses_digits any [Plain], Zero, |x, c| loses_digits(&x[0]);]),
    ("levels", rows![depends_on_level any [Plain], Zero, |x, c| depends_on_level(&x[0]);]),
    ("threads", rows![depends_on_threads any [Plain], Zero, |x, c| depends_on_threads(&x[0]);]),
];

#[test]
fn every_wrong_operation_is_rejected() {
    let mut missed = Vec::new();
    for (expected, rows) in WRONG {
        if cfg!(target_family = "wasm") && *expected == "threads" {
            continue; // there is one
        }
        let row = &rows[0];
        SAVED.with_borrow_mut(|s| s.clear());
        let (_, failure, _) = check_row(row);
        let text = failure.unwrap_or("accepted".into());
        let line = text.lines().next().unwrap_or_default();
        println!("wrong: {:<28}{line}", row.name);
        // The message of a random case has a prefix.
        let by = line.trim_start_matches("Test failed: ").split(':').next();
        if by != Some(expected) {
            missed.push(format!("{} by {expected}, not: {line}", row.name));
        }
    }
    println!("op_table_wrong: operations={} missed={}", WRONG.len(), missed.len());
    assert!(missed.is_empty(), "not rejected by the expected check:\n{}", missed.join("\n"));
}

fn leaf(x: impl Into<Tensor<f64>>) -> Var<f64> {
    Var::leaf(x.into())
}

/// The error of `gradcheck`, which must reject `f`.
fn rejected(f: impl Fn(&[Var<f64>]) -> Var<f64>, x: &[Var<f64>], check: Check) -> CheckError {
    let error = gradcheck(f, x, &check).expect_err("an incorrect gradient must be rejected");
    println!("gradcheck: {error}");
    error
}

#[test]
#[cfg_attr(target_family = "wasm", ignore = "panics are not caught")]
fn the_checker_names_the_wrong_operation() {
    let x = || [leaf([[0.5, -1.0, 2.0], [1.5, 0.25, -0.75]])];
    match rejected(|x| one_element(&x[0]), &x(), Check::default()) {
        CheckError::Mismatch { wrong: 1, compared: 36, worst } => {
            assert_eq!(worst.input, Some((0, vec![1, 2])));
            assert_eq!(worst.output, Some(vec![1, 2]));
            assert_eq!(worst.analytic, 2.0);
            assert!((worst.numeric - 1.0).abs() < 1e-9 && (worst.error - 1.0).abs() < 1e-9);
        }
        other => panic!("{other}"),
    }

    // One incorrect element of thousands: detected in a projection, then located.
    let large = [Var::leaf(Tensor::<f64>::linspace(-1.0, 1.0, 3000).reshape([30, 100]))];
    match rejected(|x| one_element(&x[0]), &large, Check::default()) {
        CheckError::Mismatch { worst, .. } => assert_eq!(worst.input, Some((0, vec![29, 99]))),
        other => panic!("{other}"),
    }

    let pair = [leaf([1.0, 2.0]), leaf([3.0, 4.0])];
    let error = rejected(|x| x[0].mul(&x[1].detach()), &pair, Check::default());
    assert!(matches!(error, CheckError::Detached { input: 1, .. }), "{error}");
    let error = rejected(|x| x[0].exp().detach(), &x(), Check::default());
    assert!(matches!(error, CheckError::Detached { input: 0, .. }), "{error}");

    for f in [nan_value, nan_gradient] {
        let error = rejected(|x| f(&x[0]), &x(), Check::default());
        assert!(matches!(error, CheckError::NotFinite { value, .. } if value.is_nan()), "{error}");
    }
    let error = rejected(|x| x[0].ln(), &[leaf(1e-7)], Check::default());
    assert!(matches!(error, CheckError::NotFinite { .. }), "{error}");
    let error = rejected(|x| nondeterministic(&x[0]), &x(), Check::default());
    assert!(matches!(error, CheckError::Nondeterministic { .. }), "{error}");
    for keep_first in [true, false] {
        SAVED.with_borrow_mut(|s| s.clear());
        rejected(|x| stale(&x[0], keep_first), &x(), Check::default());
    }

    // Relative errors of 5e-7 are detected by the precise check only.
    gradcheck(|x| wrong_constant(&x[0]), &x(), &Check::default()).unwrap();
    let error = rejected(|x| wrong_constant(&x[0]), &x(), Check::precise());
    assert!(matches!(error, CheckError::Mismatch { .. }), "{error}");

    // A gradient whose shape does not match its input is rejected by the engine.
    let misshapen = |x: &[Var<f64>]| unary(&x[0], |x| x.clone(), |_, g| g.narrow(-1, 0, 2));
    let error = rejected(misshapen, &x(), Check::default());
    assert!(matches!(error, CheckError::Panicked { .. }), "{error}");
    let growing = |x: &[Var<f64>]| {
        let n = if x[0].value().at(&[0, 0]) < 0.5 { 1 } else { 2 };
        x[0].narrow(-1, 0, n)
    };
    let error = rejected(growing, &x(), Check::default());
    assert!(matches!(error, CheckError::Shape { .. }), "{error}");

    let error = rejected(|x| x[0].exp(), &[Var::scalar(1.0)], Check::default());
    assert!(matches!(error, CheckError::NothingTracked), "{error}");
    assert_eq!(message(Box::new("text")), "text");
}

/// A tolerance of NaN rejects all gradients.
#[test]
fn a_tolerance_of_nan_rejects_all_gradients() {
    let x = || [leaf(Tensor::from([0.5, 2.0]))];
    let nan = f64::NAN;
    for check in [Check { atol: nan, ..Check::default() }, Check { rtol: nan, ..Check::default() }]
    {
        rejected(|x| missing_factor(&x[0]), &x(), check.clone());
        rejected(|x| x[0].square(), &x(), check);
    }
    rejected(|x| x[0].square(), &x(), Check { step: nan, ..Check::default() });
}

#[test]
fn second_order_is_checked_separately() {
    let x = || [leaf([0.5, -1.0])];
    type F = fn(&[Var<f64>]) -> Var<f64>;
    let wrong: [F; 2] = [|x| second_order_detached(&x[0]), |x| wrong_definition(&x[0], 1e-9, 0.0)];
    for f in wrong {
        gradcheck(f, &x(), &Check::default()).unwrap();
        let error = gradgradcheck(f, &x(), &Check::default()).unwrap_err();
        println!("gradgradcheck: {error}");
    }
    let error = gradgradcheck(wrong[1], &x(), &Check::default()).unwrap_err();
    assert!(matches!(error, CheckError::Recorded { .. }), "{error}");
    // The tolerance is relative to the largest gradient.
    let large = wrong_definition(&leaf([10.0]), 1e-8, 0.0);
    assert_eq!(check::definition(&large, 1e-11), Ok(true));
    // Inputs that are not tracked are passed to the function as constants.
    let (a, b) = (leaf([1.0, 2.0]), Var::constant(Tensor::from([3.0, -1.0])));
    let f = |x: &[Var<f64>]| x[0].mul(&x[1]).exp();
    assert_eq!(gradcheck(f, &[a.clone(), b.clone()], &Check::default()).unwrap().compared, 4);
    gradgradcheck(f, &[a, b], &Check::default()).unwrap();
}
