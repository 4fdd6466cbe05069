//! Reductions.

use crate::node::{Backward, Cx, Grads};
use crate::ops::through;
use crate::var::Var;
use retrograd_tensor::error::OrPanic;
use retrograd_tensor::shape::inverse_order;
use retrograd_tensor::{Axes, AxisSet, Real, Shape, Tensor};

/// A gradient of the reduced shape, as large as the input again.
fn spread<T: Real>(g: &Var<T>, to: &Shape, axes: AxisSet) -> Var<T> {
    g.reshape(to.reduced(axes, true)).broadcast_to(to)
}

#[derive(Debug)]
struct Sum {
    axes: AxisSet,
}

impl<T: Real> Backward<T> for Sum {
    fn name(&self) -> &'static str {
        "sum"
    }
    fn backward(&self, cx: &Cx<'_, T>, g: &Var<T>) -> Grads<T> {
        vec![Some(spread(g, cx.input_shape(0), self.axes))]
    }
}

/// Undoes a broadcast; spread again by the engine's own broadcast of the gradient.
#[derive(Debug)]
struct SumTo;

impl<T: Real> Backward<T> for SumTo {
    fn name(&self) -> &'static str {
        "sum_to"
    }
    fn backward(&self, cx: &Cx<'_, T>, g: &Var<T>) -> Grads<T> {
        vec![Some(g.broadcast_to(cx.input_shape(0)))]
    }
}

#[derive(Debug)]
struct Prod<T: Real> {
    axes: AxisSet,
    x: Tensor<T>,
}

impl<T: Real> Backward<T> for Prod<T> {
    fn name(&self) -> &'static str {
        "prod"
    }
    fn backward(&self, cx: &Cx<'_, T>, g: &Var<T>) -> Grads<T> {
        if cx.recording() && self.x.numel() > 0 {
            return through(&[cx.input(0, &self.x)], g, |x| product_by_halves(&x[0], self.axes));
        }
        let others = Var::constant(self.x.prod_of_others(self.axes));
        vec![Some(spread(g, self.x.shape(), self.axes).mul(&others))]
    }
}

/// The product, of at least one element, as multiplications of halves, which can be
/// differentiated any number of times.
fn product_by_halves<T: Real>(x: &Var<T>, axes: AxisSet) -> Var<T> {
    let out = x.shape().reduced(axes, false);
    let order = axes.moved_last(x.rank());
    let mut y = x.permute(&order).reshape([out.numel(), x.value().count(axes)]);
    while y.size(-1) > 1 {
        let half = y.size(-1) / 2;
        let (a, b) = (y.narrow(-1, 0, half), y.narrow(-1, half, half));
        let rest = y.narrow(-1, 2 * half, y.size(-1) - 2 * half);
        y = Var::cat(&[&a.mul(&b), &rest], -1);
    }
    y.reshape(out)
}

/// Largest or smallest element: the gradient goes to the first that has the value.
#[derive(Debug)]
struct Extreme {
    name: &'static str,
    axes: AxisSet,
    /// True at the chosen elements.
    chosen: Tensor<bool>,
}

impl<T: Real> Backward<T> for Extreme {
    fn name(&self) -> &'static str {
        self.name
    }
    fn backward(&self, cx: &Cx<'_, T>, g: &Var<T>) -> Grads<T> {
        let g = spread(g, cx.input_shape(0), self.axes);
        vec![Some(g.masked_fill(&!&self.chosen, T::ZERO))]
    }
}

/// True at the first element of each group that `arg` (argmax or argmin) finds.
fn first_of_each<T: Real>(
    x: &Tensor<T>,
    axes: AxisSet,
    arg: impl Fn(&Tensor<T>) -> Tensor<i64>,
) -> Tensor<bool> {
    if x.numel() == 0 {
        return Tensor::zeros(x.shape());
    }
    let order = axes.moved_last(x.rank());
    let moved = x.permute(&order);
    let count = x.count(axes);
    let flat = moved.reshape([x.numel() / count, count]);
    let chosen = Tensor::<T>::one_hot(&arg(&flat), count).reshape(moved.shape());
    chosen.permute(inverse_order(&order)).ne(&Tensor::scalar(T::ZERO))
}

#[derive(Debug)]
struct LogSumExp<T: Real> {
    axes: AxisSet,
    x: Tensor<T>,
    output: Tensor<T>,
}

