//! Cross-entropy.

use crate::node::{Backward, Cx, Grads};
use crate::ops::through;
use crate::var::Var;
use retrograd_tensor::ops::loss::{CrossEntropy, LogSums};
use retrograd_tensor::settings::grad_enabled;
use retrograd_tensor::{Integer, Real, Tensor};

#[derive(Debug)]
struct Rule<T: Real, I: Integer> {
    logits: Tensor<T>,
    sums: LogSums<T>,
    targets: Tensor<I>,
    how: CrossEntropy,
}

impl<T: Real, I: Integer> Backward<T> for Rule<T, I> {
    fn name(&self) -> &'static str {
        "cross_entropy"
    }
    fn backward(&self, cx: &Cx<'_, T>, g: &Var<T>) -> Grads<T> {
        if cx.recording() {
            let logits = cx.input(0, &self.logits);
            return through(&[logits], g, |x| {
                composed_cross_entropy(&x[0], &self.targets, self.how)
            });
        }
        let dx = self.logits.cross_entropy_vjp_from(&self.sums, &self.targets, self.how, g.item());
        vec![Some(Var::constant(dx))]
    }
}

/// Cross-entropy of differentiable operations: the definition that the fused kernels are
/// checked against, and what a recorded pass differentiates.
pub fn composed_cross_entropy<T: Real, I: Integer>(
    logits: &Var<T>,
    targets: &Tensor<I>,
    how: CrossEntropy,
) -> Var<T> {
    let classes = logits.size(-1);
    let is_ignored = |t: I| how.ignore_index.is_some_and(|i| t.to_i128() == i as i128);
    let rows: Vec<Option<usize>> = targets
        .to_vec()
        .into_iter()
        .map(|t| if is_ignored(t) { None } else { t.index_in(classes) })
        .collect();
    let counted = rows.iter().flatten().count().max(1);
    // The wanted distribution of every row; 0 where the row does not count.
    let spread = how.label_smoothing / classes as f64;
    let wanted = Tensor::from_fn([rows.len(), classes], |i| {
        T::from_f64(match rows[i[0]] {
            None => 0.0,
            Some(t) if t == i[1] => 1.0 - how.label_smoothing + spread,
            Some(_) => spread,
        })
    });
    // What does not count is left out by selection: it may be NaN, or minus infinity.
    let ignored = Tensor::from_fn([rows.len(), 1], |i| rows[i[0]].is_none());
    let unwanted = wanted.eq(&Tensor::scalar(T::ZERO));
    let flat = logits.reshape([rows.len(), classes]).masked_fill(&ignored, T::ZERO);
    let logs = flat.log_softmax(-1).masked_fill(&unwanted, T::ZERO);
    let loss = logs.mul(&Var::constant(wanted)).sum(..);
    loss / T::from_f64(-(counted as f64))
}

#[derive(Debug)]
struct LinearRule<T: Real, I: Integer> {
    x: Tensor<T>,
    weight: Tensor<T>,
    /// Of a loss whose own gradient is 1.
    dx: Tensor<T>,
    dw: Tensor<T>,
    targets: Tensor<I>,
    how: CrossEntropy,
}

impl<T: Real, I: Integer> Backward<T> for LinearRule<T, I> {
    fn name(&self) -> &'static str {
        "linear_cross_entropy"
    }
    fn backward(&self, cx: &Cx<'_, T>, g: &Var<T>) -> Grads<T> {
        if cx.recording() {
            let inputs = [cx.input(0, &self.x), cx.input(1, &self.weight)];
            return through(&inputs, g, |x| {
                composed_cross_entropy(&x[0].matmul(&x[1].t()), &self.targets, self.how)
            });
        }
        let g = g.item();
        let scaled = |d: &Tensor<T>| if g == T::ONE { d.clone() } else { d.mul_scalar(g) };
        let gradient = |i, d| cx.needs(i).then(|| Var::constant(scaled(d)));
        vec![gradient(0, &self.dx), gradient(1, &self.dw)]
    }
}

impl<T: Real> Var<T> {
    /// Mean cross-entropy of the logits `x · Wᵀ` against class indices `[..]`, a scalar, without
    /// ever holding all logits; see [`Tensor::linear_cross_entropy`]. Shapes: `self` `[.., C]`,
    /// weight `[V, C]`.
    ///
    /// What is kept for the backward pass are the gradients themselves, of the size of `self`
    /// and the weight.
    #[track_caller]
    pub fn linear_cross_entropy<I: Integer>(
        &self,
        weight: &Var<T>,
        targets: &Tensor<I>,
        how: CrossEntropy,
    ) -> Var<T> {
        let (x, w) = (self.value(), weight.value());
        if !grad_enabled() || !(self.is_tracked() || weight.is_tracked()) {
            return Var::constant(x.linear_cross_entropy(w, targets, how));
        }
        let (value, dx, dw) = x.linear_cross_entropy_with_gradients(w, targets, how);
        Var::from_op(value, &[self, weight], |_| LinearRule {
            x: x.clone(),
            weight: w.clone(),
            dx,
            dw,
            targets: targets.clone(),
            how,
        })
    }

    /// Mean cross-entropy of logits `[.., C]` against class indices `[..]`, a scalar; see
    /// [`Tensor::cross_entropy`].
    #[track_caller]
    pub fn cross_entropy<I: Integer>(&self, targets: &Tensor<I>, how: CrossEntropy) -> Var<T> {
        let (value, sums) = self.value().cross_entropy_and_log_sums(targets, how);
        Var::from_op(value, &[self], |_| Rule {
            logits: self.value().clone(),
            sums,
            targets: targets.clone(),
            how,
        })
    }
}
