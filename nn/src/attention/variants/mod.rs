//! The named variants: parameters, and how parts and engine are put together. Those that only set
//! parts of the spec are the table in `presets.rs`; the others have a file each.

mod additive;
mod bigbird;
mod cross;
mod delta_net;
mod differential;
mod gated;
mod gated_linear;
mod linear_attention;
mod longformer;
mod luong;
mod mamba2;
mod memory;
mod mla;
mod multi_head;
mod packed;
mod plain;
mod pooling;
mod prefix_lm;
mod presets;
mod qk_norm;
mod renormalized;
mod rwkv7;
mod scored;
mod self_attention;
mod shaw;
mod sparse_transformer;
mod t5;
mod transformer_xl;
mod wrapper;

pub use additive::AdditiveAttention;
pub use bigbird::{BigBirdAttention, BigBirdLayout};
pub use cross::CrossAttention;
pub use delta_net::{DeltaNet, DeltaProjections, GatedDeltaNet, KimiDeltaAttention};
pub use differential::DifferentialAttention;
pub use gated::{GatedAttention, HeadScaleAttention, ValueResidualAttention};
pub use gated_linear::{GatedLinearAttention, GatedProjections, Retention};
pub use linear_attention::{LinearAttention, LinearForm, LinearState, Reach, linear_attention};
pub use longformer::LongformerAttention;
pub use luong::{
    LuongAttention, LuongConcat, LuongDot, LuongGeneral, LuongLocalM, LuongLocalP, LuongLocation,
    LuongScore,
};
pub use mamba2::Mamba2;
pub use memory::{MemoryAttention, attend_with_memory};
pub use mla::{MlaAttention, MlaForm, MlaSizes};
pub use multi_head::{InProjection, MultiHeadAttention, MultiHeadConfig};
pub use packed::{Packed, PackedAttention};
pub use plain::{PlainSelfAttention, plain_self_attention};
pub use pooling::AttentionPool;
pub use prefix_lm::PrefixLmAttention;
pub use presets::{
    AlibiAttention, ChunkedLocalAttention, NormalizedAttention, QuietAttention, SinkAttention,
    SoftcapAttention, SparseTransformerAttention, StreamingAttention, TalkingHeadsAttention,
};
pub use qk_norm::QkL2Attention;
pub use renormalized::{RenormalizedSelfAttention, renormalize};
pub use rwkv7::Rwkv7;
pub use scored::{
    ContextualPositions, ForgetGates, GaussianWindows, LearnedRule, LearnedSlopes,
    LearnedTemperature, RuleCx, ScoredAttention,
};
pub use self_attention::SelfAttention;
pub use shaw::ShawAttention;
pub use sparse_transformer::{SparseMerge, SparsePattern};
pub use t5::T5Attention;
pub use transformer_xl::TransformerXlAttention;
pub use wrapper::{Concat, MultiHeadWrapper};
