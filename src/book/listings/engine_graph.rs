use retrograd::prelude::{Shape, Tensor};
use std::cell::Cell;
use std::rc::Rc;

/// A value, and where it comes from.
#[derive(Clone)]
struct Var {
    value: Tensor<f64>,
    edge: Edge,
}

/// Where a gradient goes.
#[derive(Clone)]
enum Edge {
    /// Nowhere.
    Constant,
    /// To a leaf: it is a result.
    Leaf(u64),
    /// To the operation that computed the value.
    Node(Rc<Node>),
}

/// A recorded operation.
struct Node {
    id: u64,
    inputs: Vec<(Edge, Shape)>,
    rule: Rule,
}

/// From the gradient of the output to the gradients of the inputs.
type Rule = Box<dyn Fn(&Tensor<f64>) -> Vec<Tensor<f64>>>;

fn new_id() -> u64 {
    thread_local!(static NEXT: Cell<u64> = const { Cell::new(0) });
    NEXT.replace(NEXT.get() + 1)
}

impl Var {
    fn leaf(value: Tensor<f64>) -> Var {
        Var { value, edge: Edge::Leaf(new_id()) }
    }

    fn constant(value: Tensor<f64>) -> Var {
        Var { value, edge: Edge::Constant }
    }

    /// The result of an operation, recorded if one of its inputs is tracked.
    fn from_op(
        value: Tensor<f64>,
        inputs: &[&Var],
        rule: impl Fn(&Tensor<f64>) -> Vec<Tensor<f64>> + 'static,
    ) -> Var {
        if inputs.iter().all(|x| matches!(x.edge, Edge::Constant)) {
            return Var::constant(value);
        }
        let inputs =
            inputs.iter().map(|x| (x.edge.clone(), *x.value.shape())).collect();
        let node = Node { id: new_id(), inputs, rule: Box::new(rule) };
        Var { value, edge: Edge::Node(Rc::new(node)) }
    }

    fn add(&self, other: &Var) -> Var {
        Var::from_op(self.value.add(&other.value), &[self, other], |g| {
            vec![g.clone(), g.clone()]
        })
    }

    fn mul(&self, other: &Var) -> Var {
        let (a, b) = (self.value.clone(), other.value.clone());
        Var::from_op(a.mul(&b), &[self, other], move |g| {
            vec![g.mul(&b), g.mul(&a)]
        })
    }

    fn matmul(&self, other: &Var) -> Var {
        let (a, b) = (self.value.clone(), other.value.clone());
        Var::from_op(a.matmul(&b), &[self, other], move |g| {
            vec![g.matmul(&b.t()), a.t().matmul(g)]
        })
    }

    fn tanh(&self) -> Var {
        let y = self.value.tanh();
        Var::from_op(y.clone(), &[self], move |g| vec![g * &(1.0 - y.square())])
    }

    fn sum(&self) -> Var {
        let shape = *self.value.shape();
        Var::from_op(self.value.sum(..), &[self], move |g| {
            vec![g.broadcast_to(shape)]
        })
    }
}
