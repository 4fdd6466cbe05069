//! Training by several ranks: the same bits as by one process, for any number of ranks.

use retrograd_autograd::{Gradients, Var, pairwise_sum, sharded, with_threads};
use retrograd_distributed::internals::*;
use retrograd_distributed::{Collectives, Communicator, DataParallel, GradientSum, Local, Owned};
use retrograd_nn::optim::*;
use retrograd_nn::training::Strategy;
use retrograd_nn::{ConfigError, Gpt, GptConfig, Module, Param, Pass, StateDict, Visitor};
use retrograd_study::record::record;
use retrograd_support::panics::{catch, message, panic_here, panic_text};
use retrograd_tensor::Tensor;
use retrograd_tensor::random::Rng;
use retrograd_tensor::settings::with_level;
use retrograd_tensor::simd::Level;
use std::collections::BTreeSet;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

/// Runs `f` on every rank of a group, each with so many threads; the results in order.
fn on_ranks<R: Send>(ranks: usize, threads: usize, f: impl Fn(Arc<Local>) -> R + Sync) -> Vec<R> {
    thread::scope(|scope| {
        let f = &f;
        let (sender, ends) = mpsc::channel::<()>();
        let threads: Vec<_> = Local::group(ranks)
            .into_iter()
            .map(|rank| {
                let end = sender.clone();
                scope.spawn(move || {
                    let _end = end;
                    with_threads(threads, || f(Arc::new(rank)))
                })
            })
            .collect();
        drop(sender);
        if ends.recv_timeout(Duration::from_secs(120)) == Err(mpsc::RecvTimeoutError::Timeout) {
            eprintln!("ranks wait for ever");
            std::process::exit(1);
        }
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// A matrix and a vector.
struct Two {
    matrix: Param<f32>,
    vector: Param<f32>,
}

impl Module<f32> for Two {
    fn visit(&self, v: &mut Visitor<'_, f32>) {
        v.param("matrix", &self.matrix);
        v.param("vector", &self.vector);
    }
}

fn two() -> Two {
    let rng = &mut Rng::new(4);
    Two {
        matrix: Param::new(Tensor::randn([2, 3], rng)),
        vector: Param::new(Tensor::randn([4], rng)),
    }
}

const SEQUENCES: usize = 9;
const SHARDS: usize = 8;

fn model(dropout: f64) -> Gpt<f32> {
    let small =
        GptConfig { vocab: 11, context: 6, layers: 2, heads: 2, width: 16, ..GptConfig::modern() };
    Gpt::new(GptConfig { dropout, ..small }, &mut Rng::new(3)).unwrap()
}

fn batch(step: u64) -> (Tensor<i64>, Tensor<i64>) {
    let x = Tensor::<f64>::rand([SEQUENCES * 7], &mut Rng::new(step));
    let rows = Tensor::from_iter(x.to_vec().iter().map(|x| (x * 11.0) as i64));
    let rows = rows.reshape([SEQUENCES, 7]);
    (rows.narrow(1, 0, 6).contiguous(), rows.narrow(1, 1, 6).contiguous())
}

fn muon(module: &impl Module<f32>) -> Result<Box<dyn Optimizer>, ConfigError> {
    let config = MuonConfig { weight_decay: 0.1, ..MuonConfig::default() };
    Ok(Box::new(Muon::new(module, config)?))
}

fn adamw(module: &impl Module<f32>) -> Result<Box<dyn Optimizer>, ConfigError> {
    let config = AdamConfig { lr: 0.01, weight_decay: 0.1, amsgrad: true, ..AdamConfig::default() };
    Ok(Box::new(AdamW::new(module, config)?))
}

type Make = fn(&Owned<f32>) -> Result<Box<dyn Optimizer>, ConfigError>;
type Bits = Vec<(String, Vec<u32>)>;

fn bits_by_name(dict: &StateDict<f32>) -> Bits {
    let bits = |x: &Tensor| x.to_vec().iter().map(|x| x.to_bits()).collect();
    dict.iter().map(|(name, x)| (name.clone(), bits(x))).collect()
}

/// What a run ends with.
#[derive(Debug, PartialEq)]
struct End {
    /// Loss and norm of each step.
    metrics: Vec<(u32, u64)>,
    weights: Bits,
    state: Bits,
}

const CLIP: f64 = 0.5;

/// Three steps by one process, as without this module.
fn alone(dropout: f64, optimizer: &mut dyn Optimizer, model: &Gpt<f32>) -> End {
    let mut metrics = Vec::new();
    for step in 0..3 {
        let (x, y) = batch(step);
        let shards = model.shards(&x, &y, Some(SHARDS), &mut Pass::train_step(5, step));
        assert!(dropout == 0.0 || shards.loss(0).is_tracked());
        let (loss, mut grads) = sharded(shards.counts(), |i| shards.loss(i));
        metrics.push((loss.to_bits(), grads.clip_norm(CLIP).to_bits()));
        optimizer.step(&grads).unwrap();
    }
    let (weights, state) =
        (bits_by_name(&model.state_dict()), bits_by_name(&optimizer.state_dict()));
    End { metrics, weights, state }
}

/// The same by the ranks of a group: the end of rank 0, which must have the weights of all others.
fn by_ranks(ranks: usize, threads: usize, dropout: f64, make: Make) -> End {
    let ends = on_ranks(ranks, threads, |rank| {
        let model = model(dropout);
        let parallel = DataParallel::new(&model, rank);
        let mut optimizer = parallel.optimizer(make).unwrap();
        let mut metrics = Vec::new();
        for step in 0..3 {
            let (x, y) = batch(step);
            let shards = model.shards(&x, &y, Some(SHARDS), &mut Pass::train_step(5, step));
            let gradients = || parallel.gradients(shards.counts(), |i| shards.loss(i));
            let (loss, mut grads) = if step == 0 {
                // Its lanes are the shards of this rank, its loss is that of all.
                let (result, record) = record(gradients);
                let lanes: BTreeSet<usize> = record.events.iter().map(|event| event.lane).collect();
                assert!(
                    (SHARDS / ranks..=SHARDS.div_ceil(ranks)).contains(&lanes.len()),
                    "{lanes:?}"
                );
                assert_eq!(record.loss, Some(result.0.into()));
                result
            } else {
                gradients()
            };
            metrics
                .push((loss.to_bits(), Strategy::clip_norm(&parallel, &mut grads, CLIP).to_bits()));
            optimizer.step(&grads).unwrap();
            parallel.share_parameters();
            // A run that is interrupted here has the same state.
            let whole = parallel.gather_state(&optimizer.state_dict());
            if let Some(whole) = &whole {
                let own = parallel.own_state(whole);
                optimizer.load_state_dict(step + 1, &own).unwrap();
            }
        }
        let state = parallel.gather_state(&optimizer.state_dict());
        (metrics, bits_by_name(&model.state_dict()), state.map(|state| bits_by_name(&state)))
    });
    let (metrics, weights, state) = &ends[0];
    for (rank, end) in ends.iter().enumerate().skip(1) {
        assert_eq!((&end.0, &end.1), (metrics, weights), "rank {rank} of {ranks}");
        assert_eq!(end.2, None);
    }
    End {
        metrics: metrics.clone(),
        weights: weights.clone(),
        state: state.clone().expect("at rank 0"),
    }
}

#[test]
fn any_number_of_ranks_and_threads_trains_with_the_same_bits() {
    for dropout in [0.0, 0.3] {
        let model_alone = model(dropout);
        let muon_alone = alone(dropout, &mut *muon(&model_alone).unwrap(), &model_alone);
        let model_alone = model(dropout);
        let adamw_alone = alone(dropout, &mut *adamw(&model_alone).unwrap(), &model_alone);
        for ranks in [1, 2, 3, 4, 5, 8] {
            assert_eq!(by_ranks(ranks, 1, dropout, muon), muon_alone, "{ranks} ranks");
            assert_eq!(by_ranks(ranks, 1, dropout, adamw), adamw_alone, "{ranks} ranks");
        }
        for threads in [2, 3] {
            assert_eq!(by_ranks(2, threads, dropout, adamw), adamw_alone, "{threads} threads");
        }
    }
}

#[test]
fn arguments_that_ranks_cannot_use_are_errors() {
    let texts = on_ranks(3, 1, |rank| {
        let model = two();
        let parallel = DataParallel::new(&model, rank);
        for max in [-1.0, f64::NAN] {
            let text = panic_here(|| parallel.clip_norm(&mut Gradients::empty(), max));
            assert!(text.contains("the largest norm must be at least 0"), "{text}");
        }
        panic_text(|| drop(parallel.gradients(&[1, 1], |_| model.vector.to_var().mean(..))))
    });
    for text in texts {
        assert!(text.contains("2 shards cannot be divided among 3 ranks"), "{text}");
    }
}

const NAMES: [&str; 3] = ["rare", "usual", "frozen"];

struct Three([Param<f32>; 3]);

impl Module<f32> for Three {
    fn visit(&self, v: &mut Visitor<'_, f32>) {
        NAMES.iter().zip(&self.0).for_each(|(name, p)| v.param(name, p));
    }
}

/// Tensors that are so large that they are not copied into a common message: one with a gradient in shard 3
/// only, one with gradients in all, in another order of elements, and a frozen one. Shard 1 has nothing to count.
#[test]
fn large_parameters() {
    let make = || {
        let rng = &mut Rng::new(4);
        Three([(); 3].map(|()| Param::new(Tensor::randn([90, 110], rng))))
    };
    let loss = |Three([rare, usual, frozen]): &Three, i: usize| -> Var<f32> {
        assert_ne!(i, 1, "it is not computed");
        let x = Var::constant(Tensor::randn([90, 110], &mut Rng::new(i as u64)));
        let part = (usual.to_var().t() * frozen.to_var().t() * &x.t()).square().mean(..);
        if i == 3 { part + (rare.to_var() * &x).exp().mean(..) } else { part }
    };
    let counts = [2, 0, 3, 1, 2];
    let model = make();
    model.0[2].set_trainable(false);
    let (value, expected) = sharded(&counts, |i| loss(&model, i));
    for (ranks, threads) in [(2, 1), (2, 2), (3, 1), (4, 1), (5, 2)] {
        let found = on_ranks(ranks, threads, |rank| {
            let model = make();
            model.0[2].set_trainable(false);
            let number = rank.rank();
            let parallel = DataParallel::new(&model, rank);
            let (value, mut grads) = parallel.gradients(&counts, |i| loss(&model, i));
            let bytes = parallel.timing().bytes;
            parallel.clip_norm(&mut grads, 0.01);
            let of = |i: usize| grads.get(&model.0[i]).map(|g| g.to_vec());
            // The owner changes its parameters.
            for (_, param) in parallel.owned().named_parameters() {
                param.set(param.value() + (number as f32 + 1.0));
            }
            let before: Vec<Tensor> = model.0.iter().map(Param::value).collect();
            parallel.share_parameters();
            assert_eq!(model.0[2].value().to_vec(), before[2].to_vec(), "frozen");
            let values = [0, 1].map(|i: usize| model.0[i].value().to_vec());
            (value, [0, 1, 2].map(of), values, bytes)
        });
        let mut expected = expected.clone();
        expected.clip_norm(0.01);
        for i in 0..3 {
            let owner: Vec<_> = found.iter().filter_map(|f| f.1[i].clone()).collect();
            let expected: Vec<_> =
                expected.get(&model.0[i]).map(|g| g.to_vec()).into_iter().collect();
            assert_eq!(owner, expected, "parameter {i}, {ranks} ranks");
        }
        assert!(found.iter().map(|f| f.3).sum::<usize>() >= 9900 * 4, "the gradient of `usual`");
        for (v, _, params, _) in &found {
            assert_eq!((*v, params), (value, &found[0].2));
        }
        let changed = |i: usize| found[0].2[i] != model.0[i].value().to_vec();
        assert!(changed(0) && changed(1));
    }
}

/// The first parameter that is used, whose gradient is the last, is in the first bucket.
#[test]
fn a_bucket_waits_for_all_of_its_gradients() {
    let make = || {
        let shapes = [&[512, 513][..], &[512, 513], &[513]];
        Three(shapes.map(|shape| Param::new(Tensor::randn(shape, &mut Rng::new(4)))))
    };
    let loss = |Three([second, first, third]): &Three, i: usize| {
        let x = Var::constant(Tensor::randn([512, 513], &mut Rng::new(i as u64)));
        (first.to_var() * x * second.to_var() + third.to_var()).square().mean(..)
    };
    let model = make();
    let (_, expected) = sharded(&[1; 4], |i| loss(&model, i));
    for threads in [1, 2] {
        let found = on_ranks(2, threads, |rank| {
            let model = make();
            let parallel = DataParallel::new(&model, rank);
            let (_, grads) = parallel.gradients(&[1; 4], |i| loss(&model, i));
            [0, 1, 2].map(|i| grads.get(&model.0[i]).cloned())
        });
        for i in 0..3 {
            let found = found.iter().find_map(|grads| grads[i].as_ref());
            assert_eq!(found, expected.get(&model.0[i]), "parameter {i}, {threads} threads");
        }
    }
}

#[test]
fn a_panic_of_one_rank_ends_all() {
    for threads in [1, 2] {
        let texts = on_ranks(3, threads, |rank| {
            let model = two();
            let fails = rank.rank() == 1;
            let parallel = DataParallel::new(&model, rank);
            let pass = |_| {
                assert!(!fails, "no loss");
                model.vector.to_var().mean(..)
            };
            panic_text(move || drop(parallel.gradients(&[1; 6], pass)))
        });
        assert!(texts[1].contains("no loss"), "{}", texts[1]);
        for text in [&texts[0], &texts[2]] {
            assert!(text.contains("another rank panicked"), "{text}");
        }
    }
}

fn sgd(module: &impl Module<f32>) -> Result<Box<dyn Optimizer>, ConfigError> {
    Ok(Box::new(Sgd::new(module, SgdConfig { lr: 0.1, momentum: 0.9, ..SgdConfig::default() })?))
}

/// The gradients of a step on [`two`], of six shards.
fn gradients_of(parallel: &DataParallel, model: &Two) -> Gradients {
    let squares = |p: &Param<f32>| p.to_var().square().mean(..);
    let loss = |i| (squares(&model.matrix) + squares(&model.vector)) * (i as f32 + 1.0);
    let mut grads = parallel.gradients(&[1; 6], loss).1;
    parallel.clip_norm(&mut grads, 1.0);
    grads
}

#[test]
fn a_rank_that_leaves_ends_the_others() {
    // What rank 1 does in place of three steps (s), and what the others are told: it leaves, also between
    // clipping (c) and the step, or gathers the state (g).
    let cases = [
        ("", "rank 1 left before its first call"),
        ("c", "rank 1 left after call 1 of clip_norm"),
        ("ss", "rank 1 left after call 2 of share_parameters"),
        ("sg", "rank 1 in call 1 of gather_state (all_gather_bytes)"),
        ("ssss", "left after call 3 of share_parameters"),
    ];
    for (actions, expected) in cases {
        for (threads, reduction) in [(1, GradientSum::Ordered), (2, GradientSum::AllReduce)] {
            let ends = on_ranks(3, threads, |rank| {
                let number = rank.rank();
                let run = move || {
                    let model = two();
                    let parallel = DataParallel::new(&model, rank).with_reduction(reduction);
                    let mut sgd = parallel.optimizer(sgd).unwrap();
                    for action in if number == 1 { actions } else { "sss" }.chars() {
                        if action == 'g' {
                            parallel.gather_state(&sgd.state_dict());
                            continue;
                        }
                        let grads = gradients_of(&parallel, &model);
                        if action == 's' {
                            sgd.step(&grads).unwrap();
                            parallel.share_parameters();
                        }
                    }
                };
                catch(run).err().map(message)
            });
            // Ranks 0 and 2 have a step more than rank 1, or rank 1 has.
            let waits = |rank: usize| (rank == 1) == (actions == "ssss");
            for (rank, end) in ends.into_iter().enumerate() {
                let text = end.unwrap_or_default();
                let expected = if waits(rank) { expected } else { "" };
                assert!(text.contains(expected), "{actions:?}, rank {rank}: {text:?}");
                assert_eq!(
                    text.starts_with(&format!("rank {rank} waits in call ")),
                    waits(rank) || !text.is_empty()
                );
            }
        }
    }
}

/// Gradients that are no longer the same on all ranks: of each parameter, by its owner.
#[test]
fn a_step_fails_on_all_ranks_or_on_none() {
    for ranks in 1..=3 {
        for (wrong, owner) in [("matrix", 0), ("vector", 1 % ranks)] {
            let of_owner = [
                StepError::NotFinite(vec![wrong.into()]),
                StepError::MissingGradient(vec![wrong.into()]),
            ];
            let ends = on_ranks(ranks, 1, |rank| {
                let model = two();
                let parallel = DataParallel::new(&model, rank.clone());
                let mut sgd = parallel.optimizer(sgd).unwrap();
                let param = if wrong == "matrix" { &model.matrix } else { &model.vector };
                let before = bits_by_name(&model.state_dict());
                let errors = [Some(f32::NAN), None].map(|value| {
                    let mut grads = gradients_of(&parallel, &model);
                    if let Some(g) = grads.remove(param).filter(|_| rank.rank() == owner)
                        && let Some(value) = value
                    {
                        let all = grads.iter().map(|(id, g)| (id, g.clone()));
                        grads = all.chain([(param.id(), g * value)]).collect();
                    }
                    sgd.step(&grads).unwrap_err()
                });
                assert_eq!(errors[0].to_string().contains("rank"), rank.rank() != owner);
                assert_eq!((bits_by_name(&model.state_dict()), sgd.steps()), (before, 0));
                for _ in 0..2 {
                    sgd.step(&gradients_of(&parallel, &model)).unwrap();
                    parallel.share_parameters();
                }
                assert_eq!(sgd.steps(), 2);
                (errors, bits_by_name(&model.state_dict()))
            });
            for (rank, (errors, weights)) in ends.iter().enumerate() {
                let told = |e: StepError| match rank == owner {
                    true => e,
                    false => StepError::OtherRank(owner, Box::new(e)),
                };
                assert_eq!(*errors, of_owner.clone().map(told), "{wrong}, rank {rank} of {ranks}");
                assert_eq!(*weights, ends[0].1);
            }
        }
    }
}

fn three(shape: &[usize]) -> Three {
    Three([1.0, 2.0, 3.0].map(|x| Param::new(Tensor::full(shape, x))))
}

/// Gradients of whole numbers, which any order of additions gives: a negative zero in the last shard only, one in
/// all shards, and none.
#[test]
fn a_gradient_that_no_rank_has_is_missing() {
    let loss = |Three([rare, usual, _]): &Three, i: usize| {
        let part = usual.to_var().sum(..) * (8.0 * i as f32 - 8.0);
        if i == 7 { part + (rare.to_var() * -0.0).sum(..) } else { part }
    };
    let reductions = [GradientSum::Ordered, GradientSum::AllReduce];
    // Together in one message, apart, and in several buckets.
    for shape in [&[3][..], &[90, 110], &[512, 513]] {
        let model = three(shape);
        let (value, mut expected) = sharded(&[1; 8], |i| loss(&model, i));
        let norm = expected.clip_norm(1e9);
        for (ranks, reduction) in (2..=4).flat_map(|n| reductions.map(|r| (n, r))) {
            let owned = on_ranks(ranks, 1, |rank| {
                let model_here = three(shape);
                let parallel = DataParallel::new(&model_here, rank).with_reduction(reduction);
                let (value_here, mut grads) = parallel.gradients(&[1; 8], |i| loss(&model_here, i));
                assert_eq!(value_here, value);
                assert_eq!(parallel.clip_norm(&mut grads, 1e9), norm);
                let error = parallel.optimizer(sgd).unwrap().step(&grads).unwrap_err();
                assert!(error.to_string().contains("no gradient for frozen ("), "{error}");
                let owned: Vec<_> =
                    parallel.owned().named_parameters().into_iter().map(|p| p.0).collect();
                for (i, name) in NAMES.into_iter().enumerate() {
                    let wanted =
                        expected.get(&model.0[i]).filter(|_| owned.iter().any(|n| n == name));
                    let found = grads.get(&model_here.0[i]);
                    assert_eq!(found, wanted, "{name} {shape:?}, {ranks} ranks, {reduction:?}");
                    let signs = |g: Option<&Tensor>| {
                        g.map(|g| g.to_vec().iter().all(|x| x.is_sign_negative()))
                    };
                    assert!(reduction == GradientSum::AllReduce || signs(found) == signs(wanted));
                }
                owned.len()
            });
            assert_eq!(owned.iter().sum::<usize>(), 3);
        }
    }
}

/// The fourth rank has no parameter.
#[test]
fn states_of_optimisers_are_divided_among_ranks() {
    // `usual`, of rank 1 if there is one, has a step less than the others.
    let train = |model: &Three, sgd: &mut dyn Optimizer| {
        for step in 0..2 {
            model.0[1].set_trainable(step == 0);
            let trained = model.0.iter().filter(|p| p.is_trainable());
            sgd.step(&trained.map(|p| (p.id(), p.value() * 0.5)).collect()).unwrap();
        }
    };
    let model = three(&[3]);
    let mut alone = sgd(&model).unwrap();
    train(&model, &mut *alone);
    let whole = alone.state_dict();
    assert!(whole.contains_key("step.usual"));
    let mut unknown = whole.clone();
    for name in ["velocity.other", "other"] {
        unknown.insert(name.into(), Tensor::zeros([1]));
    }
    for ranks in 1..=4 {
        let parts = on_ranks(ranks, 1, |rank| {
            let model = three(&[3]);
            let parallel = DataParallel::new(&model, rank.clone());
            let mut sgd = parallel.optimizer(sgd).unwrap();
            let owned = parallel.owned().named_parameters();
            assert_eq!(owned.is_empty(), rank.rank() == 3);
            train(&model, &mut *sgd);
            assert_eq!(sgd.steps(), 2);
            let gathered = parallel.gather_state(&sgd.state_dict());
            assert_eq!(
                gathered.as_ref().map(bits_by_name),
                (rank.rank() == 0).then(|| bits_by_name(&whole))
            );

            // A part has the entries of its parameters, and rank 0 those that nobody knows.
            let loaded = sgd.load_state_dict(7, &parallel.own_state(&unknown));
            assert_eq!(
                loaded.map_err(|e| e.unexpected).err(),
                (rank.rank() == 0).then(|| vec!["other".into(), "velocity.other".into()])
            );
            let own = parallel.own_state(&whole);
            sgd.load_state_dict(7, &own).unwrap();
            assert_eq!(bits_by_name(&sgd.state_dict()), bits_by_name(&own));
            if ranks > 1 {
                assert!(sgd.load_state_dict(9, &whole).is_err(), "entries of others");
            }
            sgd.set_lr(0.25);
            assert_eq!((sgd.steps(), sgd.lr()), (7, 0.25));
            own.into_keys().collect::<Vec<_>>()
        });
        let mut all = parts.concat();
        all.sort();
        assert_eq!(all, whole.keys().cloned().collect::<Vec<_>>(), "{ranks} ranks");
    }
}

#[test]
fn every_rank_sends_to_every_rank() {
    on_ranks(3, 1, |rank| {
        let (me, comm): (_, &dyn Collectives<f32>) = (rank.rank(), &*rank);
        // From rank a to rank b go b elements: 10 a + b.
        let send = [1.0, 2.0, 2.0].map(|b| 10.0 * me as f32 + b);
        let mut receive = vec![0.0; 3 * me];
        comm.all_to_all(&send, &[0, 1, 2], &mut receive, &[me; 3]);
        let from = |a: usize| vec![(10 * a + me) as f32; me];
        assert_eq!(receive, [from(0), from(1), from(2)].concat());
    });
}

#[test]
fn ranks_with_other_bits_are_refused() {
    let levels = Level::available();
    for (&first, &second) in levels.iter().flat_map(|a| levels.iter().map(move |b| (a, b))) {
        let texts = on_ranks(2, 1, |rank| {
            let level = [first, second][rank.rank()];
            let model = two();
            let parallel = DataParallel::new(&model, rank);
            let step = || with_level(level, || drop(gradients_of(&parallel, &model)));
            catch(step).err().map(message)
        });
        let same = first.is_fused() == second.is_fused();
        for text in texts {
            assert_eq!(text.is_none(), same, "{first} and {second}: {text:?}");
            let text = text.unwrap_or_default();
            assert!(same || text.contains("rank 1 computes other bits than rank 0"), "{text}");
        }
    }
}

#[test]
fn loads_are_balanced() {
    assert_eq!(owners(&[5, 100, 60, 50, 5], 2), [0, 0, 1, 1, 0]);
    assert_eq!(owners(&[4, 4], 3), [0, 1]);
}

#[test]
fn buckets_begin_with_the_last_parameter() {
    assert_eq!(buckets(&[10, 20, 30, 40], 50), [vec![3, 2], vec![1, 0]]);
    assert_eq!(buckets(&[10, 20], 0), [[1], [0]]);
}

fn add(a: String, b: String) -> String {
    format!("({a}+{b})")
}

#[test]
fn any_number_of_ranks_adds_in_the_same_order() {
    for shards in 1..=19 {
        for missing in [None, Some(0), Some(shards / 2), Some(shards - 1)] {
            let shard = |i: usize| (missing != Some(i)).then(|| i.to_string());
            let whole = pairwise_sum((0..shards).map(shard).collect(), add);
            for ranks in 1..=shards {
                let of_rank = |rank| nodes(shards_of(rank, ranks, shards));
                let all: Vec<Node> = (0..ranks).flat_map(of_rank).collect();
                let covered: Vec<usize> = all.iter().flat_map(|n| n.shards()).collect();
                assert_eq!(covered, (0..shards).collect::<Vec<_>>());
                let sums = all
                    .into_iter()
                    .map(|node| (node, pairwise_sum(node.shards().map(shard).collect(), add)));
                assert_eq!(total(shards, sums.collect(), add), whole, "{shards} {ranks}");
            }
        }
    }
}

#[test]
fn a_range_is_made_up_of_few_nodes() {
    let count = |range| nodes(range).len();
    assert_eq!((count(0..8), count(0..7), count(1..8), count(3..5), count(2..2)), (1, 3, 3, 2, 0));
}
