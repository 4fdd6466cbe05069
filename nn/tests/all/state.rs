//! State dicts: names, and atomic loading.

use crate::common::*;
use proptest::prelude::*;
use retrograd_nn::*;
use retrograd_support::random_tests;
use retrograd_tensor::Tensor;
use retrograd_tensor::random::Rng;

/// nanoGPT's names for two layers in PyTorch's state_dict(), sorted.
fn nanogpt_names() -> Vec<String> {
    let of_layer = |i: usize| {
        let parts = "attn.c_attn attn.c_proj ln_1 ln_2 mlp.c_fc mlp.c_proj".split(' ');
        parts.flat_map(move |part| ["bias", "weight"].map(|kind| format!("h.{i}.{part}.{kind}")))
    };
    let rest = "ln_f.bias ln_f.weight wpe.weight wte.weight".split(' ').map(String::from);
    let inside = (0..2).flat_map(of_layer).chain(rest).map(|name| format!("transformer.{name}"));
    std::iter::once("lm_head.weight".to_string()).chain(inside).collect()
}

#[test]
fn names_are_those_of_nanogpt() {
    for tied in [true, false] {
        for bias in [true, false] {
            let model = gpt::<f32>(GptConfig { tied, bias, ..config() }, 1);
            let mut want = nanogpt_names();
            want.retain(|name| bias || !name.ends_with("bias"));
            let dict = model.state_dict();
            assert_eq!(dict.keys().cloned().collect::<Vec<_>>(), want);
            let parameters = model.named_parameters().len();
            assert_eq!(parameters, want.len() - tied as usize);
            assert_eq!(*dict["transformer.h.0.attn.c_attn.weight"].shape(), [24, 8]);
            assert_eq!(*dict["transformer.h.1.mlp.c_fc.weight"].shape(), [32, 8]);
            assert_eq!(*dict["transformer.h.1.mlp.c_proj.weight"].shape(), [8, 32]);
            assert_eq!(*dict["transformer.wpe.weight"].shape(), [6, 8]);
        }
    }
}

#[test]
fn sizes_are_those_of_nanogpt() {
    // The number printed by nanoGPT for its CPU recipe, plus the position embedding, which it excludes.
    let model = Gpt::<f32>::new(nanogpt_cpu(), &mut Rng::new(0)).unwrap();
    assert_eq!(model.num_parameters(), 65 * 128 + 64 * 128 + 4 * (12 * 128 * 128 + 2 * 128) + 128);
}

#[test]
fn visiting_order_is_the_order_of_construction_in_pytorch() {
    let model = gpt::<f32>(config(), 1);
    let names: Vec<String> = model.named_parameters().into_iter().map(|(n, _)| n).collect();
    assert_eq!(
        names[..6],
        [
            "transformer.wte.weight",
            "transformer.wpe.weight",
            "transformer.h.0.ln_1.weight",
            "transformer.h.0.ln_1.bias",
            "transformer.h.0.attn.c_attn.weight",
            "transformer.h.0.attn.c_attn.bias",
        ]
    );
    let layers = Sequential::<f32>::new()
        .then(Linear::new(2, 3, &mut Rng::new(0)))
        .then(Activation::Relu)
        .then(Linear::without_bias(3, 1, &mut Rng::new(0)));
    // A layer without parameters counts, as in torch.nn.Sequential.
    let names: Vec<String> = layers.named_parameters().into_iter().map(|(n, _)| n).collect();
    assert_eq!(names, ["0.weight", "0.bias", "2.weight"]);
}

#[test]
fn a_state_dict_is_a_snapshot() {
    let model = gpt::<f32>(config(), 1);
    let dict = model.state_dict();
    let before = dict_bits(&dict);
    shake(&model, &mut Rng::new(3));
    assert_ne!(state_bits(&model), before);
    assert_eq!(dict_bits(&dict), before);
    model.load_state_dict(&dict).unwrap();
    assert_eq!(state_bits(&model), before);
    // Loading does not share memory with the state dict.
    shake(&model, &mut Rng::new(3));
    assert_eq!(dict_bits(&dict), before);
}

