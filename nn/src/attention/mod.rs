//! Attention: one engine with typed parts, and a short file for each named variant.
//!
//! - `engine`: [`attend`] computes what a [`Spec`] says. It imports no part and no variant.
//! - `parts`: what several variants share ([`Projections`], [`Rope`], [`KvCache`], ..).
//! - `variants`: one file for each variant.

mod engine;
mod parts;
mod variants;

pub use engine::{
    Align, At, Attended, Bias, Buckets, Mask, Normalizer, Path, Sink, Spec, alibi_slopes, attend,
    attend_all, attend_packed, attend_with_lse,
};
pub use parts::cache::KvCache;
pub use parts::incremental::{Incremental, Past};
pub use parts::positions::{LearnedPositions, SinusoidalPositions};
pub use parts::projections::{HeadSizes, Projections};
pub use parts::rope::{Pairing, Rope, Scaling, Yarn};
pub use variants::*;
