//! Optimisers against PyTorch, and invalid gradients and hyperparameters.

use crate::common::*;
use retrograd_autograd::{Backprop, Gradients};
use retrograd_nn::checkpoint::Checkpoint;
use retrograd_nn::optim::*;
use retrograd_nn::{ConfigError, Module, Param, Pass, Visitor};
use retrograd_support::panics::catch;
use retrograd_tensor::observe::{Event, Observer};
use retrograd_tensor::random::Rng;
use retrograd_tensor::settings::with_observer;
use retrograd_tensor::{Real, Tensor};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// A matrix and a vector.
#[derive(Debug)]
pub struct Two<T: Real = f64> {
    pub matrix: Param<T>,
    pub vector: Param<T>,
}

impl<T: Real> Module<T> for Two<T> {
    fn visit(&self, v: &mut Visitor<'_, T>) {
        v.param("matrix", &self.matrix);
        v.param("vector", &self.vector);
    }
}

pub fn two<T: Real>() -> Two<T> {
    let rng = &mut Rng::new(4);
    Two {
        matrix: Param::new(Tensor::randn([2, 3], rng)),
        vector: Param::new(Tensor::randn([4], rng)),
    }
}

/// The gradients of a backward pass, which are exactly these, except for frozen parameters.
pub fn gradients<T: Real>(pairs: &[(&Param<T>, Tensor<T>)]) -> Gradients<T> {
    let mut all = Gradients::empty();
    for (param, g) in pairs.iter().filter(|(param, _)| param.is_trainable()) {
        all.accumulate(Backprop::from(&param.to_var()).cotangent(g.clone()).run());
    }
    all
}

pub fn both<T: Real>(m: &Two<T>, seed: u64) -> Gradients<T> {
    let rng = &mut Rng::new(seed);
    let (a, b) = (Tensor::randn([2, 3], rng), Tensor::randn([4], rng));
    gradients(&[(&m.matrix, a), (&m.vector, b)])
}

/// Gradients that are all this number.
pub fn all_equal<T: Real>(m: &Two<T>, x: f64) -> Gradients<T> {
    let full = |shape: &[usize]| Tensor::full(shape, T::from_f64(x));
    gradients(&[(&m.matrix, full(&[2, 3])), (&m.vector, full(&[4]))])
}

#[test]
fn five_steps_agree_with_pytorch() {
    let file = retrograd_support::fixture("optim.safetensors");
    let file = Checkpoint::load(&file).unwrap();
    let cases: String = file.read_note("cases").unwrap();
    let cases: serde_json::Value = serde_json::from_str(&cases).unwrap();
    let (start, grads) = (file.get::<f64>("start").unwrap(), file.get::<f64>("grads").unwrap());
    let rates = match &file.tensors["lr"] {
        retrograd_nn::checkpoint::AnyTensor::F64(t) => t.to_vec(),
        other => panic!("{other:?}"),
    };
    let mut worst = 0.0f64;
    for (name, case) in cases.as_object().unwrap() {
        let model = two::<f64>();
        model.load_state_dict(&start).unwrap();
        let number = |key: &str, default: f64| case[key].as_f64().unwrap_or(default);
        let beta = |i: usize, default: f64| case["betas"][i].as_f64().unwrap_or(default);
        let decay = number("weight_decay", 0.0);
        let adam = AdamConfig {
            lr: 1.0,
            betas: (beta(0, 0.9), beta(1, 0.999)),
            eps: number("eps", 1e-8),
            weight_decay: decay,
            amsgrad: case["amsgrad"].as_bool().unwrap_or(false),
        };
        let mut optimizer: Box<dyn Optimizer<f64>> = match case["kind"].as_str().unwrap() {
            "SGD" => {
                let nesterov = case["nesterov"].as_bool().unwrap_or(false);
                let momentum = number("momentum", 0.0);
                let dampening = number("dampening", 0.0);
                let config =
                    SgdConfig { lr: 1.0, momentum, dampening, nesterov, weight_decay: decay };
                Box::new(Sgd::new(&model, config).unwrap())
            }
            "RMSprop" => {
                let config = RmsPropConfig {
                    lr: 1.0,
                    alpha: number("alpha", 0.99),
                    eps: number("eps", 1e-8),
                    momentum: number("momentum", 0.0),
                    centered: case["centered"].as_bool().unwrap_or(false),
                    weight_decay: decay,
                };
                Box::new(RmsProp::new(&model, config).unwrap())
            }
            "Adagrad" => {
                let (eps, lr_decay) = (number("eps", 1e-10), number("lr_decay", 0.0));
                let config = AdagradConfig { lr: 1.0, lr_decay, eps, weight_decay: decay };
                Box::new(Adagrad::new(&model, config).unwrap())
            }
            "Adam" => Box::new(Adam::new(&model, adam).unwrap()),
            "AdamW" => Box::new(AdamW::new(&model, adam).unwrap()),
            other => panic!("{other}"),
        };
        let path = file.get::<f64>(name).unwrap();
        let frozen: Vec<usize> = serde_json::from_value(case["frozen"].clone()).unwrap_or_default();
        for (step, &lr) in rates.iter().enumerate() {
            let g = |name: &str| grads[name].select(0, step);
            optimizer.set_lr(lr);
            model.vector.set_trainable(!frozen.contains(&step));
            let pairs = [(&model.matrix, g("matrix")), (&model.vector, g("vector"))];
            optimizer.step(&gradients(&pairs)).unwrap();
            for (p, value) in model.state_dict() {
                let error = (&value - &path[&p].select(0, step)).abs().max(..).item();
                assert!(error < 1e-12, "{name}, {p} after step {step}: differs by {error:e}");
                worst = worst.max(error);
            }
        }
        assert_eq!(optimizer.steps(), 5);
    }
    println!("{} cases, largest difference {worst:.1e}", cases.as_object().unwrap().len());
}

