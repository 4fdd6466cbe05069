//! Chapter 3: The chain rule on a graph: how derivatives of many inputs are computed in one pass.
//!
//! # Derivatives of one number
//!
//! The derivative of `f` at `x` is the number `f'(x)` for which `f(x + h) ≈ f(x) + f'(x) · h` with an
//! error that vanishes faster than `h`. For a function of functions, `y = f(g(x))`, the *chain rule*
//! says
//!
//! ```text
//! dy/dx = f'(g(x)) · g'(x)
//! ```
//!
//! A program computes a result by a sequence of elementary operations: `+`, `·`, `exp`, a matrix
//! product. Derivatives of these are known. *Automatic differentiation* applies the chain rule to the
//! sequence. The result is the derivative of what the program computed, up to rounding. It is not an
//! approximation by finite differences, and not a formula as a computer algebra system derives it.
//!
//! # The graph
//!
//! Let `y = (a · b + c)²` with `a = 2`, `b = 3`, `c = -4`. The steps are `u = a · b`, `v = u + c` and
//! `y = v²`. Each is a node of a graph, with an edge from each of its inputs, and each edge has a
//! partial derivative:
//!
#![doc = include_str!("../../docs/figures/chain.svg")]
//!
//! The page `docs/gallery/expression.html` of the repository runs this graph forward and backward, event by event.
//!
//! The derivative of `y` with respect to any node is **the sum over all paths from that node to `y` of
//! the product of the partial derivatives on the path**. From `a` there is one path:
//! `b · 1 · 2v = 3 · 1 · 4 = 12`. If `a` were used twice, there would be two paths, and their products
//! would be added.
//!
//! There can be very many paths. Written recursively from the result, with `ḡ(n)` for `∂y/∂n`, the
//! parts that paths share are computed once:
//!
//! ```text
//! ḡ(y) = 1
//! ḡ(n) = Σ over all uses m of n:  ḡ(m) · ∂m/∂n
//! ```
//!
//! That is *reverse mode*. It visits each edge once, beginning at `y`. The chapter on [the
//! order](super::order) is about the condition that `ḡ(m)` must be complete before it is used.
//!
//! ```
//! use retrograd::prelude::*;
//!
//! let leaf = |x: f64| Var::leaf(Tensor::scalar(x));
//! let (a, b, c) = (leaf(2.0), leaf(3.0), leaf(-4.0));
//! let u = &a * &b;
//! let v = &u + &c;
//! let y = v.square();
//! // Leaves have gradients in any case; of other variables they are kept on request.
//! let grads = Backprop::from(&y).keep(&u).keep(&v).run();
//! let grad = |x: &Var<f64>| grads.get(x).unwrap().item();
//! assert_eq!(
//!     [grad(&v), grad(&u), grad(&c), grad(&a), grad(&b)],
//!     [4.0, 4.0, 4.0, 12.0, 8.0]
//! );
//! ```
//!
//! # Forward or backward
//!
//! The same products can be computed from the other end. *Forward mode* computes for each node the
//! derivative with respect to one input, together with its value. A number and its derivative are a
//! *dual number*, `x + x' ε` with `ε² = 0`:
//!
//! ```
//! use std::ops::{Add, Mul};
//!
//! #[derive(Clone, Copy)]
//! struct Dual(f64, f64);
//!
//! impl Add for Dual {
//!     type Output = Dual;
//!     fn add(self, o: Dual) -> Dual {
//!         Dual(self.0 + o.0, self.1 + o.1)
//!     }
//! }
//!
//! impl Mul for Dual {
//!     type Output = Dual;
//!     fn mul(self, o: Dual) -> Dual {
//!         Dual(self.0 * o.0, self.0 * o.1 + self.1 * o.0)
//!     }
//! }
//!
//! let y = |a: Dual, b: Dual, c: Dual| {
//!     let v = a * b + c;
//!     v * v
//! };
//! // One pass for each input: its derivative begins with 1, the others with 0.
//! let slope = |i: usize| {
//!     let x = |j: usize, x: f64| Dual(x, if i == j { 1.0 } else { 0.0 });
//!     y(x(0, 2.0), x(1, 3.0), x(2, -4.0)).1
//! };
//! assert_eq!([slope(0), slope(1), slope(2)], [12.0, 8.0, 4.0]);
//! ```
//!
//! A forward pass gives the derivatives of all outputs with respect to one input direction. A backward
//! pass gives the derivatives of one output with respect to all inputs. A loss is one number, and a
//! model has millions of parameters: one backward pass replaces millions of forward passes. What it
//! costs is memory, because the values that the rules need must be kept until the backward pass
//! arrives.
//!
//! # Tensors: vector-Jacobian products
//!
//! For a function from `n` to `m` numbers the derivative is the *Jacobian*, the matrix
//! `J[i, j] = ∂yᵢ/∂xⱼ`. The chain rule is then a product of matrices, and reverse mode multiplies from
//! the left: a row vector `ȳ` (the *cotangent*, `∂L/∂y`) times `J` is the row vector `x̄ = ∂L/∂x`. Only
//! this product is needed, the *vector-Jacobian product* (VJP), never `J` itself. For `y = exp(x)` of a
//! million elements the Jacobian is a diagonal matrix with 10¹² entries, of which a million are not 0,
//! and the VJP is `ȳ · y`, elementwise.
//!
//! For the matrix product `C = A B`, with `L` a function of `C` and `G = ∂L/∂C`:
//!
//! ```text
//! C[i, j] = Σₖ A[i, k] B[k, j]
//! ∂L/∂A[i, k] = Σⱼ G[i, j] ∂C[i, j]/∂A[i, k] = Σⱼ G[i, j] B[k, j]      so  ∂L/∂A = G Bᵀ
//! ∂L/∂B[k, j] = Σᵢ G[i, j] A[i, k]                                     so  ∂L/∂B = Aᵀ G
//! ```
//!
//! The shapes are a check: `∂L/∂A` has the shape of `A`.
//!
//! ```
//! # use retrograd::prelude::*;
//! let mut rng = Rng::new(1);
//! let a = Var::leaf(Tensor::<f64>::randn([3, 4], &mut rng));
//! let b = Var::leaf(Tensor::<f64>::randn([4, 2], &mut rng));
//! let g = Tensor::<f64>::randn([3, 2], &mut rng);
//! let grads = a.matmul(&b).backward_with(&g);
//! assert_eq!(grads.get(&a).unwrap().to_vec(), g.matmul(&b.value().t()).to_vec());
//! assert_eq!(grads.get(&b).unwrap().to_vec(), a.value().t().matmul(&g).to_vec());
//! ```
//!
//! # Checking a derivative
//!
//! A wrong rule raises no error: training just works less well. So rules are compared with finite
//! differences. The central difference `(f(x + h) - f(x - h)) / 2h` has two errors. The *truncation
//! error* is about `h² · f'''(x) / 6`. The *rounding error* of `f` is about `ε · |f|`, with `ε = 2⁻⁵³`
//! in `f64`, and the division by `2h` enlarges it. The sum of both is smallest near
//! `h = ∛ε ≈ 5 · 10⁻⁶`. A smaller `h` is worse:
//!
//! ```
//! let (f, slope) = (|x: f64| x.exp(), 1f64.exp());
//! let error = |h: f64| ((f(1.0 + h) - f(1.0 - h)) / (2.0 * h) - slope).abs();
//! let errors = [1e-1, 1e-3, 1e-5, 1e-9, 1e-11].map(error);
//! assert!(errors[0] > 1e-3 && errors[1] > 1e-7); // truncation
//! assert!(errors[2] < 1e-9); // the best of these
//! assert!(errors[3] > 1e-9 && errors[4] > 1e-6); // rounding
//!
//! // In f32, at eight points and with the best of sixteen h: errors of 10⁻⁵.
//! let difference =
//!     |x: f32, h: f32| ((x + h).exp() - (x - h).exp()) / ((x + h) - (x - h));
//! let relative = |x: f32, h: f32| {
//!     (f64::from(difference(x, h)) / f64::from(x).exp() - 1.0).abs()
//! };
//! let points = (0..8).map(|i| i as f32 * 0.3).collect::<Vec<_>>();
//! let worst = |h: f32| points.iter().map(|&x| relative(x, h)).fold(0.0, f64::max);
//! let best = (1..=16).map(|i| worst(0.5f32.powi(i))).fold(1.0, f64::min);
//! assert!((3e-6..1e-4).contains(&best));
//! ```
//!
//! Errors of 10⁻⁵, as in `f32`, hide many mistakes. `gradcheck` therefore requires `f64`. It finds a
//! wrong factor at once. Here `detach` makes a constant of `x²`, so that the engine computes `x²` as the
//! derivative of `x³`:
//!
//! ```
//! # use retrograd::prelude::*;
//! use retrograd::autograd::check::{Check, gradcheck};
//!
//! let cube = |x: &[Var<f64>]| x[0].square() * &x[0];
//! let wrong = |x: &[Var<f64>]| x[0].square().detach() * &x[0];
//! let x = [Var::leaf(Tensor::from([0.5f64, -1.0, 2.0]))];
//! assert!(gradcheck(cube, &x, &Check::precise()).is_ok());
//! assert!(gradcheck(wrong, &x, &Check::precise()).is_err());
//! ```
//!
//! Rules written by hand, which are checked in the same way, are the subject of [a later
//! chapter](super::rules).
//!
//! # Exercises
//!
//! The solutions are tests in `tests/book/chain_rule.rs`; `cargo test -p retrograd-tests --test book chain_rule` runs
//! them.
//!
//! 1. `y = x · x · x` by two multiplications has three paths from `x`. List their products at `x = 2`,
//!    and compare the sum with the engine's derivative. (`sum_over_paths`)
//! 2. Derive the VJP of `y = x / ‖x‖`, and check it. (`unit_vector`)
//! 3. Give `Dual` a division and an exponential function, and compute the derivative of the sigmoid.
//!    (`dual_sigmoid`)
//! 4. A chain of `k` matrix products maps `n` inputs to one output, through vectors of length `n`. How
//!    many multiplications does the derivative take in either mode? (`cost_of_both_modes`)
//! 5. Compute the second derivative of `exp(x²)` by differentiating the gradient.
//!    (`gradient_of_a_gradient`)
//!
//! Previous: [Strides and views](super::strides). Next: [The engine, line by line](super::engine).
