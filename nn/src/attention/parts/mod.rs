//! The parts that several variants share: heads, projections, positions, the cache.

pub(crate) mod cache;
pub(crate) mod heads;
pub(crate) mod incremental;
pub(crate) mod positions;
pub(crate) mod projections;
pub(crate) mod rope;
pub(crate) mod scores;
pub(crate) mod state;
