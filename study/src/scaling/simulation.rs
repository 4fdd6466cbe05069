//! List scheduling of the tasks of a record on a number of cores.

use super::prediction::{Place, Rules};
use crate::regions::{Part, Region, Task};
use retrograd_tensor::observe::Division;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};

impl Task {
    /// The time of a task without regions.
    fn leaf(&self) -> Option<f64> {
        match self.parts[..] {
            [Part::Serial(seconds)] => Some(seconds),
            _ => None,
        }
    }
}

/// An index in [`Names`].
type Name = usize;

/// Names of places, as paths.
#[derive(Default)]
struct Names {
    index: HashMap<(Option<Name>, &'static str), Name>,
    paths: Vec<String>,
}

impl Names {
    fn get(&mut self, parent: Option<Name>, name: &'static str) -> Name {
        *self.index.entry((parent, name)).or_insert_with(|| {
            let path = match parent {
                Some(parent) if name.starts_with('(') => format!("{} {name}", self.paths[parent]),
                Some(parent) => format!("{} > {name}", self.paths[parent]),
                None => name.to_string(),
            };
            self.paths.push(path);
            self.paths.len() - 1
        })
    }
}

/// A list of parts that is being executed.
struct Cursor<'a> {
    parts: std::slice::Iter<'a, Part>,
    name: Option<Name>,
}

/// Code that one core at a time executes.
#[derive(Default)]
struct Strand<'a> {
    /// What remains to be done, from the outside in.
    cursors: Vec<Cursor<'a>>,
    /// Stages of a matrix product, the next one last: the times of their tasks.
    stages: Vec<Vec<f64>>,
    /// The name of the product.
    product: Option<Name>,
    /// A task without parts: its place and time.
    leaf: Option<(Name, f64)>,
    /// The number of cores that it divides products for; with 1, it distributes nothing.
    threads: usize,
    /// The strand that waits for it.
    parent: Option<usize>,
    /// The tasks that are ready when its segment ends.
    children: Vec<usize>,
    /// The number of its tasks that have not ended.
    waits_for: usize,
}

/// Some work of a strand without interruption.
struct Segment {
    strand: usize,
    start: f64,
    /// Its range in [`Simulation::log`].
    log: (usize, usize),
    /// The segment at whose end it started.
    before: Option<usize>,
}

pub(super) struct Simulation<'a> {
    rules: Rules,
    /// The time, at the end of the simulation the time of the program.
    pub(super) now: f64,
    names: Names,
    strands: Vec<Strand<'a>>,
    /// Strands without work, to be used again.
    ended: Vec<usize>,
    segments: Vec<Segment>,
    /// Places and times of all segments.
    log: Vec<(Name, f64)>,
    /// Strands that go on as soon as a core is free, before any task.
    resumed: VecDeque<usize>,
    /// Tasks in the order in which they were distributed.
    tasks: VecDeque<usize>,
    /// The ends of the running segments, each with its number. Bits of times, which are not negative, have the
    /// order of the times.
    running: BinaryHeap<Reverse<(u64, usize)>>,
    /// The segment that ended last.
    last: Option<usize>,
    /// The number of busy cores from each time on, and the busy time of all cores before.
    busy: Vec<(f64, usize, f64)>,
}

impl<'a> Simulation<'a> {
    pub(super) fn new(rules: Rules) -> Self {
        Simulation {
            rules,
            now: 0.0,
            names: Names::default(),
            strands: Vec::new(),
            ended: Vec::new(),
            segments: Vec::new(),
            log: Vec::new(),
            resumed: VecDeque::new(),
            tasks: VecDeque::new(),
            running: BinaryHeap::new(),
            last: None,
            busy: Vec::new(),
        }
    }

    pub(super) fn run(&mut self, task: &'a Task) {
        let whole = self.strand(Some((&task.parts, None)), None, self.rules.cores, None);
        self.resumed.push_back(whole);
        self.start_all();
        while let Some(Reverse((end, segment))) = self.running.pop() {
            (self.now, self.last) = (f64::from_bits(end), Some(segment));
            self.finish(self.segments[segment].strand);
            self.start_all();
        }
    }

