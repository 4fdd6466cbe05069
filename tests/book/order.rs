//! Solutions of the exercises of `book::order`.

use crate::scalar::{Recursion, Recursive, Value, diamonds};
use retrograd::autograd::{Id, Node};
use retrograd::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

#[test]
fn right_on_trees() {
    // Where every computed value has one use, there is no second arrival, except at variables, which pass
    // nothing on.
    let x = Value::new(0.7);
    let y = &x.tanh() * &(&x * &x).exp();
    let pass = Recursive::pass(&y, Recursion::FirstArrival);
    assert!((pass.gradient(&x) - y.gradients::<f64>().get(&x)).abs() < 1e-15);
    // On a diamond it is wrong.
    let all = diamonds(3.0, 1);
    let pass = Recursive::pass(&all[4].1, Recursion::FirstArrival);
    assert_eq!(pass.gradient(&all[0].1), 12.0);
}

/// A node after all nodes that use it.
fn depth_first(node: &Arc<Node<f64>>, seen: &mut BTreeSet<Id>, order: &mut Vec<Id>) {
    if seen.insert(node.id()) {
        node.inputs().iter().filter_map(|x| x.node()).for_each(|n| depth_first(n, seen, order));
        order.push(node.id());
    }
}

#[test]
fn depth_first_order() {
    let x = Var::leaf(Tensor::scalar(1.0f64));
    let first = x.exp();
    let second = x.sin();
    let y = &second * &first; // the first operand was created second
    let mut order = vec![];
    depth_first(y.node().unwrap(), &mut BTreeSet::new(), &mut order);
    order.reverse();
    let ids = [&y, &first, &second].map(|v| v.node().unwrap().id());
    assert_eq!(order, ids);
    let mut descending = order.clone();
    descending.sort_by(|a, b| b.cmp(a));
    // Another order, and both are topological: the gradient is the same up to the order of its sum.
    assert_ne!(order, descending);
    let wanted = 1f64.exp() * (1f64.sin() + 1f64.cos());
    assert!((y.backward().get(&x).unwrap().item() - wanted).abs() < 1e-15);
}

/// Inputs with partial derivatives, for each node; node 0 is the variable, the last one the result.
type Graph = Vec<Vec<(usize, f64)>>;

fn counting_pass(graph: &Graph) -> (f64, usize) {
    let mut uses = BTreeMap::new();
    let (mut seen, mut next) = (BTreeSet::new(), vec![graph.len() - 1]);
    while let Some(node) = next.pop() {
        if seen.insert(node) {
            for (input, _) in &graph[node] {
                *uses.entry(*input).or_insert(0) += 1;
                next.push(*input);
            }
        }
    }
    let mut grads = vec![0.0; graph.len()];
    grads[graph.len() - 1] = 1.0;
    let (mut ready, mut visits) = (vec![graph.len() - 1], 0);
    while let Some(node) = ready.pop() {
        visits += 1;
        for &(input, slope) in &graph[node] {
            grads[input] += grads[node] * slope;
            let left = uses.get_mut(&input).unwrap();
            *left -= 1;
            if *left == 0 {
                ready.push(input);
            }
        }
    }
    (grads[0], visits)
}

#[test]
fn counting_uses() {
    let mut graph: Graph = vec![vec![], vec![(0, 6.0)]];
    for _ in 0..6 {
        let b = graph.len() - 1;
        graph.extend([vec![(b, 2.0)], vec![(b, 3.0)], vec![(b + 1, 1.0), (b + 2, 1.0)]]);
    }
    assert_eq!(counting_pass(&graph), (93750.0, 20));
}

#[test]
fn visits_of_each_path() {
    // x and b are visited once for each path, 2ⁿ times; in diamond k from the result, c, d and the sum are
    // visited 2ᵏ times in all, 2ᵏ and ... : v(n) = 2 v(n - 1) + 3 with v(0) = 2, so v(n) = 5 · 2ⁿ - 3.
    for n in 0..10 {
        let all = diamonds(3.0, n);
        let names: Vec<f64> = all.iter().map(|(_, v)| v.data()).collect();
        assert_eq!(names.len(), 2 + 3 * n);
        let y = &all[all.len() - 1].1;
        let visits = Recursive::pass(y, Recursion::EachPath).visits;
        // The constants 2 and 3 are visited, too: once with each c and d.
        let constants = 2 * ((1 << n) - 1);
        assert_eq!(visits.len() - constants, 5 * (1 << n) - 3);
    }
}

#[test]
fn a_long_chain() {
    let x = Var::leaf(Tensor::scalar(1.0f64));
    let mut y = x.clone();
    for _ in 0..100_000 {
        y = &y * 1.0;
    }
    // A recursion of this depth needs a frame of the stack for each operation.
    assert_eq!(y.backward().get(&x).unwrap().item(), 1.0);
    drop(y);
}
