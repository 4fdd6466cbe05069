//! Losses of classes: cross-entropy, and the negative log-likelihood.

use crate::graph::{Cx, InputGrads, Tangents, Var};
use crate::observe::saved;
use crate::op::{Op, Product};
use crate::ops::norm::sum;
use crate::record::{Fused, Slot, constant_result, is_recorded};
use retrograd_tensor::observe::is_observed;
use retrograd_tensor::ops::loss::{CrossEntropy, LogSums, Reduction};
use retrograd_tensor::{Integer, Real, Shape, Tensor};

static CROSS_ENTROPY: Op = Op::new("cross_entropy", &["x"]).formula(
    "y = −ln softmax(x)[target], averaged over the targets",
    "dx = g · (softmax(x) − onehot(target)) / n",
);
static LINEAR_CROSS_ENTROPY: Op = Op::new("linear_cross_entropy", &["x", "w"])
    .computes(|shapes| {
        let logits = shapes.with_last("x", shapes.of("w")[0]);
        vec![Product::new(["x", "w"], logits, shapes.last("x"))]
    })
    .formula(
        "y = −ln softmax(x wᵀ)[target], averaged over the targets",
        "dx = h w, h = g · (softmax(x wᵀ) − onehot(target)) / n\ndw = hᵀ x",
    );

struct OfLogits<T: Real, I: Integer> {
    logits: Slot<T>,
    sums: LogSums<T>,
    targets: Tensor<I>,
    weights: Option<Tensor<T>>,
    options: CrossEntropy,
}

impl<T: Real, I: Integer> Fused<T> for OfLogits<T, I> {
    fn vjp(&self, [g]: [&Tensor<T>; 1]) -> InputGrads<T> {
        InputGrads::of(&self.logits, || {
            let logits = self.logits.value();
            logits.cross_entropy_vjp_from(&self.sums, &self.targets, self.options, g)
        })
    }

    fn jvp(&self, t: Tangents<'_, T>) -> Option<[Tensor<T>; 1]> {
        if self.options.reduction == Reduction::None {
            return None;
        }
        let one = Tensor::scalar(T::ONE);
        let logits = self.logits.value();
        let dx = logits.cross_entropy_vjp_from(&self.sums, &self.targets, self.options, &one);
        Some([dx.mul(t.value(&self.logits)?).sum(..)])
    }

    fn definition(&self, cx: &Cx<'_, T>) -> [Var<T>; 1] {
        let weights = self.weights.as_ref();
        [definition(&cx.input(&self.logits), &self.targets, weights, self.options)]
    }
}

/// The gradients, which the forward pass computes, are saved.
struct OfLinear<T: Real, I: Integer> {
    x: Slot<T>,
    weight: Slot<T>,
    /// Gradients of the loss itself.
    dx: Tensor<T>,
    dw: Tensor<T>,
    targets: Tensor<I>,
    options: CrossEntropy,
}

impl<T: Real, I: Integer> Fused<T> for OfLinear<T, I> {
    fn vjp(&self, [g]: [&Tensor<T>; 1]) -> InputGrads<T> {
        let g = g.item();
        let times_g = |d: &Tensor<T>| if g == T::ONE { d.clone() } else { d.mul_scalar(g) };
        InputGrads::of(&self.x, || times_g(&self.dx)).and(&self.weight, || times_g(&self.dw))
    }

    fn jvp(&self, t: Tangents<'_, T>) -> Option<[Tensor<T>; 1]> {
        let dot = |d: &Tensor<T>, slot| t.value(slot).map(|t| d.mul(t).sum(..));
        Some([sum([dot(&self.dx, &self.x), dot(&self.dw, &self.weight)])?])
    }

    fn definition(&self, cx: &Cx<'_, T>) -> [Var<T>; 1] {
        let logits = cx.input(&self.x).matmul(&cx.input(&self.weight).t());
        [definition(&logits, &self.targets, None, self.options)]
    }
}

/// The targets of all rows, and how their losses are reduced.
struct Rows {
    /// The class of each row; `None` if the row is ignored.
    classes: Vec<Option<usize>>,
    /// The shape of the targets.
    shape: Shape,
    /// What the sum of the losses is divided by.
    divisor: f64,
}

