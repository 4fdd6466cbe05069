//! The checks of a row of the table.

use crate::draw::{Case, Domain};
use crate::layouts::{Kind, lay};
use crate::record::check_record;
use crate::table::{Row, Second, Typed};
use retrograd_autograd::check::{self, Check, CheckError, Report, gradcheck, gradgradcheck};
use retrograd_autograd::{Var, Vars, grad, grad_and_value, hvp, jacfwd, jacrev, jvp};
use retrograd_autograd::{jvp_by_double_reverse, no_grad};
use retrograd_tensor::settings::with_level;
use retrograd_tensor::simd::Level;
use retrograd_tensor::{Shape, Tensor, with_threads};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;

/// The names of all checks.
pub const CHECKS: [&str; 16] = [
    "differences",
    "second",
    "forward",
    "transforms",
    "definition",
    "record",
    "layouts",
    "expanded",
    "cotangents",
    "subsets",
    "aliases",
    "no-grad",
    "f32",
    "levels",
    "threads",
    "large",
];

/// The checks of one row, and their largest errors.
#[derive(Clone, Default)]
pub struct Done {
    /// The number of times that each check was executed.
    pub checks: BTreeMap<&'static str, u64>,
    pub cases: u64,
    /// The number of derivatives compared with finite differences, and of gradient elements compared
    /// with another computation.
    pub derivatives: u64,
    pub elements: u64,
    /// Worst error of a derivative against fourth-order differences, relative to it (to 1 if
    /// it is smaller).
    pub worst: f64,
    /// Worst error of a derivative of any order, as a fraction of its bound.
    pub worst_share: f64,
    /// Worst rounding error of `f32`, as a fraction of its bound.
    pub worst_f32: f64,
    pub curved: bool,
    /// Fused operations that were compared with their definitions.
    pub fused: BTreeSet<&'static str>,
}

pub type Verdict = Result<(), Failure>;

/// A failed check, and its message.
#[derive(Clone, Debug)]
pub struct Failure {
    pub check: &'static str,
    pub text: String,
}

fn fail<T>(check: &'static str, text: impl Into<String>) -> Result<T, Failure> {
    Err(Failure { check, text: text.into() })
}

/// A value and the gradients of the tracked inputs.
struct Outcome<T: Typed> {
    value: Tensor<T>,
    grads: Vec<Option<Tensor<T>>>,
}

const ALL: u32 = u32::MAX;

/// Operands of every row of a case.
fn operands<T: Typed>(row: &Row, case: &Case) -> Vec<Tensor<T>> {
    let operand = |(k, shape): (usize, &Shape)| {
        let domain = row.domain[k.min(row.domain.len() - 1)];
        let values = case.values(domain, k, shape);
        Tensor::from_vec(values.into_iter().map(T::from_f64).collect(), shape)
    };
    (row.shapes)(case).iter().enumerate().map(operand).collect()
}

/// The cotangent of a case, which is drawn once.
fn cotangent<T: Typed>(case: &Case) -> impl Fn(&Shape) -> Tensor<T> + Sync {
    let drawn = OnceLock::new();
    move |shape| drawn.get_or_init(|| case.cotangent(shape)).clone()
}

/// Runs forward and backward. The inputs whose bits are set are tracked.
fn outcome<T: Typed>(
    row: &Row,
    case: &Case,
    x: &[Tensor<T>],
    tracked: u32,
    cotangent: &dyn Fn(&Shape) -> Tensor<T>,
    check: &'static str,
) -> Result<Outcome<T>, Failure> {
    let is_tracked = |k: usize| tracked >> k & 1 == 1;
    let var = |(k, x): (usize, &Tensor<T>)| {
        if is_tracked(k) { Var::leaf(x.clone()) } else { Var::constant(x.clone()) }
    };
    let vars: Vec<Var<T>> = x.iter().enumerate().map(var).collect();
    let y = T::call(row)(&vars, case);
    let value = y.value().clone();
    if !y.is_tracked() {
        return fail(check, "the result is not tracked");
    }
    let found = y.backward_with(&cotangent(y.shape()));
    let mut grads = Vec::new();
    for (k, var) in vars.iter().enumerate() {
        let g = found.get(var).cloned();
        match &g {
            Some(g) if g.shape() != var.shape() => {
                let text = format!("gradient {k} is {:?}, input {:?}", g.shape(), var.shape());
                return fail(check, text);
            }
            None if is_tracked(k) => return fail(check, format!("input {k} got no gradient")),
            _ => {}
        }
        grads.push(g);
    }
    Ok(Outcome { value, grads })
}

