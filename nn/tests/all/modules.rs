//! Modules: gradients against finite differences, empty shapes, tied and frozen parameters,
//! causality, dropout.

use crate::common::*;
use retrograd_autograd::check::{Check, gradcheck};
use retrograd_autograd::{Backprop, Var};
use retrograd_nn::optim::{AdamW, Optimizer, Sgd, SgdConfig};
use retrograd_nn::testing::check_module;
use retrograd_nn::*;
use retrograd_tensor::random::Rng;
use retrograd_tensor::{Tensor, with_threads};
use std::collections::BTreeSet;

const ACTIVATIONS: [Activation; 13] = [
    Activation::Identity,
    Activation::Relu,
    Activation::ReluSquared,
    Activation::LeakyRelu(0.1),
    Activation::Elu(0.7),
    Activation::Gelu,
    Activation::GeluTanh,
    Activation::Silu,
    Activation::Hardswish,
    Activation::Sigmoid,
    Activation::Tanh,
    Activation::Softplus,
    Activation::Mish,
];

fn bare() -> GptConfig {
    GptConfig { bias: false, ..config() }
}

type Build = fn(&mut Rng) -> Sequential<f64>;

/// Every layer from `[.., 8]` to `[.., n]`, with a name.
const LAYERS: [(&str, Build); 12] = [
    ("linear", |r| Sequential::new().then(Linear::new(8, 5, r))),
    ("linear without bias", |r| Sequential::new().then(Linear::without_bias(8, 5, r))),
    ("layer norm", |_| Sequential::new().then(LayerNorm::new(8))),
    ("layer norm without bias", |_| Sequential::new().then(LayerNorm::without_bias(8))),
    ("rms norm", |_| Sequential::new().then(RmsNorm::new(8))),
    ("mlp", |r| Sequential::new().then(Mlp::new(&config(), r))),
    ("mlp without bias", |r| Sequential::new().then(Mlp::new(&bare(), r))),
    ("attention", |r| Sequential::new().then(CausalSelfAttention::new(&config(), r))),
    ("attention without bias", |r| Sequential::new().then(CausalSelfAttention::new(&bare(), r))),
    ("block", |r| Sequential::new().then(Block::new(&config(), r))),
    ("block without bias", |r| Sequential::new().then(Block::new(&bare(), r))),
    ("sequential", |r| {
        let first = Sequential::new().then(Linear::new(8, 6, r)).then(Activation::Silu);
        first.then(RmsNorm::new(6)).then(Dropout::new(0.3)).then(Linear::new(6, 3, r))
    }),
];

/// A layer without parameters that are 0 or 1.
fn shaken(build: Build) -> Sequential<f64> {
    let rng = &mut Rng::new(5);
    let layer = build(rng);
    shake(&layer, rng);
    layer
}

/// Adding a layer's output to a residual in one pass gives the bits of the separate sum, with and
/// without dropout, and the same gradients up to the order of two sums.
#[test]
fn residuals_are_added_in_one_pass() {
    for (dropout, weights, bias) in [(0.0, 0.0, true), (0.0, 0.3, false), (0.4, 0.0, true)] {
        let (config, rng) = (GptConfig { dropout, bias, ..config() }, &mut Rng::new(7));
        let mlp = Mlp::<f32>::new(&config, rng);
        let mut attn = CausalSelfAttention::new(&config, rng);
        attn.attn_dropout = Dropout::new(weights);
        shake(&mlp, rng);
        shake(&attn, rng);
        let x = Var::leaf(Tensor::randn([2, 3, 5, 8], rng));
        for pass in [Pass::train(3), Pass::eval()] {
            let [p0, p1, p2, p3] = &mut [(); 4].map(|()| pass.clone());
            let pairs = [
                (mlp.forward_add(&x, &x, p0), &x + &mlp.forward(&x, p1)),
                (attn.forward_add(&x, &x, p2), &x + &attn.forward(&x, p3)),
            ];
            // The following random numbers of the pass are the same.
            assert_eq!((p0.key(), p2.key()), (p1.key(), p3.key()));
            assert_panics("residual [2, 3, 5, 8], got [8]", || {
                mlp.forward_add(&x, &x.select(0, 0).select(0, 0).select(0, 0), p0)
            });
            for (fused, plain) in pairs {
                assert_eq!(bits(fused.value()), bits(plain.value()));
                let [fused, plain] = [fused, plain].map(|y| y.square().sum(..).backward());
                close("gradient", 1e-6, fused.get(&x).unwrap(), plain.get(&x).unwrap());
            }
        }
    }
}

