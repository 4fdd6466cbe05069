//! Where a NaN or an infinity began.

use super::recorder::{Recorder, Seen};
use retrograd_tensor::{Real, Shape, Tensor};
use std::any::Any;
use std::collections::HashMap;
use std::fmt::{self, Display, Formatter};
use std::panic::Location;
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};

/// The first operation or rule whose result is not finite, although its inputs are.
#[derive(Clone, Debug, PartialEq)]
pub struct NonFinite {
    /// The name of the operation.
    pub operation: &'static str,
    /// Whether it was the rule of the operation, in a backward pass.
    pub is_backward: bool,
    /// Where the operation was called.
    pub location: Option<&'static Location<'static>>,
    /// The result; of a rule, the gradient that it delivered.
    pub result: Extent,
    /// The inputs of the operation. Of a rule: the gradient of the result, then the inputs.
    pub inputs: Vec<Extent>,
}

/// The elements of a tensor, summarised.
#[derive(Clone, Debug, PartialEq)]
pub struct Extent {
    /// What the tensor is: `input 1`.
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

/// Operations that write infinities on request.
const FILLS: [&str; 3] = ["masked_fill", "where", "pad"];

impl Extent {
    fn of(name: String, tensor: &dyn Any) -> Option<Extent> {
        fn summary<T: Real>(name: String, x: &Tensor<T>) -> Extent {
            let (mut nan, mut infinite) = (0, 0);
            let mut range: Option<(f64, f64)> = None;
            for x in x.to_vec().into_iter().map(T::to_f64) {
                match x {
                    x if x.is_nan() => nan += 1,
                    x if x.is_infinite() => infinite += 1,
                    x => range = Some(range.map_or((x, x), |(a, b)| (a.min(x), b.max(x)))),
                }
            }
            Extent { name, shape: *x.shape(), nan, infinite, range }
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
        write!(f, "the first {kind}: {rule}`{}`", self.operation)?;
        if let Some(at) = self.location {
            write!(f, " at {at}")?;
        }
        write!(f, "\n  {}", self.result)?;
        self.inputs.iter().try_for_each(|input| write!(f, "\n  {input}"))
    }
}

/// Runs `f`, and finds the first operation or backward rule in it whose result has a NaN or an infinity,
/// although its inputs have none. Infinities that an operation was asked to write, such as those of
/// `masked_fill`, do not count.
///
/// Every value is examined, so `f` takes several times as long as otherwise. PyTorch's
/// `autograd.detect_anomaly` examines gradients only. The environment variable `RETROGRAD_NONFINITE=1` does the
/// same in any program: the operation that is found panics.
///
/// ```
/// use retrograd_autograd::{Var, observe::find_nonfinite};
/// use retrograd_tensor::Tensor;
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

/// Searches in the whole process, if `RETROGRAD_NONFINITE` is 1: the operation that is found panics.
pub(crate) fn search_if_requested() {
    static READ: Once = Once::new();
    READ.call_once(|| {
        let why = match std::env::var(VARIABLE).as_deref() {
            Err(_) | Ok("" | "0") => return,
            Ok("1") => {
                let search = Mutex::new(Search::default());
                let recorder = Recorder::new().watching(move |seen| {
                    let mut search = locked(&search);
                    search.see(seen);
                    if let Some(found) = search.first.take() {
                        panic!("{VARIABLE}: {found}");
                    }
                });
                if recorder.observe_process(MOST_OPERATIONS) {
                    return;
                }
                "the process has another observer".to_string()
            }
            Ok(other) => format!("{other:?} is neither 0 nor 1"),
        };
        // There is nobody to return an error to: the caller makes a variable.
        eprintln!("{VARIABLE}: {why}; nothing is searched");
    });
}

const VARIABLE: &str = "RETROGRAD_NONFINITE";
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

fn locked(search: &Mutex<Search>) -> MutexGuard<'_, Search> {
    search.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Default)]
struct Search {
    /// Operations by their number.
    called: HashMap<usize, Called>,
    /// The gradients that rules were called with.
    gradients: HashMap<usize, Vec<Extent>>,
    first: Option<NonFinite>,
}

/// An operation that was computed.
struct Called {
    location: &'static Location<'static>,
    inputs: Vec<Extent>,
}

impl Search {
    fn see(&mut self, seen: &Seen<'_>) {
        let extents = |what: &str, tensors: &[&dyn Any]| -> Vec<Extent> {
            let tensors = tensors.iter().enumerate();
            tensors.filter_map(|(i, x)| Extent::of(format!("{what} {i}"), *x)).collect()
        };
        match seen {
            Seen::Computed { operation, name, location, inputs, results, .. } => {
                let inputs = extents("input", inputs);
                let is_bad = |y: &Extent| y.nan > 0 || (y.infinite > 0 && !FILLS.contains(name));
                let result = extents("result", results).into_iter().find(is_bad);
                // What was not finite before has begun elsewhere, or was asked for.
                if let Some(result) = result.filter(|_| inputs.iter().all(Extent::is_finite)) {
                    self.first = Some(NonFinite {
                        operation: name,
                        is_backward: false,
                        location: Some(location),
                        result,
                        inputs: inputs.clone(),
                    });
                }
                self.called.insert(*operation, Called { location, inputs });
            }
            Seen::RuleBegan { operation, gradients } => {
                self.gradients.insert(*operation, extents("gradient of result", gradients));
            }
            Seen::Seeded { .. } => {}
            Seen::Forgotten => *self = Search::default(),
            Seen::Delivered { from, name, gradient, .. } => {
                let result = Extent::of("gradient of an input".into(), *gradient);
                let given = self.gradients.get(from).into_iter().flatten();
                if let Some(result) = result.filter(|g| !g.is_finite())
                    && given.clone().all(Extent::is_finite)
                {
                    let called = self.called.get(from);
                    let inputs = given.chain(called.into_iter().flat_map(|call| &call.inputs));
                    self.first = Some(NonFinite {
                        operation: name,
                        is_backward: true,
                        location: called.map(|call| call.location),
                        result,
                        inputs: inputs.cloned().collect(),
                    });
                }
            }
        }
    }
}
