//! The shards of a computation, which run at the same time.

use super::module::outside;
use std::cell::Cell;

thread_local! {
    static LANE: Cell<usize> = const { Cell::new(0) };
}

/// Runs the work of a shard: what is recorded in it has the lane of this number.
#[doc(hidden)]
pub fn in_lane<R>(lane: usize, f: impl FnOnce() -> R) -> R {
    struct Restore(usize);
    impl Drop for Restore {
        fn drop(&mut self) {
            LANE.set(self.0);
        }
    }
    let _restore = Restore(LANE.replace(lane));
    outside(f)
}

/// The lane of this thread.
#[doc(hidden)]
pub fn lane() -> usize {
    LANE.get()
}
