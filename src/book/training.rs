//! Chapter 12: Training: what initialisation, dropout and optimisers do to numbers.
//!
//! # Why weights are scaled by `1/√fan-in`
//!
//! A linear layer computes `y = Σᵢ wᵢ xᵢ` for each output, with a sum of `n` terms. `n` is the
//! *fan-in*. Let the weights be independent of each other and of the inputs, with mean 0 and variance
//! `σ²`. Then the terms are uncorrelated, and the variance of the sum is the sum of the variances:
//!
//! ```text
//! Var(y) = n · σ² · mean(x²)
//! ```
//!
//! With `σ = 1/√n` the mean square of the outputs equals the mean square of the inputs. With another `σ` each
//! layer multiplies it by `n σ²`, and `k` layers by `(n σ²)ᵏ`: it grows or vanishes exponentially with
//! depth. A ReLU sets the negative half to 0 and so halves the mean square. Then `σ² = 2/n` is right
//! (He et al. 2015, arXiv 1502.01852). Going backward the same holds for gradients, with the number of
//! outputs (*fan-out*) in place of `n`.
//!
//! (`docs/gallery/run.html` of the repository is the page of a whole training run.)
//!
//! The figure has the measured root mean squares after each of 20 layers `relu(W x)` with 128 inputs
//! and outputs, and of the gradients at the same places:
//!
#![doc = include_str!("../../docs/figures/variance.svg")]
//!
//! ```
//! use retrograd::nn::init::Init;
//! use retrograd::prelude::*;
//!
//! /// The mean square after 20 layers, divided by the one of the input.
//! fn growth(init: impl Fn(usize) -> Init) -> f64 {
//!     let (mut rng, n) = (Rng::new(1), 128);
//!     let mut x = Tensor::<f64>::randn([64, n], &mut rng);
//!     let before = x.square().mean(..).item();
//!     for _ in 0..20 {
//!         x = x.matmul(&init(n).sample([n, n], &mut rng).t()).relu();
//!     }
//!     x.square().mean(..).item() / before
//! }
//!
//! let normal =
//!     |gain: f64| growth(move |n| Init::Normal { std: (gain / n as f64).sqrt() });
//! // Variance 2 / n: near 1.
//! assert!((0.2..5.0).contains(&growth(|_| Init::KaimingNormal)));
//! assert!(normal(1.0) < 1e-4); // near 2⁻²⁰
//! assert!(normal(4.0) > 1e4); // near 2²⁰
//! // PyTorch's default, uniform within ±1/√n, has the variance 1 / (3 n).
//! assert!(growth(|_| Init::TorchLinear) < 1e-13); // near 6⁻²⁰
//! ```
//!
//! The last line does not mean that PyTorch's default is useless: norms and residual connections keep
//! the scale in deep models. A deep network without them needs another initialisation.
//!
//! # Dropout
//!
//! In training, *dropout* sets each element to 0 with probability `p` and divides the others by
//! `1 - p`. The mean of an element is unchanged: `(1 - p) · x / (1 - p) = x`, so in evaluation nothing
//! has to be done. Its variance is `x² · p / (1 - p)`: the network is trained on noise.
//!
//! Here the decision is a function of a key and the index of the element
//! ([`Key::happens`](crate::tensor::random::Key::happens)). The backward pass computes it again. No
//! mask is stored, and results do not depend on the number of threads.
//!
//! ```
//! # use retrograd::prelude::*;
//! use retrograd::tensor::random::Key;
//!
//! let n = 100_000;
//! let x = Var::leaf(Tensor::<f64>::ones([n]));
//! let y = x.dropout(0.2, Key::new(1, 0));
//! assert!((y.value().mean(..).item() - 1.0).abs() < 0.01);
//! assert!((y.value().var(.., 0).item() - 0.25).abs() < 0.01); // p / (1 - p)
//! // The gradient passes where the element passed, with the same factor.
//! let grads = y.sum(..).backward();
//! assert_eq!(grads.get(&x).unwrap().to_vec(), y.value().to_vec());
//! ```
//!
//! # Gradient descent and momentum
//!
//! `w ← w - lr · g` goes downhill along the gradient. On a quadratic bowl `½ λ w²` the step is
//! `w ← (1 - lr · λ) w`. It converges if `lr < 2/λ`. A loss has many directions with different
//! curvatures `λ`. The steepest one bounds the learning rate, and the flattest one then needs about
//! `λ_max / λ_min` steps for a factor of `e`.
//!
//! *Momentum* `u ← μ u + g`, `w ← w - lr · u` adds up gradients of several steps. Where they agree, the
//! step grows up to `1 / (1 - μ)` times; where they alternate, they cancel.
//!
//! ```
//! /// Steps until both w are below 10⁻³, with curvatures 1 and 100.
//! fn steps(lr: f64, momentum: f64) -> usize {
//!     let (mut w, mut u) = ([1.0f64, 1.0], [0.0; 2]);
//!     for step in 0..10_000 {
//!         if w.iter().all(|w| w.abs() < 1e-3) {
//!             return step;
//!         }
//!         for (i, curvature) in [1.0, 100.0].into_iter().enumerate() {
//!             u[i] = momentum * u[i] + curvature * w[i];
//!             w[i] -= lr * u[i];
//!         }
//!     }
//!     usize::MAX
//! }
//!
//! assert_eq!(steps(0.021, 0.0), usize::MAX); // above 2 / 100: diverges
//! assert!((300..400).contains(&steps(0.019, 0.0)));
//! assert!(steps(0.019, 0.8) < 100);
//! ```
//!
//! # AdamW
//!
//! Adam (Kingma, Ba 2014, arXiv 1412.6980) divides the step of each parameter by the size of its own
//! recent gradients:
//!
//! ```text
//! m ← β₁ m + (1 - β₁) g          average of the gradient
//! v ← β₂ v + (1 - β₂) g²         average of its square
//! m̂ = m / (1 - β₁ᵗ),  v̂ = v / (1 - β₂ᵗ)      both start at 0: corrected at step t
//! w ← w - lr · m̂ / (√v̂ + ε)
//! ```
//!
//! The quotient has no unit: a loss that is multiplied by 1000 gives the same steps, apart from `ε`. In
//! the first step it is `g / |g| = ±1`, so every parameter moves by `lr`. Later the size of a step is
//! about `lr` where the sign of the gradient is constant, and smaller where it changes.
//!
//! Weight decay in the gradient (`g + λ w`) would be divided by `√v̂` too, so parameters with large
//! gradients would decay less. *AdamW* (Loshchilov, Hutter 2017, arXiv 1711.05101) applies it to the
//! parameter: `w ← (1 - lr · λ) w` first.
//!
//! ```
//! # use retrograd::prelude::*;
//! # use retrograd::nn::Param;
//! struct One(Param<f64>);
//! impl Module<f64> for One {
//!     fn visit(&self, v: &mut Visitor<'_, f64>) {
//!         v.param("w", &self.0);
//!     }
//! }
//!
//! /// The parameters after steps with these gradients.
//! fn adamw(start: [f64; 2], grads: &[[f64; 2]], weight_decay: f64) -> Vec<f64> {
//!     let model = One(Param::new(Tensor::from([start])));
//!     let config = AdamConfig { lr: 0.1, weight_decay, ..AdamConfig::default() };
//!     let mut adam = AdamW::new(&model, config).unwrap();
//!     for &g in grads {
//!         let w = model.0.to_var();
//!         adam.step(&w.backward_with(&Tensor::from([g]))).unwrap();
//!     }
//!     model.0.value().to_vec()
//! }
//!
//! // The first step is lr · sign(g), whatever the size of g.
//! let w = adamw([0.0, 0.0], &[[1e-3, -50.0]], 0.0);
//! assert!((w[0] + 0.1).abs() < 1e-5 && (w[1] - 0.1).abs() < 1e-5);
//! // Alternating gradients: small steps.
//! let w = adamw([0.0, 0.0], &[[1.0, 1.0], [-1.0, 1.0]], 0.0);
//! assert!(w[0].abs() < 0.11 && w[1] < -0.19);
//! // Weight decay is a factor of the parameter, independent of its gradient.
//! let w = adamw([1.0, 1.0], &[[1e-3, 50.0]], 0.5);
//! assert!((w[0] - (0.95 - 0.1)).abs() < 1e-5 && (w[1] - w[0]).abs() < 1e-5);
//! ```
//!
//! # Muon
//!
//! Adam treats a matrix as a list of numbers. *Muon* (Jordan et al. 2024) treats it as a linear map.
//! Let the average of the gradients be `m = U S Vᵀ` (singular value decomposition). The update is
//! `U Vᵀ`: the same directions, all with the singular value 1. A gradient of a large matrix is often
//! dominated by a few directions; the others then hardly move. With `U Vᵀ` all directions move equally
//! far. In the spectral norm (the largest singular value), `U Vᵀ` is the steepest step of length 1.
//!
//! The decomposition is not computed. An odd polynomial `p(s) = a s + b s³ + c s⁵` applied to the
//! singular values is `a X + b (X Xᵀ) X + c (X Xᵀ)² X`: matrix products only. With
//! `a, b, c = 3.4445, -4.7750, 2.0315` five iterations move all singular values that are not tiny to
//! between 0.6 and 1.25:
//!
//! ```
//! # use retrograd::prelude::*;
//! let p = |s: f64| 3.4445 * s - 4.7750 * s.powi(3) + 2.0315 * s.powi(5);
//! let after = |s: f64| (0..5).fold(s, |s, _| p(s));
//! assert!(
//!     [0.01, 0.05, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0]
//!         .into_iter()
//!         .all(|s| (0.6..1.25).contains(&after(s)))
//! );
//! assert!(after(0.0001) < 0.1); // 3.4445⁵ = 485 is the largest growth
//!
//! // On a matrix with singular values 1 and 0.05.
//! use retrograd::nn::optim::orthogonalize;
//! let rotation = |t: f64| Tensor::from([[t.cos(), -t.sin()], [t.sin(), t.cos()]]);
//! let x = rotation(0.4)
//!     .matmul(&Tensor::from([[1.0, 0.0], [0.0, 0.05]]))
//!     .matmul(&rotation(1.1));
//! // The inverse rotations make it diagonal again.
//! let y = rotation(-0.4).matmul(&orthogonalize(&x, 5)).matmul(&rotation(-1.1));
//! assert!(y.at(&[0, 1]).abs() < 1e-12 && y.at(&[1, 0]).abs() < 1e-12);
//! assert!(
//!     (0.6..1.25).contains(&y.at(&[0, 0])) && (0.6..1.25).contains(&y.at(&[1, 1]))
//! );
//! ```
//!
//! Muon is for the matrices of hidden layers. Embeddings, the head, norms and biases are left to AdamW.
//!
//! # A comparison, and its limits
//!
//! The figure has four optimisers on one problem: a network with two hidden layers of 32 learns
//! `sin(3x)` from 64 points, in 300 steps with a learning rate that falls linearly to 0.
//!
#![doc = include_str!("../../docs/figures/optimisers.svg")]
//!
//! It shows that the final losses differ by two orders of magnitude on the same model. It does not show
//! which optimiser is best: one problem, one seed, and learning rates that were not tuned equally.
//! `BENCHMARKS.md` compares recipes on a language model, with three seeds each.
//!
//! # Exercises
//!
//! The solutions are tests in `tests/book/training.rs`; `cargo test -p retrograd-tests --test book training` runs them.
//!
//! 1. `tanh(x) ≈ x` near 0. Which variance keeps the mean square of small activations through
//!    `tanh(W x)`, and what happens to large ones? (`tanh_layers`)
//! 2. Write AdamW in ten lines, and compare ten steps with the library's. (`adamw_by_hand`)
//! 3. Why is the average of Adam corrected by `1 - βᵗ`? Compute the first ten steps without it for a
//!    constant gradient. (`without_bias_correction`)
//! 4. A residual stream `x + f(x)` over `k` blocks, where `f` has mean square 1: how does its mean
//!    square grow, and with which factor of `f` is the sum bounded? (`residual_stream`)
//! 5. Apply dropout twice, with `p` and `q`. Which single dropout has the same distribution?
//!    (`dropout_twice`)
//!
//! Previous: [States](super::states). Next: [A fast matrix product](super::gemm).
