//! Checkpoints: tensors and notes in one safetensors file, written so that a crash at any
//! moment leaves the old file or the new one.
//!
//! The file can be read by any reader of safetensors. Its metadata contains a format version, notes
//! as JSON, and a checksum of all contents, so that a damaged file is an error and never a wrong
//! model.
//!
//! Tensors are written and read in pieces, without a copy of the file in memory. Running out of
//! memory is an error.

mod any_tensor;
pub(crate) mod atomic;
mod convert;
mod error;
mod header;
pub mod npy;
#[cfg(feature = "npz")]
pub mod npz;
pub(crate) mod open;
pub(crate) mod python;
mod reader;
pub(crate) mod stored;

pub use any_tensor::{AnyTensor, Storable};
pub use atomic::write_atomically;
pub use convert::ConvertError;
pub use error::{CheckpointError, Unsupported};
pub use reader::read;
pub(crate) use reader::{TORCH_HINT, read_json};

use crate::state::{StateDict, list_first};
use header::{FORMAT, Growing, byte_len, in_file_order};
pub(crate) use header::{UniqueNames, check_memory};
use reader::Reader;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;
use stored::Stored;

/// The metadata entry of version, checksum and notes: a single entry, because the order of several
/// would be random, and equal checkpoints should be equal files.
const KEY: &str = "retrograd";

/// A checkpoint: tensors by name, and notes by name.
///
/// ```
/// use retrograd::prelude::*;
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
/// std::fs::remove_file(&path).unwrap();
/// ```
#[derive(Clone, Debug, Default)]
pub struct Checkpoint {
    /// The tensors, by full name.
    pub tensors: BTreeMap<String, AnyTensor>,
    /// The notes.
    pub notes: BTreeMap<String, Note>,
    /// Tensors of the file that [`AnyTensor`] does not support, by full name: of 8-bit floats,
    /// say, or with more than [`MAX_RANK`](retrograd_tensor::MAX_RANK) axes, or of 64-bit unsigned
    /// integers that exceed `i64`.
    pub unsupported: BTreeMap<String, Unsupported>,
}

/// A value in JSON, as [`Checkpoint::note`] writes it and [`Checkpoint::read_note`] reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note(Box<str>);

impl Note {
    /// The text of the value.
    pub fn json(&self) -> &str {
        &self.0
    }
}

impl Checkpoint {
    /// An empty checkpoint.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a state dict under a prefix: names become `prefix.name`, or stay as they are if the
    /// prefix is empty.
    ///
    /// # Panics
    /// If there is a tensor of one of these names already.
    #[track_caller]
    pub fn put<T: Storable>(&mut self, prefix: &str, dict: &StateDict<T>) {
        for (name, value) in dict {
            let name = match prefix {
                "" => name.clone(),
                _ => format!("{prefix}.{name}"),
            };
            let taken = self.tensors.contains_key(&name);
            assert!(!taken, "checkpoint: there are two tensors named {name}");
            self.tensors.insert(name, T::wrap(value.clone()));
        }
    }

    /// The state dict of the tensors under a prefix, which is removed from the names; of all
    /// tensors if the prefix is empty.
    ///
    /// The names and layouts of a file of another program may differ: a
    /// [`StateMap`](crate::StateMap) changes them, and [`pretrained`](crate::pretrained) has those
    /// of GPT-2, nanoGPT and Llama.
    ///
    /// ```no_run
    /// use retrograd::nn::pretrained;
    /// use retrograd::prelude::*;
    /// fn load(model: &Gpt, path: &std::path::Path) -> Result<(), Box<dyn std::error::Error>> {
    ///     let file = Checkpoint::load(path)?;
    ///     // Without the prefix that torch.compile adds:
    ///     model.load_state_dict(&file.get("_orig_mod")?)?;
    ///     // The weights of GPT-2, whose linear layers store `[inputs, outputs]`:
    ///     model.load_state_dict(&pretrained::gpt2().import(&file)?)?;
    ///     Ok(())
    /// }
    /// ```
    ///
    /// A weight that has to be transposed and is square, such as `attn.c_proj` of GPT-2, has the
    /// same shape either way: it **loads without an error if it is not transposed**, and the model is
    /// wrong.
    ///
    /// Floats of another width are converted to the element type: to the nearest number, which is
    /// the same one where the type is wider.
    ///
    /// # Errors
    /// If one of its tensors is of integers or booleans, is [unsupported](Checkpoint::unsupported),
    /// or has a finite element that would become infinite.
    pub fn get<T: Storable>(&self, prefix: &str) -> Result<StateDict<T>, CheckpointError> {
        let below = |name: &str| -> Option<String> {
            match prefix {
                "" => Some(name.to_string()),
                _ => Some(name.strip_prefix(prefix)?.strip_prefix('.')?.to_string()),
            }
        };
        let (mut dict, mut others) = (StateDict::new(), Vec::new());
        for (name, value) in &self.tensors {
            let Some(rest) = below(name) else { continue };
            match value.as_float() {
                Ok(value) => drop(dict.insert(rest, value)),
                Err(why) => others.push(format!("{name}: {why}")),
            }
        }
        for (name, tensor) in &self.unsupported {
            if below(name).is_some() {
                others.push(format!("{name}: it is {tensor}"));
            }
        }
        if others.is_empty() {
            return Ok(dict);
        }
        Err(CheckpointError::Absent(format!("{} tensor {}", T::DTYPE, list_first(&others, "; "))))
    }

