//! Ranks that are threads of one process.

use crate::communicator::{Calls, Collectives, Communicator, Messages};
use retrograd_tensor::Real;
use std::any::Any;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// A rank of a group of threads in one process: for tests, and to see what ranks do without MPI.
///
/// ```
/// use retrograd::distributed::{Communicator, Local};
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
    /// What was sent and not yet received, by sender and receiver.
    sent: BTreeMap<(usize, usize), VecDeque<Box<dyn Any + Send>>>,
    arrived: usize,
    number: u64,
    /// What each rank has called.
    calls: Vec<Calls>,
    /// Which ranks have left.
    left: Vec<bool>,
    /// Why no rank can go on.
    broken: Option<String>,
}

impl Local {
    /// All ranks of a group of `size`.
    pub fn group(size: usize) -> Vec<Local> {
        let shared = Arc::new(Shared {
            given: (0..size).map(|_| Mutex::new(None)).collect(),
            meeting: Mutex::new(Meeting {
                calls: vec![Calls::default(); size],
                left: vec![false; size],
                ..Meeting::default()
            }),
            changed: Condvar::new(),
        });
        (0..size).map(|rank| Local { rank, shared: shared.clone() }).collect()
    }

    fn meeting(&self) -> MutexGuard<'_, Meeting> {
        self.shared.meeting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a method that exchanges data.
    fn enter(&self, method: &'static str) {
        let mut meeting = self.meeting();
        meeting.calls[self.rank].enter(method);
        let mine = &meeting.calls[self.rank];
        let differs = |other: &Calls| other.count == mine.count && other.last != mine.last;
        if let Some(other) = meeting.calls.iter().position(differs) {
            let is_in = |rank: usize| {
                let calls = &meeting.calls[rank];
                format!("rank {rank} in {calls} ({})", calls.last[1])
            };
            let error = format!("ranks differ: {}, {}", is_in(self.rank), is_in(other));
            self.fail(meeting, Some(error));
        }
    }

    /// # Panics
    /// With the first error of the group.
    fn fail(&self, mut meeting: MutexGuard<'_, Meeting>, error: Option<String>) -> ! {
        let first = meeting.broken.clone().or(error).expect("an error");
        let text = format!("rank {} waits in {}: {first}", self.rank, meeting.calls[self.rank]);
        meeting.broken = Some(first);
        drop(meeting);
        self.shared.changed.notify_all();
        panic!("{text}")
    }

