//! Writing models for other programs.

use super::parts::ModelType;
use super::shapes::{HEAD, check};
use super::weight_type::{WeightType, kind};
use super::{PretrainedError, gguf, gpt2, json, map, onnx, read, to_json, weights};
use crate::attention::Pairing;
use crate::checkpoint::{Checkpoint, Storable, write_atomically};
use crate::config_error::ConfigError;
use crate::gpt::{AttentionKind, Gpt, GptConfig, Names, Positions, RopeConfig};
use crate::module::Module;
use crate::state::StateDict;
use crate::text::Tokenizer;
use retrograd_tensor::{DType, Tensor};
use serde_json::json;
use std::fs;
use std::path::Path;

/// What is written for other programs besides a model, and how: the methods are the targets.
///
/// ```
/// use retrograd::nn::pretrained::{Export, WeightType};
/// use retrograd::prelude::*;
///
/// let tokenizer = Tokenizer::chars(["to be or not to be"]);
/// let config = GptConfig { vocab: 7, context: 8, layers: 1, heads: 2, width: 32, ..GptConfig::llama() };
/// let model = Gpt::<f32>::new(config, &mut Rng::new(1)).unwrap();
/// let file = std::env::temp_dir().join(format!("doc-export-{}.gguf", std::process::id()));
/// let export = Export { weights: WeightType::Q8_0, tokenizer: Some(&tokenizer), ..Export::default() };
/// export.gguf(&model, &file).unwrap();
///
/// let (again, found) = Gpt::<f32>::from_pretrained_with_tokenizer(&file).unwrap();
/// assert_eq!(found, Some(tokenizer));
/// let weight = |model: &Gpt| model.state_dict()["model.layers.0.mlp.up_proj.weight"].clone();
/// assert_eq!(weight(&again), WeightType::Q8_0.rounded(&weight(&model)));
/// std::fs::remove_file(&file).unwrap();
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Export<'a> {
    /// The element type of the weights. A model of `f64` is written to a folder of Hugging Face as it is, unless
    /// the type is one of 16 bits.
    pub weights: WeightType,
    /// The tokenizer.
    pub tokenizer: Option<&'a Tokenizer>,
    /// The name of the model.
    pub name: &'a str,
}

impl Default for Export<'_> {
    fn default() -> Self {
        Export { weights: WeightType::F32, tokenizer: None, name: "retrograd" }
    }
}

