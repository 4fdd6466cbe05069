//! Checkpoints: tensors and notes in one safetensors file, written so that a crash at any
//! moment leaves the old file or the new one.
//!
//! The file can be read by any reader of safetensors. In its metadata stand a format
//! version, notes as JSON, and a checksum over everything, so that a damaged file is an
//! error and never a wrong model.

mod header;

use crate::state::StateDict;
use retrograd_tensor::{DType, Element, Real, Tensor};
use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::{fmt, io};

/// Version of the metadata this build writes, and the newest that it reads.
const FORMAT: u32 = 1;
/// Where the version, the checksum and the notes stand: one entry, because the order of
/// several would be random, and equal checkpoints should be equal files.
const KEY: &str = "retrograd";

/// A tensor of any element type that a file may hold.
#[derive(Clone, Debug)]
pub enum AnyTensor {
    /// 32-bit floats.
    F32(Tensor<f32>),
    /// 64-bit floats.
    F64(Tensor<f64>),
    /// 64-bit signed integers.
    I64(Tensor<i64>),
    /// 32-bit unsigned integers.
    U32(Tensor<u32>),
    /// Booleans.
    Bool(Tensor<bool>),
}

impl AnyTensor {
    /// The element type.
    pub fn dtype(&self) -> DType {
        match self {
            AnyTensor::F32(_) => DType::F32,
            AnyTensor::F64(_) => DType::F64,
            AnyTensor::I64(_) => DType::I64,
            AnyTensor::U32(_) => DType::U32,
            AnyTensor::Bool(_) => DType::Bool,
        }
    }
}

/// What can go wrong with a checkpoint.
#[derive(Debug)]
#[non_exhaustive]
pub enum CheckpointError {
    /// The operating system refused.
    Io(PathBuf, io::Error),
    /// The file is no (whole) safetensors file.
    Malformed(PathBuf, String),
    /// The contents differ from what was written.
    Damaged(PathBuf),
    /// Written by a later version.
    Newer(PathBuf, u32),
    /// A tensor, note or type that was expected is not there.
    Absent(String),
}

impl fmt::Display for CheckpointError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CheckpointError::Io(path, e) => write!(f, "{}: {e}", path.display()),
            CheckpointError::Malformed(path, why) => {
                write!(f, "{} is no checkpoint: {why}", path.display())
            }
            CheckpointError::Damaged(path) => {
                write!(f, "{} is damaged: its contents do not match its checksum", path.display())
            }
            CheckpointError::Newer(path, version) => write!(
                f,
                "{} has format version {version}, this build reads up to {FORMAT}",
                path.display()
            ),
            CheckpointError::Absent(what) => write!(f, "the checkpoint has no {what}"),
        }
    }
}

impl std::error::Error for CheckpointError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            CheckpointError::Io(_, e) => Some(e),
            _ => None,
        }
    }
}

/// Tensors by name, and notes by name.
///
/// ```
/// use retrograd_nn::{Linear, Module, checkpoint::Checkpoint};
/// use retrograd_tensor::random::Rng;
///
/// let model = Linear::<f32>::new(3, 2, &mut Rng::new(1));
/// let mut checkpoint = Checkpoint::new();
/// checkpoint.put("model", &model.state_dict());
/// checkpoint.note("step", &17u64);
/// let path = std::env::temp_dir().join(format!("doc-{}.safetensors", std::process::id()));
/// checkpoint.save(&path).unwrap();
///
/// let checkpoint = Checkpoint::load(&path).unwrap();
/// model.load_state_dict(&checkpoint.get("model").unwrap()).unwrap();
/// assert_eq!(checkpoint.read_note::<u64>("step").unwrap(), 17);
/// # std::fs::remove_file(&path).unwrap();
/// ```
#[derive(Clone, Debug, Default)]
pub struct Checkpoint {
    /// The tensors, by full name.
    pub tensors: BTreeMap<String, AnyTensor>,
    /// The notes: each a JSON value.
    pub notes: BTreeMap<String, serde_json::Value>,
}

impl Checkpoint {
    /// Nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a state dict under a prefix.
    pub fn put<T: Storable>(&mut self, prefix: &str, dict: &StateDict<T>) {
        for (name, value) in dict {
            self.tensors.insert(format!("{prefix}.{name}"), T::wrap(value.clone()));
        }
    }

