//! Records of models: modules of operations, equal bits, and where a NaN began.

use retrograd_autograd::{Var, no_grad};
use retrograd_nn::{Activation, Gpt, GptConfig, Layer, Linear, Module, Pass, Sequential, Visitor};
use retrograd_study::XRay;
use retrograd_study::record::{Recording, What, find_nonfinite, record};
use retrograd_tensor::random::Rng;
use retrograd_tensor::{Tensor, with_threads};
use std::collections::BTreeMap;

fn gpt(config: GptConfig) -> Gpt<f32> {
    let config = GptConfig { vocab: 30, context: 16, layers: 2, heads: 2, width: 16, ..config };
    Gpt::new(config, &mut Rng::new(1)).unwrap()
}

fn batch() -> [Tensor<i64>; 2] {
    [0, 1].map(|next| Tensor::from_fn([4, 16], |i| ((i[0] * 7 + i[1] * 3 + next) % 30) as i64))
}

fn step(model: &Gpt<f32>) -> Vec<u32> {
    let [tokens, targets] = batch();
    let (loss, grads) = model.loss_and_gradients(&tokens, &targets, &mut Pass::train(3));
    let params = model.named_parameters().into_iter();
    let grads = params.flat_map(|(_, p)| grads.get(&p).unwrap().to_vec());
    [loss].into_iter().chain(grads).map(f32::to_bits).collect()
}

#[test]
fn a_recorded_step_has_the_same_bits_and_lists_what_it_keeps() {
    let with_dropout = GptConfig { dropout: 0.1, ..GptConfig::default() };
    for config in [GptConfig::default(), with_dropout, GptConfig::modern()] {
        let model = gpt(config);
        let plain = step(&model);
        for threads in [1, 3] {
            let (recorded, recording) = with_threads(threads, || record(|| step(&model)));
            assert_eq!(plain, recorded);
            let tracked = recording.operations.iter().filter(|op| op.id.is_some());
            assert!(tracked.clone().count() > 10);
            tracked.for_each(|op| assert!(op.call.formula().is_some(), "{}", op.name()));
            for event in &recording.events {
                if let What::RuleEnded { operation, unlisted, .. } = event.what {
                    assert_eq!(unlisted, 0, "{}", recording.operations[operation].name());
                }
            }
        }
    }
}

/// Paths and names of the operations of a lane.
fn outline(recording: &Recording, lane: usize) -> Vec<(String, &'static str)> {
    let own = recording.operations.iter().filter(|op| op.lane == lane && op.rule_of.is_none());
    let path = |module: &Option<_>| {
        module.as_ref().map_or("-".into(), |m: &retrograd_study::record::ModulePath| m.path.clone())
    };
    own.map(|op| (path(&op.module), op.name())).collect()
}

#[test]
fn operations_of_a_language_model_have_modules() {
    let model = gpt(GptConfig::default());
    let [tokens, targets] = batch();
    let (_, recording) = record(|| model.loss(&tokens, &targets, &mut Pass::eval()).backward());
    let found = outline(&recording, 0);
    let place = |path: &str, name: &str| {
        let at = found.iter().position(|(p, n)| p == path && *n == name);
        at.unwrap_or_else(|| panic!("no `{name}` in {path}: {found:?}"))
    };
    let mut places = vec![place("transformer.wte", "embedding")];
    for layer in 0..2 {
        for (path, name) in [
            ("ln_1", "layer_norm"),
            ("attn.c_attn", "linear"),
            ("attn", "attention"),
            ("attn.c_proj", "linear"),
            ("ln_2", "layer_norm"),
            ("mlp", "feed_forward"),
        ] {
            let full = format!("transformer.h.{layer}.{path}");
            let at = found.iter().position(|(p, n)| p.starts_with(&full) && *n == name);
            places.push(at.unwrap_or_else(|| panic!("no `{name}` in {full}: {found:?}")));
        }
    }
    places.push(place("", "cross_entropy"));
    assert!(places.is_sorted(), "{found:?}");
    assert!(found.iter().all(|(path, _)| path != "-"), "{found:?}");
}

#[test]
fn shards_have_the_modules_of_the_whole() {
    let model = gpt(GptConfig::modern());
    let [tokens, targets] = batch();
    for threads in [1, 3] {
        let (_, recording) = with_threads(threads, || {
            record(|| {
                let shards = model.shards(&tokens, &targets, Some(4), &mut Pass::eval());
                retrograd_autograd::sharded(shards.counts(), |i| shards.loss(i))
            })
        });
        let lanes: BTreeMap<usize, _> = (0..4).map(|i| (i, outline(&recording, i))).collect();
        assert!(lanes[&0].len() > 20 && lanes.values().all(|lane| *lane == lanes[&0]));
    }
}

