//! What is assumed, and what is predicted.

use crate::regions::RegionTree;
use retrograd_tensor::cost::{PARALLEL_THRESHOLD, PARALLEL_THRESHOLD_IN_POOL};

/// What the simulation assumes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rules {
    /// The number of cores, each with one thread.
    pub cores: usize,
    /// Regions with a lower estimated time are not distributed, in picoseconds.
    pub threshold: u64,
    /// The overhead of a distributed region on two cores, in seconds, such as
    /// [`RegionCost::busy`](retrograd_tensor::machine::RegionCost).
    pub overhead: f64,
}

impl Rules {
    /// The rules of this library for the recorded thread.
    ///
    /// ```
    /// use retrograd::study::{regions::record, scaling::Rules};
    ///
    /// let ((), recording) = record(|| ());
    /// let rules = Rules::new(4, &recording, 1e-6);
    /// assert_eq!(rules, Rules { cores: 4, threshold: rules.threshold, overhead: 1e-6 });
    /// ```
    pub fn new(cores: usize, recording: &RegionTree, overhead: f64) -> Rules {
        let threshold =
            if recording.in_pool { PARALLEL_THRESHOLD_IN_POOL } else { PARALLEL_THRESHOLD };
        Rules { cores, threshold, overhead }
    }
}

/// The predicted time of a recorded program.
#[derive(Clone, Debug, PartialEq)]
pub struct Prediction {
    /// The number of cores.
    pub cores: usize,
    /// The predicted time, in seconds.
    pub seconds: f64,
    /// The time on one core divided by that.
    pub speedup: f64,
    /// The part of all cores' time in which they are idle, from 0 to 1.
    pub idle: f64,
    /// The part of all cores' time that dividing the work costs, from 0 to 1: starting regions, and
    /// small blocks of matrix products instead of large ones.
    pub extra: f64,
    /// The lower bound of the time, in seconds: the larger one of work / cores and the span.
    pub least: f64,
    /// Where the time goes, the places that keep the most cores idle first.
    pub places: Vec<Place>,
}

/// A part of the program, and its time on the critical path: the chain of tasks, each of which starts
/// when the one before it ends, from the beginning to the end.
#[derive(Clone, Debug, PartialEq)]
pub struct Place {
    /// The spans and regions around it, from the outside in, and what is there.
    pub name: String,
    /// Its time on the critical path, in seconds.
    pub seconds: f64,
    /// The mean number of cores that are busy in this time.
    pub busy: f64,
    /// The part of all cores' time in the whole program that is lost here, from 0 to 1.
    pub lost: f64,
}