fn bits<T: Typed>(x: &Tensor<T>) -> Vec<u64> {
    x.to_vec().into_iter().map(|x| x.to_f64().to_bits()).collect()
}

fn same_bits<T: Typed>(
    what: &str,
    a: &Tensor<T>,
    b: &Tensor<T>,
    check: &'static str,
    done: &mut Done,
) -> Verdict {
    if a.shape() != b.shape() {
        return fail(check, format!("{what}: shapes {:?} and {:?}", a.shape(), b.shape()));
    }
    done.elements += a.numel() as u64;
    let (a, b) = (a.contiguous(), b.contiguous());
    let mut pairs = a.as_slice().iter().zip(b.as_slice()).enumerate();
    match pairs.find(|(_, (a, b))| a.to_f64().to_bits() != b.to_f64().to_bits()) {
        None => Ok(()),
        Some((i, (a, b))) => fail(check, format!("{what}: {a:?} and {b:?} at flat index {i}")),
    }
}

/// Checks that values and gradients are equal, bit by bit.
fn same<T: Typed>(a: &Outcome<T>, b: &Outcome<T>, check: &'static str, done: &mut Done) -> Verdict {
    same_bits("values", &a.value, &b.value, check, done)?;
    for (k, pair) in a.grads.iter().zip(&b.grads).enumerate() {
        if let (Some(a), Some(b)) = pair {
            same_bits(&format!("gradients of input {k}"), a, b, check, done)?;
        }
    }
    Ok(())
}

fn count(done: &mut Done, check: &'static str) {
    *done.checks.entry(check).or_default() += 1;
}

/// All checks of one case except those of threads.
pub fn check(row: &Row, case: &Case, done: &mut Done) -> Verdict {
    done.cases += 1;
    definition(row, case, done)?;
    moved_elements::<f64>(row, case, done)?;
    moved_elements::<f32>(row, case, done)?;
    tracking::<f64>(row, case, done)?;
    tracking::<f32>(row, case, done)?;
    aliases(row, case, done)?;
    levels(row, case, done, "levels")?;
    record(row, case, done)?;
    differences(row, case, done)?;
    forward(row, case, done)
}

/// Forward mode, by kernels and recorded, agrees with the transposed VJP; and so do functions that are built on it.
fn forward(row: &Row, case: &Case, done: &mut Done) -> Verdict {
    let x = operands::<f64>(row, case).into_iter().zip(case.layouts);
    let x: Vec<Var<f64>> = x.map(|(x, kind)| Var::constant(lay(&x, kind, case.seed))).collect();
    let v = x.map(&mut |x| Var::constant(case.cotangent(x.shape())));
    let f = |x: &Vec<Var<f64>>| (row.f64)(x, case);
    count(done, "forward");
    let (y, transposed) = jvp_by_double_reverse(f, &x, &v);
    let (recorded, (value, kernels)) = (jvp(f, &x, &v).1, no_grad(|| jvp(f, &x, &v)));
    same_bits("values", y.value(), value.value(), "forward", done)?;
    let close = |a: &Var<f64>, b: &Var<f64>, check, done: &mut Done| {
        close(&x, a.value(), b.value(), check, done)
    };
    close(&kernels, &transposed, "forward", done)?;
    close(&recorded, &transposed, "forward", done)?;

    if done.cases % 4 != 1 {
        return Ok(());
    }
    count(done, "transforms");
    let weights = Var::constant(case.cotangent(y.shape()));
    let scalar = |x: &Vec<Var<f64>>| (f(x) * &weights).sum(..);
    let products = hvp(scalar, &x, &v).1;
    let forward_over_reverse = jvp(|x| grad_and_value(scalar, x).0, &x, &v).1;
    for (a, b) in products.iter().zip(&forward_over_reverse) {
        close(a, b, "transforms", done)?;
    }
    let small = |x: &Var<f64>| x.value().numel() <= 12 && x.rank() + y.rank() <= 8;
    if small(&y) && x.iter().all(small) {
        for (a, b) in jacrev(f, &x).iter().zip(&jacfwd(f, &x)) {
            close(a, b, "transforms", done)?;
        }
    }
    Ok(())
}