#[test]
fn the_module_of_a_nan_is_named() {
    let mut rng = Rng::new(1);
    let mut linear = || Linear::<f32>::new(4, 4, &mut rng);
    let inner = Sequential::new().then(linear()).then(Activation::Relu);
    let model = Sequential::new().then(linear()).then(inner).then(linear());
    let x = Var::constant(Tensor::ones([2, 4]));
    let step = || model.forward(&x, &mut Pass::eval()).square().sum(..).backward();
    assert!(find_nonfinite(step).1.is_none());
    let (_, weight) =
        model.named_parameters().into_iter().find(|(name, _)| name == "1.0.weight").unwrap();
    let mut values = weight.value().to_vec();
    values[5] = f32::NAN;
    weight.set(Tensor::from_vec(values, [4, 4]));
    let found = find_nonfinite(step).1.unwrap();
    assert_eq!((found.operation, found.input), ("linear", Some(1)));
    let module = found.module.as_ref().unwrap();
    assert_eq!((module.path.as_str(), module.type_name.as_str()), ("1.0", "Linear"));
    let text = found.to_string();
    let begin = "the first NaN: in input 1 of `linear` in 1.0 (Linear) at ";
    assert!(text.starts_with(begin), "{text}");
    assert!(text.contains("input 1, 1.0.weight, [4, 4]"), "{text}");
}

/// A linear layer, a cut, and another linear layer.
struct Cut<F>(Linear, Linear, F);

impl<F: Fn(&Var) -> Var + Send + Sync> Module for Cut<F> {
    fn visit(&self, v: &mut Visitor<'_, f32>) {
        v.module("first", &self.0);
        v.module("second", &self.1);
    }
}

#[test]
fn a_missing_gradient_names_its_cut() {
    let mut rng = Rng::new(1);
    let mut linear = || Linear::<f32>::without_bias(3, 3, &mut rng);
    let layers = [linear(), linear()];
    let x = Var::constant(Tensor::ones([2, 3]));
    let findings = |cut: &(dyn Fn(&Var) -> Var + Send + Sync)| {
        let [first, second] = layers.clone();
        let model = Cut(first, second, cut);
        let step = XRay::of(&model).record(|| {
            let pass = &mut Pass::eval();
            let h = (model.2)(&model.0.forward(&x, pass).tanh());
            model.1.forward(&h, pass).sum(..).backward()
        });
        step.findings()
    };
    assert_eq!(findings(&|h| h.clone()), [""; 0]);
    let user = "first.weight has no gradient: `linear` (";
    for (cut, reason) in [
        (
            &Var::detach as &(dyn Fn(&Var) -> Var + Send + Sync),
            "uses `tanh` as a constant: detached",
        ),
        (&|h| Var::constant(h.value().clone()), "uses `tanh` as a constant: detached"),
        (
            &|h| no_grad(|| h.exp()),
            "uses `exp` as a constant: computed while gradients were disabled",
        ),
    ] {
        let found = findings(cut);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains(reason), "{found:?}");
        let begins = if reason.contains("exp") { "first.weight has no gradient: " } else { user };
        assert!(found[0].starts_with(begins), "{found:?}");
    }
    // A weight that is frozen is no finding; one that is detached is.
    layers[0].weight.set_trainable(false);
    assert_eq!(findings(&|h| h.clone()), [""; 0]);
    layers[0].weight.set_trainable(true);
    let step = XRay::of(&layers[0]).record(|| {
        let weight = layers[0].weight.to_var();
        let scale = Var::leaf(Tensor::ones([3]));
        x.matmul(&weight.detach()).mul(&scale).sum(..).backward()
    });
    let detached = step.findings();
    assert_eq!(detached.len(), 1, "{detached:?}");
    let parts = ["`matmul`", "detached: the value"];
    assert!(parts.iter().all(|part| detached[0].contains(part)), "{detached:?}");
}

/// With dropout, which is the same in each run of a step.
#[test]
fn gradients_of_a_model_are_checked() {
    let (layers, heads, width, dropout) = (1, 2, 16, 0.1);
    let config =
        GptConfig { vocab: 12, context: 8, layers, heads, width, dropout, ..GptConfig::default() };
    let model = Gpt::<f32>::new(config, &mut Rng::new(1)).unwrap();
    let tokens = Tensor::from_vec((0..16i64).map(|i| i * i % 12).collect(), [2, 8]);
    let step = XRay::of(&model)
        .checked(1)
        .record(|| model.loss(&tokens, &tokens, &mut Pass::train_step(5, 0)).backward());
    let json = step.json();
    let checks = json.matches("\"check\":{").count();
    assert_eq!(checks, model.named_parameters().len());
    assert!(json.matches("\"agrees\":true").count() == checks, "{:?}", step.findings());
}
