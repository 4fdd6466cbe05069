//! What is told of the course of a computation: parallel regions, their tasks, spans and shards.

use super::{Event, is_observed, regions_are_observed, tell};
use std::fmt::{self, Debug, Formatter};
use std::marker::PhantomData;
use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Work that can be distributed to threads, whether or not it is.
#[derive(Clone, Debug)]
pub struct Region {
    /// The number of the region in the process.
    pub number: u64,
    /// Where the region is in the source code.
    pub location: &'static Location<'static>,
    /// The time by the cost model, in picoseconds, which decides whether the region is distributed.
    pub estimate: u64,
    /// The rule by which it is divided.
    pub division: Division,
}

/// The rule by which a region is divided among threads.
#[derive(Clone)]
pub enum Division {
    /// Into its tasks, if the estimated time is above the threshold.
    Chunks,
    /// Into its tasks. If there are at least as many as threads, regions inside are not distributed.
    Shards,
    /// The work of its only task is divided by the number of threads.
    ByThreads(Arc<Divide>),
    /// Into its tasks, without a choice: the one task of [`with_threads`](crate::with_threads).
    Pool,
}

/// The times of the tasks for a number of threads, relative to that of the whole work, in stages that
/// follow each other.
pub type Divide = dyn Fn(usize) -> Vec<Vec<f64>> + Send + Sync;

impl Debug for Division {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Division::Chunks => "Chunks",
            Division::Shards => "Shards",
            Division::ByThreads(_) => "ByThreads",
            Division::Pool => "Pool",
        })
    }
}

/// A region that is reported. It ends when this value is dropped.
pub(crate) struct OpenRegion(Region);

/// The region that the caller's caller begins, if regions are observed.
#[inline]
#[track_caller]
pub(crate) fn region(division: Division, estimate: impl FnOnce() -> u64) -> Option<OpenRegion> {
    region_with(|| division, estimate)
}

/// [`region`], whose division is made only if regions are observed.
#[inline]
#[track_caller]
pub(crate) fn region_with(
    division: impl FnOnce() -> Division,
    estimate: impl FnOnce() -> u64,
) -> Option<OpenRegion> {
    match regions_are_observed() {
        true => Some(OpenRegion::begin(Location::caller(), division(), estimate())),
        false => None,
    }
}

impl OpenRegion {
    #[cold]
    fn begin(location: &'static Location<'static>, division: Division, estimate: u64) -> Self {
        static COUNTER: AtomicU64 = AtomicU64::new(0);
        let number = COUNTER.fetch_add(1, Relaxed);
        let region = Region { number, location, estimate, division };
        tell(&Event::RegionBegan(&region));
        OpenRegion(region)
    }
}

impl Drop for OpenRegion {
    #[cold]
    fn drop(&mut self) {
        tell(&Event::RegionEnded(&self.0));
    }
}

/// A task of a region from here until the value is dropped, on any thread.
#[inline]
pub(crate) fn task(region: &Option<OpenRegion>) -> Option<OpenTask<'_>> {
    region.as_ref().map(|region| OpenTask::begin(&region.0))
}

pub(crate) struct OpenTask<'a>(&'a Region);

impl<'a> OpenTask<'a> {
    #[cold]
    fn begin(region: &'a Region) -> Self {
        tell(&Event::TaskBegan(region));
        OpenTask(region)
    }
}

impl Drop for OpenTask<'_> {
    #[cold]
    fn drop(&mut self) {
        tell(&Event::TaskEnded(self.0));
    }
}

/// Names what the thread does until the value is dropped. Spans nest.
///
/// ```
/// let _span = retrograd::tensor::par::span("sorting");
/// ```
#[inline]
pub fn span(name: &'static str) -> Span {
    Span::begin(regions_are_observed(), Event::SpanBegan(name), || Event::SpanEnded)
}

/// The work of a shard of a computation until the value is dropped: a part, by its number among those that are
/// computed, that may be computed at the same time as others. Shards nest.
///
/// ```
/// let _shard = retrograd::tensor::observe::shard(0);
/// ```
#[inline]
pub fn shard(number: usize) -> Span {
    Span::begin(is_observed(), Event::ShardBegan(number), || Event::ShardEnded)
}

/// An open [`span`] or [`shard`]; it ends when this value is dropped.
#[must_use = "a span ends when it is dropped"]
#[derive(Debug)]
pub struct Span {
    /// What is reported at the end, if the begin was.
    end: Option<fn() -> Event<'static>>,
    /// The span is that of one thread.
    here: PhantomData<*const ()>,
}

impl Span {
    #[inline]
    fn begin(is_reported: bool, begin: Event<'_>, end: fn() -> Event<'static>) -> Span {
        if is_reported {
            tell(&begin);
        }
        Span { end: is_reported.then_some(end), here: PhantomData }
    }
}

impl Drop for Span {
    #[inline]
    fn drop(&mut self) {
        if let Some(end) = self.end {
            tell(&end());
        }
    }
}
