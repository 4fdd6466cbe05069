//! Summaries of models: what [`Module::summary`](crate::Module::summary) returns.

mod calls;
mod flops;

pub(crate) use calls::{Call, is_recording, scope};

use crate::module::{Module, visit_modules};
use crate::param::Param;
use calls::{Key, Recorded};
use flops::products_of;
use retrograd_autograd::{Id, Node, Var, with_grad_enabled};
use retrograd_study::grouped;
use retrograd_tensor::{Real, Shape};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// The modules of a model with their sizes and costs, measured in a forward pass; see
/// [`Module::summary`](crate::Module::summary). It is printed as a table.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// A row for the model, and one for each of its modules, in the order of
    /// [`Module::named_modules`](crate::Module::named_modules).
    pub rows: Vec<SummaryRow>,
    /// Number of parameters that are not frozen.
    pub trainable: usize,
    /// Bytes of an element.
    pub element_size: usize,
    /// Bytes of the outputs of all modules that have no submodules.
    pub output_bytes: usize,
}

/// A module in a [`Summary`].
#[derive(Clone, Debug, PartialEq)]
pub struct SummaryRow {
    /// The dotted path; empty for the model.
    pub path: String,
    /// The type, such as `Linear`.
    pub type_name: String,
    /// How often its forward pass was observed.
    pub calls: usize,
    /// The shape of its output in the last call that was observed.
    pub output: Option<Shape>,
    /// Number of parameters, those of its submodules included; a tied one once.
    pub parameters: usize,
    /// Whether all its parameters are those of modules in earlier rows, too, which are not around it.
    pub tied: bool,
    /// Floating-point operations of matrix multiplications, those of its submodules included; a
    /// multiplication and an addition are two.
    pub flops: u64,
    /// Bytes of the outputs of all calls.
    pub output_bytes: usize,
    /// The number of modules around it, the model included.
    depth: usize,
}

impl Summary {
    /// The model: the first row.
    pub fn total(&self) -> &SummaryRow {
        &self.rows[0]
    }

    /// The row of a module; `None` if there is none of this path.
    ///
    /// ```
    /// # use retrograd_autograd::Var;
    /// # use retrograd_nn::{Layer, Linear, Module, Pass, Sequential};
    /// # use retrograd_tensor::{Tensor, random::Rng};
    /// let model = Sequential::<f32>::new().then(Linear::new(4, 2, &mut Rng::new(1)));
    /// let x = Var::constant(Tensor::ones([3, 4]));
    /// let summary = model.summary(|m| m.forward(&x, &mut Pass::eval()));
    /// assert_eq!(summary.row("0").unwrap().parameters, 10);
    /// ```
    pub fn row(&self, path: &str) -> Option<&SummaryRow> {
        self.rows.iter().find(|row| row.path == path)
    }

    /// Without the modules that are inside more than `depth` others; their costs stay in the rows of
    /// those around them.
    ///
    /// ```
    /// # use retrograd_nn::{Gpt, GptConfig, Module, Pass};
    /// # use retrograd_tensor::{Tensor, random::Rng};
    /// # let config = GptConfig {
    /// #     vocab: 10, context: 4, layers: 2, heads: 2, width: 8, ..GptConfig::default()
    /// # };
    /// let model = Gpt::<f32>::new(config, &mut Rng::new(1)).unwrap();
    /// let tokens = Tensor::from([[1i64, 2, 3]]);
    /// let summary = model.summary(|m| m.forward(&tokens, &mut Pass::eval())).depth(1);
    /// let paths: Vec<_> = summary.rows.iter().map(|row| row.path.as_str()).collect();
    /// assert_eq!(paths[3..5], ["transformer.h.0", "transformer.h.1"]);
    /// ```
    pub fn depth(mut self, depth: usize) -> Summary {
        self.rows.retain(|row| row.depth <= depth);
        self
    }
}

