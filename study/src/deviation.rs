//! How far two computations of the same operations are apart: of two runs, or of f32 and f64.
//!
//! A distance is in units in the last place of f32 (ULP): the difference, by the distance of the f32 numbers around
//! the second value (Goldberg 1991). A correctly rounded f32 result is within 0.5 ULP of the exact one.

use crate::Page;
use crate::locked::locked;
use crate::record::{Recorder, Recording, Seen, What};
use retrograd_tensor::{Real, Tensor};
use serde::Serialize;
use serde_json::json;
use std::any::Any;
use std::collections::BTreeMap;
use std::mem;
use std::sync::{Arc, Mutex};

/// The values of a computation: results of operations, and gradients that their rules delivered.
pub struct Values {
    recording: Recording,
    lanes: BTreeMap<usize, Lane>,
}

/// The values of a shard, in order.
#[derive(Default)]
struct Lane {
    values: Vec<Value>,
    /// The number of values before the backward pass.
    forward: Option<usize>,
}

struct Value {
    operation: usize,
    /// The number of the event, if a rule delivered it.
    event: Option<usize>,
    tensor: Elements,
}

/// A tensor of f32 or f64: what returns its shape and its elements.
type Elements = Box<dyn Fn() -> (Vec<usize>, Vec<f64>) + Send + Sync>;

/// How far two values are apart.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Deviation {
    /// The name of the operation.
    pub operation: &'static str,
    /// The input whose gradient it is, delivered by the rule of the operation; `None` for a result.
    pub input: Option<&'static str>,
    /// Whether it was computed in the backward pass.
    pub is_backward: bool,
    /// The path of the module.
    pub module: String,
    /// The shard.
    pub lane: usize,
    /// The shape; empty for a sum of several deviations.
    pub shape: Vec<usize>,
    /// The first element whose bits differ: its index, and both values.
    pub first: Option<(Vec<usize>, f64, f64)>,
    /// The number of elements by distance: with equal bits, then up to 0.5, 1, 2, 4 .. ULP. The last count has all that
    /// are larger.
    pub counts: Vec<usize>,
    /// The bound in ULP below which at least half of the elements are.
    pub median: f64,
    /// The largest distance; infinite if one of two values with different bits is NaN or infinite.
    pub largest: f64,
    /// The norm of the difference by that of the second tensor, in units of 2⁻²⁴, half an ULP of 1.
    pub relative: f64,
}

/// The number of counts.
const COUNTS: usize = 28;

impl Values {
    /// Records a forward and a backward pass in f32 or f64 with its values. It keeps them all, so it takes the memory of
    /// all activations and gradients.
    pub fn record<R>(f: impl FnOnce() -> R) -> (R, Values) {
        let lanes = Arc::new(Mutex::new(BTreeMap::<usize, Lane>::new()));
        let seen = lanes.clone();
        let recorder = Recorder::new().watching(move |event| {
            let (lane, operation, event, tensors) = match event {
                Seen::Computed { operation, lane, results, .. } => {
                    (lane, operation, None, &results[..])
                }
                Seen::Delivered { event, lane, from, gradient, .. } => {
                    (lane, from, Some(*event), std::slice::from_ref(gradient))
                }
                Seen::Seeded { lane, .. } => {
                    let mut lanes = locked(&seen);
                    let lane = lanes.entry(*lane).or_default();
                    lane.forward.get_or_insert(lane.values.len());
                    return;
                }
                _ => return,
            };
            let tensors = tensors.iter().filter_map(|tensor| kept(*tensor));
            let values = tensors.map(|tensor| Value { operation: *operation, event, tensor });
            locked(&seen).entry(*lane).or_default().values.extend(values);
        });
        let (result, recording) = recorder.record(f);
        (result, Values { recording, lanes: mem::take(&mut *locked(&lanes)) })
    }

    /// How far each of these values is from that of another computation, in the order of time of each shard.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// use retrograd::study::deviation::Values;
    /// use retrograd::tensor::Real;
    ///
    /// fn step<T: Real>(x: &Tensor<T>) -> Values {
    ///     let x = Var::leaf(x.clone());
    ///     Values::record(|| x.exp().ln().sum(..).backward()).1
    /// }
    /// let x = Tensor::from([0.1f32, 0.2, 0.3]);
    /// let all = step(&x).deviations(&step(&x.cast::<f64>()))?;
    /// let names: Vec<_> = all.iter().map(|d| (d.operation, d.input.is_some())).collect();
    /// assert_eq!(names[..3], [("exp", false), ("ln", false), ("sum", false)]);
    /// assert!(names.contains(&("exp", true))); // the gradient of x
    /// assert!(all[0].largest <= 1.0 && all[1].largest > all[0].largest); // the logarithm loses digits
    /// assert!(step(&x).deviations(&step(&x))?.iter().all(|d| d.first.is_none()));
    /// Ok::<(), String>(())
    /// ```
    ///
    /// # Errors
    /// If it computed other operations, or other shapes.
    pub fn deviations(&self, other: &Values) -> Result<Vec<Deviation>, String> {
        if self.lanes.keys().ne(other.lanes.keys()) {
            return Err("the numbers of shards differ".into());
        }
        let mut all = Vec::new();
        for (&lane, Lane { values, forward }) in &self.lanes {
            let others = &other.lanes[&lane].values;
            for (i, (a, b)) in values.iter().zip(others).enumerate() {
                let ((name, input, module), second) = (self.name(a), other.name(b));
                let ((shape, a), (other, b)) = ((a.tensor)(), (b.tensor)());
                if (name, input) != (second.0, second.1) || shape != other {
                    return Err(format!(
                        "value {i} of shard {lane} is that of {name} {shape:?} in {module}, and of {} {other:?} in {}",
                        second.0, second.2
                    ));
                }
                let mut one = Deviation::of(shape, &a, &b);
                one.is_backward = forward.is_some_and(|forward| i >= forward);
                all.push(Deviation { operation: name, input, module, lane, ..one });
            }
            if values.len() != others.len() {
                let (n, m) = (values.len(), others.len());
                return Err(format!("shard {lane} computed {n} values, and {m}"));
            }
        }
        Ok(all)
    }

