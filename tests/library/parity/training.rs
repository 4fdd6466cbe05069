//! Ten training steps of a small Gpt against PyTorch: losses, gradients and final weights; and the same weights as a
//! state dict of nanoGPT.

use super::{Fixture, to};
use retrograd::nn::checkpoint::{Checkpoint, Storable};
use retrograd::nn::{StateDict, optim, pretrained};
use retrograd::prelude::*;
use retrograd::tensor::Real;
use retrograd::tensor::settings::with_level;
use retrograd::tensor::simd::Level;
use safetensors::{Dtype, tensor::TensorView};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

/// The recorded run of PyTorch; tests/fixtures/README.md lists the tensors.
struct Recorded {
    file: Fixture,
    config: Value,
}

impl Recorded {
    fn load(name: &str) -> Recorded {
        let file = Fixture::load(name);
        Recorded { config: file.note("config"), file }
    }

    fn number(&self, name: &str) -> f64 {
        self.config[name].as_f64().unwrap()
    }

    fn f64s(&self, name: &str) -> Vec<f64> {
        self.file.real(name).to_vec()
    }

    fn batch(&self, name: &str, step: usize) -> Tensor<i64> {
        self.file.tensor(name).to_i64().unwrap().select(0, step)
    }

    fn gpt_config(&self) -> GptConfig {
        let size = |name: &str| self.config[name].as_u64().unwrap() as usize;
        GptConfig {
            vocab: size("vocab_size"),
            context: size("block_size"),
            layers: size("n_layer"),
            heads: size("n_head"),
            width: size("n_embd"),
            bias: self.config["bias"].as_bool().unwrap(),
            ..GptConfig::default()
        }
    }

    fn model<T: Storable>(&self) -> Gpt<T> {
        self.changed_model(0.0)
    }

    /// The model with each weight changed by up to `relative` of it.
    fn changed_model<T: Storable>(&self, relative: f64) -> Gpt<T> {
        let model = Gpt::new(self.gpt_config(), &mut Rng::new(0)).unwrap();
        let change = |w: &Tensor<f64>| {
            let noise = Tensor::rand(w.shape(), &mut Rng::new(1));
            to(&(w * (noise * 2.0 - 1.0).mul_scalar(relative).add_scalar(1.0)))
        };
        let weights = self.file.dict("weights");
        let weights = weights.iter().map(|(name, w)| (name.clone(), change(w))).collect();
        model.load_state_dict(&weights).unwrap();
        model
    }
}

/// The results of ten steps, converted to f64.
#[derive(Default, PartialEq)]
struct Run {
    losses: Vec<f64>,
    norms: Vec<f64>,
    /// By step and name, before clipping.
    grads: BTreeMap<String, Vec<f64>>,
    last: BTreeMap<String, Vec<f64>>,
}

fn wide<T: Real>(t: &Tensor<T>) -> Vec<f64> {
    t.to_vec().into_iter().map(|x| x.to_f64()).collect()
}

fn train<T: Storable>(fixture: &Recorded) -> Run {
    let model = fixture.model::<T>();
    let config = optim::AdamConfig {
        lr: 1.0,
        betas: (fixture.number("beta1"), fixture.number("beta2")),
        eps: fixture.number("adam_eps"),
        weight_decay: fixture.number("weight_decay"),
        ..Default::default()
    };
    let mut optimizer = AdamW::new(&model, config).unwrap();
    let mut run = Run::default();
    for (step, lr) in fixture.f64s("lr").into_iter().enumerate() {
        let (x, y) = (fixture.batch("batches.x", step), fixture.batch("batches.y", step));
        let loss = model.loss(&x, &y, &mut Pass::train(step as u64));
        let mut grads = loss.backward();
        for (name, param) in model.named_parameters() {
            let g = wide(grads.by_id(param.id()).unwrap());
            run.grads.insert(format!("{step}.{name}"), g);
        }
        run.losses.push(loss.item().to_f64());
        run.norms.push(grads.clip_norm(fixture.number("max_grad_norm")));
        optimizer.set_lr(lr);
        optimizer.step(&grads).unwrap();
    }
    run.last = model.named_parameters().into_iter().map(|(n, p)| (n, wide(&p.value()))).collect();
    run
}