    /// A new strand, of parts or of a task without any.
    fn strand(
        &mut self,
        parts: Option<(&'a [Part], Option<Name>)>,
        leaf: Option<(Name, f64)>,
        threads: usize,
        parent: Option<usize>,
    ) -> usize {
        let cursor = parts.map(|(parts, name)| Cursor { parts: parts.iter(), name });
        let cursors = cursor.into_iter().collect();
        let new = Strand { cursors, leaf, threads, parent, ..Strand::default() };
        match self.ended.pop() {
            Some(index) => {
                self.strands[index] = new;
                index
            }
            None => {
                self.strands.push(new);
                self.strands.len() - 1
            }
        }
    }

    /// Starts strands on all free cores.
    fn start_all(&mut self) {
        while self.running.len() < self.rules.cores {
            let Some(strand) = self.resumed.pop_front().or_else(|| self.tasks.pop_front()) else {
                break;
            };
            self.start(strand);
        }
        let (at, count) = (self.now, self.running.len());
        let all = self.busy.last().map_or(0.0, |&(since, n, all)| all + n as f64 * (at - since));
        self.busy.push((at, count, all));
    }

    /// Executes a strand until it ends or distributes a region.
    fn start(&mut self, strand: usize) {
        let first = self.log.len();
        if let Some(leaf) = self.strands[strand].leaf {
            self.log.push(leaf);
        } else {
            self.advance(strand);
        }
        let seconds: f64 = self.log[first..].iter().map(|(_, seconds)| seconds).sum();
        let (log, before) = ((first, self.log.len()), self.last);
        self.segments.push(Segment { strand, start: self.now, log, before });
        self.running.push(Reverse(((self.now + seconds).to_bits(), self.segments.len() - 1)));
    }

    /// Logs the work of a strand up to its end, or up to the next region that it distributes.
    fn advance(&mut self, strand: usize) {
        loop {
            if self.next_stage(strand) {
                return;
            }
            let Some(cursor) = self.strands[strand].cursors.last_mut() else { return };
            let name = cursor.name;
            let Some(part) = cursor.parts.next() else {
                self.strands[strand].cursors.pop();
                continue;
            };
            match part {
                Part::Serial(seconds) => {
                    let name = self.names.get(name, "serial code");
                    self.log.push((name, *seconds));
                }
                Part::Span(span, task) => {
                    let name = self.names.get(name, span);
                    self.enter(strand, task, name);
                }
                Part::Region(region) => {
                    let name = self.names.get(name, region.name());
                    if self.region(strand, region, name) {
                        return;
                    }
                }
            }
        }
    }

    /// Continues with the parts of a task on the same core.
    fn enter(&mut self, strand: usize, task: &'a Task, name: Name) {
        let cursor = Cursor { parts: task.parts.iter(), name: Some(name) };
        self.strands[strand].cursors.push(cursor);
    }

    /// Begins a region; true if it is distributed.
    fn region(&mut self, strand: usize, region: &'a Region, name: Name) -> bool {
        let threads = self.strands[strand].threads;
        let large = region.estimate >= self.rules.threshold && threads > 1;
        match &region.division {
            Division::ByThreads(divide) if large => {
                let seconds: f64 = region.tasks.iter().map(Task::seconds).sum();
                let scaled = |stage: Vec<f64>| stage.into_iter().map(|x| x * seconds).collect();
                let stages = divide(threads).into_iter().rev().map(scaled);
                let stages: Vec<Vec<f64>> = stages.collect();
                let at = &mut self.strands[strand];
                (at.stages, at.product) = (stages, Some(name));
                return false; // the stages are next
            }
            Division::Chunks if large && region.tasks.len() > 1 => {
                self.distribute(strand, region, name, threads);
                return true;
            }
            Division::Shards if region.tasks.len() > 1 && threads > 1 => {
                self.distribute(strand, region, name, threads.div_ceil(region.tasks.len()));
                return true;
            }
            _ => {}
        }
        // In order, on this core.
        let small = matches!(region.division, Division::Chunks | Division::ByThreads(_)) && !large;
        let name = match threads == 1 {
            true => name,
            false if small => self.names.get(Some(name), "(too small to divide)"),
            false => self.names.get(Some(name), "(one task)"),
        };
        if let Some(seconds) = region.tasks.iter().map(Task::leaf).sum() {
            self.log.push((name, seconds));
            return false;
        }
        for task in region.tasks.iter().rev() {
            self.enter(strand, task, name);
        }
        false
    }

    /// Begins the next stage of a matrix product; true if it is distributed.
    fn next_stage(&mut self, strand: usize) -> bool {
        while let Some(stage) = self.strands[strand].stages.pop() {
            let name = self.strands[strand].product.expect("set with the stages");
            if let [one] = stage[..] {
                self.log.push((name, one));
                continue;
            }
            let task = |seconds| self.strand(None, Some((name, seconds)), 1, Some(strand));
            let children = stage.into_iter().map(task).collect();
            self.wait_for(strand, children);
            return true;
        }
        false
    }

    fn distribute(&mut self, strand: usize, region: &'a Region, name: Name, threads: usize) {
        let task = |task: &'a Task| match task.leaf() {
            Some(seconds) => self.strand(None, Some((name, seconds)), threads, Some(strand)),
            None => self.strand(Some((&task.parts, Some(name))), None, threads, Some(strand)),
        };
        let children = region.tasks.iter().map(task).collect();
        self.wait_for(strand, children);
    }

