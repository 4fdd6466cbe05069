//! Odd input: what does not fit and must be refused by name, what is empty, and what nobody
//! looks at.

use crate::common::*;
use retrograd_nn::attention::{Rope, RopeAttention};

mod caches;
mod classic;
mod modern;
mod multi_head;
mod nothing;
mod numbers;
mod parts;

/// Attention over [`uneven`] projections with nothing added.
fn plain() -> RopeAttention<f64> {
    RopeAttention::new(uneven(), Rope::new(0))
}