/// Compares derivatives by the inputs and the parameters of a module with differences.
fn differentiate<M: Module<f64>>(
    name: &str,
    module: &M,
    inputs: &[Tensor<f64>],
    run: impl Fn(&M, &[Var<f64>]) -> Var<f64>,
) {
    let parameters = module.named_parameters().into_iter().map(|(_, p)| p.value());
    let leaves: Vec<_> = inputs.iter().cloned().chain(parameters).map(Var::leaf).collect();
    let f = |x: &[Var<f64>]| {
        let (inputs, parameters) = x.split_at(inputs.len());
        functional_call(module, parameters, |m| run(m, inputs))
    };
    let report = gradcheck(f, &leaves, &Check { step: 2e-4, atol: 1e-8, ..Check::precise() });
    report.unwrap_or_else(|e| panic!("{name}: {e}"));
}

/// Every parameter is visited and has a gradient, and derivatives agree with differences.
#[test]
fn every_parameter_is_visited_and_trained() {
    // The gradient of the sum alone would be 0 before a norm or for a key bias.
    let loss = |y: &Var<f64>| y.mul(&Var::constant(randn(y.shape(), 2))).square().sum(..);
    let x = Var::constant(randn(&[2, 4, 8], 1));
    for (name, build) in LAYERS {
        let run = |m: &Sequential<f64>, x: &Var<f64>| m.forward(x, &mut Pass::train(4));
        check_module(|| build(&mut Rng::new(3)), |m| loss(&run(m, &x)));
        for shape in [&[3, 8][..], &[2, 3, 8], &[1, 8], &[2, 1, 8]] {
            differentiate(name, &shaken(build), &[randn(shape, 7)], |m, x| run(m, &x[0]));
        }
    }
    for activation in ACTIVATIONS {
        let x = randn(&[3, 8], 7);
        assert!(x.abs().min(..).item() > 0.01, "far from every kink");
        let layer = Sequential::new().then(activation);
        let name = format!("{activation:?}");
        differentiate(&name, &layer, &[x], |m, x| m.forward(&x[0], &mut Pass::eval()));
    }
    let table = || Embedding::new(4, 3, &mut Rng::new(3));
    let index = Tensor::from([[0i64, 3], [3, 1]]);
    check_module(table, |m| loss(&m.forward(&index)));
    for index in [index.slice(0, 0..1), Tensor::from([2i64])] {
        differentiate("embedding", &table(), &[], |m, _| m.forward(&index));
    }
    let tokens = Tensor::from([[0i64, 3, 6, 1], [2, 2, 5, 4]]);
    for (tied, bias) in [(false, false), (false, true), (true, false), (true, true)] {
        // All positions of the context and all tokens occur.
        let config = GptConfig { tied, bias, context: 4, dropout: 0.2, ..config() };
        let run = |m: &Gpt<f64>| m.forward(&tokens, &mut Pass::train(8));
        check_module(|| gpt(config.clone(), 3), |m| loss(&run(m)));
        differentiate("gpt", &gpt(config, 2), &[], |m, _| run(m));
    }
}

