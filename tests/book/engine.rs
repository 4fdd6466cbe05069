//! Solutions of the exercises of `book::engine`.
#![allow(dead_code, reason = "the listings have all operations of the chapter")]

include!("../../src/book/listings/engine_graph.rs");
include!("../../src/book/listings/engine_pass.rs");

use retrograd::autograd::Var as LibraryVar;
use retrograd::prelude::Backprop;

impl Var {
    fn exp(&self) -> Var {
        let y = self.value.exp();
        Var::from_op(y.clone(), &[self], move |g| vec![g.mul(&y)]) // saves the output
    }

    fn div(&self, other: &Var) -> Var {
        let (a, b) = (self.value.clone(), other.value.clone());
        // Saves both inputs.
        Var::from_op(a.div(&b), &[self, other], move |g| {
            vec![g.div(&b), -(g.mul(&a).div(&b.square()))]
        })
    }
}

#[test]
fn exp_and_division() {
    let (x, y) = (Tensor::from([0.3, -0.5]), Tensor::from([2.0, -1.5]));
    let (a, b) = (Var::leaf(x.clone()), Var::leaf(y.clone()));
    let mine = Engine::run(&a.exp().div(&b).sum());
    let (a, b) = (LibraryVar::leaf(x), LibraryVar::leaf(y));
    let theirs = (a.exp() / &b).sum(..).backward();
    for (mine, theirs) in mine.values().zip([theirs.get(&a), theirs.get(&b)]) {
        assert!((mine - theirs.unwrap()).abs().max(..).item() < 1e-15);
    }
}

#[test]
fn each_rule_once() {
    let counts = Rc::new([const { Cell::new(0) }; 2]);
    let counted =
        |which: usize, value: Tensor<f64>, inputs: [&Var; 2], slopes: [Tensor<f64>; 2]| {
            let counts = counts.clone();
            Var::from_op(value, &inputs, move |g| {
                counts[which].set(counts[which].get() + 1);
                slopes.iter().map(|slope| g.mul(slope)).collect()
            })
        };
    let x = Var::leaf(Tensor::scalar(3.0));
    let one = || Tensor::scalar(1.0);
    let y = counted(0, x.value.add(&x.value), [&x, &x], [one(), one()]);
    let z = counted(1, y.value.mul(&y.value), [&y, &y], [y.value.clone(), y.value.clone()]);
    let grads = Engine::run(&z);
    assert_eq!(grads.values().next().unwrap().item(), 24.0); // (2x)² has the derivative 8x
    assert_eq!([counts[0].get(), counts[1].get()], [1, 1]);
}

/// As `Engine::run`, but the operation with the smallest id is processed first.
fn smallest_first(root: &Var) -> f64 {
    let mut engine = Engine::default();
    engine.propagate(&root.edge, root.value.ones_like());
    while let Some((_, (node, g))) = engine.pending.pop_first() {
        for ((edge, _), g) in node.inputs.iter().zip((node.rule)(&g)) {
            engine.propagate(edge, g);
        }
    }
    engine.found.values().next().unwrap().item()
}

#[test]
fn smallest_id_first() {
    // y = e + u with u = e², e = exp(x). e has the smallest id, and u is pending when e is reached: e is
    // processed twice. The two gradients still add up at the leaf, so the result is right, but the rule of e is
    // called twice, and that of everything before it: as many times as there are paths.
    let visits = Rc::new(Cell::new(0));
    let x = Var::leaf(Tensor::scalar(0.5));
    let seen = visits.clone();
    let value = x.value.exp();
    let e = Var::from_op(value.clone(), &[&x], move |g| {
        seen.set(seen.get() + 1);
        vec![g.mul(&value)]
    });
    let y = e.add(&e.mul(&e));
    let right = Engine::run(&y).values().next().unwrap().item();
    assert_eq!(visits.take(), 1);
    assert!((smallest_first(&y) - right).abs() < 1e-12);
    assert_eq!(visits.take(), 2);
}

#[test]
fn saved_tensors_are_freed() {
    let x = LibraryVar::leaf(Tensor::scalar(3.0f64));
    let y = x.square();
    y.backward();
    let text = retrograd_support::panics::panic_text(|| y.backward());
    assert!(text.contains("freed by an earlier backward pass") && text.contains("retain_graph"));

    let y = x.square();
    let first = Backprop::from(&y).retain_graph().run();
    let second = y.backward();
    assert_eq!(first.get(&x).unwrap().item(), second.get(&x).unwrap().item());
}

#[test]
fn detach_cuts_the_graph() {
    let x = LibraryVar::leaf(Tensor::scalar(0.0f64));
    let y = x.exp().detach() * &x;
    let node = y.node().unwrap();
    assert_eq!(node.name(), "mul");
    // The operation exp is not in the graph any more: one operation.
    assert!(node.inputs().iter().all(|input| input.node().is_none()));
    assert_eq!(y.backward().get(&x).unwrap().item(), 1.0);
}

/// What the chapter says of the library's engine is in its source: names in the first column of the table.
#[test]
fn the_table_names_what_is_in_the_source() {
    let source = concat!(
        include_str!("../../autograd/src/engine.rs"),
        include_str!("../../autograd/src/graph.rs"),
        include_str!("../../autograd/src/leaves.rs")
    );
    let chapter = include_str!("../../src/book/engine.rs");
    let rows = chapter.lines().filter_map(|line| line.strip_prefix("//! | "));
    let first = rows.map(|row| row.split(" |").next().unwrap_or("")).skip(1);
    let is_there = |code: &str| match code {
        "Pending::grads" => source.contains("struct Pending") && source.contains("grads:"),
        "impl Drop for Node" => source.contains("Drop for Node"),
        "graph.rs" | "leaves.rs" => true, // Files that are included above.
        code => source.contains(code),
    };
    let mut names = 0;
    for cell in first {
        for code in cell.split('`').skip(1).step_by(2) {
            assert!(is_there(code), "{code} is not in the engine");
            names += 1;
        }
    }
    assert!(names >= 9, "{names} names");
}
