//! A record of parallel regions: what could be computed at the same time, and how long it takes.

use crate::locked::locked;
use retrograd_tensor::observe::{Division, Event, Observer};
use retrograd_tensor::par;
use retrograd_tensor::settings::with_observer;
use std::collections::HashMap;
use std::panic::Location;
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{self, ThreadId};
use std::time::Instant;

/// What [`record`] has recorded: the tree of the serial code, the named spans and the parallel
/// regions of a closure.
#[derive(Clone, Debug, Default)]
pub struct RegionTree {
    /// What the recording thread did.
    pub task: Task,
    /// Whether that thread belonged to a thread pool ([`with_threads`](retrograd_tensor::with_threads)), where
    /// smaller regions are distributed.
    pub in_pool: bool,
}

/// What one thread did from the beginning to the end of a task, in order.
#[derive(Clone, Debug, Default)]
pub struct Task {
    /// The parts, one after the other.
    pub parts: Vec<Part>,
}

/// A part of a task.
#[derive(Clone, Debug)]
pub enum Part {
    /// Code outside of any region, in seconds.
    Serial(f64),
    /// A named stretch, see [`span`](retrograd_tensor::par::span).
    Span(&'static str, Task),
    /// Work that can be distributed to threads.
    Region(Region),
}

/// Work that can be distributed to threads, whether or not it was.
#[derive(Clone, Debug)]
pub struct Region {
    /// Where the region is in the source code.
    pub location: &'static Location<'static>,
    /// The time by the cost model, in picoseconds, which decides whether the region is distributed.
    pub estimate: u64,
    /// The rule by which it is divided.
    pub division: Division,
    /// The tasks, in the order in which they started.
    pub tasks: Vec<Task>,
}

impl RegionTree {
    /// The time of all serial code and all tasks together, in seconds.
    pub fn seconds(&self) -> f64 {
        self.task.seconds()
    }

    /// The number of regions, and of the tasks in them, at every depth.
    pub fn counts(&self) -> (usize, usize) {
        self.task.counts()
    }
}

impl Task {
    /// The time of all its parts together, in seconds.
    pub fn seconds(&self) -> f64 {
        self.parts.iter().map(Part::seconds).sum()
    }

    fn counts(&self) -> (usize, usize) {
        let add = |a: (usize, usize), b: (usize, usize)| (a.0 + b.0, a.1 + b.1);
        let of = |part: &Part| match part {
            Part::Serial(_) => (0, 0),
            Part::Span(_, task) => task.counts(),
            Part::Region(region) => {
                let inside = region.tasks.iter().map(Task::counts);
                inside.fold((1, region.tasks.len()), add)
            }
        };
        self.parts.iter().map(of).fold((0, 0), add)
    }
}

impl Part {
    /// The time in seconds, with all tasks inside.
    pub fn seconds(&self) -> f64 {
        match self {
            Part::Serial(seconds) => *seconds,
            Part::Span(_, task) => task.seconds(),
            Part::Region(region) => region.tasks.iter().map(Task::seconds).sum(),
        }
    }
}

impl Region {
    /// `shards`, else the file of the region without the folder of the crate: `kernels/elementwise`.
    pub fn name(&self) -> &'static str {
        if let Division::Shards = self.division {
            return "shards";
        }
        let file = self.location.file();
        let file = file.rsplit_once("src/").map_or(file, |(_, file)| file);
        file.strip_suffix(".rs").unwrap_or(file)
    }
}

/// A task that a thread runs.
struct Frame {
    /// Its region; `None` for the closure that is recorded.
    region: Option<u64>,
    /// Its place among the tasks of the region.
    place: usize,
    /// The open spans, from the outside in; the first one is the task itself.
    open: Vec<(&'static str, Vec<Part>)>,
    /// When the last part ended.
    since: Instant,
}

impl Frame {
    fn begin(region: Option<u64>, place: usize) -> Frame {
        Frame { region, place, open: vec![("", Vec::new())], since: Instant::now() }
    }

    /// Ends the serial code before a part.
    fn cut(&mut self, now: Instant) {
        let seconds = now.saturating_duration_since(self.since).as_secs_f64();
        self.push(Part::Serial(seconds));
    }

    /// Adds a part, after which serial code begins.
    fn push(&mut self, part: Part) {
        self.open.last_mut().expect("the task itself").1.push(part);
        self.since = Instant::now();
    }

    fn close_span(&mut self) {
        // The task itself is no span.
        if self.open.len() > 1
            && let Some((name, parts)) = self.open.pop()
        {
            self.push(Part::Span(name, Task { parts }));
        }
    }