#[test]
fn a_wrong_visit_is_detected() {
    struct Odd {
        a: Param<f64>,
        b: Param<f64>,
        second: &'static str,
    }
    impl Module<f64> for Odd {
        fn visit(&self, v: &mut Visitor<'_, f64>) {
            v.param("a", &self.a);
            if !self.second.is_empty() {
                v.param(self.second, &self.b);
            }
        }
    }
    let odd = |second| {
        let new = || Param::new(Tensor::ones([2]));
        Odd { a: new(), b: new(), second }
    };
    let loss = |m: &Odd| (m.a.to_var() * m.b.to_var()).sum(..);
    check_module(|| odd("b"), loss);
    let text = panic_text(|| check_module(|| odd(""), loss));
    assert!(text.contains("parameters created and parameters that visit() visits"), "{text}");
    let text = panic_text(|| check_module(|| odd("a"), loss));
    assert_eq!(text, "state_dict: two parameters are named a");
    let text = panic_text(|| check_module(|| odd("b"), |m| m.a.to_var().sum(..)));
    assert_eq!(text, "b got no gradient");
    let text =
        panic_text(|| check_module(|| odd("b"), |m| (m.a.to_var() * m.b.to_var() * 0.0).sum(..)));
    assert_eq!(text, "a: gradient sums to 0");
}

/// Parameters that a thread creates for other tasks while it waits do not count.
#[test]
fn a_wrong_visit_is_detected_beside_other_tasks() {
    use retrograd_tensor::cost::Cost;
    use retrograd_tensor::par;
    let sleep = |ms| std::thread::sleep(std::time::Duration::from_millis(ms));
    with_threads(2, || {
        rayon::scope(|scope| {
            let waiter = rayon::current_thread_index();
            let build = || {
                // Two tasks: this thread spawns one while the other thread executes one.
                par::each(vec![(); 2], 1, Cost(u32::MAX), |()| {
                    if rayon::current_thread_index() != waiter {
                        return sleep(100);
                    }
                    sleep(10);
                    scope.spawn(|_| drop(Param::new(Tensor::<f32>::ones([2]))));
                });
                Linear::<f64>::new(2, 2, &mut Rng::new(1))
            };
            let x = Var::constant(Tensor::ones([2]));
            check_module(build, |m| m.forward(&x, &mut Pass::eval()).sum(..));
        });
    });
}

#[test]
fn outputs_have_the_shapes_of_their_inputs() {
    for (name, build) in LAYERS {
        let layer = shaken(build);
        let width = layer.forward(&Var::constant(randn(&[1, 8], 0)), &mut Pass::eval()).size(-1);
        for shape in
            [&[3, 8][..], &[0, 8], &[2, 3, 8], &[0, 3, 8], &[2, 1, 8], &[2, 0, 8], &[1, 2, 3, 8]]
        {
            let x = Var::leaf(randn(shape, 1));
            let y = layer.forward(&x, &mut Pass::train(1));
            let want = [&shape[..shape.len() - 1], &[width]].concat();
            assert_eq!(y.shape().to_vec(), want, "{name} of {shape:?}");
            let grads = y.sum(..).backward();
            assert_eq!(grads.get(&x).unwrap().shape().to_vec(), shape, "{name}");
            for (p, param) in layer.named_parameters() {
                let g = grads.by_id(param.id()).unwrap_or_else(|| panic!("{name}: {p}"));
                assert!(g.abs().sum(..).item().is_finite(), "{name} of {shape:?}: {p}");
                assert_eq!(*g.shape(), param.shape(), "{name}: {p}");
            }
        }
    }
}

#[test]
fn attention_maps_are_causal_distributions() {
    let model = gpt::<f64>(config(), 1);
    let maps = model.attention_maps(&Tensor::from([1i64, 2, 3, 4, 5]));
    assert_eq!(maps.len(), 2);
    for map in maps {
        assert_eq!(*map.shape(), [2, 5, 5]);
        close("rows sum to 1", 1e-14, &map.sum(-1), &Tensor::ones([2, 5]));
        let causal = Tensor::<f64>::ones([5, 5]).tril(0).broadcast_to([2, 5, 5]).gt(0.0);
        assert_eq!((map.gt(0.0), map.ne(0.0)), (causal.clone(), causal));
    }
}

