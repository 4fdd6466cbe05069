//! What ranks need of each other.

use retrograd_tensor::Real;

/// A group of processes that run the same program, each with a number, its rank.
///
/// All ranks call the same methods in the same order, each from one thread at a time. A call returns when
/// the data of the other ranks have arrived. Ranks that call different methods, or give counts that do not
/// match, are an error of the program; they may wait for ever.
pub trait Communicator: Send + Sync {
    /// The number of this process, from 0.
    fn rank(&self) -> usize;

    /// The number of processes.
    fn size(&self) -> usize;

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
