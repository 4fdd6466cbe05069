//! A training step that is divided among ranks.

use crate::agreed::Agreed;
use crate::communicator::Collectives;
use crate::exchange::{Buffers, Exchange, Reporter, is_large};
use crate::idle::Idle;
use crate::plan::{GradientSum, Owned, Plan, Timing};
use crate::tree::shards_of;
use retrograd_autograd::observe::shards_ended;
use retrograd_autograd::{Backprop, Gradients, Var, norm_of_parts, shard_weights, sharded};
use retrograd_nn::optim::Optimizer;
use retrograd_nn::training::Strategy;
use retrograd_nn::{ConfigError, Module, Param, StateDict};
use retrograd_tensor::error::{ErrorKind, assert};
use retrograd_tensor::kernels::gemm::arithmetic;
use retrograd_tensor::observe::shard;
use retrograd_tensor::{Real, Shape, Tensor, par};
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::{fmt, thread};

/// A module that is trained by several ranks: data parallelism, with the state of the optimiser divided among
/// ranks (stage 1 of ZeRO; Rajbhandari et al. 2020, arXiv 1910.02054).
///
/// A batch has a number of shards that does not depend on the number of ranks. Each rank computes the
/// gradients of some shards, while the exchange of those that are complete already goes on (Li et al. 2020,
/// arXiv 2006.15704). Each parameter has an owner, which gets the sum of its gradients, takes the step of the
/// optimiser, and sends the new value to all. Sums have the order of [`sharded`](retrograd_autograd::sharded),
/// so the result has the bits of [`sharded`](retrograd_autograd::sharded) on one process, for any number of
/// ranks and threads.
///
/// ```
/// use retrograd::distributed::{DataParallel, Local};
/// use retrograd::prelude::*;
/// use std::{sync::Arc, thread};
///
/// /// A step on four shards of a sample each; the new weight.
/// fn step(rank: Local) -> Vec<f32> {
///     let model = Linear::<f32>::without_bias(2, 2, &mut Rng::new(1));
///     let parallel = DataParallel::new(&model, Arc::new(rank));
///     let make = |owned: &_| Ok(Box::new(Sgd::new(owned, SgdConfig::default())?) as _);
///     let mut sgd = parallel.optimizer(make).unwrap();
///     let x = Tensor::randn([4, 2], &mut Rng::new(2));
///     let shard = |i| model.forward(&Var::constant(x.narrow(0, i, 1)), &mut Pass::eval()).square().mean(..);
///     let (loss, mut grads) = parallel.gradients(&[1; 4], shard);
///     let norm = parallel.clip_norm(&mut grads, 1.0);
///     sgd.step(&grads).unwrap();
///     parallel.share_parameters();
///     assert!(loss > 0.0 && norm > 0.0);
///     model.weight.value().to_vec()
/// }
///
/// let alone = step(Local::group(1).remove(0));
/// let results: Vec<Vec<f32>> = thread::scope(|scope| {
///     let ranks = Local::group(3).into_iter();
///     let ranks: Vec<_> = ranks.map(|rank| scope.spawn(move || step(rank))).collect();
///     ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
/// });
/// assert!(results.iter().all(|weights| *weights == alone)); // the same bits
/// ```
pub struct DataParallel<T: Real = f32> {
    comm: Arc<dyn Collectives<T>>,
    plan: Plan<T>,
    reduction: GradientSum,
    timing: Mutex<Timing>,
    buffers: Mutex<Buffers<T>>,
}

impl<T: Real> fmt::Debug for DataParallel<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (rank, ranks) = (self.comm.rank(), self.comm.size());
        write!(f, "DataParallel(rank {rank} of {ranks}, {} parameters)", self.plan.params.len())
    }
}

impl<T: Real> DataParallel<T> {
    /// The parameters of a module, divided among the ranks of `comm`. Every rank must have made the module
    /// in the same way, with the same values.
    pub fn new(module: &impl Module<T>, comm: Arc<dyn Collectives<T>>) -> Self {
        // Small enough to be sent while most of a small model's backward pass is still to come.
        const BUCKET_BYTES: usize = 1 << 20;
        let plan = Plan::new(module, comm.size(), BUCKET_BYTES);
        DataParallel {
            comm,
            plan,
            reduction: GradientSum::default(),
            timing: Mutex::default(),
            buffers: Mutex::default(),
        }
    }

    /// Sets how gradients are added.
    pub fn with_reduction(mut self, reduction: GradientSum) -> Self {
        self.reduction = reduction;
        self
    }