/// The largest difference, which must be at most `bound`.
#[track_caller]
fn close(what: &str, got: &[f64], want: &[f64], bound: f64) -> f64 {
    assert_eq!(got.len(), want.len(), "{what}");
    got.iter().zip(want).fold(0.0, |worst, (a, b)| {
        let off = (a - b).abs();
        assert!(off <= bound, "{what}: {a} and {b} differ by {off:e}, allowed are {bound:e}");
        off.max(worst)
    })
}

const FIXTURES: [&str; 2] = ["gpt_training.safetensors", "gpt_training_nobias.safetensors"];

#[test]
fn ten_steps_agree_with_pytorch_in_f64() {
    for name in FIXTURES {
        let fixture = Recorded::load(name);
        let run = train::<f64>(&fixture);
        let losses = close("losses", &run.losses, &fixture.f64s("losses"), 1e-9);
        let norms = close("norms", &run.norms, &fixture.f64s("grad_norms"), 1e-9);
        let (mut grads, mut weights) = (0.0f64, 0.0f64);
        for step in [0, 9] {
            let recorded = fixture.file.dict(&format!("grads.{step}"));
            for (name, want) in &recorded {
                let what = format!("{step}.{name}");
                grads = grads.max(close(&what, &run.grads[&what], &want.to_vec(), 1e-8));
            }
            let of_step = format!("{step}.");
            let made = run.grads.keys().filter(|n| n.starts_with(&of_step)).count();
            assert_eq!(recorded.len(), made, "gradients of step {step}");
        }
        let last = fixture.file.dict("final");
        assert!(last.keys().eq(run.last.keys()), "names of parameters");
        for (name, want) in last {
            // The gradients of key biases are rounding errors only, which Adam normalises to
            // steps of about 1e-12; the bound of 1e-10 holds for them, too.
            weights = weights.max(close(&name, &run.last[&name], &want.to_vec(), 1e-10));
        }
        println!(
            "{name}, largest differences in f64: losses {losses:.1e}, norms {norms:.1e}, \
             gradients {grads:.1e}, final weights {weights:.1e}"
        );
    }
}

#[test]
fn ten_steps_agree_with_pytorch_in_f32() {
    for name in FIXTURES {
        let fixture = Recorded::load(name);
        let run = train::<f32>(&fixture);
        let mut worst = [0.0f64; 2];
        for (i, what) in ["losses", "losses_f32"].into_iter().enumerate() {
            for (step, (got, want)) in run.losses.iter().zip(fixture.f64s(what)).enumerate() {
                let off = (got / want - 1.0).abs();
                assert!(off <= 1e-5, "{name}, step {step}: loss {got}, {what} {want}");
                worst[i] = worst[i].max(off);
            }
        }
        // Relative to the largest element of all, as some gradients are rounding errors only.
        let mut grads = 0.0f64;
        for step in [0, 9] {
            let recorded = fixture.file.dict(&format!("grads.{step}"));
            let size = |t: &Tensor<f64>| t.abs().max(..).item();
            let largest = recorded.values().map(size).fold(0.0, f64::max);
            for (name, want) in &recorded {
                let what = format!("{step}.{name}");
                let off = close(&what, &run.grads[&what], &want.to_vec(), 1e-5 * largest);
                grads = grads.max(off / largest);
            }
        }
        println!(
            "{name}, largest relative differences in f32: losses {:.1e} to f64, {:.1e} to f32, \
             gradients {grads:.1e} to f64",
            worst[0], worst[1]
        );
    }
}

/// The roundings of 500 steps add up as in a random walk, of steps as large as the effect of rounding the first weights.
#[test]
fn f32_follows_f64_for_500_steps() {
    fn losses<T: Storable>(fixture: &Recorded, change: f64) -> Vec<f64> {
        let model = fixture.changed_model::<T>(change);
        let config = optim::AdamConfig { lr: 1e-3, ..Default::default() };
        let mut optimizer = AdamW::new(&model, config).unwrap();
        let step = |i: usize| {
            let (x, y) = (fixture.batch("batches.x", i % 10), fixture.batch("batches.y", i % 10));
            let loss = model.loss(&x, &y, &mut Pass::train(i as u64));
            optimizer.step(&loss.backward()).unwrap();
            loss.item().to_f64()
        };
        (0..500).map(step).collect()
    }
    let fixture = Recorded::load(FIXTURES[0]);
    let exact = losses::<f64>(&fixture, 0.0);
    let off =
        |other: &[f64]| exact.iter().zip(other).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    let rounded = off(&losses::<f64>(&fixture, f32::EPSILON.into()));
    let single = off(&losses::<f32>(&fixture, 0.0));
    println!(
        "losses from {:.3} to {:.3}; off by {single:.1e} in f32, {rounded:.1e} by the first weights",
        exact[0], exact[499]
    );
    assert!(
        exact[499] < 0.5 * exact[0] && single <= 4.0 * 500f64.sqrt() * rounded,
        "{single:e}, {rounded:e}"
    );
}