impl Rows {
    /// Checks the arguments.
    #[track_caller]
    fn new<T: Real, I: Integer>(
        logits: &Var<T>,
        targets: &Tensor<I>,
        weights: Option<&Tensor<T>>,
        options: CrossEntropy,
    ) -> Rows {
        let divisor = options.divisor(logits.shape(), targets, weights);
        let classes = logits.size(options.axis);
        let class = |t: I| if options.ignores(t) { None } else { t.index_in(classes) };
        let classes = targets.to_vec().into_iter().map(class).collect();
        Rows { classes, shape: *targets.shape(), divisor }
    }

    /// The logits as a matrix, `[rows, classes]`.
    #[track_caller]
    fn flat<T: Real>(&self, logits: &Var<T>, axis: isize) -> Var<T> {
        let rank = logits.rank() as isize;
        let axis = if axis < 0 { rank + axis } else { axis };
        let order: Vec<isize> = (0..rank).filter(|&i| i != axis).chain([axis]).collect();
        logits.permute(order).reshape([self.classes.len(), logits.size(axis)])
    }

    /// The loss of log-probabilities `[rows, classes]`, in ordinary operations. What does not count is
    /// left out by selection: it may be NaN, or minus infinity.
    #[track_caller]
    fn loss<T: Real>(
        &self,
        logs: &Var<T>,
        weights: Option<&Tensor<T>>,
        options: CrossEntropy,
    ) -> Var<T> {
        let classes = logs.size(1);
        let weight = |class: usize| weights.map_or(1.0, |w| w.at(&[class]).to_f64());
        let losses = if options.label_smoothing == 0.0 && classes > 0 {
            let index = |i: &[usize]| self.classes[i[0]].unwrap_or(0) as i64;
            let index = Tensor::from_fn([self.classes.len(), 1], index);
            // 0, and not -0, where nothing counts.
            let negative = |class| 0.0 - weight(class);
            let factor = |i: &[usize]| T::from_f64(self.classes[i[0]].map_or(0.0, negative));
            let factors = Tensor::from_fn([self.classes.len()], factor);
            let picked = logs.gather(1, &index).squeeze(1);
            picked.masked_fill(&factors.eq(T::ZERO), T::ZERO).mul(&Var::constant(factors))
        } else {
            // The wanted distribution of every row times the weights; 0 where the row does not count.
            let spread = options.label_smoothing / classes as f64;
            let wanted = Tensor::from_fn([self.classes.len(), classes], |i| {
                T::from_f64(match self.classes[i[0]] {
                    None => 0.0,
                    Some(t) if t == i[1] => (1.0 - options.label_smoothing + spread) * weight(t),
                    Some(_) => spread * weight(i[1]),
                })
            });
            let logs = logs.masked_fill(&wanted.eq(T::ZERO), T::ZERO);
            logs.mul(&Var::constant(wanted.neg())).sum(-1)
        };
        match options.reduction {
            Reduction::None => losses.reshape(self.shape),
            _ => losses.sum(..) / T::from_f64(self.divisor),
        }
    }
}

/// Cross-entropy in ordinary operations.
fn definition<T: Real, I: Integer>(
    logits: &Var<T>,
    targets: &Tensor<I>,
    weights: Option<&Tensor<T>>,
    options: CrossEntropy,
) -> Var<T> {
    let rows = Rows::new(logits, targets, weights, options);
    let ignored = Tensor::from_fn([rows.classes.len(), 1], |i| rows.classes[i[0]].is_none());
    let logits = rows.flat(logits, options.axis).masked_fill(&ignored, T::ZERO);
    rows.loss(&logits.log_softmax(-1), weights, options)
}

/// The sums, whose tensors are saved.
fn noted<T: Real>(sums: LogSums<T>) -> LogSums<T> {
    if is_observed() {
        sums.tensors().into_iter().for_each(|(name, tensor)| drop(saved(name, tensor.clone())));
    }
    sums
}

/// A node of cross-entropy, with class weights if there are any.
#[track_caller]
fn cross_entropy<T: Real, I: Integer>(
    logits: &Var<T>,
    targets: &Tensor<I>,
    weights: Option<&Tensor<T>>,
    options: CrossEntropy,
) -> Var<T> {
    let (value, sums) = logits.value().cross_entropy_and_log_sums(targets, weights, options);
    let (targets, weights) = (targets.clone(), weights.cloned());
    let [y] = Var::from_fused(&CROSS_ENTROPY, [value], [logits], |[logits]| OfLogits {
        logits: logits.save(),
        sums: noted(sums),
        targets: saved("targets", targets),
        weights: weights.map(|weights| saved("weights", weights)),
        options,
    });
    y
}