    /// The parameters of this rank. There may be none.
    pub fn owned(&self) -> Owned<T> {
        let mine = self.plan.of_rank(self.comm.rank());
        Owned(mine.map(|i| self.plan.params[i].clone()).collect())
    }

    /// The optimiser of this rank, which `make` makes for the parameters of this rank. If it has none, the
    /// optimiser only counts steps.
    ///
    /// All ranks call `step`. If a gradient is missing or not finite on one of them, none takes the step: its
    /// owner returns the error, the others [`StepError::OtherRank`](retrograd_nn::optim::StepError::OtherRank). An
    /// optimiser that `make` made without `DataParallel`, or that has no
    /// [`check`](Optimizer::check), fails on the owner alone; that rank must then end (see
    /// [`Communicator`](super::Communicator)).
    ///
    /// # Errors
    /// As `make`.
    pub fn optimizer(
        &self,
        make: impl FnOnce(&Owned<T>) -> Result<Box<dyn Optimizer<T>>, ConfigError>,
    ) -> Result<Box<dyn Optimizer<T>>, ConfigError> {
        let owned = self.owned();
        let own = if owned.0.is_empty() { Box::new(Idle::default()) } else { make(&owned)? };
        let comm = self.comm.clone();
        Ok(if comm.size() == 1 { own } else { Box::new(Agreed { own, comm }) })
    }

    /// The loss of [`sharded`](retrograd_autograd::sharded), on every rank, and of its gradients those of the
    /// parameters that this rank owns.
    ///
    /// # Panics
    /// As [`sharded`](retrograd_autograd::sharded); if there are more ranks than shards, or ranks differ in
    /// [`arithmetic`]: the bits would depend on which rank computes what.
    #[track_caller]
    pub fn gradients(
        &self,
        counts: &[usize],
        mean: impl Fn(usize) -> Var<T> + Send + Sync,
    ) -> (T, Gradients<T>) {
        let (rank, ranks, shards) = (self.comm.rank(), self.comm.size(), counts.len());
        assert(ranks <= shards, "gradients", ErrorKind::Value, || {
            format!("{shards} shards cannot be divided among {ranks} ranks")
        });
        if ranks == 1 {
            return sharded(counts, mean);
        }
        self.comm.begin("gradients");
        let weights = shard_weights(counts);
        let computed: Vec<bool> = weights.iter().map(|&weight| weight > 0.0).collect();
        let of_rank = |rank| shards_of(rank, ranks, shards).filter(|&i| computed[i]);
        let mine: Vec<usize> = of_rank(rank).collect();

        let (sender, messages) = mpsc::channel();
        let buffers = &mut *locked(&self.buffers);
        let exchange = Exchange::new(&self.plan, &*self.comm, self.reduction, &computed, buffers);
        let pass = |k: usize, sender: &Sender<_>, progress: &mut dyn FnMut()| {
            let _shard = shard(k);
            let i: usize = mine[k];
            let mut reporter = Reporter::new(&self.plan, i, sender.clone());
            let loss = mean(i) * T::from_f64(weights[i]);
            let value = loss.value().clone();
            Backprop::from(&loss).run_each(|id, gradient| {
                reporter.gradient(id, gradient);
                progress();
            });
            value.item()
        };
        let (mut losses, exchange) = if par::threads() == 1 {
            // One thread does both: a second one would only compete for the core.
            let (mut sender, mut losses) = (Some(sender), None);
            let mut passes = |progress: &mut dyn FnMut()| {
                let sender = sender.take().expect("called once");
                let all = || {
                    let shards = 0..mine.len();
                    shards.map(|k| pass(k, &sender, progress)).collect()
                };
                losses = Some(catch_unwind(AssertUnwindSafe(all)));
            };
            let exchange = exchange.run(messages, Some(&mut passes));
            // A panic of this rank: the others have got what they wait for.
            let losses = losses.expect("called").unwrap_or_else(|panic| resume_unwind(panic));
            (losses, exchange)
        } else {
            thread::scope(|scope| {
                let exchange = scope.spawn(move || exchange.run(messages, None));
                let losses = par::shards(mine.len(), |k| pass(k, &sender, &mut || {}));
                drop(sender);
                (losses, exchange.join().unwrap_or_else(|panic| resume_unwind(panic)))
            })
        };
        let (sums, timing) = exchange.sums();
        *locked(&self.timing) = timing;

        // After the losses of each rank a number that says how it computes.
        let arithmetic = arithmetic::<T>();
        losses.push(T::from_f64(checksum(&arithmetic)));
        let lens: Vec<usize> = (0..ranks).map(|rank| of_rank(rank).count() + 1).collect();
        let mut all = vec![T::ZERO; lens.iter().sum()];
        self.comm.all_gather(&losses, &mut all, &lens);
        let mut rest = &all[..];
        let of_ranks = lens.iter().map(|&n| rest.split_off(..n).and_then(|part| part.split_last()));
        let (codes, losses): (Vec<T>, Vec<&[T]>) =
            of_ranks.map(|part| part.expect("one at least")).unzip();
        if let Some(other) = codes.iter().position(|&code| code != codes[0]) {
            panic!(
                "gradients: rank {other} computes other bits than rank 0; rank {rank} has {arithmetic} (hint: the \
                 same RETROGRAD_SIMD and precision on all ranks)"
            );
        }
        let loss = losses.into_iter().flatten().copied().sum();
        shards_ended::<T>(loss);
        (loss, sums.into_iter().collect())
    }