    fn end(mut self, now: Instant) -> Task {
        self.cut(now);
        while self.open.len() > 1 {
            self.close_span();
        }
        Task { parts: self.open.pop().expect("the task itself").1 }
    }
}

/// The observer that makes a [`RegionTree`].
#[derive(Default)]
struct Recorder(Mutex<State>);

#[derive(Default)]
struct State {
    /// What each thread runs, from the outside in: a thread that waits for a region may run other tasks.
    threads: HashMap<ThreadId, Vec<Frame>>,
    /// The tasks of regions that have not ended, by the number of the region.
    regions: HashMap<u64, Tasks>,
}

/// The tasks of a region.
#[derive(Default)]
struct Tasks {
    started: usize,
    ended: Vec<(usize, Task)>,
}

impl Recorder {
    fn state(&self) -> MutexGuard<'_, State> {
        locked(&self.0)
    }
}

impl State {
    fn frames(&mut self) -> &mut Vec<Frame> {
        self.threads.entry(thread::current().id()).or_default()
    }
}

impl Observer for Recorder {
    fn sees_regions(&self) -> bool {
        true
    }

    fn event(&self, event: &Event<'_>) {
        let now = Instant::now();
        let mut state = self.state();
        match *event {
            Event::TaskBegan(region) => {
                let Some(tasks) = state.regions.get_mut(&region.number) else { return };
                let place = tasks.started;
                tasks.started += 1;
                state.frames().push(Frame::begin(Some(region.number), place));
            }
            Event::TaskEnded(region) => {
                let frames = state.frames();
                if frames.last().is_none_or(|frame| frame.region != Some(region.number)) {
                    return;
                }
                let frame = frames.pop().expect("there is a last one");
                if let Some(tasks) = state.regions.get_mut(&region.number) {
                    tasks.ended.push((frame.place, frame.end(now)));
                }
            }
            Event::RegionBegan(region) => {
                let Some(frame) = state.frames().last_mut() else { return };
                frame.cut(now);
                state.regions.insert(region.number, Tasks::default());
            }
            Event::RegionEnded(region) => {
                let Some(mut tasks) = state.regions.remove(&region.number) else { return };
                tasks.ended.sort_by_key(|(place, _)| *place);
                let part = Part::Region(Region {
                    location: region.location,
                    estimate: region.estimate,
                    division: region.division.clone(),
                    tasks: tasks.ended.into_iter().map(|(_, task)| task).collect(),
                });
                if let Some(frame) = state.frames().last_mut() {
                    frame.push(part);
                }
            }
            Event::SpanBegan(name) => {
                if let Some(frame) = state.frames().last_mut() {
                    frame.cut(now);
                    frame.open.push((name, Vec::new()));
                }
            }
            Event::SpanEnded => {
                if let Some(frame) = state.frames().last_mut() {
                    frame.cut(now);
                    frame.close_span();
                }
            }
            _ => {}
        }
    }
}

/// Runs `f`, and records every parallel region in it: those that are distributed, and those that could
/// be, with the tasks that they would have. Regions inside tasks are recorded, too. The bits of
/// results are those without a record.
///
/// With one thread (`with_threads(1, || record(..))`) nothing disturbs the tasks while they are timed.
/// With more, a thread that waits for a region may execute a task of another one, whose time is
/// then counted twice. Work on threads that `f` starts itself is not recorded. A record inside of a
/// record has the same regions as the outer one.
///
/// A task takes some 0.2 microseconds longer. [`scaling`](crate::scaling) predicts from a record the
/// time on more threads.
///
/// ```
/// use retrograd::prelude::*;
/// use retrograd::study::regions::record;
/// use retrograd::tensor::{cost::Cost, par};
///
/// let mut x = vec![0; 1000];
/// let ((), recording) = with_threads(1, || {
///     record(|| par::fill(&mut x, 300, Cost::CHEAP, |first, x| x.fill(first)))
/// });
/// assert_eq!(recording.counts(), (1, 4)); // a region of four chunks
/// ```
pub fn record<R>(f: impl FnOnce() -> R) -> (R, RegionTree) {
    let recorder = Arc::new(Recorder::default());
    recorder.state().frames().push(Frame::begin(None, 0));
    let result = with_observer(recorder.clone(), f);
    let task = recorder.state().frames().pop().map(|frame| frame.end(Instant::now()));
    (result, RegionTree { task: task.unwrap_or_default(), in_pool: par::in_pool() })
}