const NAMES: [&str; 9] =
    ["sgd", "momentum", "nesterov", "adam", "adamw", "amsgrad", "lion", "rmsprop", "adagrad"];

/// An optimiser of groups, with these options where it has them.
fn of_groups<T: Real>(
    name: &str,
    groups: Vec<Group<T>>,
    (lr, betas, eps): (f64, (f64, f64), f64),
) -> Box<dyn Optimizer<T>> {
    let momentum = if name == "sgd" { 0.0 } else { 0.9 };
    let sgd = SgdConfig { lr, momentum, nesterov: name == "nesterov", ..Default::default() };
    let adam = AdamConfig { lr, betas, eps, weight_decay: 9.0, amsgrad: name == "amsgrad" };
    let lion = LionConfig { lr, betas, weight_decay: 9.0 };
    let rms_prop = RmsPropConfig { lr, eps, momentum: 0.5, centered: true, ..Default::default() };
    let adagrad = AdagradConfig { lr, eps, ..Default::default() };
    match name {
        "adam" => Box::new(Adam::with_groups(groups, adam).unwrap()),
        "adamw" | "amsgrad" => Box::new(AdamW::with_groups(groups, adam).unwrap()),
        "lion" => Box::new(Lion::with_groups(groups, lion).unwrap()),
        "rmsprop" => Box::new(RmsProp::with_groups(groups, rms_prop).unwrap()),
        "adagrad" => Box::new(Adagrad::with_groups(groups, adagrad).unwrap()),
        _ => Box::new(Sgd::with_groups(groups, sgd).unwrap()),
    }
}

/// All optimisers, with their names.
pub fn every<T: Real>(model: &Two<T>) -> Vec<(&'static str, Box<dyn Optimizer<T>>)> {
    let build = |name| of_groups(name, Group::by_rank(model, 0.2), (0.1, (0.9, 0.999), 1e-8));
    NAMES.map(|name| (name, build(name))).into()
}

/// These and Muon.
pub fn every_and_muon<T: Real>(model: &Two<T>) -> Vec<(&'static str, Box<dyn Optimizer<T>>)> {
    let mut all = every(model);
    all.push(("muon", Box::new(Muon::new(model, MuonConfig::default()).unwrap())));
    all
}

