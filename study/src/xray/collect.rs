//! Values of a recorded step, summarised at the moment of their event.

use super::data::ElementRow;
use super::elements::{self, ELEMENTS, Evaluated, Operation};
use super::values::Values;
use crate::locked::locked;
use crate::record::{Recorder, Seen, Source, naive_backward};
use retrograd_autograd::{Call, Gradients, Id, Kind, Var};
use retrograd_tensor::{Real, Tensor};
use std::any::Any;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// Larger graphs are not differentiated in the wrong order.
const MOST_NAIVE_CALLS: usize = 400;

/// What was collected of the first lane.
#[derive(Default)]
pub(super) struct Collected {
    /// Of results, by the number of the operation.
    pub(super) results: BTreeMap<usize, Observed>,
    /// Of leaves.
    pub(super) leaves: BTreeMap<Id, Observed>,
    /// Of gradients, by the number of the event.
    pub(super) gradients: BTreeMap<usize, Gradient>,
    /// Explained elements of the gradients that the rules of products delivered, by the number of the operation
    /// and of its input.
    pub(super) products: BTreeMap<usize, Vec<Vec<Evaluated>>>,
    /// The calls of products whose rule has not run, and their operands by name (a [`Named`]).
    operands: BTreeMap<usize, (Call, Box<dyn Any + Send>)>,
    pub(super) naive: Option<Naive>,
    /// The value of the variable from which the first backward pass began, if it is a scalar: in a shard, its own.
    pub(super) loss: Option<f64>,
}

/// A value, and how some of its elements are computed.
pub(super) struct Observed {
    pub(super) values: Values,
    pub(super) elements: Vec<ElementRow>,
}

/// The sum of the gradients of a variable so far.
pub(super) struct Gradient {
    pub(super) sum: Values,
    /// The chosen elements of the gradient that was delivered last.
    pub(super) parts: Vec<f64>,
}

/// Gradients by naive recursion.
pub(super) struct Naive {
    pub(super) calls: usize,
    /// Norms, and the bits as a digest.
    pub(super) gradients: BTreeMap<Id, Values>,
}

impl Collected {
    /// A recorder that also collects values.
    pub(super) fn by(recorder: Recorder) -> (Recorder, Arc<Mutex<Collected>>) {
        let collected = Arc::new(Mutex::new(Collected::default()));
        let sink = collected.clone();
        (recorder.watching(move |seen| locked(&sink).see(seen)), collected)
    }

    pub(super) fn see(&mut self, seen: &Seen<'_>) {
        match seen {
            Seen::Computed { operation, call, lane: 0, sources, inputs, results, .. } => {
                // f32 or f64.
                self.computed::<f32>(*operation, call, (sources, inputs), results);
                self.computed::<f64>(*operation, call, (sources, inputs), results);
            }
            Seen::Seeded { event, lane: 0, root, gradient } => {
                self.delivered::<f32>(*event, *gradient, *gradient);
                self.delivered::<f64>(*event, *gradient, *gradient);
                self.seeded::<f32>(*root);
                self.seeded::<f64>(*root);
            }
            Seen::RuleBegan { operation, lane: 0, gradients } => {
                let gradient = gradients.first().copied();
                if let (Some(g), Some((call, inputs))) = (gradient, self.operands.remove(operation))
                {
                    let found = products_of::<f32>(&call, &*inputs, g)
                        .or_else(|| products_of::<f64>(&call, &*inputs, g));
                    self.products.extend(found.map(|found| (*operation, found)));
                }
            }
            Seen::Delivered { event, lane: 0, gradient, sum, .. } => {
                self.delivered::<f32>(*event, *gradient, *sum);
                self.delivered::<f64>(*event, *gradient, *sum);
            }
            // Of other lanes.
            _ => {}
        }
    }

    fn computed<T: Real>(
        &mut self,
        operation: usize,
        call: &Call,
        (sources, inputs): (&[Source], &[(&'static str, &dyn Any)]),
        results: &[&dyn Any],
    ) {
        let Some(output) = results.first().and_then(|y| y.downcast_ref::<Tensor<T>>()) else {
            return;
        };
        let inputs = inputs.iter().filter_map(|(name, x)| Some((*name, x.downcast_ref()?)));
        let inputs: Vec<(&'static str, &Tensor<T>)> = inputs.collect();
        for (source, (_, x)) in sources.iter().zip(&inputs) {
            if let Source::Leaf(id) = source {
                self.leaves.entry(*id).or_insert_with(|| leaf(x));
            }
        }
        if let Kind::Product(_) = call.op.kind {
            let operands: Named<T> = inputs.iter().map(|&(name, x)| (name, x.clone())).collect();
            self.operands.insert(operation, (call.clone(), Box::new(operands)));
        }
        let explained = Operation { call, inputs: &inputs, output };
        let explain = |index: Vec<usize>| ElementRow::new(&index, explained.explain(&index));
        let elements = elements::chosen(output, ELEMENTS).into_iter().map(explain).collect();
        self.results.insert(operation, Observed { values: Values::of(output), elements });
    }

    fn delivered<T: Real>(&mut self, event: usize, gradient: &dyn Any, sum: &dyn Any) {
        let both = (gradient.downcast_ref::<Tensor<T>>(), sum.downcast_ref::<Tensor<T>>());
        let (Some(gradient), Some(sum)) = both else { return };
        let chosen = elements::chosen(gradient, ELEMENTS);
        let parts = chosen.iter().map(|index| gradient.at(index).to_f64()).collect();
        self.gradients.insert(event, Gradient { sum: Values::of(sum), parts });
    }

    fn seeded<T: Real>(&mut self, root: &dyn Any) {
        let Some(root) = root.downcast_ref::<Var<T>>() else { return };
        if self.loss.is_some() || root.value().numel() != 1 {
            return;
        }
        self.loss = Some(root.item().to_f64());
        if let Some((gradients, calls)) = naive_backward(root, MOST_NAIVE_CALLS) {
            self.naive = Some(Naive { calls, gradients: summaries(&gradients) });
        }
    }
}

type Named<T> = Vec<(&'static str, Tensor<T>)>;

fn products_of<T: Real>(
    call: &Call,
    inputs: &dyn Any,
    gradient: &dyn Any,
) -> Option<Vec<Vec<Evaluated>>> {
    let (inputs, g) = (inputs.downcast_ref::<Named<T>>()?, gradient.downcast_ref::<Tensor<T>>()?);
    elements::gradients(call, inputs, g)
}

fn summaries<T: Real>(gradients: &Gradients<T>) -> BTreeMap<Id, Values> {
    gradients.iter().map(|(id, g)| (id, Values::of(g))).collect()
}

/// A leaf: its elements are what they are.
fn leaf<T: Real>(x: &Tensor<T>) -> Observed {
    let element = |index: Vec<usize>| {
        let number = elements::number(x.at(&index).to_f64());
        ElementRow::new(&index, format!("w{} = {number}", elements::bracketed(&index)))
    };
    let elements = elements::chosen(x, ELEMENTS).into_iter().map(element).collect();
    Observed { values: Values::of(x), elements }
}
