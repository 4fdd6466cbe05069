//! Reductions.

use crate::graph::{Cx, InputGrads, Var};
use crate::observe::saved;
use crate::op::{Kind, Op};
use crate::record::{Fused, Slot, constant_result, is_recorded};
use retrograd_tensor::error::OrPanic;
use retrograd_tensor::shape::inverse_order;
use retrograd_tensor::{Axes, AxisSet, IntoShape, Real, Shape, Tensor};

static SUM: Op = Op::new("sum", &["x"])
    .kind(Kind::Sum)
    .formula("y = Σ x, over the axes", "dx = g, for each element of the sum");
static PROD: Op =
    Op::new("prod", &["x"]).formula("y = Π x, over the axis", "dx = g · the product of the others");
static CUMSUM: Op =
    Op::new("cumsum", &["x"]).formula("y_i = x_0 + … + x_i", "dx_i = g_i + … + g_n");
static CUMPROD: Op = Op::new("cumprod", &["x"])
    .formula("y_i = x_0 · … · x_i", "dx_i = Σ_{j ≥ i} g_j · the product of x_0 … x_j without x_i");
static SUM_TO: Op = Op::new("sum_to", &["x"])
    .formula("y = Σ x, over the axes that broadcasting added", "dx = g, broadcast");
static MAX: Op = Op::new("max", &["x"])
    .formula("y = max x, over the axis", "dx = g at the first largest element");
static MIN: Op = Op::new("min", &["x"])
    .formula("y = min x, over the axis", "dx = g at the first smallest element");
static SQUARED_DEVIATIONS: Op = Op::new("squared_deviations", &["x"])
    .formula("y = Σ (x − mean)², over the axes", "dx = 2g · (x − mean)");
static LOGSUMEXP: Op =
    Op::new("logsumexp", &["x"]).formula("y = ln Σ e^x, over the axis", "dx = g · e^(x − y)");
static NORM: Op = Op::new("norm", &["x"]).formula("y = √(Σ x²)", "dx = g · x / y");

/// `g`, which has the reduced shape, broadcast along the reduced axes to the shape `to`.
#[track_caller]
pub(super) fn spread<T: Real>(g: &Var<T>, to: &Shape, axes: AxisSet) -> Var<T> {
    g.reshape(to.reduced(axes, true)).broadcast_to(to)
}

/// Records the node of a sum along `axes`.
#[track_caller]
fn sum_node<T: Real>(x: &Var<T>, value: Tensor<T>, axes: AxisSet) -> Var<T> {
    Var::from_op(SUM.with("axes", axes), value, [x], |[x]| {
        let x = x.slot();
        move |cx, g| InputGrads::of(&x, || spread(g, cx.shape(&x), axes))
    })
}

struct Prod<T: Real> {
    x: Slot<T>,
    axes: AxisSet,
}

impl<T: Real> Fused<T> for Prod<T> {
    fn vjp(&self, [g]: [&Tensor<T>; 1]) -> InputGrads<T> {
        let x = self.x.value();
        let g = spread(&Var::constant(g.clone()), x.shape(), self.axes);
        InputGrads::of(&self.x, || g.value().mul(&x.prod_of_others(self.axes)))
    }

    fn definition(&self, cx: &Cx<'_, T>) -> [Var<T>; 1] {
        [product_by_halves(&cx.input(&self.x), self.axes)]
    }
}

struct Cumprod<T: Real> {
    x: Slot<T>,
    axis: isize,
}

impl<T: Real> Fused<T> for Cumprod<T> {
    fn vjp(&self, [g]: [&Tensor<T>; 1]) -> InputGrads<T> {
        InputGrads::of(&self.x, || self.x.value().cumprod_vjp(self.axis, g))
    }

    /// Products of the last 2, 4, 8, .. elements.
    fn definition(&self, cx: &Cx<'_, T>) -> [Var<T>; 1] {
        let (mut y, axis) = (cx.input(&self.x), self.axis);
        let (size, mut reach) = (y.size(axis), 1);
        while reach < size {
            let shorter = y.narrow(axis, 0, size - reach);
            let rest = y.narrow(axis, reach, size - reach).mul(&shorter);
            y = Var::cat(&[&y.narrow(axis, 0, reach), &rest], axis);
            reach *= 2;
        }
        [y]
    }
}

