//! Training by several processes: data parallelism over MPI, with the same bits for any number of processes.
//!
//! [`DataParallel`] divides a training step. It needs [`Collectives`], which the processes of an MPI job have
//! (`Mpi`, with the feature `mpi`) and threads of one process ([`Local`]).
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