#[test]
fn invalid_configurations_are_errors() {
    let text = |config: GptConfig| {
        let texts = [
            config.check().unwrap_err().to_string(),
            Gpt::<f32>::new(config.clone(), &mut Rng::new(0)).unwrap_err().to_string(),
        ];
        assert_eq!(texts[0], texts[1]);
        texts[0].clone()
    };
    assert_eq!(text(GptConfig { vocab: 0, ..config() }), "vocab must be at least 1, got 0");
    assert_eq!(text(GptConfig { context: 0, ..config() }), "context must be at least 1, got 0");
    assert_eq!(text(GptConfig { layers: 0, ..config() }), "layers must be at least 1, got 0");
    assert_eq!(text(GptConfig { heads: 0, ..config() }), "heads must be at least 1, got 0");
    assert_eq!(text(GptConfig { width: 0, ..config() }), "width must be at least 1, got 0");
    assert_eq!(text(GptConfig { heads: 3, ..config() }), "3 heads do not divide a width of 8");
    assert_eq!(text(GptConfig { heads: 16, ..config() }), "16 heads do not divide a width of 8");
    for (p, shown) in [(f64::NAN, "NaN"), (-0.1, "-0.1"), (1.1, "1.1")] {
        let want = format!("dropout must be in [0, 1], got {shown}");
        assert_eq!(text(GptConfig { dropout: p, ..config() }), want);
    }
    let huge = usize::MAX / 2 + 1;
    for config in [
        GptConfig { vocab: huge, ..config() },
        GptConfig { context: huge, ..config() },
        GptConfig { layers: huge, ..config() },
        GptConfig { width: huge, ..config() },
    ] {
        assert!(text(config).starts_with("more parameters than memory can hold: GptConfig {"));
    }
    // Up to 2^60 parameters could be addressed.
    let heads = 1 << 17;
    for config in [
        GptConfig { vocab: 1 << 55, context: 64, ..config() },
        GptConfig { context: 1 << 56, layers: 1000, ..config() },
        GptConfig { heads, key_heads: Some(heads), width: heads, layers: 1000, ..config() },
        GptConfig { heads: 1, width: 1 << 23, layers: 1000, ..config() },
    ] {
        config.check().unwrap();
    }
    // Few parameters, but each block takes memory, also if the configuration is read from a file.
    for layers in [10_001, 1 << 30, 1 << 40] {
        let want = format!("layers must be at most 10000, got {layers}");
        assert_eq!(text(GptConfig { layers, ..config() }), want);
        let mut file = retrograd_nn::checkpoint::Checkpoint::new();
        file.note("config", &GptConfig { layers, width: 1, heads: 1, ..config() });
        let read: GptConfig = file.read_note("config").unwrap();
        assert_eq!(text(read), want);
    }
    GptConfig { layers: 10_000, ..config() }.check().unwrap();
    let odd = GptConfig { heads: 3, ..config() };
    let text = panic_text(|| Block::<f32>::new(&odd, &mut Rng::new(0)));
    assert_eq!(text, "block: 3 heads do not divide a width of 8");
}

#[test]
fn invalid_inputs_are_errors() {
    let model = gpt::<f32>(config(), 1);
    let run = |t: Tensor<i64>| panic_text(|| model.forward(&t, &mut Pass::eval()));
    let long = "gpt: a sequence of 7 tokens is longer than the context of 6";
    assert_eq!(run(Tensor::zeros([2, 7])), long);
    assert_eq!(run(Tensor::scalar(1)), "gpt: needs a sequence of tokens, got rank 0");
    for wrong in [7, -1, i64::MAX, i64::MIN] {
        let text = run(Tensor::from([0, wrong]));
        assert!(text.starts_with("embedding: ") && text.contains(&wrong.to_string()), "{text}");
    }
    let tokens = Tensor::from([0i64, 1]);
    let loss = |t: Tensor<i64>| panic_text(|| model.loss(&tokens, &t, &mut Pass::eval()));
    assert!(loss(Tensor::from([0])).contains("need one target per row"));
    assert!(loss(Tensor::from([0, 7])).contains("target 7 at position 1 is outside 0..7"));
    let linear = Linear::<f32>::new(3, 2, &mut Rng::new(0));
    let text =
        panic_text(|| linear.forward(&Var::constant(Tensor::ones([2, 4])), &mut Pass::eval()));
    assert!(text.starts_with("linear: "), "{text}");
}