/// The product over `axes`: the first half of the elements is multiplied by the second until one is
/// left.
#[track_caller]
fn product_by_halves<T: Real>(x: &Var<T>, axes: AxisSet) -> Var<T> {
    let out = x.shape().reduced(axes, false);
    let order = axes.moved_last(x.rank());
    let mut y = x.permute(&order).reshape([out.numel(), x.value().count(axes)]);
    if y.size(-1) == 0 {
        y = y.pad(-1, 0, 1, T::ONE);
    }
    while y.size(-1) > 1 {
        let half = y.size(-1) / 2;
        let (a, b) = (y.narrow(-1, 0, half), y.narrow(-1, half, half));
        let rest = y.narrow(-1, 2 * half, y.size(-1) - 2 * half);
        y = Var::cat(&[&a.mul(&b), &rest], -1);
    }
    y.reshape(out)
}

/// Records the node of a maximum or minimum. The gradient goes to the element that `arg` (argmax or
/// argmin) selects: the first of equal elements.
#[track_caller]
fn selection<T: Real>(
    op: &'static Op,
    x: &Var<T>,
    value: Tensor<T>,
    axes: AxisSet,
    arg: impl Fn(&Tensor<T>) -> Tensor<i64>,
) -> Var<T> {
    let input = x.value();
    Var::from_op(op.with("axes", axes), value, [x], |[x]| {
        let others = !&first_of_each(input, axes, arg);
        let (x, others) = (x.slot(), saved("not selected", others));
        move |cx, g| {
            InputGrads::of(&x, || spread(g, cx.shape(&x), axes).masked_fill(&others, T::ZERO))
        }
    })
}

/// A mask that is true at the element that `arg` (argmax or argmin) selects in each reduced group.
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
    chosen.permute(inverse_order(&order)).ne(T::ZERO)
}

/// The methods that keep the reduced axes with size 1.
macro_rules! keepdim {
    ($(pub fn $keepdim:ident = $name:ident($($arg:ident: $type:ty),*);)*) => {$(
        #[doc = concat!("As [`Tensor::", stringify!($keepdim), "`].")]
        #[track_caller]
        pub fn $keepdim(&self, axes: impl Axes, $($arg: $type),*) -> Var<T> {
            let axes = axes.resolve(stringify!($name), self.shape()).or_panic();
            self.$name(axes, $($arg),*).reshape(self.shape().reduced(axes, true))
        }
    )*};
}

impl<T: Real> Var<T> {
    /// One axis as a set.
    #[track_caller]
    pub(super) fn axes(&self, op: &'static str, axis: isize) -> AxisSet {
        axis.resolve(op, self.shape()).or_panic()
    }
}

/// # Reductions
///
/// Axes are given as `-1`, `[0, 2]` or `..` (all axes). The `_keepdim` forms keep reduced axes with
/// size 1.
impl<T: Real> Var<T> {
    /// As [`Tensor::sum`]; the gradient is `g` at every element.
    #[track_caller]
    pub fn sum(&self, axes: impl Axes) -> Var<T> {
        let axes = axes.resolve("sum", self.shape()).or_panic();
        sum_node(self, self.value().sum(axes), axes)
    }

    /// As [`Tensor::sum_keepdim`]; the gradient is `g` at every element.
    #[track_caller]
    pub fn sum_keepdim(&self, axes: impl Axes) -> Var<T> {
        let axes = axes.resolve("sum", self.shape()).or_panic();
        sum_node(self, self.value().sum_keepdim(axes), axes)
    }

    /// As [`Tensor::sum_to`]; the gradient is `g`, broadcast back.
    #[track_caller]
    pub fn sum_to(&self, shape: impl IntoShape) -> Var<T> {
        let shape = shape.into();
        if *self.shape() == shape {
            return self.unchanged();
        }
        Var::from_op(&SUM_TO, self.value().sum_to(shape), [self], |[x]| {
            let x = x.slot();
            move |cx, g| InputGrads::of(&x, || g.broadcast_to(cx.shape(&x)))
        })
    }

    /// As [`Tensor::mean`]; the gradient is `g / n` at each of `n` elements.
    #[track_caller]
    pub fn mean(&self, axes: impl Axes) -> Var<T> {
        let axes = axes.resolve("mean", self.shape()).or_panic();
        self.sum(axes) / T::from_f64(self.value().count(axes) as f64)
    }

