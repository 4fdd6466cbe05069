//! The engine that the variants are made of: [`attend`] computes what a [`Spec`] says.

mod attend;
mod bias;
mod explain;
mod mask;
pub(crate) mod product;
mod spec;
mod tiled;

pub use attend::{Attended, attend, attend_all, attend_packed, attend_with_lse};
pub use bias::{Bias, Buckets, alibi_slopes};
pub use mask::{Align, Mask};
pub(crate) use mask::{Held, Sizes};
pub use retrograd_tensor::kernels::attention::At;
pub(crate) use spec::Part;
pub use spec::{Normalizer, Path, Sink, Spec};