#[test]
fn a_step_updates_all_parameters_or_none() {
    let model = two::<f32>();
    for (name, mut optimizer) in every(&model) {
        optimizer.step(&both(&model, 1)).unwrap();
        let seen =
            |o: &dyn Optimizer<f32>| (state_bits(&model), dict_bits(&o.state_dict()), o.steps());
        let before = seen(&*optimizer);
        let ones = || Tensor::ones([2, 3]);
        let missing = gradients(&[(&model.matrix, ones())]);
        let error = optimizer.step(&missing).unwrap_err();
        assert_eq!(error, StepError::MissingGradient(vec!["vector".into()]), "{name}");
        assert_eq!(
            error.to_string(),
            "no step was taken: no gradient for vector (hint: freeze parameters that have no \
             part in the loss)"
        );
        let error = optimizer.step(&Gradients::empty()).unwrap_err();
        assert_eq!(error, StepError::MissingGradient(vec!["matrix".into(), "vector".into()]));
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let vector = Tensor::from([0.0, 1.0, 2.0, bad]);
            let error = optimizer
                .step(&gradients(&[(&model.matrix, ones()), (&model.vector, vector)]))
                .unwrap_err();
            assert_eq!(error, StepError::NotFinite(vec!["vector".into()]), "{name}, {bad}");
            assert_eq!(
                error.to_string(),
                "no step was taken: the gradient is not finite for vector"
            );
        }
        assert_eq!(seen(&*optimizer), before, "{name}");
        // Large, but finite.
        if name == "sgd" {
            optimizer.step(&all_equal(&model, f32::MAX.into())).unwrap();
            model.load_state_dict(&two::<f32>().state_dict()).unwrap();
        }
    }
}

/// Panics at one of the allocations, as if there were no memory for it.
struct NoMemory(AtomicUsize);

impl Observer for NoMemory {
    fn event(&self, event: &Event<'_>) {
        let is_last = matches!(event, Event::Allocated { .. }) && self.0.fetch_sub(1, Relaxed) == 0;
        assert!(!is_last, "no memory");
    }
}

#[test]
fn a_step_without_memory_changes_nothing() {
    for i in 0..=NAMES.len() {
        for allocation in 0.. {
            let model = two::<f32>();
            let (name, mut optimizer) = every_and_muon(&model).remove(i);
            optimizer.step(&both(&model, 1)).unwrap();
            let seen = |o: &dyn Optimizer<f32>| {
                (state_bits(&model), dict_bits(&o.state_dict()), o.steps())
            };
            let (before, grads) = (seen(&*optimizer), both(&model, 2));
            // As a graph or a checkpoint shares them, so that they are copied.
            let shared = (model.state_dict(), optimizer.state_dict());
            let fails = Arc::new(NoMemory(allocation.into()));
            let ended = catch(|| with_observer(fails, || optimizer.step(&grads)));
            drop(shared);
            if ended.is_ok() {
                assert!(allocation >= if name == "muon" { 20 } else { 2 }, "{name} {allocation}");
                break;
            }
            assert_eq!(seen(&*optimizer), before, "{name}, allocation {allocation}");
        }
    }
}

#[test]
fn hyperparameters_out_of_range_are_rejected() {
    let model = two::<f32>();
    let error = |r: Result<(), ConfigError>| r.unwrap_err().to_string();
    let sgd = |c: SgdConfig| Sgd::new(&model, c).map(|_| ());
    let adam = |c: AdamConfig| {
        let both = [Adam::new(&model, c).map(|_| ()), AdamW::new(&model, c).map(|_| ())];
        assert_eq!(both[0], both[1]);
        both[0].clone()
    };
    for (x, shown) in [(f64::NAN, "NaN"), (-0.1, "-0.1"), (f64::INFINITY, "inf")] {
        let at_least_0 =
            |what: &str| format!("the {what} must be finite and at least 0, got {shown}");
        let s = SgdConfig::default();
        assert_eq!(error(sgd(SgdConfig { lr: x, ..s })), at_least_0("learning rate"));
        assert_eq!(error(sgd(SgdConfig { momentum: x, ..s })), at_least_0("momentum"));
        assert_eq!(error(sgd(SgdConfig { weight_decay: x, ..s })), at_least_0("weight decay"));
        let a = AdamConfig::default();
        assert_eq!(error(adam(AdamConfig { lr: x, ..a })), at_least_0("learning rate"));
        assert_eq!(error(adam(AdamConfig { eps: x, ..a })), at_least_0("epsilon"));
        assert_eq!(error(adam(AdamConfig { weight_decay: x, ..a })), at_least_0("weight decay"));
        for (_, mut optimizer) in every(&model) {
            let text = panic_text(|| optimizer.set_lr(x));
            assert_eq!(text, format!("set_lr: {}", at_least_0("learning rate")));
            assert_eq!(optimizer.lr(), 0.1);
        }
    }
    for (x, shown) in [(f64::NAN, "NaN"), (-0.1, "-0.1"), (1.0, "1"), (1.5, "1.5")] {
        let a = AdamConfig::default();
        let unit = |i: usize| format!("beta {i} must be in [0, 1), got {shown}");
        assert_eq!(error(adam(AdamConfig { betas: (x, 0.9), ..a })), unit(1));
        assert_eq!(error(adam(AdamConfig { betas: (0.9, x), ..a })), unit(2));
    }
    let nesterov = SgdConfig { nesterov: true, ..Default::default() };
    assert_eq!(error(sgd(nesterov)), "Nesterov momentum requires a momentum above 0");
    let dampening = SgdConfig { dampening: 0.5, ..Default::default() };
    assert_eq!(error(sgd(dampening)), "dampening requires a momentum above 0");
}