    /// As [`Tensor::mean_keepdim`]; the gradient is `g / n` at each of `n` elements.
    #[track_caller]
    pub fn mean_keepdim(&self, axes: impl Axes) -> Var<T> {
        let axes = axes.resolve("mean", self.shape()).or_panic();
        self.sum_keepdim(axes) / T::from_f64(self.value().count(axes) as f64)
    }

    /// As [`Tensor::prod`]; the gradient is `g` times the product of the other elements, exact also where
    /// elements are 0.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let x = Var::leaf(Tensor::from([2.0f32, 0.0, 5.0]));
    /// let y = x.prod(..);
    /// assert_eq!(y.value().to_vec(), [0.0]);
    /// assert_eq!(y.sum(..).backward().get(&x).unwrap().to_vec(), [0.0, 10.0, 0.0]);
    /// ```
    #[track_caller]
    pub fn prod(&self, axes: impl Axes) -> Var<T> {
        let axes = axes.resolve("prod", self.shape()).or_panic();
        let value = self.value().prod(axes);
        let [y] = Var::from_fused(PROD.with("axes", axes), [value], [self], |[x]| Prod {
            x: x.save(),
            axes,
        });
        y
    }

    /// As [`Tensor::max`]; the gradient goes to the first largest element.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let x = Var::leaf(Tensor::from([1.0f32, 7.0, 7.0]));
    /// let y = x.max(..);
    /// assert_eq!(y.value().to_vec(), [7.0]);
    /// assert_eq!(y.sum(..).backward().get(&x).unwrap().to_vec(), [0.0, 1.0, 0.0]);
    /// ```
    #[track_caller]
    pub fn max(&self, axes: impl Axes) -> Var<T> {
        let axes = axes.resolve("max", self.shape()).or_panic();
        let value = self.value().max(axes);
        selection(&MAX, self, value, axes, |x| x.argmax(-1))
    }

    /// As [`Tensor::min`]; the gradient goes to the first smallest element.
    #[track_caller]
    pub fn min(&self, axes: impl Axes) -> Var<T> {
        let axes = axes.resolve("min", self.shape()).or_panic();
        let value = self.value().min(axes);
        selection(&MIN, self, value, axes, |x| x.argmin(-1))
    }

    /// As [`Tensor::var`]; the gradient is `2g · (x - mean) / (n - correction)`.
    #[track_caller]
    pub fn var(&self, axes: impl Axes, correction: usize) -> Var<T> {
        let axes = axes.resolve("var", self.shape()).or_panic();
        let all = self.value().count(axes);
        let n = all.saturating_sub(correction) as f64;
        let squares = self.squared_deviations(axes);
        // A sum of squares, or of the mean, overflows where the variance may not.
        if squares.value().contiguous().as_slice().iter().all(|&sum| sum <= T::MAX) {
            return squares / T::from_f64(n);
        }
        let scale = 1.0 / all.next_power_of_two() as f64;
        let squares = self.mul_scalar(T::from_f64(scale)).squared_deviations(axes);
        squares / T::from_f64(n * scale * scale)
    }

    /// `Σ(x - mean)²` over axes.
    #[track_caller]
    fn squared_deviations(&self, axes: AxisSet) -> Var<T> {
        if !is_recorded(&[Some(self)]) {
            // Without tensors of deviations.
            let sums = self.value().squared_deviations("var", axes);
            return constant_result(&SQUARED_DEVIATIONS, sums, &[Some(self)]);
        }
        let off = self.sub(&self.mean_keepdim(axes));
        // The mean is rounded. Its rounding error is the mean of the deviations, which is
        // subtracted.
        off.sub(&off.mean_keepdim(axes)).square().sum(axes)
    }

