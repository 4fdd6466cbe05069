//! The data of the page, as its script reads it.

use super::elements::bracketed;
use super::values::{Number, Values};
use serde::Serialize;
use std::borrow::Cow;

#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Data {
    /// The version of this format.
    pub(super) xray: u32,
    pub(super) title: String,
    pub(super) made: Made,
    pub(super) modules: Vec<ModuleRow>,
    pub(super) nodes: Vec<Node>,
    pub(super) events: Vec<EventRow>,
    pub(super) values: Vec<Values>,
    pub(super) formulas: Vec<FormulaRow>,
    pub(super) memory: Memory,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) machine: Option<MachineRow>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) lesson: Option<Lesson>,
    pub(super) left_out: Vec<String>,
    /// How the runs of the recorded code differ.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) difference: Option<String>,
}

#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Made {
    pub(super) version: &'static str,
    pub(super) cpu: String,
    pub(super) level: String,
    pub(super) threads: usize,
    pub(super) dtype: String,
    /// The number of shards of the batch, of which the first is shown.
    pub(super) shards: usize,
    /// The number of runs with times.
    pub(super) runs: usize,
    /// That of all shards.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) loss: Option<Number>,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct ModuleRow {
    pub(super) path: String,
    #[serde(rename = "type")]
    pub(super) type_name: String,
    /// -1 for the model.
    pub(super) parent: isize,
}

/// A leaf or an operation.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Node {
    pub(super) kind: &'static str,
    pub(super) name: String,
    pub(super) module: usize,
    pub(super) shapes: Vec<Vec<usize>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) inputs: Vec<Input>,
    /// Numbers in its formula.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) constants: Vec<(&'static str, Number)>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) line: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) saved: Vec<Saved>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) formula: Option<usize>,
    #[serde(skip_serializing_if = "is_zero")]
    pub(super) flops: u64,
    #[serde(skip_serializing_if = "is_zero")]
    pub(super) traffic: u64,
    /// The least time in kernels of all runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) seconds: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) backward_seconds: Option<f64>,
    /// The medians of the runs, if there are several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) medians: Option<[f64; 2]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) least_seconds: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) kernel: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) value: Option<usize>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) elements: Vec<ElementRow>,
    /// A fused operation as ordinary operations.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) inside: Option<String>,
    /// Operations that its rule called, by name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) rule: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) no_gradient: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) trainable: Option<bool>,
    /// The norm of the update of a parameter, divided by the norm of the parameter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) update: Option<Number>,
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}

#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Input {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) node: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) output: Option<usize>,
    pub(super) shape: Vec<usize>,
    /// What it is called in the formula.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) symbol: Option<&'static str>,
    /// Why no gradient is propagated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reason: Option<String>,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct Saved {
    pub(super) name: String,
    pub(super) shape: Vec<usize>,
    pub(super) bytes: usize,
    pub(super) shared: bool,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct ElementRow {
    pub(super) index: String,
    pub(super) forward: String,
    /// What each delivery brings to its gradient: the node that delivers it (none if the caller gave it), and the
    /// number.
    pub(super) parts: Vec<(Option<usize>, Number)>,
    /// How the parts are computed: the place of the part, and a sum.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) terms: Vec<(usize, String)>,
    /// A central difference beside its gradient.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) check: Option<CheckRow>,
}

impl ElementRow {
    /// The element at an index, with how it is computed.
    pub(super) fn new(index: &[usize], forward: String) -> ElementRow {
        let index = match index {
            [] => "the only element".into(),
            index => bracketed(index),
        };
        ElementRow { index, forward, parts: Vec::new(), terms: Vec::new(), check: None }
    }

    /// Its gradient, the sum of what was delivered; `None` if nothing was, or if it is not finite.
    pub(super) fn gradient(&self) -> Option<f64> {
        let sum: f64 = self.parts.iter().map(|(_, part)| part.0).sum();
        (!self.parts.is_empty() && sum.is_finite()).then_some(sum)
    }
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct CheckRow {
    /// `(L(x + h) - L(x - h)) / 2h`
    pub(super) difference: f64,
    /// The error that is to be expected of it, from rounding and from the step.
    pub(super) error: f64,
    /// `h`
    pub(super) step: f64,
    /// Whether the gradient is no further from it than so many errors.
    pub(super) agrees: bool,
}

#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct EventRow {
    pub(super) what: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) node: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) to: Option<usize>,
    pub(super) live: usize,
    /// Bytes of gradients among them.
    pub(super) gradients: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) freed: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) value: Option<usize>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct FormulaRow {
    pub(super) forward: Cow<'static, str>,
    pub(super) backward: Cow<'static, str>,
}

#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Memory {
    /// Bytes in use when the record began.
    pub(super) before: usize,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct MachineRow {
    /// The peak rate of f32.
    pub(super) gflops: f64,
    /// Levels of memory from the first cache to main memory, and their bandwidths in GB/s.
    pub(super) memory: Vec<(&'static str, f64)>,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct Lesson {
    pub(super) rows: Vec<LessonRow>,
    pub(super) visits: usize,
    pub(super) naive_visits: usize,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct LessonRow {
    pub(super) name: String,
    pub(super) uses: usize,
    pub(super) right: f64,
    pub(super) wrong: f64,
    pub(super) equal: bool,
}
