//! Chapter 5: From closure to rule: what an operation leaves in the graph, and when it is freed.
//!
//! The engine of the last chapter calls `node.rule`. This chapter follows one rule through the library: from the
//! line that writes it, into the node, and out of memory.
//!
//! # Two closures
//!
//! An operation is a function that computes a value and calls [`Var::from_op`](crate::autograd::Var::from_op):
//!
//! ```
//! use retrograd::autograd::{InputGrads, Op};
//! use retrograd::prelude::*;
//!
//! static CUBE: Op = Op::new("cube", &["x"]).formula("y = x³", "dx = 3 · g · x²");
//!
//! fn cube(x: &Var<f64>) -> Var<f64> {
//!     Var::from_op(&CUBE, x.value().powf(3.0), [x], |[x]| {
//!         let x = x.save();
//!         move |cx, g| InputGrads::of(&x, || g * &cx.input(&x).square() * 3.0)
//!     })
//! }
//!
//! let x = Var::leaf(Tensor::from([1.0, 2.0]));
//! assert_eq!(cube(&x).sum(..).backward().get(&x).unwrap().to_vec(), [3.0, 12.0]);
//! ```
//!
//! There are two closures, which run at different times:
//!
//! | | `\|[x]\| ..` records | `move \|cx, g\| ..` is the rule |
//! |---|---|---|
//! | runs | in the forward pass, at most once | in each backward pass, possibly on another thread |
//! | gets | an [`Operand`](crate::autograd::Operand) for each input, which borrows the variable | the context `cx`, and the gradient `g` of the result |
//! | returns | the rule | the gradients of the inputs, each by its slot |
//! | owns | what the operation moves in, often nothing | what it captures, since it outlives the function: hence `move` |
//!
//! The first closure decides what is saved. `x.save()` gives a [`Slot`](crate::autograd::Slot), which is the position of
//! the input with its value; `x.slot()` is the position alone; `x.save_if(condition)` is one or the other. The second
//! closure then uses slots in place of variables: `InputGrads::of(&x, ..)` names the input that receives a gradient, and
//! evaluates it only if it is needed, and `cx.input(&x)` is the saved value as a variable. That variable is a constant in
//! an ordinary pass. In a recorded pass it is connected to the graph, so the rule can be differentiated, too.
//!
//! # Into the node
//!
//! A closure is a struct without a name: its fields are what it captures, and its method is the body. So each rule has
//! a type of its own, with the size of its captures. A graph needs one type for all. A trait object is that type:
//!
//! ```
//! trait Rule {
//!     fn backward(&self, g: f64) -> f64;
//! }
//!
//! /// A rule that is a closure.
//! struct Closure<F>(F);
//!
//! impl<F: Fn(f64) -> f64> Rule for Closure<F> {
//!     fn backward(&self, g: f64) -> f64 {
//!         (self.0)(g)
//!     }
//! }
//!
//! let (x, a, b) = (3.0, 5.0, 7.0);
//! let square = move |g: f64| 2.0 * x * g;
//! let sum = move |g: f64| (a + b) * g;
//! assert_eq!((size_of_val(&square), size_of_val(&sum)), (8, 16)); // one capture, and two
//!
//! let rules: Vec<Box<dyn Rule>> = vec![Box::new(Closure(square)), Box::new(Closure(sum))];
//! assert_eq!(rules.iter().map(|rule| rule.backward(1.0)).collect::<Vec<_>>(), [6.0, 12.0]);
//! ```
//!
//! `from_op` in `autograd/src/record.rs` does this, in five steps:
//!
//! 1. `is_recorded`: if no input is tracked, or gradients are off, the result is a constant. The first closure is
//!    not called, so nothing is saved.
//! 2. `Id::reserve` takes the next id. It is larger than the ids of the inputs.
//! 3. `record(operands(..))` calls the first closure and gets the rule.
//! 4. `ordinary` puts the rule into an `OrdinaryRule` behind an `Arc<dyn Rule<T>>`, and that into a `Node`, beside the
//!    shapes of the inputs and their edges.
//! 5. The result gets the edge `Edge::Node(node, 0)`. It is the only owner of the node, until another operation uses it.
//!
//! # Where the memory goes
//!
//! A saved value is a clone of a tensor, and clones share their storage. Saving therefore takes no memory by itself: it
//! keeps memory from being freed. Of a model's forward pass, all that the rules have saved stays in memory until the
//! backward pass. These are the *activations* that limit the size of a batch.
//!
//! A node owns its rule, the rule owns its slots and what else the closure captured, a slot owns a tensor, and the
//! tensor shares a storage. What keeps it, and for how long:
//!
//! | the rule is kept | until |
//! |---|---|
//! | by the node, in a backward pass | its call has ended, before its gradients are passed on |
//! | by the node, if no backward pass comes | the last variable that was computed from the result is dropped |
//! | with `Backprop::retain_graph`, and in [`grad`](crate::autograd::grad) | the same |
//!
//! A storage is freed with its last tensor, which may be a variable of yours. Its block of memory then goes to a free
//! list, from which the next tensor of its size takes it (`tensor/src/storage.rs`), and not to the operating system.
//!
//! `Node::take_rule` moves the rule out of the node, and the engine drops it after the call. So saved tensors are freed
//! one operation after the other, while gradients are computed: the memory of one takes the place of the other. Here a
//! captured `Arc` counts how many rules exist:
//!
//! ```
//! use retrograd::autograd::{InputGrads, Op};
//! use retrograd::prelude::*;
//! use std::sync::Arc;
//!
//! static CUBE: Op = Op::new("cube", &["x"]);
//!
//! fn cube(x: &Var<f64>, count: &Arc<()>) -> Var<f64> {
//!     Var::from_op(&CUBE, x.value().powf(3.0), [x], |[operand]| {
//!         let (slot, count) = (operand.save(), count.clone());
//!         assert!(slot.value().shares_storage(x.value())); // nothing is copied
//!         move |cx, g| {
//!             let _captured = &count;
//!             InputGrads::of(&slot, || g * &cx.input(&slot).square() * 3.0)
//!         }
//!     })
//! }
//!
//! let count = Arc::new(());
//! let rules = || Arc::strong_count(&count) - 1;
//! let x = Var::leaf(Tensor::scalar(2.0));
//!
//! let constant = cube(&x.detach(), &count);
//! let not_recorded = no_grad(|| cube(&x, &count));
//! assert_eq!(rules(), 0); // the first closure was not called
//!
//! let y = cube(&cube(&x, &count), &count);
//! assert_eq!(rules(), 2); // the graph belongs to y
//! let grads = y.backward();
//! assert_eq!((rules(), y.item()), (0, 512.0)); // y exists, its rules do not
//! assert_eq!(grads.get(&x).unwrap().item(), 9.0 * 256.0); // x⁹
//!
//! let y = cube(&x, &count);
//! Backprop::from(&y).retain_graph().run(); // for another pass
//! assert_eq!(rules(), 1);
//! drop(y); // without its result, the operation is gone
//! assert_eq!(rules(), 0);
//! ```
//!
//! Three rules for rules follow:
//!
//! - **Save what is smaller, or exists anyway.** The derivative of `exp` is its result, so its rule saves the result
//!   (`cx.output(&value)`), and the input can be freed. A product saves each factor only if the other one needs a
//!   gradient: `a.save_if(b.needs_grad())`.
//! - **Capture tensors and slots, not variables.** A variable owns its node, which owns everything below it. A rule that
//!   captured its own result would own itself, and reference counting would never free it.
//! - **Name what is not an input.** A mask that a rule captures is invisible in the list of slots. `saved("mask", mask)`
//!   returns the tensor unchanged and tells [observers](crate::autograd::observe::saved) of it, so that the page of a step
//!   accounts for its bytes.
//!
//! # A kernel as a rule
//!
//! A rule in operations on variables reads and writes memory once for each operation. A *fused* operation has one
//! kernel for the whole derivative, on tensors. A recorded pass cannot record a kernel, so there is a second method:
//! the same function in ordinary operations. This is the library's `rms_norm` without a weight
//! (`autograd/src/ops/norm.rs`):
//!
//! ```
//! use retrograd::autograd::{Cx, Fused, InputGrads, Op, Slot, check};
//! use retrograd::prelude::*;
//!
//! static RMS_NORM: Op = Op::new("rms_norm", &["x"]);
//!
//! /// What `from_op` keeps as captures of a closure are fields here.
//! struct RmsNorm {
//!     x: Slot<f64>,
//!     eps: f64,
//! }
//!
//! impl Fused<f64> for RmsNorm {
//!     fn vjp(&self, [g]: [&Tensor<f64>; 1]) -> InputGrads<f64> {
//!         InputGrads::of(&self.x, || self.x.value().rms_norm_vjps(None, self.eps, g).0)
//!     }
//!
//!     fn definition(&self, cx: &Cx<'_, f64>) -> [Var<f64>; 1] {
//!         let x = cx.input(&self.x);
//!         let mean = x.square().mean_keepdim(-1);
//!         [x * mean.add_scalar(self.eps).rsqrt()]
//!     }
//! }
//!
//! fn rms_norm(x: &Var<f64>, eps: f64) -> Var<f64> {
//!     let value = x.value().rms_norm(None, eps);
//!     let [y] = Var::from_fused(&RMS_NORM, [value], [x], |[x]| RmsNorm { x: x.save(), eps });
//!     y
//! }
//!
//! let x = Var::leaf(Tensor::from([[1.0, 2.0, 2.0], [0.5, 0.0, -1.0]]));
//! let y = rms_norm(&x, 1e-6);
//! assert_eq!(check::definition(&y, 1e-12), Ok(true)); // kernel and definition agree
//! let dx = grad(&[(&y.square().sum(..), None)], &[&x])[0].clone().unwrap();
//! assert!(dx.is_tracked()); // through the definition
//! ```
//!
//! # Exercises
//!
//! The solutions are tests in `tests/book/rules.rs`; `cargo test -p retrograd-tests --test book rules` runs them.
//!
//! 1. Write the product of two variables. Which values does it save if one factor is a constant?
//!    (`a_product_saves_what_it_needs`)
//! 2. Show that the rule of `y = cube(x)` is freed before the rule that computed `x` is called. (`rules_are_freed_in_turn`)
//! 3. What does the library say of a rule that forgets one of its inputs? (`a_forgotten_input`)
//! 4. A caller writes to a tensor after an operation has saved it. Is the gradient wrong? (`writes_do_not_reach_rules`)
//!
//! Previous: [The engine, line by line](super::engine). Next: [Why topological order](super::order).