    /// As [`Tensor::std`]; the gradient is `g · (x - mean) / ((n - correction) · y)`, and 0 where all
    /// elements are equal (NaN in PyTorch).
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let x = Var::leaf(Tensor::from([4.0f32, 4.0]));
    /// let y = x.std(.., 0);
    /// assert_eq!(y.value().to_vec(), [0.0]);
    /// assert_eq!(y.sum(..).backward().get(&x).unwrap().to_vec(), [0.0, 0.0]);
    /// ```
    #[track_caller]
    pub fn std(&self, axes: impl Axes, correction: usize) -> Var<T> {
        let axes = axes.resolve("std", self.shape()).or_panic();
        let mut squares = self.squared_deviations(axes);
        let scales = self.value().scales_of_powers("std", squares.value(), axes, 32);
        if let Some(scales) = &scales {
            squares = self.mul(&Var::constant(scales.clone())).squared_deviations(axes);
        }
        let n = self.value().count(axes).saturating_sub(correction);
        let var = squares / T::from_f64(n as f64);
        // The derivative of the square root is infinite at 0.
        let zero = var.value().eq(T::ZERO);
        let std = var.masked_fill(&zero, T::ONE).sqrt().masked_fill(&zero, T::ZERO);
        match scales {
            None => std,
            Some(scales) => std.div(&Var::constant(scales.reshape(std.shape()))),
        }
    }

    /// As [`Tensor::logsumexp`]; the gradient is `g · softmax(x)`.
    #[track_caller]
    pub fn logsumexp(&self, axes: impl Axes) -> Var<T> {
        let axes = axes.resolve("logsumexp", self.shape()).or_panic();
        let value = self.value().logsumexp(axes);
        let output = value.clone();
        Var::from_op(LOGSUMEXP.with("axes", axes), value, [self], |[x]| {
            let (x, output) = (x.save(), saved("y", output));
            // d/dx = softmax(x) = e^(x - y), and 0 where y is -inf: every x is then -inf.
            move |cx, g| {
                InputGrads::of(&x, || {
                    let empty = output.eq(T::NEG_INFINITY);
                    let y = cx.output(&output).masked_fill(&empty, T::ZERO);
                    let softmax = cx.input(&x).sub(&spread(&y, cx.shape(&x), axes)).exp();
                    spread(g, cx.shape(&x), axes).mul(&softmax)
                })
            }
        })
    }

    /// As [`Tensor::norm`]; the gradient is `g · x / y`, and 0 at 0.
    #[track_caller]
    pub fn norm(&self, axes: impl Axes) -> Var<T> {
        let axes = axes.resolve("norm", self.shape()).or_panic();
        let (value, scales) = self.value().norm_and_scales(axes);
        let output = value.clone();
        Var::from_op(NORM.with("axes", axes), value, [self], |[x]| {
            let (x, output) = (x.save(), saved("y", output));
            let scales = scales.map(|scales| saved("scales", scales));
            // d/dx = x / norm, and 0 where the norm is 0.
            move |cx, g| {
                InputGrads::of(&x, || {
                    let zero = output.eq(T::ZERO);
                    let (mut x, mut y) = (cx.input(&x), cx.output(&output));
                    if let Some(scales) = &scales {
                        x = x.mul(&Var::constant(scales.clone()));
                        y = y.mul(&Var::constant(scales.reshape(output.shape())));
                    }
                    let share = g.masked_fill(&zero, T::ZERO).div(&y.masked_fill(&zero, T::ONE));
                    spread(&share, x.shape(), axes).mul(&x)
                })
            }
        })
    }

    keepdim! {
        pub fn prod_keepdim = prod();
        pub fn max_keepdim = max();
        pub fn min_keepdim = min();
        pub fn var_keepdim = var(correction: usize);
        pub fn std_keepdim = std(correction: usize);
        pub fn logsumexp_keepdim = logsumexp();
        pub fn norm_keepdim = norm();
    }

    /// As [`Tensor::cumprod`]; the gradient is exact also where elements are 0.
    #[track_caller]
    pub fn cumprod(&self, axis: isize) -> Var<T> {
        let value = self.value().cumprod(axis);
        let [y] = Var::from_fused(
            CUMPROD.with("axes", self.axes("cumprod", axis)),
            [value],
            [self],
            |[x]| Cumprod { x: x.save(), axis },
        );
        y
    }

    /// As [`Tensor::cumsum`]; the gradient is the cumulative sum of `g` from the end.
    #[track_caller]
    pub fn cumsum(&self, axis: isize) -> Var<T> {
        let value = self.value().cumsum(axis);
        Var::from_op(CUMSUM.with("axes", self.axes("cumsum", axis)), value, [self], |[x]| {
            let x = x.slot();
            move |_, g| InputGrads::of(&x, || g.flip(axis).cumsum(axis).flip(axis))
        })
    }
}
