//! Models in the files of other programs.
//!
//! [`Gpt::from_pretrained`] reads a whole model, and an [`Export`] writes one:
//!
//! | | is | read by | written by |
//! |---|---|---|---|
//! | Hugging Face | a folder with `config.json`, `model.safetensors`, `tokenizer.json` | `transformers` | [`Export::hugging_face`] |
//! | GGUF | a file, with the tokenizer | llama.cpp and programs built on it | [`Export::gguf`] |
//! | ONNX | a graph, with a cache as inputs and outputs | ONNX Runtime and others | [`Export::onnx`] |
//!
//! A graph of ONNX is made of the parts of the configuration. The other two have a fixed set of model types; the parts
//! of a configuration choose one, and a part that none of them has is an error:
//!
//! | model type | norms, positions | QK-norm | feed-forward layer in `transformers` | in GGUF |
//! |---|---|---|---|---|
//! | `gpt2` | layer norm, learned | no | every one that is not gated | `gelu-tanh` |
//! | `llama` | RMS norm, rotary | no | every gated one | `swiglu` |
//! | `qwen3` | RMS norm, rotary | yes | every gated one | `swiglu` |
//! | `arcee` | RMS norm, rotary | no | every one that is not gated | `relu-squared` |
//! | `apertus` | RMS norm, rotary | yes | every one that is not gated | `relu-squared` |
//!
//! In PyTorch, `AutoModelForCausalLM.from_pretrained(folder)` reads what is written here, and
//! `model.load_state_dict(safetensors.torch.load_file(..), strict=True)` finds every name.
//!
//! The parts serve files of other programs: [`gpt2`], [`nanogpt`], [`llama`] and [`llama_meta`] are
//! maps between state dicts, and [`config_from_json`] and [`config_to_json`] convert configurations.
//!
//! ```no_run
//! use retrograd::nn::pretrained;
//! use retrograd::prelude::*;
//! fn load() -> Result<(), Box<dyn std::error::Error>> {
//!     // A folder of Hugging Face.
//!     let model: Gpt = Gpt::from_pretrained("gpt2")?;
//!
//!     // nanoGPT's ckpt.pt, after `safetensors.torch.save_file` in Python.
//!     let file = Checkpoint::load("ckpt.safetensors")?;
//!     let config = GptConfig { layers: 6, heads: 6, width: 384, ..GptConfig::default() };
//!     let model: Gpt = Gpt::new(config, &mut Rng::new(0))?;
//!     model.load_state_dict(&pretrained::nanogpt().import(&file)?)?;
//!     Ok(())
//! }
//! ```

mod export;
mod gguf;
mod gpt2;
mod json;
mod llama;
mod onnx;
mod parts;
mod shapes;
mod weight_type;
mod weights;

pub use export::Export;
pub use gpt2::{gpt2, nanogpt};
pub use llama::{llama, llama_meta};
pub use weight_type::WeightType;

use crate::checkpoint::{CheckpointError, Storable, read_json};
use crate::config_error::ConfigError;
use crate::gpt::{Gpt, GptConfig};
use crate::module::Module;
use crate::state::{LoadError, StateDict};
use crate::state_map::StateMap;
use crate::text::{Printable, Tokenizer};
use parts::ModelType;
use retrograd_tensor::random::Rng;
use serde::Deserialize;
use serde_json::Value;
use shapes::check;
use std::fmt::{self, Write};
use std::io;
use std::path::{Path, PathBuf};

/// An error of reading or writing a pretrained model.
#[derive(Debug)]
#[non_exhaustive]
pub enum PretrainedError {
    /// An error of the operating system.
    Io(PathBuf, io::Error),
    /// The configuration is invalid or not supported.
    Config(PathBuf, ConfigError),
    /// The weights cannot be read or written.
    Weights(CheckpointError),
    /// The weights do not fit the configuration.
    Load(PathBuf, Box<LoadError>),
}

impl fmt::Display for PretrainedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PretrainedError::Io(path, e) => write!(Printable(f), "{}: {e}", path.display()),
            PretrainedError::Config(path, e) => write!(Printable(f), "{}: {e}", path.display()),
            PretrainedError::Weights(e) => e.fmt(f),
            PretrainedError::Load(path, e) => write!(Printable(f), "{}: {e:#}", path.display()),
        }
    }
}