impl Export<'_> {
    /// Writes `config.json`, `generation_config.json` and `model.safetensors` for Hugging Face's `transformers`, and with a
    /// tokenizer also `tokenizer.json` and `tokenizer_config.json`; see [`config_to_json`](super::config_to_json).
    /// The folder is created if there is none.
    ///
    /// A GPT-2 without biases gets biases of 0, because `transformers` has no other GPT-2. A tied head
    /// is written under both of its names, as `load_state_dict` of PyTorch expects it.
    ///
    /// # Errors
    /// If a part of the model has no counterpart there, a weight exceeds the element type, or a file cannot be written.
    pub fn hugging_face<T: Storable>(
        &self,
        model: &Gpt<T>,
        folder: impl AsRef<Path>,
    ) -> Result<(), PretrainedError> {
        let (folder, c) = (folder.as_ref(), model.config());
        let path = folder.join("config.json");
        let invalid = |e| PretrainedError::Config(path.clone(), e);
        let mut config = to_json(c).map_err(invalid)?;
        let floats = self.weights.stored().map_err(invalid)?;
        let mut dict = model.state_dict();
        self.check(c, &dict).map_err(invalid)?;
        if ModelType::of(c) == ModelType::Gpt2 && !c.bias {
            gpt2::add_biases(&mut dict, c);
        }
        config["dtype"] = match (self.weights, T::DTYPE) {
            (WeightType::F32, DType::F64) => "float64".into(),
            (WeightType::F16, _) => "float16".into(),
            (WeightType::Bf16, _) => "bfloat16".into(),
            _ => "float32".into(),
        };
        let separator = self.tokenizer.and_then(Tokenizer::separator);
        config["eos_token_id"] = separator.into();
        let mut file = Checkpoint::new();
        let dict = map(c).export(&dict)?;
        match self.weights {
            WeightType::F32 => file.put("", &dict),
            _ => file.put("", &narrow(&dict)),
        }
        file.note("format", &"pt");
        let failed = |path: &Path| {
            let path = path.to_path_buf();
            move |e| PretrainedError::Io(path, e)
        };
        fs::create_dir_all(folder).map_err(failed(folder))?;
        file.save_plain_as(&folder.join(weights::FILE), floats)?;
        let generation = json!({ "eos_token_id": separator, "do_sample": true });
        let mut files = vec![("generation_config.json", json::text(&generation))];
        if let Some(tokenizer) = self.tokenizer {
            let options = json!({
                "tokenizer_class": "PreTrainedTokenizerFast",
                "model_max_length": c.context,
                "model_input_names": ["input_ids", "attention_mask"],
                "clean_up_tokenization_spaces": false,
                "eos_token": separator.map(|token| tokenizer.decode(&[token])),
            });
            files.push(("tokenizer.json", tokenizer.to_hugging_face()));
            files.push(("tokenizer_config.json", json::text(&options)));
        }
        // The last one: without it, nothing is loaded.
        files.push(("config.json", json::text(&config)));
        for (name, text) in files {
            let path = folder.join(name);
            write_atomically(&path, text.as_bytes()).map_err(failed(&path))?;
        }
        Ok(())
    }

    /// Writes a file of GGUF, version 3, for llama.cpp, in the architecture that the parts of the model
    /// [choose](super). Matrices have the element type, but for learned positions.
    ///
    /// # Errors
    /// As [`Export::hugging_face`].
    pub fn gguf<T: Storable>(
        &self,
        model: &Gpt<T>,
        path: impl AsRef<Path>,
    ) -> Result<(), PretrainedError> {
        let (c, path) = (model.config(), path.as_ref());
        let dict = self.dict(model, gguf::check(c), path)?;
        gguf::write(c, dict, path, self.weights, self.tokenizer, self.name)
    }

    /// Writes a graph of ONNX in the opset 23. It has operators of the opset only: attention, RMS norm and rotary
    /// positions are operators there.
    ///
    /// Inputs are `input_ids` `[batch, length]` and the keys and values before them,
    /// `past_key_values.i.key` and `past_key_values.i.value` `[batch, key heads, past, head width]`, of length 0 at the
    /// beginning; outputs are `logits` `[batch, length, vocab]`, and `present.i.key` and `present.i.value`, the next
    /// call's past.
    ///
    /// # Errors
    /// As [`Export::hugging_face`], or if the file would have more than 2 GiB.
    pub fn onnx<T: Storable>(
        &self,
        model: &Gpt<T>,
        path: impl AsRef<Path>,
    ) -> Result<(), PretrainedError> {
        let (c, path) = (model.config(), path.as_ref());
        let dict = self.dict(model, onnx::check(c), path)?;
        onnx::write(c, dict, path, self.weights, self.tokenizer, self.name)
    }

    /// Reads a file or folder that was written, and compares its configuration, its tokenizer and every weight.
    ///
    /// # Errors
    /// If it cannot be read, or differs: a weight in any bit of the rounded one of the model.
    pub fn verify<T: Storable>(
        &self,
        model: &Gpt<T>,
        path: impl AsRef<Path>,
    ) -> Result<(), PretrainedError> {
        let path = path.as_ref();
        let c = model.config();
        let again = read::<f32>(path, Some(c))?;
        let differs = |part: &str| {
            let why = format!("{part} was not written as it is");
            Err(PretrainedError::Config(path.into(), ConfigError(why)))
        };
        if plain(&again.config) != plain(c) {
            return differs("the configuration");
        }
        let file = path.join("tokenizer.json");
        let found = again.tokenizer.or_else(|| Tokenizer::load(file).ok());
        if self.tokenizer.is_some_and(|tokenizer| found.as_ref() != Some(tokenizer)) {
            return differs("the tokenizer");
        }
        for (name, weight) in narrow(&model.state_dict()) {
            let kind = match path.is_file() {
                true => kind(&name, weight.shape(), self.weights),
                false => self.weights,
            };
            let bits =
                |x: &Tensor<f32>| x.to_vec().into_iter().map(f32::to_bits).collect::<Vec<_>>();
            let same = match again.dict.get(&name) {
                Some(found) => bits(found) == bits(&kind.rounded(&weight)),
                None => c.tied && name == HEAD,
            };
            if !same {
                return differs(&name);
            }
        }
        Ok(())
    }

    /// The weights in `f32`, if a file can have them.
    fn dict<T: Storable>(
        &self,
        model: &Gpt<T>,
        parts: Result<(), ConfigError>,
        path: &Path,
    ) -> Result<StateDict<f32>, PretrainedError> {
        let dict = model.state_dict();
        parts
            .and_then(|()| self.check(model.config(), &dict))
            .map_err(|e| PretrainedError::Config(path.into(), e))?;
        Ok(narrow(&dict))
    }

    /// Checks that a model has the parameters of its configuration, as its attention may be another, and that no
    /// weight becomes infinite.
    fn check<T: Storable>(
        &self,
        config: &GptConfig,
        dict: &StateDict<T>,
    ) -> Result<(), ConfigError> {
        check(config, dict).map_err(|e| {
            ConfigError(format!("the parameters are not those of the configuration: {e:#}"))
        })?;
        if let Some(tokenizer) = self.tokenizer.filter(|t| t.vocab_size() > config.vocab) {
            let (tokens, rows) = (tokenizer.vocab_size(), config.vocab);
            return Err(ConfigError(format!(
                "a tokenizer of {tokens} tokens, but {rows} rows for them"
            )));
        }
        for (name, weight) in narrow(dict) {
            let rounded = kind(&name, weight.shape(), self.weights).rounded(&weight).to_vec();
            let finite = |x: &f32| (x.is_nan(), x.is_finite());
            let lost =
                weight.to_vec().into_iter().zip(rounded).find(|(x, y)| finite(x) != finite(y));
            if let Some((x, _)) = lost {
                return Err(ConfigError(format!(
                    "{name} has a weight {x}, beyond {}",
                    self.weights
                )));
            }
        }
        Ok(())
    }
}

