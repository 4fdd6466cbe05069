//! The processes of a program: one, or those that `mpiexec` started; and what they agree on.

use crate::stop::{Result, Stop, usage};
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
    pub fn start() -> Result<Ranks> {
        use crate::output;
        use crate::stop::OrFailed;
        use retrograd::distributed::{Communicator, Mpi};
        let mpi = Arc::new(Mpi::start().or_failed("cannot start MPI")?);
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
    pub fn start() -> Result<Ranks> {
        Ok(Ranks::alone())
    }

    /// This process without the others.
    pub fn alone() -> Ranks {
        Ranks { comm: Arc::new(Local::group(1).remove(0)), local: 1 }
    }

    /// For the parts of a run that exchange data.
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
    pub fn threads(&self, asked: Option<usize>) -> usize {
        let cores = || std::thread::available_parallelism().map_or(1, |n| n.get());
        asked.unwrap_or_else(|| (cores() / self.local).max(1))
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

    /// The result of this rank if all ranks have one, else an error on all of them. An error that several
    /// ranks have is printed by the lowest of them.
    pub fn agree<X>(&self, result: Result<X>) -> Result<X> {
        let all = self.share(&result.as_ref().err().cloned());
        self.common_error(&all).map_or(result, Err)
    }

    /// The error that this rank ends with, given the errors of all ranks.
    pub fn common_error(&self, all: &[Option<Stop>]) -> Option<Stop> {
        let first = all.iter().flatten().next()?;
        let (before, mine) = (&all[..self.rank()], &all[self.rank()]);
        Some(match mine {
            Some(_) if before.contains(mine) => Stop::printed(first.code),
            Some(stop) if stop.text.is_empty() || self.is_first() => stop.clone(),
            Some(Stop { code, text }) => {
                Stop { code: *code, text: format!("rank {}: {text}", self.rank()) }
            }
            None => Stop::printed(first.code),
        })
    }

    /// Checks that all ranks have the same as rank 0.
    ///
    /// # Errors
    /// On all ranks; it names the first rank that differs, and in what.
    pub fn check_same(&self, mine: &[(&str, String)]) -> Result<()> {
        let json = serde_json::to_vec(mine).expect("has a JSON form");
        match difference(&self.comm.all_gather_bytes(&json)) {
            None => Ok(()),
            Some(_) if !self.is_first() => Err(Stop::printed(2)),
            Some((rank, what)) => usage(format!(
                "rank {rank} differs from rank 0 in {what}\nAll ranks must run the same program with the same flags \
                 and texts."
            )),
        }
    }
}

/// The first rank that differs from rank 0, and in what, given what each rank has sent. Another version of the program
/// may send anything.
pub fn difference(sent: &[Vec<u8>]) -> Option<(usize, String)> {
    let (rank, other) = sent.iter().enumerate().find(|(_, other)| *other != &sent[0])?;
    let read = |json: &[u8]| serde_json::from_slice::<Vec<(String, String)>>(json).ok();
    let rows = read(&sent[0]).zip(read(other));
    let row = rows.and_then(|(a, b)| a.into_iter().zip(b).find(|(a, b)| a != b));
    let what = row.map_or("the program".into(), |((name, first), (_, other))| {
        format!("{name}:\n  rank 0: {first}\n  rank {rank}: {other}")
    });
    Some((rank, what))
}
