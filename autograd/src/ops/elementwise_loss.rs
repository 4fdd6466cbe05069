//! Losses of pairs of elements: a prediction and a target of the same shape, and a [`Reduction`] of the
//! losses of all pairs. Gradients flow to both.
//!
//! Shapes must be equal. If they were broadcast, predictions `[N, 1]` and targets `[N]` would give a
//! loss of `N²` pairs; PyTorch warns there.

use crate::graph::{Cx, InputGrads, Var};
use crate::observe::saved;
use crate::op::Op;
use crate::record::{Fused, Slot};
use retrograd_tensor::error::{ErrorKind, OrPanic, assert, require};
use retrograd_tensor::ops::loss::Reduction;
use retrograd_tensor::ops::unary::Huber;
use retrograd_tensor::{Real, Tensor};

static BINARY_CROSS_ENTROPY: Op = Op::new("binary_cross_entropy", &["x", "t"])
    .formula("y = −t · ln(x) − (1 − t) · ln(1 − x)", "dx = g · (x − t) / (x · (1 − x))");

static LOGIT_LOSS: Op = Op::new("binary_cross_entropy_with_logits", &["x", "t"]).formula(
    "y = w · t · softplus(−x) + (1 − t) · softplus(x)",
    "dx = g · ((1 − t) · σ(x) − w · t · σ(−x))",
);

/// The rule about shapes.
#[track_caller]
fn check_shapes<T: Real>(op: &'static str, x: &Var<T>, target: &Var<T>) {
    assert(x.shape() == target.shape(), op, ErrorKind::Mismatch, || {
        format!(
            "predictions {:?} need targets of the same shape, got {:?}",
            x.shape(),
            target.shape()
        )
    });
}

/// The reduction of the losses of all elements.
#[track_caller]
fn reduced<T: Real>(losses: &Var<T>, reduction: Reduction) -> Var<T> {
    match reduction {
        Reduction::None => losses.clone(),
        Reduction::Sum => losses.sum(..),
        Reduction::Mean => losses.mean(..),
        Reduction::BatchMean => {
            let batch = losses.shape().first().map_or(1, |&n| n);
            losses.sum(..) / T::from_f64(batch as f64)
        }
    }
}

/// `1 - x`
#[track_caller]
fn one_minus<T: Real>(x: &Var<T>) -> Var<T> {
    x.neg().add_scalar(T::ONE)
}

/// `-(t · ln x + (1 - t) · ln(1 - x))`, with logarithms of at least -100.
#[track_caller]
fn bernoulli<T: Real>(x: &Var<T>, t: &Var<T>) -> Var<T> {
    // ln x and ln(1 - x)
    fn logs<T: Real>(x: &Tensor<T>) -> [Tensor<T>; 2] {
        [x.ln(), x.neg().log1p()].map(|x| x.clamp(T::from_f64(-100.0), T::ZERO))
    }
    let [ln_x, ln_rest] = logs(x.value());
    let value = t.value().mul(&ln_rest.sub(&ln_x)).sub(&ln_rest);
    Var::from_op(&BINARY_CROSS_ENTROPY, value, [x, t], |[x, t]| {
        let (x, t) = (x.save(), t.save_if(x.needs_grad()));
        move |cx, g| {
            let logs = |x: Var<T>| x.ln().clamp(T::from_f64(-100.0), T::ZERO);
            InputGrads::of(&x, || {
                // Finite where x is 0 or 1, as in PyTorch, whose bound has the precision of f32.
                let x = cx.input(&x);
                let least = T::from_f64(1e-12f32.into());
                let variance = x.mul(&one_minus(&x)).clamp(least, T::ONE);
                g.mul(&x.sub(&cx.input(&t)).div(&variance))
            })
            .and(&t, || {
                let x = cx.input(&x);
                g.mul(&logs(one_minus(&x)).sub(&logs(x)))
            })
        }
    })
}

/// Binary cross-entropy of logits.
struct LogitLoss<T: Real> {
    x: Slot<T>,
    t: Slot<T>,
    weight: Tensor<T>,
}

impl<T: Real> Fused<T> for LogitLoss<T> {
    fn vjp(&self, [g]: [&Tensor<T>; 1]) -> InputGrads<T> {
        let (x, t) = (self.x.value(), self.t.value());
        InputGrads::of(&self.x, || x.logit_slope(t, &self.weight).mul(g))
            .and(&self.t, || x.neg().softplus().mul(&self.weight).sub(&x.softplus()).mul(g))
    }