#[test]
fn groups_are_checked() {
    let model = two::<f32>();
    let group = |params: &[(&str, &Param<f32>)], weight_decay| Group {
        params: params.iter().map(|(n, p)| (n.to_string(), (*p).clone())).collect(),
        weight_decay,
        ..Group::default()
    };
    let error = |groups: Vec<Group<f32>>| {
        Adam::with_groups(groups, Default::default()).unwrap_err().to_string()
    };
    let (a, b) = (("a", &model.matrix), ("b", &model.vector));
    assert_eq!(error(vec![]), "there is no parameter to optimise");
    assert_eq!(error(vec![group(&[], 0.0)]), "there is no parameter to optimise");
    assert_eq!(error(vec![group(&[a], 0.0), group(&[b, a], 0.1)]), "parameter a is given twice");
    let other = two::<f32>();
    let same_name = vec![group(&[a], 0.0), group(&[("a", &other.matrix)], 0.0)];
    assert_eq!(error(same_name), "two parameters are named a");
    let negative = vec![group(&[a], -1.0)];
    assert_eq!(error(negative), "the weight decay must be finite and at least 0, got -1");
}

#[test]
fn options_that_an_optimiser_lacks_are_rejected() {
    let model = two::<f32>();
    let group = || Group::all(&model, 0.0).remove(0);
    let betas = || vec![Group { betas: Some((0.5, 0.6)), ..group() }];
    let eps = || vec![Group { eps: Some(1e-3), ..group() }];
    fn error<O>(result: Result<O, ConfigError>) -> String {
        result.err().expect("is rejected").to_string()
    }
    let (sgd, lion) = (SgdConfig::default(), LionConfig::default());
    assert_eq!(error(Sgd::with_groups(betas(), sgd)), "SGD has no betas, but a group sets them");
    assert_eq!(error(Sgd::with_groups(eps(), sgd)), "SGD has no eps, but a group sets it");
    assert_eq!(error(Lion::with_groups(eps(), lion)), "Lion has no eps, but a group sets it");
    let rms_prop = RmsProp::with_groups(betas(), RmsPropConfig::default());
    assert_eq!(error(rms_prop), "RMSprop has no betas, but a group sets them");
    let adagrad = Adagrad::with_groups(betas(), AdagradConfig::default());
    assert_eq!(error(adagrad), "Adagrad has no betas, but a group sets them");
    assert!(Lion::with_groups(betas(), lion).is_ok());
    assert!(RmsProp::with_groups(eps(), RmsPropConfig::default()).is_ok());
    assert!(Adagrad::with_groups(eps(), AdagradConfig::default()).is_ok());
    assert!(AdamW::with_groups(betas(), AdamConfig::default()).is_ok());
}

#[test]
fn names_of_states_are_checked() {
    let model = two::<f32>();
    for names in [["a", "a"], ["step", "a"], ["", "a"], ["a", "b.c"]] {
        let states = ParamStates::new(names, Group::all(&model, 0.0));
        assert!(states.unwrap_err().to_string().contains("cannot be the name of a state"));
    }
}

