//! Where a NaN or an infinity began.

use super::recorder::{Recorder, Seen};
use super::recording::{Constant, ModulePath, Source};
use crate::locked::locked;
use retrograd_autograd::Kind;
use retrograd_tensor::{Real, Shape, Tensor};
use std::any::Any;
use std::collections::HashMap;
use std::fmt::{self, Display, Formatter};
use std::panic::Location;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

/// Where the first NaN or infinity came from: an operation or a rule, or a tensor that had it from the beginning.
#[derive(Clone, Debug, PartialEq)]
pub struct NonFinite {
    /// The name of the operation.
    pub operation: &'static str,
    /// Whether it was the rule of the operation, in a backward pass.
    pub is_backward: bool,
    /// The position of the input that had it already, if no operation of the record computed that: a
    /// parameter, or data.
    pub input: Option<usize>,
    /// Where the operation was called.
    pub location: Option<&'static Location<'static>>,
    /// The module whose forward pass computed the operation, if modules report theirs.
    pub module: Option<ModulePath>,
    /// The result; of a rule, the gradient that it delivered, or the sum of that and earlier ones if only
    /// the sum is not finite.
    pub result: Extent,
    /// The inputs of the operation. Of a rule: the gradient of the result, then the inputs.
    pub inputs: Vec<Extent>,
}

/// The elements of a tensor, summarised.
#[derive(Clone, Debug, PartialEq)]
pub struct Extent {
    /// What the tensor is: `input 1`, or `input 1, 0.weight,`.
    pub name: String,
    /// Its shape.
    pub shape: Shape,
    /// The number of elements that are NaN.
    pub nan: usize,
    /// The number of elements that are infinite.
    pub infinite: usize,
    /// The smallest and the largest finite element; `None` if there is none.
    pub range: Option<(f64, f64)>,
}

impl Extent {
    fn of(name: String, tensor: &dyn Any) -> Option<Extent> {
        fn summary<T: Real>(name: String, x: &Tensor<T>) -> Extent {
            let values = x.to_vec();
            let shape = *x.shape();
            if let Some(range) = finite_range(&values) {
                return Extent { name, shape, nan: 0, infinite: 0, range };
            }
            let (mut nan, mut infinite) = (0, 0);
            let mut range: Option<(f64, f64)> = None;
            for x in values.into_iter().map(T::to_f64) {
                match x {
                    x if x.is_nan() => nan += 1,
                    x if x.is_infinite() => infinite += 1,
                    x => range = Some(range.map_or((x, x), |(a, b)| (a.min(x), b.max(x)))),
                }
            }
            Extent { name, shape, nan, infinite, range }
        }
        match tensor.downcast_ref::<Tensor<f32>>() {
            Some(x) => Some(summary(name, x)),
            None => tensor.downcast_ref::<Tensor<f64>>().map(|x| summary(name, x)),
        }
    }

    fn is_finite(&self) -> bool {
        self.nan + self.infinite == 0
    }
}

/// The least and the largest of numbers that are all finite, in lanes; the outer `None` if one is not.
fn finite_range<T: Real>(values: &[T]) -> Option<Option<(f64, f64)>> {
    const N: usize = 16;
    let (mut low, mut high) = ([f64::INFINITY; N], [f64::NEG_INFINITY; N]);
    let mut zeros = [0.0; N]; // NaN where a number is not finite
    for chunk in values.chunks(N) {
        for (i, x) in chunk.iter().enumerate() {
            let x = x.to_f64();
            low[i] = if x < low[i] { x } else { low[i] };
            high[i] = if x > high[i] { x } else { high[i] };
            zeros[i] += x * 0.0;
        }
    }
    let low = low.into_iter().fold(f64::INFINITY, f64::min);
    let high = high.into_iter().fold(f64::NEG_INFINITY, f64::max);
    zeros.iter().all(|&zero| zero == 0.0).then(|| (low <= high).then_some((low, high)))
}

