//! Absolute position embeddings, added to token embeddings before the first block.

use crate::init::Init;
use crate::module::{Call, Module, Visitor, visits};
use crate::param::Param;
use retrograd_autograd::Var;
use retrograd_tensor::error::{ErrorKind, assert};
use retrograd_tensor::random::Rng;
use retrograd_tensor::{Real, Tensor};

/// `x_i + table[start + i]`: a learned vector for each position of a context.
///
/// `[.., L, width]` to `[.., L, width]`, in `O(L · width)`. Parameter: `weight` `[context, width]`,
/// normal with deviation 0.02 initially, as GPT-2's `wpe`. Positions beyond the context are errors.
/// Gehring et al. 2017 (arXiv 1705.03122).
#[derive(Clone, Debug)]
pub struct LearnedPositions<T: Real = f32> {
    /// `[context, width]`
    pub weight: Param<T>,
}

impl<T: Real> LearnedPositions<T> {
    /// For positions below `context`.
    #[track_caller]
    pub fn new(context: usize, width: usize, rng: &mut Rng) -> Self {
        let weight = Init::Normal { std: 0.02 }.sample([context, width], rng);
        LearnedPositions { weight: Param::new(weight) }
    }

    /// Adds positions `start..start + L`; with a cache, `start` is its
    /// [`position`](crate::attention::KvCache::position).
    ///
    /// # Panics
    /// If a position is beyond the context.
    ///
    /// ```
    /// use retrograd::nn::attention::LearnedPositions;
    /// use retrograd::prelude::*;
    /// let positions = LearnedPositions::<f32>::new(16, 4, &mut Rng::new(1));
    /// let x = Var::constant(Tensor::zeros([5, 4]));
    /// let (all, later) = (positions.forward(&x, 0), positions.forward(&x.narrow(0, 2, 3), 2));
    /// assert_eq!(all.value().narrow(0, 2, 3), *later.value());
    /// ```
    #[track_caller]
    pub fn forward(&self, x: &Var<T>, start: usize) -> Var<T> {
        let call = Call::start(self);
        let (length, context) = (x.size(-2), self.weight.shape()[0]);
        assert(start + length <= context, "positions", ErrorKind::Index, || {
            format!("{start} to {} are beyond the context of {context}", start + length)
        });
        call.end(x.add(&self.weight.to_var().narrow(0, start, length)))
    }

    /// Adds given positions, which broadcast to `[.., L]`, such as positions of packed documents
    /// ([`Packed::positions`](crate::attention::Packed::positions)).
    ///
    /// # Panics
    /// If a position is not in the context, or the positions do not broadcast.
    #[track_caller]
    pub fn forward_at(&self, x: &Var<T>, positions: &Tensor<i64>) -> Var<T> {
        let context = self.weight.shape()[0];
        let beyond = positions.to_vec().into_iter().find(|&p| p < 0 || p as usize >= context);
        assert(beyond.is_none(), "positions", ErrorKind::Index, || {
            format!("{} is beyond the context of {context}", beyond.expect("checked"))
        });
        let mut dims = positions.shape().to_vec();
        dims.push(x.size(-1));
        x.add(&self.weight.to_var().index_select(0, &positions.flatten()).reshape(dims))
    }
}

visits!(LearnedPositions: param weight);

/// `x_i + PE(start + i)` with `PE(p, 2m) = sin(p / 10000^(2m / width))` and
/// `PE(p, 2m + 1) = cos(p / 10000^(2m / width))`.
///
/// `[.., L, width]` to `[.., L, width]` in `O(L · width)`, no parameters, no limit on positions. It
/// is [`LearnedPositions`] with these vectors as its table. `PE(p + n)` is a rotation of `PE(p)`
/// that depends on `n` only; [`Rope`](crate::attention::Rope) is based on this. An odd width ends
/// in a sine. Vaswani et al. 2017 (arXiv 1706.03762).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SinusoidalPositions {
    /// The largest wavelength divided by 2π; 10000 by default.
    pub base: f64,
}

impl Default for SinusoidalPositions {
    fn default() -> Self {
        SinusoidalPositions { base: 10000.0 }
    }
}

impl SinusoidalPositions {
    #[track_caller]
    fn check(&self) {
        let base = self.base;
        assert(base > 0.0 && base.is_finite(), "sinusoidal positions", ErrorKind::Value, || {
            format!("a base must be finite and above 0, got {base}")
        });
    }

    /// The vectors of positions `start..start + length`, `[length, width]`.
    ///
    /// # Panics
    /// If the base is not finite and above 0.
    ///
    /// ```
    /// use retrograd::nn::attention::SinusoidalPositions;
    /// let table = SinusoidalPositions::default().table::<f32>(0, 3, 4);
    /// assert_eq!(table.select(0, 0).to_vec(), [0.0, 1.0, 0.0, 1.0]); // sin 0, cos 0
    /// ```
    #[track_caller]
    pub fn table<T: Real>(&self, start: usize, length: usize, width: usize) -> Tensor<T> {
        self.check();
        let rows = (start..start + length).flat_map(|p| self.vector(p as f64, width));
        Tensor::from_vec(rows.collect(), [length, width])
    }

    /// `PE(p)`
    fn vector<T: Real>(&self, p: f64, width: usize) -> impl Iterator<Item = T> + use<T> {
        let base = self.base;
        (0..width).map(move |i| {
            let angle = p / base.powf(2.0 * (i / 2) as f64 / width as f64);
            T::from_f64(if i % 2 == 0 { angle.sin() } else { angle.cos() })
        })
    }

    /// Adds given positions, which broadcast to `[.., L]`, such as positions of packed documents
    /// ([`Packed::positions`](crate::attention::Packed::positions)).
    #[track_caller]
    pub fn forward_at<T: Real>(&self, x: &Var<T>, positions: &Tensor<i64>) -> Var<T> {
        self.check();
        let width = x.size(-1);
        let at = positions.to_vec().into_iter().flat_map(|p| self.vector(p as f64, width));
        let mut dims = positions.shape().to_vec();
        dims.push(width);
        x.add(&Var::constant(Tensor::from_vec(at.collect(), dims)))
    }

    /// Adds positions `start..start + L`.
    #[track_caller]
    pub fn forward<T: Real>(&self, x: &Var<T>, start: usize) -> Var<T> {
        x.add(&Var::constant(self.table(start, x.size(-2), x.size(-1))))
    }
}

impl<T: Real> Module<T> for SinusoidalPositions {
    fn visit(&self, _: &mut Visitor<'_, T>) {}
}