#[test]
fn a_tied_head_is_one_parameter_with_one_gradient() {
    let tied = gpt::<f64>(config(), 1);
    let loose = gpt::<f64>(GptConfig { tied: false, ..config() }, 2);
    let names: Vec<String> = tied.named_parameters().into_iter().map(|(n, _)| n).collect();
    assert!(names.contains(&"transformer.wte.weight".into()));
    assert!(!names.contains(&"lm_head.weight".into()));
    assert_eq!(loose.num_parameters() - tied.num_parameters(), 7 * 8);
    let dict = tied.state_dict();
    assert_eq!(bits(&dict["lm_head.weight"]), bits(&dict["transformer.wte.weight"]));
    loose.load_state_dict(&dict).unwrap();

    let (x, y) = (Tensor::from([[0i64, 1, 2, 0]]), Tensor::from([[1i64, 2, 0, 5]]));
    let gradient = |model: &Gpt<f64>, wanted: &str| {
        let grads = model.loss(&x, &y, &mut Pass::eval()).backward();
        let all = model.named_parameters();
        let (_, param) = all.iter().find(|(name, _)| name == wanted).unwrap();
        grads.by_id(param.id()).unwrap().clone()
    };
    let sum = gradient(&loose, "transformer.wte.weight") + gradient(&loose, "lm_head.weight");
    let error = (gradient(&tied, "transformer.wte.weight") - sum).abs().max(..).item();
    assert!(error < 1e-15, "{error}");
}

#[test]
fn frozen_parameters_have_no_gradient_and_do_not_change() {
    let model = gpt::<f32>(config(), 1);
    let all = model.named_parameters();
    let frozen = |name: &str| name.contains("h.0.") || name.ends_with("wpe.weight");
    let mut adam = AdamW::new(&model, Default::default()).unwrap();
    let mut sgd = Sgd::new(&model, Default::default()).unwrap();
    for (name, p) in &all {
        p.set_trainable(!frozen(name));
    }
    let (x, y) = (Tensor::from([[0i64, 1, 2, 0]]), Tensor::from([[1i64, 2, 0, 5]]));
    let before = model.state_dict();
    let grads = model.loss(&x, &y, &mut Pass::train(1)).backward();
    for (name, p) in &all {
        assert_eq!(grads.by_id(p.id()).is_none(), frozen(name), "{name}");
    }
    adam.step(&grads).unwrap();
    sgd.step(&grads).unwrap();
    for (name, value) in model.state_dict() {
        assert_eq!(bits(&value) == bits(&before[&name]), frozen(&name), "{name}");
    }
    // A gradient from before freezing is not used either.
    model.set_trainable(true);
    let grads = model.loss(&x, &y, &mut Pass::train(1)).backward();
    assert_eq!(grads.len(), all.len());
    model.set_trainable(false);
    let before = state_bits(&model);
    adam.step(&grads).unwrap();
    assert_eq!(state_bits(&model), before);
    assert!(!model.loss(&x, &y, &mut Pass::train(1)).is_tracked());
}

