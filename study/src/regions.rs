//! A record of parallel regions: what could be computed at the same time, and how long it takes.

use super::Cost;
use crate::settings::Settings;
use std::cell::RefCell;
use std::fmt::{self, Debug, Formatter};
use std::marker::PhantomData;
use std::panic::Location;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// What [`record`] has recorded: the tree of the serial code, the named spans and the parallel
/// regions of a closure.
#[derive(Clone, Debug, Default)]
pub struct Recording {
    /// What the recording thread did.
    pub task: Task,
    /// Whether that thread belonged to a thread pool ([`with_threads`](super::with_threads)), where
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
    /// A named stretch, see [`span`].
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

/// The rule by which a region is divided among threads.
#[derive(Clone)]
pub enum Division {
    /// Into its tasks, if the estimated time is above the threshold.
    Chunks,
    /// Into its tasks. If there are at least as many as threads, regions inside are not distributed.
    Shards,
    /// The work of its only task is divided by the number of threads.
    ByThreads(Arc<Divide>),
    /// Into its tasks, without a choice: the one task of [`with_threads`](super::with_threads).
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

impl Recording {
    /// The time of all serial code and all tasks together, in seconds.
    ///
    /// ```
    /// use retrograd_tensor::par::record;
    /// let ((), recording) = record(|| std::thread::sleep(std::time::Duration::from_millis(2)));
    /// assert!(recording.seconds() >= 2e-3);
    /// ```
    pub fn seconds(&self) -> f64 {
        self.task.seconds()
    }

    /// The number of regions, and of the tasks in them, at every depth.
    ///
    /// ```
    /// use retrograd_tensor::par::{self, record};
    /// let (_, recording) = record(|| par::shards(3, |i| i));
    /// assert_eq!(recording.counts(), (1, 3));
    /// ```
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
    /// The time, with that of all tasks inside, in seconds.
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

/// The task that a thread is recording.
struct Frame {
    /// The open spans, from the outside in; the first one is the task itself.
    open: Vec<(&'static str, Vec<Part>)>,
    /// When the last part ended.
    since: Instant,
}

thread_local! {
    static FRAME: RefCell<Option<Frame>> = const { RefCell::new(None) };
}

impl Frame {
    fn begin() -> Frame {
        Frame { open: vec![("", Vec::new())], since: Instant::now() }
    }

    /// Ends the serial code before a part.
    fn cut(&mut self) {
        let now = Instant::now();
        let seconds = (now - self.since).as_secs_f64();
        self.since = now;
        self.push(Part::Serial(seconds));
    }

    /// Adds a part, after which serial code begins.
    fn push(&mut self, part: Part) {
        self.open.last_mut().expect("the task itself").1.push(part);
    }

    fn close_spans(&mut self, depth: usize) {
        while self.open.len() > depth {
            let (name, parts) = self.open.pop().expect("more than one");
            self.push(Part::Span(name, Task { parts }));
        }
    }

    fn end(mut self) -> Task {
        self.cut();
        self.close_spans(1);
        Task { parts: self.open.pop().expect("the task itself").1 }
    }
}

/// The frame of this thread, if it records.
fn with_frame<R>(f: impl FnOnce(&mut Frame) -> R) -> Option<R> {
    FRAME.with_borrow_mut(|frame| frame.as_mut().map(f))
}

/// Whether regions are recorded on this thread.
#[inline]
fn is_recording() -> bool {
    Settings::current().recording
}

/// Runs `f`, and records every parallel region in it: those that are distributed, and those that could
/// be, with the tasks that they would have. Regions inside of tasks are recorded, too. The bits of
/// results are those without a record.
///
/// With one thread (`with_threads(1, || record(..))`) the times are those of tasks that nothing disturbs.
/// With more, a thread that waits for a region may execute a task of another one, whose time is
/// then counted twice. Work on threads that `f` starts itself is not recorded. A record inside of a
/// record is independent of it, and the outer one does not see what the inner one sees.
///
/// A task takes about 0.1 microseconds longer. [`scaling`](crate::scaling) predicts from a record the
/// time on more threads.
///
/// ```
/// use retrograd_tensor::cost::Cost;
/// use retrograd_tensor::{par, with_threads};
///
/// let mut x = vec![0; 1000];
/// let ((), recording) = with_threads(1, || {
///     par::record(|| par::fill(&mut x, 300, Cost::CHEAP, |first, x| x.fill(first)))
/// });
/// assert_eq!(recording.counts(), (1, 4)); // a region of four chunks
/// ```
pub fn record<R>(f: impl FnOnce() -> R) -> (R, Recording) {
    let in_pool = rayon::current_thread_index().is_some();
    Settings { recording: true, ..Settings::current() }.run(|| {
        let running = Running::begin();
        let result = f();
        (result, Recording { task: running.end(), in_pool })
    })
}

/// A task that this thread is recording. If it is dropped, in a panic, it is forgotten.
struct Running {
    outer: Option<Frame>,
    /// The frame is that of one thread.
    here: PhantomData<*const ()>,
}

impl Running {
    fn begin() -> Running {
        let outer = FRAME.replace(Some(Frame::begin()));
        Running { outer, here: PhantomData }
    }

