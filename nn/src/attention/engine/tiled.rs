//! The tiled path as a differentiable operation.

use super::attend::Call;
use super::spec::Sink;
use retrograd_autograd::{Backward, Cx, Grads, Var, through};
use retrograd_tensor::kernels::attention::{
    At, AttentionOptions, Vjp, backward, backward_packed, forward,
};
use retrograd_tensor::{Real, Tensor};
use std::fmt;

/// The output of a call, `[B, H, Lq, Dv]`.
pub(crate) fn attend<T: Real>(call: &Call<T>) -> Var<T> {
    node(call, &[&call.q, &call.k, &call.v], None, false)
}

/// The output of a call and its log-sum-exp side by side, `[B, H, Lq, Dv + 1]`.
pub(crate) fn attend_with_lse<T: Real>(call: &Call<T>) -> Var<T> {
    node(call, &[&call.q, &call.k, &call.v], None, true)
}

/// Such a pair put side by side.
pub(crate) fn side_by_side<T: Real>(output: &Var<T>, lse: &Var<T>) -> Var<T> {
    Var::cat(&[output, &lse.unsqueeze(-1)], -1)
}

/// The same of a call whose operands were cut from one variable by [`unpack`]: it gets one
/// gradient, which is never put together from three.
pub(crate) fn attend_packed<T: Real>(call: &Call<T>, qkv: &Var<T>) -> Var<T> {
    node(call, &[qkv], Some(qkv.value().clone()), false)
}

/// Queries, keys and values `[B, heads, L, D]`, as views of `[B, L, (H + 2 Hk) D]`.
pub(crate) fn unpack<T: Real>(qkv: &Var<T>, heads: usize, key_heads: usize) -> [Var<T>; 3] {
    let [batch, length, width] = [0, 1, 2].map(|axis| qkv.size(axis));
    let all = heads + 2 * key_heads;
    let rows = qkv.reshape([batch, length, all, width / all]).transpose(1, 2);
    let of = |start, n| rows.narrow(1, start, n);
    [of(0, heads), of(heads, key_heads), of(heads + key_heads, key_heads)]
}

fn node<T: Real>(
    call: &Call<T>,
    operands: &[&Var<T>],
    packed: Option<Tensor<T>>,
    with_lse: bool,
) -> Var<T> {
    let sink = match &call.spec.sink {
        Sink::None => None,
        Sink::Zero => Some(Var::constant(Tensor::zeros([call.sizes.heads]))),
        Sink::Learned(sink) => Some(sink.clone()),
    };
    let (q, k, v) = (call.q.value(), call.k.value(), call.v.value());
    let (out, lse) = with_parts(call, sink.as_ref(), |how| forward(q, k, v, how));
    let mut inputs = operands.to_vec();
    inputs.extend(&sink);
    let value = match with_lse {
        true => Tensor::cat(&[&out, &lse.unsqueeze(-1)], -1),
        false => out.clone(),
    };
    Var::from_op(value, &inputs, |_| Rule {
        call: call.with(&call.q.detach(), &call.k.detach(), &call.v.detach(), Sink::None),
        packed,
        sink: sink.as_ref().map(|s| s.detach()),
        out,
        lse,
        with_lse,
    })
}

/// The parts of the spec as the kernels want them.
fn with_parts<T: Real, R>(
    call: &Call<T>,
    sink: Option<&Var<T>>,
    f: impl FnOnce(&AttentionOptions<'_, T>) -> R,
) -> R {
    let rules: Vec<_> = call.spec.biases.iter().filter_map(|b| b.as_rule()).collect();
    let bias = |at: At, scores: &mut [T]| {
        for (s, key) in scores.iter_mut().zip(at.key..) {
            *s += T::from_f64(rules.iter().map(|rule| rule(At { key, ..at })).sum());
        }
    };
    let sink = sink.map(|s| s.value().to_vec());
    f(&AttentionOptions {
        scale: call.scale(),
        softcap: call.spec.softcap.map(T::from_f64),
        bias: if rules.is_empty() { None } else { Some(&bias) },
        mask: &call.spec.mask,
        offset: call.offset,
        sink: sink.as_deref(),
        dropout: call.spec.dropout,
    })
}

struct Rule<T: Real> {
    call: Call<T>,
    /// What the operands were cut from, if they were.
    packed: Option<Tensor<T>>,
    sink: Option<Var<T>>,
    out: Tensor<T>,
    lse: Tensor<T>,
    /// Whether the log-sum-exp stands beside the output.
    with_lse: bool,
}

impl<T: Real> fmt::Debug for Rule<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tiled attention {:?}", self.call.spec)
    }
}

impl<T: Real> Backward<T> for Rule<T> {
    fn name(&self) -> &'static str {
        "attention"
    }

    /// Inputs: q, k and v, or what they were cut from; and the sink if there is one.
    fn backward(&self, cx: &Cx<'_, T>, g: &Var<T>) -> Grads<T> {
        let Call { q, k, v, .. } = &self.call;
        if cx.recording() {
            let operands = match &self.packed {
                Some(qkv) => vec![qkv],
                None => vec![q.value(), k.value(), v.value()],
            };
            let n = operands.len();
            let all = operands.into_iter().chain(self.sink.as_ref().map(Var::value));
            let inputs: Vec<Var<T>> = all.enumerate().map(|(i, x)| cx.input(i, x)).collect();
            return through(&inputs, g, |x| {
                let sink = x.get(n).map_or(Sink::None, |s| Sink::Learned(s.clone()));
                let [q, k, v] = match n {
                    1 => unpack(&x[0], self.call.sizes.heads, self.call.key_heads),
                    _ => [0, 1, 2].map(|i| x[i].clone()),
                };
                let call = self.call.with(&q, &k, &v, sink);
                if self.with_lse {
                    let all = call.composed_all();
                    return side_by_side(&all.output, &all.lse);
                }
                call.composed()
            });
        }
        let (g, of_lse) = match self.with_lse {
            true => {
                let width = g.size(-1) - 1;
                let lse = g.value().narrow(-1, width, 1).squeeze(-1);
                (g.value().narrow(-1, 0, width), Some(lse))
            }
            false => (g.value().clone(), None),
        };
        let g = (&g, of_lse.as_ref());
        let (operands, results) = ((q.value(), k.value(), v.value()), (&self.out, &self.lse));
        let (mut grads, dsink) = with_parts(&self.call, self.sink.as_ref(), |how| {
            if self.packed.is_some() {
                let (grad, dsink) = backward_packed(operands, results, g, how);
                return (vec![Some(grad)], dsink);
            }
            let Vjp { dq, dk, dv, dsink } = backward(operands, results, g, how);
            (vec![Some(dq), Some(dk), Some(dv)], dsink)
        });
        grads.extend(self.sink.as_ref().map(|_| dsink));
        grads.into_iter().map(|g| g.map(Var::constant)).collect()
    }
}