/// Equal to 1e-12 of the largest number.
fn close(
    x: &[Var<f64>],
    a: &Tensor<f64>,
    b: &Tensor<f64>,
    check: &'static str,
    done: &mut Done,
) -> Verdict {
    if a.shape() != b.shape() {
        return fail(check, format!("shapes {:?} and {:?}", a.shape(), b.shape()));
    }
    let numbers = x.iter().map(Var::value).chain([a, b]).flat_map(Tensor::to_vec);
    let allowed = 1e-12 * numbers.fold(1.0f64, |m, x| m.max(x.abs()));
    done.elements += a.numel() as u64;
    match a.to_vec().iter().zip(b.to_vec()).find(|(a, b)| (**a - b).abs() > allowed || b.is_nan()) {
        Some((a, b)) => fail(check, format!("{a:?} and {b:?}, allowed {allowed:.1e}")),
        None => Ok(()),
    }
}

/// Values and gradients of fused operations agree with their definitions, in the layouts of the case.
fn definition(row: &Row, case: &Case, done: &mut Done) -> Verdict {
    let x = operands::<f64>(row, case).into_iter().zip(case.layouts);
    let x: Vec<Var<f64>> = x.map(|(x, kind)| Var::leaf(lay(&x, kind, case.seed))).collect();
    let y = (row.f64)(&x, case);
    match check::definition(&y, 1e-11) {
        Ok(false) => Ok(()),
        Ok(true) => {
            count(done, "definition");
            done.fused.extend(y.node().map(|node| node.name()));
            Ok(())
        }
        Err(e) => fail("definition", e.to_string()),
    }
}

/// A record changes no bit, and names every operation and its formula.
fn record(row: &Row, case: &Case, done: &mut Done) -> Verdict {
    count(done, "record");
    let x: Vec<Var<f64>> = operands::<f64>(row, case).into_iter().map(Var::leaf).collect();
    check_record(row, case, &x).or_else(|text| fail("record", text))
}

/// Values and gradients do not depend on the layouts of inputs and cotangents.
fn moved_elements<T: Typed>(row: &Row, case: &Case, done: &mut Done) -> Verdict {
    let x = operands::<T>(row, case);
    let plain = cotangent::<T>(case);
    let base = outcome(row, case, &x, ALL, &plain, "layouts")?;

    count(done, "layouts");
    let moved: Vec<Tensor<T>> =
        x.iter().zip(case.layouts).map(|(x, kind)| lay(x, kind, case.seed)).collect();
    same(&base, &outcome(row, case, &moved, ALL, &plain, "layouts")?, "layouts", done)?;

    count(done, "expanded");
    let expanded: Vec<Tensor<T>> = x.iter().map(|x| case.expanded(x)).collect();
    let copied: Vec<Tensor<T>> =
        expanded.iter().map(|x| Tensor::from_vec(x.to_vec(), x.shape())).collect();
    let a = outcome(row, case, &copied, ALL, &plain, "expanded")?;
    same(&a, &outcome(row, case, &expanded, ALL, &plain, "expanded")?, "expanded", done)?;

    count(done, "cotangents");
    let elsewhere = |shape: &Shape| lay(&plain(shape), case.cotangent, case.seed);
    same(&base, &outcome(row, case, &x, ALL, &elsewhere, "cotangents")?, "cotangents", done)?;
    let ones = outcome(row, case, &x, ALL, &|s| Tensor::full(s, T::ONE), "cotangents")?;
    let one = |shape: &Shape| Tensor::scalar(T::ONE).broadcast_to(shape);
    same(&ones, &outcome(row, case, &x, ALL, &one, "cotangents")?, "cotangents", done)
}