/// The configuration without what formats do not have, or write in another way.
fn plain(c: &GptConfig) -> GptConfig {
    let positions = match c.positions {
        Positions::Rope(rope) => Positions::Rope(RopeConfig {
            width: Some(rope.width.unwrap_or(c.head_width())),
            pairing: Pairing::Half,
            base: f64::from(rope.base as f32),
            ..rope
        }),
        other => other,
    };
    let windows = c.windows.iter().any(Option::is_some);
    GptConfig {
        attention: AttentionKind::Causal,
        key_heads: Some(c.key_heads()),
        head_width: Some(c.head_width()),
        hidden: Some(c.hidden()),
        norm_eps: f64::from(c.norm_eps as f32),
        dropout: 0.0,
        bias: c.bias || ModelType::of(c) == ModelType::Gpt2,
        names: Names::Gpt2,
        recompute: 0,
        windows: if windows { c.windows.clone() } else { Vec::new() },
        positions,
        ..c.clone()
    }
}

/// In `f32`, rounded to nearest.
fn narrow<T: Storable>(dict: &StateDict<T>) -> StateDict<f32> {
    let narrow = |x: &Tensor<T>| {
        let values = x.to_vec().into_iter().map(|x| x.to_f64() as f32);
        Tensor::from_vec(values.collect(), &x.shape()[..])
    };
    dict.iter().map(|(name, x)| (name.clone(), narrow(x))).collect()
}