#[test]
fn groups_decay_by_rank() {
    let model = gpt::<f32>(config(), 1);
    let groups = Group::by_rank(&model, 0.3);
    assert_eq!(groups.len(), 2);
    for group in &groups {
        for (name, param) in &group.params {
            assert_eq!(group.weight_decay > 0.0, param.shape().rank() >= 2, "{name}");
            let matrix = name.ends_with("weight") && !name.contains("ln_");
            assert_eq!(group.weight_decay > 0.0, matrix, "{name}");
        }
    }
    let count: usize = groups.iter().map(|g| g.params.len()).sum();
    assert_eq!(count, model.named_parameters().len());
}

#[test]
fn epsilon_0_gives_no_nan() {
    fn check<T: Real>() {
        let model = two::<T>();
        let config = AdamConfig { lr: 0.1, eps: 0.0, ..Default::default() };
        for w in [false, true] {
            let mut optimizer: Box<dyn Optimizer<T>> = match w {
                false => Box::new(Adam::new(&model, config).unwrap()),
                true => Box::new(AdamW::new(&model, config).unwrap()),
            };
            let before = state_bits(&model);
            optimizer.step(&all_equal(&model, 0.0)).unwrap();
            assert_eq!(state_bits(&model), before, "no gradient, no step");
            let mut some = vec![T::ZERO; 4];
            // Its square underflows in f32.
            some[2] = T::from_f64(1e-30);
            let vector = Tensor::from_vec(some, [4]);
            for _ in 0..3 {
                let pairs =
                    [(&model.matrix, Tensor::zeros([2, 3])), (&model.vector, vector.clone())];
                optimizer.step(&gradients(&pairs)).unwrap();
            }
            for (name, value) in model.state_dict() {
                assert!(value.to_vec().iter().all(|x| x.to_f64().is_finite()), "{name}");
            }
            model.load_state_dict(&two::<T>().state_dict()).unwrap();
        }
    }
    check::<f32>();
    check::<f64>();
}

#[test]
fn two_half_batches_equal_one_batch() {
    let model = gpt::<f64>(config(), 1);
    let x = Tensor::from([[0i64, 1, 2, 3], [4, 5, 6, 0], [1, 1, 2, 3], [5, 0, 5, 2]]);
    let y = Tensor::from([[1i64, 2, 3, 4], [5, 6, 0, 1], [1, 2, 3, 5], [0, 5, 2, 2]]);
    let pass = || Pass::train(1);
    let whole = model.loss(&x, &y, &mut pass()).backward();
    let mut sum = Gradients::empty();
    for half in [0..2, 2..4] {
        let (x, y) = (x.slice(0, half.clone()), y.slice(0, half));
        sum.accumulate(model.loss(&x, &y, &mut pass()).backward());
    }
    sum.scale(0.5);
    assert_eq!(sum.len(), whole.len());
    for (name, p) in model.named_parameters() {
        let (a, b) = (sum.by_id(p.id()).unwrap(), whole.by_id(p.id()).unwrap());
        let error = (a - b).abs().max(..).item();
        assert!(error < 1e-15, "{name}: {error:e}");
    }
}

#[test]
fn optimiser_state_is_loaded_whole_or_not_at_all() {
    let model = two::<f32>();
    let mut adam = Adam::new(&model, Default::default()).unwrap();
    adam.step(&both(&model, 1)).unwrap();
    let good = adam.state_dict();
    let keys: Vec<_> = good.keys().cloned().collect();
    assert_eq!(keys, ["m.matrix", "m.vector", "v.matrix", "v.vector"]);
    let mut bad = good.clone();
    bad.remove("m.matrix");
    bad.insert("v.vector".into(), Tensor::ones([5]));
    bad.insert("w.vector".into(), Tensor::ones([4]));
    bad.insert("m.vector".into(), Tensor::ones([4]));
    let error = adam.load_state_dict(7, &bad).unwrap_err().to_string();
    for line in [
        "missing: m.matrix",
        "unexpected: w.vector",
        "shape of v.vector: expected [4], the state dict has [5]",
    ] {
        assert!(error.contains(line), "{error}");
    }
    assert_eq!((adam.steps(), dict_bits(&adam.state_dict())), (1, dict_bits(&good)));
}