/// Values and gradients do not depend on which inputs are tracked.
fn tracking<T: Typed>(row: &Row, case: &Case, done: &mut Done) -> Verdict {
    let x = operands::<T>(row, case);
    let before: Vec<Vec<u64>> = x.iter().map(bits).collect();
    let cotangent = cotangent::<T>(case);
    let base = outcome(row, case, &x, ALL, &cotangent, "subsets")?;
    count(done, "subsets");
    for tracked in 1..(1 << x.len()) - 1 {
        let some = outcome(row, case, &x, tracked, &cotangent, "subsets")?;
        same(&base, &some, "subsets", done)?;
        if (0..x.len()).any(|k| tracked >> k & 1 == 0 && some.grads[k].is_some()) {
            return fail("subsets", "an untracked input got a gradient");
        }
    }
    count(done, "no-grad");
    let vars: Vec<Var<T>> = x.iter().map(|x| Var::leaf(x.clone())).collect();
    let y = no_grad(|| T::call(row)(&vars, case));
    if y.is_tracked() {
        return fail("no-grad", "recorded");
    }
    same_bits("values", &base.value, y.value(), "no-grad", done)?;
    if before != x.iter().map(bits).collect::<Vec<_>>() {
        return fail("no-grad", "an input was modified");
    }
    Ok(())
}

/// The gradient of one variable that is used as every input is the sum of the gradients of separate copies.
fn aliases(row: &Row, case: &Case, done: &mut Done) -> Verdict {
    let case = &Case { thin: [0; 3], short: [0; 3], ..case.clone() };
    let shapes = (row.shapes)(case);
    if shapes.len() < 2 || shapes.iter().any(|s| *s != shapes[0]) {
        return Ok(());
    }
    count(done, "aliases");
    // In the domain of every operand.
    let domain = if row.domain.len() > 1 { Domain::Positive } else { row.domain[0] };
    let x = Tensor::from_vec(case.values(domain, 0, &shapes[0]), shapes[0]);
    let copies = vec![x.clone(); shapes.len()];
    let cotangent = cotangent::<f64>(case);
    let apart = outcome(row, case, &copies, ALL, &cotangent, "aliases")?;
    let shared = Var::leaf(x);
    let y = (row.f64)(&vec![shared.clone(); shapes.len()], case);
    same_bits("values", &apart.value, y.value(), "aliases", done)?;
    let found = y.backward_with(&cotangent(y.shape()));
    let Some(got) = found.get(&shared) else {
        return fail("aliases", "no gradient");
    };
    let parts: Vec<Vec<f64>> = apart.grads.iter().flatten().map(|g| g.to_vec()).collect();
    done.elements += got.numel() as u64;
    // Terms may cancel, within the operation too, so the bound depends on the largest number.
    let seen: Vec<&Tensor<f64>> =
        apart.grads.iter().flatten().chain([&apart.value, shared.value()]).collect();
    let allowed = f64::EPSILON * rounding(&seen);
    for (i, got) in got.to_vec().into_iter().enumerate() {
        let sum: f64 = parts.iter().map(|g| g[i]).sum();
        if (got - sum).abs() > allowed {
            return fail("aliases", format!("{got:?} at {i}, but copies add up to {sum:?}"));
        }
    }
    Ok(())
}

