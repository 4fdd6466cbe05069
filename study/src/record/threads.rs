//! The shards of a computation, which run at the same time.

use super::module::outside;
use std::cell::Cell;

thread_local! {
    /// The lane of this thread, and the number of shards around what it runs.
    static LANE: Cell<(usize, usize)> = const { Cell::new((0, 0)) };
}

/// Runs the work of a shard: what is recorded in it has the lane of this number. After the last shard,
/// [`shards_ended`](super::shards_ended) is called.
#[doc(hidden)]
pub fn in_lane<R>(lane: usize, f: impl FnOnce() -> R) -> R {
    struct Restore((usize, usize));
    impl Drop for Restore {
        fn drop(&mut self) {
            LANE.set(self.0);
        }
    }
    let _restore = Restore(LANE.replace((lane, shard_depth() + 1)));
    outside(f)
}

/// The lane of this thread.
#[doc(hidden)]
pub fn lane() -> usize {
    LANE.get().0
}

/// The number of shards, one inside of the other, that this thread is in: 0 outside of shards.
#[doc(hidden)]
pub fn shard_depth() -> usize {
    LANE.get().1
}