    /// Ends the segment of a strand with the overhead of a region of these tasks.
    fn wait_for(&mut self, strand: usize, children: Vec<usize>) {
        let name = self.names.get(None, "starting regions on all threads");
        self.log.push((name, self.rules.overhead * (self.rules.cores as f64).log2()));
        self.strands[strand].children = children;
    }

    /// The segment of a strand has ended: it waits for its tasks, or has ended itself.
    fn finish(&mut self, strand: usize) {
        let children = std::mem::take(&mut self.strands[strand].children);
        if !children.is_empty() {
            self.strands[strand].waits_for = children.len();
            self.tasks.extend(children);
            return;
        }
        self.ended.push(strand);
        let Some(parent) = self.strands[strand].parent else { return };
        self.strands[parent].waits_for -= 1;
        if self.strands[parent].waits_for == 0 {
            self.resumed.push_back(parent);
        }
    }

    /// The busy time of all cores before a time.
    pub(super) fn busy_before(&self, time: f64) -> f64 {
        let index = self.busy.partition_point(|&(since, ..)| since <= time);
        let (since, cores, before) = self.busy[index.saturating_sub(1)];
        before + cores as f64 * (time - since)
    }

    /// Where the time on the critical path goes.
    pub(super) fn places(&self) -> Vec<Place> {
        let (cores, total) = (self.rules.cores as f64, self.now);
        // Seconds, and those of busy cores.
        let mut sums = vec![(0.0, 0.0); self.names.paths.len()];
        let mut at = self.last;
        while let Some(index) = at {
            let segment = &self.segments[index];
            let mut time = segment.start;
            for &(name, seconds) in &self.log[segment.log.0..segment.log.1] {
                let end = time + seconds;
                sums[name].0 += seconds;
                sums[name].1 += self.busy_before(end) - self.busy_before(time);
                time = end;
            }
            at = segment.before;
        }
        let mut places: Vec<Place> = (self.names.paths.iter().zip(sums))
            .filter(|(_, (seconds, _))| *seconds > 0.0)
            .map(|(name, (seconds, busy))| Place {
                name: name.clone(),
                seconds,
                busy: busy / seconds,
                lost: (seconds - busy / cores).max(0.0) / total,
            })
            .collect();
        places.sort_by(|a, b| b.lost.total_cmp(&a.lost).then(b.seconds.total_cmp(&a.seconds)));
        places
    }
}
