//! Summaries of models: [`Summarize::summary`].

use crate::number::grouped;
use crate::record::{Constant, Operation, Recorder, Recording, Source, innermost, is_inside};
use retrograd_autograd::{Id, Kind, Product, Var, with_grad_enabled};
use retrograd_nn::{Module, Param, for_each_module, short_type};
use retrograd_tensor::{Real, Shape};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Range;

/// A method of modules: a table of what a forward pass costs.
pub trait Summarize<T: Real>: Module<T> {
    /// A table of the modules: type, shape of the output, number of parameters, floating-point
    /// operations (FLOPs) and bytes, as a forward pass `run` gives them. `run` is called once, and what
    /// it returns is dropped.
    ///
    /// * *Outputs.* The model, the modules of the library and the layers of a
    ///   [`Sequential`](retrograd_nn::Sequential) report theirs. A module of your own inside another one does
    ///   not, unless its `forward` is wrapped in [`Module::observe`]. Nor do methods other than `forward`.
    /// * *FLOPs* count matrix multiplications in linear layers, attention, `matmul` and `einsum`;
    ///   a multiplication and an addition are two. Attention counts every pair of a query and a key, even
    ///   if it is masked. Everything else, and an operation of your own ([`Var::from_op`]), counts
    ///   nothing. That is how PyTorch's `FlopCounterMode` counts. A product with a parameter counts for the
    ///   module that owns it; another one for the innermost module around the neighbouring operations
    ///   that have parameters, or around the call that was reported.
    ///
    /// Only what the returned variable was computed from counts, and nothing under
    /// [`no_grad`](retrograd_autograd::no_grad). A tied parameter counts once in sums; its uses count for
    /// its names in turn.
    ///
    /// ```
    /// use retrograd::prelude::*;
    ///
    /// let rng = &mut Rng::new(1);
    /// let model = Sequential::<f32>::new()
    ///     .then(Linear::new(4, 8, rng))
    ///     .then(Activation::Relu)
    ///     .then(Linear::new(8, 2, rng));
    /// let x = Var::constant(Tensor::ones([10, 4]));
    /// let summary = model.summary(|m| m.forward(&x, &mut Pass::eval()));
    /// println!("{summary}");
    /// let total = summary.total();
    /// assert_eq!((total.parameters, total.flops), (58, 2 * 10 * (4 * 8 + 8 * 2)));
    /// assert_eq!(summary.row("1").unwrap().output.unwrap(), [10, 8]);
    /// ```
    fn summary(&self, run: impl FnOnce(&Self) -> Var<T>) -> Summary
    where
        Self: Sized,
    {
        let mut run = Some(run);
        summarize(self, &mut || (run.take().expect("called once"))(self))
    }
}

impl<T: Real, M: Module<T>> Summarize<T> for M {}

/// The modules of a model with their sizes and costs, measured in a forward pass; see
/// [`Summarize::summary`]. It is printed as a table.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// A row for the model, and one for each of its modules, in the order of
    /// [`Module::named_modules`].
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
    /// Number of parameters, submodules included; a tied one counts once.
    pub parameters: usize,
    /// Whether all its parameters also belong to modules in earlier rows, which are not around it.
    pub tied: bool,
    /// Floating-point operations of matrix multiplications, submodules included; a
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
    pub fn row(&self, path: &str) -> Option<&SummaryRow> {
        self.rows.iter().find(|row| row.path == path)
    }

    /// Without the modules that are inside more than `depth` others; their costs stay in the rows of
    /// those around them.
    pub fn depth(mut self, depth: usize) -> Summary {
        self.rows.retain(|row| row.depth <= depth);
        self
    }
}

/// A module of the model.
struct Visited {
    path: String,
    type_name: &'static str,
    /// [`Module::is_one_operation`].
    is_one_operation: bool,
}

