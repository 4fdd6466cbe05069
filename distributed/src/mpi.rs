//! Ranks that are processes of an MPI job.

use crate::communicator::{Calls, Collectives, Communicator, Messages};
use mpi::collective::SystemOperation;
use mpi::datatype::{Equivalence, Partition, PartitionMut};
use mpi::environment::{Universe, initialize_with_threading};
use mpi::point_to_point::{Destination as _, MatchedReceiveVec as _, Source as _};
use mpi::request::{LocalScope, Request, Scope, scope};
use mpi::topology::{Communicator as _, SimpleCommunicator};
use mpi::traits::CommunicatorCollectives as _;
use mpi::{Count, Threading};
use retrograd_tensor::Real;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use std::{fmt, thread};

/// The processes of an MPI job: all that one `mpiexec` started. A process that was started without it is the
/// only one.
///
/// While it waits for others, a process leaves the core to other threads, and sleeps if it takes long.
///
/// A process leaves when this is dropped: it tells the others, and waits until they have left, too. A process that
/// waits for one that has left ends the job with an error, as MPI does for errors of its own, and so does the drop
/// during a panic. A process that ends without the drop (`process::exit`) is a matter of `mpiexec`.
pub struct Mpi {
    rank: usize,
    size: usize,
    history: Mutex<History>,
    /// Dropping it ends MPI, which waits for all processes.
    _universe: Universe,
}

/// What this rank has called, and how many calls the ranks made that have left, with the error for those they left.
#[derive(Default)]
struct History {
    calls: Calls,
    left: BTreeMap<usize, (u64, String)>,
}

/// The tags of data, and of the last message of a rank.
const DATA: i32 = 0;
const LEFT: i32 = 1;

/// Why MPI cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MpiError {
    /// This process has started MPI already.
    Started,
    /// This MPI does not allow calls from several threads, not even one at a time.
    Threads,
}

impl fmt::Display for MpiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            MpiError::Started => "MPI has been started already",
            MpiError::Threads => {
                "this MPI was built without support for threads (MPI_THREAD_SERIALIZED)"
            }
        })
    }
}

impl std::error::Error for MpiError {}

impl fmt::Debug for Mpi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mpi(rank {} of {})", self.rank, self.size)
    }
}

impl Mpi {
    /// Starts MPI.
    ///
    /// # Errors
    /// If it has been started already, or does not allow calls from several threads, one at a time.
    ///
    /// ```
    /// use retrograd::distributed::{Communicator, Mpi};
    /// let mpi = Mpi::start().unwrap(); // without mpiexec: alone
    /// assert_eq!((mpi.rank(), mpi.size(), mpi.local_size()), (0, 1, 1));
    /// assert_eq!(mpi.all_gather_bytes(&[7]), [[7]]);
    /// assert!(!Mpi::library().is_empty());
    /// ```
    pub fn start() -> Result<Mpi, MpiError> {
        let (universe, threading) =
            initialize_with_threading(Threading::Serialized).ok_or(MpiError::Started)?;
        if threading < Threading::Serialized {
            return Err(MpiError::Threads);
        }
        let world = universe.world();
        let (rank, size) = (world.rank() as usize, world.size() as usize);
        Ok(Mpi { rank, size, history: Mutex::default(), _universe: universe })
    }

    /// The number of processes of the job on this machine.
    pub fn local_size(&self) -> usize {
        world().split_shared(self.rank as i32).size() as usize
    }

    /// Ends all processes of the job, without waiting for them. MPI must be running.
    pub fn abort(code: i32) -> ! {
        // Otherwise mpiexec ends before it has passed on what this process wrote.
        thread::sleep(Duration::from_millis(500));
        world().abort(code)
    }

    /// The version of the library, in one line.
    pub fn library() -> String {
        let version = mpi::environment::library_version().unwrap_or_default();
        version.split_whitespace().collect::<Vec<_>>().join(" ")
    }
}

/// Threads do not share the object, so that it need not be one for several threads.
fn world() -> SimpleCommunicator {
    SimpleCommunicator::world()
}

