//! Chapter 10: Attention: from three matrix products to tiles and the online softmax.
//!
//! # The formula
//!
//! *Attention* reads from a sequence by content. Each position `j` has a *key* `kⱼ` and a *value* `vⱼ`;
//! each reader `i` has a *query* `qᵢ`. The output of the reader is a weighted mean of the values, and
//! the weight of a value is large if its key is similar to the query:
//!
//! ```text
//! S = Q Kᵀ / √D        scores      [Lq, Lk]
//! P = softmax(S)       weights     [Lq, Lk], along the keys
//! O = P V              output      [Lq, Dv]
//! ```
//!
//! `Q` is `[Lq, D]`, `K` is `[Lk, D]` and `V` is `[Lk, Dv]` (Vaswani et al. 2017, arXiv 1706.03762).
//! The tutorials compute the three lines with three operations:
//!
//! ```
//! use retrograd::nn::attention::{Spec, attend};
//! use retrograd::prelude::*;
//!
//! let mut rng = Rng::new(1);
//! let mut x = |l, d| Var::constant(Tensor::<f64>::randn([l, d], &mut rng));
//! let (q, k, v) = (x(3, 8), x(5, 8), x(5, 4));
//! let scores = q.matmul(&k.t()) * (1.0 / 8f64.sqrt());
//! let output = scores.softmax(-1).matmul(&v);
//! let library = attend(&q, &k, &v, &Spec::new());
//! assert!((output.value() - library.value()).abs().max(..).item() < 1e-14);
//! ```
//!
//! **Why `1/√D`?** If the `2 D` numbers of a query and a key are independent with mean 0 and variance
//! 1, their product is a sum of `D` terms of variance 1. So it has the variance `D` and grows with the
//! width. Without the factor, a head of width 64 has scores of standard deviation 8. One weight of a
//! row then is nearly 1, and [the gradient of the softmax](super::softmax), `yᵢ (gᵢ - ..)`, is nearly
//! 0.
//!
//! ```
//! # use retrograd::prelude::*;
//! let mut rng = Rng::new(1);
//! let d = 64;
//! let (q, k) = (
//!     Tensor::<f64>::randn([500, d], &mut rng),
//!     Tensor::<f64>::randn([500, d], &mut rng),
//! );
//! let scores = q.matmul(&k.t());
//! assert!((scores.std(.., 0).item() - 8.0).abs() < 0.1);
//! let largest = |scale: f64| (&scores * scale).softmax(-1).max(-1).mean(..).item();
//! assert!(largest(1.0) > 0.6); // of 500 keys, one has most of the weight
//! assert!(largest(1.0 / 8.0) < 0.05);
//! ```
//!
//! In `docs/gallery/attention.html` of the repository, these operations run forward and backward, event by event;
//! `explorer.html` beside it has the heads of a trained model.
//!
//! # Causal masks
//!
//! A language model predicts token `i + 1` from the tokens up to `i`. Query `i` must not read the keys
//! after `i`. The mask belongs to the softmax: masked pairs have no weight, and the others add up to 1.
//!
//! ```
//! # use retrograd::nn::attention::{Spec, attend};
//! # use retrograd::prelude::*;
//! let mut rng = Rng::new(2);
//! let mut x = || Var::leaf(Tensor::<f64>::randn([6, 4], &mut rng));
//! let (q, k, v) = (x(), x(), x());
//! let keep = Tensor::from_fn([6, 6], |i| i[1] <= i[0]);
//! let weights = (q.matmul(&k.t()) * 0.5).masked_softmax(-1, &keep);
//! let library = attend(&q, &k, &v, &Spec::new().causal());
//! assert!(
//!     (weights.matmul(&v).value() - library.value()).abs().max(..).item() < 1e-14
//! );
//! // The first output depends on the first value only.
//! let g = library.i(0).sum(..).backward();
//! assert_eq!(g.get(&v).unwrap().sum(1).to_vec(), [4.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
//! ```
//!
//! # What this costs
//!
//! For `L` queries and keys and a head width of `D`, both products take `2 L² D` operations each. The
//! matrices `S` and `P` have `L²` elements each. With `L = 4096` and `f32`, one of them has 64 MB. They
//! do not stay in a cache, so the three operations wait for memory: `S` is written and read, `P` is
//! written and read, and `P` is kept for the backward pass, for each head of each layer. The inputs and
//! outputs have `4 L D` elements only: 4 MB for `D = 64`.
//!
//! ```
//! let (l, d) = (4096u64, 64u64);
//! assert_eq!(l * l * 4, 64 << 20);
//! assert_eq!(4 * l * d * 4, 4 << 20);
//! ```
//!
//! # The recurrence
//!
//! The aim is the same output with `S` in pieces that stay in the cache. The difficulty is the softmax:
//! its denominator is known after the last key. The [online softmax](super::softmax) solves it for the
//! sum. The same factor corrects the output as well.
//!
//! For one query, let the keys come in tiles. After some tiles let `m` be the largest score so far,
//! `ℓ = Σ exp(sⱼ - m)` the sum, and `o = Σ exp(sⱼ - m) vⱼ` the output before the division. A new tile
//! has scores `s`. Let `m' = max(m, max s)`. By `exp(sⱼ - m') = exp(sⱼ - m) · exp(m - m')`,
//!
//! ```text
//! α  = exp(m - m')                    the factor
//! ℓ' = α ℓ + Σ exp(sⱼ - m')           over the tile
//! o' = α o + Σ exp(sⱼ - m') vⱼ
//! ```
//!
//! Both lines are what the sums over all keys so far would be relative to `m'`. So after the last tile
//! `o / ℓ` is the output, and `m + ln ℓ` the log-sum-exp. Nothing is approximated. The start is
//! `m = -∞`, `ℓ = 0`, `o = 0`; then `α = exp(-∞) = 0`.
//!
#![doc = include_str!("../../docs/figures/online.svg")]
//!
//! The bars are the 32 scores of a query, in tiles of 4. The line is the running maximum; a factor
//! below 1 occurs only where it rises.
//!
//! ```
//! # use retrograd::nn::attention::{Spec, attend_with_lse};
//! # use retrograd::prelude::*;
//! /// The output and the log-sum-exp of each query, with tiles of this many keys.
//! fn tiled(
//!     q: &Tensor<f64>,
//!     k: &Tensor<f64>,
//!     v: &Tensor<f64>,
//!     tile: usize,
//! ) -> (Vec<f64>, Vec<f64>) {
//!     let (mut outputs, mut lse) = (vec![], vec![]);
//!     for q in q {
//!         let (mut max, mut sum) = (f64::NEG_INFINITY, 0.0);
//!         let mut o = Tensor::zeros([v.size(1)]);
//!         for first in (0..k.size(0)).step_by(tile) {
//!             let keys = tile.min(k.size(0) - first);
//!             let s =
//!                 k.narrow(0, first, keys).matmul(&q) / (q.numel() as f64).sqrt();
//!             let new = max.max(s.max(..).item());
//!             let (alpha, p) = ((max - new).exp(), (s - new).exp());
//!             sum = alpha * sum + p.sum(..).item();
//!             o = o * alpha + p.matmul(&v.narrow(0, first, keys));
//!             max = new;
//!         }
//!         outputs.extend((o / sum).to_vec());
//!         lse.push(max + sum.ln());
//!     }
//!     (outputs, lse)
//! }
//!
//! let mut rng = Rng::new(3);
//! let mut x = |l| Tensor::<f64>::randn([l, 8], &mut rng) * 3.0;
//! let (q, k, v) = (x(5), x(30), x(30));
//! let var = |x: &Tensor<f64>| Var::constant(x.clone());
//! let (output, lse) = attend_with_lse(&var(&q), &var(&k), &var(&v), &Spec::new());
//! for tile in [1, 4, 7, 30] {
//!     let mine = tiled(&q, &k, &v, tile);
//!     let near = |a: &[f64], b: &Tensor<f64>| {
//!         a.iter().zip(b.to_vec()).all(|(a, b)| (a - b).abs() < 1e-12)
//!     };
//!     assert!(
//!         near(&mine.0, output.value()) && near(&mine.1, lse.value()),
//!         "tiles of {tile}"
//!     );
//! }
//! ```
//!
//! # Tiles
//!
//! The library's kernel (`tensor/src/kernels/attention/forward.rs`) processes tiles of 32 queries and
//! 64 keys. A tile of scores has 8 KB and stays in the L1 cache. The loop has the order of the listing:
//! the scores of a tile are a small matrix product (`scores`), `OnlineSoftmax::step` replaces them by
//! exponentials and computes the factors, `scale_rows` applies `α` where it is not 1, and `add_product`
//! adds the product with the values. This is FlashAttention (Dao et al. 2022, arXiv 2205.14135), on a
//! CPU.
//!
//! A mask divides the tiles into three classes. *Empty* tiles are skipped with their two matrix
//! products: of a causal mask that is almost half of all. *Full* tiles need no mask. In *partial* ones
//! it is applied as one bit for each pair.
//!
#![doc = include_str!("../../docs/figures/tiles.svg")]
//!
//! # The backward pass
//!
//! `P` was never stored. But a weight follows from a score and the log-sum-exp of its row by one
//! exponential: `P[i, j] = exp(S[i, j] - lseᵢ)`. So the backward pass computes the scores of each tile
//! again. That is more arithmetic, and it is faster where memory is the limit. With the gradient `G` of
//! the output,
//!
//! ```text
//! ∂L/∂V = Pᵀ G
//! dP    = G Vᵀ
//! dS    = P ∘ (dP - D)      with Dᵢ = Σⱼ P[i, j] dP[i, j] = Σ_c G[i, c] O[i, c]
//! ∂L/∂Q = dS K / √D         ∂L/∂K = dSᵀ Q / √D
//! ```
//!
//! The third line is the rule of the softmax. Its row sum `Dᵢ` is over all keys, but it equals the
//! product of two rows of the *outputs*, and so is known before the first tile:
//! `Σⱼ P[i, j] Σ_c G[i, c] V[j, c] = Σ_c G[i, c] O[i, c]`.
//!
//! ```
//! # use retrograd::nn::attention::{Spec, attend_with_lse};
//! # use retrograd::prelude::*;
//! let mut rng = Rng::new(4);
//! let mut x = |l| Var::leaf(Tensor::<f64>::randn([l, 4], &mut rng));
//! let (q, k, v) = (x(3), x(6), x(6));
//! let g =
//!     Tensor::<f64>::ones([3, 4]) + Tensor::arange(0.0, 12.0, 1.0).reshape([3, 4]);
//! let (o, lse) = attend_with_lse(&q, &k, &v, &Spec::new());
//! let grads = o.backward_with(&g);
//!
//! let p = (q.value().matmul(&k.value().t()) * 0.5 - lse.value().unsqueeze(1)).exp();
//! let dots = (&g * o.value()).sum_keepdim(1);
//! let ds = &p * (g.matmul(&v.value().t()) - dots);
//! let by_hand = [
//!     (&q, ds.matmul(k.value()) * 0.5),
//!     (&k, ds.t().matmul(q.value()) * 0.5),
//!     (&v, p.t().matmul(&g)),
//! ];
//! for (x, by_hand) in by_hand {
//!     assert!((grads.get(x).unwrap() - by_hand).abs().max(..).item() < 1e-12);
//! }
//! ```
//!
//! # Which path was taken
//!
//! `attend` chooses between the tiled kernel and ordinary operations. Options that the kernel lacks,
//! such as another normaliser, take the *composed* path, and
//! [`Spec::explain`](crate::nn::attention::Spec::explain) says so. Both give the same numbers up to
//! rounding:
//!
//! ```
//! # use retrograd::nn::attention::{Path, Spec, attend};
//! # use retrograd::prelude::*;
//! let mut rng = Rng::new(5);
//! // 2 heads of 100 queries and keys.
//! let mut x = || Var::constant(Tensor::<f64>::randn([2, 100, 16], &mut rng));
//! let (q, k, v) = (x(), x(), x());
//! let spec = Spec::new().causal();
//! let by = |path| attend(&q, &k, &v, &spec.clone().path(path));
//! let difference = by(Path::Tiled).value() - by(Path::Composed).value();
//! assert!(difference.abs().max(..).item() < 1e-13);
//! ```
//!
//! The other variants are in `docs/ATTENTION.md`, and [extending](super::extending) adds one.
//!
//! # Exercises
//!
//! The solutions are tests in `tests/book/attention.rs`; `cargo test -p retrograd-tests --test book attention` runs them.
//!
//! 1. Attention without a mask does not depend on the order of the keys. Show it, and show what a
//!    causal mask changes. (`order_of_the_keys`)
//! 2. How many of the tiles of a causal mask are empty for 4096 tokens and tiles of 32 queries and 64
//!    keys? (`empty_tiles`)
//! 3. Two parts of the keys were processed by different machines. Combine the outputs with the
//!    log-sum-exps. (`parts_of_the_keys`)
//! 4. Generate token by token: keep keys and values, and show that the outputs equal the outputs of the whole
//!    sequence. How many products does a token cost? (`a_cache_of_keys`)
//! 5. Add an attention sink, a logit `z` without a value, to the listing `tiled`, by another start.
//!    (`a_sink_is_another_start`)
//!
//! Previous: [Safe softmax](super::softmax). Next: [States](super::states).
