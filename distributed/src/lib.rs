//! Training by several processes: data parallelism over MPI, with the same bits for any number of processes.
//!
//! [`DataParallel`] divides a training step. It needs [`Collectives`], which the processes of an MPI job have
//! (`Mpi`, with the feature `mpi`) and threads of one process ([`Local`]).
//!
//! A batch has shards, whose number belongs to the recipe. `sharded` adds their gradients in a binary tree
//! (`pairwise_sum`). A rank computes consecutive shards, adds those that form whole subtrees, and sends these sums
//! to the owner of each parameter, which completes the tree. So the number of ranks does not occur in the order of
//! additions. `Backprop::run_each` reports a gradient as soon as all operations that use the parameter have been
//! differentiated; when all gradients of a bucket are there, it is sent. In a rank of one thread this thread does
//! it, and tests the messages after each gradient; in a rank of several, a thread of its own. One thread alone
//! calls MPI meanwhile, which therefore need not support calls from several threads at a time. The owner of a
//! parameter has its optimiser state and sends the new value to all (stage 1 of ZeRO). What is added over
//! parameters (the norm for clipping) or over batches (evaluation) is gathered and added in one order, too.
#![forbid(unsafe_code)]

mod agreed;
mod communicator;
mod data_parallel;
mod exchange;
mod idle;
mod local;
#[cfg(feature = "mpi")]
mod mpi;
mod plan;
mod tree;

pub use communicator::{Collectives, Communicator, Messages};
pub use data_parallel::DataParallel;
pub use local::Local;
#[cfg(feature = "mpi")]
pub use mpi::{Mpi, MpiError};
pub use plan::Owned;
pub use plan::{GradientSum, Timing};

/// Parts that only the tests of this crate use.
#[doc(hidden)]
pub mod internals {
    pub use crate::plan::{buckets, owners};
    pub use crate::tree::{Node, nodes, shards_of, total};
}
