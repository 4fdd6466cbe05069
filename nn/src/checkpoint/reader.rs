//! Reading a file part by part.

use super::any_tensor::{AnyTensor, ReadError};
use super::error::CheckpointError;
use super::header::{self, Header, LIMIT, Part, Problem};
use super::open::open_file;
use super::stored::Stored;
use retrograd_tensor::ErrorKind;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// Size of the buffer for bytes that only enter the checksum.
const PIECE: usize = 1 << 15;

/// A file whose header has been read and checked.
pub(super) struct Reader {
    path: PathBuf,
    file: File,
    pub header: Header,
    /// The offset of the data in the file.
    data: u64,
    /// The offset of the next byte.
    at: u64,
}

impl Reader {
    pub fn open(path: &Path) -> Result<Reader, CheckpointError> {
        let failed = |e| CheckpointError::Io(path.into(), e);
        let (mut file, length) = open_file(path).map_err(failed)?;
        let mut start = Vec::new();
        // Enough to recognise other formats.
        file.by_ref().take(512).read_to_end(&mut start).map_err(failed)?;
        let malformed = |why: String| {
            CheckpointError::Malformed(path.into(), other_format(&start).unwrap_or(why))
        };
        let Some(&first) = start.first_chunk() else {
            let n = start.len();
            return Err(malformed(format!("it has {n} bytes, a safetensors file has at least 8")));
        };
        let header = u64::from_le_bytes(first);
        if header > LIMIT {
            return Err(malformed(format!(
                "a header of {header} bytes exceeds the limit of {LIMIT}"
            )));
        }
        let Some(data) = length.checked_sub(8 + header) else {
            let text = format!("a header of {header} bytes exceeds the {length} of the file");
            return Err(malformed(text));
        };
        let out_of_memory = |bytes| CheckpointError::OutOfMemory {
            path: path.into(),
            bytes,
            part: "its header".into(),
        };
        let mut text = Vec::new();
        let size = header as usize;
        text.try_reserve_exact(size).map_err(|_| out_of_memory(size))?;
        text.resize(size, 0);
        file.seek(SeekFrom::Start(8)).and_then(|_| file.read_exact(&mut text)).map_err(failed)?;
        match header::parse(&text, data) {
            Ok(parsed) => {
                let data = 8 + header;
                Ok(Reader { path: path.into(), file, header: parsed, data, at: data })
            }
            Err(Problem::Malformed(why)) => Err(malformed(why)),
            Err(Problem::OutOfMemory(bytes)) => Err(out_of_memory(bytes)),
        }
    }

    /// Reads a tensor, and calls `look` with all of its bytes. The inner error is the reason why its
    /// contents are not supported.
    pub fn tensor(
        &mut self,
        part: &Part,
        stored: Stored,
        look: &mut dyn FnMut(&[u8]),
    ) -> Result<Result<AnyTensor, String>, CheckpointError> {
        let tensor = self.go_to(part.begin).map_err(ReadError::Io).and_then(|()| {
            AnyTensor::read(stored, &part.shape, &mut |bytes| {
                self.bytes(bytes)?;
                look(bytes);
                Ok(())
            })
        });
        let error = match tensor {
            Ok(tensor) => return Ok(Ok(tensor)),
            Err(ReadError::Range(x)) => return Ok(Err(format!("whose element {x} exceeds i64"))),
            Err(error) => error,
        };
        Err(match error {
            ReadError::Range(_) => unreachable!("returned above"),
            ReadError::Io(e) => self.failed(e),
            ReadError::Shape(e) if e.kind == ErrorKind::OutOfMemory => {
                CheckpointError::OutOfMemory {
                    path: self.path.clone(),
                    bytes: (part.end - part.begin) as usize,
                    part: format!("tensor `{}`", part.name),
                }
            }
            ReadError::Shape(e) => {
                let why = format!("tensor `{}`: {e}", part.name);
                CheckpointError::Malformed(self.path.clone(), why)
            }
        })
    }