impl<T: Real> Backward<T> for LogSumExp<T> {
    fn name(&self) -> &'static str {
        "logsumexp"
    }
    fn backward(&self, cx: &Cx<'_, T>, g: &Var<T>) -> Grads<T> {
        // d/dx = softmax(x) = e^(x - y), and 0 where every x is -inf, as y then is.
        let x = cx.input(0, &self.x);
        let nothing = self.output.eq(&Tensor::scalar(T::NEG_INFINITY));
        let y = cx.output(&self.output).masked_fill(&nothing, T::ZERO);
        let y = spread(&y, self.x.shape(), self.axes);
        vec![Some(spread(g, self.x.shape(), self.axes).mul(&x.sub(&y).exp()))]
    }
}

#[derive(Debug)]
struct Norm<T: Real> {
    axes: AxisSet,
    x: Tensor<T>,
    output: Tensor<T>,
}

impl<T: Real> Backward<T> for Norm<T> {
    fn name(&self) -> &'static str {
        "norm"
    }
    fn backward(&self, cx: &Cx<'_, T>, g: &Var<T>) -> Grads<T> {
        // d/dx = x / norm, and 0 where the norm is 0.
        let zero = self.output.eq(&Tensor::scalar(T::ZERO));
        let y = cx.output(&self.output).masked_fill(&zero, T::ONE);
        let share = spread(&g.masked_fill(&zero, T::ZERO).div(&y), self.x.shape(), self.axes);
        vec![Some(share.mul(&cx.input(0, &self.x)))]
    }
}

#[derive(Debug)]
struct Cumsum {
    axis: isize,
}

impl<T: Real> Backward<T> for Cumsum {
    fn name(&self) -> &'static str {
        "cumsum"
    }
    fn backward(&self, _: &Cx<'_, T>, g: &Var<T>) -> Grads<T> {
        vec![Some(g.flip(self.axis).cumsum(self.axis).flip(self.axis))]
    }
}

/// Reductions over axes named as `-1`, `[0, 2]` or `..`; `_keepdim` forms leave them with
/// size 1.
impl<T: Real> Var<T> {
    /// Sum over axes; 0 over nothing.
    #[track_caller]
    pub fn sum(&self, axes: impl Axes) -> Var<T> {
        let axes = axes.resolve("sum", self.shape()).or_panic();
        Var::from_op(self.value().sum(axes), &[self], |_| Sum { axes })
    }

    /// [`Var::sum`], axes kept.
    #[track_caller]
    pub fn sum_keepdim(&self, axes: impl Axes) -> Var<T> {
        let axes = axes.resolve("sum", self.shape()).or_panic();
        Var::from_op(self.value().sum_keepdim(axes), &[self], |_| Sum { axes })
    }

    /// Sum over the axes that were broadcast, so that the result has `shape`.
    #[track_caller]
    pub fn sum_to(&self, shape: impl Into<Shape>) -> Var<T> {
        let shape = shape.into();
        if *self.shape() == shape {
            return self.unchanged();
        }
        Var::from_op(self.value().sum_to(shape), &[self], |_| SumTo)
    }

    /// Mean over axes; NaN over nothing.
    #[track_caller]
    pub fn mean(&self, axes: impl Axes) -> Var<T> {
        let axes = axes.resolve("mean", self.shape()).or_panic();
        self.sum(axes) / T::from_f64(self.value().count(axes) as f64)
    }

    /// [`Var::mean`], axes kept.
    #[track_caller]
    pub fn mean_keepdim(&self, axes: impl Axes) -> Var<T> {
        let axes = axes.resolve("mean", self.shape()).or_panic();
        self.sum_keepdim(axes) / T::from_f64(self.value().count(axes) as f64)
    }

    /// Product over axes; 1 over nothing. The gradient is right also where elements are 0.
    #[track_caller]
    pub fn prod(&self, axes: impl Axes) -> Var<T> {
        let axes = axes.resolve("prod", self.shape()).or_panic();
        let value = self.value().prod(axes);
        Var::from_op(value, &[self], |_| Prod { axes, x: self.value().clone() })
    }

    /// [`Var::prod`], axes kept.
    #[track_caller]
    pub fn prod_keepdim(&self, axes: impl Axes) -> Var<T> {
        let axes = axes.resolve("prod", self.shape()).or_panic();
        self.prod(axes).reshape(self.shape().reduced(axes, true))
    }

    /// Largest element over axes; NaN if there is one. The gradient goes to the first
    /// element that has the value.
    ///
    /// # Panics
    /// If a reduced axis is empty.
    #[track_caller]
    pub fn max(&self, axes: impl Axes) -> Var<T> {
        let axes = axes.resolve("max", self.shape()).or_panic();
        let value = self.value().max(axes);
        let chosen = |x: &Tensor<T>| first_of_each(x, axes, |x| x.argmax(-1));
        Var::from_op(value, &[self], |_| Extreme {
            name: "max",
            axes,
            chosen: chosen(self.value()),
        })
    }

