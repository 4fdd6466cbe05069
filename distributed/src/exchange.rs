//! The sum of the gradients of all shards of all ranks, bucket by bucket, while backward passes go on.

use crate::communicator::{Collectives, Messages};
use crate::plan::{GradientSum, Plan, Timing};
use crate::tree::{Node, nodes, shards_of, total};
use retrograd_autograd::{Id, pairwise_sum};
use retrograd_nn::Param;
use retrograd_tensor::cost::Cost;
use retrograd_tensor::{Real, Tensor, par};
use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// What the backward pass of a shard reports.
pub struct Message<T: Real> {
    shard: usize,
    /// Parameters, by their indices, whose gradients are complete.
    gradients: Vec<(usize, Tensor<T>)>,
    /// The backward pass has ended.
    end: bool,
}

/// Where the backward pass of a shard sends its gradients. It sends all gradients of a bucket in one message, because
/// a message wakes the receiving thread. It reports the end when it is dropped, so also if the pass panics.
pub struct Reporter<'a, T: Real> {
    plan: &'a Plan<T>,
    shard: usize,
    sender: Sender<Message<T>>,
    index: BTreeMap<Id, usize>,
    /// How many gradients of each bucket are missing.
    missing: Vec<usize>,
    complete: Vec<(usize, Tensor<T>)>,
}

impl<'a, T: Real> Reporter<'a, T> {
    pub fn new(plan: &'a Plan<T>, shard: usize, sender: Sender<Message<T>>) -> Self {
        let index = plan.params.iter().enumerate().map(|(i, (_, param))| (param.id(), i)).collect();
        let missing = plan.buckets.iter().map(Vec::len).collect();
        Reporter { plan, shard, sender, index, missing, complete: Vec::new() }
    }

    pub fn gradient(&mut self, id: Id, gradient: Tensor<T>) {
        // Leaves that are no parameters have gradients, too.
        let Some(&i) = self.index.get(&id) else { return };
        self.complete.push((i, gradient));
        let missing = &mut self.missing[self.plan.bucket_of[i]];
        *missing -= 1;
        if *missing == 0 {
            self.send(false);
        }
    }

    fn send(&mut self, end: bool) {
        let gradients = std::mem::take(&mut self.complete);
        // Nobody receives if the exchange panicked, which is reported when it is joined.
        let _ = self.sender.send(Message { shard: self.shard, gradients, end });
    }
}

impl<T: Real> Drop for Reporter<'_, T> {
    fn drop(&mut self) {
        self.send(true);
    }
}

/// Computes backward passes, and calls its argument from time to time, so that messages travel.
pub type Passes<'p> = dyn FnMut(&mut dyn FnMut()) + 'p;

/// The exchange of a step.
pub struct Exchange<'a, T: Real> {
    plan: &'a Plan<T>,
    comm: &'a dyn Collectives<T>,
    reduction: GradientSum,
    /// The number of shards of all ranks.
    shards: usize,
    /// The first shard of this rank.
    first: usize,
    /// The trainable parameters of each bucket.
    buckets: Vec<Vec<usize>>,
    /// The gradient of each parameter in each shard of this rank.
    gradients: Vec<Vec<Option<Tensor<T>>>>,
    arrived: Vec<Vec<bool>>,
    /// How many shards of this rank may still send each gradient.
    missing: Vec<usize>,
    running: usize,
    /// When the last backward pass of this rank ended.
    end: Option<Instant>,
    timing: Timing,
    buffers: &'a mut Buffers<T>,
}

/// Kept from one step to the next, so that memory is not allocated again.
#[derive(Debug, Default)]
pub struct Buffers<T> {
    receive: Vec<T>,
    packed: Vec<Vec<T>>,
}

impl<T: Real> Buffers<T> {
    /// An empty buffer, and one of `n` elements to be overwritten.
    pub fn of(&mut self, n: usize) -> (&mut Vec<T>, &mut [T]) {
        if self.packed.is_empty() {
            self.packed.push(Vec::new());
        }
        self.packed[0].clear();
        (&mut self.packed[0], received(&mut self.receive, n))
    }
}

fn received<T: Real>(buffer: &mut Vec<T>, n: usize) -> &mut [T] {
    buffer.resize(buffer.len().max(n), T::ZERO);
    &mut buffer[..n]
}