#[test]
fn all_mismatches_are_listed_and_nothing_is_loaded() {
    let model = gpt::<f32>(config(), 1);
    let before = state_bits(&model);
    let mut dict = gpt::<f32>(config(), 2).state_dict();
    dict.remove("transformer.wpe.weight");
    dict.remove("transformer.h.1.mlp.c_fc.bias");
    dict.insert("transformer.h.2.ln_1.weight".into(), Tensor::ones([8]));
    dict.insert("optimizer".into(), Tensor::ones([]));
    dict.insert("transformer.ln_f.weight".into(), Tensor::ones([9]));
    dict.insert("transformer.h.0.mlp.c_fc.weight".into(), Tensor::ones([8, 32]));
    dict.insert("lm_head.weight".into(), Tensor::ones([7, 8]));
    let error = model.load_state_dict(&dict).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the state dict does not fit; nothing was loaded\
         \n  missing: transformer.wpe.weight\
         \n  missing: transformer.h.1.mlp.c_fc.bias\
         \n  unexpected: optimizer\
         \n  unexpected: transformer.h.2.ln_1.weight\
         \n  shape of transformer.h.0.mlp.c_fc.weight: expected [32, 8], the state dict has [8, 32]\
         \n  shape of transformer.ln_f.weight: expected [8], the state dict has [9]\
         \n  transformer.wte.weight and lm_head.weight are one tied parameter, but differ\
         \n  (hint: a checkpoint of GPT-2 stores the weights of attn.c_attn, attn.c_proj, mlp.c_fc \
         and mlp.c_proj transposed, as Conv1D does; `pretrained::gpt2().import(&file)` transposes \
         all of them, the square ones too: they have the same shape either way, so they are not \
         listed)"
    );
    assert_eq!(state_bits(&model), before);
    assert_eq!(model.load_state_dict(&StateDict::new()).unwrap_err().missing.len(), 28);
    assert_eq!(state_bits(&model), before);
}

#[test]
fn a_differing_prefix_of_names_is_explained() {
    let model = gpt::<f32>(config(), 1);
    let with = |prefix: &str| -> StateDict {
        let dict = gpt::<f32>(config(), 2).state_dict();
        dict.into_iter().map(|(name, w)| (format!("{prefix}{name}"), w)).collect()
    };
    let text = |dict: &StateDict| model.load_state_dict(dict).unwrap_err().to_string();
    let missing = model.named_parameters().into_iter().take(8);
    let missing: String = missing.map(|(name, _)| format!("\n  missing: {name}")).collect();
    let names = with("_orig_mod.").into_keys().take(8);
    let unexpected: String = names.map(|name| format!("\n  unexpected: {name}")).collect();
    let want = format!(
        "the state dict does not fit; nothing was loaded{missing}\n  and 20 more missing{unexpected}\
         \n  and 21 more unexpected\
         \n  (hint: names in the state dict begin with `_orig_mod.`, which torch.compile adds; \
         `Checkpoint::get(\"_orig_mod\")` removes it)"
    );
    assert_eq!(text(&with("_orig_mod.")), want);
    // The fields of the error contain all of them, and so does the long form of the message.
    let error = model.load_state_dict(&with("_orig_mod.")).unwrap_err();
    assert_eq!((error.missing.len(), error.unexpected.len()), (28, 29));
    let long = format!("{error:#}");
    assert_eq!(long.lines().filter(|line| line.starts_with("  missing: ")).count(), 28);
    assert_eq!(long.lines().filter(|line| line.starts_with("  unexpected: ")).count(), 29);
    assert!(!long.contains(" more ") && long.contains("(hint: names in the state dict begin"));
    let hint =
        |dict: &StateDict| text(dict).split_once("(hint: ").map(|(_, hint)| hint.to_string());
    let data_parallel = "names in the state dict begin with `module.`, which DataParallel and \
                         DistributedDataParallel add; `Checkpoint::get(\"module\")` removes it)";
    assert_eq!(hint(&with("module.")).unwrap(), data_parallel);
    let own = "names in the state dict begin with `model.gpt.`; `Checkpoint::get(\"model.gpt\")` removes \
               it)";
    assert_eq!(hint(&with("model.gpt.")).unwrap(), own);
    // With other names among them, and with the missing prefix.
    let mut dict = with("module.");
    dict.insert("step".into(), Tensor::ones([]));
    dict.remove("module.transformer.wpe.weight");
    assert_eq!(hint(&dict).unwrap(), data_parallel);
    let below: StateDict = with("")
        .into_iter()
        .filter_map(|(name, w)| Some((name.strip_prefix("transformer.")?.to_string(), w)))
        .collect();
    assert_eq!(
        hint(&below).unwrap(),
        "names in the state dict lack `transformer.` at their beginning)"
    );
    // Names without a common prefix.
    assert_eq!(hint(&StateDict::new()), None);
    let mut dict = with("");
    dict.remove("transformer.wpe.weight");
    dict.insert("wpe".into(), Tensor::ones([6, 8]));
    assert_eq!(hint(&dict), None);
}

#[test]
fn transposed_weights_are_explained() {
    // As in GPT-2's Conv1D: all four matrices of a block, one of which is square.
    let model = gpt::<f32>(config(), 1);
    let mut dict = model.state_dict();
    for (name, w) in &mut dict {
        if name.contains(".c_") && name.ends_with(".weight") {
            *w = w.t();
        }
    }
    let error = model.load_state_dict(&dict).unwrap_err();
    assert_eq!(error.mismatched.len(), 6);
    assert!(error.to_string().contains("transposes all of them, the square ones too"), "{error}");
    // Another shape is not explained as a transpose.
    let mut dict = model.state_dict();
    dict.insert("transformer.h.0.mlp.c_fc.weight".into(), Tensor::ones([8, 33]));
    assert!(!model.load_state_dict(&dict).unwrap_err().to_string().contains("hint"));
}