/// The summary of a model whose forward pass is `run`.
#[inline(never)]
fn summarize<T: Real>(model: &dyn Module<T>, run: &mut dyn FnMut() -> Var<T>) -> Summary {
    let (mut modules, mut params) = (Vec::new(), Vec::new());
    for_each_module(model, &mut |path, m| {
        let (type_name, is_one_operation) = (m.type_name(), m.is_one_operation());
        modules.push(Visited { path: path.into(), type_name, is_one_operation });
    });
    model.for_each_parameter(&mut |name, param| params.push((name.to_string(), param.clone())));
    let recorder = Recorder::new().model(model);
    let (output, recording, source) = recorder.record_source(|| with_grad_enabled(true, run));
    let used = used(&recording, source);
    Model::new(&modules, &params, &recording).summary(&output, &used)
}

/// The operations that a result was computed by.
fn used(recording: &Recording, result: Source) -> BTreeSet<usize> {
    let (mut found, mut next) = (BTreeSet::new(), vec![result]);
    while let Some(source) = next.pop() {
        if let Source::Output(i, _) | Source::Constant(Constant::Computed(i)) = source
            && found.insert(i)
        {
            next.extend(recording.operations[i].inputs.iter().map(|input| input.source));
        }
    }
    found
}

/// The leaf that an input is, or that it is a view of.
fn leaf_below(recording: &Recording, mut source: Source) -> Option<Id> {
    while let Source::Output(i, _) | Source::Constant(Constant::Computed(i)) = source {
        let Operation { call, inputs, .. } = &recording.operations[i];
        let ([input], Kind::View) = (&inputs[..], call.op.kind) else { return None };
        source = input.source;
    }
    source.leaf()
}

/// The products of matrices of an operation, each with the leaf that is the weight, if one is.
fn products(recording: &Recording, operation: &Operation) -> Vec<(Product, Option<Id>)> {
    let factor = |name: &str| operation.inputs.iter().find(|input| input.name == name);
    let weight = |product: &Product| {
        let leaf = |name| leaf_below(recording, factor(name)?.source);
        let [a, b] = product.factors.map(leaf);
        b.or(a)
    };
    let products = operation.products().into_iter();
    products.map(|product| (product.clone(), weight(&product))).collect()
}

/// The parts of a model, and what was recorded.
struct Model<'a, T: Real> {
    modules: &'a [Visited],
    params: &'a [(String, Param<T>)],
    /// The modules that own a parameter, by its id: several if it is tied.
    owners: BTreeMap<Id, Vec<usize>>,
    recording: &'a Recording,
}

/// A product of matrices: the number of the operation, the module that owns the weight, if that is a
/// parameter, and the FLOPs.
struct Cost {
    operation: usize,
    module: Option<usize>,
    flops: u64,
}

/// A use of parameters: an operation, by its number, and the module that owns them.
struct Use {
    operation: usize,
    module: usize,
    output: Shape,
}

impl<'a, T: Real> Model<'a, T> {
    fn new(
        modules: &'a [Visited],
        params: &'a [(String, Param<T>)],
        recording: &'a Recording,
    ) -> Self {
        let mut owners = BTreeMap::<Id, Vec<usize>>::new();
        for (name, param) in params {
            let owner = innermost(modules.iter().map(|m| &m.path[..]), &[name]);
            let all = owners.entry(param.id()).or_default();
            if !all.contains(&owner) {
                all.push(owner);
            }
        }
        Model { modules, params, owners, recording }
    }

