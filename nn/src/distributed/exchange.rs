//! The sum of the gradients of all shards of all ranks, bucket by bucket, while backward passes go on.

use super::communicator::Collectives;
use super::data_parallel::{Reduction, Timing};
use super::plan::Plan;
use super::tree::{Node, nodes, shards_of, total};
use retrograd_autograd::{Id, pairwise_sum};
use retrograd_tensor::{Real, Tensor};
use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, Sender};
use std::time::Instant;

/// What the backward pass of a shard reports.
pub enum Message<T: Real> {
    /// The gradient of a parameter is complete.
    Gradient { shard: usize, id: Id, gradient: Tensor<T> },
    /// The backward pass has ended.
    End { shard: usize },
}

/// Where the backward pass of a shard sends its gradients. It reports the end when it is dropped, so also if
/// the pass panics.
pub struct Reporter<T: Real> {
    pub shard: usize,
    pub sender: Sender<Message<T>>,
}

impl<T: Real> Reporter<T> {
    pub fn gradient(&self, id: Id, gradient: Tensor<T>) {
        // Nobody receives if the exchange panicked, which is reported when it is joined.
        let _ = self.sender.send(Message::Gradient { shard: self.shard, id, gradient });
    }
}

impl<T: Real> Drop for Reporter<T> {
    fn drop(&mut self) {
        let _ = self.sender.send(Message::End { shard: self.shard });
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
    index: BTreeMap<Id, usize>,
    /// The gradient of each parameter in each shard of this rank.
    gradients: Vec<Vec<Option<Tensor<T>>>>,
    /// How many shards of this rank may still send each gradient.
    missing: Vec<usize>,
    running: usize,
}

impl<'a, T: Real> Exchange<'a, T> {
    /// `computed`: which shards have a backward pass; the others have a weight of 0.
    pub fn new(
        plan: &'a Plan<T>,
        comm: &'a dyn Collectives<T>,
        reduction: Reduction,
        computed: &[bool],
    ) -> Self {
        let shards = computed.len();
        let mine = shards_of(comm.rank(), comm.size(), shards);
        let running = computed[mine.clone()].iter().filter(|&&computed| computed).count();
        let ids = plan.params.iter().enumerate();
        Exchange {
            plan,
            comm,
            reduction,
            shards,
            first: mine.start,
            trainable: plan.params.iter().map(|(_, p)| p.is_trainable()).collect(),
            index: ids.map(|(i, (_, param))| (param.id(), i)).collect(),
            gradients: vec![vec![None; mine.len()]; plan.params.len()],
            missing: vec![running; plan.params.len()],
            running,
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
            let start = Instant::now();
            timing.bytes += self.exchange(&bucket, &mut sums);
            timing.total += start.elapsed();
            if let Some(end) = end {
                timing.exposed += start.max(end).elapsed();
            }
        }
        (sums, timing)
    }

    fn receive(&mut self, message: Message<T>) {
        match message {
            Message::Gradient { shard, id, gradient } => {
                // Leaves that are no parameters have gradients, too.
                if let Some(&i) = self.index.get(&id) {
                    self.gradients[i][shard - self.first] = Some(gradient);
                    self.missing[i] -= 1;
                }
            }
            Message::End { shard } => {
                self.running -= 1;
                // A parameter without a gradient in this shard.
                for (gradients, missing) in self.gradients.iter().zip(&mut self.missing) {
                    *missing -=
                        usize::from(gradients[shard - self.first].is_none() && *missing > 0);
                }
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
        let mine = of_rank(rank);
        let (mut send, mut send_counts) = (Vec::new(), vec![0; ranks]);
        for owner in 0..ranks {
            let before = send.len();
            for &i in bucket.iter().filter(|&&i| plan.owner[i] == owner) {
                for node in &mine {
                    let shards = node.shards();
                    let parts =
                        &mut self.gradients[i][shards.start - self.first..shards.end - self.first];
                    let sum = pairwise_sum(parts.iter_mut().map(Option::take).collect(), add);
                    push(&mut send, sum, plan.numel(i));
                }
            }
            send_counts[owner] = send.len() - before;
        }
        let owned: Vec<usize> = bucket.iter().copied().filter(|&i| plan.owner[i] == rank).collect();
        let elements: usize = owned.iter().map(|&i| plan.numel(i) + 1).sum();
        let counts: Vec<usize> = (0..ranks).map(|r| of_rank(r).len() * elements).collect();
        let mut receive = vec![T::ZERO; counts.iter().sum()];
        self.comm.all_to_all(&send, &send_counts, &mut receive, &counts);

        let mut received: Vec<BTreeMap<Node, Option<Tensor<T>>>> =
            vec![BTreeMap::new(); owned.len()];
        let mut rest = &receive[..];
        for rank in 0..ranks {
            let nodes = of_rank(rank);
            for (&i, sums) in owned.iter().zip(&mut received) {
                for &node in &nodes {
                    sums.insert(node, pull(&mut rest, plan, i));
                }
            }
        }
        for (&i, nodes) in owned.iter().zip(received) {
            let sum = total(self.shards, nodes, add);
            sums.extend(sum.map(|sum| (plan.params[i].1.id(), sum)));
        }
        (send.len() - send_counts[rank]) * size_of::<T>()
    }

    /// MPI's own sum. Every rank receives all of it.
    fn all_reduce(&mut self, bucket: &[usize], sums: &mut Vec<(Id, Tensor<T>)>) -> usize {
        let plan = self.plan;
        let mut send = Vec::new();
        for &i in bucket {
            let sum = pairwise_sum(std::mem::take(&mut self.gradients[i]), add);
            push(&mut send, sum, plan.numel(i));
        }
        let mut receive = vec![T::ZERO; send.len()];
        self.comm.all_reduce(&send, &mut receive);
        let mut rest = &receive[..];
        for &i in bucket {
            let sum = pull(&mut rest, plan, i);
            if plan.owner[i] == self.comm.rank() {
                sums.extend(sum.map(|sum| (plan.params[i].1.id(), sum)));
            }
        }
        send.len() * size_of::<T>()
    }
}

fn add<T: Real>(mut a: Tensor<T>, b: Tensor<T>) -> Tensor<T> {
    a.add_assign(&b);
    a
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
fn pull<T: Real>(buffer: &mut &[T], plan: &Plan<T>, i: usize) -> Option<Tensor<T>> {
    let (flag, rest) = buffer.split_first().expect("a flag");
    let (values, rest) = rest.split_at(plan.numel(i));
    *buffer = rest;
    (*flag != T::ZERO).then(|| Tensor::from_vec(values.to_vec(), plan.params[i].1.shape()))
}
