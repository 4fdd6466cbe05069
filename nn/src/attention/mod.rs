//! Attention: one engine with typed parts, and named variants.
//!
//! - `engine`: [`attend`] computes what a [`Spec`] says. It imports no part and no variant.
//! - `parts`: what several variants share ([`Projections`], [`Rope`], [`KvCache`], ..).
//! - `variants`: a table of those that only set parts of the spec, and a file for each other.
//!
//! ```
//! use retrograd::nn::attention::{Mask, Spec, attend};
//! use retrograd::prelude::*;
//!
//! let mut rng = Rng::new(1);
//! let mut x = || Var::leaf(Tensor::<f32>::randn([2, 4, 8, 16], &mut rng)); // batch, heads, length, width
//! let (q, k, v) = (x(), x(), x());
//! let spec = Spec::new().mask(Mask::causal() & Mask::window(3, 0)).softcap(30.0);
//! let y = attend(&q, &k, &v, &spec);
//! assert_eq!(*y.shape(), [2, 4, 8, 16]);
//! assert_eq!(y.sum(..).backward().len(), 3);
//! ```
//!
//! | to | use |
//! |---|---|
//! | compute attention of given queries, keys and values | [`attend`], or [`attend_all`] for its weights |
//! | say which keys a query attends to | [`Mask`], combined by `&`, <code>\|</code> and `!` |
//! | add to scores by position | [`Bias`] |
//! | change scores by a formula with learned operands | [`Rule`] |
//! | replace `nn.MultiheadAttention` of PyTorch | [`MultiHeadAttention`], whose state dict it loads |
//! | build a decoder as GPT-2's | [`CausalSelfAttention`](crate::CausalSelfAttention) |
//! | build a decoder as Llama's | [`Projections`] with rotary positions and fewer key heads |
//! | generate token by token | [`Incremental::forward_cached`] with a [`KvCache`] |
//! | use an attention of your own in a model | [`Incremental`] and [`attention_layer`](crate::attention_layer), with [`GptConfig::projections`](crate::GptConfig::projections) |
//! | read one sequence from another | [`MultiHeadAttention`], or [`CrossAttention`] with one head |
//!
//! The table of all variants is in `docs/ATTENTION.md`.

mod engine;
pub(crate) mod parts;
mod variants;

#[doc(hidden)]
pub use engine::observe;
pub use engine::{
    Align, At, Attended, Bias, Buckets, Capture, Derivatives, Mask, Normalizer, PairPositions,
    Path, Rule, ScoreOperand, ScoreRule, Sink, Spec, alibi_slopes, attend, attend_all,
    attend_packed, attend_with_lse,
};
pub use parts::cache::KvCache;
pub(crate) use parts::heads::{SplitHeads, join_heads};
pub use parts::incremental::{Incremental, Past};
pub use parts::positions::{LearnedPositions, SinusoidalPositions};
pub use parts::projections::{HeadSizes, Projections};
pub use parts::rope::{Llama3Scaling, Pairing, Rope, Scaling, Yarn};
pub use parts::state::{LowRank, RecurrentState, ShortConv, StateCx, StateRule, StateSizes, Terms};
pub use variants::*;