impl Display for Extent {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?}", self.name, self.shape)?;
        match self.range {
            Some((min, max)) => write!(f, ", from {min:.4e} to {max:.4e}")?,
            None => write!(f, ", no finite element")?,
        }
        match (self.nan, self.infinite) {
            (0, 0) => Ok(()),
            (nan, 0) => write!(f, ", {nan} NaN"),
            (0, infinite) => write!(f, ", {infinite} infinite"),
            (nan, infinite) => write!(f, ", {nan} NaN, {infinite} infinite"),
        }
    }
}

impl Display for NonFinite {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let kind = match (self.result.nan, self.result.infinite) {
            (_, 0) => "NaN",
            (0, _) => "infinity",
            _ => "NaN and infinity",
        };
        let rule = if self.is_backward { "the backward rule of " } else { "" };
        let input = self.input.map_or(String::new(), |i| format!("in input {i} of "));
        write!(f, "the first {kind}: {input}{rule}`{}`", self.operation)?;
        if let Some(module) = &self.module {
            write!(f, " in {module}")?;
        }
        if let Some(at) = self.location {
            write!(f, " at {at}")?;
        }
        write!(f, "\n  {}", self.result)?;
        self.inputs.iter().try_for_each(|input| write!(f, "\n  {input}"))
    }
}

/// Runs `f`, and finds where the first NaN or infinity in it began:
///
/// * the first operation or backward rule whose result has a NaN, although its inputs have none;
/// * or an infinity, although its inputs have neither (infinities that an operation was asked to write, as
///   `masked_fill` is, do not count, nor do infinities of a constant);
/// * or the first operation with a parameter or data that had it already ([`NonFinite::input`]).
///
/// Every value is examined, so `f` takes several times as long as otherwise. PyTorch's
/// `autograd.detect_anomaly` examines gradients only. The environment variable `RETROGRAD_NONFINITE=1` does the
/// same in a program that calls [`from_env`](crate::from_env): the operation that is found panics.
///
/// ```
/// use retrograd::prelude::*;
/// use retrograd::study::record::find_nonfinite;
///
/// let x = Var::leaf(Tensor::from([1.0f32, 0.0, 4.0]));
/// // √0 is 0, but its derivative 1 / (2 √0) is infinite.
/// let (_, found) = find_nonfinite(|| x.sqrt().sum(..).backward());
/// let found = found.unwrap();
/// assert_eq!((found.operation, found.is_backward, found.result.infinite), ("sqrt", true, 1));
/// println!("{found}");
///
/// let (_, found) = find_nonfinite(|| x.square().sum(..).backward());
/// assert!(found.is_none());
/// ```
pub fn find_nonfinite<R>(f: impl FnOnce() -> R) -> (R, Option<NonFinite>) {
    let search = Arc::new(Mutex::new(Search::default()));
    let (result, _) = recorder(search.clone()).record(f);
    let first = locked(&search).first.take();
    (result, first)
}

/// Searches in the whole process: the operation that is found panics.
pub(crate) fn search_process(_: Option<PathBuf>) -> Result<(), String> {
    let search = Mutex::new(Search::default());
    let recorder = Recorder::new().watching(move |seen| {
        let mut search = locked(&search);
        search.see(seen);
        if let Some(found) = search.first.take() {
            panic!("RETROGRAD_NONFINITE: {found}");
        }
    });
    recorder.observe_process(MOST_OPERATIONS);
    Ok(())
}

/// Of a process that is searched.
const MOST_OPERATIONS: usize = 100_000;

/// A recorder that searches until something is found.
fn recorder(search: Arc<Mutex<Search>>) -> Recorder {
    Recorder::new().watching(move |seen| {
        let mut search = locked(&search);
        if search.first.is_none() {
            search.see(seen);
        }
    })
}

#[derive(Default)]
struct Search {
    /// Operations by their number.
    called: HashMap<usize, Called>,
    /// The gradients that rules were called with.
    gradients: HashMap<usize, Vec<Extent>>,
    /// Whether a backward pass began with a gradient that is not finite.
    is_seed_bad: bool,
    first: Option<NonFinite>,
}

