//! The tiled path: attention by tiles of keys as a differentiable operation.

use super::operands::Operands;
use super::plain::{Plain, is_plain};
use super::rule::Rule;
use super::spec::{MAX_OPERANDS, Sink};
use retrograd_autograd::observe::saved;
use retrograd_autograd::{Cx, Fused, InputGrads, Kind, Op, Product, Shapes, Slot, Tangents, Var};
use retrograd_tensor::kernels::attention::{
    At, AttentionOptions, TileMask, Vjp, backward, backward_packed, forward,
};
use retrograd_tensor::{Real, Tensor};
use std::sync::Arc;

static ATTENTION: Op =
    attention(&["q", "k", "v", "sink?", "a?", "b?", "c?", "d?"]).computes(|shapes| {
        let [.., keys, width] = shapes.of("k")[..] else { return Vec::new() };
        products(shapes, keys, width)
    });
/// With queries, keys and values side by side in one input, `[B, L, ..]`.
static PACKED: Op = attention(&["q, k, v", "sink?"])
    .computes(|shapes| products(shapes, shapes.of("q, k, v")[1], shapes.output[3]));

/// The log-sum-exp is -∞ where there are no keys, as a fill.
const fn attention(inputs: &'static [&'static str]) -> Op {
    Op::new("attention", inputs).kind(Kind::Fill).formula(
        "y = p v, p = softmax(q kᵀ · scale + bias, masked)",
        "dv = pᵀ g\ndq = s k · scale, s = p · (g vᵀ − Σ g · y)\ndk = sᵀ q · scale",
    )
}

/// Scores `q kᵀ`, and the mean of the values.
fn products(shapes: &Shapes<'_>, keys: usize, width: usize) -> Vec<Product> {
    let [batch, heads, queries, _] = shapes.output[..] else { return Vec::new() };
    let scores = Product::new(["q", "k"], [batch, heads, queries, keys].into(), width);
    vec![scores, Product::new(["p", "v"], shapes.output, keys)]
}

/// The operation with its attributes. If scores are products of queries and keys alone, `keep` says which of them
/// count.
fn with_attributes<T: Real>(op: &'static Op, call: &Operands<T>) -> retrograd_autograd::Call {
    let all = op.with("scale", call.scale().to_f64());
    if !is_plain(&call.spec) {
        return all;
    }
    let (mask, offset) = (call.spec.mask.clone(), call.offset);
    let keep = move |at: &[usize]| {
        let query = at[2] as isize + offset;
        usize::from(mask.keep(At { batch: at[0], head: at[1], query, key: at[3] }))
    };
    all.with("keep", Arc::new(keep))
}

/// The output `[B, H, Lq, Dv]` of a call, and its log-sum-exp `[B, H, Lq]`.
pub(crate) fn attend<T: Real>(call: &Operands<T>) -> [Var<T>; 2] {
    let call = &call.with_resolved_rules();
    let (out, lse, sink) = kernel(call);
    let mut of_rules = call.spec.rules.iter().flat_map(Rule::vars);
    let [a, b, c, d] = std::array::from_fn(|_| of_rules.next());
    let inputs = [Some(&call.q), Some(&call.k), Some(&call.v), sink.as_ref(), a, b, c, d];
    Var::from_fused(
        with_attributes(&ATTENTION, call),
        [out.clone(), lse.clone()],
        inputs,
        |[q, k, v, sink, a, b, c, d]| Attention {
            call: call.saved(),
            operands: [q.save(), k.save(), v.save()],
            sink: sink.save(),
            of_rules: [a, b, c, d].map(|x| x.save()),
            out: saved("output", out),
            lse: saved("log-sum-exp", lse),
        },
    )
}

/// The output and log-sum-exp of a call whose operands are views of one variable, made by
/// [`unpack`]. The backward kernel computes the gradient of this variable directly.
pub(crate) fn attend_packed<T: Real>(call: &Operands<T>, qkv: &Var<T>) -> [Var<T>; 2] {
    let (out, lse, sink) = kernel(call);
    let inputs = [Some(qkv), sink.as_ref()];
    let operation = with_attributes(&PACKED, call).with("heads", call.sizes.heads as f64);
    Var::from_fused(
        operation.with("key_heads", call.key_heads as f64),
        [out.clone(), lse.clone()],
        inputs,
        |[qkv, sink]| PackedAttention {
            call: call.saved(),
            qkv: qkv.save(),
            sink: sink.save(),
            out: saved("output", out),
            lse: saved("log-sum-exp", lse),
        },
    )
}