    /// Adds a note. Numbers are read back exactly, but JSON has none for NaN and infinities:
    /// they become null, so give an `Option` where there may be one.
    ///
    /// # Panics
    /// If the value has no JSON form.
    #[track_caller]
    pub fn note(&mut self, name: &str, value: &impl Serialize) {
        // Objects of a `Value` are sorted: equal notes are equal texts.
        let value = serde_json::to_value(value)
            .unwrap_or_else(|e| panic!("checkpoint: note {name} has no JSON form: {e}"));
        self.notes.insert(name.to_string(), Note(value.to_string().into()));
    }

    /// A note.
    ///
    /// # Errors
    /// If there is no such note, or it has another form.
    pub fn read_note<D: DeserializeOwned>(&self, name: &str) -> Result<D, CheckpointError> {
        let absent = |why: String| CheckpointError::Absent(format!("note {name}{why}"));
        let note = self.notes.get(name).ok_or_else(|| absent(String::new()))?;
        serde_json::from_str(&note.0).map_err(|e| absent(format!(" of this form: {e}")))
    }

    /// Writes the file: to a temporary one beside it, flushed to disk, and renamed. Equal
    /// checkpoints become equal files. Elements are written in pieces, without a copy in memory.
    ///
    /// # Errors
    /// If the operating system reports an error, as [`write_atomically`]; or a tensor has the
    /// reserved name `__metadata__`, or names and notes take more than the 100 MB that readers of
    /// safetensors accept; or there are [unsupported](Checkpoint::unsupported) tensors, which would
    /// be lost.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<(), CheckpointError> {
        self.write(path.as_ref(), Stored::F32, || self.header())
    }

    /// Writes a file for other programs, as `safetensors.torch.save_file(tensors, path, metadata)`
    /// does: notes are the metadata, each a string by itself, and there is no checksum. A note that
    /// is no string is written as its text in JSON. Hugging Face's `transformers` require the note `format`
    /// with the value `"pt"`.
    ///
    /// # Errors
    /// As [`Checkpoint::save`], or if a note has the name `retrograd`, which marks files of
    /// [`Checkpoint::save`].
    pub fn save_plain(&self, path: impl AsRef<Path>) -> Result<(), CheckpointError> {
        self.save_plain_as(path.as_ref(), Stored::F32)
    }

    /// Writes what [`Checkpoint::save_plain`] writes to a file.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let mut checkpoint = Checkpoint::new();
    /// checkpoint.tensors.insert("x".into(), Tensor::from([1.0f32, 2.0]).into());
    /// let mut bytes = Vec::new();
    /// checkpoint.write_plain(&mut bytes).unwrap();
    /// assert!(bytes.ends_with(&2.0f32.to_le_bytes()));
    /// ```
    ///
    /// # Errors
    /// If writing fails, or as [`Checkpoint::save_plain`].
    pub fn write_plain(&self, out: &mut dyn io::Write) -> io::Result<()> {
        self.check_names()?;
        out.write_all(&self.plain_header(Stored::F32)?)?;
        self.write_elements(Stored::F32, out)
    }

    fn write_elements(&self, floats: Stored, out: &mut dyn io::Write) -> io::Result<()> {
        for (_, tensor) in in_file_order(self.tensors.iter()) {
            tensor.write(floats, &mut |bytes| out.write_all(bytes))?;
        }
        Ok(())
    }

    /// [`Checkpoint::save_plain`], with elements of `f32` rounded to the type `floats`.
    pub(crate) fn save_plain_as(&self, path: &Path, floats: Stored) -> Result<(), CheckpointError> {
        self.write(path, floats, || self.plain_header(floats))
    }

    fn write(
        &self,
        path: &Path,
        floats: Stored,
        header: impl FnOnce() -> io::Result<Vec<u8>>,
    ) -> Result<(), CheckpointError> {
        let write = || {
            self.check_names()?;
            let header = header()?;
            atomic::replace(&atomic::System, path, |file| {
                file.write_all(&header)?;
                self.write_elements(floats, file)
            })
        };
        write().map_err(|e| CheckpointError::Io(path.into(), e))
    }

    /// Reads a file and checks it before its contents are used. A safetensors file that was not
    /// written by [`Checkpoint::save`] is read too: the entries of its metadata become notes,
    /// each a string, and its contents are not checked, for lack of a checksum.
    ///
    /// # Errors
    /// If it cannot be read, is no safetensors file, is damaged, or is of a later version; or
    /// if there is no memory for one of its tensors. That a tensor is
    /// [unsupported](Checkpoint::unsupported) is an error only in [`Checkpoint::get`].
    pub fn load(path: impl AsRef<Path>) -> Result<Checkpoint, CheckpointError> {
        Checkpoint::load_filtered(path, |_| true)
    }

    /// Reads the notes of a file, and the tensors whose full name passes the test; no
    /// memory is needed for the others. The file is checked as a whole, as by
    /// [`Checkpoint::load`].
    ///
    /// # Errors
    /// As [`Checkpoint::load`].
    pub fn load_filtered(
        path: impl AsRef<Path>,
        wanted: impl Fn(&str) -> bool,
    ) -> Result<Checkpoint, CheckpointError> {
        Checkpoint::read(path.as_ref(), &wanted)
    }

    fn read(path: &Path, wanted: &dyn Fn(&str) -> bool) -> Result<Checkpoint, CheckpointError> {
        let mut file = Reader::open(path)?;
        let header::Header { parts, metadata } = std::mem::take(&mut file.header);
        let damaged = || CheckpointError::Damaged(path.into());
        let mut out = Checkpoint::new();
        let mut sums = None;
        match metadata.iter().find(|(key, _)| key == KEY) {
            Some((_, stamp)) => {
                let (version, sum, notes) = read_stamp(stamp).ok_or_else(damaged)?;
                if version > FORMAT {
                    return Err(CheckpointError::Newer(path.into(), version));
                }
                if version != FORMAT || metadata.len() != 1 {
                    return Err(damaged());
                }
                sums = Some((sum, Checksum::new(notes), notes));
            }
            // A checkpoint with a damaged key must not be taken for a foreign file.
            None if metadata.iter().any(|(_, stamp)| read_stamp(stamp).is_some()) => {
                return Err(damaged());
            }
            None => {
                for (name, text) in &metadata {
                    let note = Note(serde_json::Value::from(text.as_str()).to_string().into());
                    if out.notes.insert(name.clone(), note).is_some() {
                        let why = format!("duplicate entry `{name}` in `__metadata__`");
                        return Err(CheckpointError::Malformed(path.into(), why));
                    }
                }
            }
        }
        let summed = sums.is_some();
        for part in &parts {
            if let Some((_, found, _)) = &mut sums {
                found.tensor(&part.name, &part.dtype, &part.shape, part.end - part.begin);
            }
            let look = &mut |bytes: &[u8]| {
                if let Some((_, found, _)) = &mut sums {
                    found.data(bytes);
                }
            };
            let taken = wanted(&part.name);
            let tensor = match part.stored() {
                Ok(stored) if taken => file.tensor(part, stored, look)?,
                stored => {
                    if summed {
                        file.pass(part, look)?;
                    }
                    Err(stored.err().unwrap_or_default())
                }
            };
            match tensor {
                Ok(tensor) => drop(out.tensors.insert(part.name.clone(), tensor)),
                Err(reason) if taken => {
                    let (dtype, shape) = (part.dtype.clone(), part.shape.clone());
                    let tensor = Unsupported { dtype, shape, reason };
                    out.unsupported.insert(part.name.clone(), tensor);
                }
                Err(_) => {}
            }
        }
        if let Some((sum, found, notes)) = sums {
            if found.value() != sum {
                return Err(damaged());
            }
            let UniqueNames(notes) = serde_json::from_str::<UniqueNames<Box<RawValue>>>(notes)
                .map_err(|e| CheckpointError::Malformed(path.into(), e.to_string()))?;
            out.notes = notes.into_iter().map(|(name, raw)| (name, Note(raw.into()))).collect();
        }
        Ok(out)
    }

    /// Checks that the tensors can be written.
    fn check_names(&self) -> io::Result<()> {
        if self.tensors.contains_key("__metadata__") {
            return Err(invalid("a tensor cannot be named __metadata__".into()));
        }
        match self.unsupported.first_key_value() {
            Some((name, tensor)) => Err(invalid(format!(
                "there are no contents of tensor {name}: it is {tensor} (hint: remove entries that \
                 need not be saved from `unsupported`)"
            ))),
            None => Ok(()),
        }
    }

    /// The bytes of a file for other programs before the elements.
    fn plain_header(&self, floats: Stored) -> io::Result<Vec<u8>> {
        if self.notes.contains_key(KEY) {
            let why = format!("a note cannot be named {KEY}, which marks files with a checksum");
            return Err(invalid(why));
        }
        let text = |note: &Note| serde_json::from_str(&note.0).unwrap_or(note.0.to_string());
        let notes: Vec<(&str, String)> =
            self.notes.iter().map(|(name, note)| (&name[..], text(note))).collect();
        let metadata: Vec<(&str, &str)> =
            notes.iter().map(|(name, text)| (*name, &text[..])).collect();
        header::write(in_file_order(self.tensors.iter()), &metadata, floats)
    }

    /// The bytes of the file before the elements.
    fn header(&self) -> io::Result<Vec<u8>> {
        let mut text = Growing::default();
        text.write_all(b"{")?;
        for (i, (name, Note(json))) in self.notes.iter().enumerate() {
            text.write_all(if i > 0 { b"," } else { b"" })?;
            serde_json::to_writer(&mut text, name)?;
            text.write_all(b":")?;
            text.write_all(json.as_bytes())?;
        }
        text.write_all(b"}")?;
        let notes = str::from_utf8(&text.0).expect("JSON is text");
        let mut sum = Checksum::new(notes);
        for (name, tensor) in &self.tensors {
            let dtype = Stored::F32.of(tensor.dtype()).safetensors();
            sum.tensor(name, dtype, tensor.shape(), byte_len(tensor, Stored::F32));
            tensor.write(Stored::F32, &mut |bytes| {
                sum.data(bytes);
                Ok(())
            })?;
        }
        let mut stamp = Growing::default();
        write!(stamp, "{FORMAT} {:08x} {notes}", sum.value())?;
        let stamp = str::from_utf8(&stamp.0).expect("made of text");
        header::write(in_file_order(self.tensors.iter()), &[(KEY, stamp)], Stored::F32)
    }
}

