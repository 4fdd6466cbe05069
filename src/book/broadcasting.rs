//! Chapter 8: Broadcasting and its adjoint: the gradient of a repetition is a sum.
//!
//! # The rule
//!
//! Two shapes are aligned at their **last** axes. On each axis the sizes must be equal, or one of them
//! must be 1, or missing. An axis of size 1 or a missing one is repeated. The result has the larger
//! size on each axis.
//!
//! | `x` | `y` | `x + y` |
//! |---|---|---|
//! | `[3, 4]` | `[4]` | `[3, 4]`: `y` is added to each row |
//! | `[3, 1]` | `[4]` | `[3, 4]`: every pair |
//! | `[3, 4]` | `[3]` | an error: 4 and 3. A `y` of shape `[3, 1]` is added to each column |
//! | `[8, 1, 6, 1]` | `[7, 1, 5]` | `[8, 7, 6, 5]` |
//! | `[0, 4]` | `[1, 4]` | `[0, 4]`: repeated 0 times |
//!
//! ```
//! use retrograd::prelude::*;
//!
//! let shape = |a: &[usize], b: &[usize]| {
//!     let (a, b) = (Tensor::<f32>::zeros(a), Tensor::<f32>::zeros(b));
//!     Shape::broadcast("add", a.shape(), b.shape()).map(|s| s.to_vec())
//! };
//! assert_eq!(shape(&[3, 4], &[4]), Ok(vec![3, 4]));
//! assert_eq!(shape(&[3, 1], &[4]), Ok(vec![3, 4]));
//! assert!(shape(&[3, 4], &[3]).is_err());
//! assert_eq!(shape(&[8, 1, 6, 1], &[7, 1, 5]), Ok(vec![8, 7, 6, 5]));
//! assert_eq!(shape(&[0, 4], &[1, 4]), Ok(vec![0, 4]));
//! ```
//!
#![doc = include_str!("../../docs/figures/broadcasting.svg")]
//!
//! Nothing is copied: a repeated axis has the stride 0, so that every index along it reads the same
//! element.
//!
//! ```
//! # use retrograd::prelude::*;
//! let row = Tensor::from([1.0f32, 2.0, 3.0, 4.0]);
//! let repeated = row.broadcast_to([1000, 4]);
//! assert!(repeated.shares_storage(&row));
//! assert_eq!(repeated.layout().strides(), [0, 1]);
//! ```
//!
//! # The adjoint
//!
//! Repeating is a linear map: an input element `xⱼ` becomes the output elements `y₁ⱼ, y₂ⱼ, ..`, which
//! are all equal to it. By the chain rule
//!
//! ```text
//! ∂L/∂xⱼ = Σᵢ ∂L/∂yᵢⱼ · ∂yᵢⱼ/∂xⱼ = Σᵢ ∂L/∂yᵢⱼ
//! ```
//!
//! So the backward rule of a repetition is the sum over the repeated axes. The converse holds as well:
//! the rule of a sum is a repetition. Each is the adjoint of the other, and
//! `⟨repeat(x), y⟩ = ⟨x, sum(y)⟩` says so for all `x` and `y`:
//!
//! ```
//! # use retrograd::prelude::*;
//! let mut rng = Rng::new(1);
//! let x = Tensor::<f64>::randn([3, 1], &mut rng);
//! let y = Tensor::<f64>::randn([2, 3, 4], &mut rng);
//! let left = (x.broadcast_to([2, 3, 4]) * &y).sum(..).item();
//! let right = (&x * y.sum_to([3, 1])).sum(..).item();
//! assert!((left - right).abs() < 1e-13);
//! ```
//!
//! `sum_to(shape)` sums over the axes that broadcasting from `shape` would repeat: leading axes that
//! `shape` lacks disappear, and axes of size 1 are kept.
//!
//! ```
//! # use retrograd::prelude::*;
//! let x = Var::leaf(Tensor::from([[10.0f32], [20.0], [30.0]]));
//! let y = Var::leaf(Tensor::from([1.0f32, 2.0, 3.0, 4.0]));
//! let grads = (&x + &y).sum(..).backward();
//! assert_eq!(grads.get(&x).unwrap().to_vec(), [4.0; 3]); // each was read four times
//! assert_eq!(grads.get(&y).unwrap().to_vec(), [3.0; 4]); // each was read three times
//! assert_eq!(*grads.get(&x).unwrap().shape(), [3, 1]); // the shape of the input
//! ```
//!
//! In this library no rule of a pointwise operation sums. It returns the gradient with the shape of the
//! *result*, and the engine applies `sum_to` if that is not the shape of the input (`Engine::run`; see
//! [the engine](super::engine)). Thus the rule of `mul` is one line, and it is right for all shapes:
//!
//! ```
//! # use retrograd::prelude::*;
//! use retrograd::autograd::{InputGrads, Op};
//!
//! static MY_MUL: Op = Op::new("my_mul", &["a", "b"]);
//!
//! fn mul(a: &Var<f64>, b: &Var<f64>) -> Var<f64> {
//!     Var::from_op(&MY_MUL, a.value() * b.value(), [a, b], |[a, b]| {
//!         let (a, b) = (a.save(), b.save());
//!         move |cx, g| {
//!             InputGrads::of(&a, || g * &cx.input(&b)).and(&b, || g * &cx.input(&a))
//!         }
//!     })
//! }
//!
//! let a = Var::leaf(Tensor::from([[1.0f64, 2.0], [3.0, 4.0]]));
//! let b = Var::leaf(Tensor::from([10.0f64, 100.0]));
//! let grads = mul(&a, &b).sum(..).backward();
//! assert_eq!(grads.get(&b).unwrap().to_vec(), [4.0, 6.0]); // sums of the columns of a
//! ```
//!
//! # Three places where it matters
//!
//! **The bias of a linear layer** is added to every row of a batch. Its gradient is the sum over the
//! batch: a bias of shape `[16]` and a batch of 64 rows give a gradient of shape `[16]`, the sum of 64
//! rows.
//!
//! **Means over a batch.** The loss is usually a mean, so each row's gradient has a factor `1/64`, and
//! the sum over the batch makes the gradient of the bias independent of the batch size.
//!
//! **Targets of the wrong shape.** Predictions `[N, 1]` minus targets `[N]` is `[N, N]`: all pairs. The
//! mean of its squares is a number, and training runs, towards the mean of the targets. `mse_loss`
//! therefore refuses operands of different shapes:
//!
//! ```
//! # use retrograd::prelude::*;
//! let prediction = Var::constant(Tensor::from([[1.0f64], [2.0], [3.0]]));
//! let target = Var::constant(Tensor::from([1.0f64, 2.0, 3.0]));
//! let wrong = (&prediction - &target).square().mean(..);
//! assert!((wrong.item() - 4.0 / 3.0).abs() < 1e-15); // and the prediction is perfect
//! let refused =
//!     std::panic::catch_unwind(|| prediction.mse_loss(&target, Reduction::Mean));
//! assert!(refused.is_err());
//! ```
//!
//! # Reductions that are not linear
//!
//! The maximum copies one element of each row, so its gradient goes to that element only. Where several
//! are equal, the derivative does not exist; [`conventions`](crate::conventions) says which element
//! gets it. A mean is a sum divided by the number of elements, so is its rule. For the variance
//! `v = Σ (xᵢ - m)² / n` with the mean `m`, the rule is `2 (xᵢ - m) / n · g`. The term by way of `m` is
//! 0: `∂v/∂m = -2 Σ (xᵢ - m) / n = 0`.
//!
//! ```
//! # use retrograd::prelude::*;
//! let x = Var::leaf(Tensor::from([1.0f64, 2.0, 6.0]));
//! let v = x.var(.., 0);
//! let slope: Vec<f64> =
//!     [1.0, 2.0, 6.0].iter().map(|x| 2.0 * (x - 3.0) / 3.0).collect();
//! for (a, b) in v.backward().get(&x).unwrap().to_vec().iter().zip(slope) {
//!     assert!((a - b).abs() < 1e-15);
//! }
//! ```
//!
//! # Exercises
//!
//! The solutions are tests in `tests/book/broadcasting.rs`; `cargo test -p retrograd-tests --test book broadcasting` runs
//! them.
//!
//! 1. Write `sum_to` with `sum` and `sum_keepdim` only. (`sum_to_by_hand`)
//! 2. Compute all distances between 5 points and 3 points in the plane, `[5, 3]`, by broadcasting, and
//!    check the gradient. (`pairwise_distances`)
//! 3. What is the gradient of a bias that is added to a batch of 0 rows? (`no_rows`)
//! 4. The gradient of `x.max(1)`, for a matrix, as a formula with `one_hot`.
//!    (`gradient_of_the_maximum`)
//! 5. Show that subtracting the mean of each row and its backward rule are the same map. What is such a
//!    map called? (`centring_is_its_own_adjoint`)
//!
//! Previous: [Products instead of matrices](super::products). Next: [Safe softmax](super::softmax).
