//! The sum of the gradients of all shards of all ranks, bucket by bucket, while backward passes go on.

use super::communicator::Collectives;
use super::data_parallel::{Reduction, Timing};
use super::plan::Plan;
use super::tree::{Node, nodes, shards_of, total};
use crate::param::Param;
use retrograd_autograd::{Id, pairwise_sum};
use retrograd_tensor::{Real, Tensor};
use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, Sender};
use std::time::Instant;

/// What the backward pass of a shard reports.
pub struct Message<T: Real> {
    shard: usize,
    /// Parameters, by their indices, whose gradients are complete.
    gradients: Vec<(usize, Tensor<T>)>,
    /// The backward pass has ended.
    end: bool,
}

/// Where the backward pass of a shard sends its gradients. It sends those of a bucket in one message, because
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

/// The exchange of a step.
pub struct Exchange<'a, T: Real> {
    plan: &'a Plan<T>,
    comm: &'a dyn Collectives<T>,
    reduction: Reduction,
    /// The number of shards of all ranks.
    shards: usize,
    /// The first shard of this rank.
    first: usize,
    trainable: Vec<bool>,
    /// The gradient of each parameter in each shard of this rank.
    gradients: Vec<Vec<Option<Tensor<T>>>>,
    arrived: Vec<Vec<bool>>,
    /// How many shards of this rank may still send each gradient.
    missing: Vec<usize>,
    running: usize,
    buffers: &'a mut Buffers<T>,
}

/// What is sent and received, kept from one step to the next.
#[derive(Debug, Default)]
pub struct Buffers<T> {
    pub send: Vec<T>,
    pub receive: Vec<T>,
}

impl<T: Real> Buffers<T> {
    /// The buffers, empty to be filled and with `n` elements to be overwritten.
    pub fn of(&mut self, n: usize) -> (&mut Vec<T>, &mut [T]) {
        self.send.clear();
        self.receive.resize(self.receive.len().max(n), T::ZERO);
        (&mut self.send, &mut self.receive[..n])
    }
}

impl<'a, T: Real> Exchange<'a, T> {
    /// `computed`: which shards have a backward pass; the others have a weight of 0.
    pub fn new(
        plan: &'a Plan<T>,
        comm: &'a dyn Collectives<T>,
        reduction: Reduction,
        computed: &[bool],
        buffers: &'a mut Buffers<T>,
    ) -> Self {
        let shards = computed.len();
        let mine = shards_of(comm.rank(), comm.size(), shards);
        let running = computed[mine.clone()].iter().filter(|&&computed| computed).count();
        Exchange {
            plan,
            comm,
            reduction,
            shards,
            first: mine.start,
            trainable: plan.params.iter().map(|(_, p)| p.is_trainable()).collect(),
            arrived: vec![vec![false; mine.len()]; plan.params.len()],
            gradients: vec![vec![None; mine.len()]; plan.params.len()],
            missing: vec![running; plan.params.len()],
            running,
            buffers,
        }
    }