    /// The time of the exchange in the last call of [`DataParallel::gradients`].
    pub fn timing(&self) -> Timing {
        *locked(&self.timing)
    }

    /// [`Gradients::clip_norm`] of the gradients of all ranks, with the same bits; returns their norm.
    ///
    /// # Panics
    /// If `max` is negative or NaN.
    #[track_caller]
    pub fn clip_norm(&self, grads: &mut Gradients<T>, max: f64) -> f64 {
        if self.comm.size() == 1 {
            return grads.clip_norm(max);
        }
        self.comm.begin("clip_norm");
        let mine: BTreeMap<_, f64> = grads.norms();
        let ids = self.plan.params.iter().map(|(_, param)| param.id());
        // 0 for the gradients of others, and for parameters without a gradient: neither changes a norm.
        let bytes = ids.flat_map(|id| mine.get(&id).unwrap_or(&0.0).to_le_bytes());
        let all = self.comm.all_gather_bytes(&bytes.collect::<Vec<u8>>());
        let norm = |i: usize| {
            let bytes = all[self.plan.owner[i]][8 * i..8 * i + 8].try_into().expect("eight bytes");
            f64::from_le_bytes(bytes)
        };
        let norms: Vec<f64> = (0..self.plan.params.len()).map(norm).collect();
        let norm = norm_of_parts(&norms);
        grads.clip_to(max, norm);
        norm
    }

    /// Sets every trainable parameter to the value that its owner has.
    pub fn share_parameters(&self) {
        let (rank, ranks) = (self.comm.rank(), self.comm.size());
        if ranks == 1 {
            return;
        }
        self.comm.begin("share_parameters");
        let plan = &self.plan;
        let is_large = |&i: &usize| is_large(plan.numel(i));
        let of_rank = |rank| -> (Vec<usize>, Vec<usize>) {
            plan.of_rank(rank).filter(|&i| plan.params[i].1.is_trainable()).partition(is_large)
        };
        let others = || (1..ranks).map(|distance| (rank + distance) % ranks);
        let len = |small: &[usize]| small.iter().map(|&i| plan.numel(i)).sum();

        // Small parameters travel together, large ones from where they are to where they belong.
        let (large, small) = of_rank(rank);
        let large: Vec<_> = large.iter().map(|&i| plan.params[i].1.value().contiguous()).collect();
        let theirs: Vec<_> = others().map(|other| (other, of_rank(other))).collect();
        let mut buffers = locked(&self.buffers);
        let (packed, received) = buffers.of(theirs.iter().map(|(_, of)| len(&of.1)).sum::<usize>());
        for &i in &small {
            packed.extend_from_slice(plan.params[i].1.value().contiguous().as_slice());
        }
        let packed = &packed[..];
        let params: Vec<usize> =
            theirs.iter().flat_map(|(_, (large, small))| [&large[..], small].concat()).collect();
        let params: Vec<&Param<T>> = params.into_iter().map(|i| &plan.params[i].1).collect();
        Param::update_all(&params, |values| {
            let mut values = values.into_iter().map(Tensor::make_mut);
            let (mut direct, mut copied) = (Vec::new(), Vec::new());
            for (other, (large, small)) in &theirs {
                direct.extend(values.by_ref().take(large.len()).map(|value| (*other, value)));
                copied.extend(values.by_ref().take(small.len()));
            }
            {
                let (mut direct, mut rest) = (direct.into_iter().peekable(), &mut *received);
                self.comm.messages(&mut |under_way| {
                    for (other, (_, small)) in &theirs {
                        if !small.is_empty() {
                            let place = rest.split_off_mut(..len(small)).expect("of all ranks");
                            under_way.receive(place, *other);
                        }
                        while let Some((_, value)) = direct.next_if(|(from, _)| from == other) {
                            under_way.receive(value, *other);
                        }
                    }
                    for other in others() {
                        if !small.is_empty() {
                            under_way.send(packed, other);
                        }
                        large.iter().for_each(|value| under_way.send(value.as_slice(), other));
                    }
                });
            }
            let mut rest = &*received;
            for value in copied {
                value.copy_from_slice(rest.split_off(..value.len()).expect("of all ranks"));
            }
        });
    }

