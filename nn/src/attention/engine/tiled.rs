//! The tiled path as a differentiable operation.

use super::attend::Call;
use super::spec::Sink;
use retrograd_autograd::{Backward, Cx, Grads, Var, through};
use retrograd_tensor::drive::attention::{At, Tiled, backward, forward};
use retrograd_tensor::{Real, Tensor};
use std::fmt;

/// The output of a call, `[B, H, Lq, Dv]`.
pub(crate) fn attend<T: Real>(call: &Call<T>) -> Var<T> {
    let sink = match &call.spec.sink {
        Sink::None => None,
        Sink::Zero => Some(Var::constant(Tensor::zeros([call.sizes.heads]))),
        Sink::Learned(sink) => Some(sink.clone()),
    };
    let (q, k, v) = (call.q.value(), call.k.value(), call.v.value());
    let (out, lse) = with_parts(call, sink.as_ref(), |how| forward(q, k, v, how));
    let mut inputs = vec![&call.q, &call.k, &call.v];
    inputs.extend(&sink);
    Var::from_op(out.clone(), &inputs, |_| Rule {
        call: call.with(&call.q.detach(), &call.k.detach(), &call.v.detach(), Sink::None),
        sink: sink.as_ref().map(|s| s.detach()),
        out,
        lse,
    })
}

/// The parts of the spec as the kernels want them.
fn with_parts<T: Real, R>(
    call: &Call<T>,
    sink: Option<&Var<T>>,
    f: impl FnOnce(&Tiled<'_, T>) -> R,
) -> R {
    let rules: Vec<_> = call.spec.biases.iter().filter_map(|b| b.as_rule()).collect();
    let bias = |at: At| T::from_f64(rules.iter().map(|rule| rule(at)).sum());
    let sink = sink.map(|s| s.value().to_vec());
    f(&Tiled {
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
    sink: Option<Var<T>>,
    out: Tensor<T>,
    lse: Tensor<T>,
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

    /// Inputs: q, k, v, and the sink if there is one.
    fn backward(&self, cx: &Cx<'_, T>, g: &Var<T>) -> Grads<T> {
        let Call { q, k, v, .. } = &self.call;
        if cx.recording() {
            let mut inputs: Vec<Var<T>> =
                [q, k, v].into_iter().enumerate().map(|(i, x)| cx.input(i, x.value())).collect();
            inputs.extend(self.sink.as_ref().map(|s| cx.input(3, s.value())));
            return through(&inputs, g, |x| {
                let sink = x.get(3).map_or(Sink::None, |s| Sink::Learned(s.clone()));
                self.call.with(&x[0], &x[1], &x[2], sink).composed()
            });
        }
        let operands = (q.value(), k.value(), v.value());
        let vjp = with_parts(&self.call, self.sink.as_ref(), |how| {
            backward(operands, (&self.out, &self.lse), g.value(), how)
        });
        let mut grads = vec![Some(vjp.dq), Some(vjp.dk), Some(vjp.dv)];
        grads.extend(self.sink.as_ref().map(|_| vjp.dsink));
        grads.into_iter().map(|g| g.map(Var::constant)).collect()
    }
}