    /// The state dict under a prefix, which is taken off the names; of all tensors if the prefix
    /// is empty.
    ///
    /// A file that PyTorch has written may hold more than parameters, and under other names:
    ///
    /// ```no_run
    /// use retrograd_nn::{Module, checkpoint::Checkpoint};
    /// # use retrograd_nn::{Gpt, GptConfig};
    /// # fn load(model: &Gpt, path: &std::path::Path) -> Result<(), Box<dyn std::error::Error>> {
    /// let file = Checkpoint::load(path)?;
    /// // What torch.compile has wrapped begins with `_orig_mod.`; else the prefix is "".
    /// let mut dict = file.get("_orig_mod")?;
    /// // Where there is no flash attention, nanoGPT keeps its causal masks among the weights.
    /// dict.retain(|name, _| !name.ends_with(".attn.bias"));
    /// model.load_state_dict(&dict)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If one of its tensors has another element type.
    pub fn get<T: Storable>(&self, prefix: &str) -> Result<StateDict<T>, CheckpointError> {
        let mut dict = StateDict::new();
        for (name, value) in &self.tensors {
            let below = || name.strip_prefix(prefix)?.strip_prefix('.');
            let Some(rest) = (if prefix.is_empty() { Some(name.as_str()) } else { below() }) else {
                continue;
            };
            let value = T::unwrap(value).ok_or_else(|| {
                let found = value.dtype();
                CheckpointError::Absent(format!("{} tensor {name}: it is {found}", T::DTYPE))
            })?;
            dict.insert(rest.to_string(), value);
        }
        Ok(dict)
    }

    /// Adds a note. Numbers are read back exactly, but JSON has none for NaN and infinities:
    /// they become null, so give an `Option` where there may be one.
    ///
    /// # Panics
    /// If the value has no JSON form.
    #[track_caller]
    pub fn note(&mut self, name: &str, value: &impl Serialize) {
        let value = serde_json::to_value(value)
            .unwrap_or_else(|e| panic!("checkpoint: note {name} has no JSON form: {e}"));
        self.notes.insert(name.to_string(), value);
    }

    /// A note.
    ///
    /// # Errors
    /// If there is none, or it has another form.
    pub fn read_note<D: DeserializeOwned>(&self, name: &str) -> Result<D, CheckpointError> {
        let absent = |why: String| CheckpointError::Absent(format!("note {name}{why}"));
        let value = self.notes.get(name).ok_or_else(|| absent(String::new()))?;
        serde_json::from_value(value.clone()).map_err(|e| absent(format!(" of this form: {e}")))
    }

    /// Writes the file: to a temporary one beside it, flushed to disk, and renamed. Equal
    /// checkpoints become equal files.
    ///
    /// # Errors
    /// If the operating system refuses, as [`write_atomically`]; or a tensor has the reserved
    /// name `__metadata__`, or names and notes take more than the 100 MB that readers of
    /// safetensors accept.
    pub fn save(&self, path: &Path) -> Result<(), CheckpointError> {
        self.to_bytes()
            .and_then(|bytes| write_atomically(path, &bytes))
            .map_err(|e| CheckpointError::Io(path.into(), e))
    }

    /// Reads a file, checked before anything of it is used. A safetensors file that was not
    /// written by [`Checkpoint::save`] is read too: the entries of its metadata become notes,
    /// each a string, and there is nothing to check its contents against.
    ///
    /// # Errors
    /// If it cannot be read, is no safetensors file, is damaged, or is of a later version.
    pub fn load(path: &Path) -> Result<Checkpoint, CheckpointError> {
        let read = || {
            // Devices and pipes may have no end.
            let kind = fs::metadata(path)?.file_type();
            if kind.is_file() || kind.is_dir() { fs::read(path) } else { Err(not_a_file()) }
        };
        let bytes = read().map_err(|e| CheckpointError::Io(path.into(), e))?;
        Checkpoint::from_bytes(path, &bytes)
    }