    fn definition(&self, cx: &Cx<'_, T>) -> [Var<T>; 1] {
        let (x, t) = (cx.input(&self.x), cx.input(&self.t));
        let positive = t.mul(&x.neg().softplus()).mul(&Var::constant(self.weight.clone()));
        [positive.add(&one_minus(&t).mul(&x.softplus()))]
    }
}

/// # Losses of elements
impl<T: Real> Var<T> {
    /// Mean squared error: `(x - t)²` of a prediction `x` and a target `t` of the same shape, reduced.
    ///
    /// # Panics
    /// If the shapes differ; they are not broadcast.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let x = Var::leaf(Tensor::from([1.0f64, 5.0]));
    /// let y = Var::constant(Tensor::from([2.0f64, 2.0]));
    /// let loss = x.mse_loss(&y, Reduction::Mean);
    /// assert_eq!(loss.item(), (1.0 + 9.0) / 2.0);
    /// assert_eq!(loss.backward().get(&x).unwrap().to_vec(), [-1.0, 3.0]);
    /// assert_eq!(x.mse_loss(&y, Reduction::None).value().to_vec(), [1.0, 9.0]);
    /// ```
    #[track_caller]
    pub fn mse_loss(&self, target: &Var<T>, reduction: Reduction) -> Var<T> {
        check_shapes("mse_loss", self, target);
        reduced(&self.sub(target).square(), reduction)
    }

    /// Mean absolute error: `|x - y|`, reduced. The derivative where they are equal is 0.
    ///
    /// # Panics
    /// If the shapes differ; they are not broadcast.
    #[track_caller]
    pub fn l1_loss(&self, target: &Var<T>, reduction: Reduction) -> Var<T> {
        check_shapes("l1_loss", self, target);
        reduced(&self.sub(target).abs(), reduction)
    }

    /// `d²/2` where `|d|` is at most `delta`, `delta · (|d| - delta/2)` beyond, for `d = x - y`, reduced.
    ///
    /// Huber 1964.
    ///
    /// # Panics
    /// If the shapes differ, or `delta` is not above 0 and finite.
    #[track_caller]
    pub fn huber_loss(&self, target: &Var<T>, delta: f64, reduction: Reduction) -> Var<T> {
        check_shapes("huber_loss", self, target);
        let rounded = T::from_f64(delta);
        let valid = rounded > T::ZERO && rounded < T::INFINITY;
        assert(valid, "huber_loss", ErrorKind::Value, || {
            format!("delta must be above 0 and finite, got {delta}")
        });
        reduced(&self.sub(target).map(Huber { delta: rounded }), reduction)
    }

    /// `d²/(2 beta)` where `|d|` is at most `beta`, `|d| - beta/2` beyond, for `d = x - y`, reduced: the
    /// Huber loss divided by its `delta`. With a `beta` of 0 it is [`Var::l1_loss`].
    ///
    /// Girshick 2015 (arXiv 1504.08083).
    ///
    /// # Panics
    /// If the shapes differ, or `beta` is negative or not finite.
    #[track_caller]
    pub fn smooth_l1_loss(&self, target: &Var<T>, beta: f64, reduction: Reduction) -> Var<T> {
        check_shapes("smooth_l1_loss", self, target);
        let delta = T::from_f64(beta);
        let valid = delta >= T::ZERO && delta < T::INFINITY;
        assert(valid, "smooth_l1_loss", ErrorKind::Value, || {
            format!("beta must be finite and at least 0, got {beta}")
        });
        let d = self.sub(target);
        let losses = if delta == T::ZERO { d.abs() } else { d.map(Huber { delta }) / delta };
        reduced(&losses, reduction)
    }

    /// Binary cross-entropy `-(y · ln p + (1 - y) · ln(1 - p))` of probabilities `p` and targets `y` in
    /// `[0, 1]`, reduced. Logarithms are at least -100, and the derivative is
    /// `(p - y) / max(p (1 - p), 1e-12)`, as in PyTorch, so both are finite.
    /// [`Var::binary_cross_entropy_with_logits`] is more accurate.
    ///
    /// # Panics
    /// If the shapes differ, or a probability is not in `[0, 1]`.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let p = Var::leaf(Tensor::from([0.5f64, 0.0]));
    /// let y = Var::constant(Tensor::from([1.0f64, 1.0]));
    /// let loss = p.binary_cross_entropy(&y, Reduction::None);
    /// assert_eq!(loss.value().to_vec(), [2f64.ln(), 100.0]);
    /// ```
    #[track_caller]
    pub fn binary_cross_entropy(&self, target: &Var<T>, reduction: Reduction) -> Var<T> {
        check_shapes("binary_cross_entropy", self, target);
        let p = self.value();
        let wrong = p.to_vec().into_iter().find(|p| !(T::ZERO..=T::ONE).contains(p));
        require(wrong.is_none(), "binary_cross_entropy", ErrorKind::Value, || {
            format!("probabilities must be in [0, 1], got {}", wrong.unwrap_or(T::ZERO))
        })
        .map_err(|error| error.hint("binary_cross_entropy_with_logits takes logits"))
        .or_panic();
        reduced(&bernoulli(self, target), reduction)
    }