    fn end(self) -> Task {
        let frame = FRAME.take();
        drop(self);
        frame.map(Frame::end).unwrap_or_default()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        FRAME.set(self.outer.take());
    }
}

/// Names what the thread does until the value is dropped, in a [`record`]; otherwise it does nothing.
/// Spans nest.
///
/// ```
/// use retrograd_tensor::par::{Part, record, span};
/// let ((), recording) = record(|| {
///     let _span = span("sorting");
/// });
/// assert!(recording.task.parts.iter().any(|part| matches!(part, Part::Span("sorting", _))));
/// ```
#[inline]
pub fn span(name: &'static str) -> Span {
    Span { depth: if is_recording() { open_span(name) } else { None }, here: PhantomData }
}

#[cold]
fn open_span(name: &'static str) -> Option<usize> {
    with_frame(|frame| {
        frame.cut();
        frame.open.push((name, Vec::new()));
        frame.open.len() - 1
    })
}

/// An open [`span`]; it ends when this value is dropped.
#[must_use = "a span ends when it is dropped"]
#[derive(Debug)]
pub struct Span {
    /// The number of spans around it, if it is recorded.
    depth: Option<usize>,
    here: PhantomData<*const ()>,
}

impl Drop for Span {
    #[inline]
    fn drop(&mut self) {
        if let Some(depth) = self.depth.filter(|_| is_recording()) {
            with_frame(|frame| {
                frame.cut();
                frame.close_spans(depth);
            });
        }
    }
}

/// A region that is being recorded. When it is dropped, it is a part of the task of this thread.
pub(super) struct Open {
    location: &'static Location<'static>,
    estimate: u64,
    division: Division,
    started: AtomicUsize,
    tasks: Mutex<Vec<(usize, Task)>>,
}

/// The region that the caller's caller begins, if this thread records.
#[inline]
#[track_caller]
pub(super) fn region(division: Division, cost: Cost, elements: usize) -> Option<Open> {
    region_with(|| division, cost, elements)
}

/// [`region`], whose division is made only if this thread records.
#[inline]
#[track_caller]
pub(super) fn region_with(
    division: impl FnOnce() -> Division,
    cost: Cost,
    elements: usize,
) -> Option<Open> {
    match is_recording() {
        true => open_region(Location::caller(), division(), cost.of(elements)),
        false => None,
    }
}

#[cold]
fn open_region(
    location: &'static Location<'static>,
    division: Division,
    estimate: u64,
) -> Option<Open> {
    with_frame(Frame::cut)?;
    let (started, tasks) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    Some(Open { location, estimate, division, started, tasks })
}

/// A task of a region from here until the value is dropped, on any thread.
#[inline]
pub(super) fn task(region: &Option<Open>) -> Option<OpenTask<'_>> {
    region.as_ref().map(OpenTask::begin)
}

pub(super) struct OpenTask<'a> {
    region: &'a Open,
    number: usize,
    running: Option<Running>,
}

impl<'a> OpenTask<'a> {
    #[cold]
    fn begin(region: &'a Open) -> Self {
        let number = region.started.fetch_add(1, Relaxed);
        OpenTask { region, number, running: Some(Running::begin()) }
    }
}

impl Drop for OpenTask<'_> {
    fn drop(&mut self) {
        let task = self.running.take().map(Running::end).unwrap_or_default();
        let mut tasks = self.region.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        tasks.push((self.number, task));
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let tasks = self.tasks.get_mut().unwrap_or_else(PoisonError::into_inner);
        let mut tasks = std::mem::take(tasks);
        tasks.sort_by_key(|(number, _)| *number);
        let region = Region {
            location: self.location,
            estimate: self.estimate,
            division: self.division.clone(),
            tasks: tasks.into_iter().map(|(_, task)| task).collect(),
        };
        with_frame(|frame| {
            frame.push(Part::Region(region));
            frame.since = Instant::now();
        });
    }
}

#[cfg(test)]
mod tests {
    use super::super::{each, fill, fill2, map, on_every_thread, shards, with_threads};
    use super::*;

    const MUCH: Cost = Cost(1_000_000_000);
    const LITTLE: Cost = Cost(1);

