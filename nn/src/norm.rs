//! Normalisation layers over the last axis, or the last axes.

use crate::module::{Call, Layer, Module, Visitor};
use crate::param::Param;
use crate::pass::Pass;
use retrograd_autograd::Var;
use retrograd_tensor::error::{ErrorKind, OrPanic, Result, require};
use retrograd_tensor::{Real, Tensor};

/// The rule about the axes of a layer.
fn check_normalized_shape(shape: &[usize]) -> Result<()> {
    require(!shape.is_empty(), "norm", ErrorKind::Rank, || {
        "a norm needs at least one axis to normalise".into()
    })
}

/// Layer norm: `(x - mean) / √(var + eps) · weight + bias` over the last axis, or the last axes.
///
/// Parameters: `weight` (ones initially) and, unless the layer has none, `bias` (zeros), both
/// `[width]`, or of the shape of the last axes. [`Var::layer_norm_with_stats`] returns the mean and the
/// inverse deviation, too. Ba, Kiros, Hinton 2016 (arXiv 1607.06450).
#[derive(Clone, Debug)]
pub struct LayerNorm<T: Real = f32> {
    /// `[width]`, or the shape of the axes that are normalised
    pub weight: Param<T>,
    /// The same shape.
    pub bias: Option<Param<T>>,
    /// Added to the variance, against division by 0; 1e-5 by default.
    pub eps: f64,
}

impl<T: Real> LayerNorm<T> {
    /// A layer with a bias.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let norm = LayerNorm::<f32>::new(2);
    /// let y = norm.forward(&Var::constant(Tensor::from([1.0, 3.0])), &mut Pass::eval());
    /// assert!((y.value().at(&[1]) - 1.0).abs() < 1e-4);
    /// ```
    #[track_caller]
    pub fn new(width: usize) -> Self {
        let bias = Some(Param::new(Tensor::zeros([width])));
        LayerNorm { bias, ..LayerNorm::without_bias(width) }
    }

    /// A layer without a bias.
    #[track_caller]
    pub fn without_bias(width: usize) -> Self {
        LayerNorm { weight: Param::new(Tensor::ones([width])), bias: None, eps: 1e-5 }
    }

    /// A layer with a bias, over the last axes together, of these sizes: PyTorch's
    /// `nn.LayerNorm(normalized_shape)`.
    ///
    /// # Panics
    /// If there is no axis.
    #[track_caller]
    pub fn over(normalized_shape: &[usize]) -> Self {
        check_normalized_shape(normalized_shape).or_panic();
        let bias = Some(Param::new(Tensor::zeros(normalized_shape)));
        LayerNorm { weight: Param::new(Tensor::ones(normalized_shape)), bias, eps: 1e-5 }
    }
}

impl<T: Real> Module<T> for LayerNorm<T> {
    fn visit(&self, v: &mut Visitor<'_, T>) {
        v.param("weight", &self.weight);
        v.optional("bias", &self.bias);
    }
    fn is_one_operation(&self) -> bool {
        true
    }
}

impl<T: Real> Layer<T> for LayerNorm<T> {
    #[track_caller]
    fn forward(&self, x: &Var<T>, _: &mut Pass) -> Var<T> {
        let bias = self.bias.as_ref().map(|b| b.to_var());
        let weight = self.weight.to_var();
        match weight.rank() {
            1 => x.layer_norm(Some(&weight), bias.as_ref(), self.eps),
            _ => x.layer_norm_over(weight.shape(), Some(&weight), bias.as_ref(), self.eps),
        }
    }
}

/// RMS norm: `x / √(mean(x²) + eps) · weight` over the last axis, or the last axes.
///
/// Parameter: `weight` `[width]`, or of the shape of the last axes, ones initially. Zhang, Sennrich 2019 (arXiv 1910.07467).
#[derive(Clone, Debug)]
pub struct RmsNorm<T: Real = f32> {
    /// `[width]`, or the shape of the axes that are normalised
    pub weight: Param<T>,
    /// Added to the mean square, against division by 0; 1e-6 by default.
    pub eps: f64,
}

impl<T: Real> RmsNorm<T> {
    /// A layer for an axis of this width.
    #[track_caller]
    pub fn new(width: usize) -> Self {
        RmsNorm { weight: Param::new(Tensor::ones([width])), eps: 1e-6 }
    }

    /// A layer over the last axes together, of these sizes: PyTorch's `nn.RMSNorm(normalized_shape)`.
    ///
    /// # Panics
    /// If there is no axis.
    #[track_caller]
    pub fn over(normalized_shape: &[usize]) -> Self {
        check_normalized_shape(normalized_shape).or_panic();
        RmsNorm { weight: Param::new(Tensor::ones(normalized_shape)), eps: 1e-6 }
    }
}

impl<T: Real> Module<T> for RmsNorm<T> {
    fn visit(&self, v: &mut Visitor<'_, T>) {
        v.param("weight", &self.weight);
    }
    fn is_one_operation(&self) -> bool {
        true
    }
}

impl<T: Real> Layer<T> for RmsNorm<T> {
    #[track_caller]
    fn forward(&self, x: &Var<T>, _: &mut Pass) -> Var<T> {
        let weight = self.weight.to_var();
        match weight.rank() {
            1 => x.rms_norm(Some(&weight), self.eps),
            _ => x.rms_norm_over(weight.shape(), Some(&weight), self.eps),
        }
    }
}

/// A norm, or none, as a configuration chooses it.
#[derive(Clone, Debug)]
pub enum Norm<T: Real = f32> {
    /// Layer norm.
    LayerNorm(LayerNorm<T>),
    /// RMS norm.
    RmsNorm(RmsNorm<T>),
    /// The identity.
    None,
}

impl<T: Real> Module<T> for Norm<T> {
    fn visit(&self, v: &mut Visitor<'_, T>) {
        match self {
            Norm::LayerNorm(norm) => norm.visit(v),
            Norm::RmsNorm(norm) => norm.visit(v),
            Norm::None => {}
        }
    }
    fn type_name(&self) -> &'static str {
        match self {
            Norm::LayerNorm(norm) => norm.type_name(),
            Norm::RmsNorm(norm) => norm.type_name(),
            Norm::None => "Identity",
        }
    }
    fn is_one_operation(&self) -> bool {
        !matches!(self, Norm::None)
    }
}

impl<T: Real> Layer<T> for Norm<T> {
    #[track_caller]
    fn forward(&self, x: &Var<T>, pass: &mut Pass) -> Var<T> {
        match self {
            Norm::LayerNorm(norm) => norm.forward(x, pass),
            Norm::RmsNorm(norm) => norm.forward(x, pass),
            Norm::None => Call::<T>::start(self).end(x.clone()),
        }
    }
}