/// A type without the modules that it is in, and without its element type.
pub(crate) fn short_type(full: &str) -> String {
    let mut short = String::new();
    for part in full.split_inclusive(|c: char| !c.is_alphanumeric() && c != '_') {
        // What ends with a colon is a module, or the other colon after it.
        if !part.ends_with(':') {
            short.push_str(part);
        }
    }
    for element in ["<f32>", "<f64>", "f32, ", "f64, ", ", f32", ", f64"] {
        short = short.replace(element, "");
    }
    short
}

/// Whether `path` is that of `module` or of one inside it.
fn is_inside(path: &str, module: &str) -> bool {
    let rest = path.strip_prefix(module);
    rest.is_some_and(|rest| module.is_empty() || rest.is_empty() || rest.starts_with('.'))
}

/// What [`visit_modules`] says of a module.
pub(crate) struct Visited {
    pub path: String,
    pub type_name: &'static str,
    key: Key,
    /// [`Module::is_one_operation`].
    is_one_operation: bool,
}

impl Visited {
    pub(crate) fn of<T: Real>(path: &str, module: &dyn Module<T>) -> Visited {
        Visited {
            path: path.to_string(),
            type_name: module.type_name(),
            key: calls::key(module),
            is_one_operation: module.is_one_operation(),
        }
    }
}

/// The summary of a model whose forward pass is `run`.
#[inline(never)]
pub(crate) fn summarize<T: Real>(
    model: &dyn Module<T>,
    run: &mut dyn FnMut() -> Var<T>,
) -> Summary {
    let (modules, params) = visit_modules(model);
    let (output, calls) = calls::record(|| with_grad_enabled(true, run));
    Model::new(&modules, &params).summary(&output, &calls)
}

/// A call of a module, for those that observe what is computed in it.
#[derive(Clone, Debug)]
pub(crate) struct Named {
    /// The path of the module.
    pub path: String,
    /// Its type, without the path.
    pub type_name: String,
    /// The numbers of the variables that are created during the call.
    pub numbers: Range<u64>,
}

/// Runs `f`, and returns the calls of the modules of `model` during it, in the order in which they end.
#[inline(never)]
pub(crate) fn named_calls<T: Real, R>(
    model: &dyn Module<T>,
    f: impl FnOnce() -> R,
) -> (R, Vec<Named>) {
    let (modules, params) = visit_modules(model);
    let (result, calls) = calls::record(f);
    let named = |(module, call): (usize, &Recorded)| Named {
        path: modules[module].path.clone(),
        type_name: short_type(modules[module].type_name),
        numbers: call.ids.0..call.ids.1,
    };
    (result, Model::new(&modules, &params).called(&calls).into_iter().map(named).collect())
}

/// The parts of a model.
struct Model<'a, T: Real> {
    modules: &'a [Visited],
    params: &'a [(String, Param<T>)],
    /// The modules that own a parameter, by its id: several if it is tied.
    owners: BTreeMap<Id, Vec<usize>>,
}

/// A product of matrices: the id of the operation, the module that owns the weight, if that is a
/// parameter, and the FLOPs.
struct Cost {
    id: u64,
    module: Option<usize>,
    flops: u64,
}

/// A use of parameters: an operation, by its id, and the module that owns them.
struct Use {
    id: u64,
    module: usize,
    output: Shape,
}

impl<'a, T: Real> Model<'a, T> {
    fn new(modules: &'a [Visited], params: &'a [(String, Param<T>)]) -> Self {
        let mut owners = BTreeMap::<Id, Vec<usize>>::new();
        for (name, param) in params {
            let around = (0..modules.len()).filter(|&m| is_inside(name, &modules[m].path));
            let owner = around.max_by_key(|&m| modules[m].path.len()).unwrap_or(0);
            let all = owners.entry(param.id()).or_default();
            if !all.contains(&owner) {
                all.push(owner);
            }
        }
        Model { modules, params, owners }
    }