    fn to_bytes(&self) -> io::Result<Vec<u8>> {
        let refused = |why: String| io::Error::new(io::ErrorKind::InvalidInput, why);
        if self.tensors.contains_key("__metadata__") {
            return Err(refused("a tensor cannot be named __metadata__".into()));
        }
        let encoded: Vec<(&String, Dtype, Vec<usize>, Vec<u8>)> =
            self.tensors.iter().map(|(name, t)| encode(name, t)).collect();
        let views: Vec<(&String, TensorView<'_>)> = encoded
            .iter()
            .map(|(name, dtype, shape, bytes)| {
                let view = TensorView::new(*dtype, shape.clone(), bytes);
                (*name, view.expect("as many bytes as the shape says"))
            })
            .collect();
        let notes = serde_json::to_string(&self.notes).expect("values have a JSON form");
        let sum = checksum(&notes, views.iter().map(|(name, view)| (name.as_str(), view)));
        let stamp = format!("{FORMAT} {sum:08x} {notes}");
        let metadata = HashMap::from([(KEY.to_string(), stamp)]);
        safetensors::serialize(views, Some(metadata)).map_err(|e| refused(e.to_string()))
    }

    fn from_bytes(path: &Path, bytes: &[u8]) -> Result<Checkpoint, CheckpointError> {
        let malformed = |why: String| CheckpointError::Malformed(path.into(), why);
        header::check(bytes).map_err(malformed)?;
        let file = SafeTensors::deserialize(bytes).map_err(|e| malformed(e.to_string()))?;
        let (_, header) =
            SafeTensors::read_metadata(bytes).map_err(|e| malformed(e.to_string()))?;
        let empty = HashMap::new();
        let metadata = header.metadata().as_ref().unwrap_or(&empty);

        let mut views: Vec<(&str, TensorView<'_>)> = file.iter().collect();
        views.sort_by_key(|(name, _)| *name);
        let mut out = Checkpoint::new();
        let damaged = || CheckpointError::Damaged(path.into());
        match metadata.get(KEY) {
            Some(stamp) => {
                let (version, sum, notes) = read_stamp(stamp).ok_or_else(damaged)?;
                if version > FORMAT {
                    return Err(CheckpointError::Newer(path.into(), version));
                }
                let found = checksum(notes, views.iter().map(|(name, view)| (*name, view)));
                if version != FORMAT || sum != found || metadata.len() != 1 {
                    return Err(damaged());
                }
                out.notes = serde_json::from_str(notes).map_err(|e| malformed(e.to_string()))?;
            }
            // One damaged letter in the key must not make a checkpoint pass for a foreign file.
            None if metadata.values().any(|stamp| read_stamp(stamp).is_some()) => {
                return Err(damaged());
            }
            None => {
                let notes = metadata.iter().map(|(name, text)| (name.clone(), text.clone().into()));
                out.notes = notes.collect();
            }
        }
        for (name, view) in views {
            let tensor = decode(&view).map_err(|e| malformed(format!("tensor `{name}`: {e}")))?;
            out.tensors.insert(name.to_string(), tensor);
        }
        Ok(out)
    }
}

/// A real element type, stored as itself.
pub trait Storable: Real {
    /// As a tensor of any type.
    fn wrap(tensor: Tensor<Self>) -> AnyTensor;
    /// If it is of this type.
    fn unwrap(tensor: &AnyTensor) -> Option<Tensor<Self>>;
}

macro_rules! storable {
    ($t:ty, $variant:ident) => {
        impl Storable for $t {
            fn wrap(tensor: Tensor<$t>) -> AnyTensor {
                AnyTensor::$variant(tensor)
            }
            fn unwrap(tensor: &AnyTensor) -> Option<Tensor<$t>> {
                match tensor {
                    AnyTensor::$variant(tensor) => Some(tensor.clone()),
                    _ => None,
                }
            }
        }
    };
}

storable!(f32, F32);
storable!(f64, F64);

/// Name, type, shape and little-endian bytes of a tensor.
fn encode<'a>(name: &'a String, tensor: &AnyTensor) -> (&'a String, Dtype, Vec<usize>, Vec<u8>) {
    fn bytes<T: Element, const N: usize>(t: &Tensor<T>, f: impl Fn(T) -> [u8; N]) -> Vec<u8> {
        t.contiguous().as_slice().iter().flat_map(|&x| f(x)).collect()
    }
    let (dtype, shape, bytes) = match tensor {
        AnyTensor::F32(t) => (Dtype::F32, t.shape(), bytes(t, f32::to_le_bytes)),
        AnyTensor::F64(t) => (Dtype::F64, t.shape(), bytes(t, f64::to_le_bytes)),
        AnyTensor::I64(t) => (Dtype::I64, t.shape(), bytes(t, i64::to_le_bytes)),
        AnyTensor::U32(t) => (Dtype::U32, t.shape(), bytes(t, u32::to_le_bytes)),
        AnyTensor::Bool(t) => (Dtype::BOOL, t.shape(), bytes(t, |b| [b as u8])),
    };
    (name, dtype, shape.to_vec(), bytes)
}

fn decode(view: &TensorView<'_>) -> Result<AnyTensor, String> {
    fn tensor<T: Element, const N: usize>(
        view: &TensorView<'_>,
        f: impl Fn([u8; N]) -> T,
    ) -> Result<Tensor<T>, String> {
        let items = view.data().chunks_exact(N).map(|c| f(c.try_into().expect("N bytes")));
        Tensor::try_from_vec(items.collect(), view.shape()).map_err(|e| e.to_string())
    }
    Ok(match view.dtype() {
        Dtype::F32 => AnyTensor::F32(tensor(view, f32::from_le_bytes)?),
        Dtype::F64 => AnyTensor::F64(tensor(view, f64::from_le_bytes)?),
        Dtype::I64 => AnyTensor::I64(tensor(view, i64::from_le_bytes)?),
        Dtype::U32 => AnyTensor::U32(tensor(view, u32::from_le_bytes)?),
        Dtype::BOOL => AnyTensor::Bool(tensor(view, |[b]: [u8; 1]| b != 0)?),
        other => {
            let known = [DType::F32, DType::F64, DType::I64, DType::U32, DType::Bool];
            return Err(format!("it has type {other:?}, known are {known:?}"));
        }
    })
}

/// CRC-32 of the notes and of every tensor's name, type, shape and bytes, by name.
fn checksum<'a, 'b: 'a>(
    notes: &str,
    tensors: impl Iterator<Item = (&'a str, &'a TensorView<'b>)>,
) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    let mut add = |bytes: &[u8]| {
        hasher.update(&(bytes.len() as u64).to_le_bytes());
        hasher.update(bytes);
    };
    add(notes.as_bytes());
    for (name, view) in tensors {
        add(name.as_bytes());
        add(format!("{:?} {:?}", view.dtype(), view.shape()).as_bytes());
        add(view.data());
    }
    hasher.finalize()
}