    /// Receives gradients until all backward passes of this rank have ended, and exchanges each bucket as
    /// soon as it is complete. Returns the sums of the parameters that this rank owns.
    pub fn run(mut self, messages: Receiver<Message<T>>) -> (Vec<(Id, Tensor<T>)>, Timing) {
        let (mut sums, mut timing) = (Vec::new(), Timing::default());
        let plan = self.plan;
        let mut end = None;
        for bucket in &plan.buckets {
            let bucket: Vec<usize> =
                bucket.iter().copied().filter(|&i| self.trainable[i]).collect();
            while bucket.iter().any(|&i| self.missing[i] > 0) {
                let message = messages.recv().expect("a backward pass reports its end");
                self.receive(message);
            }
            while let Ok(message) = messages.try_recv() {
                self.receive(message);
            }
            if self.running == 0 && end.is_none() {
                end = Some(Instant::now());
            }
            self.comm.set_busy(self.running > 0);
            let start = Instant::now();
            timing.bytes += self.exchange(&bucket, &mut sums);
            timing.total += start.elapsed();
            if let Some(end) = end {
                timing.exposed += start.max(end).elapsed();
            }
        }
        self.comm.set_busy(false);
        (sums, timing)
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
        }
    }

    /// Exchanges a bucket; returns the number of bytes that this rank sent to others.
    fn exchange(&mut self, bucket: &[usize], sums: &mut Vec<(Id, Tensor<T>)>) -> usize {
        match self.reduction {
            Reduction::Ordered => self.ordered(bucket, sums),
            Reduction::AllReduce => self.all_reduce(bucket, sums),
        }
    }

    /// Every rank sends nodes of the tree to the owner of each parameter, which completes the sum.
    fn ordered(&mut self, bucket: &[usize], sums: &mut Vec<(Id, Tensor<T>)>) -> usize {
        let (plan, rank, ranks) = (self.plan, self.comm.rank(), self.comm.size());
        let of_rank = |rank| nodes(shards_of(rank, ranks, self.shards));
        let owned_by = |owner| bucket.iter().copied().filter(move |&i| plan.owner[i] == owner);
        let elements: usize = owned_by(rank).map(|i| plan.numel(i) + 1).sum();
        let others = |count: &dyn Fn(usize) -> usize| -> Vec<usize> {
            (0..ranks).map(|other| if other == rank { 0 } else { count(other) }).collect()
        };
        let counts = others(&|other| of_rank(other).len() * elements);
        let (send, receive) = self.buffers.of(counts.iter().sum());
        let (first, mine) = (self.first, of_rank(rank));
        let gradients = &mut self.gradients;
        let mut sum_of = |i: usize, node: &Node| {
            let shards = node.shards();
            let parts = &mut gradients[i][shards.start - first..shards.end - first];
            pairwise_sum(parts.iter_mut().map(Option::take).collect(), add)
        };
        let mut send_counts = vec![0; ranks];
        for other in (0..ranks).filter(|&other| other != rank) {
            let before = send.len();
            for i in owned_by(other) {
                mine.iter().for_each(|node| push(send, sum_of(i, node), plan.numel(i)));
            }
            send_counts[other] = send.len() - before;
        }
        self.comm.all_to_all(send, &send_counts, receive, &counts);

        let owned: Vec<usize> = owned_by(rank).collect();
        let own = |&i: &usize| {
            let sums = mine.iter().map(|&node| (node, sum_of(i, &node).map(Part::Own)));
            sums.collect::<BTreeMap<_, _>>()
        };
        let mut parts: Vec<BTreeMap<Node, Option<Part<'_, T>>>> = owned.iter().map(own).collect();
        let mut rest = &*receive;
        for other in (0..ranks).filter(|&other| other != rank) {
            let nodes = of_rank(other);
            for (&i, parts) in owned.iter().zip(&mut parts) {
                for &node in &nodes {
                    parts.insert(node, pull(&mut rest, plan.numel(i)).map(Part::Received));
                }
            }
        }
        for (&i, parts) in owned.iter().zip(parts) {
            let param = &plan.params[i].1;
            let sum = total(self.shards, parts, |a, b| a.add(b, param));
            sums.extend(sum.map(|sum| (param.id(), sum.into_tensor(param))));
        }
        send.len() * size_of::<T>()
    }

    /// MPI's own sum. Every rank receives all of it.
    fn all_reduce(&mut self, bucket: &[usize], sums: &mut Vec<(Id, Tensor<T>)>) -> usize {
        let plan = self.plan;
        let elements = bucket.iter().map(|&i| plan.numel(i) + 1).sum();
        let (send, receive) = self.buffers.of(elements);
        for &i in bucket {
            let parts = self.gradients[i].iter_mut().map(Option::take);
            let sum = pairwise_sum(parts.collect(), add);
            push(send, sum, plan.numel(i));
        }
        self.comm.all_reduce(send, receive);
        let mut rest = &receive[..];
        for &i in bucket {
            let (sum, param) = (pull(&mut rest, plan.numel(i)), &plan.params[i].1);
            if plan.owner[i] == self.comm.rank() {
                sums.extend(sum.map(|sum| (param.id(), Part::Received(sum).into_tensor(param))));
            }
        }
        send.len() * size_of::<T>()
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

/// Appends whether there is a gradient, and its elements, zeros if there is none.
fn push<T: Real>(buffer: &mut Vec<T>, gradient: Option<Tensor<T>>, numel: usize) {
    match gradient {
        Some(gradient) => {
            buffer.push(T::ONE);
            buffer.extend_from_slice(gradient.contiguous().as_slice());
        }
        None => buffer.resize(buffer.len() + 1 + numel, T::ZERO),
    }
}

/// The inverse of [`push`].
fn pull<'a, T: Real>(buffer: &mut &'a [T], numel: usize) -> Option<&'a [T]> {
    let (flag, rest) = buffer.split_first().expect("a flag");
    let (values, rest) = rest.split_at(numel);
    *buffer = rest;
    (*flag != T::ZERO).then_some(values)
}
