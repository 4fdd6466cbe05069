//! Chapter 9: Numerically safe softmax: the same quotient without overflow, and its gradient.
//!
//! # The function
//!
//! `softmax(x)ᵢ = exp(xᵢ) / Σⱼ exp(xⱼ)` turns numbers of any sign (*logits*) into positive weights with
//! the sum 1. A difference of 1 between two logits is a factor of `e` between their weights.
//!
//! The formula as it stands fails in `f32`. The largest `f32` is about 3.4 · 10³⁸, and `exp(88.73)` is
//! larger. So `exp(89)` is ∞, and `∞ / ∞` is NaN:
//!
//! ```
//! use retrograd::prelude::*;
//!
//! let naive = |x: &Tensor| x.exp() / x.exp().sum(..);
//! assert_eq!(naive(&Tensor::from([0.0f32, 0.0])).to_vec(), [0.5, 0.5]);
//! assert!(naive(&Tensor::from([89.0f32, 89.0])).to_vec()[0].is_nan()); // ∞ / ∞
//! assert!(naive(&Tensor::from([-105.0f32, -105.0])).to_vec()[0].is_nan()); // 0 / 0
//! ```
//!
//! # The shift
//!
//! For any number `m`,
//!
//! ```text
//! exp(xᵢ) / Σⱼ exp(xⱼ) = exp(xᵢ - m) / Σⱼ exp(xⱼ - m)
//! ```
//!
//! since numerator and denominator are both multiplied by `exp(-m)`. With `m = maxⱼ xⱼ` all exponents
//! are at most 0. No exponential exceeds 1, so nothing overflows. One of them is `exp(0) = 1`, so the
//! sum is at least 1, and the division is safe. An exponential that underflows to 0 belongs to a weight
//! below 10⁻⁴⁵, which an `f32` cannot represent anyway.
//!
//! ```
//! # use retrograd::prelude::*;
//! fn softmax(x: &[f32]) -> Vec<f32> {
//!     let max = x.iter().copied().fold(f32::NEG_INFINITY, f32::max);
//!     let powers: Vec<f32> = x.iter().map(|x| (x - max).exp()).collect();
//!     let sum: f32 = powers.iter().sum();
//!     powers.iter().map(|p| p / sum).collect()
//! }
//!
//! assert_eq!(softmax(&[89.0, 89.0]), [0.5, 0.5]);
//! assert_eq!(softmax(&[-1000.0, 1000.0]), [0.0, 1.0]);
//! let x = Tensor::from([89.0f32, 90.0, -300.0]);
//! for (a, b) in softmax(&x.to_vec()).into_iter().zip(x.softmax(-1).to_vec()) {
//!     assert!((a - b).abs() < 1e-6);
//! }
//! ```
//!
//! # Log-sum-exp
//!
//! The logarithm of the denominator, `lse(x) = ln Σⱼ exp(xⱼ)`, has a name because it occurs alone: in
//! the loss of a classifier, and in attention. The same shift makes it safe:
//! `lse(x) = m + ln Σⱼ exp(xⱼ - m)`. In the figure, logits `[c, c + 1, c + 2]` are moved by `c`, so
//! that `lse - c` should be a constant, 2.41:
//!
#![doc = include_str!("../../docs/figures/softmax.svg")]
//!
//! It is a soft maximum: `max(x) ≤ lse(x) ≤ max(x) + ln n` for `n` numbers.
//!
//! ```
//! # use retrograd::prelude::*;
//! let lse = |c: f32| Tensor::from([c, c + 1.0, c + 2.0]).logsumexp(..).item();
//! assert!((lse(0.0) - 2.4076).abs() < 1e-4);
//! assert!((lse(1000.0) - 1002.4076).abs() < 1e-4);
//! assert!(2.0 <= lse(0.0) && lse(0.0) <= 2.0 + 3f32.ln());
//! ```
//!
//! # Logarithms of weights
//!
//! A classifier's loss is `-ln softmax(x)ₜ` for the target `t`. Computed as written, it is ∞ as soon as
//! the weight of the target underflows, and its gradient is wrong. The logarithm of the quotient is a
//! difference, in which nothing underflows:
//!
//! ```text
//! -ln softmax(x)ₜ = lse(x) - xₜ
//! ```
//!
//! ```
//! # use retrograd::prelude::*;
//! let x = Var::leaf(Tensor::from([[0.0f32, 200.0]])); // class 0 has the weight e⁻²⁰⁰
//! let naive = -x.softmax(-1).ln().i((0, 0));
//! assert_eq!(naive.item(), f32::INFINITY);
//! assert_ne!(naive.backward().get(&x).unwrap().to_vec(), [-1.0, 1.0]);
//!
//! let safe = x.cross_entropy(&Tensor::from([0i64]), CrossEntropy::default());
//! assert_eq!(safe.item(), 200.0);
//! assert_eq!(safe.backward().get(&x).unwrap().to_vec(), [-1.0, 1.0]);
//! ```
//!
//! # Gradients
//!
//! Let `y = softmax(x)`. The derivative of the log-sum-exp is the softmax itself:
//!
//! ```text
//! ∂lse/∂xᵢ = exp(xᵢ) / Σⱼ exp(xⱼ) = yᵢ
//! ```
//!
//! From `ln yⱼ = xⱼ - lse(x)` follows `∂yⱼ/∂xᵢ = yⱼ (δᵢⱼ - yᵢ)`, where `δᵢⱼ` is 1 if `i = j` and else
//! 0. The vector-Jacobian product with a cotangent `g` is
//!
//! ```text
//! x̄ᵢ = Σⱼ gⱼ yⱼ (δᵢⱼ - yᵢ) = yᵢ (gᵢ - Σⱼ gⱼ yⱼ)
//! ```
//!
//! It needs the output only, and one sum for each row. The shift `m` does not occur: the result does
//! not depend on it, so it has no gradient, although the program computed it from `x`. And for the
//! loss, `∂(lse(x) - xₜ)/∂xᵢ = yᵢ - δᵢₜ`: the weights minus the target.
//!
//! ```
//! # use retrograd::prelude::*;
//! let x = Var::leaf(Tensor::from([0.5f64, -1.0, 2.0]));
//! let y = x.softmax(-1);
//! let g = Tensor::from([1.0f64, 10.0, 100.0]);
//! let dot = (&g * y.value()).sum(..).item();
//! let by_hand = y.value() * (&g - dot);
//! let found = y.backward_with(&g).get(&x).unwrap().clone();
//! assert!((by_hand - &found).abs().max(..).item() < 1e-14);
//! assert!(found.sum(..).item().abs() < 1e-14); // x + c has the same softmax
//!
//! let dx = x.logsumexp(..).backward().get(&x).unwrap().clone();
//! assert!((dx - x.softmax(-1).value()).abs().max(..).item() < 1e-15);
//! ```
//!
//! # One pass over memory
//!
//! By the definition a row is read three times: for the maximum, for the sum, and for the quotients.
//! The first two passes can be one. Keep the maximum `m` of the elements so far and the sum `ℓ` of
//! `exp(xⱼ - m)`. If an element exceeds `m`, the old sum was relative to a smaller maximum, and one
//! factor mends it:
//!
//! ```text
//! m' = max(m, x)
//! ℓ' = ℓ · exp(m - m') + exp(x - m')
//! ```
//!
//! This is the *online softmax* (Milakov, Gimelshein 2018, arXiv 1805.02867). [Tiled
//! attention](super::attention) is built on it.
//!
//! ```
//! # use retrograd::prelude::*;
//! fn online_logsumexp(x: &[f64]) -> f64 {
//!     let (mut max, mut sum) = (f64::NEG_INFINITY, 0.0);
//!     for &x in x.iter().filter(|&&x| x > f64::NEG_INFINITY) {
//!         let new = f64::max(max, x);
//!         sum = sum * (max - new).exp() + (x - new).exp();
//!         max = new;
//!     }
//!     max + sum.ln()
//! }
//!
//! let x = Tensor::<f64>::randn([100], &mut Rng::new(1)) * 300.0;
//! assert!((online_logsumexp(&x.to_vec()) - x.logsumexp(..).item()).abs() < 1e-12);
//! // The sum of nothing is 0, and its logarithm -∞.
//! assert_eq!(online_logsumexp(&[]), f64::NEG_INFINITY);
//! ```
//!
//! # Masks
//!
//! A masked element is one that should have no weight. With `-∞` as its logit it gets `exp(-∞) = 0`. A
//! row of which all elements are masked has the maximum -∞, and `-∞ - (-∞)` is NaN. So a mask is an
//! argument here, and a row without visible elements is 0:
//!
//! ```
//! # use retrograd::prelude::*;
//! let x = Tensor::from([[1.0f64, 2.0], [1.0, 2.0]]);
//! let keep = Tensor::from([[true, false], [false, false]]);
//! assert_eq!(x.masked_softmax(-1, &keep).to_vec(), [1.0, 0.0, 0.0, 0.0]);
//! ```
//!
//! # Exercises
//!
//! The solutions are tests in `tests/book/softmax.rs`; `cargo test -p retrograd-tests --test book softmax` runs them.
//!
//! 1. Prove `max(x) ≤ lse(x) ≤ max(x) + ln n`, and find logits for both equalities.
//!    (`bounds_of_the_log_sum_exp`)
//! 2. Why subtract the maximum and not the mean? (`the_mean_is_no_safe_shift`)
//! 3. `ln(1 + exp(x))`, the *softplus*, is the log-sum-exp of 0 and `x`. Write it safely in `f32` with
//!    `ln_1p`. (`softplus`)
//! 4. Two halves of a row have log-sum-exps `a` and `b`. What is the log-sum-exp of the whole row? (`halves_combine`)
//! 5. With logits divided by a temperature `T`, which limits has the softmax for `T → 0` and for
//!    `T → ∞`, and its largest gradient entry? (`temperature`)
//!
//! Previous: [Broadcasting](super::broadcasting). Next: [Attention](super::attention).
