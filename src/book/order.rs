//! Chapter 6: Why topological order: naive recursion on a diamond gives a wrong gradient.
//!
//! The chain rule on a graph is written recursively (`ḡ(n) = Σ ḡ(m) · ∂m/∂n` over all uses `m`), so a
//! recursive program seems natural: a node that receives a gradient passes it on to its inputs. On a
//! chain of operations that is right. On a graph in which a value is used twice it is wrong or slow.
//!
//! # The diamond
//!
//! Let `x = 3`, `b = x²`, `c = 2b`, `d = 3b` and `y = c + d`. So `y = 5x²`, and `dy/dx = 10x = 30`. The
//! value `b` has two uses, and two paths lead from `y` to it. The figure shows the gradients when each
//! node passes on what arrives **first**, beside those in descending order of ids:
//!
#![doc = include_str!("../../docs/figures/diamond.svg")]
//!
//! On the left `b` is reached through `c` before `d` was visited. At this moment its gradient is 2, and
//! `x` receives `2 · 2x = 12`. Later, `d` adds 3 to the gradient of `b`, which is then right, but `b`
//! has been processed. The result is **12 instead of 30**.
//!
//! The page `docs/gallery/diamond.html` of the repository shows how the engine adds up both gradients of `b` before it
//! continues.
//!
//! # Three recursions
//!
//! A recursive pass has three ways to treat the second arrival at `b`. Here they are, with the number
//! of nodes that each visits:
//!
//! ```
//! use std::collections::BTreeMap;
//!
//! /// The inputs of each node, with partial derivatives; node 0 is x, the last is y.
//! type Graph = Vec<Vec<(usize, f64)>>;
//!
//! /// x = 3, b = x², and n diamonds: c = 2b, d = 3b, b = c + d.
//! fn diamonds(n: usize) -> Graph {
//!     let mut graph = vec![vec![], vec![(0, 6.0)]];
//!     for _ in 0..n {
//!         let b = graph.len() - 1;
//!         graph.extend([
//!             vec![(b, 2.0)],
//!             vec![(b, 3.0)],
//!             vec![(b + 1, 1.0), (b + 2, 1.0)],
//!         ]);
//!     }
//!     graph
//! }
//!
//! #[derive(Clone, Copy)]
//! enum Second {
//!     Stop,       // pass on the first arrival only
//!     PassOnSum,  // pass on all that has arrived so far
//!     PassOnPart, // pass on what has just arrived
//! }
//!
//! fn recursive(
//!     graph: &Graph,
//!     node: usize,
//!     part: f64,
//!     how: Second,
//!     grads: &mut [Option<f64>],
//! ) -> u32 {
//!     let sum = grads[node].unwrap_or(0.0) + part;
//!     let is_second = grads[node].replace(sum).is_some();
//!     let g = match how {
//!         Second::Stop if is_second => return 0,
//!         Second::PassOnSum => sum,
//!         Second::Stop | Second::PassOnPart => part,
//!     };
//!     let visit = |&(input, slope): &(usize, f64)| {
//!         recursive(graph, input, g * slope, how, grads)
//!     };
//!     1 + graph[node].iter().map(visit).sum::<u32>()
//! }
//!
//! /// Descending ids, as the engine does.
//! fn in_order(graph: &Graph) -> (f64, u32) {
//!     let mut pending = BTreeMap::from([(graph.len() - 1, 1.0)]);
//!     let mut visits = 0;
//!     while let Some((node, g)) = pending.pop_last() {
//!         visits += 1;
//!         if node == 0 {
//!             return (g, visits);
//!         }
//!         for &(input, slope) in &graph[node] {
//!             *pending.entry(input).or_insert(0.0) += g * slope;
//!         }
//!     }
//!     unreachable!("y depends on x")
//! }
//!
//! let try_all = |n: usize| {
//!     let graph = diamonds(n);
//!     let recursion = |how| {
//!         let mut grads = vec![None; graph.len()];
//!         let visits = recursive(&graph, graph.len() - 1, 1.0, how, &mut grads);
//!         (grads[0].unwrap(), visits)
//!     };
//!     let [a, b, c] =
//!         [Second::Stop, Second::PassOnSum, Second::PassOnPart].map(recursion);
//!     [a, b, c, in_order(&graph)]
//! };
//!
//! // One diamond:      wrong,     wrong,     right,      right.
//! assert_eq!(try_all(1), [(12.0, 5), (42.0, 7), (30.0, 7), (30.0, 5)]);
//! // Six diamonds: the third is right, but the visits have doubled with each diamond.
//! assert_eq!(try_all(6)[2..], [(93750.0, 317), (93750.0, 20)]);
//! assert_eq!(try_all(12)[2], (2.0 * 3.0 * 5f64.powi(12), 20477));
//! ```
//!
//! 1. **Stop at a second arrival**: too little. What arrives later is not passed on.
//! 2. **Pass on the sum so far**: too much. The first part is passed on again with the second: 12 and
//!    then `5 · 6 = 30`, in sum 42. This is the mistake of adding into a field `grad` and calling
//!    `backward` of the inputs right after it.
//! 3. **Pass on each part**: right, since each path is followed by itself, but there are as many paths
//!    as products in the multiplied-out formula: 2ⁿ for `n` diamonds. A residual network is a chain of
//!    diamonds: `x + f(x)` uses `x` twice.
//! 4. **Wait until the gradient is complete**: right, and each node is visited once.
//!
//! The command `cargo run --release --example scalar -- --wrong-order` prints the same comparison on a
//! real graph, with the order of the visits.
//!
//! # Topological order
//!
//! The condition for the fourth way is that a node comes after all nodes that use it. Such an order of
//! all nodes is a *topological order* (of the reversed graph). It exists, since a computation cannot
//! use its own result. There are three usual ways to get one:
//!
//! - **Depth-first search**: visit the inputs of a node recursively, then append the node; the reversed
//!   list is the order. That is what micrograd does. It takes a pass over the graph before the backward
//!   pass, and the recursion can overflow the stack.
//! - **Counting uses**: first count for each node how many reachable nodes use it. In the backward pass
//!   decrease the count with each arrival; at 0 the node is ready. That is PyTorch's way. Nodes that
//!   are ready can be processed in parallel.
//! - **Creation order**: every node gets a number when it is created. Descending numbers are a
//!   topological order, since inputs are created before outputs. A list of all operations (a *tape*),
//!   read from the end, is the same. This library does this; it has no search and no counts, but a
//!   priority queue of the nodes that are pending.
//!
//! In creation order the sequence of additions is always the same. The sum of three gradients depends
//! on the order by rounding. With a fixed order, a run can be repeated bit for bit.
//!
//! ```
//! use retrograd::prelude::*;
//!
//! let x = Var::leaf(Tensor::scalar(3.0f64));
//! let b = x.square();
//! let (c, d) = (&b * 2.0, &b * 3.0);
//! let y = &c + &d;
//! assert!(x.id() < b.id() && b.id() < c.id() && c.id() < d.id() && d.id() < y.id());
//! let grads = Backprop::from(&y).keep(&b).run();
//! assert_eq!(
//!     (grads.get(&b).unwrap().item(), grads.get(&x).unwrap().item()),
//!     (5.0, 30.0)
//! );
//!
//! // A residual stream of 60 blocks has 2⁶⁰ paths, and 180 operations.
//! let mut h = x.clone();
//! for _ in 0..60 {
//!     h = &h + &(&h * 0.5).tanh();
//! }
//! assert!(h.backward().get(&x).unwrap().item() > 0.0);
//! ```
//!
//! # Where micrograd's users meet it
//!
//! Two programs look right and are not:
//!
//! - `backward()` on an intermediate value and then on the result, without setting the gradients to 0
//!   in between: the gradients of the first pass are still there, and the second pass adds to them and
//!   passes them on again. Here `backward()` returns its gradients as a value, so two passes cannot
//!   mix.
//! - `for node in nodes: node._backward()` in the order in which the nodes were created: an input is
//!   processed before its uses, while its gradient is 0. The order has to be reversed.
//!
//! # Exercises
//!
//! The solutions are tests in `tests/book/order.rs`; `cargo test -p retrograd-tests --test book order` runs them.
//!
//! 1. On which graphs is the first recursion (stop at a second arrival) right? (`right_on_trees`)
//! 2. Write the depth-first topological order of a graph of [`Node`](crate::autograd::Node)s, and
//!    compare it with descending ids. Are they the same order? Do they give the same gradient?
//!    (`depth_first_order`)
//! 3. Write the pass that counts uses. (`counting_uses`)
//! 4. How many visits does the third recursion need for `n` diamonds? (`visits_of_each_path`)
//! 5. Set up a chain of 100 000 operations, and differentiate it and drop it. What would a recursion
//!    do? (`a_long_chain`)
//!
//! Previous: [From closure to rule](super::rules). Next: [Products instead of matrices](super::products).