    fn summary(&self, output: &Var<T>, used: &BTreeSet<usize>) -> Summary {
        let called = self.called();
        let (uses, costs) = self.uses(used);
        let cost = |c: Cost| {
            let around = || self.around(c.operation, &uses, &called);
            (c.module.unwrap_or_else(around), c.flops)
        };
        let costs: Vec<(usize, u64)> = costs.into_iter().map(cost).collect();
        let mut rows = self.rows();
        for (i, row) in rows.iter_mut().enumerate() {
            let inside = costs.iter().filter(|(m, _)| is_inside(&self.modules[*m].path, &row.path));
            row.flops = inside.map(|(_, flops)| flops).sum();
            let observed: Vec<Shape> = match (i, self.modules[i].is_one_operation) {
                (0, _) => vec![*output.shape()],
                (_, true) => uses.iter().filter(|u| u.module == i).map(|u| u.output).collect(),
                _ => called
                    .iter()
                    .filter(|(m, ..)| *m == i)
                    .filter_map(|(.., output)| *output)
                    .collect(),
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
            let others = rows.iter().filter(|row| !around(row));
            let before: BTreeSet<Id> = others.flat_map(|row| ids(&row.path).into_keys()).collect();
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

    /// The calls of modules: the module, its operations and its output.
    fn called(&self) -> Vec<(usize, Range<usize>, Option<Shape>)> {
        let place = |path: &str| self.modules.iter().position(|module| module.path == path);
        let calls = self.recording.calls.iter();
        let of = |call: &crate::record::ModuleCall| {
            Some((place(&call.module.path)?, call.operations.clone(), call.output))
        };
        calls.filter_map(of).collect()
    }

    /// The uses of parameters, and the products of matrices. The uses of a tied parameter are by its
    /// owners in turn.
    fn uses(&self, used: &BTreeSet<usize>) -> (Vec<Use>, Vec<Cost>) {
        let (mut uses, mut costs) = (Vec::<Use>::new(), Vec::new());
        let mut turn = BTreeMap::<Id, usize>::new();
        for &operation in used {
            let record: &Operation = &self.recording.operations[operation];
            let products = products(self.recording, record);
            let mut owner_here = BTreeMap::<Id, usize>::new();
            for input in &record.inputs {
                let Some(param) = input.source.leaf() else { continue };
                let Some(owners) = self.owners.get(&param) else { continue };
                let n = turn.entry(param).or_default();
                let module = owners[*n % owners.len()];
                *n += 1;
                owner_here.insert(param, module);
                let product = products.iter().find(|(_, weight)| *weight == Some(param));
                let output = product.map_or(record.shapes[0], |(p, _)| p.output);
                // A weight comes before its bias.
                let here = uses.iter().rev().take_while(|u| u.operation == operation);
                if !here.clone().any(|u| u.module == module) {
                    uses.push(Use { operation, module, output });
                }
            }
            for (product, weight) in products {
                // The owner whose turn it is; the first where the weight is used through a view.
                let module = weight.and_then(|weight| {
                    let first = || self.owners.get(&weight)?.first();
                    owner_here.get(&weight).or_else(first).copied()
                });
                costs.push(Cost { operation, module, flops: product.flops });
            }
        }
        (uses, costs)
    }

    /// The module of an operation without parameters: the innermost around the operations with
    /// parameters before and after it, or the innermost call that it is part of.
    fn around(
        &self,
        operation: usize,
        uses: &[Use],
        called: &[(usize, Range<usize>, Option<Shape>)],
    ) -> usize {
        let during = called.iter().filter(|(_, operations, _)| operations.contains(&operation));
        let call = during.max_by_key(|(_, operations, _)| operations.start);
        let call = call.map_or(0, |(module, ..)| *module);
        let at = uses.partition_point(|u| u.operation < operation);
        let neighbours: Range<usize> = at.saturating_sub(1)..at + 1;
        let Some([before, after]) = uses.get(neighbours) else { return call };
        let between = [before.module, after.module].map(|u| &self.modules[u].path[..]);
        let common = innermost(self.modules.iter().map(|m| &m.path[..]), &between);
        match is_inside(&self.modules[common].path, &self.modules[call].path) {
            true => common,
            false => call,
        }
    }
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
/// observed has no output: `-`. Parameters in parentheses are tied to parameters of a row above.
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
