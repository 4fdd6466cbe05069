//! The entry points of the engine, [`attend`] and its variants, and the choice of path.

use super::composed::Attended;
use super::observe::observed;
use super::operands::Operands;
use super::spec::{Path, Spec};
use super::tiled;
use retrograd_autograd::Var;
use retrograd_tensor::Real;
use retrograd_tensor::error::{ErrorKind, assert};

/// Scaled dot-product attention from queries `[.., Hq, Lq, Dk]` to keys `[.., Hk, Lk, Dk]` and
/// values `[.., Hk, Lk, Dv]`, `[.., Hq, Lq, Dv]`. [`Spec`] has the formula.
///
/// Operands have 2 to 4 axes; missing ones are a single head, or a single sequence: **three axes are
/// `[H, L, D]`**, the heads of one sequence, to which masks and biases by head apply. Without these,
/// PyTorch's `[N, L, E]` gives the same output, and lengths or positions for several sequences are
/// refused. Projections `[B, L, H·D]` are not split into heads here: [`attend_packed`] and the modules
/// do that. `Hq` is a multiple of `Hk`, and query head `h` reads key head `⌊h · Hk / Hq⌋`. All of `Lq`, `Lk`,
/// `Dk`, `Dv`, batch and heads are free, 0 included.
///
/// The output of a query that attends to no key is 0, and all gradients through it are exactly 0.
/// Masked keys and values have no influence on outputs or gradients, even if they are NaN or
/// infinite.
///
/// This holds for `q`, `k`, `v` and the parts of the spec. It does not hold for the weights of a
/// projection that computes them from tokens: the gradient of the weights is a matrix
/// multiplication, in which a masked token that is NaN contributes `0 · NaN`. Padding should
/// therefore be finite.
///
/// # Panics
/// If the shapes do not match each other or the parts of the spec.
///
/// ```
/// use retrograd::nn::attention::{Spec, attend};
/// use retrograd::prelude::*;
/// let q = Var::constant(Tensor::<f32>::zeros([2, 4])); // equal scores
/// let k = Var::constant(Tensor::<f32>::ones([3, 4]));
/// let v = Var::constant(Tensor::from([[1.0f32], [2.0], [6.0]]));
/// let y = attend(&q, &k, &v, &Spec::new());
/// assert!((y.value().at(&[0, 0]) - 3.0).abs() < 1e-6); // the mean of the values
/// ```
#[track_caller]
#[inline(never)]
pub fn attend<T: Real>(q: &Var<T>, k: &Var<T>, v: &Var<T>, spec: &Spec<T>) -> Var<T> {
    let call = observed(Operands::new(q, k, v, spec), spec);
    let output = match uses_tiled_path(spec) && !call.weights_are_variables() {
        true => {
            let [output, _] = tiled::attend(&call);
            call.without_head(output)
        }
        false => call.composed(),
    };
    call.restore_rank(&output)
}

/// The output of [`attend`] and its log-sum-exp, `ln Σ e^s` of each query over the keys that it
/// attends to and the sink, `[.., Hq, Lq]`; -inf if there is neither. It takes the tiled path
/// where [`attend`] does, without a matrix of all weights. The log-sum-exp combines outputs over
/// parts of the keys:
///
/// ```
/// use retrograd::nn::attention::{Spec, attend, attend_with_lse};
/// use retrograd::prelude::*;
///
/// let mut rng = Rng::new(1);
/// let mut x = |l| Var::constant(Tensor::<f64>::randn([l, 4], &mut rng));
/// let (q, k, v, spec) = (x(3), x(8), x(8), Spec::new());
/// let part = |first| attend_with_lse(&q, &k.narrow(0, first, 4), &v.narrow(0, first, 4), &spec);
/// let ((o1, lse1), (o2, lse2)) = (part(0), part(4));
/// let share = (lse1 - lse2).sigmoid().unsqueeze(-1);
/// let whole = &o2 + share * (o1 - &o2);
/// let difference = whole.value() - attend(&q, &k, &v, &spec).value();
/// assert!(difference.abs().max(..).item() < 1e-15);
/// ```
///
/// # Panics
/// As [`attend`].
#[track_caller]
#[inline(never)]
pub fn attend_with_lse<T: Real>(
    q: &Var<T>,
    k: &Var<T>,
    v: &Var<T>,
    spec: &Spec<T>,
) -> (Var<T>, Var<T>) {
    let call = observed(Operands::new(q, k, v, spec), spec);
    let (output, lse) = if uses_tiled_path(spec) && !call.weights_are_variables() {
        let [output, lse] = tiled::attend(&call);
        (call.without_head(output), lse.unsqueeze(-1))
    } else {
        let all = call.composed_all();
        (all.output, all.lse.unsqueeze(-1))
    };
    (call.restore_rank(&output), call.restore_rank(&lse).squeeze(-1))
}