impl std::error::Error for PretrainedError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(match self {
            PretrainedError::Io(_, e) => e,
            PretrainedError::Config(_, e) => e,
            PretrainedError::Weights(e) => e,
            PretrainedError::Load(_, e) => e,
        })
    }
}

impl From<CheckpointError> for PretrainedError {
    fn from(e: CheckpointError) -> PretrainedError {
        PretrainedError::Weights(e)
    }
}

/// The configuration of a model in `config.json` of Hugging Face's `transformers`, of the
/// [model types](self) `gpt2`, `llama`, `qwen3`, `arcee` and `apertus`.
///
/// The rates of dropout of GPT-2 must be equal, because there is one rate here.
///
/// # Errors
/// If the text is no such configuration, or has an option that is not supported.
///
/// ```
/// use retrograd::nn::{MlpKind, pretrained};
/// use retrograd::prelude::*;
///
/// let config = pretrained::config_from_json(
///     r#"{"model_type": "gpt2", "n_layer": 6, "n_head": 12, "n_embd": 768}"#,
/// );
/// let gpt2 = GptConfig { vocab: 50257, layers: 6, dropout: 0.1, mlp: MlpKind::GeluTanh, ..GptConfig::default() };
/// assert_eq!(config.unwrap(), gpt2);
/// ```
pub fn config_from_json(text: &str) -> Result<GptConfig, ConfigError> {
    #[derive(Deserialize)]
    struct Kind {
        model_type: Option<String>,
    }
    let Kind { model_type } = json::parse(text)?;
    let names = ModelType::names();
    let Some(name) = model_type else {
        return Err(ConfigError(format!("there is no model_type: one of {names}")));
    };
    let config = match ModelType::of_name(&name) {
        Some(ModelType::Gpt2) => gpt2::config(text)?,
        Some(model) => llama::config(text, model)?,
        None => return Err(ConfigError(format!("model_type is {name:?}, not one of {names}"))),
    };
    config.check()?;
    Ok(config)
}

/// `config.json` of a configuration, the inverse of [`config_from_json`], of the [model type](self) that its parts
/// choose. Dropout of another type than `gpt2` is left out, as it has no effect on inference.
///
/// # Errors
/// If the model type has no option for a part of the configuration.
///
/// ```
/// use retrograd::nn::pretrained;
/// use retrograd::prelude::*;
///
/// let config = GptConfig { vocab: 65, layers: 2, heads: 4, width: 32, ..GptConfig::llama() };
/// let text = pretrained::config_to_json(&config).unwrap();
/// assert!(text.contains(r#""architectures": ["#) && text.contains("LlamaForCausalLM"));
/// assert_eq!(pretrained::config_from_json(&text).unwrap(), config);
/// assert!(pretrained::config_to_json(&GptConfig::modern()).unwrap().contains("ApertusForCausalLM"));
/// let windows = GptConfig { windows: vec![Some(16)], ..config };
/// assert!(pretrained::config_to_json(&windows).is_err());
/// ```
pub fn config_to_json(config: &GptConfig) -> Result<String, ConfigError> {
    Ok(json::text(&to_json(config)?))
}

/// The entries of `config.json`.
fn to_json(config: &GptConfig) -> Result<Value, ConfigError> {
    config.check()?;
    match ModelType::of(config) {
        ModelType::Gpt2 => gpt2::to_json(config),
        model => llama::to_json(config, model),
    }
}

/// The map of the state dicts of a folder of Hugging Face's.
fn map(config: &GptConfig) -> StateMap {
    match ModelType::of(config) {
        ModelType::Gpt2 => gpt2(),
        _ => llama(config),
    }
}

/// A model of another program: its configuration, its weights by the names here, and its tokenizer.
struct Foreign<T: Storable> {
    config: GptConfig,
    dict: StateDict<T>,
    tokenizer: Option<Tokenizer>,
}