    /// The tree as text: spans and regions by name, with the tasks of regions.
    fn shape(task: &Task) -> String {
        let parts = task.parts.iter().filter_map(|part| match part {
            Part::Serial(seconds) => {
                assert!(*seconds >= 0.0);
                None
            }
            Part::Span(name, task) => Some(format!("{name}({})", shape(task))),
            Part::Region(region) => {
                let tasks: Vec<String> = region.tasks.iter().map(shape).collect();
                Some(format!("{:?}[{}]", region.division, tasks.join("|")))
            }
        });
        parts.collect::<Vec<_>>().join(" ")
    }

    fn program() {
        let _all = span("all");
        fill(&mut [0; 10], 4, MUCH, |_, _| ());
        shards(2, |i| {
            let _inner = span("inner");
            if i == 0 {
                map(2, 1, LITTLE, |_| each(vec![(); 3], 1, MUCH, |()| ()));
            }
        });
        drop(_all);
        let _last = span("last");
        fill2((&mut [0; 2], 1), (&mut [0; 4], 2), LITTLE, |_, _, _| ());
    }

    const PROGRAM: &str = "all(Chunks[||] Shards[inner(Chunks[Chunks[||]|Chunks[||]])|inner()]) \
                           last(Chunks[|])";

    #[test]
    fn the_tree_of_a_program_is_that_of_its_regions_on_any_number_of_threads() {
        for threads in [1, 2, 3, 8] {
            let ((), recording) = with_threads(threads, || record(program));
            let mut tree = shape(&recording.task);
            // The order in which shards start is that of their numbers on one thread only.
            if threads > 1 {
                tree = tree.replace(
                    "Shards[inner()|inner(Chunks[Chunks[||]|Chunks[||]])]",
                    "Shards[inner(Chunks[Chunks[||]|Chunks[||]])|inner()]",
                );
            }
            assert_eq!(tree, PROGRAM, "{threads} threads");
            assert_eq!(recording.counts(), (6, 3 + 2 + 2 + 6 + 2));
            assert!(recording.in_pool);
        }
        let ((), outside) = record(program);
        assert!(!outside.in_pool);
        assert_eq!(outside.counts(), (6, 15));
    }

    #[test]
    fn nothing_is_recorded_outside_of_a_record() {
        program();
        assert!(FRAME.with_borrow(Option::is_none));
        let ((), recording) = record(|| {
            on_every_thread(program); // on other threads, outside of regions
        });
        assert_eq!(recording.counts(), (0, 0));
    }

    #[test]
    fn regions_in_another_pool_are_recorded() {
        let ((), recording) = record(|| with_threads(2, program));
        assert!(shape(&recording.task).starts_with("Pool[all("), "{}", shape(&recording.task));
        assert_eq!(recording.counts(), (7, 16));
    }

    #[test]
    fn a_record_inside_of_a_record_is_its_own() {
        let (inner, outer) = record(|| record(program).1);
        assert_eq!((inner.counts(), outer.counts()), ((6, 15), (0, 0)));
    }

    #[test]
    fn a_panic_leaves_the_record_of_the_outer_task_intact() {
        let ((), recording) = with_threads(1, || {
            record(|| {
                let failing = || {
                    let _span = span("failing");
                    each(vec![0, 1, 2], 1, MUCH, |i| assert!(i != 1, "item 1"));
                };
                assert!(std::panic::catch_unwind(failing).is_err());
                fill(&mut [0; 2], 1, MUCH, |_, _| ());
            })
        });
        assert_eq!(shape(&recording.task), "failing(Chunks[|]) Chunks[|]");
        assert!(FRAME.with_borrow(Option::is_none));
        assert!(std::panic::catch_unwind(|| record(|| panic!("inside"))).is_err());
        assert!(FRAME.with_borrow(Option::is_none));
        assert!(!is_recording());
    }

    #[test]
    fn times_add_up_to_the_time_of_the_whole() {
        let wait = || std::thread::sleep(std::time::Duration::from_millis(3));
        let start = Instant::now();
        let ((), recording) = record(|| {
            wait();
            let _span = span("two shards");
            shards(1, |_| wait());
            wait();
        });
        let whole = start.elapsed().as_secs_f64();
        assert!(
            (9e-3..=whole).contains(&recording.seconds()),
            "{} of {whole}",
            recording.seconds()
        );
        let [Part::Serial(before), Part::Span(_, span), Part::Serial(_)] =
            &recording.task.parts[..]
        else {
            panic!("{recording:?}")
        };
        let [Part::Serial(_), Part::Region(region), Part::Serial(after)] = &span.parts[..] else {
            panic!("{recording:?}")
        };
        assert!(*before >= 3e-3 && *after >= 3e-3 && region.tasks[0].seconds() >= 3e-3);
        assert_eq!(region.name(), "shards");
    }
}