/// # Cross-entropy
impl<T: Real> Var<T> {
    /// As [`Tensor::linear_cross_entropy`]. The gradients themselves are kept for the backward pass, not
    /// the logits.
    #[track_caller]
    pub fn linear_cross_entropy<I: Integer>(
        &self,
        weight: &Var<T>,
        targets: &Tensor<I>,
        options: CrossEntropy,
    ) -> Var<T> {
        let (x, w) = (self.value(), weight.value());
        if options.reduction == Reduction::None {
            return self.linear(weight, None).cross_entropy(targets, options);
        }
        if !is_recorded(&[Some(self), Some(weight)]) {
            let value = x.linear_cross_entropy(w, targets, options);
            let inputs = [Some(self), Some(weight)];
            return constant_result(&LINEAR_CROSS_ENTROPY, value, &inputs);
        }
        let (value, dx, dw) = x.linear_cross_entropy_with_gradients(w, targets, options);
        let targets = targets.clone();
        let [y] = Var::from_fused(&LINEAR_CROSS_ENTROPY, [value], [self, weight], |[x, weight]| {
            OfLinear {
                x: x.save(),
                weight: weight.save(),
                dx: saved("dx", dx),
                dw: saved("dw", dw),
                targets: saved("targets", targets),
                options,
            }
        });
        y
    }

    /// As [`Tensor::cross_entropy`]; the gradient of the loss of a row is `softmax(x) - p` with the target's
    /// distribution `p`, and 0 for an ignored row.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let logits = Var::leaf(Tensor::<f64>::zeros([2, 4])); // uniform
    /// let targets = Tensor::from([3i64, -100]); // -100 is ignored
    /// let loss = logits.cross_entropy(&targets, CrossEntropy::default());
    /// let g = loss.backward().get(&logits).unwrap().to_vec();
    /// assert_eq!(g, [0.25, 0.25, 0.25, -0.75, 0.0, 0.0, 0.0, 0.0]);
    /// ```
    #[track_caller]
    pub fn cross_entropy<I: Integer>(&self, targets: &Tensor<I>, options: CrossEntropy) -> Var<T> {
        cross_entropy(self, targets, None, options)
    }

    /// As [`Tensor::weighted_cross_entropy`]. The weights have no gradient.
    #[track_caller]
    pub fn weighted_cross_entropy<I: Integer>(
        &self,
        targets: &Tensor<I>,
        weights: &Tensor<T>,
        options: CrossEntropy,
    ) -> Var<T> {
        cross_entropy(self, targets, Some(weights), options)
    }

    /// Negative log-likelihood of class indices `[..]` under log-probabilities `[.., C]`:
    /// `-x_t` for a row `x` with target `t`, by default the mean. It is [`Var::cross_entropy`] after
    /// [`Var::log_softmax`], with the same options.
    ///
    /// # Panics
    /// As [`Var::cross_entropy`].
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let logs = Var::leaf(Tensor::from([[-1.0f64, -2.0], [-3.0, -0.5]]));
    /// let loss = logs.nll_loss(&Tensor::from([0i64, 1]), CrossEntropy::default());
    /// assert_eq!(loss.item(), (1.0 + 0.5) / 2.0);
    /// assert_eq!(loss.backward().get(&logs).unwrap().to_vec(), [-0.5, 0.0, 0.0, -0.5]);
    /// ```
    #[track_caller]
    pub fn nll_loss<I: Integer>(&self, targets: &Tensor<I>, options: CrossEntropy) -> Var<T> {
        let rows = Rows::new(self, targets, None, options);
        rows.loss(&rows.flat(self, options.axis), None, options)
    }

    /// [`Var::nll_loss`] with a weight `[C]` for each class, as in [`Tensor::weighted_cross_entropy`].
    #[track_caller]
    pub fn weighted_nll_loss<I: Integer>(
        &self,
        targets: &Tensor<I>,
        weights: &Tensor<T>,
        options: CrossEntropy,
    ) -> Var<T> {
        let rows = Rows::new(self, targets, Some(weights), options);
        rows.loss(&rows.flat(self, options.axis), Some(weights), options)
    }
}