    /// Waits for a change.
    ///
    /// # Panics
    /// If a rank panicked, or left before the call that this one waits in.
    fn wait<'a>(&self, meeting: MutexGuard<'a, Meeting>) -> MutexGuard<'a, Meeting> {
        let count = meeting.calls[self.rank].count;
        let has_left = |&rank: &usize| meeting.left[rank] && meeting.calls[rank].count < count;
        let left = (0..self.size()).find(has_left).map(|rank| meeting.calls[rank].left(rank));
        if left.is_some() || meeting.broken.is_some() {
            self.fail(meeting, left);
        }
        self.shared.changed.wait(meeting).unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until all ranks are here.
    fn meet(&self) {
        let mut meeting = self.meeting();
        meeting.arrived += 1;
        if meeting.arrived == self.size() {
            (meeting.arrived, meeting.number) = (0, meeting.number + 1);
            self.shared.changed.notify_all();
            return;
        }
        let number = meeting.number;
        while meeting.number == number {
            meeting = self.wait(meeting);
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

    fn sum<T: Real>(&self, send: &[T], receive: &mut [T]) {
        self.exchange(send.to_vec(), |rank, send| {
            for (sum, &x) in receive.iter_mut().zip(send) {
                *sum = if rank == 0 { x } else { *sum + x };
            }
        });
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        let mut meeting = self.meeting();
        meeting.left[self.rank] = true;
        if std::thread::panicking() {
            let calls = &meeting.calls[self.rank];
            let error = format!("another rank panicked: rank {}, in {calls}", self.rank);
            meeting.broken.get_or_insert(error);
        }
        self.shared.changed.notify_all();
    }
}

impl Communicator for Local {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.shared.given.len()
    }

    fn begin(&self, operation: &'static str) {
        self.meeting().calls[self.rank].begin(operation);
    }

    fn all_gather_bytes(&self, mine: &[u8]) -> Vec<Vec<u8>> {
        self.enter("all_gather_bytes");
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
        mut receive: &mut [T],
        receive_counts: &[usize],
    ) {
        self.enter("all_to_all");
        self.exchange((send.to_vec(), send_counts.to_vec()), |rank, (send, counts)| {
            assert_eq!(counts[self.rank], receive_counts[rank], "counts of two ranks must match");
            let begin: usize = counts[..self.rank].iter().sum();
            let here = receive.split_off_mut(..receive_counts[rank]).expect("room for all ranks");
            here.copy_from_slice(&send[begin..begin + counts[self.rank]]);
        });
    }

    fn all_gather(&self, send: &[T], mut receive: &mut [T], counts: &[usize]) {
        self.enter("all_gather");
        self.exchange(send.to_vec(), |rank, send| {
            let here = receive.split_off_mut(..counts[rank]).expect("room for all ranks");
            here.copy_from_slice(send);
        });
    }

    fn gather(&self, send: &[T], mut receive: &mut [T], counts: &[usize]) {
        self.enter("gather");
        self.exchange(send.to_vec(), |rank, send| {
            if self.rank == 0 {
                let here = receive.split_off_mut(..counts[rank]).expect("room for all ranks");
                here.copy_from_slice(send);
            }
        });
    }

    fn all_reduce(&self, send: &[T], receive: &mut [T]) {
        self.enter("all_reduce");
        self.sum(send, receive);
    }

    fn messages<'a>(&self, f: &mut dyn FnMut(&mut dyn Messages<'a, T>)) {
        self.enter("messages");
        let mut messages = Expected { local: self, receive: VecDeque::new() };
        f(&mut messages);
        messages.wait();
    }
}

/// Messages that have not been received yet: where to, and who sends them.
struct Expected<'l, 'a, T> {
    local: &'l Local,
    receive: VecDeque<(&'a mut [T], usize)>,
}

impl<T: Real> Expected<'_, '_, T> {
    /// Receives what has been sent.
    fn take(&mut self, meeting: &mut Meeting) -> bool {
        while let Some((data, from)) = self.receive.pop_front() {
            let sent = meeting.sent.get_mut(&(from, self.local.rank)).and_then(VecDeque::pop_front);
            let Some(sent) = sent else {
                self.receive.push_front((data, from));
                return false;
            };
            let sent: &Vec<T> = sent.downcast_ref().expect("ranks agree on the type");
            data[..sent.len()].copy_from_slice(sent);
        }
        true
    }
}

impl<'a, T: Real> Messages<'a, T> for Expected<'_, 'a, T> {
    fn send(&mut self, data: &'a [T], to: usize) {
        let mut meeting = self.local.meeting();
        let between = meeting.sent.entry((self.local.rank, to)).or_default();
        between.push_back(Box::new(data.to_vec()));
        self.local.shared.changed.notify_all();
    }

    fn receive(&mut self, data: &'a mut [T], from: usize) {
        self.receive.push_back((data, from));
    }

    fn all_reduce(&mut self, send: &'a [T], receive: &'a mut [T]) {
        self.local.sum(send, receive);
    }

    fn progress(&mut self) -> bool {
        let local = self.local;
        self.take(&mut local.meeting())
    }

    fn wait(&mut self) {
        let local = self.local;
        let mut meeting = local.meeting();
        while !self.take(&mut meeting) {
            meeting = local.wait(meeting);
        }
    }
}