#[test]
fn step_counts_beyond_32_bits_are_exact_and_saturate() {
    let model = two::<f64>();
    for steps in [1 << 31, 1 << 33, u64::MAX - 1, u64::MAX] {
        for (name, mut optimizer) in every(&model) {
            let state = optimizer.state_dict();
            optimizer.load_state_dict(steps, &state).unwrap();
            let before = model.matrix.value();
            optimizer.step(&both(&model, 3)).unwrap();
            let moved = (model.matrix.value() - before).abs();
            assert!(moved.max(..).item() < 2.0 && moved.min(..).item() > 0.0, "{name}, {steps}");
            assert_eq!(optimizer.steps(), steps.saturating_add(1));
        }
    }
}

/// Without further gradients, moving averages decay to 0 and never become subnormal.
#[test]
fn averages_decay_to_zero() {
    let model = two::<f32>();
    let config = AdamConfig { betas: (0.5, 0.5), ..Default::default() };
    let mut optimizer = AdamW::new(&model, config).unwrap();
    optimizer.step(&both(&model, 1)).unwrap();
    for _ in 0..160 {
        optimizer.step(&all_equal(&model, 0.0)).unwrap();
        for (name, average) in optimizer.state_dict() {
            assert!(!average.to_vec().iter().any(|x| x.is_subnormal()), "{name}: {average}");
        }
    }
    for (name, average) in optimizer.state_dict() {
        assert_eq!(average.abs().max(..).item(), 0.0, "{name}");
    }
}

#[test]
fn lion_by_hand() {
    let model = two::<f64>();
    let config = LionConfig { lr: 0.1, betas: (0.6, 0.8), weight_decay: 0.5 };
    let mut lion = Lion::new(&model, config).unwrap();
    let (mut p, mut m) = (model.matrix.value(), Tensor::zeros([2, 3]));
    for step in 0..4 {
        let grads = both(&model, step);
        let g = grads.get(&model.matrix).unwrap().clone();
        lion.step(&grads).unwrap();
        p = &p * 0.95 - (&m * 0.6 + &g * 0.4).sign() * 0.1;
        m = &m * 0.8 + &g * 0.2;
        assert!((model.matrix.value() - &p).abs().max(..).item() < 1e-14);
    }
}

/// A group with options of its own is an optimiser with these options.
#[test]
fn groups_have_options_of_their_own() {
    let base = (0.1, (0.9, 0.99), 1e-8);
    let named = |name: &str, p: &Param<f64>| vec![(name.to_string(), p.clone())];
    let group = |params| Group { params, ..Group::default() };
    for name in NAMES {
        let (model, one, other) = (two::<f64>(), two::<f64>(), two::<f64>());
        let special = Group {
            lr_scale: 0.5,
            betas: ["adam", "adamw", "amsgrad", "lion"].contains(&name).then_some((0.5, 0.7)),
            eps: (!["sgd", "momentum", "nesterov", "lion"].contains(&name)).then_some(0.1),
            weight_decay: 0.3,
            ..group(named("vector", &model.vector))
        };
        let groups = vec![group(named("matrix", &model.matrix)), special];
        let mut together = of_groups(name, groups, base);
        let mut first = of_groups(name, vec![group(named("matrix", &one.matrix))], base);
        let decayed = Group { weight_decay: 0.3, ..group(named("vector", &other.vector)) };
        let mut second = of_groups(name, vec![decayed], (0.05, (0.5, 0.7), 0.1));
        for step in 0..4 {
            together.step(&both(&model, step)).unwrap();
            first.step(&both(&one, step)).unwrap();
            second.step(&both(&other, step)).unwrap();
            together.set_lr(0.3);
            first.set_lr(0.3);
            second.set_lr(0.15);
        }
        assert_eq!(model.matrix.value(), one.matrix.value(), "{name}");
        let off = (model.vector.value() - other.vector.value()).abs().max(..).item();
        assert!(off < 1e-14, "{name}: {off}");
        assert_ne!(model.vector.value(), two::<f64>().vector.value());
    }
    let (model, base) = (two::<f64>(), AdamConfig::default());
    for wrong in [
        Group { lr_scale: -1.0, ..group(named("a", &model.matrix)) },
        Group { betas: Some((0.5, 1.0)), ..group(named("a", &model.matrix)) },
        Group { eps: Some(f64::NAN), ..group(named("a", &model.matrix)) },
    ] {
        assert!(AdamW::with_groups(vec![wrong], base).is_err());
    }
}
