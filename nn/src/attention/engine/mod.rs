//! The attention engine: [`attend`] computes the attention that a [`Spec`] describes.
//!
//! | file | contents |
//! |---|---|
//! | `spec.rs` | the parts of a specification, and the order in which they are applied |
//! | `mask/` | masks: keep(pair), and class(tile): empty, partial or full |
//! | `bias.rs` | biases of scores: functions of positions, tensors |
//! | `rule.rs` | rules of scores: formulas with learned operands, vectors of relative positions |
//! | `formulas.rs` | formulas of scores that variants share |
//! | `attend.rs` | the entry points, and the choice of path |
//! | `operands.rs` | the operands of a call, checked |
//! | `composed.rs` | the composed path: ordinary operations on whole matrices of scores |
//! | `normalizers.rs` | from scores to weights on the composed path |
//! | `feature_map.rs` | the feature map of linear attention |
//! | `product.rs` | the two matrix multiplications, in which masked elements contribute nothing, even NaN |
//! | `tiled.rs` | the tiled path as a fused operation |
//! | `plain.rs` | derivatives of plain attention in ordinary operations |
//! | `capture.rs` | collects the attention weights of calls |
//! | `observe.rs` | reports calls, which an observer may change: a head switched off, weights as variables |
//! | `explain.rs` | a description of a specification, and a text map of its mask |
//!
//! The forward kernel of the tiled path computes 256 queries of one head in a task, and transposes each tile
//! of keys once. The backward kernel recomputes the weights from the log-sum-exp; one of its tasks computes the
//! gradients of one key head and of the queries that share it. Empty tiles are skipped, and partial tiles are
//! narrowed to the keys that some query attends to. In a partial tile the mask gives one bit per query and key.

mod attend;
mod bias;
mod capture;
mod composed;
mod explain;
pub(crate) mod feature_map;
mod formulas;
mod mask;
mod normalizers;
pub mod observe;
mod operands;
mod plain;
pub(crate) mod product;
mod rule;
mod spec;
mod tiled;

pub use attend::{attend, attend_all, attend_packed, attend_with_lse};
pub use bias::{Bias, Buckets, alibi_slopes};
pub use capture::Capture;
pub use composed::Attended;
pub use mask::{Align, Mask};
pub(crate) use mask::{CachedPositions, Sizes};
pub(crate) use operands::Operands;
pub use retrograd_tensor::kernels::attention::{At, Derivatives, PairPositions, ScoreRule};
pub use rule::{Rule, ScoreOperand};
pub(crate) use spec::Part;
pub use spec::{Normalizer, Path, Sink, Spec};