    /// [`Var::max`], axes kept.
    #[track_caller]
    pub fn max_keepdim(&self, axes: impl Axes) -> Var<T> {
        let axes = axes.resolve("max", self.shape()).or_panic();
        self.max(axes).reshape(self.shape().reduced(axes, true))
    }

    /// Smallest element over axes; NaN if there is one. The gradient goes to the first
    /// element that has the value.
    ///
    /// # Panics
    /// If a reduced axis is empty.
    #[track_caller]
    pub fn min(&self, axes: impl Axes) -> Var<T> {
        let axes = axes.resolve("min", self.shape()).or_panic();
        let value = self.value().min(axes);
        let chosen = |x: &Tensor<T>| first_of_each(x, axes, |x| x.argmin(-1));
        Var::from_op(value, &[self], |_| Extreme {
            name: "min",
            axes,
            chosen: chosen(self.value()),
        })
    }

    /// [`Var::min`], axes kept.
    #[track_caller]
    pub fn min_keepdim(&self, axes: impl Axes) -> Var<T> {
        let axes = axes.resolve("min", self.shape()).or_panic();
        self.min(axes).reshape(self.shape().reduced(axes, true))
    }

    /// Variance over axes, `Σ(x - mean)² / (n - correction)`; `correction` 1 is the unbiased
    /// estimate, 0 the variance of the whole population.
    #[track_caller]
    pub fn var(&self, axes: impl Axes, correction: usize) -> Var<T> {
        let axes = axes.resolve("var", self.shape()).or_panic();
        let n = self.value().count(axes).saturating_sub(correction);
        let off = self.sub(&self.mean_keepdim(axes));
        // The mean of large numbers is itself rounded, by as much as the deviations' mean.
        let off = off.sub(&off.mean_keepdim(axes));
        off.square().sum(axes) / T::from_f64(n as f64)
    }

    /// [`Var::var`], axes kept.
    #[track_caller]
    pub fn var_keepdim(&self, axes: impl Axes, correction: usize) -> Var<T> {
        let axes = axes.resolve("var", self.shape()).or_panic();
        self.var(axes, correction).reshape(self.shape().reduced(axes, true))
    }

    /// Standard deviation over axes, `√var`. The derivative is 0 where all elements are equal.
    #[track_caller]
    pub fn std(&self, axes: impl Axes, correction: usize) -> Var<T> {
        let axes = axes.resolve("std", self.shape()).or_panic();
        let var = self.var(axes, correction);
        // That of the root is infinite at 0.
        let zero = var.value().eq(&Tensor::scalar(T::ZERO));
        var.masked_fill(&zero, T::ONE).sqrt().masked_fill(&zero, T::ZERO)
    }

    /// [`Var::std`], axes kept.
    #[track_caller]
    pub fn std_keepdim(&self, axes: impl Axes, correction: usize) -> Var<T> {
        let axes = axes.resolve("std", self.shape()).or_panic();
        self.std(axes, correction).reshape(self.shape().reduced(axes, true))
    }

    /// `ln Σ eˣ` over axes, without overflow; -inf over nothing.
    #[track_caller]
    pub fn logsumexp(&self, axes: impl Axes) -> Var<T> {
        let axes = axes.resolve("logsumexp", self.shape()).or_panic();
        let value = self.value().logsumexp(axes);
        let output = value.clone();
        Var::from_op(value, &[self], |_| LogSumExp { axes, x: self.value().clone(), output })
    }

    /// [`Var::logsumexp`], axes kept.
    #[track_caller]
    pub fn logsumexp_keepdim(&self, axes: impl Axes) -> Var<T> {
        let axes = axes.resolve("logsumexp", self.shape()).or_panic();
        self.logsumexp(axes).reshape(self.shape().reduced(axes, true))
    }

    /// Euclidean norm over axes, `√Σx²`. The derivative at 0 is 0.
    #[track_caller]
    pub fn norm(&self, axes: impl Axes) -> Var<T> {
        let axes = axes.resolve("norm", self.shape()).or_panic();
        let value = self.value().norm(axes);
        let output = value.clone();
        Var::from_op(value, &[self], |_| Norm { axes, x: self.value().clone(), output })
    }

    /// [`Var::norm`], axes kept.
    #[track_caller]
    pub fn norm_keepdim(&self, axes: impl Axes) -> Var<T> {
        let axes = axes.resolve("norm", self.shape()).or_panic();
        self.norm(axes).reshape(self.shape().reduced(axes, true))
    }

    /// Running sum along an axis: `yᵢ = Σ_{j ≤ i} xⱼ`.
    #[track_caller]
    pub fn cumsum(&self, axis: isize) -> Var<T> {
        Var::from_op(self.value().cumsum(axis), &[self], |_| Cumsum { axis })
    }
}