/// Tensors of fewer elements are copied into one message, others are messages without a copy: a message takes
/// the time of copying so many elements.
const LARGE: usize = 8192;

/// Whether a parameter travels in a message of its own.
pub fn is_large(numel: usize) -> bool {
    numel >= LARGE
}

/// What is sent during a step. It is written once, and not moved as long as messages borrow it.
struct Sent<T: Real> {
    /// The sums of shards: of each parameter, the nodes of this rank.
    sums: Vec<Vec<OnceCell<Tensor<T>>>>,
    /// The first message of each bucket to each rank.
    packed: Vec<Vec<OnceCell<Vec<T>>>>,
}

impl<'a, T: Real> Exchange<'a, T> {
    /// `computed`: which shards have a backward pass; the others have a weight of 0.
    pub fn new(
        plan: &'a Plan<T>,
        comm: &'a dyn Collectives<T>,
        reduction: GradientSum,
        computed: &[bool],
        buffers: &'a mut Buffers<T>,
    ) -> Self {
        let shards = computed.len();
        let mine = shards_of(comm.rank(), comm.size(), shards);
        let running = computed[mine.clone()].iter().filter(|&&computed| computed).count();
        let trainable = |&i: &usize| plan.params[i].1.is_trainable();
        let bucket = |bucket: &Vec<usize>| bucket.iter().copied().filter(trainable).collect();
        Exchange {
            plan,
            comm,
            reduction,
            shards,
            first: mine.start,
            buckets: plan.buckets.iter().map(bucket).collect(),
            arrived: vec![vec![false; mine.len()]; plan.params.len()],
            gradients: vec![vec![None; mine.len()]; plan.params.len()],
            missing: vec![running; plan.params.len()],
            running,
            end: (running == 0).then(Instant::now),
            timing: Timing::default(),
            buffers,
        }
    }

    /// Receives gradients until all backward passes of this rank have ended, starts to send each bucket as
    /// soon as it is complete, and waits until all have arrived.
    ///
    /// `passes`: what computes the passes, if this thread is to do it.
    pub fn run(
        mut self,
        messages: Receiver<Message<T>>,
        mut passes: Option<&mut Passes<'_>>,
    ) -> Self {
        let mine = self.nodes_of(self.comm.rank());
        let sent = Sent {
            sums: vec![vec![OnceCell::new(); mine.len()]; self.plan.params.len()],
            packed: vec![vec![OnceCell::new(); self.comm.size()]; self.buckets.len()],
        };
        let mut buffer = std::mem::take(&mut self.buffers.receive);
        let mut rest = Some(received(&mut buffer, self.receive_len()));
        let comm = self.comm;
        comm.messages(&mut |under_way| {
            let mut going = Going {
                exchange: &mut self,
                sent: &sent,
                rest: rest.take().expect("called once"),
                under_way,
                started: 0,
                since: None,
            };
            if let Some(passes) = &mut passes {
                passes(&mut || going.poll(&messages));
            }
            going.follow(&messages);
        });
        self.buffers.receive = buffer;
        let packed = sent.packed.into_iter().flatten().filter_map(OnceCell::into_inner);
        self.buffers.packed.extend(packed);
        self
    }

    fn receive(&mut self, message: Message<T>) {
        let at = message.shard - self.first;
        for (i, gradient) in message.gradients {
            self.gradients[i][at] = Some(gradient);
            self.arrived[i][at] = true;
            self.missing[i] -= 1;
        }
        if message.end {
            self.running -= 1;
            // A parameter without a gradient in this shard.
            for (arrived, missing) in self.arrived.iter().zip(&mut self.missing) {
                *missing -= usize::from(!arrived[at]);
            }
            if self.running == 0 {
                self.end = Some(Instant::now());
            }
        }
    }

    /// The other ranks. Each rank begins with the next one, so that not all send to the same.
    fn others(&self) -> impl Iterator<Item = usize> + use<T> {
        let (rank, ranks) = (self.comm.rank(), self.comm.size());
        (1..ranks).map(move |distance| (rank + distance) % ranks)
    }

    /// The nodes of the tree that a rank sends.
    fn nodes_of(&self, rank: usize) -> Vec<Node> {
        nodes(shards_of(rank, self.comm.size(), self.shards))
    }

