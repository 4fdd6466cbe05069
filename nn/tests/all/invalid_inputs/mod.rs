//! Invalid inputs, which panic with a message that names them; empty inputs; and masked NaN.

use crate::common::*;
use retrograd_nn::attention::{Rope, RopeAttention};

mod caches;
mod classic;
mod empty;
mod modern;
mod multi_head;
mod numbers;
mod parts;

/// Attention over [`uneven`] projections without options.
fn plain() -> RopeAttention<f64> {
    RopeAttention::new(uneven(), Rope::new(0))
}