    /// Calls `look` with all bytes of a tensor.
    pub fn pass(
        &mut self,
        part: &Part,
        look: &mut dyn FnMut(&[u8]),
    ) -> Result<(), CheckpointError> {
        let mut read = || {
            self.go_to(part.begin)?;
            let mut left = part.end - part.begin;
            let mut buffer = [0; PIECE];
            while left > 0 {
                let bytes = &mut buffer[..left.min(PIECE as u64) as usize];
                self.bytes(bytes)?;
                look(bytes);
                left -= bytes.len() as u64;
            }
            Ok(())
        };
        read().map_err(|e| self.failed(e))
    }

    fn failed(&self, e: io::Error) -> CheckpointError {
        CheckpointError::Io(self.path.clone(), e)
    }

    fn go_to(&mut self, offset: u64) -> io::Result<()> {
        let to = self.data + offset;
        if to != self.at {
            self.at = self.file.seek(SeekFrom::Start(to))?;
        }
        Ok(())
    }

    fn bytes(&mut self, bytes: &mut [u8]) -> io::Result<()> {
        self.file.read_exact(bytes)?;
        self.at += bytes.len() as u64;
        Ok(())
    }
}

/// Reads a file of at most `most` bytes. Devices, pipes and sockets are refused without opening them: reading
/// one may never end, and opening a pipe blocks until its other end is open.
///
/// # Errors
/// If it is one of them, is larger, or cannot be read.
///
/// ```
/// let error = retrograd::nn::checkpoint::read("/dev/zero", 100).unwrap_err();
/// assert_eq!(error.to_string(), "it is not a regular file");
/// ```
pub fn read(path: impl AsRef<Path>, most: u64) -> io::Result<Vec<u8>> {
    let (file, length) = open_file(path.as_ref())?;
    let mut bytes = Vec::new();
    // Some files of the system have no length, and do not end.
    if length <= most {
        bytes.try_reserve_exact(length as usize)?;
        file.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    }
    if length.max(bytes.len() as u64) > most {
        let why = format!("it has more than {most} bytes, which is the limit for such files");
        return Err(io::Error::new(io::ErrorKind::InvalidData, why));
    }
    Ok(bytes)
}

/// [`read`] for JSON that a program has written.
pub(crate) fn read_json(path: &Path) -> io::Result<String> {
    let text = String::from_utf8(read(path, LIMIT)?);
    text.map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e.utf8_error()))
}

/// How to convert a file of torch.save.
pub(crate) const TORCH_HINT: &str = "(hint: in Python, \
     `safetensors.torch.save_file({k: v.contiguous().clone() for k, v in state.items()}, \
     \"model.safetensors\")` writes what can be read here, where `state` is \
     `torch.load(path, map_location=\"cpu\")`, or the entry of it with the weights: `[\"model\"]` in \
     nanoGPT's ckpt.pt)";

/// The format of a file that is not a safetensors file, by its beginning: that of a safetensors
/// file is the length of the header in 8 bytes, and a brace.
fn other_format(start: &[u8]) -> Option<String> {
    if start.get(8) == Some(&b'{') {
        return None;
    }
    match start {
        [b'P', b'K', 3, 4, ..] => Some(match first_entry(start) {
            Some(name) if name.ends_with(b".npy") => {
                "it is an archive of NumPy arrays (hint: `npz::load` reads it; it needs the feature \
                 `npz`)"
                    .into()
            }
            _ => format!("it is a zip archive, as torch.save writes {TORCH_HINT}"),
        }),
        [0x80, 2..=5, ..] if start.len() > 8 => Some(format!(
            "it is a pickle, as torch.save writes with _use_new_zipfile_serialization=False \
             {TORCH_HINT}"
        )),
        _ if start.starts_with(super::npy::MAGIC) => {
            Some("it is a NumPy array (hint: `npy::load` reads it)".into())
        }
        _ => None,
    }
}

/// The name of the first entry of a zip archive.
fn first_entry(start: &[u8]) -> Option<&[u8]> {
    let &[low, high] = start.get(26..28)? else { return None };
    start.get(30..30 + usize::from(u16::from_le_bytes([low, high])))
}