    fn summary(&self, output: &Var<T>, calls: &[Recorded]) -> Summary {
        let called = self.called(calls);
        let nodes = nodes(output);
        let (uses, costs) = self.uses(&nodes);
        let costs: Vec<(usize, u64)> = costs
            .iter()
            .map(|c| (c.module.unwrap_or_else(|| self.around(c.id, &uses, &called)), c.flops))
            .collect();
        let mut rows = self.rows();
        for (i, row) in rows.iter_mut().enumerate() {
            let inside = costs.iter().filter(|(m, _)| is_inside(&self.modules[*m].path, &row.path));
            row.flops = inside.map(|(_, flops)| flops).sum();
            let observed: Vec<Shape> = match (i, self.modules[i].is_one_operation) {
                (0, _) => vec![*output.shape()],
                (_, true) => uses.iter().filter(|u| u.module == i).map(|u| u.output).collect(),
                _ => called.iter().filter(|(m, _)| *m == i).map(|(_, call)| call.output).collect(),
            };
            row.calls = observed.len();
            row.output = observed.last().copied();
            row.output_bytes = observed.iter().map(|s| s.numel() * size_of::<T>()).sum();
        }
        let trainable = self.params.iter().filter(|(_, p)| p.is_trainable());
        let trainable: BTreeMap<Id, usize> =
            trainable.map(|(_, p)| (p.id(), p.shape().numel())).collect();
        let is_innermost =
            |i: &usize| rows.get(i + 1).is_none_or(|next| next.depth <= rows[*i].depth);
        let innermost = (0..rows.len()).filter(is_innermost);
        Summary {
            output_bytes: innermost.map(|i| rows[i].output_bytes).sum(),
            trainable: trainable.values().sum(),
            element_size: size_of::<T>(),
            rows,
        }
    }

    /// Rows without what was measured.
    fn rows(&self) -> Vec<SummaryRow> {
        let ids = |path: &str| -> BTreeMap<Id, usize> {
            let inside = self.params.iter().filter(|(name, _)| is_inside(name, path));
            inside.map(|(_, p)| (p.id(), p.shape().numel())).collect()
        };
        let mut rows: Vec<SummaryRow> = Vec::new();
        for module in self.modules {
            let path = &module.path;
            let own = ids(path);
            let around = |row: &&SummaryRow| is_inside(path, &row.path);
            let depth = rows.iter().filter(around).count();
            let before: BTreeSet<Id> = rows
                .iter()
                .filter(|row| !around(row))
                .flat_map(|row| ids(&row.path).into_keys())
                .collect();
            rows.push(SummaryRow {
                path: path.clone(),
                type_name: short_type(module.type_name),
                calls: 0,
                output: None,
                parameters: own.values().sum(),
                tied: !own.is_empty() && own.keys().all(|id| before.contains(id)),
                flops: 0,
                output_bytes: 0,
                depth,
            });
        }
        rows
    }

