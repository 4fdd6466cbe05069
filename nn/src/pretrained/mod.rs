//! Models in the files of Hugging Face's `transformers`: a folder with `config.json` and
//! `model.safetensors`.
//!
//! [`Gpt::from_pretrained`] and [`Gpt::save_pretrained`] read and write whole models:
//!
//! | `model_type` | class in PyTorch | configuration here |
//! |---|---|---|
//! | `gpt2` | `GPT2LMHeadModel` | the parts of [`GptConfig::default`], with biases |
//! | `llama` | `LlamaForCausalLM` | the parts of [`GptConfig::llama`] |
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

mod gpt2;
mod json;
mod llama;
mod weights;

pub use gpt2::{gpt2, nanogpt};
pub use llama::{llama, llama_meta};

use crate::checkpoint::{Checkpoint, CheckpointError, Storable, read_json, write_atomically};
use crate::config_error::ConfigError;
use crate::gpt::{Gpt, GptConfig, Names};
use crate::module::Module;
use crate::state::{LoadError, StateDict};
use crate::state_map::StateMap;
use crate::text::Printable;
use retrograd_tensor::random::Rng;
use retrograd_tensor::{DType, Shape};
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::{self, Write};
use std::path::{Path, PathBuf};
use std::{fs, io};

/// The sizes of parameters, by their names here.
type Shapes = BTreeMap<String, Vec<usize>>;

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

/// The configuration of a model in `config.json` of Hugging Face's `transformers`, of the model types
/// `gpt2` and `llama`.
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
    let config = match model_type.as_deref() {
        Some("gpt2") => gpt2::config(text)?,
        Some("llama") => llama::config(text)?,
        Some(other) => {
            return Err(ConfigError(format!("model_type is {other:?}, not gpt2 or llama")));
        }
        None => return Err(ConfigError("there is no model_type: gpt2 or llama".into())),
    };
    config.check()?;
    Ok(config)
}

/// `config.json` of a configuration, the inverse of [`config_from_json`]: of `gpt2` if the names are
/// [`Names::Gpt2`], of `llama` if they are [`Names::Llama`].
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
/// assert!(pretrained::config_to_json(&GptConfig::modern()).is_err());
/// ```
pub fn config_to_json(config: &GptConfig) -> Result<String, ConfigError> {
    Ok(json::text(&to_json(config)?))
}

/// The entries of `config.json`.
fn to_json(config: &GptConfig) -> Result<Value, ConfigError> {
    config.check()?;
    match config.names {
        Names::Gpt2 => gpt2::to_json(config),
        Names::Llama => llama::to_json(config),
    }
}

/// What models of a type have in common.
struct Family {
    /// The map of their state dicts.
    map: StateMap,
    /// The parameters of a model of a configuration.
    shapes: Shapes,
}

impl Family {
    fn of(config: &GptConfig) -> Family {
        match config.names {
            Names::Gpt2 => Family { map: gpt2(), shapes: gpt2::shapes(config) },
            Names::Llama => Family { map: llama(config), shapes: llama::shapes(config) },
        }
    }

    /// The difference between the parameters and a state dict.
    fn check<T: Storable>(&self, dict: &StateDict<T>, tied: bool) -> Result<(), LoadError> {
        let mut error = LoadError::default();
        for (name, sizes) in &self.shapes {
            match dict.get(name) {
                Some(value) if value.shape()[..] != sizes[..] => {
                    let shape = Shape::from(&sizes[..]);
                    error.mismatched.push((name.clone(), shape, *value.shape()));
                }
                None if !(tied && name == HEAD) => error.missing.push(name.clone()),
                _ => {}
            }
        }
        let unexpected = dict.keys().filter(|name| !self.shapes.contains_key(*name));
        error.unexpected = unexpected.cloned().collect();
        if error == LoadError::default() { Ok(()) } else { Err(error) }
    }
}

/// The weight of the head, which a file may lack if it is tied.
const HEAD: &str = "lm_head.weight";

impl<T: Storable> Gpt<T> {
    /// The model in a folder of Hugging Face's `transformers`, with weights converted to the element
    /// type.
    ///
    /// The weights are in `model.safetensors`, or in several files that
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
    pub fn from_pretrained(folder: impl AsRef<Path>) -> Result<Gpt<T>, PretrainedError> {
        let folder = folder.as_ref();
        let path = folder.join("config.json");
        let text = read_json(&path).map_err(|e| PretrainedError::Io(path.clone(), e))?;
        let config =
            config_from_json(&text).map_err(|e| PretrainedError::Config(path.clone(), e))?;
        let file = weights::load(folder)?;
        let family = Family::of(&config);
        let dict = family.map.import(&file)?;
        drop(file);
        // Before there is a model: a wrong configuration may need more memory than there is.
        let unfit = |e| PretrainedError::Load(folder.into(), Box::new(e));
        family.check(&dict, config.tied).map_err(unfit)?;
        let model =
            Gpt::new(config, &mut Rng::new(0)).map_err(|e| PretrainedError::Config(path, e))?;
        model.load_state_dict(&dict).map_err(unfit)?;
        Ok(model)
    }

    /// Writes `config.json` and `model.safetensors` for Hugging Face's `transformers`; see
    /// [`config_to_json`]. The folder is created if there is none.
    ///
    /// A GPT-2 without biases gets biases of 0, because `transformers` has no other GPT-2. A tied head
    /// is written under both of its names, as `load_state_dict` of PyTorch expects it.
    ///
    /// # Errors
    /// If a part of the model has no counterpart there, or a file cannot be written.
    pub fn save_pretrained(&self, folder: impl AsRef<Path>) -> Result<(), PretrainedError> {
        let folder = folder.as_ref();
        let path = folder.join("config.json");
        let config = |e| PretrainedError::Config(path.clone(), e);
        let mut json = to_json(self.config()).map_err(config)?;
        json["dtype"] = match T::DTYPE {
            DType::F64 => "float64".into(),
            _ => "float32".into(),
        };
        let mut dict = self.state_dict();
        let family = Family::of(self.config());
        if self.config().names == Names::Gpt2 && !self.config().bias {
            gpt2::add_biases(&mut dict, &family.shapes);
        }
        // The attention may differ from the configuration.
        family.check(&dict, self.config().tied).map_err(|e| {
            config(ConfigError(format!("the parameters are not those of the configuration: {e:#}")))
        })?;
        let mut file = Checkpoint::new();
        file.put("", &family.map.export(&dict)?);
        file.note("format", &"pt");
        let failed = |path: &Path| {
            let path = path.to_path_buf();
            move |e| PretrainedError::Io(path, e)
        };
        fs::create_dir_all(folder).map_err(failed(folder))?;
        file.save_plain(folder.join(weights::FILE))?;
        write_atomically(&path, json::text(&json).as_bytes()).map_err(failed(&path))
    }
}