    /// Binary cross-entropy of logits `x` and targets `y` in `[0, 1]`, reduced:
    /// `-(w · y · ln σ(x) + (1 - y) · ln(1 - σ(x)))`, with the logistic function `σ` and the weight `w`
    /// of positive targets, 1 unless given. `pos_weight` is broadcast to the shape of the logits: one
    /// weight per class, `[C]`, for logits `[N, C]`. It has no gradient.
    ///
    /// It is computed as `w · y · softplus(-x) + (1 - y) · softplus(x)`, which neither overflows nor
    /// cancels.
    ///
    /// # Panics
    /// If the shapes differ, or the weight does not broadcast to them.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let x = Var::leaf(Tensor::from([[0.0f64, 0.0], [0.0, 1000.0]]));
    /// let y = Var::constant(Tensor::from([[1.0f64, 0.0], [0.0, 1.0]]));
    /// let loss = x.binary_cross_entropy_with_logits(&y, None, Reduction::Mean);
    /// assert!((loss.item() - 0.75 * 2f64.ln()).abs() < 1e-12);
    /// let weight = Tensor::from([3.0f64, 1.0]); // positives of class 0 are rare
    /// let loss = x.binary_cross_entropy_with_logits(&y, Some(&weight), Reduction::Sum);
    /// assert!((loss.item() - 5.0 * 2f64.ln()).abs() < 1e-12);
    /// ```
    #[track_caller]
    pub fn binary_cross_entropy_with_logits(
        &self,
        target: &Var<T>,
        pos_weight: Option<&Tensor<T>>,
        reduction: Reduction,
    ) -> Var<T> {
        let op = "binary_cross_entropy_with_logits";
        check_shapes(op, self, target);
        if let Some(weight) = pos_weight {
            let shape = self.shape();
            let mut axes = weight.shape().iter().rev().zip(shape.iter().rev());
            let fits = weight.rank() <= shape.rank() && axes.all(|(w, x)| w == x || *w == 1);
            assert(fits, op, ErrorKind::Broadcast, || {
                format!("a pos_weight {:?} does not broadcast to logits {shape:?}", weight.shape())
            });
        }
        let weight = pos_weight.cloned().unwrap_or_else(|| Tensor::scalar(T::ONE));
        let value = self.value().logit_loss(target.value(), &weight);
        let [losses] = Var::from_fused(&LOGIT_LOSS, [value], [self, target], |[x, t]| LogitLoss {
            x: x.save(),
            t: t.save(),
            weight: saved("pos_weight", weight),
        });
        reduced(&losses, reduction)
    }

    /// Kullback-Leibler divergence `y · (ln y - x)` of targets `y` from **log-probabilities** `x`,
    /// reduced; with `log_target`, the targets are log-probabilities, too: `e^y · (y - x)`. The
    /// divergence of distributions `[N, C]` is [`Reduction::BatchMean`]; the mean divides by `N · C`.
    ///
    /// A target of probability 0 has no influence: its loss and gradients are 0.
    ///
    /// # Panics
    /// If the shapes differ.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let logits = Var::leaf(Tensor::<f64>::zeros([1, 2]));
    /// let x = logits.log_softmax(-1);
    /// let y = Var::constant(Tensor::from([[1.0f64, 0.0]]));
    /// let loss = x.kl_div(&y, false, Reduction::BatchMean);
    /// assert!((loss.item() - 2f64.ln()).abs() < 1e-12); // one bit
    /// assert_eq!(loss.backward().get(&logits).unwrap().to_vec(), [-0.5, 0.5]);
    /// assert_eq!(x.kl_div(&x, true, Reduction::Sum).item(), 0.0);
    /// ```
    #[track_caller]
    pub fn kl_div(&self, target: &Var<T>, log_target: bool, reduction: Reduction) -> Var<T> {
        check_shapes("kl_div", self, target);
        let none = target.value().eq(if log_target { T::NEG_INFINITY } else { T::ZERO });
        let x = self.masked_fill(&none, T::ZERO);
        let losses = if log_target {
            let y = target.masked_fill(&none, T::ZERO);
            y.exp().mul(&y.sub(&x))
        } else {
            let y = target.masked_fill(&none, T::ONE);
            y.mul(&y.ln().sub(&x))
        };
        reduced(&losses, reduction)
    }
}