#[test]
fn later_changes_of_a_parameter_do_not_affect_a_graph() {
    let layer = Linear::<f64>::without_bias(2, 1, &mut Rng::new(0));
    layer.weight.set(Tensor::from([[2.0, 3.0]]));
    let x = Var::leaf(Tensor::from([[1.0, 1.0]]));
    let y = layer.forward(&x, &mut Pass::eval());
    layer.weight.update(|w| w.make_mut().fill(100.0));
    assert_eq!(y.backward().get(&x).unwrap().to_vec(), [2.0, 3.0]);
    assert_eq!(layer.weight.value().to_vec(), [100.0, 100.0]);
    let y = layer.forward(&x, &mut Pass::eval());
    let early = Backprop::from(&y).retain_graph().run();
    Sgd::new(&layer, SgdConfig { lr: 1.0, ..Default::default() }).unwrap().step(&early).unwrap();
    assert_eq!(layer.weight.value().to_vec(), [99.0, 99.0]);
    assert_eq!(y.backward().get(&x).unwrap().to_vec(), [100.0, 100.0]);
    let text = panic_text(|| layer.weight.update(|w| *w = Tensor::zeros([3])));
    assert_eq!(text, "update: [1, 2] has become [3]");
    // The old value is lost, and nothing is computed with another shape.
    let is_lost = || layer.weight.value().to_vec().iter().all(|x: &f64| x.is_nan());
    assert!(*layer.weight.value().shape() == [1, 2] && is_lost());
    let fails = |mut values: Vec<&mut Tensor<f64>>| {
        *values[0] = Tensor::zeros([3]);
        panic!("in the closure")
    };
    layer.weight.set(Tensor::from([[2.0, 3.0]]));
    assert_eq!(panic_text(|| Param::update_all(&[&layer.weight], fails)), "in the closure");
    assert!(*layer.weight.value().shape() == [1, 2] && is_lost());
}

/// It is the operation with the next key of the pass, and nothing in evaluation.
#[test]
fn dropout_is_the_operation_in_training_only() {
    let values = [0.0f32, -0.0, 1.5, f32::NAN, f32::INFINITY, f32::MIN_POSITIVE / 8.0, -7.0];
    let x = Var::leaf(Tensor::from(values));
    for p in [0.0, 0.3, 0.7, 1.0] {
        let (dropout, mut pass) = (Dropout::new(p), Pass::train(1));
        let want = [(); 2].map(|()| x.dropout(p, pass.key().unwrap()));
        let mut pass = Pass::train(1);
        let got = [(); 2].map(|()| dropout.forward(&x, &mut pass));
        assert_eq!(got.map(|y| bits(y.value())), want.map(|y| bits(y.value())), "p = {p}");
        let y = dropout.forward(&x, &mut Pass::eval());
        assert_eq!(bits(y.value()), bits(x.value()), "p = {p}");
        assert_eq!(y.sum(..).backward().get(&x).unwrap().to_vec(), [1.0; 7]);
    }
}

#[test]
fn equal_seeds_give_equal_passes() {
    let model = gpt::<f32>(GptConfig { dropout: 0.4, ..config() }, 1);
    let tokens = Tensor::from([[0i64, 1, 2, 3, 4, 5]]);
    let run = |mut pass: Pass| bits(model.forward(&tokens, &mut pass).value());
    assert_eq!(run(Pass::train(3)), run(Pass::train(3)));
    assert_ne!(run(Pass::train(3)), run(Pass::train(4)));
    assert_eq!(run(Pass::train_step(3, 9)), run(Pass::train_step(3, 9)));
    assert_ne!(run(Pass::train_step(3, 9)), run(Pass::train_step(3, 10)));
    assert_ne!(run(Pass::train_step(3, 9)), run(Pass::train_step(4, 9)));
    assert_eq!(run(Pass::train_step(3, 0)), run(Pass::train(3)));
    assert_eq!(run(Pass::eval()), run(Pass::eval()));
    assert_ne!(run(Pass::eval()), run(Pass::train(3)));
    // Two dropouts of one pass draw different masks.
    let x = Var::constant(Tensor::<f32>::ones([64]));
    let mut pass = Pass::train(3);
    let drop = Dropout::new(0.5);
    let masks = [drop.forward(&x, &mut pass), drop.forward(&x, &mut pass)];
    assert_ne!(bits(masks[0].value()), bits(masks[1].value()));
}

#[test]
fn parts_of_steps_share_no_random_stream() {
    let steps = [0, 1, 1 << 32, (1 << 32) + 1, u64::MAX];
    let parts = steps.into_iter().flat_map(|step| Pass::train_step(3, step).split(600));
    let keys: Vec<_> = parts.map(|mut part| part.key().unwrap()).collect();
    let distinct: BTreeSet<_> = keys.iter().map(|key| (key.seed(), key.stream())).collect();
    assert_eq!(distinct.len(), keys.len());
}

