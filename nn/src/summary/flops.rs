//! The weights of products of matrices on a graph.

use retrograd_autograd::{Id, Input, Kind, Node, Product, Shapes};
use retrograd_tensor::Real;

/// The leaf that an input is, or that it is a view of.
fn leaf<T: Real>(input: &Input<T>) -> Option<Id> {
    let Some(mut node) = input.node() else { return input.id() };
    loop {
        let [input] = node.inputs() else { return None };
        match (node.op().kind, input.node()) {
            (Kind::View, Some(next)) => node = next,
            (Kind::View, None) => return input.id(),
            _ => return None,
        }
    }
}

/// The products of matrices of an operation, each with the leaf that is the weight, if one is.
pub(super) fn products_of<T: Real>(node: &Node<T>) -> Vec<(Product, Option<Id>)> {
    let inputs: Vec<_> = node.input_names().zip(node.inputs().iter().map(|x| *x.shape())).collect();
    let products = node.op().products(&Shapes { inputs: &inputs, output: node.outputs()[0] });
    let weight = |product: &Product| {
        let [a, b] = product.factors.map(|factor| node.input(factor).and_then(leaf));
        b.or(a)
    };
    products.into_iter().map(|product| (product.clone(), weight(&product))).collect()
}