/// A parameter under two names, which is changed between its two visits.
struct Tied {
    param: Param,
    change: bool,
}

impl Module for Tied {
    fn visit(&self, v: &mut Visitor<'_, f32>) {
        v.param("a", &self.param);
        if self.change {
            self.param.update(|x| x.make_mut()[0] += 1.0);
        }
        v.param("b", &self.param);
    }
}

#[test]
fn a_tied_parameter_is_read_once() {
    let module = Tied { param: Param::new(Tensor::zeros([3])), change: true };
    let dict = module.state_dict();
    assert_eq!(bits(&dict["a"]), bits(&dict["b"]));
    Tied { change: false, ..module }.load_state_dict(&dict).unwrap();
}

#[test]
fn a_state_dict_is_consistent_while_another_thread_trains() {
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
    let model = gpt::<f32>(config(), 1);
    let fresh = gpt::<f32>(config(), 2);
    let stop = AtomicBool::new(false);
    std::thread::scope(|s| {
        s.spawn(|| {
            while !stop.load(Relaxed) {
                for (_, p) in model.named_parameters() {
                    p.update(|w| w.make_mut().iter_mut().for_each(|x| *x += 0.5));
                }
            }
        });
        let loaded = (0..3000).try_for_each(|_| fresh.load_state_dict(&model.state_dict()));
        stop.store(true, Relaxed);
        loaded.unwrap();
    });
}

#[test]
fn a_tied_parameter_may_have_either_name_or_both() {
    let source = gpt::<f32>(config(), 2);
    let want = state_bits(&source);
    for left_out in ["", "lm_head.weight", "transformer.wte.weight"] {
        let model = gpt::<f32>(config(), 1);
        let mut dict = source.state_dict();
        dict.remove(left_out);
        model.load_state_dict(&dict).unwrap();
        assert_eq!(state_bits(&model), want, "without {left_out:?}");
    }
    let model = gpt::<f32>(config(), 1);
    let before = state_bits(&model);
    let mut dict = source.state_dict();
    dict.remove("lm_head.weight");
    dict.remove("transformer.wte.weight");
    assert_eq!(model.load_state_dict(&dict).unwrap_err().missing, ["transformer.wte.weight"]);
    // Values that differ in one bit, or in the sign of a zero.
    for change in [|x: f32| f32::from_bits(x.to_bits() ^ 1), |_| -0.0] {
        let mut dict = source.state_dict();
        let mut head = dict["lm_head.weight"].contiguous();
        head.make_mut()[3] = 0.0;
        dict.insert("transformer.wte.weight".into(), head.clone());
        head.make_mut()[3] = change(0.0);
        dict.insert("lm_head.weight".into(), head);
        let error = model.load_state_dict(&dict).unwrap_err();
        assert_eq!(error.conflicting, [("transformer.wte.weight".into(), "lm_head.weight".into())]);
    }
    // Equal NaN are accepted, so that the state of a failed run can be loaded.
    let mut dict = source.state_dict();
    for name in ["lm_head.weight", "transformer.wte.weight"] {
        dict.insert(name.into(), Tensor::full([7, 8], f32::NAN));
    }
    assert_eq!(state_bits(&model), before);
    model.load_state_dict(&dict).unwrap();
}

#[test]
fn any_layout_can_be_loaded() {
    let layer = Linear::<f32>::new(3, 2, &mut Rng::new(0));
    let wide = Tensor::<f32>::randn([3, 4], &mut Rng::new(1));
    let weight = wide.slice(1, 1..3).t();
    let bias = Tensor::scalar(5.0f32).broadcast_to([2]);
    let dict = [("weight".to_string(), weight.clone()), ("bias".to_string(), bias)];
    layer.load_state_dict(&dict.into()).unwrap();
    assert_eq!(bits(&layer.weight.value()), bits(&weight));
    assert_eq!(layer.bias.unwrap().value().to_vec(), [5.0, 5.0]);
}

random_tests! {
    ProptestConfig::with_cases(64);

    /// After any edits of a state dict, either all of it is loaded or nothing.
    #[test]
    fn loading_is_atomic(edits in prop::collection::vec((0usize..29, 0u8..4), 0..4)) {
        let model = gpt::<f32>(config(), 1);
        let before = state_bits(&model);
        let mut dict = gpt::<f32>(config(), 2).state_dict();
        for (at, edit) in edits {
            let name = nanogpt_names().swap_remove(at);
            match edit {
                0 => drop(dict.remove(&name)),
                1 => drop(dict.insert(format!("{name}.more"), Tensor::ones([1]))),
                2 => drop(dict.insert(name, Tensor::ones([1, 2, 3]))),
                _ => drop(dict.insert(name.clone(), model.state_dict()[&name].clone())),
            }
        }
        match model.load_state_dict(&dict) {
            Ok(()) => {
                let after = model.state_dict();
                prop_assert!(dict.iter().all(|(name, t)| bits(t) == bits(&after[name])));
            }
            Err(_) => prop_assert_eq!(state_bits(&model), before),
        }
    }
}