    /// The parameters of a bucket that a rank owns.
    fn owned_by(&self, owner: usize, bucket: usize) -> Vec<usize> {
        let bucket = self.buckets[bucket].iter().copied();
        bucket.filter(|&i| self.plan.owner[i] == owner).collect()
    }

    /// The lengths of the messages with some nodes of these parameters. The first has for each node 1 if there
    /// is a gradient, else 0, and then the small tensors. Each large tensor follows in its own.
    fn message_lens(&self, params: &[usize], nodes: usize) -> Vec<usize> {
        let (mut small, mut lens) = (0, vec![0]);
        for numel in params.iter().map(|&i| self.plan.numel(i)) {
            if is_large(numel) {
                lens.extend((0..nodes).map(|_| numel));
            } else {
                small += numel;
            }
        }
        lens[0] = nodes * (params.len() + small);
        lens
    }

    /// How many elements this rank receives.
    fn receive_len(&self) -> usize {
        let rank = self.comm.rank();
        let of_bucket = |bucket: usize| -> usize {
            match self.reduction {
                GradientSum::Ordered => {
                    let owned = self.owned_by(rank, bucket);
                    let of_rank = |other| self.message_lens(&owned, self.nodes_of(other).len());
                    self.others().flat_map(of_rank).sum()
                }
                GradientSum::AllReduce => {
                    self.buckets[bucket].iter().map(|&i| self.plan.numel(i) + 1).sum()
                }
            }
        };
        (0..self.buckets.len()).map(of_bucket).sum()
    }

    /// The sum of the shards of a node.
    fn sum_of(&mut self, i: usize, node: Node) -> Option<Tensor<T>> {
        let shards = node.shards();
        let parts = &mut self.gradients[i][shards.start - self.first..shards.end - self.first];
        pairwise_sum(parts.iter_mut().map(Option::take).collect(), add)
    }

    /// The sums of the parameters that this rank owns, after [`Exchange::run`].
    pub fn sums(mut self) -> (Vec<(Id, Tensor<T>)>, Timing) {
        let start = Instant::now();
        let buffer = std::mem::take(&mut self.buffers.receive);
        let sums = match self.reduction {
            GradientSum::Ordered => self.ordered_sums(&buffer),
            GradientSum::AllReduce => self.all_reduced(&buffer),
        };
        self.buffers.receive = buffer;
        self.timing.total += start.elapsed();
        self.timing.exposed = self.end.map_or(Duration::ZERO, |end| end.elapsed());
        (sums, self.timing)
    }

    fn ordered_sums(&mut self, mut rest: &[T]) -> Vec<(Id, Tensor<T>)> {
        let (plan, shards, rank) = (self.plan, self.shards, self.comm.rank());
        let mine = self.nodes_of(rank);
        let mut all: Vec<(usize, Mutex<Parts<'_, T>>)> = Vec::new();
        for bucket in 0..self.buckets.len() {
            let owned = self.owned_by(rank, bucket);
            let own = |&i| {
                let own = |&node| (node, self.sum_of(i, node).map(Part::Own));
                mine.iter().map(own).collect::<Parts<'_, T>>()
            };
            let mut parts: Vec<_> = owned.iter().map(own).collect();
            for other in self.others().filter(|_| !owned.is_empty()) {
                let nodes = self.nodes_of(other);
                let mut first = take(&mut rest, self.message_lens(&owned, nodes.len())[0]);
                let mut flags = take(&mut first, nodes.len() * owned.len()).iter();
                for (&i, parts) in owned.iter().zip(&mut parts) {
                    let numel = plan.numel(i);
                    for &node in &nodes {
                        let values =
                            take(if is_large(numel) { &mut rest } else { &mut first }, numel);
                        let is_some = *flags.next().expect("one for each node") != T::ZERO;
                        parts.insert(node, is_some.then_some(Part::Received(values)));
                    }
                }
            }
            all.extend(owned.into_iter().zip(parts.into_iter().map(Mutex::new)));
        }
        let elements: usize = all.iter().map(|&(i, _)| plan.numel(i)).sum();
        let sum = |k: usize| {
            let (i, parts) = &all[k];
            let param = &plan.params[*i].1;
            let parts = std::mem::take(&mut *parts.lock().unwrap_or_else(PoisonError::into_inner));
            let sum = total(shards, parts, |a, b| a.add(b, param));
            sum.map(|sum| (param.id(), sum.into_tensor(param)))
        };
        let each = elements.div_ceil(all.len().max(1));
        par::map(all.len(), each, Cost::CHEAP, sum).into_iter().flatten().collect()
    }

    fn all_reduced(&self, mut rest: &[T]) -> Vec<(Id, Tensor<T>)> {
        let mut sums = Vec::new();
        for &i in self.buckets.iter().flatten() {
            let param = &self.plan.params[i].1;
            let is_some = take(&mut rest, 1)[0] != T::ZERO;
            let sum = take(&mut rest, self.plan.numel(i));
            if is_some && self.plan.owner[i] == self.comm.rank() {
                sums.push((param.id(), Part::Received(sum).into_tensor(param)));
            }
        }
        sums
    }
}

/// The first `n` elements, which are removed from the slice.
fn take<'a, T>(rest: &mut &'a [T], n: usize) -> &'a [T] {
    rest.split_off(..n).expect("as long as all messages")
}

