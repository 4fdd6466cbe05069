//! Which rank owns which parameter, and in which order gradients are exchanged.

use retrograd_nn::{Module, Param, Visitor};
use retrograd_tensor::Real;
use std::time::Duration;

/// How the gradients of ranks are added.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GradientSum {
    /// In the order of [`pairwise_sum`](retrograd_autograd::pairwise_sum) over shards: the bits do not depend
    /// on the number of ranks.
    #[default]
    Ordered,
    /// By [`Collectives::all_reduce`](super::Collectives::all_reduce), in the order that the implementation of MPI chooses.
    AllReduce,
}

/// The time of an exchange of gradients on this rank.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Timing {
    /// The time of all operations, in which this rank also waited for others.
    pub total: Duration,
    /// The part of it after the last backward pass of this rank.
    pub exposed: Duration,
    /// Bytes that this rank sent to others.
    pub bytes: usize,
}

/// The parameters of a module in buckets, each parameter with its owner. It is the same on all ranks.
#[derive(Debug)]
pub struct Plan<T: Real> {
    /// By identity, which is the order of creation.
    pub params: Vec<(String, Param<T>)>,
    /// The rank that has the optimiser state of each parameter.
    pub owner: Vec<usize>,
    /// Indices of parameters. The parameters of the first bucket were created last: a backward pass
    /// usually completes their gradients first.
    pub buckets: Vec<Vec<usize>>,
    /// The bucket of each parameter.
    pub bucket_of: Vec<usize>,
}

impl<T: Real> Plan<T> {
    pub fn new(module: &dyn Module<T>, ranks: usize, bucket_bytes: usize) -> Plan<T> {
        let mut params = module.named_parameters();
        params.sort_by_key(|(_, param)| param.id());
        let sizes: Vec<usize> = params.iter().map(|(_, p)| p.shape().numel()).collect();
        let buckets = buckets(&sizes, bucket_bytes / size_of::<T>());
        let mut bucket_of = vec![0; params.len()];
        for (bucket, indices) in buckets.iter().enumerate() {
            indices.iter().for_each(|&i| bucket_of[i] = bucket);
        }
        Plan { owner: owners(&sizes, ranks), buckets, bucket_of, params }
    }

    /// The indices of the parameters of a rank.
    pub fn of_rank(&self, rank: usize) -> impl Iterator<Item = usize> {
        (0..self.params.len()).filter(move |&i| self.owner[i] == rank)
    }

    pub fn numel(&self, i: usize) -> usize {
        self.params[i].1.shape().numel()
    }
}

/// The largest parameters first, each to the rank that has the fewest elements so far.
pub fn owners(sizes: &[usize], ranks: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..sizes.len()).collect();
    order.sort_by_key(|&i| (std::cmp::Reverse(sizes[i]), i));
    let (mut owner, mut load) = (vec![0; sizes.len()], vec![0; ranks]);
    for i in order {
        let rank = (0..ranks).min_by_key(|&rank| (load[rank], rank)).expect("at least one rank");
        owner[i] = rank;
        load[rank] += sizes[i];
    }
    owner
}

/// Consecutive parameters from the last one on, of at least `most` elements together.
pub fn buckets(sizes: &[usize], most: usize) -> Vec<Vec<usize>> {
    let (mut buckets, mut full) = (vec![Vec::new()], 0);
    for i in (0..sizes.len()).rev() {
        if full >= most.max(1) {
            buckets.push(Vec::new());
            full = 0;
        }
        buckets.last_mut().expect("there is one").push(i);
        full += sizes[i];
    }
    buckets
}

/// The parameters that a rank owns, as a module with the names of the whole one: an optimiser for it has the
/// state of these parameters only.
#[derive(Clone, Debug)]
pub struct Owned<T: Real = f32>(pub(crate) Vec<(String, Param<T>)>);

impl<T: Real> Module<T> for Owned<T> {
    fn visit(&self, v: &mut Visitor<'_, T>) {
        self.0.iter().for_each(|(name, param)| v.param(name, param));
    }
}
