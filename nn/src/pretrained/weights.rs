//! The weights in a folder: in one file, or in several with an index.

use super::PretrainedError;
use super::json;
use crate::checkpoint::{Checkpoint, CheckpointError, TORCH_HINT, UniqueNames, read_json};
use crate::config_error::ConfigError;
use serde::Deserialize;
use std::collections::BTreeSet;
use std::io;
use std::path::{Component, Path};

/// The name of the file of weights, if there is one.
pub(super) const FILE: &str = "model.safetensors";

/// `model.safetensors.index.json`.
#[derive(Deserialize)]
struct Index {
    /// The name of the file that contains a tensor, by the name of the tensor.
    weight_map: UniqueNames<String>,
}

/// Reads all tensors.
pub(super) fn load(folder: &Path) -> Result<Checkpoint, PretrainedError> {
    let path = folder.join(FILE);
    let index = folder.join("model.safetensors.index.json");
    let pickle = folder.join("pytorch_model.bin");
    if path.exists() || !index.exists() && !pickle.exists() {
        return Ok(Checkpoint::load(&path)?);
    }
    if !index.exists() {
        let why = format!("there is a pytorch_model.bin, which is a pickle {TORCH_HINT}");
        let error = io::Error::new(io::ErrorKind::NotFound, why);
        return Err(PretrainedError::Io(path, error));
    }
    let invalid = |e| PretrainedError::Config(index.clone(), e);
    let text = read_json(&index).map_err(|e| PretrainedError::Io(index.clone(), e))?;
    let Index { weight_map: UniqueNames(weight_map) } = json::parse(&text).map_err(invalid)?;
    let mut all = Checkpoint::new();
    for name in weight_map.values().collect::<BTreeSet<_>>() {
        // Nothing outside of the folder is read.
        let mut parts = Path::new(name).components();
        if !matches!((parts.next(), parts.next()), (Some(Component::Normal(_)), None)) {
            return Err(invalid(ConfigError(format!("{name:?} is no name of a file"))));
        }
        // Each file is asked for its own tensors only, so none is read twice.
        let own = |tensor: &str| weight_map.get(tensor).is_some_and(|file| file == name);
        let file = Checkpoint::load_filtered(folder.join(name), own)?;
        all.tensors.extend(file.tensors);
        all.unsupported.extend(file.unsupported);
    }
    let found =
        |name: &String| all.tensors.contains_key(name) || all.unsupported.contains_key(name);
    match weight_map.iter().find(|(name, _)| !found(name)) {
        Some((name, file)) => {
            let why = format!("{file}, which the index names for it, has no tensor {name}");
            Err(CheckpointError::Unreadable(index, why).into())
        }
        None => Ok(all),
    }
}