/// An exchange whose messages are under way.
struct Going<'g, 'e, 'a, T: Real> {
    exchange: &'g mut Exchange<'e, T>,
    sent: &'a Sent<T>,
    /// Where the next messages go.
    rest: &'a mut [T],
    under_way: &'g mut dyn Messages<'a, T>,
    /// How many buckets have been started.
    started: usize,
    /// Since when messages are under way, if some are.
    since: Option<Instant>,
}

impl<'a, T: Real> Going<'_, '_, 'a, T> {
    /// Takes what backward passes have reported, without waiting for it.
    fn poll(&mut self, messages: &Receiver<Message<T>>) {
        while let Ok(message) = messages.try_recv() {
            self.exchange.receive(message);
        }
        self.start_complete();
        self.progress();
    }

    /// Waits for the rest of the passes, and until all messages have arrived.
    fn follow(&mut self, messages: &Receiver<Message<T>>) {
        // Between looks at messages that are under way: the passes need the core.
        const PAUSE: Duration = Duration::from_micros(200);
        self.start_complete();
        while self.started < self.exchange.buckets.len() {
            let pause = if self.since.is_some() { PAUSE } else { Duration::MAX };
            match messages.recv_timeout(pause) {
                Ok(message) => self.exchange.receive(message),
                Err(RecvTimeoutError::Timeout) => {}
                // A pass has panicked, and others were not begun. Other ranks must not wait for them.
                Err(RecvTimeoutError::Disconnected) => self.exchange.missing.fill(0),
            }
            self.poll(messages);
        }
        // The ends of passes whose gradients are all here.
        while self.exchange.running > 0 {
            let Ok(message) = messages.recv() else { break };
            self.exchange.receive(message);
        }
        self.under_way.wait();
        self.progress();
    }

    fn progress(&mut self) {
        if self.under_way.progress()
            && let Some(since) = self.since.take()
        {
            self.exchange.timing.total += since.elapsed();
        }
    }

    /// Starts to exchange the buckets that are complete.
    fn start_complete(&mut self) {
        while let Some(bucket) = self.exchange.buckets.get(self.started)
            && bucket.iter().all(|&i| self.exchange.missing[i] == 0)
        {
            self.since.get_or_insert_with(Instant::now);
            match self.exchange.reduction {
                GradientSum::Ordered => self.start_ordered(self.started),
                GradientSum::AllReduce => self.start_all_reduce(self.started),
            }
            self.started += 1;
        }
    }