/// Counts of elements, and the offsets of the parts, as MPI takes them.
fn layout(counts: &[usize]) -> (Vec<Count>, Vec<Count>) {
    let count = |n: usize| Count::try_from(n).expect("a message has less than 2^31 elements");
    let mut offset = 0;
    let offsets = counts.iter().map(|&n| {
        let at = offset;
        offset += n;
        count(at)
    });
    let offsets = offsets.collect();
    (counts.iter().map(|&n| count(n)).collect(), offsets)
}

impl Mpi {
    fn history(&self) -> MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enter(&self, method: &'static str) {
        self.history().calls.enter(method);
    }

    /// Receives the last messages of ranks that have left.
    fn notice_left(&self) {
        while let Some(found) = world().any_process().immediate_matched_probe_with_tag(LEFT) {
            let from = found.1.source_rank() as usize;
            let (bytes, _) = found.matched_receive_vec::<u8>();
            let (count, error) = bytes.split_at(8);
            let count = u64::from_le_bytes(count.try_into().expect("eight bytes"));
            let error = String::from_utf8_lossy(error).into_owned();
            self.history().left.insert(from, (count, error));
        }
    }

    /// Repeats `poll` until it gives true. Short operations end while it yields the core; then it sleeps in
    /// between, and ends the job if a rank has left before the call that this one waits in.
    fn poll_until(&self, mut poll: impl FnMut() -> bool) {
        const YIELDS: u64 = 10_000;
        const PAUSE: Duration = Duration::from_micros(100);
        for polls in 0.. {
            if poll() {
                return;
            }
            if polls < YIELDS {
                thread::yield_now();
                continue;
            }
            self.notice_left();
            let history = self.history();
            let calls = &history.calls;
            if let Some((_, error)) = history.left.values().find(|left| left.0 < calls.count) {
                eprintln!("error: rank {} waits in {calls}: {error}", self.rank);
                Mpi::abort(1);
            }
            drop(history);
            thread::sleep(PAUSE);
        }
    }

    /// Waits for an operation.
    fn wait<'a, D: ?Sized, S: Scope<'a>>(&self, request: Request<'a, D, S>) {
        let mut unfinished = Some(request);
        self.poll_until(|| {
            unfinished = unfinished.take().and_then(|request| request.test().err());
            unfinished.is_none()
        });
    }
}

impl Drop for Mpi {
    fn drop(&mut self) {
        if self.size == 1 {
            return;
        }
        let calls = self.history().calls.clone();
        if thread::panicking() {
            eprintln!("error: rank {} panicked in {calls}", self.rank);
            Mpi::abort(101);
        }
        let last = [&calls.count.to_le_bytes(), calls.left(self.rank).as_bytes()].concat();
        let world = world();
        scope(|scope| {
            for other in (0..self.size).filter(|&other| other != self.rank) {
                let other = world.process_at_rank(other as i32);
                self.wait(other.immediate_send_with_tag(scope, &last[..], LEFT));
            }
        });
        // MPI may not end before all messages have been received.
        self.poll_until(|| {
            self.notice_left();
            self.history().left.len() == self.size - 1
        });
    }
}

/// Operations that have been started.
struct UnderWay<'s, 'a, T> {
    mpi: &'s Mpi,
    scope: &'s LocalScope<'a>,
    /// The oldest first. All make progress when one is tested.
    requests: VecDeque<Request<'a, [T], &'s LocalScope<'a>>>,
}

impl<'a, T: Real + Equivalence> Messages<'a, T> for UnderWay<'_, 'a, T> {
    fn send(&mut self, data: &'a [T], to: usize) {
        let world = world();
        let to = world.process_at_rank(to as i32);
        self.requests.push_back(to.immediate_send_with_tag(self.scope, data, DATA));
    }

    fn receive(&mut self, data: &'a mut [T], from: usize) {
        let world = world();
        let from = world.process_at_rank(from as i32);
        self.requests.push_back(from.immediate_receive_into_with_tag(self.scope, data, DATA));
    }

    fn all_reduce(&mut self, send: &'a [T], receive: &'a mut [T]) {
        let sum = SystemOperation::sum();
        self.requests.push_back(world().immediate_all_reduce_into(self.scope, send, receive, sum));
    }

