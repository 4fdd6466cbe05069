//! A line per variant: what to see in its results.

use retrograd::nn::AttentionKind;

/// What to see in the results of a variant.
pub fn note(kind: AttentionKind) -> &'static str {
    kind.summary()
}
