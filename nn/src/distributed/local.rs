//! Ranks that are threads of one process.

use super::communicator::{Collectives, Communicator};
use retrograd_tensor::Real;
use std::any::Any;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

/// A rank of a group of threads in one process: for tests, and to see what ranks do without MPI.
///
/// ```
/// use retrograd_nn::distributed::{Communicator, Local};
/// use std::thread;
///
/// let gathered = thread::scope(|scope| {
///     let ranks = Local::group(2).into_iter();
///     let threads = ranks.map(|rank| scope.spawn(move || rank.all_gather_bytes(&[rank.rank() as u8 + 7])));
///     let threads: Vec<_> = threads.collect();
///     threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
/// });
/// assert_eq!(gathered, [[[7], [8]], [[7], [8]]]);
/// ```
#[derive(Debug)]
pub struct Local {
    rank: usize,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// What each rank gives in the current operation.
    given: Vec<Mutex<Option<Box<dyn Any + Send>>>>,
    meeting: Mutex<Meeting>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Meeting {
    arrived: usize,
    number: u64,
    /// A rank has ended before the others.
    broken: bool,
}

impl Local {
    /// All ranks of a group of `size`.
    ///
    /// ```
    /// # use retrograd_nn::distributed::{Communicator, Local};
    /// let ranks = Local::group(3);
    /// assert_eq!((ranks[2].rank(), ranks[2].size()), (2, 3));
    /// ```
    pub fn group(size: usize) -> Vec<Local> {
        let shared = Arc::new(Shared {
            given: (0..size).map(|_| Mutex::new(None)).collect(),
            meeting: Mutex::default(),
            changed: Condvar::new(),
        });
        (0..size).map(|rank| Local { rank, shared: shared.clone() }).collect()
    }

    /// Waits until all ranks are here.
    ///
    /// # Panics
    /// If a rank panicked.
    fn meet(&self) {
        let mut meeting = self.shared.meeting.lock().unwrap_or_else(PoisonError::into_inner);
        meeting.arrived += 1;
        if meeting.arrived == self.size() {
            (meeting.arrived, meeting.number) = (0, meeting.number + 1);
            self.shared.changed.notify_all();
            return;
        }
        let number = meeting.number;
        while meeting.number == number {
            if meeting.broken {
                drop(meeting);
                panic!("rank {}: another rank panicked", self.rank);
            }
            let changed = self.shared.changed.wait(meeting);
            meeting = changed.unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Gives `mine` and passes what each rank gave to `take`, in order.
    fn exchange<X: Send + 'static>(&self, mine: X, mut take: impl FnMut(usize, &X)) {
        let slot =
            |rank: usize| self.shared.given[rank].lock().unwrap_or_else(PoisonError::into_inner);
        *slot(self.rank) = Some(Box::new(mine));
        self.meet();
        for rank in 0..self.size() {
            let given = slot(rank);
            let given = given.as_ref().and_then(|x| x.downcast_ref());
            take(rank, given.expect("all ranks call the same method"));
        }
        self.meet();
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.shared.meeting.lock().unwrap_or_else(PoisonError::into_inner).broken = true;
            self.shared.changed.notify_all();
        }
    }
}

impl Communicator for Local {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.shared.given.len()
    }

    fn all_gather_bytes(&self, mine: &[u8]) -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        self.exchange(mine.to_vec(), |_, given| all.push(given.clone()));
        all
    }
}

impl<T: Real> Collectives<T> for Local {
    fn all_to_all(
        &self,
        send: &[T],
        send_counts: &[usize],
        receive: &mut [T],
        receive_counts: &[usize],
    ) {
        let mut rest = receive;
        self.exchange((send.to_vec(), send_counts.to_vec()), |rank, (send, counts)| {
            assert_eq!(counts[self.rank], receive_counts[rank], "counts of two ranks must match");
            let begin: usize = counts[..self.rank].iter().sum();
            let (here, after) = std::mem::take(&mut rest).split_at_mut(receive_counts[rank]);
            here.copy_from_slice(&send[begin..begin + counts[self.rank]]);
            rest = after;
        });
    }

    fn all_gather(&self, send: &[T], receive: &mut [T], counts: &[usize]) {
        let mut rest = receive;
        self.exchange(send.to_vec(), |rank, send| {
            let (here, after) = std::mem::take(&mut rest).split_at_mut(counts[rank]);
            here.copy_from_slice(send);
            rest = after;
        });
    }

    fn gather(&self, send: &[T], receive: &mut [T], counts: &[usize]) {
        let mut rest = receive;
        self.exchange(send.to_vec(), |rank, send| {
            if self.rank == 0 {
                let (here, after) = std::mem::take(&mut rest).split_at_mut(counts[rank]);
                here.copy_from_slice(send);
                rest = after;
            }
        });
    }

    fn all_reduce(&self, send: &[T], receive: &mut [T]) {
        self.exchange(send.to_vec(), |rank, send| {
            for (sum, &x) in receive.iter_mut().zip(send) {
                *sum = if rank == 0 { x } else { *sum + x };
            }
        });
    }
}