    fn progress(&mut self) -> bool {
        while let Some(oldest) = self.requests.pop_front() {
            if let Err(unfinished) = oldest.test() {
                self.requests.push_front(unfinished);
                return false;
            }
        }
        true
    }

    fn wait(&mut self) {
        let mpi = self.mpi;
        mpi.poll_until(|| self.progress());
    }
}

impl Communicator for Mpi {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn begin(&self, operation: &'static str) {
        self.history().calls.begin(operation);
    }

    fn all_gather_bytes(&self, mine: &[u8]) -> Vec<Vec<u8>> {
        self.enter("all_gather_bytes");
        // The length and the first bytes; a second operation for what is left. Most data are short.
        const FIRST: usize = 1024;
        let mut first = (mine.len() as u64).to_le_bytes().to_vec();
        let (begin, end) = mine.split_at(mine.len().min(FIRST));
        first.extend_from_slice(begin);
        first.resize(8 + FIRST, 0);
        let mut firsts = vec![0; self.size * first.len()];
        self.gather_all(&first, &mut firsts, &vec![first.len(); self.size]);
        let len =
            |first: &[u8]| u64::from_le_bytes(first[..8].try_into().expect("eight bytes")) as usize;
        let lens: Vec<usize> = firsts.chunks(first.len()).map(len).collect();
        let ends: Vec<usize> = lens.iter().map(|n| n.saturating_sub(FIRST)).collect();
        let mut rest = vec![0; ends.iter().sum()];
        if !rest.is_empty() {
            self.gather_all(end, &mut rest, &ends);
        }
        let mut rest = &rest[..];
        let all = firsts.chunks(first.len()).zip(&lens).zip(&ends);
        let whole = all.map(|((first, &n), &end)| {
            let begin = &first[8..8 + n.min(FIRST)];
            [begin, rest.split_off(..end).expect("of this rank")].concat()
        });
        whole.collect()
    }
}

impl Mpi {
    fn gather_all<X: Equivalence>(&self, send: &[X], receive: &mut [X], counts: &[usize]) {
        let (counts, offsets) = layout(counts);
        let mut receive = PartitionMut::new(receive, counts, offsets);
        scope(|scope| {
            self.wait(world().immediate_all_gather_varcount_into(scope, send, &mut receive));
        });
    }
}

impl<T: Real + Equivalence> Collectives<T> for Mpi {
    fn all_to_all(
        &self,
        send: &[T],
        send_counts: &[usize],
        receive: &mut [T],
        receive_counts: &[usize],
    ) {
        self.enter("all_to_all");
        let (counts, offsets) = layout(send_counts);
        let send = Partition::new(send, counts, offsets);
        let (counts, offsets) = layout(receive_counts);
        let mut receive = PartitionMut::new(receive, counts, offsets);
        scope(|scope| {
            self.wait(world().immediate_all_to_all_varcount_into(scope, &send, &mut receive));
        });
    }

    fn all_gather(&self, send: &[T], receive: &mut [T], counts: &[usize]) {
        self.enter("all_gather");
        self.gather_all(send, receive, counts);
    }

    fn gather(&self, send: &[T], receive: &mut [T], counts: &[usize]) {
        use mpi::traits::Root as _;
        self.enter("gather");
        let world = world();
        let first = world.process_at_rank(0);
        if self.rank == 0 {
            let (counts, offsets) = layout(counts);
            let mut receive = PartitionMut::new(receive, counts, offsets);
            scope(|scope| {
                let request = first.immediate_gather_varcount_into_root(scope, send, &mut receive);
                self.wait(request);
            });
        } else {
            scope(|scope| self.wait(first.immediate_gather_varcount_into(scope, send)));
        }
    }

    fn all_reduce(&self, send: &[T], receive: &mut [T]) {
        self.enter("all_reduce");
        let sum = SystemOperation::sum();
        scope(|scope| {
            self.wait(world().immediate_all_reduce_into(scope, send, receive, sum));
        });
    }

    fn messages<'a>(&self, f: &mut dyn FnMut(&mut dyn Messages<'a, T>)) {
        self.enter("messages");
        scope(|scope| {
            let mut messages = UnderWay { mpi: self, scope, requests: VecDeque::new() };
            f(&mut messages);
            messages.wait();
        });
    }
}
