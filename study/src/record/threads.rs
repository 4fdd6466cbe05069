//! The state of threads, as their events tell it.

use retrograd_tensor::observe::Event;
use std::collections::HashMap;
use std::thread::{self, ThreadId};

/// A state for each thread, and another one for each shard that the thread runs, one inside the other: a
/// thread that waits in a shard may run another one.
pub(crate) struct Threads<S>(HashMap<ThreadId, Vec<(usize, S)>>);

impl<S> Default for Threads<S> {
    fn default() -> Self {
        Threads(HashMap::new())
    }
}

impl<S: Default> Threads<S> {
    fn all(&mut self) -> &mut Vec<(usize, S)> {
        let all = self.0.entry(thread::current().id()).or_default();
        if all.is_empty() {
            all.push((0, S::default()));
        }
        all
    }

    /// The state of this thread, in its innermost shard.
    pub(crate) fn here(&mut self) -> &mut S {
        &mut self.all().last_mut().expect("that of the thread").1
    }

    /// The number of the innermost shard; 0 outside of shards.
    pub(crate) fn lane(&mut self) -> usize {
        self.all().last().expect("that of the thread").0
    }

    /// Whether this thread is in a shard.
    pub(crate) fn is_in_shard(&mut self) -> bool {
        self.all().len() > 1
    }

    /// Notes that a shard begins or ends.
    pub(crate) fn see(&mut self, event: &Event<'_>) {
        match event {
            Event::ShardBegan(number) => self.all().push((*number, S::default())),
            Event::ShardEnded if self.is_in_shard() => drop(self.all().pop()),
            _ => {}
        }
    }
}
