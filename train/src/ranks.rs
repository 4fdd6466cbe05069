//! The processes of a program: one, or those that `mpiexec` started.

use retrograd::distributed::{Collectives, Local};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::sync::Arc;

/// This process among those of the job. All ranks call the methods that exchange data in the same order.
#[derive(Clone)]
pub struct Ranks {
    comm: Arc<dyn Collectives<f32>>,
    /// The number of ranks on this machine.
    local: usize,
}

impl Ranks {
    /// Starts MPI, if this program was built with it.
    #[cfg(feature = "mpi")]
    pub fn start() -> Result<Ranks, String> {
        use crate::output;
        use retrograd::distributed::{Communicator, Mpi};
        let mpi = Mpi::start().map_err(|e| format!("cannot start MPI: {e}"))?;
        let mpi = Arc::new(mpi);
        let ranks = Ranks { local: mpi.local_size(), comm: mpi.clone() };
        if mpi.size() == 1 {
            // Ends MPI at once: nothing waits for this process.
            return Ok(Ranks::alone());
        }
        if mpi.rank() > 0 {
            output::silence();
        }
        // The other ranks would wait for one that has panicked.
        let (hook, rank) = (std::panic::take_hook(), mpi.rank());
        std::panic::set_hook(Box::new(move |panic| {
            output::fault(&format!("error: rank {rank} panicked"));
            hook(panic);
            Mpi::abort(101);
        }));
        Ok(ranks)
    }

    /// This process alone: the program was built without MPI.
    #[cfg(not(feature = "mpi"))]
    pub fn start() -> Result<Ranks, String> {
        Ok(Ranks::alone())
    }

    /// This process without the others.
    pub fn alone() -> Ranks {
        Ranks { comm: Arc::new(Local::group(1).remove(0)), local: 1 }
    }

    /// For the parts of a run that exchange data.
    #[allow(dead_code, reason = "not all examples divide a run among ranks")]
    pub fn comm(&self) -> Arc<dyn Collectives<f32>> {
        self.comm.clone()
    }

    pub fn count(&self) -> usize {
        self.comm.size()
    }

    pub fn rank(&self) -> usize {
        self.comm.rank()
    }

    /// Whether this is rank 0, which writes files and prints.
    pub fn is_first(&self) -> bool {
        self.rank() == 0
    }

    /// The number of threads of this rank: `asked`, or its share of the cores of this machine.
    pub fn threads(&self, asked: Option<u64>) -> usize {
        let cores = || std::thread::available_parallelism().map_or(1, |n| n.get());
        asked.map_or_else(|| (cores() / self.local).max(1), |n| n as usize)
    }

    /// What each rank gives, in their order.
    pub fn share<X: Clone + Serialize + DeserializeOwned>(&self, mine: &X) -> Vec<X> {
        if self.count() == 1 {
            return vec![mine.clone()];
        }
        let json = serde_json::to_vec(mine).expect("has a JSON form");
        let all = self.comm.all_gather_bytes(&json);
        all.iter().map(|json| serde_json::from_slice(json).expect("written by a rank")).collect()
    }
}
