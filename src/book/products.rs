//! Chapter 7: Products instead of matrices: Jacobians and Hessians that are never formed.
//!
//! The Jacobian of a layer with 10⁶ inputs and outputs has 10¹² elements, and so has the Hessian of a loss by 10⁶
//! parameters. Neither fits into memory. What algorithms need of them is nearly always a product with a vector:
//!
//! | product | function | what it is |
//! |---|---|---|
//! | `J v` | [`jvp`](crate::autograd::jvp) | the change of the results in the direction `v` |
//! | `Jᵀ u` | [`vjp`](crate::autograd::vjp) | the gradient of `u · y` |
//! | `H v` | [`hvp`](crate::autograd::hvp) | the change of the gradient in the direction `v` |
//!
//! Each takes a small number of evaluations of the function, whatever the size of the matrix:
//!
//! ```
//! use retrograd::autograd::{hvp, jvp, vjp};
//! use retrograd::prelude::*;
//!
//! let x = Var::constant(Tensor::from([1.0f64, 2.0, 3.0]));
//! let v = Var::constant(Tensor::from([1.0, 0.0, -1.0]));
//! let f = |x: &Var<f64>| x.square(); // J is the diagonal matrix of 2x
//!
//! let (_, jv) = jvp(f, &x, &v);
//! assert_eq!(jv.value().to_vec(), [2.0, 0.0, -6.0]);
//! let (_, pull) = vjp(f, &x);
//! assert_eq!(pull(&v).value(), jv.value()); // a diagonal matrix is its transpose
//!
//! // The gradient of Σx³ is 3x², and its Hessian is the diagonal matrix of 6x.
//! let (g, hv) = hvp(|x: &Var<f64>| x.powf(3.0).sum(..), &x, &v);
//! assert_eq!(g.value().to_vec(), [3.0, 12.0, 27.0]);
//! assert_eq!(hv.value().to_vec(), [6.0, 0.0, -18.0]);
//! ```
//!
//! # Forward against reverse
//!
//! A function that consists of operations has the Jacobian `J = Jₖ ··· J₂ J₁`. Multiplication is associative, so `J v`
//! can be computed from the right, `Jₖ (··· (J₂ (J₁ v)))`, and `uᵀ J` from the left. Every intermediate result is a
//! vector in both cases. From the right is the order of the evaluation: each operation maps the *tangents* of its inputs
//! to tangents of its results, and nothing needs to be kept. From the left is the opposite order, and the operations
//! need the values that they had.
//!
//! The columns of `J` are its products with the vectors of the standard basis, and its rows are those of `Jᵀ`. So a
//! Jacobian of `m` results by `n` inputs takes `n` products in forward mode or `m` in reverse mode. A loss has `m = 1`:
//! one backward pass gives all derivatives. A curve `y(t)` has `n = 1`: one tangent gives all of them.
//! [`jacobian`](crate::autograd::jacobian) takes whichever is fewer.
//!
//! Costs are counted in products of matrices, which take most of the time of a network. For `C = A B`, the tangent is
//! `Ȧ B + A Ḃ`, two products; a backward pass takes two as well, `G Bᵀ` and `Aᵀ G`. So with the evaluation itself, `J v`
//! and `Jᵀ u` both take 3 evaluations. `H v` differentiates these 3 products, which takes 6 more: 9 evaluations, or 3
//! gradients.
//!
//! # Why double reverse works
//!
//! An engine that has only reverse mode can compute `J v` nevertheless. The function `g(u) = Jᵀ u`, at a fixed `x`, is
//! linear in `u`. The Jacobian of a linear function is its matrix, here `Jᵀ`. A vector-Jacobian product of `g` is
//! a product with the transpose of that matrix, and `(Jᵀ)ᵀ v = J v`:
//!
//! ```
//! use retrograd::autograd::{jvp, jvp_by_double_reverse};
//! use retrograd::prelude::*;
//!
//! let f = |x: &Var<f64>| x.exp() * x.sum(..);
//! let x = Var::leaf(Tensor::from([0.1, 0.2, 0.3]));
//! let v = Var::constant(Tensor::from([1.0, -2.0, 0.5]));
//!
//! let u = Var::leaf(Tensor::zeros([3])); // any u will do: g is linear
//! let g = grad(&[(&f(&x), Some(&u))], &[&x])[0].clone().unwrap();
//! let by_hand = grad(&[(&g, Some(&v))], &[&u])[0].clone().unwrap();
//!
//! assert_eq!(by_hand.value(), jvp_by_double_reverse(f, &x, &v).1.value());
//! assert!(by_hand.value().allclose(jvp(f, &x, &v).1.value(), 1e-14, 0.0));
//! ```
//!
//! The first pass must be recorded, since the second one differentiates its operations by `u`. It needs no rule besides
//! those of reverse mode; what it costs is the graph of a backward pass. This library transposes operation by operation
//! (`autograd/src/forward.rs`): the rule of a pointwise operation multiplies by a diagonal matrix and is its own
//! transpose, products of matrices have a rule for tangents, and any other rule is recorded at `u = 0` and
//! differentiated. So no graph of the whole backward pass is needed.
//!
//! `H v` is double reverse of another kind. The gradient is a function of `x`, and its Jacobian `H` is symmetric: the
//! derivative of `g(x) · v` is `Hᵀ v = H v` (Pearlmutter 1994).
//!
//! # What products are good for
//!
//! Krylov methods find eigenvalues and solve systems of equations by products alone. [`lanczos`](crate::autograd::lanczos)
//! gives the extreme eigenvalues of a Hessian after some twenty products, and conjugate gradients solve `H d = g`. Large
//! eigenvalues matter for training: on the parabola `λ x² / 2`, a step of gradient descent multiplies `x` by `1 - lr · λ`,
//! so it diverges if `λ > 2 / lr`. Networks do not stay below that bound by themselves. Trained with a fixed `lr`, they
//! move to where the largest eigenvalue is about `2 / lr`, and remain there (Cohen et al. 2021). `examples/sharpness`
//! draws it for a small GPT, at three learning rates:
//!
#![doc = include_str!("../../docs/sharpness.svg")]
//!
//! The same program asks which sentences of the text a prediction depends on. It solves one system of equations with 26 496
//! unknowns, and compares the answers with those of training again without each sentence.
//!
//! # Recomputation
//!
//! A backward pass needs the saved tensors of all operations. [`recompute`](crate::autograd::recompute) (*activation
//! checkpointing*, Chen et al. 2016) keeps only the inputs of a part, and runs the part again when the backward pass
//! reaches it:
//!
//! ```
//! use retrograd::prelude::*;
//!
//! let x = Var::leaf(Tensor::from([0.5, 1.0]));
//! let again = x.recompute(|x| x.sin().exp()); // the closure runs now, and in the backward pass
//! let usual = x.sin().exp();
//! assert_eq!(again.sum(..).backward().get(&x), usual.sum(..).backward().get(&x)); // every bit
//! ```
//!
//! Of `n` equal blocks, each saves `s` bytes and has an input of `b` bytes. Usually `n s` bytes are kept. If each block is
//! recomputed, `n b` remain, and `s` of the block that the backward pass is in. In a transformer `s` is some ten times
//! `b`, or more. The price is one more forward pass: 4 evaluations instead of 3, a third more time. Where `s = b`, as in a
//! chain of single operations, parts of `√n` operations are best: `√n` inputs and `√n` saved tensors, `2 √n` instead
//! of `n`. Nested parts keep fewer still, and compute more often.
//!
//! The second run must compute the same as the first. That is why dropout takes its random numbers from a key and not
//! from a generator with a state. `GptConfig::recompute` is the number of blocks that are recomputed.
//!
//! # Exercises
//!
//! The solutions are tests in `tests/book/products.rs`; `cargo test -p retrograd-tests --test book products` runs them.
//!
//! 1. `u · (J v) = (Jᵀ u) · v` for all `u` and `v`. Check forward mode against reverse mode by it, without a finite
//!    difference and without a Jacobian. (`a_dot_product_checks_both_modes`)
//! 2. Find the largest eigenvalue of the Hessian of `½ xᵀ A x` by repeated products. (`largest_eigenvalue`)
//! 3. A chain of `2ᵈ` operations is recomputed in halves, each of these in halves, and so on. How often is an operation
//!    computed? (`nested_recomputation`)
//!
//! Previous: [Why topological order](super::order). Next: [Broadcasting](super::broadcasting).
