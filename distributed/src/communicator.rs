//! What ranks need of each other.

use retrograd_tensor::Real;
use std::collections::BTreeMap;
use std::fmt;

/// A group of processes that run the same program, each with a number, its rank.
///
/// All ranks call the same methods in the same order, each from one thread at a time. A call returns when
/// the data of the other ranks have arrived. Ranks that call different methods, or give counts that do not
/// match, are an error of the program; they may wait for ever.
///
/// # A rank that leaves early
/// A rank leaves when its communicator is dropped. If another rank then begins or continues a call that needs
/// it, this is an error of the other rank, which says which rank left, and after which call. [`Local`](super::Local)
/// panics; `Mpi` writes the error and ends the job, because MPI cannot take back what is under way.
pub trait Communicator: Send + Sync {
    /// The number of this process, from 0.
    fn rank(&self) -> usize;

    /// The number of processes.
    fn size(&self) -> usize;

    /// Names the operation that the next calls belong to, for the errors of other ranks.
    fn begin(&self, _operation: &'static str) {}

    /// The bytes that each rank gives, in the order of ranks.
    fn all_gather_bytes(&self, mine: &[u8]) -> Vec<Vec<u8>>;
}

/// Collective operations on elements of type `T`, with the semantics of MPI's functions of the same names.
pub trait Collectives<T: Real>: Communicator {
    /// The first `send_counts[0]` elements of `send` go to rank 0, the next `send_counts[1]` to rank 1, and so
    /// on. Those from rank 0, `receive_counts[0]` of them, are the first in `receive`. `MPI_Alltoallv`.
    fn all_to_all(
        &self,
        send: &[T],
        send_counts: &[usize],
        receive: &mut [T],
        receive_counts: &[usize],
    );

    /// The elements that each rank gives, `counts[rank]` of them, in the order of ranks. `MPI_Allgatherv`.
    fn all_gather(&self, send: &[T], receive: &mut [T], counts: &[usize]);

    /// The same at rank 0 only; the other ranks give an empty `receive`. `MPI_Gatherv`.
    fn gather(&self, send: &[T], receive: &mut [T], counts: &[usize]);

    /// The sum over all ranks, whose order the implementation chooses: the last bits may depend on it, and
    /// on the number of ranks. `MPI_Allreduce`.
    fn all_reduce(&self, send: &[T], receive: &mut [T]);

    /// Calls `f`, and waits until all messages that it started have arrived. Their data live longer than the
    /// call: they are borrowed for `'a`.
    ///
    /// # Panics
    /// A panic of `f` while messages are under way may end the process.
    fn messages<'a>(&self, f: &mut dyn FnMut(&mut dyn Messages<'a, T>));
}

/// Messages that are under way while this thread computes, see [`Collectives::messages`].
///
/// Messages from one rank to another arrive in the order in which they were sent. All ranks start the same
/// sums in the same order.
pub trait Messages<'a, T: Real> {
    /// Starts to send to another rank. `MPI_Isend`.
    fn send(&mut self, data: &'a [T], to: usize);

    /// Starts to receive from another rank, which sends as many elements as there are, or fewer: the others
    /// stay as they are. `MPI_Irecv`.
    fn receive(&mut self, data: &'a mut [T], from: usize);

    /// Starts [`Collectives::all_reduce`]. `MPI_Iallreduce`.
    fn all_reduce(&mut self, send: &'a [T], receive: &'a mut [T]);

    /// Does what messages need of this thread at the moment, without waiting. Returns whether all have
    /// arrived. `MPI_Test`.
    fn progress(&mut self) -> bool;

    /// Waits until all have arrived.
    fn wait(&mut self);
}

/// What a rank has called, for the errors of others.
#[derive(Clone, Debug, Default)]
pub(crate) struct Calls {
    /// How many methods that exchange data.
    pub count: u64,
    /// The last one of them, after the operation that it belonged to.
    pub last: [&'static str; 2],
    operation: &'static str,
    /// How many times each operation was begun.
    begun: BTreeMap<&'static str, u64>,
}

impl Calls {
    pub fn begin(&mut self, operation: &'static str) {
        self.operation = operation;
        *self.begun.entry(operation).or_default() += 1;
    }

    pub fn enter(&mut self, method: &'static str) {
        (self.count, self.last) = (self.count + 1, [self.operation, method]);
    }

    /// The error of a rank that has left before the others made the call that they wait in.
    pub fn left(&self, rank: usize) -> String {
        match self.begun.is_empty() && self.count == 0 {
            true => format!("rank {rank} left before its first call"),
            false => format!("rank {rank} left after {self}"),
        }
    }
}

impl fmt::Display for Calls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.begun.get(self.operation) {
            Some(n) => write!(f, "call {n} of {}", self.operation),
            None => write!(f, "call {} ({})", self.count, self.last[1]),
        }
    }
}
