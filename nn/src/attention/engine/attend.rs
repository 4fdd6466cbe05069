//! [`attend`] and its relatives: check the operands, choose a path, run it.

use super::call::Call;
use super::composed::Attended;
use super::spec::{Path, Spec};
use super::tiled;
use retrograd_autograd::Var;
use retrograd_tensor::Real;
use retrograd_tensor::error::{ErrorKind, OrPanic, require};

/// Attention from queries `[.., Hq, Lq, Dk]` to keys `[.., Hk, Lk, Dk]` and values
/// `[.., Hk, Lk, Dv]`, giving `[.., Hq, Lq, Dv]`. See [`Spec`] for what is computed.
///
/// Operands have 2 to 4 axes; missing ones are a single head, or a single sequence. `Hq` is a
/// multiple of `Hk`, and query head `h` reads key head `⌊h · Hk / Hq⌋`. All of `Lq`, `Lk`,
/// `Dk`, `Dv`, batch and heads are free, 0 included.
///
/// A query that sees no key gives 0 and gets and sends a gradient of exactly 0. Whatever
/// stands at keys that are not seen, NaN and infinities included, has no influence, forward
/// or backward.
///
/// That is said of `q`, `k`, `v` and the parts of the spec. A module that makes them of hidden
/// tokens by a projection hides these tokens as well, but not from the weights of the projection:
/// their gradient is a plain product, in which a token that is NaN gives `0 · NaN`. Padding should
/// be numbers.
///
/// # Panics
/// If shapes do not fit one another or the parts of the spec.
#[track_caller]
#[inline(never)]
pub fn attend<T: Real>(q: &Var<T>, k: &Var<T>, v: &Var<T>, spec: &Spec<T>) -> Var<T> {
    let call = Call::new(q, k, v, spec);
    let output = if uses_tiled_path(spec) { tiled::attend(&call) } else { call.composed() };
    call.restore_rank(&output)
}

/// [`attend`] with its log-sum-exp, `ln Σ e^s` of each query over what it sees and the sink,
/// `[.., Hq, Lq]`; -inf if it sees nothing. By tiles where [`attend`] goes by tiles: there are
/// never all weights at once. Outputs over parts of the keys are put together by it:
///
/// ```
/// use retrograd_autograd::Var;
/// use retrograd_nn::attention::{Spec, attend, attend_with_lse};
/// use retrograd_tensor::{Tensor, random::Rng};
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
    let call = Call::new(q, k, v, spec);
    let (output, lse) = if uses_tiled_path(spec) {
        let both = tiled::attend_with_lse(&call);
        let width = both.size(-1) - 1;
        (both.narrow(-1, 0, width), both.narrow(-1, width, 1))
    } else {
        let all = call.composed_all();
        (all.output, all.lse.unsqueeze(-1))
    };
    (call.restore_rank(&output), call.restore_rank(&lse).squeeze(-1))
}

/// [`attend`] to queries, keys and values that lie side by side, as one projection makes them:
/// from `[B, L, (H + 2 Hk) D]` to `[B, H, L, D]`. They are read where they lie.
///
/// # Panics
/// If the heads do not divide the last axis, or shapes do not fit the parts of the spec.
#[track_caller]
#[inline(never)]
pub fn attend_packed<T: Real>(
    qkv: &Var<T>,
    heads: usize,
    key_heads: usize,
    spec: &Spec<T>,
) -> Var<T> {
    let valid = qkv.rank() == 3 && heads > 0 && qkv.size(2).is_multiple_of(heads + 2 * key_heads);
    require(valid, "attend", ErrorKind::Rank, || {
        format!(
            "{heads} query heads and twice {key_heads} key heads in {:?}, \
         which should be [batch, length, heads · width]",
            qkv.shape()
        )
    })
    .or_panic();
    if !uses_tiled_path(spec) {
        let [q, k, v] = tiled::unpack(qkv, heads, key_heads);
        return attend(&q, &k, &v, spec);
    }
    // The node has the packed variable for its input, and views of it besides.
    let [q, k, v] = tiled::unpack(&qkv.detach(), heads, key_heads);
    tiled::attend_packed(&Call::new(&q, &k, &v, spec), qkv)
}

#[track_caller]
fn uses_tiled_path<T: Real>(spec: &Spec<T>) -> bool {
    let why = spec.needs_composed();
    let forced = spec.path == Path::Tiled;
    require(!forced || why.is_none(), "attend", ErrorKind::Mismatch, || {
        format!("the tiled path cannot: {}", why.unwrap_or(""))
    })
    .or_panic();
    spec.path != Path::Composed && why.is_none()
}

/// [`attend`] with weights and log-sum-exp, by the composed path; [`attend_with_lse`] if the
/// weights are not wanted.
///
/// # Panics
/// As [`attend`], or if the spec asks for the tiled path, which has no weights to give.
#[track_caller]
#[inline(never)]
pub fn attend_all<T: Real>(q: &Var<T>, k: &Var<T>, v: &Var<T>, spec: &Spec<T>) -> Attended<T> {
    require(spec.path != Path::Tiled, "attend", ErrorKind::Mismatch, || {
        "the tiled path cannot: weights are asked for".into()
    })
    .or_panic();
    let call = Call::new(q, k, v, spec);
    let Attended { output, weights, lse } = call.composed_all();
    Attended {
        output: call.restore_rank(&output),
        weights: call.restore_rank(&weights),
        lse: call.restore_rank(&lse.unsqueeze(-1)).squeeze(-1),
    }
}