/// Queries, keys and values `[B, heads, L, D]`, as views of `[B, L, (H + 2 Hk) D]`.
pub(crate) fn unpack<T: Real>(qkv: &Var<T>, heads: usize, key_heads: usize) -> [Var<T>; 3] {
    let [batch, length, width] = [0, 1, 2].map(|axis| qkv.size(axis));
    let all = heads + 2 * key_heads;
    let rows = qkv.reshape([batch, length, all, width / all]).transpose(1, 2);
    let of = |start, n| rows.narrow(1, start, n);
    [of(0, heads), of(heads, key_heads), of(heads + key_heads, key_heads)]
}

/// The output, the log-sum-exp and the logits of the sinks.
fn kernel<T: Real>(call: &Operands<T>) -> (Tensor<T>, Tensor<T>, Option<Var<T>>) {
    let sink = match &call.spec.sink {
        Sink::None => None,
        Sink::Zero => Some(Var::constant(Tensor::zeros([call.sizes.heads]))),
        Sink::Learned(sink) => Some(sink.clone()),
    };
    let (q, k, v) = (call.q.value(), call.k.value(), call.v.value());
    let values = sink.as_ref().map(Var::value);
    let of_rules = call.spec.rules.iter().flat_map(Rule::vars).map(|x| x.value().clone());
    let of_rules: Vec<_> = of_rules.collect();
    let (out, lse) = with_parts(call, values, &of_rules, |options| forward(q, k, v, options));
    (out, lse, sink)
}