fn invalid(why: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why)
}

/// CRC-32 of the notes and of every tensor's name, type, shape and bytes, by name. Each is
/// preceded by its length.
struct Checksum(crc32fast::Hasher);

impl Checksum {
    fn new(notes: &str) -> Checksum {
        let mut sum = Checksum(crc32fast::Hasher::new());
        sum.text(notes);
        sum
    }

    fn text(&mut self, text: &str) {
        self.data(&(text.len() as u64).to_le_bytes());
        self.data(text.as_bytes());
    }

    /// Adds the header of a tensor: everything except its bytes.
    fn tensor(&mut self, name: &str, dtype: &str, shape: &[usize], bytes: u64) {
        self.text(name);
        self.text(&format!("{dtype} {shape:?}"));
        self.data(&bytes.to_le_bytes());
    }

    fn data(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    fn value(self) -> u32 {
        self.0.finalize()
    }
}

/// Format version, checksum and notes of the metadata that [`Checkpoint::save`] writes.
fn read_stamp(stamp: &str) -> Option<(u32, u32, &str)> {
    let mut parts = stamp.splitn(3, ' ');
    let version = parts.next()?.parse().ok()?;
    let text = parts.next()?;
    let sum = u32::from_str_radix(text, 16).ok()?;
    // Exactly the text that `save` writes: capitals would be a damaged letter.
    (text == format!("{sum:08x}")).then_some((version, sum, parts.next()?))
}