/// [`attend`] for queries, keys and values packed along the last axis, as one fused projection
/// computes them: `[B, L, (H + 2 Hk) D]` to `[B, H, L, D]`. They are read in place, without a copy.
///
/// # Panics
/// If the heads do not divide the last axis, or the shapes do not match the parts of the spec.
#[track_caller]
#[inline(never)]
pub fn attend_packed<T: Real>(
    qkv: &Var<T>,
    heads: usize,
    key_heads: usize,
    spec: &Spec<T>,
) -> Var<T> {
    let valid = qkv.rank() == 3 && heads > 0 && qkv.size(2).is_multiple_of(heads + 2 * key_heads);
    assert(valid, "attend", ErrorKind::Rank, || {
        format!(
            "{heads} query heads and twice {key_heads} key heads in {:?}, \
         which should be [batch, length, heads · width]",
            qkv.shape()
        )
    });
    if !uses_tiled_path(spec) || !spec.rules.is_empty() {
        let [q, k, v] = tiled::unpack(qkv, heads, key_heads);
        return attend(&q, &k, &v, spec);
    }
    // The input of the node is the packed variable; the rule reads views of its value.
    let [q, k, v] = tiled::unpack(&qkv.detach(), heads, key_heads);
    let call = observed(Operands::new(&q, &k, &v, spec), spec);
    if call.weights_are_variables() {
        let [q, k, v] = tiled::unpack(qkv, heads, key_heads);
        let mut unpacked = Operands::new(&q, &k, &v, spec);
        unpacked.change = call.change;
        return unpacked.composed();
    }
    let [output, _] = tiled::attend_packed(&call, qkv);
    call.without_head(output)
}

/// Whether the tiled path computes the spec.
///
/// # Panics
/// If the spec requires the tiled path, which does not support it.
#[track_caller]
fn uses_tiled_path<T: Real>(spec: &Spec<T>) -> bool {
    let why = spec.needs_composed();
    let forced = spec.path == Path::Tiled;
    assert(!forced || why.is_none(), "attend", ErrorKind::Mismatch, || {
        format!("the tiled path cannot: {}", why.unwrap_or(""))
    });
    spec.path != Path::Composed && why.is_none()
}

/// The output of [`attend`], its scores, weights and log-sum-exp, by the composed path.
/// [`attend_with_lse`] computes no matrix of weights.
///
/// # Panics
/// As [`attend`], or if the spec requires the tiled path, which stores no weights.
///
/// ```
/// use retrograd::nn::attention::{Spec, attend_all};
/// use retrograd::prelude::*;
/// let mut rng = Rng::new(1);
/// let mut x = || Var::constant(Tensor::<f64>::randn([5, 4], &mut rng));
/// let (q, k, v) = (x(), x(), x());
/// let all = attend_all(&q, &k, &v, &Spec::new().causal());
/// let sums = all.weights.sum(-1);
/// assert!((sums.value() - 1.0).abs().max(..).item() < 1e-12);
/// assert_eq!(all.weights.value().at(&[0, 1]), 0.0); // a later key
/// assert_eq!(all.scores.value().at(&[0, 1]), f64::NEG_INFINITY);
/// let products = q.matmul(&k.t()) / 2.0; // 1/√4
/// assert!((products - &all.scores).value().at(&[4, 2]).abs() < 1e-12);
/// ```
#[track_caller]
#[inline(never)]
pub fn attend_all<T: Real>(q: &Var<T>, k: &Var<T>, v: &Var<T>, spec: &Spec<T>) -> Attended<T> {
    assert(spec.path != Path::Tiled, "attend", ErrorKind::Mismatch, || {
        "the tiled path cannot: weights are requested".into()
    });
    let call = observed(Operands::new(q, k, v, spec), spec);
    let Attended { output, scores, weights, lse } = call.composed_all();
    Attended {
        output: call.restore_rank(&output),
        scores: call.restore_rank(&scores),
        weights: call.restore_rank(&weights),
        lse: call.restore_rank(&lse.unsqueeze(-1)).squeeze(-1),
    }
}