/// An operation that was computed.
struct Called {
    location: &'static Location<'static>,
    module: Option<ModulePath>,
    inputs: Vec<Extent>,
}

impl Search {
    fn see(&mut self, seen: &Seen<'_>) {
        let extents = |what: &str, tensors: &[&dyn Any]| -> Vec<Extent> {
            let tensors = tensors.iter().enumerate();
            tensors.filter_map(|(i, x)| Extent::of(format!("{what} {i}"), *x)).collect()
        };
        match seen {
            Seen::Computed {
                operation,
                call,
                location,
                module,
                sources,
                names,
                inputs,
                results,
                ..
            } => {
                let tensors: Vec<&dyn Any> = inputs.iter().map(|(_, x)| *x).collect();
                let mut inputs = extents("input", &tensors);
                for (input, name) in inputs.iter_mut().zip(names) {
                    if let Some(name) = name {
                        input.name += &format!(", {name},");
                    }
                }
                let has_nan = inputs.iter().any(|x| x.nan > 0);
                let has_infinity = inputs.iter().any(|x| x.infinite > 0);
                // What was not finite before has begun elsewhere, or was asked for.
                let begins = |y: &Extent| {
                    let infinity = y.infinite > 0 && !has_infinity && call.op.kind != Kind::Fill;
                    !has_nan && (y.nan > 0 || infinity)
                };
                let results = extents("result", results);
                let is_bad = results.iter().any(|y| !y.is_finite());
                // An input that no operation of the record computed.
                let had = |(source, x): (&Source, &Extent)| match source {
                    Source::Leaf(_) | Source::Constant(Constant::DetachedLeaf(_)) => !x.is_finite(),
                    Source::Constant(Constant::Made) => x.nan > 0,
                    Source::Output(from, _) => x.nan > 0 && !self.called.contains_key(from),
                    Source::Constant(_) => false,
                };
                let input = sources.iter().zip(&inputs).position(had).filter(|_| is_bad);
                let result = match input {
                    Some(input) => Some(inputs[input].clone()),
                    None => results.into_iter().find(begins),
                };
                if let Some(result) = result {
                    self.first = Some(NonFinite {
                        operation: call.op.name,
                        is_backward: false,
                        input,
                        location: Some(location),
                        module: module.clone(),
                        result,
                        inputs: inputs.clone(),
                    });
                }
                let module = module.clone();
                self.called.insert(*operation, Called { location, module, inputs });
            }
            Seen::RuleBegan { operation, gradients, .. } => {
                self.gradients.insert(*operation, extents("gradient of result", gradients));
            }
            Seen::Seeded { gradient, .. } => {
                let seed = Extent::of("seed".into(), *gradient);
                self.is_seed_bad |= seed.is_some_and(|g| !g.is_finite());
            }
            Seen::Forgotten => *self = Search::default(),
            Seen::Delivered { from, name, gradient, sum, .. } => {
                let is_bad = |g: &Extent| !g.is_finite();
                let delivered = Extent::of("gradient of an input".into(), *gradient);
                let summed = || Extent::of("sum of the gradients of an input".into(), *sum);
                let result = match delivered.filter(is_bad) {
                    // Gradients that are finite may have a sum that is not.
                    None => summed().filter(|sum| is_bad(sum) && !self.is_seed_bad),
                    delivered => delivered,
                };
                let given = self.gradients.get(from).into_iter().flatten();
                if let Some(result) = result
                    && given.clone().all(Extent::is_finite)
                {
                    let called = self.called.get(from);
                    let inputs = given.chain(called.into_iter().flat_map(|call| &call.inputs));
                    self.first = Some(NonFinite {
                        operation: name,
                        is_backward: true,
                        input: None,
                        location: called.map(|call| call.location),
                        module: called.and_then(|call| call.module.clone()),
                        result,
                        inputs: inputs.cloned().collect(),
                    });
                }
            }
        }
    }
}
