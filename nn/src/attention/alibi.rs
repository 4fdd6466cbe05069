//! ALiBi: the farther, the less.

use super::engine::{Bias, Spec, alibi_slopes};
use super::projections::Projections;
use crate::module::{Layer, Module, Walk};
use crate::pass::Pass;
use retrograd_autograd::Var;
use retrograd_tensor::Real;
use retrograd_tensor::random::Rng;

/// Self-attention with a penalty that grows with distance, and no other positions.
///
/// ```text
/// s_pj = q_p · k_j / √D - m_h |p - j|
/// ```
///
/// with a slope `m_h` per head: `2^(-8h/H)` for `h = 1..=H` if `H` is a power of two, else see
/// [`alibi_slopes`]. `[L, width]` or `[B, L, width]` to the same, in `O(L² width)`. With slopes
/// of 0 it is plain (causal) self-attention.
///
/// Parameters: those of [`Projections`]; slopes are not learned. Press, Smith, Lewis 2021
/// (arXiv 2108.12409).
#[derive(Clone, Debug)]
pub struct AlibiAttention<T: Real = f32> {
    /// Around it.
    pub projections: Projections<T>,
    /// One for each head.
    pub slopes: Vec<f64>,
    causal: bool,
}

impl<T: Real> AlibiAttention<T> {
    /// For decoders: of keys up to the query.
    ///
    /// # Panics
    /// If heads do not divide the width.
    #[track_caller]
    pub fn causal(width: usize, heads: usize, rng: &mut Rng) -> Self {
        let projections = Projections::new(width, heads, rng);
        AlibiAttention { projections, slopes: alibi_slopes(heads), causal: true }
    }

    /// For encoders: of keys on both sides, by distance.
    ///
    /// # Panics
    /// If heads do not divide the width.
    #[track_caller]
    pub fn symmetric(width: usize, heads: usize, rng: &mut Rng) -> Self {
        AlibiAttention { causal: false, ..AlibiAttention::causal(width, heads, rng) }
    }

    /// Attends; `how` may restrict it further.
    ///
    /// # Panics
    /// If shapes do not fit.
    #[track_caller]
    pub fn attend(&self, x: &Var<T>, how: impl Into<Spec<T>>, pass: &mut Pass) -> Var<T> {
        let spec = how.into().bias(Bias::Alibi(self.slopes.clone().into()));
        self.projections.attend(x, if self.causal { spec.causal() } else { spec }, pass)
    }
}

impl<T: Real> Module<T> for AlibiAttention<T> {
    fn walk(&self, w: &mut Walk<'_, T>) {
        self.projections.walk(w);
    }
}

impl<T: Real> Layer<T> for AlibiAttention<T> {
    #[track_caller]
    fn forward(&self, x: &Var<T>, pass: &mut Pass) -> Var<T> {
        self.attend(x, Spec::new(), pass)
    }
}
