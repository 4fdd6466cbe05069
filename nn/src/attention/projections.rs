//! The projections around multi-head self-attention.

use super::engine::{Spec, attend};
use super::heads::{join_heads, split_heads};
use crate::dropout::Dropout;
use crate::linear::Linear;
use crate::module::{Layer, Module, Walk};
use crate::pass::Pass;
use retrograd_autograd::Var;
use retrograd_tensor::Real;
use retrograd_tensor::random::Rng;

/// What the variants that differ only *between* their projections have in common.
///
/// ```text
/// q = x · W_qᵀ   k = x · W_kᵀ   v = x · W_vᵀ   in H heads of width D = width / H
/// y = [o_0 .. o_H-1] · W_oᵀ + b_o
/// ```
///
/// Parameters: `q_proj`, `k_proj`, `v_proj` without and `out_proj` with bias, each
/// `[width, width]`. Input and output are `[L, width]` or `[B, L, width]`.
#[derive(Clone, Debug)]
pub struct Projections<T: Real = f32> {
    /// To queries.
    pub q_proj: Linear<T>,
    /// To keys.
    pub k_proj: Linear<T>,
    /// To values.
    pub v_proj: Linear<T>,
    /// From the heads to the result.
    pub out_proj: Linear<T>,
    /// Of the attention weights.
    pub dropout: Dropout,
    heads: usize,
}

impl<T: Real> Projections<T> {
    /// For `heads` heads, without dropout.
    ///
    /// # Panics
    /// If heads do not divide the width.
    #[track_caller]
    pub fn new(width: usize, heads: usize, rng: &mut Rng) -> Self {
        assert!(
            heads > 0 && width.is_multiple_of(heads),
            "attention: {heads} heads do not divide a width of {width}"
        );
        Projections {
            q_proj: Linear::without_bias(width, width, rng),
            k_proj: Linear::without_bias(width, width, rng),
            v_proj: Linear::without_bias(width, width, rng),
            out_proj: Linear::new(width, width, rng),
            dropout: Dropout::new(0.0),
            heads,
        }
    }

    /// Number of heads.
    pub fn heads(&self) -> usize {
        self.heads
    }

    /// Width of a head.
    pub fn head_width(&self) -> usize {
        self.q_proj.weight.shape()[0] / self.heads
    }

    /// The input by a projection, in heads: `[.., L, width]` to `[.., H, L, D]`.
    ///
    /// # Panics
    /// If `x` has not 2 or 3 axes, or another width.
    #[track_caller]
    pub fn project(&self, by: &Linear<T>, x: &Var<T>, pass: &mut Pass) -> Var<T> {
        assert!(
            (2..=3).contains(&x.rank()),
            "attention: the input must be [length, width] or [batch, length, width], got {:?}",
            x.shape()
        );
        split_heads(&by.forward(x, pass), self.heads)
    }

    /// Queries, keys and values, `[.., H, L, D]` each.
    #[track_caller]
    pub fn qkv(&self, x: &Var<T>, pass: &mut Pass) -> [Var<T>; 3] {
        [&self.q_proj, &self.k_proj, &self.v_proj].map(|by| self.project(by, x, pass))
    }

    /// The result of outputs of heads: `[.., H, L, D]` to `[.., L, width]`.
    #[track_caller]
    pub fn finish(&self, heads: &Var<T>, pass: &mut Pass) -> Var<T> {
        self.out_proj.forward(&join_heads(heads), pass)
    }

    /// Self-attention as the spec says, between the projections.
    #[track_caller]
    pub fn attend(&self, x: &Var<T>, spec: Spec<T>, pass: &mut Pass) -> Var<T> {
        let [q, k, v] = self.qkv(x, pass);
        let spec = spec.dropout(self.dropout.p(), pass);
        self.finish(&attend(&q, &k, &v, &spec), pass)
    }
}

impl<T: Real> Module<T> for Projections<T> {
    fn walk(&self, w: &mut Walk<'_, T>) {
        w.module("q_proj", &self.q_proj);
        w.module("k_proj", &self.k_proj);
        w.module("v_proj", &self.v_proj);
        w.module("out_proj", &self.out_proj);
    }
}
