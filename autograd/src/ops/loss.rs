//! Cross-entropy.

use crate::graph::{Cx, InputGrads, Var};
use crate::op::{Fused, Slot, is_recorded};
use retrograd_tensor::ops::loss::{CrossEntropy, LogSums};
use retrograd_tensor::{Integer, Real, Tensor};

struct OfLogits<T: Real, I: Integer> {
    logits: Slot<T>,
    sums: LogSums<T>,
    targets: Tensor<I>,
    options: CrossEntropy,
}

impl<T: Real, I: Integer> Fused<T> for OfLogits<T, I> {
    const NAME: &'static str = "cross_entropy";

    fn vjp(&self, [g]: [&Tensor<T>; 1]) -> InputGrads<T> {
        InputGrads::of(&self.logits, || {
            let logits = self.logits.value();
            logits.cross_entropy_vjp_from(&self.sums, &self.targets, self.options, g.item())
        })
    }

    fn definition(&self, cx: &Cx<'_, T>) -> [Var<T>; 1] {
        [definition(&cx.input(&self.logits), &self.targets, self.options)]
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
    const NAME: &'static str = "linear_cross_entropy";

    fn vjp(&self, [g]: [&Tensor<T>; 1]) -> InputGrads<T> {
        let g = g.item();
        let times_g = |d: &Tensor<T>| if g == T::ONE { d.clone() } else { d.mul_scalar(g) };
        InputGrads::of(&self.x, || times_g(&self.dx)).and(&self.weight, || times_g(&self.dw))
    }

    fn definition(&self, cx: &Cx<'_, T>) -> [Var<T>; 1] {
        let logits = cx.input(&self.x).matmul(&cx.input(&self.weight).t());
        [definition(&logits, &self.targets, self.options)]
    }
}

/// Cross-entropy in ordinary operations.
fn definition<T: Real, I: Integer>(
    logits: &Var<T>,
    targets: &Tensor<I>,
    options: CrossEntropy,
) -> Var<T> {
    let classes = logits.size(-1);
    let is_ignored = |t: I| options.ignore_index.is_some_and(|i| t.to_i128() == i as i128);
    let rows: Vec<Option<usize>> = targets
        .to_vec()
        .into_iter()
        .map(|t| if is_ignored(t) { None } else { t.index_in(classes) })
        .collect();
    let counted = rows.iter().flatten().count().max(1);
    // The wanted distribution of every row; 0 where the row does not count.
    let spread = options.label_smoothing / classes as f64;
    let wanted = Tensor::from_fn([rows.len(), classes], |i| {
        T::from_f64(match rows[i[0]] {
            None => 0.0,
            Some(t) if t == i[1] => 1.0 - options.label_smoothing + spread,
            Some(_) => spread,
        })
    });
    // What does not count is left out by selection: it may be NaN, or minus infinity.
    let ignored = Tensor::from_fn([rows.len(), 1], |i| rows[i[0]].is_none());
    let unwanted = wanted.eq(T::ZERO);
    let flat = logits.reshape([rows.len(), classes]).masked_fill(&ignored, T::ZERO);
    let logs = flat.log_softmax(-1).masked_fill(&unwanted, T::ZERO);
    let loss = logs.mul(&Var::constant(wanted)).sum(..);
    loss / T::from_f64(-(counted as f64))
}

/// # Cross-entropy
impl<T: Real> Var<T> {
    /// Mean cross-entropy of the logits `x · Wᵀ` against class indices `[..]`, a scalar, without
    /// ever holding all logits; see [`Tensor::linear_cross_entropy`]. Shapes: `self` `[.., C]`,
    /// weight `[V, C]`.
    ///
    /// What is kept for the backward pass are the gradients themselves, of the size of `self`
    /// and the weight.
    ///
    /// ```
    /// # use retrograd_autograd::Var;
    /// # use retrograd_tensor::Tensor;
    /// use retrograd_tensor::ops::loss::CrossEntropy;
    /// let x = Var::leaf(Tensor::from([[1.0f64, 0.0], [0.5, -1.0]]));
    /// let w = Var::leaf(Tensor::from([[0.0f64, 1.0], [1.0, 0.0], [2.0, 3.0]]));
    /// let targets = Tensor::from([1i64, 0]);
    /// let options = CrossEntropy::default();
    /// let fused = x.linear_cross_entropy(&w, &targets, options);
    /// let composed = x.matmul(&w.t()).cross_entropy(&targets, options);
    /// assert!((fused.item() - composed.item()).abs() < 1e-12);
    /// ```
    #[track_caller]
    pub fn linear_cross_entropy<I: Integer>(
        &self,
        weight: &Var<T>,
        targets: &Tensor<I>,
        options: CrossEntropy,
    ) -> Var<T> {
        let (x, w) = (self.value(), weight.value());
        if !is_recorded(&[Some(self), Some(weight)]) {
            return Var::constant(x.linear_cross_entropy(w, targets, options));
        }
        let (value, dx, dw) = x.linear_cross_entropy_with_gradients(w, targets, options);
        let targets = targets.clone();
        let [y] = Var::from_fused([value], [self, weight], |[x, weight]| OfLinear {
            x: x.save(),
            weight: weight.save(),
            dx,
            dw,
            targets,
            options,
        });
        y
    }

    /// Mean cross-entropy of logits `[.., C]` against class indices `[..]`, a scalar; see
    /// [`Tensor::cross_entropy`].
    ///
    /// ```
    /// # use retrograd_autograd::Var;
    /// # use retrograd_tensor::Tensor;
    /// use retrograd_tensor::ops::loss::CrossEntropy;
    /// let logits = Var::leaf(Tensor::<f64>::zeros([2, 4])); // uniform
    /// let loss = logits.cross_entropy(&Tensor::from([3i64, -100]), CrossEntropy::default());
    /// assert!((loss.item() - 4f64.ln()).abs() < 1e-12); // target -100 is ignored
    /// let g = loss.backward().get(&logits).unwrap().to_vec();
    /// assert_eq!(g, [0.25, 0.25, 0.25, -0.75, 0.0, 0.0, 0.0, 0.0]);
    /// ```
    #[track_caller]
    pub fn cross_entropy<I: Integer>(&self, targets: &Tensor<I>, options: CrossEntropy) -> Var<T> {
        let (value, sums) = self.value().cross_entropy_and_log_sums(targets, options);
        let targets = targets.clone();
        let [y] = Var::from_fused([value], [self], |[logits]| OfLogits {
            logits: logits.save(),
            sums,
            targets,
            options,
        });
        y
    }
}
