//! Several processes over MPI: `cargo test -p retrograd-train --features mpi --test mpi` (with an installed MPI).
//!
//! `RETROGRAD_MPI_STEPS` sets the steps of the runs whose bytes are compared (20), `RETROGRAD_MPI_KILLS` the number
//! of ranks that are killed (4).
#![cfg(unix)]

#[allow(dead_code, reason = "shared with the tests of one process")]
#[path = "../program/program.rs"]
mod program;

mod bytes;
mod faults;
mod launch;
mod leave;
mod sweep;
