//! Splitting the last axis into heads, `[.., L, heads·D]` to `[.., heads, L, D]`, and joining
//! them.

use crate::attention::engine::{Attended, Spec, attend, attend_all};
use retrograd_autograd::Var;
use retrograd_tensor::Real;
use retrograd_tensor::error::{ErrorKind, Result, assert, require};

/// The rule that `heads` divides `width`.
pub(crate) fn check_heads_divide(op: &'static str, width: usize, heads: usize) -> Result<()> {
    require(heads > 0 && width.is_multiple_of(heads), op, ErrorKind::Mismatch, || {
        format!("{heads} heads do not divide a width of {width}")
    })
}

/// `[L, heads·D]` or `[B, L, heads·D]` to `[.., heads, L, D]`.
pub(crate) fn split_heads<T: Real>(x: &Var<T>, heads: usize) -> Var<T> {
    let (last, mut dims) = (x.rank() - 1, x.shape().to_vec());
    dims[last] /= heads;
    dims.insert(last, heads);
    x.reshape(dims).transpose(-3, -2)
}

/// `[.., Hk, L, D]` to `[.., heads, L, D]`: each key head repeated for all query heads that share
/// it.
pub(crate) fn repeat_heads<T: Real>(x: &Var<T>, heads: usize) -> Var<T> {
    let key_heads = x.size(-3);
    if key_heads == heads {
        return x.clone();
    }
    let (axis, mut dims) = (x.rank() - 3, x.shape().to_vec());
    dims[axis] = heads;
    let mut groups = dims.clone();
    groups[axis] = key_heads;
    groups.insert(axis + 1, heads / key_heads);
    x.unsqueeze(-3).broadcast_to(&groups[..]).reshape(dims)
}

/// `[.., heads, L, D]` to `[.., L, heads·D]`.
pub(crate) fn join_heads<T: Real>(x: &Var<T>) -> Var<T> {
    let x = x.transpose(-3, -2);
    let (last, mut dims) = (x.rank() - 1, x.shape().to_vec());
    dims[last - 1] *= dims[last];
    dims.pop();
    x.reshape(dims)
}

#[track_caller]
fn checked<T: Real>(name: &str, x: &Var<T>, heads: usize) -> Var<T> {
    assert((2..=3).contains(&x.rank()), "attention", ErrorKind::Rank, || {
        format!("{name} must be [length, width] or [batch, length, width], got {:?}", x.shape())
    });
    let width = x.size(-1);
    assert(heads > 0 && width.is_multiple_of(heads), "attention", ErrorKind::Mismatch, || {
        format!("{heads} heads do not divide {name} of width {width}")
    });
    split_heads(x, heads)
}

/// Projected operands `[.., L, heads·D]`, split into heads.
pub(crate) struct SplitHeads<T: Real> {
    q: Var<T>,
    k: Var<T>,
    v: Var<T>,
}

impl<T: Real> SplitHeads<T> {
    /// Splits queries into `heads` heads, keys and values into `key_heads`.
    ///
    /// # Panics
    /// If an operand does not have 2 or 3 axes, or the heads do not divide its width.
    #[track_caller]
    pub fn new(q: &Var<T>, k: &Var<T>, v: &Var<T>, heads: usize, key_heads: usize) -> Self {
        SplitHeads {
            q: checked("queries", q, heads),
            k: checked("keys", k, key_heads),
            v: checked("values", v, key_heads),
        }
    }

    /// The outputs of all heads, joined: `[.., Lq, heads·Dv]`.
    #[track_caller]
    pub fn attend(&self, spec: &Spec<T>) -> Var<T> {
        join_heads(&attend(&self.q, &self.k, &self.v, spec))
    }

    /// The joined outputs, and the weights `[.., heads, Lq, Lk]` before dropout.
    #[track_caller]
    pub fn attend_all(&self, spec: &Spec<T>) -> (Var<T>, Var<T>) {
        let Attended { output, weights, .. } = attend_all(&self.q, &self.k, &self.v, spec);
        (join_heads(&output), weights)
    }
}