    /// The module of each call. Modules without fields may share an address: their calls are in turn.
    fn called<'c>(&self, calls: &'c [Recorded]) -> Vec<(usize, &'c Recorded)> {
        let mut modules = BTreeMap::<Key, Vec<usize>>::new();
        for (i, module) in self.modules.iter().enumerate() {
            modules.entry(module.key).or_default().push(i);
        }
        let mut turn = BTreeMap::<Key, usize>::new();
        let mut called = Vec::new();
        for call in calls {
            if let Some(of) = modules.get(&call.key) {
                let turn = turn.entry(call.key).or_default();
                called.push((of[*turn % of.len()], call));
                *turn += 1;
            }
        }
        called
    }

    /// The uses of parameters, and the products of matrices. The uses of a tied parameter are by its
    /// owners in turn.
    fn uses(&self, nodes: &[Arc<Node<T>>]) -> (Vec<Use>, Vec<Cost>) {
        let (mut uses, mut costs) = (Vec::<Use>::new(), Vec::new());
        let mut turn = BTreeMap::<Id, usize>::new();
        for node in nodes {
            let id = node.id().number();
            let products = products_of(node);
            let mut owner_here = BTreeMap::<Id, usize>::new();
            for param in node.inputs().iter().filter_map(|input| input.id()) {
                let Some(owners) = self.owners.get(&param) else { continue };
                let n = turn.entry(param).or_default();
                let module = owners[*n % owners.len()];
                *n += 1;
                owner_here.insert(param, module);
                let product = products.iter().find(|(_, weight)| *weight == Some(param));
                let output = product.map_or(node.outputs()[0], |(p, _)| p.output);
                // A weight comes before its bias.
                if !uses.iter().rev().take_while(|u| u.id == id).any(|u| u.module == module) {
                    uses.push(Use { id, module, output });
                }
            }
            for (product, weight) in products {
                // The owner whose turn it is; the first where the weight is used through a view.
                let module = weight.and_then(|weight| {
                    let first = || self.owners.get(&weight)?.first();
                    owner_here.get(&weight).or_else(first).copied()
                });
                costs.push(Cost { id, module, flops: product.flops });
            }
        }
        (uses, costs)
    }

    /// The module of an operation without parameters: the innermost around the operations with
    /// parameters before and after it, or the innermost call that it is part of.
    fn around(&self, id: u64, uses: &[Use], called: &[(usize, &Recorded)]) -> usize {
        let during = |(_, call): &&(usize, &Recorded)| (call.ids.0..call.ids.1).contains(&id);
        let call = called.iter().filter(during).max_by_key(|(_, call)| call.ids.0);
        let call = call.map_or(0, |(module, _)| *module);
        let at = uses.partition_point(|u| u.id < id);
        let neighbours: Range<usize> = at.saturating_sub(1)..at + 1;
        let Some([before, after]) = uses.get(neighbours) else { return call };
        let between = [before.module, after.module];
        let contains = |m: &usize| {
            between.iter().all(|&u| is_inside(&self.modules[u].path, &self.modules[*m].path))
        };
        let common = (0..self.modules.len()).filter(contains);
        let common = common.max_by_key(|&m| self.modules[m].path.len()).unwrap_or(0);
        match is_inside(&self.modules[common].path, &self.modules[call].path) {
            true => common,
            false => call,
        }
    }
}

/// The operations that `output` was computed by, in the order of their creation.
fn nodes<T: Real>(output: &Var<T>) -> Vec<Arc<Node<T>>> {
    let mut found = BTreeMap::<Id, Arc<Node<T>>>::new();
    let mut pending: Vec<Arc<Node<T>>> = output.node().cloned().into_iter().collect();
    while let Some(node) = pending.pop() {
        found.entry(node.id()).or_insert_with(|| {
            pending.extend(node.inputs().iter().filter_map(|input| input.node().cloned()));
            node
        });
    }
    found.into_values().collect()
}

/// A number of bytes or of operations, such as `1.50 MB`, in powers of 1000.
fn scaled(n: u64, unit: &str) -> String {
    let prefixes = ["", "k", "M", "G", "T", "P", "E"];
    let (mut x, mut i) = (n as f64, 0);
    // What would be rounded to 1000 has the next prefix.
    while x >= 999.5 && i + 1 < prefixes.len() {
        x /= 1000.0;
        i += 1;
    }
    let text = match (i, x) {
        (0, _) => format!("{n}"),
        (_, x) if x < 9.995 => format!("{x:.2}"),
        (_, x) if x < 99.95 => format!("{x:.1}"),
        (_, x) => format!("{x:.0}"),
    };
    format!("{text} {}{unit}", prefixes[i]).trim_end().to_string()
}

/// At most `most` characters.
fn clipped(text: &str, most: usize) -> String {
    match text.chars().count() <= most {
        true => text.to_string(),
        false => text.chars().take(most - 2).chain("..".chars()).collect(),
    }
}

