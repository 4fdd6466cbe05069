//! Chapter 4: The engine, line by line: reverse mode on tensors, written from nothing.
//!
//! This chapter builds an engine like the one in `autograd/src/engine.rs`, without what a library needs in
//! addition. Then it compares the two. All listings of the chapter are one program: each can use the
//! ones before it.
//!
//! # 1. The graph
//!
//! A *variable* is a tensor with an *edge*, which says where its gradient goes. A *constant* has no
//! gradient. A *leaf* is an input whose gradient is wanted. Everything else was computed by an
//! operation, which is a *node*. A node does not store its own value. It stores what the backward pass
//! needs: the edges of its inputs, and a *rule*, a closure that turns the gradient of the output into
//! gradients of the inputs. What the rule must remember, it captures; these are the *saved tensors*. A
//! clone of a tensor shares its storage, so saving costs no copy.
//!
//! ```
#![doc = include_str!("listings/engine_graph.rs")]
//! # fn main() {
//! # let x = Var::leaf(Tensor::from([2.0, 3.0]));
//! # let y = x.mul(&x).add(&x).tanh().sum();
//! # assert!(matches!(y.edge, Edge::Node(_)));
//! # assert!(matches!(Var::constant(x.value.clone()).matmul(&Var::constant(x.value.clone())).edge, Edge::Constant));
//! # assert_eq!(Var::leaf(Tensor::scalar(1.0)).value.rank(), 0);
//! # let Edge::Node(node) = y.edge else { return };
//! # assert_eq!((node.inputs.len(), (node.rule)(&Tensor::scalar(1.0)).len(), node.id > 0), (1, 1, true));
//! # if let Edge::Leaf(id) = x.edge { assert!(id < node.id) }
//! # let _: Shape = node.inputs[0].1;
//! # }
//! ```
//!
//! Three decisions are worth a closer look:
//!
//! - **Operations on constants are not recorded** (`from_op`, first lines). The graph has only what a
//!   gradient can reach. A forward pass on constants builds nothing, which is what `no_grad` is for.
//! - **Nodes point to their inputs only.** A node is kept alive by what was computed from it. When the
//!   last variable is dropped, so is the whole graph. Pointers in both directions would be cycles,
//!   which reference counting never frees.
//! - **The id is given at creation.** An operation is created after its inputs, so its id is larger
//!   than theirs. That replaces a topological sort.
//!
//! # 2. The pass
//!
//! The pass holds a map from ids to operations that have received a gradient, with the sum so far. It
//! takes out the one with the **largest id**, applies its rule, and adds the results to the inputs:
//!
//! ```
//! # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/book/listings/engine_graph.rs"));
#![doc = include_str!("listings/engine_pass.rs")]
//! # fn main() {
//! # let x = Var::leaf(Tensor::from([2.0, 3.0]));
//! # let c = Var::constant(Tensor::from([[1.0, 1.0], [1.0, 1.0]]));
//! # let y = x.mul(&x).add(&x).add(&c).matmul(&c).tanh().sum();
//! # assert_eq!(Engine::run(&y).len(), 1);
//! # }
//! ```
//!
//! Why this is correct: let `n` be the operation with the largest pending id. Every operation that uses
//! an output of `n` has a larger id. If it was reached at all, it has been processed already, because
//! larger ids are taken out first, and processing adds only smaller ids. So the gradient of `n` is
//! complete when `n` is processed, and each operation is processed once. There is no recursion in the
//! pass, so it does not overflow the stack on a chain of a million operations.
//!
//! `sum_to` is the adjoint of [broadcasting](super::broadcasting): if an operand was repeated, its
//! gradient is the sum over the repetitions. It is done here, once, so no rule has to do it.
//!
//! # 3. It computes gradients
//!
//! ```
//! # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/book/listings/engine_graph.rs"));
//! # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/book/listings/engine_pass.rs"));
//! fn main() {
//!     let x = Var::constant(Tensor::from([[0.5, -1.0, 2.0], [1.5, 0.3, -0.7]]));
//!     let w = Var::leaf(Tensor::from([[0.1, -0.2], [0.4, 0.3], [-0.5, 0.2]]));
//!     let b = Var::leaf(Tensor::from([0.1, -0.1])); // broadcast over two rows
//!     let y = x.matmul(&w).add(&b).tanh().sum();
//!     let mine = Engine::run(&y);
//!
//!     // The same with the library.
//!     use retrograd::autograd::Var as LibraryVar;
//!     let leaf = |x: &Var| LibraryVar::leaf(x.value.clone());
//!     let (w2, b2) = (leaf(&w), leaf(&b));
//!     let x2 = LibraryVar::constant(x.value.clone());
//!     let theirs = (x2.matmul(&w2) + &b2).tanh().sum(..).backward();
//!     for (mine, theirs) in mine.values().zip([theirs.get(&w2), theirs.get(&b2)]) {
//!         assert_eq!(mine.to_vec(), theirs.unwrap().to_vec());
//!     }
//!     // A variable used twice.
//!     let x = Var::leaf(Tensor::from([3.0]));
//!     let y = x.mul(&x).add(&x); // x² + x
//!     assert_eq!(Engine::run(&y).values().next().unwrap().to_vec(), [7.0]);
//! }
//! ```
//!
//! # 4. What the library's engine does in addition
//!
//! Open `autograd/src/engine.rs` beside this page. `Engine`, `run_with` and `propagate` are there, with the
//! same loop. What is different:
//!
//! | there | here | why |
//! |---|---|---|
//! | `Arc`, `Mutex` | `Rc` | graphs are used by several threads |
//! | `roots`: several variables, each with its cotangent | one root, and a gradient of ones | derivatives of several results in one pass, and of results that are no scalars |
//! | `node.take_rule(self.retain)` takes the rule **out** of the node | the rule stays | saved tensors are freed as the pass proceeds, so the peak of memory is lower. A second pass is an error, unless `retain_graph` is set: see [the next chapter](super::rules) |
//! | `Pending::grads` has one gradient for each output; `Box` keeps the map's entries small | one output | operations such as attention, which gives its output and the log-sum-exp |
//! | `differentiate` replaces a missing gradient by zeros, and calls the rule with a `Cx` | the call | a rule gets a gradient for every output. In a recorded pass, `Cx` has the variables that its inputs were, and a fused operation is replaced by its definition (`through_definition`, `alias`) |
//! | `sort_by_key` | gradients come in the order of the inputs | a rule names its inputs in any order, and bits must not depend on it |
//! | `input_grads.check(&node)` | nothing | a rule of a user may return a wrong shape or forget an input: that is an error with the name of the operation |
//! | `self.keep.contains(&id)`, and `self.found.insert` | leaves only | gradients of intermediate variables, on request |
//! | `oldest`, before the rule and in `propagate` | nothing | operations older than everything that was asked for are not processed |
//! | `if self.recorded` in `propagate` | `add_assign` | derivatives of derivatives: the sum is an operation, too |
//! | `sum.insert(g)`: the result of `propagate` | nothing | observers are told the sum, and whether there was one before |
//! | `done`, `run_with`, and `run_each` in `leaves.rs` | nothing | passes a leaf's gradient on as soon as it is complete, for example to another process |
//! | `observe::seeded`, `observe::rule`, `reported.delivery`, `reported.drop_rule`, `delivery.report`, `observe::pass_ended` | nothing | tell [observers](crate::tensor::observe) of the pass |
//! | `impl Drop for Node`, in `graph.rs` | the compiler's | dropping a long chain recursively would overflow the stack |
//!
//! `propagate` adds in place (`add_assign`) if nobody else holds the gradient. If it is shared, the
//! addition copies first. The rule of `add` above relies on that: both inputs receive clones of one
//! tensor.
//!
//! # 5. Second order
//!
//! The rules above compute with tensors, so the result of the pass has no graph. If the rules compute
//! with *variables* instead, the backward pass records itself, and its results can be differentiated
//! like any other variable. That is all that higher derivatives need. In `examples/scalar.rs` the pass
//! is generic over its numbers, and the same code does both. In the library, a rule receives a
//! [`Cx`](crate::autograd::Cx): `cx.input(&x)` is a constant in an ordinary pass and the connected
//! variable in a recorded one.
//!
//! ```
//! use retrograd::prelude::*;
//!
//! let x = Var::leaf(Tensor::scalar(2.0f64));
//! let y = x.powf(4.0);
//! let first = grad(&[(&y, None)], &[&x])[0].clone().unwrap(); // recorded
//! let second = grad(&[(&first, None)], &[&x])[0].clone().unwrap();
//! assert_eq!((first.item(), second.item()), (32.0, 48.0)); // 4x³, 12x²
//! assert!(first.is_tracked());
//! assert!(y.backward().get(&x).is_some()); // y.backward() returns plain tensors
//! ```
//!
//! A fused operation, such as layer norm, has a backward kernel written by hand, which cannot be
//! recorded. It therefore has a *definition* in ordinary operations, and a recorded pass differentiates
//! the definition (`through_definition`).
//!
//! # Exercises
//!
//! The solutions are tests in `tests/book/engine.rs`; `cargo test -p retrograd-tests --test book engine` runs them.
//!
//! 1. Give the small engine `exp` and a division. Which values does each rule save?
//!    (`exp_and_division`)
//! 2. Count how often each rule is called in `y = x + x; z = y · y`. (`each_rule_once`)
//! 3. Replace `pop_last` by `pop_first`. Find a graph in which a rule is then called twice. Is the
//!    gradient wrong? (`smallest_id_first`)
//! 4. Show that a second `backward()` on the same graph is an error, and how it is avoided.
//!    (`saved_tensors_are_freed`)
//! 5. How many operations does the graph of `x.exp().detach() * &x` have? (`detach_cuts_the_graph`)
//!
//! Previous: [The chain rule on a graph](super::chain_rule). Next: [From closure to rule](super::rules).
