//! Models of Hugging Face's transformers: loaded, run, saved, and refused where they do not fit.

use retrograd::nn::attention::{
    HeadSizes, Llama3Scaling, Pairing, Projections, QuietAttention, Scaling, Yarn,
};
use retrograd::nn::checkpoint::{AnyTensor, Checkpoint, Storable};
use retrograd::nn::pretrained::{self, PretrainedError};
use retrograd::nn::{
    AttentionKind, MlpKind, Names, NormKind, Positions, RopeConfig, StateDict, attention_layer,
};
use retrograd::prelude::*;
use retrograd_support::fixture;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

fn logits_file(name: &str) -> Checkpoint {
    Checkpoint::load(fixture(name).join("logits.safetensors")).unwrap()
}

/// The logits of the tokens of a fixture.
fn logits<T: Storable>(model: &Gpt<T>, file: &Checkpoint) -> Tensor<f64> {
    let tokens = file.tensors["tokens"].to_i64().unwrap();
    T::wrap(model.forward(&tokens, &mut Pass::eval()).into_value()).to_float().unwrap()
}

/// The largest difference from recorded logits, relative to the largest of them.
#[track_caller]
fn near<T: Storable>(model: &Gpt<T>, file: &Checkpoint, name: &str, bound: f64) {
    let want: Tensor<f64> = file.tensors[name].to_float().unwrap();
    let got = logits(model, file);
    assert_eq!(got.shape(), want.shape());
    let off = (&got - &want).abs().max(..).item() / want.abs().max(..).item();
    println!("{name}: {off:.1e}");
    assert!(off <= bound, "{name}: the relative difference is {off:e}, allowed is {bound:e}");
}

/// The weights of a fixture, under the names and in the layout of the file.
fn weights(name: &str) -> Checkpoint {
    Checkpoint::load(fixture(name).join("model.safetensors")).unwrap()
}

/// A folder with another configuration or other weights than a fixture.
struct Folder(TempDir);

