//! Chapter 11: States: from linear attention to the chunked delta rule.
//!
//! A softmax needs all earlier keys, so a token costs as much as there are tokens before it. The
//! attention of this chapter keeps a matrix instead, which has the same size after any number of tokens.
//!
//! # Attention without the exponential
//!
//! Without the softmax, causal attention is `oᵢ = Σ_{j ≤ i} (qᵢ · kⱼ) vⱼ`. The sum can be written in
//! another order, `oᵢ = (Σ_{j ≤ i} kⱼ vⱼᵀ)ᵀ qᵢ`. The matrix in brackets is a *state* `[Dk, Dv]`, to which
//! each token adds an outer product (Katharopoulos et al. 2020, arXiv 2006.16236):
//!
//! ```text
//! S ← S + k vᵀ        o = Sᵀ q
//! ```
//!
//! ```
//! use retrograd::prelude::*;
//!
//! let mut rng = Rng::new(1);
//! let mut x = || Tensor::<f64>::randn([6, 4], &mut rng);
//! let (q, k, v) = (x(), x(), x());
//! let whole = q.matmul(&k.t()).tril(0).matmul(&v); // weights without a softmax
//!
//! let mut state = Tensor::zeros([4, 4]);
//! for t in 0..6 {
//!     state = state + k.i(t).outer(&v.i(t));
//!     let o = state.t().matmul(&q.i(t));
//!     assert!((o - whole.i(t)).abs().max(..).item() < 1e-12);
//! }
//! ```
//!
//! For `L` tokens the first form takes `2 L² D` operations twice, the second `4 L D²`. With `D = 64`
//! they are equal at 64 tokens.
//!
//! # Forgetting
//!
//! A sum never forgets. A factor before the old state does: `S ← γ S + k vᵀ` gives the token `j` the
//! weight `γ^(i-j) qᵢ · kⱼ` in the output `i`. `γ` is a number per head in RetNet, a function of the
//! token in Mamba-2, and a vector `w` over the channels of the keys in GLA. The library computes all of
//! them by one operation, [`Recurrence`](crate::autograd::Recurrence):
//!
//! ```
//! use retrograd::autograd::Recurrence;
//! use retrograd::prelude::*;
//!
//! let mut rng = Rng::new(2);
//! let mut x = || Var::constant(Tensor::<f64>::randn([1, 1, 5, 3], &mut rng));
//! let (q, k, v) = (x(), x(), x());
//! let decay = Some(Var::constant(Tensor::full([1, 1, 5, 1], 0.5)));
//! let rule = Recurrence { decay, ..Recurrence::new(&q, &k, &v) };
//!
//! let distance = Tensor::from_fn([5, 5], |i| 0.5f64.powi(i[0] as i32 - i[1] as i32));
//! let weights = (q.matmul(&k.t()) * Var::constant(distance)).tril(0);
//! let [o, _] = rule.run(None);
//! assert!((weights.matmul(&v) - o).value().abs().max(..).item() < 1e-12);
//! // The weights of any recurrence, computed from it:
//! assert!((weights - rule.weights()).value().abs().max(..).item() < 1e-12);
//! ```
//!
//! # The delta rule
//!
//! Reading the state with a key should give the value of that key, `Sᵀ k = v`. A step of gradient
//! descent on `½ ‖Sᵀ k - v‖²` with the learning rate `β` is
//!
//! ```text
//! S ← S - β k (kᵀ S - vᵀ) = (I - β k kᵀ) S + β k vᵀ
//! ```
//!
//! What the state held for `k` is taken out before `v` is written (Schlag et al. 2021, arXiv 2102.11174;
//! Yang et al. 2024, arXiv 2406.06484). With `β = 1` and a key of norm 1 it is replaced completely:
//!
//! ```
//! # use retrograd::autograd::Recurrence;
//! # use retrograd::prelude::*;
//! // Key a has the value 1, key b the value 2, and then key a the value 5.
//! let keys = Tensor::from([[1.0f64, 0.0], [0.6, 0.8], [1.0, 0.0]]).reshape([1, 1, 3, 2]);
//! let k = Var::constant(keys);
//! let v = Var::constant(Tensor::from([1.0, 2.0, 5.0]).reshape([1, 1, 3, 1]));
//! let sum = Recurrence::new(&k, &k, &v);
//! let delta = Recurrence { low_rank: Some([k.clone(), -&k]), ..sum.clone() };
//! let last = |rule: &Recurrence<f64>| rule.run(None)[0].value().at(&[0, 0, 2, 0]);
//! assert!((last(&delta) - 5.0).abs() < 1e-12);
//! assert!((last(&sum) - (1.0 + 0.6 * 2.0 + 5.0)).abs() < 1e-12); // all that was near
//! ```
//!
//! The rule of the operation is `S ← diag(w) S + b (aᵀ S) + k vᵀ`; the delta rule has `a = k`,
//! `b = -β k`. [`GatedDeltaNet`](crate::nn::attention::GatedDeltaNet) adds a decay of heads,
//! [`KimiDeltaAttention`](crate::nn::attention::KimiDeltaAttention) one of channels.
//!
//! # Chunks
//!
//! Token by token, the products are those of a matrix and a vector, and each waits for the one before.
//! On a GPU that is slow, so sequences are processed in chunks of `C` tokens by products of matrices. For
//! a sum that is easy: `O = Q S + tril(Q Kᵀ) V`, and then `S ← S + Kᵀ V`. For the delta rule it needs the
//! values that are really written. Let `uₜ = β (vₜ - Sᵀ kₜ)`, where `S` is the state before token `t`: the
//! old state of the chunk and what earlier tokens of the chunk have written, `S₀ + Σ_{s < t} kₛ uₛᵀ`. So
//!
//! ```text
//! uₜ + β Σ_{s < t} (kₜ · kₛ) uₛ = β (vₜ - S₀ᵀ kₜ)
//! (I + tril(β K Kᵀ, -1)) U = β (V - K S₀)
//! ```
//!
//! is a triangular system for the `C` rows of `U`. After it, the chunk is that of a sum with the values
//! `U`:
//!
//! ```
//! # use retrograd::autograd::Recurrence;
//! # use retrograd::prelude::*;
//! type X = Tensor<f64>;
//!
//! /// The outputs of a chunk, and the state after it.
//! fn chunk(q: &X, k: &X, v: &X, beta: f64, state: &X) -> (X, X) {
//!     let products = k.matmul(&k.t()).tril(-1) * beta;
//!     let right = (v - k.matmul(state)) * beta;
//!     // Forward substitution, row by row.
//!     let mut u = X::zeros(right.shape());
//!     for t in 0..u.size(0) {
//!         let row = right.i(t) - u.t().matmul(&products.i(t));
//!         u = u.slice_assign(t, &row);
//!     }
//!     let o = q.matmul(state) + q.matmul(&k.t()).tril(0).matmul(&u);
//!     (o, state + k.t().matmul(&u))
//! }
//!
//! let mut rng = Rng::new(3);
//! let mut x = || X::randn([10, 4], &mut rng);
//! let (q, v) = (x(), x());
//! let k = x();
//! let k = &k / k.square().sum_keepdim(1).sqrt();
//! let of = |x: &X| Var::constant(x.reshape([1, 1, 10, 4]));
//! let low_rank = Some([of(&k), of(&(&k * -0.7))]);
//! let rule = Recurrence { low_rank, ..Recurrence::new(&of(&q), &of(&(&k * 0.7)), &of(&v)) };
//! let [expected, _] = rule.run(None);
//!
//! for size in [1, 3, 10] {
//!     let mut state = X::zeros([4, 4]);
//!     for first in (0..10).step_by(size) {
//!         let n = size.min(10 - first);
//!         let [q, k, v] = [&q, &k, &v].map(|x| x.narrow(0, first, n));
//!         let (o, next) = chunk(&q, &k, &v, 0.7, &state);
//!         let same = expected.value().select(0, 0).select(0, 0).narrow(0, first, n);
//!         assert!((o - same).abs().max(..).item() < 1e-12, "chunks of {size}");
//!         state = next;
//!     }
//! }
//! ```
//!
//! A chunk costs more operations than its tokens one by one: `2 C² (Dk + Dv)` for the triangles, beside
//! the products with the state. On a CPU a state of 64 by 64 numbers has 16 KB and stays in the L1 cache,
//! so a product of it and a vector does not wait for memory. The library's kernel
//! (`tensor/src/kernels/recurrence.rs`) goes token by token, over a few columns of the state at a time,
//! which are independent of one another.
//!
//! # The backward pass
//!
//! The gradient of the state runs backwards through the same recurrence, and needs the states of the
//! forward pass. All of them would be `L Dk Dv` numbers. The kernel keeps every 32nd, and computes the others
//! again from it: chunks are of use for memory here, not for products.
//!
//! # What a state cannot do
//!
//! A state with `Dk` rows has `Dk` independent keys. With more pairs, each write of a delta rule changes what
//! other keys read; a sum mixes all of them anyway. `arena` measures it by its tasks `many` (more pairs than rows) and `track` (a permutation
//! that each token changes, for which a decay between 0 and 1 is not enough).
//!
//! # Exercises
//!
//! The solutions are tests in `tests/book/states.rs`; `cargo test -p retrograd-tests --test book states` runs them.
//!
//! 1. Show that a state with 4 rows recalls 4 pairs exactly by the delta rule, if the keys are independent
//!    and each pair is seen often enough, and not 5. (`as_many_pairs_as_rows`)
//! 2. With `β = 2` and a key of norm 1, `I - β k kᵀ` is a reflection. Count the ones in a sequence of bits
//!    modulo 2 with a state of one row. Why can a decay between 0 and 1 not do it? (`parity`)
//! 3. The gradient of a value `n` tokens back decays as its weight. Compute both for `γ = 0.9`.
//!    (`a_gradient_decays`)
//!
//! Previous: [Attention](super::attention). Next: [Training](super::training).
