//! Ranks that are processes of an MPI job.

use super::communicator::{Collectives, Communicator};
use mpi::collective::SystemOperation;
use mpi::datatype::{Equivalence, Partition, PartitionMut};
use mpi::environment::{Universe, initialize_with_threading};
use mpi::request::{Request, Scope, scope};
use mpi::topology::{Communicator as _, SimpleCommunicator};
use mpi::traits::CommunicatorCollectives as _;
use mpi::{Count, Threading};
use retrograd_tensor::Real;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

/// The processes of an MPI job: all that one `mpiexec` started. A process that was started without it is the
/// only one.
///
/// While it waits for others, a process sleeps instead of polling without a pause: operations run beside
/// backward passes, which need the core.
pub struct Mpi {
    rank: usize,
    size: usize,
    busy: AtomicBool,
    /// Dropping it ends MPI, which waits for all processes.
    _universe: Universe,
}

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
    /// use retrograd_nn::distributed::{Communicator, Mpi};
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
        Ok(Mpi { rank, size, busy: AtomicBool::new(false), _universe: universe })
    }

    /// The number of processes of the job on this machine.
    pub fn local_size(&self) -> usize {
        world().split_shared(self.rank as i32).size() as usize
    }

    /// Ends all processes of the job, without waiting for them. MPI must be running.
    pub fn abort(code: i32) -> ! {
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

/// Waits for an operation. Short ones end while it polls; then, and from the beginning if the process is busy,
/// it sleeps in between.
fn wait<'a, D: ?Sized, S: Scope<'a>>(busy: &AtomicBool, mut request: Request<'a, D, S>) {
    const POLLS: u64 = 10_000;
    const PAUSE: Duration = Duration::from_micros(100);
    for polls in 0.. {
        match request.test() {
            Ok(_) => return,
            Err(unfinished) => request = unfinished,
        }
        if polls < POLLS && !busy.load(Relaxed) {
            thread::yield_now()
        } else {
            thread::sleep(PAUSE)
        }
    }
}

impl Communicator for Mpi {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn set_busy(&self, busy: bool) {
        self.busy.store(busy, Relaxed);
    }

    fn all_gather_bytes(&self, mine: &[u8]) -> Vec<Vec<u8>> {
        let mut lens = vec![0u64; self.size];
        self.gather_all(&[mine.len() as u64], &mut lens, &vec![1; self.size]);
        let lens: Vec<usize> = lens.into_iter().map(|n| n as usize).collect();
        let mut all = vec![0; lens.iter().sum()];
        self.gather_all(mine, &mut all, &lens);
        let mut rest = &all[..];
        lens.iter().map(|&n| rest.split_off(..n).expect("of this rank").to_vec()).collect()
    }
}

impl Mpi {
    fn gather_all<X: Equivalence>(&self, send: &[X], receive: &mut [X], counts: &[usize]) {
        let (counts, offsets) = layout(counts);
        let mut receive = PartitionMut::new(receive, counts, offsets);
        scope(|scope| {
            wait(&self.busy, world().immediate_all_gather_varcount_into(scope, send, &mut receive));
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
        let (counts, offsets) = layout(send_counts);
        let send = Partition::new(send, counts, offsets);
        let (counts, offsets) = layout(receive_counts);
        let mut receive = PartitionMut::new(receive, counts, offsets);
        scope(|scope| {
            wait(
                &self.busy,
                world().immediate_all_to_all_varcount_into(scope, &send, &mut receive),
            );
        });
    }

    fn all_gather(&self, send: &[T], receive: &mut [T], counts: &[usize]) {
        self.gather_all(send, receive, counts);
    }

    fn gather(&self, send: &[T], receive: &mut [T], counts: &[usize]) {
        use mpi::traits::Root as _;
        let world = world();
        let first = world.process_at_rank(0);
        if self.rank == 0 {
            let (counts, offsets) = layout(counts);
            let mut receive = PartitionMut::new(receive, counts, offsets);
            scope(|scope| {
                let request = first.immediate_gather_varcount_into_root(scope, send, &mut receive);
                wait(&self.busy, request);
            });
        } else {
            scope(|scope| wait(&self.busy, first.immediate_gather_varcount_into(scope, send)));
        }
    }

    fn all_reduce(&self, send: &[T], receive: &mut [T]) {
        let sum = SystemOperation::sum();
        scope(|scope| {
            wait(&self.busy, world().immediate_all_reduce_into(scope, send, receive, sum));
        });
    }
}