/// All instruction sets give equal bits, except for scalar code, which rounds differently; and on each,
/// results agree with `f64`.
fn levels(row: &Row, case: &Case, done: &mut Done, check: &'static str) -> Verdict {
    let (x, x64) = (operands::<f32>(row, case), operands::<f64>(row, case));
    let (v, v64) = (cotangent(case), cotangent(case));
    let exact = outcome(row, case, &x64, ALL, &v64, check)?;
    let seen: Vec<&Tensor<f64>> =
        exact.grads.iter().flatten().chain([&exact.value]).chain(&x64).collect();
    let bound = rounding(&seen);
    let mut vectors: Option<(Outcome<f32>, Outcome<f64>)> = None;
    for level in Level::available() {
        count(done, check);
        let (y, y64) = with_level(level, || {
            let y = outcome(row, case, &x, ALL, &v, check);
            (y, outcome(row, case, &x64, ALL, &v64, check))
        });
        let (y, y64) = (y?, y64?);
        near(&y, &exact, bound, "f32", done)?;
        near(&y64, &exact, bound, check, done)?;
        if !level.is_fused() {
            continue;
        }
        match &vectors {
            None => vectors = Some((y, y64)),
            Some((first, first64)) => {
                same(first, &y, check, done)?;
                same(first64, &y64, check, done)?;
            }
        }
    }
    Ok(())
}

/// A bound on rounding errors, in epsilons: `γ·M`, where `M` is the largest magnitude among inputs, output and
/// gradients (at least 1), and `γ = 8 (1 + √n)` for `n` elements, whose errors add up like a random walk.
fn rounding(all: &[&Tensor<f64>]) -> f64 {
    let size =
        |t: &&Tensor<f64>| t.contiguous().as_slice().iter().fold(0.0f64, |m, x| m.max(x.abs()));
    let largest = all.iter().map(size).fold(1.0, f64::max);
    let n = all.iter().map(|t| t.numel()).max().unwrap_or(1);
    8.0 * (1.0 + (n as f64).sqrt()) * largest
}

/// Rounding errors of `T`, see [`rounding`].
fn near<T: Typed>(
    y: &Outcome<T>,
    exact: &Outcome<f64>,
    bound: f64,
    check: &'static str,
    done: &mut Done,
) -> Verdict {
    count(done, check);
    let allowed = T::EPSILON.to_f64() * bound;
    let got = y.grads.iter().flatten().chain([&y.value]);
    let pairs = got.zip(exact.grads.iter().flatten().chain([&exact.value]));
    for (k, (got, exact)) in pairs.enumerate() {
        done.elements += got.numel() as u64;
        let (got, exact) = (got.contiguous(), exact.contiguous());
        for (i, (got, &exact)) in got.as_slice().iter().zip(exact.as_slice()).enumerate() {
            let error = (got.to_f64() - exact).abs();
            if !allowed.is_finite() || got.to_f64() == exact {
                continue;
            }
            if check == "f32" {
                done.worst_f32 = done.worst_f32.max(error / allowed);
            }
            if error.is_nan() || error > allowed {
                let text = format!("result {k} at {i}: {got:?} in {}, {exact:?} in f64", T::DTYPE);
                return fail(check, format!("{text}, error {error:.2e}, allowed {allowed:.2e}"));
            }
        }
    }
    Ok(())
}

/// Runs a check and, if derivatives differ too much from finite differences, again with a quarter of the
/// step.
///
/// The truncation error has no bound that holds for every case: that of a fourth-order difference
/// grows with the fifth power of the slope in the direction of the step (large for the sine of a
/// product of nine terms), and terms that cancel in the derivative need not cancel in its error. A
/// quarter of the step reduces the truncation error to a 16th, of fourth order to a 256th, but not the
/// error of an incorrect derivative.
fn with_steps(
    check: Check,
    run: impl Fn(&Check) -> Result<Report, CheckError>,
) -> Result<Report, CheckError> {
    match run(&check) {
        Err(e @ CheckError::Mismatch { .. }) => {
            run(&Check { step: check.step / 4.0, ..check }).map_err(|_| e)
        }
        other => other,
    }
}