/// Calls `f` with the parts of the spec as arguments of the kernels, with these operands of its rules.
fn with_parts<T: Real, R>(
    call: &Operands<T>,
    sink: Option<&Tensor<T>>,
    mut of_rules: &[Tensor<T>],
    f: impl FnOnce(&AttentionOptions<'_, T>) -> R,
) -> R {
    let functions: Vec<_> = call.spec.biases.iter().filter_map(|b| b.as_fn()).collect();
    let bias = |at: At, scores: &mut [T]| {
        for (s, key) in scores.iter_mut().zip(at.key..) {
            *s += T::from_f64(functions.iter().map(|f| f(At { key, ..at })).sum());
        }
    };
    let sink = sink.map(Tensor::to_vec);
    let rules: Vec<_> = call.spec.rules.iter().collect();
    let operands = rules.iter().map(|rule| {
        let (mine, others) = of_rules.split_at(rule.vars().count());
        of_rules = others;
        rule.tensors(mine, call.sizes)
    });
    let operands: Vec<_> = operands.collect();
    let at = (call.sizes.lq, call.offset);
    let rules: Vec<_> = rules.iter().zip(&operands).map(|(rule, x)| rule.tile(x, at)).collect();
    f(&AttentionOptions {
        scale: call.scale(),
        softcap: call.spec.softcap.map(T::from_f64),
        bias: if functions.is_empty() { None } else { Some(&bias) },
        rules: &rules,
        mask: &call.spec.mask,
        offset: call.offset,
        sink: sink.as_deref(),
        dropout: call.spec.dropout,
    })
}

struct Attention<T: Real> {
    /// The call, with constants for operands and without sinks.
    call: Operands<T>,
    /// Queries, keys and values.
    operands: [Slot<T>; 3],
    sink: Slot<T>,
    /// The operands of the rules.
    of_rules: [Slot<T>; MAX_OPERANDS],
    out: Tensor<T>,
    lse: Tensor<T>,
}

impl<T: Real> Fused<T, 2> for Attention<T> {
    fn vjp(&self, [g, g_lse]: [&Tensor<T>; 2]) -> InputGrads<T> {
        let [q, k, v] = self.operands.each_ref();
        let (operands, results) = ((q.value(), k.value(), v.value()), (&self.out, &self.lse));
        let values: Vec<_> = self.of_rules.iter().filter_map(Slot::get).cloned().collect();
        let vjp = with_parts(&self.call, self.sink.get(), &values, |options| {
            backward(operands, results, (g, Some(g_lse)), options)
        });
        let Vjp { dq, dk, dv, dsink, operands } = vjp;
        let mut grads = InputGrads::of(q, || dq).and(k, || dk).and(v, || dv);
        grads = grads.and(&self.sink, || dsink.expect("there are sinks"));
        let shapes = self.call.spec.rules.iter().flat_map(|rule| rule.shapes(self.call.sizes));
        for ((slot, shape), gradient) in self.of_rules.iter().zip(shapes).zip(operands) {
            grads = grads.and(slot, || gradient.reshape(shape));
        }
        grads
    }

    fn recorded_vjp(&self, cx: &Cx<'_, T>, g: [&Var<T>; 2]) -> Option<InputGrads<T>> {
        let [q, k, v] = self.operands.each_ref();
        let results = [cx.output_at(0, &self.out), cx.output_at(1, &self.lse)];
        let plain = Plain::of(&self.call, [q, k, v].map(|x| cx.input(x)), &self.sink, &results[1])?;
        let [dq, dk, dv] = plain.vjp(&results[0], g);
        Some(InputGrads::of(q, || dq).and(k, || dk).and(v, || dv))
    }

    fn jvp(&self, t: Tangents<'_, T>) -> Option<[Tensor<T>; 2]> {
        let operands = self.operands.each_ref().map(|x| Var::constant(x.value().clone()));
        let plain = Plain::of(&self.call, operands, &self.sink, &Var::constant(self.lse.clone()))?;
        Some(plain.jvp(self.operands.each_ref().map(|x| t.of(x).cloned())))
    }

    fn definition(&self, cx: &Cx<'_, T>) -> [Var<T>; 2] {
        let [q, k, v] = self.operands.each_ref().map(|operand| cx.input(operand));
        let mut of_rules = self.of_rules.iter().filter_map(|x| cx.optional(x));
        let call = self.call.with(&q, &k, &v, Sink::None);
        let call = call.with_rules(|_| of_rules.next().expect("saved"));
        composed(&call, [q, k, v], cx.optional(&self.sink))
    }
}

/// [`Attention`] of packed operands.
struct PackedAttention<T: Real> {
    call: Operands<T>,
    qkv: Slot<T>,
    sink: Slot<T>,
    out: Tensor<T>,
    lse: Tensor<T>,
}

impl<T: Real> Fused<T, 2> for PackedAttention<T> {
    fn vjp(&self, [g, g_lse]: [&Tensor<T>; 2]) -> InputGrads<T> {
        let Operands { q, k, v, .. } = &self.call;
        let (operands, results) = ((q.value(), k.value(), v.value()), (&self.out, &self.lse));
        let (grad, dsink) = with_parts(&self.call, self.sink.get(), &[], |options| {
            backward_packed(operands, results, (g, Some(g_lse)), options)
        });
        let grads = InputGrads::of(&self.qkv, || grad);
        grads.and(&self.sink, || dsink.expect("there are sinks"))
    }

    fn recorded_vjp(&self, cx: &Cx<'_, T>, g: [&Var<T>; 2]) -> Option<InputGrads<T>> {
        let results = [cx.output_at(0, &self.out), cx.output_at(1, &self.lse)];
        let operands = unpack(&cx.input(&self.qkv), self.call.sizes.heads, self.call.key_heads);
        let plain = Plain::of(&self.call, operands, &self.sink, &results[1])?;
        let [dq, dk, dv] = plain.vjp(&results[0], g);
        let all =
            || Var::cat(&[&dq, &dk, &dv], 1).transpose(1, 2).reshape(self.qkv.value().shape());
        Some(InputGrads::of(&self.qkv, all))
    }

    fn jvp(&self, t: Tangents<'_, T>) -> Option<[Tensor<T>; 2]> {
        let Operands { q, k, v, sizes, key_heads, .. } = &self.call;
        let operands = [q, k, v].map(Var::clone);
        let plain = Plain::of(&self.call, operands, &self.sink, &Var::constant(self.lse.clone()))?;
        Some(plain.jvp(unpack(t.of(&self.qkv)?, sizes.heads, *key_heads).map(Some)))
    }

    fn definition(&self, cx: &Cx<'_, T>) -> [Var<T>; 2] {
        let operands = unpack(&cx.input(&self.qkv), self.call.sizes.heads, self.call.key_heads);
        composed(&self.call, operands, cx.optional(&self.sink))
    }
}

/// The output and the log-sum-exp by the composed path.
fn composed<T: Real>(
    call: &Operands<T>,
    [q, k, v]: [Var<T>; 3],
    sink: Option<Var<T>>,
) -> [Var<T>; 2] {
    let sink = sink.map_or(Sink::None, Sink::Learned);
    let all = call.with(&q, &k, &v, sink).composed_all();
    [all.output, all.lse]
}
