//! Floating-point operations of recorded operations.

use crate::record::{Constant, OperandRecord, Operation, Recording, Source};
use retrograd_autograd::Id;
use retrograd_tensor::Shape;

/// A product of matrices that an operation computes.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Product {
    /// The leaf that is the weight, if it is one.
    pub weight: Option<Id>,
    /// The shape of its result.
    pub output: Shape,
    pub flops: u64,
}

/// Operations that only arrange elements.
const VIEWS: [&str; 4] = ["reshape", "permute", "broadcast_to", "as_strided"];

/// The leaf that an input is, also as a constant.
pub(super) fn leaf(source: Source) -> Option<Id> {
    match source {
        Source::Leaf(id) | Source::Constant(Constant::DetachedLeaf(id)) => Some(id),
        _ => None,
    }
}

/// The leaf that an input is, or that it is a view of.
fn leaf_below(recording: &Recording, mut source: Source) -> Option<Id> {
    while let Source::Output(i, _) | Source::Constant(Constant::Computed(i)) = source {
        let Operation { name, inputs, .. } = &recording.operations[i];
        let [input] = &inputs[..] else { return None };
        if !VIEWS.contains(name) {
            return None;
        }
        source = input.source;
    }
    leaf(source)
}

fn last(shape: &Shape) -> usize {
    shape.last().copied().unwrap_or(1)
}

/// `shape` with another last axis.
fn with_last(shape: &Shape, size: usize) -> Shape {
    let mut dims = shape.to_vec();
    if let Some(last) = dims.last_mut() {
        *last = size;
    }
    Shape::from(&dims[..])
}

/// A product whose result has this shape, where each element is the sum of `terms` products.
fn product(output: Shape, terms: usize, weight: Option<Id>) -> Product {
    Product { weight, output, flops: 2 * output.numel() as u64 * terms as u64 }
}

/// The products of matrices of an operation, at two floating-point operations per multiplication and
/// addition. Other operations have none.
pub(super) fn products(recording: &Recording, operation: &Operation) -> Vec<Product> {
    let inputs = &operation.inputs;
    let shape = |i: usize| &inputs[i].shape;
    let leaf = |input: &OperandRecord| leaf_below(recording, input.source);
    let output = operation.shapes[0];
    match operation.name {
        "matmul" => {
            let weight = leaf(&inputs[1]).or_else(|| leaf(&inputs[0]));
            vec![product(output, last(shape(0)), weight)]
        }
        "attention_scores" | "attention_mix" => vec![product(output, last(shape(0)), None)],
        "linear" | "linear_activation" => vec![product(output, last(shape(0)), leaf(&inputs[1]))],
        "feed_forward" => {
            // x, up, perhaps a bias, down, ..
            let hidden = with_last(shape(0), shape(1)[0]);
            let down = &inputs[if shape(2).rank() == 2 { 2 } else { 3 }];
            let output = with_last(shape(0), down.shape[0]);
            vec![
                product(hidden, last(shape(0)), leaf(&inputs[1])),
                product(output, last(&hidden), leaf(down)),
            ]
        }
        "linear_cross_entropy" => {
            let logits = with_last(shape(0), shape(1)[0]);
            vec![product(logits, last(shape(0)), leaf(&inputs[1]))]
        }
        "attention" => {
            // Queries, keys and values; or the three in one, `[B, L, ..]`.
            let packed = shape(0).rank() == 3;
            let (keys, width) = match packed {
                true => (shape(0)[1], last(&output)),
                false => (shape(1)[shape(1).rank() - 2], last(shape(0))),
            };
            let scores = with_last(&output, keys);
            let mut all = product(output, keys, None);
            all.flops += product(scores, width, None).flops;
            vec![all]
        }
        "additive_scores" => vec![product(output, last(shape(0)), None)],
        _ => Vec::new(),
    }
}
