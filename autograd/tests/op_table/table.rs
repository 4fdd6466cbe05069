//! The table: one row per operation, or per way to call it.
//!
//! A row names a method of `Var`, the shapes and values its operands may have, whether its
//! second derivative is zero, how to call it, and the formulas of a pointwise operation. The body is compiled for `f64` and `f32`.
//! Everything else a call needs (axes, indices, masks) is drawn from the [`Case`], and so is
//! a function of shapes and seed.

use crate::draw::{Case, Domain::*, shapes::*};
use retrograd_autograd::{Recurrence, Var};
use retrograd_tensor::formula::{Algebra, Expr};
use retrograd_tensor::ops::activation::{Gelu, Silu, Tanh};
use retrograd_tensor::ops::loss::{CrossEntropy, Reduction};
use retrograd_tensor::ops::pointwise::{Pointwise, Saves};
use retrograd_tensor::{INFER, Real, ScatterReduce, Shape, cost::Cost};

/// An operation as called on operands of one type.
pub type Call<T> = fn(&[Var<T>], &Case) -> Var<T>;

pub struct Row {
    /// The method of `Var`.
    pub name: &'static str,
    /// Which way of calling it.
    pub variant: &'static str,
    /// Shapes of the operands.
    pub shapes: fn(&Case) -> Vec<Shape>,
    /// Values of each operand; the last holds for all further ones.
    pub domain: &'static [crate::draw::Domain],
    /// Whether any second derivative differs from zero.
    pub second: Second,
    /// The formulas of a pointwise operation, as they are printed.
    pub formula: &'static str,
    pub f64: Call<f64>,
    pub f32: Call<f32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Second {
    Zero,
    Nonzero,
}

/// The element types a row is compiled for.
pub trait Typed: Real {
    fn call(row: &Row) -> Call<Self>;
}

impl Typed for f64 {
    fn call(row: &Row) -> Call<f64> {
        row.f64
    }
}

impl Typed for f32 {
    fn call(row: &Row) -> Call<f32> {
        row.f32
    }
}

macro_rules! rows {
    ($($name:ident $($variant:literal)? $shapes:ident $domain:expr, $second:ident,
        |$x:ident, $c:ident| $body:expr $(, y $y:literal, dx $dx:literal)?;)+) => {
        &[$($crate::table::Row {
            name: stringify!($name),
            variant: concat!($($variant)?),
            shapes: $shapes,
            domain: &$domain,
            second: $crate::table::Second::$second,
            formula: concat!($("y = ", $y, "\ndx = ", $dx)?),
            f64: |$x: &[Var<f64>], $c: &Case| { let _ = $c; $body },
            f32: |$x: &[Var<f32>], $c: &Case| { let _ = $c; $body },
        }),+]
    };
}
pub(crate) use rows;

/// x³, as a user would add it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cube;

impl<T: Real> Pointwise<T> for Cube {
    const NAME: &'static str = "cube";
    const SAVES: Saves = Saves::Input;
    const COST: Cost = Cost::CHEAP;
    #[inline(always)]
    fn f<A: Algebra<T>>(self, x: Expr<T, A>) -> Expr<T, A> {
        x * x * x
    }
    #[inline(always)]
    fn vjp<A: Algebra<T>>(self, x: Expr<T, A>, g: Expr<T, A>) -> Expr<T, A> {
        3.0 * x * x * g
    }
}

/// Where functions that round have steps.
const INTEGERS: [f64; 5] = [-2.0, -1.0, 0.0, 1.0, 2.0];

fn smooth(label_smoothing: f64) -> CrossEntropy {
    CrossEntropy { label_smoothing, ..CrossEntropy::default() }
}

/// A recurrence with decays, if they are given, and its first state.
fn recurrence_of<T: Real>(x: &[Var<T>], is_low_rank: bool) -> (Recurrence<T>, Var<T>) {
    let (l, dk) = (x[0].size(-2) / 4, x[0].size(-1));
    let [q, k, a, b] = [0, 1, 2, 3].map(|i| x[0].narrow(-2, i * l, l));
    // So that a state does not grow with the square of its width.
    let low_rank = is_low_rank.then(|| [a / T::from_f64(dk.max(1) as f64), b]);
    let of = Recurrence {
        decay: x.get(2).cloned(),
        low_rank,
        ..Recurrence::new(&q, &k, &x[1].narrow(-2, 0, l))
    };
    (of, x[1].narrow(-2, l, dk))
}

fn by(reduction: Reduction) -> CrossEntropy {
    CrossEntropy { reduction, ..CrossEntropy::default() }
}

/// Classes on an axis.
fn on(axis: isize, label_smoothing: f64, reduction: Reduction) -> CrossEntropy {
    CrossEntropy { axis, label_smoothing, reduction, ..CrossEntropy::default() }
}

/// All pieces again, the last one first.
fn rejoin<T: Real>(pieces: &[Var<T>], axis: isize) -> Var<T> {
    Var::cat(&pieces.iter().rev().collect::<Vec<_>>(), axis)
}

#[rustfmt::skip]
pub const ROWS: &[Row] = rows![
    // Functions of one number.
    neg any [Plain], Zero, |x, c| x[0].neg(),
        y "−x", dx "−g";
    abs any [Off(&[0.0])], Zero, |x, c| x[0].abs(),
        y "|x|", dx "g · sign(x)";
    sign any [Off(&[0.0])], Zero, |x, c| x[0].sign(),
        y "sign(x)", dx "0";
    floor any [Off(&INTEGERS)], Zero, |x, c| x[0].floor(),
        y "⌊x⌋", dx "0";
    ceil any [Off(&INTEGERS)], Zero, |x, c| x[0].ceil(),
        y "⌈x⌉", dx "0";
    round any [Off(&[-1.5, -0.5, 0.5, 1.5])], Zero, |x, c| x[0].round(),
        y "round(x)", dx "0";
    trunc any [Off(&INTEGERS)], Zero, |x, c| x[0].trunc(),
        y "⌊x⌋ if 0 < x else ⌈x⌉", dx "0";
    square any [Plain], Nonzero, |x, c| x[0].square(),
        y "x²", dx "g · 2 · x";
    sqrt any [Positive], Nonzero, |x, c| x[0].sqrt(),
        y "√x", dx "g · 0.5 / y";
    rsqrt any [Positive], Nonzero, |x, c| x[0].rsqrt(),
        y "1 / √x", dx "−g · 0.5 · y³";
    recip any [Apart], Nonzero, |x, c| x[0].recip(),
        y "1 / x", dx "−g · y²";
    exp any [Plain], Nonzero, |x, c| x[0].exp(),
        y "e^x", dx "g · y";
    expm1 any [Plain], Nonzero, |x, c| x[0].expm1(),
        y "e^x − 1", dx "g · (y + 1)";
    ln any [Positive], Nonzero, |x, c| x[0].ln(),
        y "ln(x)", dx "g / x";
    log1p any [Positive], Nonzero, |x, c| x[0].log1p(),
        y "ln(1 + x)", dx "g / (1 + x)";
    sin any [Plain], Nonzero, |x, c| x[0].sin(),
        y "sin(x)", dx "g · cos(x)";
    cos any [Plain], Nonzero, |x, c| x[0].cos(),
        y "cos(x)", dx "−g · sin(x)";
    erf any [Plain], Nonzero, |x, c| x[0].erf(),
        y "erf(x)", dx "g · 1.12838 · e^(−x²)";
    powf any [Positive], Nonzero, |x, c| x[0].powf(2.5),
        y "x^p", dx "g · p · x^(p − 1)";
    powf "whole" any [Apart], Nonzero, |x, c| x[0].powf(3.0);
    powf "negative" any [Apart], Nonzero, |x, c| x[0].powf(-2.0);
    powf "zero" any [Plain], Zero, |x, c| x[0].powf(0.0);
    powf "one" any [Apart], Zero, |x, c| x[0].powf(1.0);
    add_scalar any [Plain], Zero, |x, c| x[0].add_scalar(0.75),
        y "x + c", dx "g";
    mul_scalar any [Plain], Zero, |x, c| x[0].mul_scalar(-1.25),
        y "x · c", dx "g · c";
    clamp any [Off(&[-0.7, 0.9])], Zero, |x, c| x[0].clamp(-0.7, 0.9),
        y "min(max(x, lo), hi)", dx "g if lo < x and x < hi else 0";
    nan_to_num any [Plain], Zero, |x, c| x[0].nan_to_num(1.0, 2.0, 3.0),
        y "nan if x is NaN else neginf if x = −∞ else posinf if x = ∞ else x", dx "g if |x| < ∞ else 0";
    map any [Plain], Nonzero, |x, c| x[0].map(Cube),
        y "x³", dx "3 · x² · g";
    relu any [Off(&[0.0])], Zero, |x, c| x[0].relu(),
        y "max(x, 0)", dx "0 if y ≤ 0 else g";
    relu_squared any [Off(&[0.0])], Nonzero, |x, c| x[0].relu_squared(),
        y "max(x, 0)²", dx "g · 2 · max(x, 0)";
    leaky_relu any [Off(&[0.0])], Zero, |x, c| x[0].leaky_relu(0.1),
        y "x · slope if x ≤ 0 else x", dx "g · slope if x ≤ 0 else g";
    elu any [Off(&[0.0])], Nonzero, |x, c| x[0].elu(1.3),
        y "alpha · (e^x − 1) if x ≤ 0 else x", dx "g · alpha · e^x if x ≤ 0 else g";
    sigmoid any [Plain], Nonzero, |x, c| x[0].sigmoid(),
        y "σ(x)", dx "g · y · (1 − y)";
    tanh any [Plain], Nonzero, |x, c| x[0].tanh(),
        y "tanh(x)", dx "g · (1 − y²)";
    silu any [Plain], Nonzero, |x, c| x[0].silu(),
        y "x · σ(x)", dx "g · σ(x) · (x · σ(−x) + 1)";
    mish any [Plain], Nonzero, |x, c| x[0].mish(),
        y "x · tanh(ln(1 + e^x))", dx "g · (x · (1 − t²) · σ(x) + t), t = tanh(ln(1 + e^x))";
    softplus any [Plain], Nonzero, |x, c| x[0].softplus(),
        y "ln(1 + e^x)", dx "g · σ(x)";
    log_sigmoid any [Plain], Nonzero, |x, c| x[0].log_sigmoid(),
        y "−ln(1 + e^(−x))", dx "g · σ(−x)";
    softsign any [Off(&[0.0])], Nonzero, |x, c| x[0].softsign(),
        y "x / (1 + |x|)", dx "g / (1 + |x|)²";
    hardswish any [Plain], Nonzero, |x, c| x[0].hardswish(),
        y "x · min(max(x + 3, 0), 6) / 6", dx "0 if x ≤ −3 else g · (x / 3 + 0.5) if x < 3 else g";
    hardswish "across its kinks" any [Off(&[-1.0, 1.0])], Nonzero, |x, c| (&x[0] + &x[0] + &x[0]).hardswish();
    gelu any [Plain], Nonzero, |x, c| x[0].gelu(),
        y "x · Φ(x)", dx "g · (x · φ(x) + Φ(x))";
    gelu_tanh any [Plain], Nonzero, |x, c| x[0].gelu_tanh(),
        y "x · σ(1.59577 · x · (0.044715 · x² + 1))", dx "g · σ(1.59577 · x · t) · (1.59577 · x · σ(−1.59577 · x · t) · (0.134145 · x² + 1) + 1), t = 0.044715 · x² + 1";

    // Functions of two or three, broadcast.
    add pair [Plain], Zero, |x, c| x[0].add(&x[1]);
    add "three" triple [Plain], Zero, |x, c| x[0].add(&x[1]).add(&x[2]);
    sub pair [Plain], Zero, |x, c| x[0].sub(&x[1]);
    sub "from a number" any [Plain], Zero, |x, c| 0.75 - &x[0];
    mul pair [Plain], Nonzero, |x, c| x[0].mul(&x[1]);
    mul "three" triple [Plain], Nonzero, |x, c| x[0].mul(&x[1]).mul(&x[2]);
    div pair [Plain, Apart], Nonzero, |x, c| x[0].div(&x[1]);
    div "a number" any [Apart], Nonzero, |x, c| 0.75 / &x[0];
    remainder pair [Remaining, Divisor], Zero, |x, c| x[0].remainder(&x[1]);
    fmod pair [Remaining, Divisor], Zero, |x, c| x[0].fmod(&x[1]);
    pow pair [Positive, Plain], Nonzero, |x, c| x[0].pow(&x[1]);
    maximum pair [Rival], Zero, |x, c| x[0].maximum(&x[1]);
    minimum pair [Rival], Zero, |x, c| x[0].minimum(&x[1]);
    where_ pair [Plain], Zero, |x, c| Var::where_(&c.mask(&c.common(x)), &x[0], &x[1]);
    where_ "row of conditions" pair [Plain], Zero, |x, c| Var::where_(&c.mask(&c.last(&c.common(x))), &x[0], &x[1]);

    // Reductions.
    sum any [Plain], Zero, |x, c| x[0].sum(c.axes(&x[0]));
    sum "all" any [Plain], Zero, |x, c| x[0].sum(..);
    sum_keepdim any [Plain], Zero, |x, c| x[0].sum_keepdim(c.axes(&x[0]));
    sum_to any [Plain], Zero, |x, c| x[0].sum_to(c.thinned(&x[0]));
    mean reduced [Plain], Zero, |x, c| x[0].mean(c.axes(&x[0]));
    mean_keepdim reduced [Plain], Zero, |x, c| x[0].mean_keepdim(c.axes(&x[0]));
    prod any [NearOne], Nonzero, |x, c| x[0].prod(c.axes(&x[0]));
    prod_keepdim any [NearOne], Nonzero, |x, c| x[0].prod_keepdim(c.axes(&x[0]));
    prod "all" short_line [Plain], Nonzero, |x, c| x[0].prod(..);
    max reduced [Distinct], Zero, |x, c| x[0].max(c.axes(&x[0]));
    max_keepdim reduced [Distinct], Zero, |x, c| x[0].max_keepdim(c.axes(&x[0]));
    min reduced [Distinct], Zero, |x, c| x[0].min(c.axes(&x[0]));
    min_keepdim reduced [Distinct], Zero, |x, c| x[0].min_keepdim(c.axes(&x[0]));
    var reduced2 [Distinct], Nonzero, |x, c| x[0].var(c.axes(&x[0]), 1);
    var_keepdim reduced2 [Distinct], Nonzero, |x, c| x[0].var_keepdim(c.axes(&x[0]), 1);
    var "population" reduced [Plain], Nonzero, |x, c| x[0].var(c.axes(&x[0]), 0);
    std reduced2 [Distinct], Nonzero, |x, c| x[0].std(c.axes(&x[0]), 1);
    std_keepdim reduced2 [Distinct], Nonzero, |x, c| x[0].std_keepdim(c.axes(&x[0]), 1);
    std "population" reduced2 [Distinct], Nonzero, |x, c| x[0].std(c.axes(&x[0]), 0);
    logsumexp reduced [Plain], Nonzero, |x, c| x[0].logsumexp(c.axes(&x[0]));
    logsumexp_keepdim reduced [Plain], Nonzero, |x, c| x[0].logsumexp_keepdim(c.axes(&x[0]));
    norm reduced [Apart], Nonzero, |x, c| x[0].norm(c.axes(&x[0]));
    norm_keepdim reduced [Apart], Nonzero, |x, c| x[0].norm_keepdim(c.axes(&x[0]));
    vector_norm "3" reduced [Apart], Nonzero, |x, c| x[0].vector_norm(c.axes(&x[0]), 3.0);
    vector_norm "1.5" reduced [Apart], Nonzero, |x, c| x[0].vector_norm(c.axes(&x[0]), 1.5);
    vector_norm "1/2" reduced [Apart], Nonzero, |x, c| x[0].vector_norm(c.axes(&x[0]), 0.5);
    vector_norm "-1" reduced [Apart], Nonzero, |x, c| x[0].vector_norm(c.axes(&x[0]), -1.0);
    vector_norm "1" reduced [Apart], Zero, |x, c| x[0].vector_norm(c.axes(&x[0]), 1.0);
    vector_norm "0" reduced [Apart], Zero, |x, c| x[0].vector_norm(c.axes(&x[0]), 0.0);
    vector_norm "largest" reduced [Magnitudes], Zero, |x, c| x[0].vector_norm(c.axes(&x[0]), f64::INFINITY);
    vector_norm "smallest" reduced [Magnitudes], Zero, |x, c| x[0].vector_norm(c.axes(&x[0]), f64::NEG_INFINITY);
    vector_norm_keepdim reduced [Apart], Nonzero, |x, c| x[0].vector_norm_keepdim(c.axes(&x[0]), 3.0);
    normalize reduced [Apart], Nonzero, |x, c| x[0].normalize(c.axes(&x[0]), 2.0, 1e-12);
    normalize "1" reduced [Apart], Nonzero, |x, c| x[0].normalize(c.axes(&x[0]), 1.0, 1e-12);
    normalize "3" reduced [Apart], Nonzero, |x, c| x[0].normalize(c.axes(&x[0]), 3.0, 1e-12);
    normalize "near 0" reduced [Plain], Zero, |x, c| x[0].normalize(c.axes(&x[0]), 2.0, 1e3);
    quantile reduced [Distinct], Zero, |x, c| x[0].quantile(c.axes(&x[0]), 0.3);
    quantile "near the upper" reduced [Distinct], Zero, |x, c| x[0].quantile(c.axes(&x[0]), 0.95);
    median reduced [Distinct], Zero, |x, c| x[0].median(c.axes(&x[0]));
    trace matrix [Plain], Zero, |x, c| x[0].trace();
    cumprod line [NearOne], Nonzero, |x, c| x[0].cumprod(c.axis(&x[0]));
    cumsum line [Plain], Zero, |x, c| x[0].cumsum(c.axis(&x[0]));

    // Softmax, normalisation, losses.
    softmax line [Plain], Nonzero, |x, c| x[0].softmax(c.axis(&x[0]));
    log_softmax line [Plain], Nonzero, |x, c| x[0].log_softmax(c.axis(&x[0]));
    masked_softmax line [Plain], Nonzero, |x, c| x[0].masked_softmax(c.axis(&x[0]), &c.mask(x[0].shape()));
    masked_softmax "row of masks" line [Plain], Nonzero, |x, c| x[0].masked_softmax(-1, &c.mask(&c.last(x[0].shape())));
    layer_norm rows2 [Rugged], Nonzero, |x, c| x[0].layer_norm(None, None, 1e-5);
    layer_norm "weight" rows2_weight [Rugged, Plain], Nonzero, |x, c| x[0].layer_norm(Some(&x[1]), None, 1e-5);
    layer_norm "bias" rows2_weight [Rugged, Plain], Nonzero, |x, c| x[0].layer_norm(None, Some(&x[1]), 1e-5);
    layer_norm "weight and bias" rows2_weight_bias [Rugged, Plain], Nonzero, |x, c| x[0].layer_norm(Some(&x[1]), Some(&x[2]), 1e-5);
    layer_norm "large eps" rows_weight_bias [Plain], Nonzero, |x, c| x[0].layer_norm(Some(&x[1]), Some(&x[2]), 0.5);
    rms_norm line [Apart], Nonzero, |x, c| x[0].rms_norm(None, 1e-5);
    rms_norm "weight" rows_weight [Apart], Nonzero, |x, c| x[0].rms_norm(Some(&x[1]), 1e-5);
    layer_norm_over matrices_weight_bias [Rugged, Plain], Nonzero, |x, c| x[0].layer_norm_over(x[1].shape(), Some(&x[1]), Some(&x[2]), 1e-5);
    layer_norm_over "one axis" rows2 [Rugged], Nonzero, |x, c| x[0].layer_norm_over(&x[0].shape()[x[0].rank() - 1..], None, None, 1e-5);
    layer_norm_with_stats "the norm" matrices_weight_bias [Rugged, Plain], Nonzero, |x, c| x[0].layer_norm_with_stats(x[1].shape(), Some(&x[1]), Some(&x[2]), 1e-5).0;
    layer_norm_with_stats "the mean" matrices [Rugged], Zero, |x, c| x[0].layer_norm_with_stats(&x[0].shape()[x[0].rank() - 2..], None, None, 1e-5).1;
    layer_norm_with_stats "the inverse deviation" matrices [Rugged], Nonzero, |x, c| x[0].layer_norm_with_stats(&x[0].shape()[x[0].rank() - 2..], None, None, 1e-5).2;
    rms_norm_over matrices_weight_bias [Apart], Nonzero, |x, c| x[0].rms_norm_over(x[1].shape(), Some(&x[1].add(&x[2])), 1e-5);
    cross_entropy classes [Plain], Nonzero, |x, c| x[0].cross_entropy(&c.targets(&x[0]), CrossEntropy::default());
    cross_entropy "smoothed" classes [Plain], Nonzero, |x, c| x[0].cross_entropy(&c.targets(&x[0]), smooth(0.2));
    cross_entropy "sum" classes [Plain], Nonzero, |x, c| x[0].cross_entropy(&c.targets(&x[0]), by(Reduction::Sum));
    cross_entropy "each" classes [Plain], Nonzero, |x, c| x[0].cross_entropy(&c.targets(&x[0]), by(Reduction::None));
    cross_entropy "each on an axis, smoothed" filled_line [Plain], Nonzero, |x, c| x[0].cross_entropy(&c.targets_on(c.axis(&x[0]), &x[0]), on(c.axis(&x[0]), 0.2, Reduction::None));
    cross_entropy "mean over the batch" classes [Plain], Nonzero, |x, c| x[0].cross_entropy(&c.targets(&x[0]), by(Reduction::BatchMean));
    weighted_cross_entropy classes [Plain], Nonzero, |x, c| x[0].weighted_cross_entropy(&c.targets(&x[0]), &c.weights(x[0].size(-1)), CrossEntropy::default());
    weighted_cross_entropy "smoothed" classes [Plain], Nonzero, |x, c| x[0].weighted_cross_entropy(&c.targets(&x[0]), &c.weights(x[0].size(-1)), smooth(0.2));
    weighted_cross_entropy "each on an axis, smoothed" filled_line [Plain], Nonzero, |x, c| x[0].weighted_cross_entropy(&c.targets_on(c.axis(&x[0]), &x[0]), &c.weights(x[0].size(c.axis(&x[0]))), on(c.axis(&x[0]), 0.2, Reduction::None));
    nll_loss classes [Plain], Zero, |x, c| x[0].nll_loss(&c.targets(&x[0]), CrossEntropy::default());
    nll_loss "each on an axis, smoothed" filled_line [Plain], Zero, |x, c| x[0].nll_loss(&c.targets_on(c.axis(&x[0]), &x[0]), on(c.axis(&x[0]), 0.2, Reduction::None));
    weighted_nll_loss classes [Plain], Zero, |x, c| x[0].weighted_nll_loss(&c.targets(&x[0]), &c.weights(x[0].size(-1)), CrossEntropy::default());
    linear_cross_entropy linear [Plain], Nonzero, |x, c| x[0].linear_cross_entropy(&x[1], &c.targets(&x[0].matmul(&x[1].t())), CrossEntropy::default());
    linear_cross_entropy "smoothed" linear [Plain], Nonzero, |x, c| x[0].linear_cross_entropy(&x[1], &c.targets(&x[0].matmul(&x[1].t())), smooth(0.2));
    linear_cross_entropy "each" linear [Plain], Nonzero, |x, c| x[0].linear_cross_entropy(&x[1], &c.targets(&x[0].matmul(&x[1].t())), by(Reduction::None));
    linear_cross_entropy "sum" linear [Plain], Nonzero, |x, c| x[0].linear_cross_entropy(&x[1], &c.targets(&x[0].matmul(&x[1].t())), by(Reduction::Sum));
    mse_loss equal_pair [Plain], Nonzero, |x, c| x[0].mse_loss(&x[1], Reduction::Mean);
    mse_loss "each" equal_pair [Plain], Nonzero, |x, c| x[0].mse_loss(&x[1], Reduction::None);
    l1_loss equal_pair [Rival], Zero, |x, c| x[0].l1_loss(&x[1], Reduction::Sum);
    huber_loss equal_pair [Low, High], Nonzero, |x, c| x[0].huber_loss(&x[1], 2.0, Reduction::Sum),
        y "delta · (|x| − min(|x|, delta)) + 0.5 · min(|x|, delta)²", dx "g · max(−delta, min(delta, x))";
    huber_loss "lines" equal_pair [Low, High], Zero, |x, c| x[0].huber_loss(&x[1], 0.25, Reduction::Mean);
    smooth_l1_loss equal_pair [Low, High], Nonzero, |x, c| x[0].smooth_l1_loss(&x[1], 2.0, Reduction::BatchMean);
    smooth_l1_loss "beta 0" equal_pair [Rival], Zero, |x, c| x[0].smooth_l1_loss(&x[1], 0.0, Reduction::Mean);
    binary_cross_entropy equal_pair [Probability], Nonzero, |x, c| x[0].binary_cross_entropy(&x[1], Reduction::Sum);
    binary_cross_entropy "each" equal_pair [Probability], Nonzero, |x, c| x[0].binary_cross_entropy(&x[1], Reduction::None);
    binary_cross_entropy_with_logits equal_pair [Plain, Probability], Nonzero, |x, c| x[0].binary_cross_entropy_with_logits(&x[1], None, Reduction::Mean);
    binary_cross_entropy_with_logits "weight" equal_pair [Plain, Probability], Nonzero, |x, c| x[0].binary_cross_entropy_with_logits(&x[1], Some(&c.weights_of(x[0].shape())), Reduction::None);
    kl_div equal_pair [Plain, Positive], Nonzero, |x, c| x[0].kl_div(&x[1], false, Reduction::BatchMean);
    kl_div "log target" equal_pair [Plain], Nonzero, |x, c| x[0].kl_div(&x[1], true, Reduction::None);
    dropout any [Plain], Zero, |x, c| x[0].dropout(0.4, c.key());

    map_gradient any [Plain], Zero, |x, c| x[0].map_gradient(|g| g.neg().neg());

    // Masks.
    masked_fill any [Plain], Zero, |x, c| x[0].masked_fill(&c.mask(x[0].shape()), -1.5);
    masked_fill "row of masks" any [Plain], Zero, |x, c| x[0].masked_fill(&c.mask(&c.last(x[0].shape())), -1.5);
    tril matrix [Plain], Zero, |x, c| x[0].tril(c.below(5) as isize - 2);
    triu matrix [Plain], Zero, |x, c| x[0].triu(c.below(5) as isize - 2);

    // Products of matrices.
    linear linear [Plain], Nonzero, |x, c| x[0].linear(&x[1], None);
    linear "bias" affine [Plain], Nonzero, |x, c| x[0].linear(&x[1], Some(&x[2]));
    linear_add linear [Plain], Nonzero, |x, c| x[0].linear_add(&x[1], None, &x[0].matmul(&x[1].t()).sin());
    linear_add "bias" affine [Plain], Nonzero, |x, c| x[0].linear_add(&x[1], Some(&x[2]), &x[0].linear(&x[1], None).square());
    linear_activation linear [Plain], Nonzero, |x, c| x[0].linear_activation(&x[1], None, Gelu);
    linear_activation "bias" affine [Plain], Nonzero, |x, c| x[0].linear_activation(&x[1], Some(&x[2]), Tanh);
    feed_forward feed_forward [Plain], Nonzero, |x, c| x[0].feed_forward((&x[1], None), Silu, (&x[2], None));
    feed_forward "biases" feed_forward [Plain], Nonzero, |x, c| x[0].feed_forward((&x[1], Some(&x[2].sum(0))), Gelu, (&x[2], Some(&x[2].sum(1))));
    feed_forward_add feed_forward [Plain], Nonzero, |x, c| x[0].feed_forward_add((&x[1], None), Gelu, (&x[2], Some(&x[2].sum(1))), &x[0].linear(&x[1], None).linear(&x[2], None));
    matmul factors [Plain], Nonzero, |x, c| x[0].matmul(&x[1]);
    depthwise_conv1d convolution [Plain], Nonzero, |x, c| x[0].depthwise_conv1d(&x[1]);
    run "a diagonal transition" recurrence [Plain], Nonzero, |x, c| { let (of, state) = recurrence_of(x, false); let [y, _] = of.run(Some(&state)); y };
    run "a transition of low rank" recurrence_without_decay [Plain], Nonzero, |x, c| { let (of, state) = recurrence_of(x, true); rejoin(&of.run(Some(&state)), -2) };
    run "all terms" recurrence [Plain], Nonzero, |x, c| { let (of, state) = recurrence_of(x, true); rejoin(&of.run(Some(&state)), -2) };
    steps steps [Plain], Nonzero, |x, c| { let (of, state) = recurrence_of(x, true); rejoin(&of.steps(Some(&state)), -2) };
    weights recurrence [Plain], Nonzero, |x, c| { let (of, state) = recurrence_of(x, true); rejoin(&[of.weights().matmul(&of.v), state], -2) };
    matmul "square" square_factors [Plain], Nonzero, |x, c| x[0].matmul(&x[1]);
    matmul "by its transpose" matrix [Plain], Nonzero, |x, c| x[0].matmul(&x[0].t());
    dot vectors [Plain], Nonzero, |x, c| x[0].dot(&x[1]);
    outer any_vectors [Plain], Nonzero, |x, c| x[0].outer(&x[1]);
    einsum "product" plain_factors [Plain], Nonzero, |x, c| Var::einsum("ij,jk->ki", &[&x[0], &x[1]]);
    einsum "batched" batched_factors [Plain], Nonzero, |x, c| Var::einsum("bij,bjk->ibk", &[&x[0], &x[1]]);
    einsum "diagonal" square_matrix [Plain], Zero, |x, c| Var::einsum("ii->i", &[&x[0]]);
    einsum "batch of any rank" factors_of_any_batch [Plain], Nonzero, |x, c| Var::einsum("...ij,...jk->...ik", &[&x[0], &x[1]]);
    einsum "broadcast" pair_of_matrices [Plain], Nonzero, |x, c| Var::einsum("ij,ij->ji", &[&x[0], &x[1]]);
    einsum "bilinear" bilinear [Plain], Nonzero, |x, c| Var::einsum("i,ij,j->", &[&x[0], &x[1], &x[2]]);

    // Indices.
    gather line [Plain], Zero, |x, c| x[0].gather(c.axis(&x[0]), &c.gather_index(&x[0]));
    scatter_add scatter [Plain], Zero, |x, c| x[0].scatter_add(c.axis(&x[0]), &c.index(x[1].shape(), x[0].size(c.axis(&x[0]))), &x[1]);
    index_select line [Plain], Zero, |x, c| x[0].index_select(c.axis(&x[0]), &c.some_of_axis(&x[0]));
    index_add index_addition [Plain], Zero, |x, c| x[0].index_add(c.axis(&x[0]), &c.index(&[x[1].size(c.axis(&x[0]))].into(), x[0].size(c.axis(&x[0]))), &x[1]);
    masked_select any [Plain], Zero, |x, c| x[0].masked_select(&c.mask(x[0].shape()));
    masked_select "broadcast" any [Plain], Zero, |x, c| x[0].masked_select(&c.mask(&c.widened(x[0].shape())));
    embedding table [Plain], Zero, |x, c| x[0].embedding(&c.index(&c.index_shape(), x[0].size(0)));
    sort line [Distinct], Zero, |x, c| x[0].sort(c.axis(&x[0]), c.flag()).0;
    topk line [Distinct], Zero, |x, c| x[0].topk(c.axis(&x[0]), c.up_to(x[0].size(c.axis(&x[0]))), c.flag()).0;

    // Assignment.
    slice_assign assigned [Plain], Zero, |x, c| x[0].slice_assign(&c.indices(x[0].shape())[..], &x[1]);
    slice_assign "a number" line [Plain], Zero, |x, c| x[0].slice_assign(&c.indices(x[0].shape())[..], 0.75);
    select_scatter with_slice [Plain], Zero, |x, c| x[0].select_scatter(c.axis(&x[0]), c.below(x[0].size(c.axis(&x[0]))), &x[1]);
    as_strided_scatter with_gaps [Plain], Zero, |x, c| x[0].as_strided_scatter(c.every_other(x[1].shape()), &x[1]);
    scatter scatter [Plain], Zero, |x, c| x[0].scatter(c.axis(&x[0]), &c.index(x[1].shape(), x[0].size(c.axis(&x[0]))), &x[1]);
    scatter "a number" line_and_number [Plain], Zero, |x, c| x[0].scatter(c.axis(&x[0]), &c.gather_index(&x[0]), &x[1]);
    scatter_reduce "sum" scatter [Plain], Zero, |x, c| x[0].scatter_reduce(c.axis(&x[0]), &c.index(x[1].shape(), x[0].size(c.axis(&x[0]))), &x[1], ScatterReduce::Sum);
    scatter_reduce "product" scatter [NearOne], Nonzero, |x, c| x[0].scatter_reduce(c.axis(&x[0]), &c.index(x[1].shape(), x[0].size(c.axis(&x[0]))), &x[1], ScatterReduce::Prod);
    scatter_reduce "largest" scatter [Rival], Zero, |x, c| x[0].scatter_reduce(c.axis(&x[0]), &c.index(x[1].shape(), x[0].size(c.axis(&x[0]))), &x[1], ScatterReduce::Amax);
    scatter_reduce "smallest" scatter [Rival], Zero, |x, c| x[0].scatter_reduce(c.axis(&x[0]), &c.index(x[1].shape(), x[0].size(c.axis(&x[0]))), &x[1], ScatterReduce::Amin);

    // Joining.
    cat parts [Plain], Zero, |x, c| Var::cat(&[&x[0], &x[1], &x[2]], c.axis(&x[0]));
    stack equals [Plain], Zero, |x, c| Var::stack(&[&x[0], &x[1], &x[2]], c.new_axis(&x[0]));
    pad line [Plain], Zero, |x, c| x[0].pad(c.axis(&x[0]), c.below(3), c.up_to(2), 0.5);

    // Views.
    as_strided "overlapping" line [Plain], Zero, |x, c| x[0].as_strided(c.windows(x[0].shape()));
    as_strided "backwards" line [Plain], Zero, |x, c| x[0].as_strided(c.backwards(x[0].shape()));
    as_strided_adjoint "gaps" line [Plain], Zero, |x, c| x[0].as_strided_adjoint(c.doubled(x[0].shape()), c.every_other(x[0].shape()));
    as_strided_adjoint "overlapping" line [Plain], Zero, |x, c| x[0].as_strided_adjoint(x[0].shape().without(0), c.repeated(x[0].shape()));
    reshape any [Plain], Zero, |x, c| x[0].reshape(c.reshaped(x[0].shape()));
    reshape "inferred" filled [Plain], Zero, |x, c| x[0].reshape([INFER, 1]);
    flatten any [Plain], Zero, |x, c| x[0].flatten();
    permute any [Plain], Zero, |x, c| x[0].permute(c.order(&x[0]));
    transpose line [Plain], Zero, |x, c| x[0].transpose(c.axis(&x[0]), -1);
    t matrix [Plain], Zero, |x, c| x[0].t();
    broadcast_to any [Plain], Zero, |x, c| x[0].broadcast_to(c.widened(x[0].shape()));
    squeeze with_one [Plain], Zero, |x, c| x[0].squeeze(c.axis(&x[0]));
    unsqueeze any [Plain], Zero, |x, c| x[0].unsqueeze(c.new_axis(&x[0]));
    i line [Plain], Zero, |x, c| x[0].i(&c.indices(x[0].shape())[..]);
    slice line [Plain], Zero, |x, c| x[0].slice(c.axis(&x[0]), c.range(&x[0]));
    slice_step line [Plain], Zero, |x, c| x[0].slice_step(c.axis(&x[0]), c.range(&x[0]), [2, -2, 3, -1][c.below(4)]);
    narrow line [Plain], Zero, |x, c| x[0].narrow(c.axis(&x[0]), c.range(&x[0]).start, c.range(&x[0]).len());
    flip line [Plain], Zero, |x, c| x[0].flip(c.axis(&x[0]));
    flip "several axes" any [Plain], Zero, |x, c| x[0].flip(c.axes(&x[0]));
    repeat any [Plain], Zero, |x, c| x[0].repeat(&c.times(x[0].rank()));
    tile line [Plain], Zero, |x, c| x[0].tile(&[1 + c.below(3)]);
    repeat_interleave line [Plain], Zero, |x, c| x[0].repeat_interleave(c.axis(&x[0]), c.up_to(3));
    roll line [Plain], Zero, |x, c| x[0].roll(c.axis(&x[0]), c.below(9) as isize - 4);
    diag "of a vector" short_vector [Plain], Zero, |x, c| x[0].diag(c.below(5) as isize - 2);
    diag "of a matrix" plane [Plain], Zero, |x, c| x[0].diag(c.below(5) as isize - 2);
    diag_embed narrow_line [Plain], Zero, |x, c| x[0].diag_embed(c.below(5) as isize - 2);
    rows line [Plain], Zero, |x, c| rejoin(&std::iter::once(x[0].narrow(0, 0, 0)).chain(x[0].rows().map(|y| y.unsqueeze(0))).collect::<Vec<_>>(), 0);
    select filled_line [Plain], Zero, |x, c| x[0].select(c.axis(&x[0]), c.below(x[0].size(c.axis(&x[0]))));
    diagonal matrix [Plain], Zero, |x, c| x[0].diagonal(-1, 0, c.below(5) as isize - 2);
    unfold filled_line [Plain], Zero, |x, c| x[0].unfold(c.axis(&x[0]), 1 + c.below(x[0].size(c.axis(&x[0])).min(4)), 1 + c.below(3));
    split line [Plain], Zero, |x, c| rejoin(&x[0].split(c.axis(&x[0]), &c.cuts(x[0].size(c.axis(&x[0])))), c.axis(&x[0]));
    chunk line [Plain], Zero, |x, c| rejoin(&x[0].chunk(c.axis(&x[0]), 1 + c.below(4)), c.axis(&x[0]));
];