/// Gradients agree with finite differences, to first and second order, in the layouts of the case.
fn differences(row: &Row, case: &Case, done: &mut Done) -> Verdict {
    let x = operands::<f64>(row, case);
    let leaf = |(x, kind): (&Tensor<f64>, Kind)| Var::leaf(lay(x, kind, case.seed));
    let x: Vec<Var<f64>> = x.iter().zip(case.layouts).map(leaf).collect();
    let f = |x: &[Var<f64>]| (row.f64)(x, case);
    let seeded = |check: Check| Check { seed: case.seed, ..check };
    let relative =
        |report: &Report| report.worst.as_ref().map_or(0.0, |w| w.error / w.numeric.abs().max(1.0));
    let share = |report: &Report| report.worst.as_ref().map_or(0.0, |w| w.error / w.allowed);

    count(done, "differences");
    match with_steps(seeded(Check::precise()), |check| gradcheck(f, &x, check)) {
        Err(e) => return fail("differences", e.to_string()),
        Ok(report) => {
            done.derivatives += report.compared as u64;
            done.worst = done.worst.max(relative(&report));
            done.worst_share = done.worst_share.max(share(&report));
        }
    }
    count(done, "second");
    match with_steps(seeded(Check::default()), |check| gradgradcheck(f, &x, check)) {
        Err(e) => return fail("second", e.to_string()),
        Ok(report) => {
            done.derivatives += report.compared as u64;
            done.worst_share = done.worst_share.max(share(&report));
        }
    }
    let curved = is_curved(f, &x, case);
    if curved && row.second == Second::Zero {
        return fail("second", "a second derivative is not 0, but the table says so");
    }
    done.curved |= curved;
    Ok(())
}

/// Whether any second derivative with respect to the inputs is not 0.
fn is_curved(f: impl Fn(&[Var<f64>]) -> Var<f64>, x: &[Var<f64>], case: &Case) -> bool {
    let y = f(x);
    let v = Var::constant(case.cotangent(y.shape()));
    let inputs: Vec<&Var<f64>> = x.iter().collect();
    let first = grad(&[(&y, Some(&v))], &inputs);
    first.into_iter().flatten().filter(|g| g.is_tracked()).any(|g| {
        let v = Var::constant(case.cotangent(g.shape()));
        let second = grad(&[(&g, Some(&v))], &inputs);
        second.iter().flatten().any(|s| s.value().to_vec().iter().any(|&s| s != 0.0))
    })
}

/// Results have equal bits with 1, 2 and 4 threads, for small cases and large ones; the large ones also
/// on all levels and in another layout.
pub fn check_threads(row: &Row, done: &mut Done) -> Verdict {
    let small = Case::always();
    let large = Case::large();
    threads_agree::<f64>(row, &small, "threads", done)?;
    threads_agree::<f32>(row, &small, "threads", done)?;
    threads_agree::<f64>(row, &large, "large", done)?;
    threads_agree::<f32>(row, &large, "large", done)?;
    for case in &large {
        let case = &Case { seed: case.seed + 1, ..case.clone() };
        levels(row, case, done, "large")?;
        let x = operands::<f32>(row, case);
        let moved: Vec<_> = x.iter().map(|x| lay(x, Kind::Mixed, case.seed)).collect();
        let cotangent = cotangent(case);
        let base = outcome(row, case, &x, ALL, &cotangent, "large")?;
        same(&base, &outcome(row, case, &moved, ALL, &cotangent, "large")?, "large", done)?;
    }
    Ok(())
}

fn threads_agree<T: Typed>(
    row: &Row,
    cases: &[Case],
    check: &'static str,
    done: &mut Done,
) -> Verdict {
    let drawn: Vec<_> =
        cases.iter().map(|case| (case, operands::<T>(row, case), cotangent(case))).collect();
    let all = |threads| -> Result<Vec<_>, Failure> {
        let all = drawn.iter().map(|(case, x, v)| outcome(row, case, x, ALL, v, check));
        with_threads(threads, || all.collect())
    };
    let one = all(1)?;
    for threads in [2, 4] {
        for (a, b) in one.iter().zip(all(threads)?) {
            count(done, check);
            same(a, &b, check, done)?;
        }
    }
    Ok(())
}