    /// Every rank sends nodes of the tree to the owner of each parameter, which will complete the sum.
    fn start_ordered(&mut self, bucket: usize) {
        let rank = self.exchange.comm.rank();
        let mine = self.exchange.nodes_of(rank);
        let owned = self.exchange.owned_by(rank, bucket);
        for other in self.exchange.others() {
            if !owned.is_empty() {
                let nodes = self.exchange.nodes_of(other).len();
                for len in self.exchange.message_lens(&owned, nodes) {
                    let place = self.rest.split_off_mut(..len).expect("room for all messages");
                    self.under_way.receive(place, other);
                }
            }
        }
        for other in self.exchange.others() {
            let params = self.exchange.owned_by(other, bucket);
            if params.is_empty() {
                continue;
            }
            for (&i, cells) in params.iter().map(|i| (i, &self.sent.sums[*i])) {
                for (cell, &node) in cells.iter().zip(&mine) {
                    if let Some(sum) = self.exchange.sum_of(i, node) {
                        cell.get_or_init(|| sum.contiguous());
                    }
                }
            }
            let sums = |&i: &usize| {
                let numel = self.exchange.plan.numel(i);
                self.sent.sums[i].iter().map(move |cell| (cell.get(), numel))
            };
            let mut packed = self.exchange.buffers.packed.pop().unwrap_or_default();
            packed.clear();
            for (sum, _) in params.iter().flat_map(sums) {
                packed.push(if sum.is_some() { T::ONE } else { T::ZERO });
            }
            for (sum, numel) in params.iter().flat_map(sums).filter(|&(_, n)| !is_large(n)) {
                push(&mut packed, sum, numel);
            }
            self.send(self.sent.packed[bucket][other].get_or_init(|| packed), other);
            for (sum, _) in params.iter().flat_map(sums).filter(|&(_, n)| is_large(n)) {
                // The place of a gradient that does not exist stays as it is.
                self.send(sum.map_or(&[], Tensor::as_slice), other);
            }
        }
    }

    fn send(&mut self, data: &'a [T], to: usize) {
        self.exchange.timing.bytes += size_of_val(data);
        self.under_way.send(data, to);
    }

    /// MPI's own sum. Every rank receives all of it.
    fn start_all_reduce(&mut self, bucket: usize) {
        let mut packed = self.exchange.buffers.packed.pop().unwrap_or_default();
        packed.clear();
        for i in self.exchange.buckets[bucket].clone() {
            let parts = self.exchange.gradients[i].iter_mut().map(Option::take);
            let sum = pairwise_sum(parts.collect(), add).map(|sum| sum.contiguous());
            packed.push(if sum.is_some() { T::ONE } else { T::ZERO });
            push(&mut packed, sum.as_ref(), self.exchange.plan.numel(i));
        }
        let packed = self.sent.packed[bucket][0].get_or_init(|| packed);
        self.exchange.timing.bytes += size_of_val(&packed[..]);
        let place = self.rest.split_off_mut(..packed.len()).expect("room for all messages");
        self.under_way.all_reduce(packed, place);
    }
}

fn add<T: Real>(mut a: Tensor<T>, b: Tensor<T>) -> Tensor<T> {
    a.add_assign(&b);
    a
}

/// A sum of shards, here or where it was received.
enum Part<'a, T: Real> {
    Own(Tensor<T>),
    Received(&'a [T]),
}

/// The sums of all nodes for a parameter.
type Parts<'a, T> = BTreeMap<Node, Option<Part<'a, T>>>;

impl<T: Real> Part<'_, T> {
    fn add(self, other: Self, param: &Param<T>) -> Self {
        match (self, other) {
            (Part::Own(a), Part::Own(b)) => Part::Own(add(a, b)),
            // The order of two terms does not change a sum.
            (Part::Own(mut sum), Part::Received(x)) | (Part::Received(x), Part::Own(mut sum)) => {
                sum.make_mut().iter_mut().zip(x).for_each(|(sum, &x)| *sum += x);
                Part::Own(sum)
            }
            (a, b) => Part::Own(a.into_tensor(param)).add(b, param),
        }
    }

    fn into_tensor(self, param: &Param<T>) -> Tensor<T> {
        match self {
            Part::Own(tensor) => tensor,
            Part::Received(values) => {
                let mut tensor = Tensor::zeros(param.shape());
                tensor.make_mut().copy_from_slice(values);
                tensor
            }
        }
    }
}

/// Appends the elements of a contiguous tensor, or zeros.
fn push<T: Real>(buffer: &mut Vec<T>, tensor: Option<&Tensor<T>>, numel: usize) {
    match tensor {
        Some(tensor) => buffer.extend_from_slice(tensor.as_slice()),
        None => buffer.resize(buffer.len() + numel, T::ZERO),
    }
}