    /// The state of an optimiser on one process, given the part of each rank: at rank 0; `None` at others.
    pub fn gather_state(&self, mine: &StateDict<T>) -> Option<StateDict<T>> {
        if self.comm.size() == 1 {
            return Some(mine.clone());
        }
        self.comm.begin("gather_state");
        let entries: Vec<(&str, Vec<usize>)> =
            mine.iter().map(|(name, x)| (name.as_str(), x.shape().to_vec())).collect();
        let json = serde_json::to_vec(&entries).expect("names and sizes");
        let all: Vec<Vec<(String, Vec<usize>)>> = self
            .comm
            .all_gather_bytes(&json)
            .iter()
            .map(|json| serde_json::from_slice(json).expect("written by a rank"))
            .collect();
        let count = |entries: &Vec<(String, Vec<usize>)>| {
            entries.iter().map(|(_, sizes)| sizes.iter().product::<usize>()).sum()
        };
        let counts: Vec<usize> = all.iter().map(count).collect();
        let mut send = Vec::with_capacity(counts[self.comm.rank()]);
        for x in mine.values() {
            send.extend_from_slice(x.contiguous().as_slice());
        }
        let is_first = self.comm.rank() == 0;
        let mut receive = vec![T::ZERO; if is_first { counts.iter().sum() } else { 0 }];
        self.comm.gather(&send, &mut receive, &counts);
        let mut rest = receive.into_iter();
        is_first.then(|| {
            let entries = all.into_iter().flatten();
            entries
                .map(|(name, sizes)| {
                    let shape = Shape::from(&sizes[..]);
                    (name, Tensor::from_vec(rest.by_ref().take(shape.numel()).collect(), shape))
                })
                .collect()
        })
    }

    /// Of the state of an optimiser, `<state>.<parameter>`, the part of this rank. Rank 0 also has entries of
    /// unknown parameters, for which its optimiser reports an error.
    pub fn own_state(&self, whole: &StateDict<T>) -> StateDict<T> {
        let rank = self.comm.rank();
        let names = |ranks: &dyn Fn(usize) -> bool| -> BTreeSet<&str> {
            let all = self.plan.params.iter().zip(&self.plan.owner);
            all.filter(|&(_, &owner)| ranks(owner)).map(|((name, _), _)| name.as_str()).collect()
        };
        let (mine, others) = (names(&|owner| owner == rank), names(&|owner| owner != rank));
        let is_mine = |name: &str| {
            let param = name.split_once('.').map_or(name, |(_, param)| param);
            mine.contains(param) || (rank == 0 && !others.contains(param))
        };
        let entries = whole.iter().filter(|(name, _)| is_mine(name));
        entries.map(|(name, x)| (name.clone(), x.clone())).collect()
    }
}

impl Strategy for DataParallel {
    fn rank(&self) -> (usize, usize) {
        (self.comm.rank(), self.comm.size())
    }

    fn gradients(
        &self,
        counts: &[usize],
        loss: &(dyn Fn(usize) -> Var + Send + Sync),
    ) -> (f32, Gradients) {
        self.gradients(counts, loss)
    }

    fn clip_norm(&self, grads: &mut Gradients, max: f64) -> f64 {
        self.clip_norm(grads, max)
    }

    fn share_parameters(&self) {
        self.share_parameters();
    }

    fn all_gather(&self, mine: &[u8]) -> Vec<Vec<u8>> {
        self.comm.all_gather_bytes(mine)
    }

    fn gather_state(&self, mine: &StateDict) -> Option<StateDict> {
        self.gather_state(mine)
    }

    fn own_state(&self, whole: &StateDict) -> StateDict {
        self.own_state(whole)
    }
}

/// FNV-1a, the lowest 24 bits, which every element type represents.
fn checksum(text: &str) -> f64 {
    let sum =
        text.bytes().fold(0x811c_9dc5_u32, |sum, b| (sum ^ u32::from(b)).wrapping_mul(0x0100_0193));
    f64::from(sum & 0xff_ffff)
}

/// A panic elsewhere leaves nothing half done in these.
fn locked<X>(mutex: &Mutex<X>) -> MutexGuard<'_, X> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
