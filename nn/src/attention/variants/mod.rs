//! The named variants, one file each: parameters, and how parts and engine are put together.

mod additive;
mod alibi;
mod bigbird;
mod chunked_local;
mod cross;
mod differential;
mod gated;
mod grouped_query;
mod linear_attention;
mod longformer;
mod luong;
mod memory;
mod mla;
mod multi_head;
mod normalized;
mod packed;
mod plain;
mod pooling;
mod prefix_lm;
mod qk_norm;
mod renormalized;
mod rope;
mod self_attention;
mod shaw;
mod sinks;
mod softcap;
mod sparse_transformer;
mod t5;
mod talking_heads;
mod transformer_xl;
mod wrapper;

pub use additive::AdditiveAttention;
pub use alibi::AlibiAttention;
pub use bigbird::{BigBirdAttention, BigBirdLayout};
pub use chunked_local::ChunkedLocalAttention;
pub use cross::{CrossAttention, MultiHeadCrossAttention};
pub use differential::DifferentialAttention;
pub use gated::{GatedAttention, HeadScaleAttention, ValueResidualAttention, first_values};
pub use grouped_query::GroupedQueryAttention;
pub use linear_attention::{LinearAttention, LinearForm, LinearState, Reach, linear_attention};
pub use longformer::LongformerAttention;
pub use luong::{
    LuongAttention, LuongConcat, LuongDot, LuongGeneral, LuongLocalM, LuongLocalP, LuongLocation,
    LuongScore,
};
pub use memory::{MemoryAttention, attend_with_memory};
pub use mla::{MlaAttention, MlaForm, MlaSizes};
pub use multi_head::{InProjection, MultiHeadAttention, MultiHeadConfig};
pub use normalized::NormalizedAttention;
pub use packed::{Packed, PackedAttention};
pub use plain::{PlainSelfAttention, plain_self_attention};
pub use pooling::AttentionPool;
pub use prefix_lm::PrefixLmAttention;
pub use qk_norm::{QkL2Attention, QkRmsAttention};
pub use renormalized::{RenormalizedSelfAttention, renormalize};
pub use rope::RopeAttention;
pub use self_attention::SelfAttention;
pub use shaw::ShawAttention;
pub use sinks::{QuietAttention, SinkAttention, StreamingAttention};
pub use softcap::SoftcapAttention;
pub use sparse_transformer::{SparseMerge, SparsePattern, SparseTransformerAttention};
pub use t5::T5Attention;
pub use talking_heads::TalkingHeadsAttention;
pub use transformer_xl::TransformerXlAttention;
pub use wrapper::{Concat, MultiHeadWrapper};
