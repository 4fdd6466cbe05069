//! The attention engine: [`attend`] computes the attention that a [`Spec`] describes.

mod attend;
mod bias;
mod capture;
mod composed;
mod explain;
pub(crate) mod feature_map;
mod mask;
mod normalizers;
pub mod observe;
mod operands;
pub(crate) mod product;
mod spec;
mod tiled;

pub use attend::{attend, attend_all, attend_packed, attend_with_lse};
pub use bias::{Bias, Buckets, alibi_slopes};
pub use capture::Capture;
pub use composed::Attended;
pub use mask::{Align, Mask};
pub(crate) use mask::{CachedPositions, Sizes};
pub(crate) use operands::Operands;
pub use retrograd_tensor::kernels::attention::At;
pub(crate) use spec::Part;
pub use spec::{Normalizer, Path, Sink, Spec};