/// Format version, checksum and notes of the metadata that [`Checkpoint::save`] writes.
fn read_stamp(stamp: &str) -> Option<(u32, u32, &str)> {
    let mut parts = stamp.splitn(3, ' ');
    let version = parts.next()?.parse().ok()?;
    let text = parts.next()?;
    let sum = u32::from_str_radix(text, 16).ok()?;
    // As it was written and not otherwise: capitals would be a damaged letter.
    (text == format!("{sum:08x}")).then_some((version, sum, parts.next()?))
}

fn not_a_file() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file")
}

/// Writes a file so that a crash leaves the old contents or the new. A symbolic link is
/// replaced by the file.
///
/// # Errors
/// If the operating system refuses, or there is something other than a file, such as a
/// folder or a device. The old file is then still there, and no temporary one is.
pub fn write_atomically(path: &Path, bytes: &[u8]) -> io::Result<()> {
    static COUNTER: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let name = path
        .file_name()
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "not a path to a file"))?;
    // A rename would replace even a device such as /dev/null, given the rights.
    if fs::symlink_metadata(path).is_ok_and(|m| !m.is_file() && !m.is_symlink()) {
        return Err(not_a_file());
    }
    let count = COUNTER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let mut temporary = name.to_os_string();
    temporary.push(format!(".{}-{count}.tmp", std::process::id()));
    let temporary = path.with_file_name(temporary);
    let result = (|| {
        let mut file = File::create(&temporary)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&temporary, path)?;
        // The rename itself must survive a crash too.
        #[cfg(unix)]
        {
            let folder = path.parent().filter(|p| !p.as_os_str().is_empty());
            File::open(folder.unwrap_or(Path::new(".")))?.sync_all()?;
        }
        Ok(())
    })();
    if result.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    result
}
