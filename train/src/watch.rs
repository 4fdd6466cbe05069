//! The gradients and the updates of a step, part by part of the model.

use retrograd::prelude::*;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The most parts: with more matrices, each layer is a part.
const MOST: usize = 48;

/// The parts of a model whose norms are reported: its matrices, and the other parameters of each layer together.
pub struct Parts {
    /// Their names, as `h.0.attn.c_attn`.
    pub names: Vec<String>,
    /// All parameters, each with the index of its part.
    params: Vec<(usize, Param)>,
}

impl Parts {
    /// The parts of a model.
    pub fn of(model: &Gpt) -> Parts {
        let all = model.named_parameters();
        let matrices = all.iter().filter(|(_, param)| param.shape().rank() > 1).count();
        let mut parts = Parts { names: Vec::new(), params: Vec::new() };
        for (name, param) in all {
            let name = part(&name, param.shape().rank() > 1, matrices <= MOST);
            let index = parts.names.iter().position(|other| *other == name);
            let index = index.unwrap_or_else(|| {
                parts.names.push(name);
                parts.names.len() - 1
            });
            parts.params.push((index, param));
        }
        parts
    }
}

/// The part that a parameter belongs to: `transformer.h.0.attn.c_attn.weight` to `h.0.attn.c_attn` if matrices are
/// parts, else to `h.0`; likewise `model.layers.0..`.
fn part(name: &str, is_matrix: bool, matrices: bool) -> String {
    let without = |prefix| name.strip_prefix(prefix);
    let short = without("transformer.").or_else(|| without("model.")).unwrap_or(name);
    let path: Vec<&str> = short.split('.').collect();
    match (&path[..], matrices) {
        (_, true) if is_matrix => short.strip_suffix(".weight").unwrap_or(short).to_string(),
        ([h @ ("h" | "layers"), layer, ..], true) => format!("{h}.{layer} (vectors)"),
        ([h @ ("h" | "layers"), layer, ..], false) => format!("{h}.{layer}"),
        (path, _) => path[0].to_string(),
    }
}

/// For each part, the norm of its gradient, and the norm of its update by that of its weights, where they are
/// finite; empty if no step was observed.
#[derive(Clone, Debug, Default)]
pub struct Norms {
    /// Norms of the gradients.
    pub grad_norms: Vec<Option<f64>>,
    /// Norms of the updates, relative to the weights.
    pub updates: Vec<Option<f64>>,
}

/// What is observed of a step: its gradients, before clipping, and the weights before it.
pub struct Watch<'a> {
    parts: &'a Parts,
    /// Of the parameters that this rank owns: their indices and the norms of their gradients.
    pub norms: Vec<(usize, f64)>,
    before: Vec<Tensor>,
    /// The time that the norms of the gradients have taken.
    pub gradients_time: Duration,
}

impl<'a> Watch<'a> {
    /// Keeps the weights.
    pub fn begin(parts: &'a Parts) -> Watch<'a> {
        let before = parts.params.iter().map(|(_, param)| param.value()).collect();
        Watch { parts, norms: Vec::new(), before, gradients_time: Duration::ZERO }
    }

    /// Keeps the norms of the gradients.
    pub fn gradients(&mut self, grads: &Gradients) {
        let start = Instant::now();
        let norms: BTreeMap<_, f64> = grads.norms();
        let params = self.parts.params.iter().enumerate();
        let known = params.filter_map(|(i, (_, param))| Some((i, *norms.get(&param.id())?)));
        self.norms = known.collect();
        self.gradients_time = start.elapsed();
    }

    /// The norms of each part after the step, given those of the gradients on all ranks.
    pub fn end(&self, norms: &[(usize, f64)]) -> Norms {
        let n = self.parts.names.len();
        let (mut gradient, mut change, mut weight) = (vec![0.0; n], vec![0.0; n], vec![0.0; n]);
        for &(param, norm) in norms {
            gradient[self.parts.params[param].0] += norm * norm;
        }
        for ((part, param), before) in self.parts.params.iter().zip(&self.before) {
            let (before, after) = (before.contiguous(), param.value().contiguous());
            for (&a, &b) in before.as_slice().iter().zip(after.as_slice()) {
                let (a, b) = (f64::from(a), f64::from(b));
                change[*part] += (b - a) * (b - a);
                weight[*part] += a * a;
            }
        }
        let finite = |x: f64| Some(x).filter(|x| x.is_finite());
        let updates = change.iter().zip(&weight).map(|(c, w)| finite((c / w).sqrt())).collect();
        let grad_norms = gradient.into_iter().map(|sum: f64| finite(sum.sqrt())).collect();
        Norms { grad_norms, updates }
    }
}