/// A table with a row per module, indented by depth, and a line with the sums. A module that was not
/// observed has no output: `-`. Parameters in parentheses are tied to those of a row above.
impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const HEADER: [&str; 7] =
            ["module", "type", "output", "parameters", "FLOPs", "weights", "outputs"];
        let bytes = |n: usize| if n == 0 { "-".into() } else { scaled(n as u64, "B") };
        let mut table = vec![HEADER.map(String::from)];
        let mut around: Vec<&str> = Vec::new();
        for row in &self.rows {
            // The path from the nearest module around it that is shown.
            around.truncate(row.depth);
            let name = row.path.strip_prefix(around.last().copied().unwrap_or(""));
            let name = name.unwrap_or(&row.path).trim_start_matches('.');
            around.push(&row.path);
            let name = if row.path.is_empty() { "(model)" } else { name };
            let output = row.output.map_or("-".into(), |shape| match row.calls {
                1 => format!("{shape:?}"),
                n => format!("{n} x {shape:?}"),
            });
            let parameters = match (row.parameters, row.tied) {
                (0, _) => "-".into(),
                (n, true) => format!("({})", grouped(n as u64)),
                (n, false) => grouped(n as u64),
            };
            table.push([
                format!("{}{name}", "  ".repeat(row.depth)),
                clipped(&row.type_name, 26),
                output,
                parameters,
                if row.flops == 0 { "-".into() } else { scaled(row.flops, "") },
                bytes(row.parameters * self.element_size),
                bytes(row.output_bytes),
            ]);
        }
        let widths: [usize; 7] = std::array::from_fn(|column| {
            table.iter().map(|line| line[column].chars().count()).max().unwrap_or(0)
        });
        let line = |f: &mut fmt::Formatter<'_>, cells: &[String; 7]| {
            for (column, (cell, width)) in cells.iter().zip(widths).enumerate() {
                let gap = if column == 0 { "" } else { "  " };
                match column {
                    0..=2 => write!(f, "{gap}{cell:width$}")?,
                    _ => write!(f, "{gap}{cell:>width$}")?,
                }
            }
            writeln!(f)
        };
        let rule = "-".repeat(widths.iter().sum::<usize>() + 2 * (widths.len() - 1));
        line(f, &table[0])?;
        writeln!(f, "{rule}")?;
        for cells in &table[1..] {
            line(f, cells)?;
        }
        writeln!(f, "{rule}")?;
        let total = self.total();
        let frozen = match total.parameters - self.trainable {
            0 => String::new(),
            n => format!(", {} of them frozen", grouped(n as u64)),
        };
        write!(
            f,
            "total: {} parameters{frozen} ({}); {} FLOPs; outputs of innermost modules: {}",
            grouped(total.parameters as u64),
            scaled((total.parameters * self.element_size) as u64, "B"),
            scaled(total.flops, ""),
            scaled(self.output_bytes as u64, "B"),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        let cases = [(0, "0 B"), (999, "999 B"), (1000, "1.00 kB"), (999_949, "1.00 MB")];
        for (n, text) in cases.into_iter().chain([(12_345, "12.3 kB"), (123_456_789, "123 MB")]) {
            assert_eq!(scaled(n, "B"), text);
        }
        assert_eq!(scaled(9_995, ""), "10.0 k");
        assert_eq!([0, 999, 1000, 1234567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
    }

    #[test]
    fn types_are_short() {
        let cases = [
            ("retrograd_nn::linear::Linear<f32>", "Linear"),
            ("a::Residual<retrograd_nn::linear::Linear<f64>>", "Residual<Linear>"),
            ("a::Pair<b::X<f32>, c::Y, f64>", "Pair<X, Y>"),
            ("a::Scored<f32, b::Score>", "Scored<Score>"),
        ];
        for (full, short) in cases {
            assert_eq!(short_type(full), short);
        }
        assert_eq!((clipped("four", 4), clipped("clipped", 4)), ("four".into(), "cl..".into()));
    }
}