/// Reads a folder of Hugging Face's, or a file of GGUF or ONNX. The names are those of a model of the configuration
/// `known`, or of that of the file.
fn read<T: Storable>(
    path: &Path,
    known: Option<&GptConfig>,
) -> Result<Foreign<T>, PretrainedError> {
    if path.is_dir() || !path.exists() {
        let config_path = path.join("config.json");
        let text =
            read_json(&config_path).map_err(|e| PretrainedError::Io(config_path.clone(), e))?;
        let config =
            config_from_json(&text).map_err(|e| PretrainedError::Config(config_path, e))?;
        let dict = map(known.unwrap_or(&config)).import(&weights::load(path)?)?;
        return Ok(Foreign { config, dict, tokenizer: None });
    }
    let is_gguf = gguf::is_gguf(path).map_err(|e| PretrainedError::Io(path.into(), e))?;
    let (config, tokenizer, file) = if is_gguf { gguf::read(path)? } else { onnx::read(path)? };
    let map = match is_gguf {
        true => gguf::map(known.unwrap_or(&config)),
        false => StateMap::new(),
    };
    Ok(Foreign { config, dict: map.import(&file)?, tokenizer })
}

impl<T: Storable> Gpt<T> {
    /// The model of another program, with weights converted to the element type: a folder of Hugging Face's
    /// `transformers`, or a file of GGUF; also a file of ONNX that [`Export::onnx`] wrote.
    ///
    /// The weights of a folder are in `model.safetensors`, or in several files that
    /// `model.safetensors.index.json` lists. The configuration is [`config_from_json`] of
    /// `config.json`.
    ///
    /// # Errors
    /// If a file cannot be read, the configuration is not supported, or the weights do not fit it:
    /// then the error lists all names and shapes that differ, and nothing is loaded. If there is no
    /// memory for a parameter.
    ///
    /// ```
    /// use retrograd::prelude::*;
    ///
    /// let folder = std::env::temp_dir().join(format!("doc-pretrained-{}", std::process::id()));
    /// let config = GptConfig { vocab: 65, context: 8, layers: 1, heads: 2, width: 8, ..GptConfig::default() };
    /// let model = Gpt::<f32>::new(config, &mut Rng::new(1)).unwrap();
    /// model.save_pretrained(&folder).unwrap();
    ///
    /// let again = Gpt::<f32>::from_pretrained(&folder).unwrap();
    /// assert_eq!(again.config(), model.config());
    /// assert_eq!(again.state_dict(), model.state_dict());
    /// std::fs::remove_dir_all(&folder).unwrap();
    /// ```
    #[track_caller]
    pub fn from_pretrained(path: impl AsRef<Path>) -> Result<Gpt<T>, PretrainedError> {
        Ok(Gpt::from_pretrained_with_tokenizer(path)?.0)
    }

    /// [`Gpt::from_pretrained`], and the tokenizer of a file that has one: of GGUF, if it is of characters, bytes, or
    /// byte-level BPE with GPT-2's division into words; of ONNX.
    ///
    /// # Errors
    /// As [`Gpt::from_pretrained`].
    #[track_caller]
    pub fn from_pretrained_with_tokenizer(
        path: impl AsRef<Path>,
    ) -> Result<(Gpt<T>, Option<Tokenizer>), PretrainedError> {
        let path = path.as_ref();
        let Foreign { config, dict, tokenizer } = read(path, None)?;
        // Before there is a model: a wrong configuration may need more memory than there is.
        let unfit = |e| PretrainedError::Load(path.into(), Box::new(e));
        check(&config, &dict).map_err(unfit)?;
        let at = if path.is_dir() { path.join("config.json") } else { path.into() };
        let model =
            Gpt::new(config, &mut Rng::new(0)).map_err(|e| PretrainedError::Config(at, e))?;
        model.load_state_dict(&dict).map_err(unfit)?;
        Ok((model, tokenizer))
    }

    /// Writes `config.json` and `model.safetensors` for Hugging Face's `transformers`: [`Export::hugging_face`]
    /// without a tokenizer.
    ///
    /// # Errors
    /// If a part of the model has no counterpart there, or a file cannot be written.
    pub fn save_pretrained(&self, folder: impl AsRef<Path>) -> Result<(), PretrainedError> {
        Export::default().hugging_face(self, folder)
    }
}