/// The loss over a large vocabulary, whose logits are computed in blocks, equals that of all logits.
#[test]
fn loss_over_a_large_vocabulary_equals_that_of_all_logits() {
    for tied in [true, false] {
        let config = GptConfig { vocab: 8200, context: 4, tied, ..config() };
        let model = gpt::<f64>(config, 3);
        let x = Tensor::from([[0i64, 8199, 2, 3], [4, 5, 6, 7]]);
        let y = Tensor::from([[8199i64, 2, 3, -100], [5, 6, 7, 8]]);
        let fused = model.loss(&x, &y, &mut Pass::eval());
        let logits = model.forward(&x, &mut Pass::eval());
        let plain = logits.cross_entropy(&y, CrossEntropy::default());
        assert!((fused.item() - plain.item()).abs() < 1e-12);
        let (fused, plain) = (fused.backward(), plain.backward());
        assert_eq!(fused.len(), plain.len());
        for (id, g) in plain.iter() {
            let off = (g - fused.by_id(id).unwrap()).abs().max(..).item();
            assert!(off < 1e-12, "{off}");
        }
    }
}

/// Layers are trait objects that several threads can share.
#[test]
fn sequential_runs_in_sharded() {
    let rng = &mut Rng::new(3);
    let model = Sequential::<f64>::new()
        .then(Linear::new(4, 8, rng))
        .then(Activation::Gelu)
        .then(Linear::new(8, 2, rng));
    let x = randn(&[6, 4], 5);
    let mean =
        |x: Tensor<f64>| model.forward(&Var::constant(x), &mut Pass::eval()).square().mean(..);
    let rows = [4, 2];
    let part = |i: usize| mean(x.narrow(0, 4 * i, rows[i]));
    let (loss, grads) = with_threads(2, || retrograd_autograd::sharded(&rows, part));
    let whole = mean(x.clone());
    assert!((loss - whole.item()).abs() < 1e-14, "{loss} is not {}", whole.item());
    let want = whole.backward();
    for (name, param) in model.named_parameters() {
        let difference = grads.get(&param).unwrap() - want.get(&param).unwrap();
        assert!(difference.abs().max(..).item() < 1e-14, "{name}");
    }
}

#[test]
fn non_finite_gradients_are_named() {
    let mut rng = Rng::new(3);
    let embedding = retrograd_nn::Embedding::<f64>::new(3, 2, &mut rng);
    let (a, b) = (Linear::<f64>::new(2, 2, &mut rng), Linear::tied(&embedding.weight));
    struct Model {
        embedding: retrograd_nn::Embedding<f64>,
        a: Linear<f64>,
        b: Linear<f64>,
    }
    impl Module<f64> for Model {
        fn visit(&self, v: &mut Visitor<'_, f64>) {
            v.module("embedding", &self.embedding);
            v.module("a", &self.a);
            v.module("b", &self.b);
        }
    }
    let model = Model { embedding, a, b };
    let names = |factor: f64| {
        let bias = model.a.bias.as_ref().unwrap().to_var();
        let loss = (model.embedding.weight.to_var() * factor).sum(..)
            + model.a.weight.to_var().sum(..)
            + (bias * factor).sum(..);
        model.non_finite_gradients(&loss.backward())
    };
    assert!(names(1.0).is_empty());
    // The tied parameter once, and in the order of the module.
    assert_eq!(names(f64::INFINITY), ["embedding.weight", "a.bias"]);
}

#[test]
fn types_are_short() {
    let cases = [
        ("retrograd_nn::linear::Linear<f32>", "Linear"),
        ("a::Residual<retrograd_nn::linear::Linear<f64>>", "Residual<Linear>"),
        ("a::Pair<b::X<f32>, c::Y, f64>", "Pair<X, Y>"),
        ("a::Scored<f32, b::Score>", "Scored<Score>"),
    ];
    for (full, short) in cases {
        assert_eq!(short_type(full), short);
    }
}