impl Folder {
    fn of(name: &str) -> Folder {
        let folder = TempDir::new().unwrap();
        for file in ["config.json", "model.safetensors"] {
            fs::copy(fixture(name).join(file), folder.path().join(file)).unwrap();
        }
        Folder(folder)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    /// Changes entries of the configuration; null removes one.
    fn config(&self, changes: Value) -> &Folder {
        let path = self.path().join("config.json");
        let mut config: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
        for (name, value) in changes.as_object().unwrap() {
            config[name] = value.clone();
        }
        fs::write(&path, config.to_string()).unwrap();
        self
    }

    fn weights(&self, tensors: BTreeMap<String, AnyTensor>) -> &Folder {
        let file = Checkpoint { tensors, ..Checkpoint::new() };
        file.save_plain(self.path().join("model.safetensors")).unwrap();
        self
    }

    #[track_caller]
    fn load<T: Storable>(&self) -> Gpt<T> {
        Gpt::from_pretrained(self.path()).unwrap_or_else(|e| panic!("{e}"))
    }

    /// Why it is refused.
    #[track_caller]
    fn refused(&self) -> String {
        let error = Gpt::<f32>::from_pretrained(self.path()).unwrap_err();
        error.to_string().replace(&format!("{}", self.path().display()), "FOLDER")
    }
}

/// The configuration with the sizes of the fixtures.
pub fn sized(config: GptConfig) -> GptConfig {
    GptConfig { vocab: 65, context: 16, layers: 2, heads: 4, width: 32, ..config }
}

#[test]
fn gpt2_gives_the_logits_of_transformers() {
    let file = logits_file("gpt2");
    let model = Gpt::<f32>::from_pretrained(fixture("gpt2")).unwrap();
    let config = sized(GptConfig { dropout: 0.1, mlp: MlpKind::GeluTanh, ..GptConfig::default() });
    assert_eq!(*model.config(), config);
    near(&model, &file, "logits.f32", 1e-5);
    // A file of f32 into a model of f64.
    let wide = Gpt::<f64>::from_pretrained(fixture("gpt2")).unwrap();
    near(&wide, &file, "logits.f64", 1e-13);
    // The test can fail: nanoGPT's activation is another function.
    let exact =
        Gpt::<f64>::new(GptConfig { mlp: MlpKind::Gelu, ..config }, &mut Rng::new(0)).unwrap();
    exact.load_state_dict(&wide.state_dict()).unwrap();
    let off = (logits(&exact, &file) - logits(&wide, &file)).abs().max(..).item();
    assert!(off > 1e-3, "{off:e}");
}

#[test]
fn llama_gives_the_logits_of_transformers() {
    let file = logits_file("llama");
    let model = Gpt::<f32>::from_pretrained(fixture("llama")).unwrap();
    let config = sized(GptConfig {
        key_heads: Some(2),
        norm_eps: 1e-6,
        hidden: Some(48),
        positions: Positions::Rope(RopeConfig { base: 500.0, ..RopeConfig::default() }),
        ..GptConfig::llama()
    });
    assert_eq!(*model.config(), config);
    near(&model, &file, "logits.default.f32", 1e-5);
    let wide = Gpt::<f64>::from_pretrained(fixture("llama")).unwrap();
    near(&wide, &file, "logits.default.f64", 1e-13);
    // Other rotary positions, in the form of version 5 of transformers and in that before.
    let linear = json!({ "rope_type": "linear", "factor": 4.0 });
    let yarn = json!({
        "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8, "beta_fast": 8.0,
    });
    let llama3 = json!({
        "rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 16,
        "low_freq_factor": 0.1, "high_freq_factor": 1.0,
    });
    for (name, scaling) in [("linear", linear), ("yarn", yarn), ("llama3", llama3)] {
        let name = format!("logits.{name}.f32");
        let folder = Folder::of("llama");
        let old =
            json!({ "rope_parameters": null, "rope_theta": 10000.0, "rope_scaling": scaling });
        folder.config(old);
        near(&folder.load::<f32>(), &file, &name, 1e-5);
        let mut parameters = scaling.clone();
        parameters["rope_theta"] = json!(10000.0);
        folder.config(json!({
            "rope_parameters": parameters, "rope_theta": null, "rope_scaling": null,
        }));
        near(&folder.load::<f32>(), &file, &name, 1e-5);
    }
}

/// Entries of config.json, and how the configuration differs from that of the entries before `{}`. The
/// defaults are those of `GPT2Config()` and `LlamaConfig()` of transformers 5.24.
const CONFIGURATIONS: &str = r#"
gpt2 {} | {"vocab":50257,"context":1024,"layers":12,"heads":12,"width":768,"dropout":0.1,"bias":true,"tied":true,"attention":"causal","key_heads":null,"head_width":null,"qk_norm":false,"windows":[],"norm":"layer-norm","norm_eps":1e-5,"mlp":"gelu-tanh","hidden":null,"positions":"learned","logit_softcap":null,"names":"gpt2"}
gpt2 {"vocab_size":3,"n_positions":4,"n_embd":24,"n_layer":5,"n_head":6,"n_inner":7,"layer_norm_epsilon":1e-3,"tie_word_embeddings":false} | {"vocab":3,"context":4,"layers":5,"heads":6,"width":24,"hidden":7,"norm_eps":1e-3,"tied":false}
gpt2 {"resid_pdrop":0.5,"embd_pdrop":0.5,"attn_pdrop":0.5,"n_inner":3072} | {"dropout":0.5}
gpt2 {"activation_function":"gelu_new"} | {}
gpt2 {"activation_function":"gelu_pytorch_tanh"} | {}
gpt2 {"activation_function":"gelu_fast"} | {}
gpt2 {"activation_function":"gelu"} | {"mlp":"gelu"}
gpt2 {"activation_function":"relu"} | {"mlp":"relu"}
gpt2 {"activation_function":"relu2"} | {"mlp":"relu-squared"}
llama {} | {"vocab":32000,"context":2048,"layers":32,"heads":32,"width":4096,"dropout":0.0,"bias":false,"tied":false,"attention":"causal","key_heads":null,"head_width":null,"qk_norm":false,"windows":[],"norm":"rms-norm","norm_eps":1e-6,"mlp":"swiglu","hidden":11008,"positions":{"rope":{"base":10000.0,"width":null,"pairing":"Half","scaling":"None"}},"logit_softcap":null,"names":"llama"}
llama {"vocab_size":3,"max_position_embeddings":4,"hidden_size":24,"num_hidden_layers":5,"num_attention_heads":6,"num_key_value_heads":2,"head_dim":8,"intermediate_size":7,"rms_norm_eps":1e-3,"tie_word_embeddings":true,"attention_bias":true,"mlp_bias":true} | {"vocab":3,"context":4,"layers":5,"heads":6,"width":24,"key_heads":2,"head_width":8,"hidden":7,"norm_eps":1e-3,"tied":true,"bias":true}
llama {"intermediate_size":10928,"num_key_value_heads":32,"head_dim":128,"hidden_act":"silu","partial_rotary_factor":1.0} | {"hidden":null}
llama {"hidden_act":"swish"} | {}
llama {"hidden_act":"gelu"} | {"mlp":"geglu"}
llama {"hidden_act":"relu"} | {"mlp":"reglu"}
llama {"rope_theta":5.0} | {"positions":{"rope":{"base":5.0}}}
llama {"rope_theta":5.0,"rope_parameters":{"rope_theta":7.0}} | {"positions":{"rope":{"base":7.0}}}
llama {"rope_theta":5.0,"rope_parameters":{"rope_type":"linear","factor":2.0}} | {"positions":{"rope":{"base":5.0,"scaling":{"Linear":{"factor":2.0}}}}}
llama {"rope_scaling":{"type":"linear","factor":2.0},"rope_parameters":{"rope_theta":7.0}} | {"positions":{"rope":{"scaling":{"Linear":{"factor":2.0}}}}}
llama {"rope_scaling":{},"rope_parameters":{"rope_theta":7.0}} | {"positions":{"rope":{"base":7.0}}}
llama {"rope_scaling":null,"rope_parameters":{"rope_theta":7.0}} | {"positions":{"rope":{"base":7.0}}}
llama {"rope_scaling":{"type":"linear","rope_type":"linear","factor":2.0}} | {"positions":{"rope":{"scaling":{"Linear":{"factor":2.0}}}}}
llama {"rope_scaling":{"type":"linear","rope_type":"default","factor":2.0}} | {}
llama {"rope_scaling":{"rope_type":"llama3","factor":8.0,"low_freq_factor":1.0,"high_freq_factor":4.0}} | {"positions":{"rope":{"scaling":{"Llama3":{"factor":8.0,"context":2048,"low":1.0,"high":4.0}}}}}
llama {"rope_parameters":{"rope_type":"llama3","factor":8.0,"low_freq_factor":1.0,"high_freq_factor":4.0,"original_max_position_embeddings":512}} | {"positions":{"rope":{"scaling":{"Llama3":{"factor":8.0,"context":512,"low":1.0,"high":4.0}}}}}
llama {"rope_parameters":{"rope_type":"yarn","factor":1.0}} | {"positions":{"rope":{"scaling":{"Yarn":{"factor":1.0,"context":2048,"beta_fast":32.0,"beta_slow":1.0,"rounded":true,"attention":1.0}}}}}
llama {"rope_parameters":{"rope_type":"yarn","factor":4.0}} | {"positions":{"rope":{"scaling":{"Yarn":{"factor":4.0,"context":2048,"beta_fast":32.0,"beta_slow":1.0,"rounded":true,"attention":1.138629436111989}}}}}
llama {"rope_parameters":{"rope_type":"yarn","factor":4.0,"beta_fast":8.0,"beta_slow":2.0,"attention_factor":0.5,"original_max_position_embeddings":512}} | {"positions":{"rope":{"scaling":{"Yarn":{"factor":4.0,"context":512,"beta_fast":8.0,"beta_slow":2.0,"rounded":true,"attention":0.5}}}}}"#;

/// Replaces the entries of an object, and those of objects in it.
fn change(json: &mut Value, changes: Value) {
    match (json, changes) {
        (Value::Object(json), Value::Object(changes)) => {
            changes.into_iter().for_each(|(name, to)| change(&mut json[&name], to));
        }
        (json, to) => *json = to,
    }
}

#[test]
fn defaults_are_those_of_transformers_and_every_entry_has_its_effect() {
    let mut default = BTreeMap::new();
    for line in CONFIGURATIONS.trim().lines() {
        let (entries, changes) = line.split_once(" | ").unwrap();
        let (kind, entries) = entries.split_once(' ').unwrap();
        let [mut entries, changes]: [Value; 2] =
            [entries, changes].map(|json| serde_json::from_str(json).unwrap());
        let mut want = default.entry(kind).or_insert(changes.clone()).clone();
        change(&mut want, changes);
        entries["model_type"] = kind.into();
        let got = pretrained::config_from_json(&entries.to_string()).unwrap();
        assert_eq!(serde_json::to_value(got).unwrap(), want, "{line}");
    }
    let preset = |kind: &str, changes: Value| {
        let mut preset = default[kind].clone();
        let nanogpt =
            json!({ "vocab": 50304, "context": 1024, "layers": 12, "heads": 12, "width": 768 });
        [nanogpt, json!({ "dropout": 0.0, "hidden": null }), changes]
            .into_iter()
            .for_each(|changes| change(&mut preset, changes));
        serde_json::from_value::<GptConfig>(preset).unwrap()
    };
    assert_eq!(GptConfig::default(), preset("gpt2", json!({ "mlp": "gelu" })));
    assert_eq!(GptConfig::llama(), preset("llama", json!({ "norm_eps": 1e-5 })));
    let modern = json!({ "tied": true, "names": "gpt2", "qk_norm": true, "mlp": "relu-squared" });
    let modern = GptConfig { attention: AttentionKind::GroupedQuery, ..preset("llama", modern) };
    assert_eq!(GptConfig::modern(), modern);
}

#[test]
fn a_name_given_twice_is_refused() {
    for (text, field) in [
        (r#"{ "model_type": "gpt2", "model_type": "llama" }"#, "model_type"),
        (r#"{ "model_type": "gpt2", "n_layer": 1, "n_layer": 2 }"#, "n_layer"),
        (
            r#"{ "model_type": "llama", "rope_parameters": { "rope_theta": 2, "rope_theta": 3 } }"#,
            "rope_theta",
        ),
    ] {
        let said = pretrained::config_from_json(text).unwrap_err().to_string();
        assert!(said.starts_with(&format!("duplicate field `{field}`")), "{said}");
    }
    let folder = Folder::of("gpt2");
    fs::remove_file(folder.path().join("model.safetensors")).unwrap();
    let index = r#"{ "weight_map": { "w": "a.safetensors", "w": "b.safetensors" } }"#;
    fs::write(folder.path().join("model.safetensors.index.json"), index).unwrap();
    let said = folder.refused();
    assert!(said.contains("index.json: duplicate name \"w\""), "{said}");
}

#[test]
fn a_tied_head_may_be_absent_or_present() {
    let file = logits_file("llama");
    let mut dict = weights("llama").tensors;
    let folder = Folder::of("llama");
    folder.config(json!({
        "tie_word_embeddings": true,
        "rope_parameters": { "rope_type": "default", "rope_theta": 10000.0 },
    }));
    dict.insert("lm_head.weight".into(), dict["model.embed_tokens.weight"].clone());
    near(&folder.weights(dict.clone()).load::<f32>(), &file, "logits.tied.f32", 1e-5);
    dict.remove("lm_head.weight");
    near(&folder.weights(dict.clone()).load::<f32>(), &file, "logits.tied.f32", 1e-5);
    // Two heads that differ are not tied.
    dict.insert("lm_head.weight".into(), weights("llama").tensors["lm_head.weight"].clone());
    let said = folder.weights(dict.clone()).refused();
    let conflict =
        "model.embed_tokens.weight and lm_head.weight are one tied parameter, but differ";
    assert!(said.contains(conflict), "{said}");
    // A model with a head of its own needs one.
    dict.remove("lm_head.weight");
    let said =
        folder.weights(dict.clone()).config(json!({ "tie_word_embeddings": false })).refused();
    assert!(said.contains("missing: lm_head.weight"), "{said}");
    // It can be asked for: then it begins as a copy.
    let model = Gpt::<f32>::from_pretrained(fixture("llama")).unwrap();
    let map = pretrained::llama(model.config()).tie("lm_head.weight", "model.embed_tokens.weight");
    let file = Checkpoint { tensors: dict, ..Checkpoint::new() };
    model.load_state_dict(&map.import(&file).unwrap()).unwrap();
    let dict = model.state_dict();
    assert_eq!(dict["lm_head.weight"], dict["model.embed_tokens.weight"]);
}

#[test]
fn spellings_of_gpt2_are_the_same_model() {
    let file = logits_file("gpt2");
    let dict = weights("gpt2").tensors;
    assert!(!dict.contains_key("lm_head.weight") && dict.contains_key("transformer.wpe.weight"));
    let folder = Folder::of("gpt2");
    let same = |dict: &BTreeMap<String, AnyTensor>| {
        near(&folder.weights(dict.clone()).load::<f32>(), &file, "logits.f32", 1e-5);
    };
    let prefixed = |prefix: &str| -> BTreeMap<String, AnyTensor> {
        dict.iter().map(|(name, w)| (format!("{prefix}{name}"), w.clone())).collect()
    };
    // As GPT2Model, whose files are the published ones.
    let bare: BTreeMap<String, AnyTensor> = dict
        .iter()
        .map(|(name, w)| (name.strip_prefix("transformer.").unwrap().to_string(), w.clone()))
        .collect();
    assert!(bare.contains_key("h.1.attn.c_attn.weight"));
    same(&bare);
    // With the head, causal masks of any type, and the prefix of a wrapper.
    let shape = [1, 1, 16, 16];
    let masks: [(AnyTensor, AnyTensor); 2] = [
        (Tensor::<f32>::ones(shape).tril(0).into(), Tensor::scalar(-1e4f32).into()),
        (Tensor::full(shape, true).into(), Tensor::scalar(-10000i64).into()),
    ];
    for (mask, value) in masks {
        for prefix in ["", "_orig_mod.", "module.", "module._orig_mod."] {
            let mut dict = prefixed(prefix);
            let head = dict[&format!("{prefix}transformer.wte.weight")].clone();
            dict.insert(format!("{prefix}lm_head.weight"), head);
            for layer in 0..2 {
                let attn = format!("{prefix}transformer.h.{layer}.attn");
                dict.insert(format!("{attn}.bias"), mask.clone());
                dict.insert(format!("{attn}.masked_bias"), value.clone());
            }
            same(&dict);
        }
    }
    // In two files with an index.
    let (first, second): (BTreeMap<_, _>, BTreeMap<_, _>) =
        dict.clone().into_iter().partition(|(name, _)| name.contains("h.0."));
    fs::remove_file(folder.path().join("model.safetensors")).unwrap();
    let mut index = BTreeMap::new();
    for (file, tensors) in [("a.safetensors", first), ("b.safetensors", second)] {
        index.extend(tensors.keys().map(|name| (name.clone(), file)));
        let file_of = Checkpoint { tensors, ..Checkpoint::new() };
        file_of.save_plain(folder.path().join(file)).unwrap();
    }
    let path = folder.path().join("model.safetensors.index.json");
    fs::write(&path, json!({ "metadata": {}, "weight_map": index }).to_string()).unwrap();
    near(&folder.load::<f32>(), &file, "logits.f32", 1e-5);
    // An index that is wrong.
    index.insert("transformer.h.9.w".into(), "b.safetensors");
    fs::write(&path, json!({ "weight_map": index }).to_string()).unwrap();
    assert_eq!(
        folder.refused(),
        "FOLDER/model.safetensors.index.json cannot be read: b.safetensors, which the index names \
         for it, has no tensor transformer.h.9.w"
    );
    for outside in ["../secret", "/etc/passwd", "..", "a/b", ""] {
        index.insert("transformer.h.9.w".into(), outside);
        fs::write(&path, json!({ "weight_map": index }).to_string()).unwrap();
        let said = folder.refused();
        assert!(said.ends_with(&format!("{outside:?} is no name of a file")), "{said}");
    }
}

#[test]
fn a_folder_without_safetensors_says_what_to_do() {
    let folder = Folder::of("gpt2");
    fs::remove_file(folder.path().join("model.safetensors")).unwrap();
    assert!(folder.refused().starts_with("FOLDER/model.safetensors: No such file"));
    fs::write(folder.path().join("pytorch_model.bin"), b"PK").unwrap();
    let said = folder.refused();
    assert!(said.contains("pytorch_model.bin, which is a pickle (hint: in Python"), "{said}");
    fs::remove_file(folder.path().join("config.json")).unwrap();
    assert!(folder.refused().starts_with("FOLDER/config.json: No such file"));
}

#[test]
fn weights_that_do_not_fit_are_refused_with_all_differences() {
    let folder = Folder::of("gpt2");
    let mut dict = weights("gpt2").tensors;
    dict.remove("transformer.wpe.weight");
    dict.insert("transformer.h.2.ln_1.weight".into(), Tensor::<f32>::ones([32]).into());
    dict.insert("classifier.weight".into(), Tensor::<f32>::ones([2, 32]).into());
    dict.insert("transformer.ln_f.bias".into(), Tensor::<f32>::ones([31]).into());
    folder.weights(dict);
    assert_eq!(
        folder.refused(),
        "FOLDER: the state dict does not fit; nothing was loaded\
         \n  missing: transformer.wpe.weight\
         \n  unexpected: classifier.weight\
         \n  unexpected: transformer.h.2.ln_1.weight\
         \n  shape of transformer.ln_f.bias: expected [32], the state dict has [31]"
    );
    let error = Gpt::<f32>::from_pretrained(folder.path()).unwrap_err();
    assert!(matches!(&error, PretrainedError::Load(_, e) if e.unexpected.len() == 2), "{error}");
    assert!(std::error::Error::source(&error).is_some());
    // Every name is listed, however many there are; and without a model being built: one of this
    // configuration would need terabytes.
    let huge = json!({ "n_layer": 3, "n_embd": 1 << 20, "vocab_size": 1 << 30 });
    let said = Folder::of("gpt2").config(huge).refused();
    let count = |start: &str| said.lines().filter(|line| line.starts_with(start)).count();
    assert_eq!((count("  missing: transformer.h.2."), count("  shape of ")), (12, 28));
    // Not transposed, as nanoGPT has them.
    let model = Gpt::<f32>::from_pretrained(fixture("gpt2")).unwrap();
    let mut nanogpt = Checkpoint::new();
    nanogpt.put("", &model.state_dict());
    let said = Folder::of("gpt2").weights(nanogpt.tensors).refused();
    let shape = "shape of transformer.h.0.attn.c_attn.weight: expected [96, 32], the state dict has \
                 [32, 96]";
    assert!(said.contains(shape), "{said}");
    // What cannot be mapped or converted.
    let mut dict = weights("gpt2").tensors;
    dict.insert("wpe.weight".into(), Tensor::<f32>::ones([16, 32]).into());
    dict.insert("transformer.h.0.mlp.c_fc.weight".into(), Tensor::<f32>::ones([32]).into());
    dict.insert("transformer.h.1.mlp.c_fc.weight".into(), Tensor::full([32, 128], 1i64).into());
    assert_eq!(
        Folder::of("gpt2").weights(dict).refused(),
        "the state dict cannot be mapped: transformer.h.0.mlp.c_fc.weight: [32] is no matrix, to be \
         transposed; transformer.h.1.mlp.c_fc.weight: it is i64; transformer.wpe.weight and \
         wpe.weight both become transformer.wpe.weight"
    );
}

/// Entries of config.json that are not supported, and what is said of each: the beginning before `..`, or a
/// part after it.
const REFUSED: &str = r#"
gpt2 {"model_type":"bert"} | model_type is "bert", not one of gpt2, llama, qwen3, arcee, apertus
gpt2 {"model_type":null} | there is no model_type: one of gpt2, llama, qwen3, arcee, apertus
gpt2 {"add_cross_attention":true} | add_cross_attention = true is not supported
gpt2 {"scale_attn_by_inverse_layer_idx":true} | scale_attn_by_inverse_layer_idx = true is not supported
gpt2 {"scale_attn_weights":false} | scale_attn_weights = false is not supported
gpt2 {"activation_function":"mish"} | activation_function = "mish" is not supported
gpt2 {"attn_pdrop":0.2} | ..there is one rate of dropout here
gpt2 {"n_head":5} | 5 heads do not divide a width of 32
gpt2 {"n_head":0} | heads must be at least 1, got 0
gpt2 {"n_layer":-1} | invalid value: integer `-1`..
gpt2 {"n_layer":18446744073709551615} | more parameters than memory..
gpt2 {"n_layer":"two"} | invalid type: string..
llama {"hidden_act":"tanh"} | hidden_act = "tanh" is not supported
llama {"attention_dropout":0.5} | attention_dropout = 0.5 is not supported
llama {"attention_bias":true} | attention_bias, mlp_bias = true, false is not supported
llama {"partial_rotary_factor":0.5} | partial_rotary_factor = 0.5 is not supported
llama {"rope_parameters":{"partial_rotary_factor":0.5}} | partial_rotary_factor = 0.5 is not supported
llama {"rope_parameters":{"rope_type":"dynamic"}} | ..rope_type "dynamic" is not supported
llama {"rope_parameters":{"type":"linear"}} | rope_type "linear" needs a factor
llama {"rope_parameters":{"rope_type":"llama3","factor":8.0,"low_freq_factor":1.0}} | rope_type "llama3" needs a high_freq_factor
llama {"rope_parameters":{"rope_type":"yarn","factor":0.5}} | ..a factor of at least 1
llama {"rope_parameters":{"rope_type":"yarn","factor":2.0,"truncate":false}} | truncate = false is not supported
llama {"rope_parameters":{"rope_theta":0.5}} | ..must be above 1, got 0.5
llama {"num_key_value_heads":3} | 3 key heads do not divide 4 heads
llama {"num_key_value_heads":0} | key_heads must be at least 1, got 0"#;

#[test]
fn configurations_that_are_not_supported_are_refused() {
    for line in REFUSED.trim().lines() {
        let (entries, why) = line.split_once(" | ").unwrap();
        let (kind, entries) = entries.split_once(' ').unwrap();
        let said = Folder::of(kind).config(serde_json::from_str(entries).unwrap()).refused();
        let fits = match why.split_once("..") {
            None => said == format!("FOLDER/config.json: {why}"),
            Some(("", part)) => said.contains(part),
            Some((start, _)) => said.starts_with(&format!("FOLDER/config.json: {start}")),
        };
        assert!(fits, "{line}\n{said}");
    }
    let folder = Folder::of("gpt2");
    fs::write(folder.path().join("config.json"), "{").unwrap();
    assert!(folder.refused().starts_with("FOLDER/config.json: it is no JSON: "));
}

/// Equal in every bit, under the same names.
#[track_caller]
fn same_dict<T: Storable>(a: &StateDict<T>, b: &StateDict<T>) {
    assert!(a.keys().eq(b.keys()), "{:?} and {:?}", a.keys(), b.keys());
    for (name, w) in a {
        assert!(*w == b[name], "{name}");
    }
}

#[test]
fn saved_models_are_loaded_unchanged_and_hold_the_tensors_of_transformers() {
    for name in ["gpt2", "llama"] {
        let theirs = weights(name);
        let folder = TempDir::new().unwrap();
        let model = Gpt::<f32>::from_pretrained(fixture(name)).unwrap();
        model.save_pretrained(folder.path()).unwrap();
        let again = Gpt::<f32>::from_pretrained(folder.path()).unwrap();
        assert_eq!(again.config(), model.config());
        same_dict(&again.state_dict(), &model.state_dict());
        let file = Checkpoint::load(folder.path().join("model.safetensors")).unwrap();
        assert_eq!(file.read_note::<String>("format").unwrap(), "pt");
        // The tensors of the original, and the head also where it is tied.
        let mut ours: StateDict<f32> = file.get("").unwrap();
        if name == "gpt2" {
            assert_eq!(ours.remove("lm_head.weight").unwrap(), ours["transformer.wte.weight"]);
        }
        same_dict(&ours, &theirs.get("").unwrap());
        // In f64, too, and as a model of f32 that was computed in f64.
        let wide = Gpt::<f64>::from_pretrained(fixture(name)).unwrap();
        wide.save_pretrained(folder.path()).unwrap();
        let text = fs::read_to_string(folder.path().join("config.json")).unwrap();
        assert!(text.contains("\"dtype\": \"float64\""), "{text}");
        let again = Gpt::<f64>::from_pretrained(folder.path()).unwrap();
        same_dict(&again.state_dict(), &wide.state_dict());
        let narrow = Gpt::<f32>::from_pretrained(folder.path()).unwrap();
        same_dict(&narrow.state_dict(), &model.state_dict());
    }
}

/// Small models of every option that transformers have.
fn exportable() -> Vec<(&'static str, GptConfig)> {
    let (gpt2, llama) = (|| sized(GptConfig::default()), || sized(GptConfig::llama()));
    let yarn = Yarn { beta_fast: 8.0, ..Yarn::new(4.0, 8) };
    let llama3 = Llama3Scaling { factor: 8.0, context: 16, low: 0.1, high: 1.0 };
    let scaled = |scaling| Positions::Rope(RopeConfig { scaling, ..RopeConfig::default() });
    let pairing = Pairing::Interleaved;
    let interleaved = Positions::Rope(RopeConfig { pairing, base: 100.0, ..RopeConfig::default() });
    let linear = scaled(Scaling::Linear { factor: 4.0 });
    let of_llama = [
        ("llama-tied", GptConfig { tied: true, key_heads: Some(1), ..llama() }),
        ("llama-grouped", GptConfig { attention: AttentionKind::GroupedQuery, ..llama() }),
        ("llama-bias", GptConfig { bias: true, mlp: MlpKind::GeGlu, hidden: Some(40), ..llama() }),
        ("llama-wide-heads", GptConfig { head_width: Some(12), key_heads: Some(2), ..llama() }),
        ("llama-interleaved", GptConfig { positions: interleaved, key_heads: Some(2), ..llama() }),
        ("llama-linear", GptConfig { positions: linear, mlp: MlpKind::ReGlu, ..llama() }),
        ("llama-3", GptConfig { positions: scaled(Scaling::Llama3(llama3)), ..llama() }),
        ("llama-yarn", GptConfig { positions: scaled(Scaling::Yarn(yarn)), ..llama() }),
        ("qwen3", GptConfig { qk_norm: true, key_heads: Some(2), ..llama() }),
        ("arcee", GptConfig { mlp: MlpKind::ReluSquared, bias: true, ..llama() }),
        ("apertus", sized(GptConfig::modern())),
        (
            "apertus-dropout",
            sized(GptConfig { dropout: 0.1, mlp: MlpKind::Relu, ..GptConfig::modern() }),
        ),
    ];
    let of_gpt2 = [
        ("nanogpt", GptConfig { bias: false, ..gpt2() }),
        ("gpt2-untied-relu", GptConfig { tied: false, mlp: MlpKind::Relu, ..gpt2() }),
        (
            "gpt2-relu2",
            GptConfig { hidden: Some(40), norm_eps: 1e-3, mlp: MlpKind::ReluSquared, ..gpt2() },
        ),
    ];
    of_gpt2.into_iter().chain(of_llama).collect()
}

/// A model whose every parameter has an effect.
pub fn shaken<T: Storable>(config: &GptConfig, seed: u64) -> Gpt<T> {
    let mut rng = Rng::new(seed);
    let model = Gpt::<T>::new(config.clone(), &mut rng).unwrap();
    for (_, param) in model.named_parameters() {
        let noise = Tensor::<T>::randn(param.shape(), &mut rng);
        let one = if param.shape().rank() == 1 { T::ONE } else { T::ZERO };
        param.set(noise * T::from_f64(0.2) + one);
    }
    model
}

/// The folder that tests/fixtures/check_exports.py reads, if one is given: see its README.
pub fn exports() -> Option<PathBuf> {
    std::env::var_os("RETROGRAD_EXPORTS").map(PathBuf::from)
}

#[test]
fn every_exportable_model_gives_the_same_logits_after_a_round_trip() {
    let temporary = TempDir::new().unwrap();
    let folder = exports().unwrap_or_else(|| temporary.path().into());
    let mut file = Checkpoint::new();
    let token = |i: &[usize]| ((7 * i[0] + 5 * i[1] * i[1]) % 65) as i64;
    file.tensors.insert("tokens".into(), Tensor::from_fn([2, 16], token).into());
    let fixtures =
        ["gpt2", "llama"].map(|name| (name, Gpt::<f32>::from_pretrained(fixture(name)).unwrap()));
    let own = exportable();
    let own = own.iter().enumerate().map(|(i, (name, c))| (*name, shaken(c, i as u64)));
    for (name, model) in fixtures.into_iter().chain(own) {
        let folder = folder.join(name);
        model.save_pretrained(&folder).unwrap_or_else(|e| panic!("{name}: {e}"));
        let again = Gpt::<f32>::from_pretrained(&folder).unwrap_or_else(|e| panic!("{name}: {e}"));
        let before = logits(&model, &file);
        file.tensors.insert(format!("logits.{name}"), before.into());
        // Sums in another order, where rows have been permuted, or biases of 0 were added.
        near(&again, &file, &format!("logits.{name}"), 1e-6);
    }
    // The names of nanoGPT itself.
    let nanogpt = shaken::<f32>(&exportable()[0].1, 0);
    let mut weights = Checkpoint::new();
    weights.put("", &nanogpt.state_dict());
    weights.save_plain(folder.join("nanogpt.safetensors")).unwrap();
    file.save_plain(folder.join("logits.safetensors")).unwrap();
}

#[test]
fn what_transformers_do_not_have_is_not_written() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("model");
    let said = |config: GptConfig| {
        let model = Gpt::<f32>::new(config, &mut Rng::new(0)).unwrap();
        let error = model.save_pretrained(&path).unwrap_err().to_string();
        assert!(!path.exists());
        error.split_once("config.json: ").unwrap().1.to_string()
    };
    let gpt2 = || exportable()[0].1.clone();
    let llama = || exportable()[3].1.clone();
    let partial = Positions::Rope(RopeConfig { width: Some(4), ..RopeConfig::default() });
    for (config, part) in [
        (gpt2().with_attention(AttentionKind::Sigmoid), "gpt2 attention \"sigmoid\""),
        (GptConfig { key_heads: Some(4), ..gpt2() }, "gpt2 key_heads Some(4)"),
        (GptConfig { qk_norm: true, ..gpt2() }, "gpt2 QK-norm"),
        (GptConfig { windows: vec![Some(3)], ..gpt2() }, "gpt2 windows [Some(3)]"),
        (GptConfig { norm: NormKind::RmsNorm, ..gpt2() }, "gpt2 norm \"rms-norm\""),
        (GptConfig { mlp: MlpKind::SwiGlu, ..gpt2() }, "gpt2 mlp \"swiglu\""),
        (GptConfig { positions: Positions::None, ..gpt2() }, "gpt2 positions \"none\""),
        (GptConfig { logit_softcap: Some(30.0), ..gpt2() }, "gpt2 logit_softcap Some(30.0)"),
        (GptConfig { positions: Positions::Learned, ..llama() }, "llama positions \"learned\""),
        (GptConfig { bias: true, qk_norm: true, ..llama() }, "qwen3 biases"),
        (GptConfig { mlp: MlpKind::ReGlu, bias: true, qk_norm: true, ..llama() }, "qwen3 biases"),
        (llama().with_attention(AttentionKind::Sink), "llama attention \"sink\""),
        (GptConfig { norm: NormKind::LayerNorm, ..llama() }, "llama norm \"layer-norm\""),
        (GptConfig { positions: partial, ..llama() }, "llama heads of which a part is rotated"),
    ] {
        let (kind, part) = part.split_once(' ').unwrap();
        let said = said(config);
        let what = said.split(" (hint: train with").next().unwrap();
        assert_eq!(what, format!("{kind} of transformers has no {part}"));
    }
    // Attention that the configuration does not tell of.
    let model = Gpt::<f32>::with_attention(gpt2(), &mut Rng::new(1), |_, rng| {
        attention_layer(QuietAttention::new(Projections::new(HeadSizes::new(32, 4), rng)))
    });
    let said = model.unwrap().save_pretrained(&path).unwrap_err().to_string();
    assert!(said.contains("the parameters are not those of the configuration"), "{said}");
    let unexpected = "unexpected: transformer.h.1.attn.q_proj.weight";
    assert!(said.contains(unexpected) && !path.exists(), "{said}");
}

#[test]
fn llama_of_meta_is_the_same_model_in_either_pairing() {
    let file = logits_file("llama");
    let half = Gpt::<f64>::from_pretrained(fixture("llama")).unwrap();
    assert_eq!(half.config().names, Names::Llama);
    let map = pretrained::llama_meta(half.config());
    let mut theirs = Checkpoint::new();
    theirs.put("", &map.export(&half.state_dict()).unwrap());
    theirs.tensors.insert("rope.freqs".into(), Tensor::<f32>::ones([4]).into());
    // The permutation of transformers' conversion script, for 4 and 2 heads of width 8:
    // w.view(heads, 2, width / 2, inputs).transpose(1, 2) of a weight in the layout of transformers.
    let dict = half.state_dict();
    for (meta, ours, heads) in [("wq", "q_proj", 4), ("wk", "k_proj", 2)] {
        let w = &dict[&format!("model.layers.1.self_attn.{ours}.weight")];
        let want = w.reshape([heads, 2, 4, 32]).transpose(1, 2).reshape([heads * 8, 32]);
        let got: Tensor<f64> =
            theirs.tensors[&format!("layers.1.attention.{meta}.weight")].to_float().unwrap();
        assert_eq!(got, want, "{meta}");
        assert_ne!(got, *w, "{meta}");
    }
    // Into the same pairing, and into their own, where nothing is permuted.
    let Positions::Rope(rope) = half.config().positions else { panic!("rotary positions") };
    for pairing in [Pairing::Half, Pairing::Interleaved] {
        let positions = Positions::Rope(RopeConfig { pairing, ..rope });
        let config = GptConfig { positions, ..half.config().clone() };
        let model = Gpt::<f64>::new(config.clone(), &mut Rng::new(9)).unwrap();
        let dict = pretrained::llama_meta(&config).import(&theirs).unwrap();
        model.load_state_dict(&dict).unwrap();
        near(&model, &file, "logits.default.f64", 1e-13);
        // A file of Hugging Face into either pairing.
        let dict = pretrained::llama(&config).import(&weights("llama")).unwrap();
        model.load_state_dict(&dict).unwrap();
        near(&model, &file, "logits.default.f64", 1e-13);
    }
}