    /// The operation of a value, the input if it is a gradient, and the module.
    fn name(&self, value: &Value) -> (&'static str, Option<&'static str>, String) {
        let operation = &self.recording.operations[value.operation];
        let input = value.event.map(|event| match self.recording.events[event].what {
            What::Delivered { input, .. } => operation.inputs.get(input).map_or("", |x| x.name),
            _ => "",
        });
        let module = operation.module.as_ref().map_or(String::new(), |module| module.path.clone());
        (operation.name(), input, module)
    }
}

/// A tensor of f32 or f64, whose memory is shared.
fn kept(x: &dyn Any) -> Option<Elements> {
    fn of<T: Real>(x: &Tensor<T>) -> Elements {
        let x = x.clone();
        Box::new(move || (x.shape().to_vec(), x.to_vec().into_iter().map(T::to_f64).collect()))
    }
    x.downcast_ref::<Tensor>().map(of).or_else(|| x.downcast_ref::<Tensor<f64>>().map(of))
}

/// The distance of two numbers in ULP of f32 at the second one.
pub fn ulps(x: f64, y: f64) -> f64 {
    let exponent = ((y.abs().to_bits() >> 52) as i32 - 1023).max(-126);
    let distance = (x - y).abs() / 2f64.powi(exponent - 23);
    if distance.is_nan() { f64::INFINITY } else { distance }
}

impl Deviation {
    /// How far the elements of two tensors of a shape are apart. It names no operation.
    pub fn of(shape: Vec<usize>, a: &[f64], b: &[f64]) -> Deviation {
        let (mut counts, mut largest, mut first) = (vec![0; COUNTS], 0.0_f64, None);
        let [mut difference, mut norm] = [0.0; 2];
        for (i, (&x, &y)) in a.iter().zip(b).enumerate() {
            norm += y * y;
            if x.to_bits() == y.to_bits() {
                counts[0] += 1;
                continue;
            }
            first.get_or_insert((i, x, y));
            difference += (x - y) * (x - y);
            let distance = ulps(x, y);
            largest = largest.max(distance);
            let count = (distance.log2().ceil() + 2.0).clamp(1.0, COUNTS as f64 - 1.0);
            counts[count as usize] += 1;
        }
        let relative = match (difference / norm).sqrt() / 2f64.powi(-24) {
            _ if counts[0] == a.len() => 0.0,
            x if x.is_nan() => f64::INFINITY,
            x => x,
        };
        let index = |mut i: usize| {
            let mut index: Vec<usize> = shape.iter().rev().map(|&n| (i % n, i /= n).0).collect();
            index.reverse();
            index
        };
        let first = first.map(|(i, x, y)| (index(i), x, y));
        let median = median(&counts);
        Deviation { shape, first, counts, median, largest, relative, ..Deviation::default() }
    }

    /// Of each operation, forward and backward, all of its deviations together, in the order of their first one. The
    /// relative one is the largest.
    pub fn by_operation(all: &[Deviation]) -> Vec<Deviation> {
        let mut sums: Vec<Deviation> = Vec::new();
        for one in all {
            let is_same = |sum: &&mut Deviation| {
                (sum.operation, sum.is_backward) == (one.operation, one.is_backward)
            };
            let Some(sum) = sums.iter_mut().find(is_same) else {
                sums.push(Deviation { shape: Vec::new(), ..one.clone() });
                continue;
            };
            sum.counts.iter_mut().zip(&one.counts).for_each(|(sum, n)| *sum += n);
            sum.largest = sum.largest.max(one.largest);
            sum.relative = sum.relative.max(one.relative);
        }
        sums.iter_mut().for_each(|sum| sum.median = median(&sum.counts));
        sums
    }

    /// A page of deviations: along the computation, and by operation.
    pub fn page(title: &str, all: &[Deviation]) -> Page {
        let along =
            all.iter().map(|d| json!([d.operation, d.input, d.module, d.is_backward, d.relative]));
        let data = json!({
            "title": title,
            "all": along.collect::<Vec<_>>(),
            "operations": Deviation::by_operation(all),
        });
        Page::new(title, &data).script(include_str!("../assets/deviation.js"))
    }
}

/// The bound below which at least half of the elements are.
fn median(counts: &[usize]) -> f64 {
    let (half, mut sum) = (counts.iter().sum::<usize>().div_ceil(2), 0);
    let at = counts.iter().position(|n| {
        sum += n;
        sum >= half
    });
    match at.unwrap_or(0) {
        0 => 0.0,
        at if at + 1 == counts.len() => f64::INFINITY,
        at => 2f64.powi(at as i32 - 2),
    }
}