#[test]
fn bits_do_not_depend_on_threads_or_level() {
    fn check<T: Storable>() {
        for name in FIXTURES {
            let fixture = Recorded::load(name);
            let mut fused: Option<Run> = None;
            for level in Level::available() {
                let run = |n| with_level(level, || with_threads(n, || train::<T>(&fixture)));
                let (one, two) = (run(1), run(2));
                assert!(one == two, "{name}, {level}: 1 and 2 threads");
                if !level.is_fused() {
                    // Multiply-adds are not fused at that level, so results differ by rounding.
                    let bound = if T::DTYPE == retrograd::tensor::DType::F64 { 1e-9 } else { 1e-4 };
                    close("scalar losses", &one.losses, &fixture.f64s("losses"), bound);
                    continue;
                }
                let first = fused.get_or_insert(one);
                assert!(*first == two, "{name}: {level} and another level");
            }
        }
    }
    check::<f32>();
    check::<f64>();
}

/// The weights of a fixture, written by the reference implementation of the format.
fn nanogpt_file(weights: &StateDict<f64>, layers: usize, context: usize, to: &Path) {
    let mut all: BTreeMap<String, Tensor<f64>> =
        weights.iter().map(|(name, w)| (format!("_orig_mod.{name}"), w.clone())).collect();
    let head = weights["transformer.wte.weight"].clone();
    all.insert("_orig_mod.lm_head.weight".into(), head);
    for layer in 0..layers {
        let mask = Tensor::<f64>::ones([1, 1, context, context]).tril(0);
        all.insert(format!("_orig_mod.transformer.h.{layer}.attn.bias"), mask);
    }
    let bytes = |t: &Tensor<f64>| t.to_vec().into_iter().flat_map(f64::to_le_bytes).collect();
    let data: Vec<(String, Vec<usize>, Vec<u8>)> =
        all.into_iter().map(|(name, t)| (name, t.shape().to_vec(), bytes(&t))).collect();
    let views = data.iter().map(|(name, shape, bytes)| {
        (name.as_str(), TensorView::new(Dtype::F64, shape.clone(), bytes).unwrap())
    });
    std::fs::write(to, safetensors::serialize(views, None).unwrap()).unwrap();
}

/// With the prefix of a compiled model, causal masks as buffers, and the tied head under two names.
#[test]
fn state_dicts_of_nanogpt_can_be_loaded() {
    let fixture = Recorded::load("gpt_training.safetensors");
    let (weights, config) = (fixture.file.dict("weights"), fixture.gpt_config());
    let folder = tempfile::TempDir::new().unwrap();
    let path = folder.path().join("model.safetensors");
    nanogpt_file(&weights, config.layers, config.context, &path);

    let model = Gpt::<f64>::new(config, &mut Rng::new(0)).unwrap();
    let file = Checkpoint::load(&path).unwrap();
    let everything: StateDict<f64> = file.get("").unwrap();
    assert_eq!(everything.len(), file.tensors.len());
    assert!(everything.keys().all(
        |name| name.starts_with("_orig_mod.transformer") || name == "_orig_mod.lm_head.weight"
    ));

    let mut dict: StateDict<f64> = file.get("_orig_mod").unwrap();
    let error = model.load_state_dict(&dict).unwrap_err();
    assert_eq!(error.unexpected, ["transformer.h.0.attn.bias", "transformer.h.1.attn.bias"]);
    assert!(
        error.missing.is_empty() && error.mismatched.is_empty() && error.conflicting.is_empty()
    );
    dict.retain(|name, _| !name.ends_with(".attn.bias"));
    // The map does both.
    let mapped: StateDict<f64> = pretrained::nanogpt().import(&file).unwrap();
    assert!(mapped == dict, "{:?}", mapped.keys());
    model.load_state_dict(&mapped).unwrap();

    let (x, y) = (fixture.batch("batches.x", 0), fixture.batch("batches.y", 0));
    let loss = model.loss(&x, &y, &mut Pass::eval()).item();
    assert!((loss - fixture.f64s("losses")[0]).abs() < 1e-12, "{loss}");
}
