//! Single tensors in NumPy's format `.npy`, as `numpy.save` writes and `numpy.load` reads them.
//!
//! A file begins with the bytes `\x93NUMPY`, the version of the format and the length of the header;
//! then follows the header, a dictionary in Python's syntax, then the elements:
//! <https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html>.
//!
//! | read | as |
//! |---|---|
//! | `float16`, `float32` | `f32` |
//! | `float64` | `f64` |
//! | `int8`, `uint8`, `int16`, `uint16`, `int32`, `int64`, `uint64` | `i64` |
//! | `uint32` | `u32` |
//! | `bool` | `bool` |
//!
//! in either byte order, and in C or in Fortran order. Files are written in C order, little-endian,
//! byte for byte as NumPy writes them.

use super::any_tensor::{AnyTensor, ReadError};
use super::atomic;
use super::error::{CheckpointError, Unsupported};
use super::open::open_file;
use super::python;
use super::stored::Stored;
use retrograd_tensor::{Element, ErrorKind, MAX_RANK, Tensor};
use std::io::{self, BufReader, Read, Write};
use std::path::Path;

/// The first bytes of a file.
pub(super) const MAGIC: &[u8] = b"\x93NUMPY";

/// The largest header that is read. NumPy itself refuses more than 10,000 bytes.
const LONGEST_HEADER: usize = 1 << 16;

/// Reads a tensor from a file.
///
/// A tensor in Fortran order is a view of its transpose, not contiguous, as in NumPy.
///
/// # Errors
/// If the file cannot be read, is no `.npy` file, is too short or too long, or contains something
/// else than a tensor of at most [`MAX_RANK`] axes of the types above; if a `uint64` exceeds `i64`;
/// or if there is no memory.
///
/// ```
/// use retrograd::nn::npy;
/// use retrograd::prelude::*;
///
/// let path = std::env::temp_dir().join(format!("doc-{}.npy", std::process::id()));
/// let x = Tensor::from([[1.5f32, 2.0], [3.0, 4.0]]);
/// npy::save(&path, &x).unwrap(); // in Python, numpy.load(path) reads it
/// let back: Tensor<f64> = npy::load(&path).unwrap().to_float().unwrap();
/// assert_eq!(back.to_vec(), [1.5, 2.0, 3.0, 4.0]);
/// std::fs::remove_file(&path).unwrap();
/// ```
pub fn load(path: impl AsRef<Path>) -> Result<AnyTensor, CheckpointError> {
    let path = path.as_ref();
    let (file, length) = open_file(path).map_err(|e| CheckpointError::Io(path.into(), e))?;
    read(&mut BufReader::new(file), length).map_err(|problem| problem.at(path, None))
}

/// Writes a tensor to a file, atomically, as [`write_atomically`](super::write_atomically) does.
///
/// # Errors
/// If the operating system reports an error.
pub fn save(path: impl AsRef<Path>, tensor: impl Into<AnyTensor>) -> Result<(), CheckpointError> {
    let (path, tensor) = (path.as_ref(), tensor.into());
    atomic::replace(&atomic::System, path, |file| write(&tensor, file))
        .map_err(|e| CheckpointError::Io(path.into(), e))
}

/// The reason why an array cannot be read.
pub(super) enum Problem {
    Io(io::Error),
    /// It is no array, or is damaged.
    Malformed(String),
    /// There is no such tensor.
    Unsupported(Unsupported),
    /// There is no memory for so many bytes.
    OutOfMemory(usize),
}

impl From<io::Error> for Problem {
    fn from(e: io::Error) -> Problem {
        match e.kind() {
            io::ErrorKind::UnexpectedEof => Problem::Malformed("it ends too early".into()),
            _ => Problem::Io(e),
        }
    }
}

impl Problem {
    /// The error of a file, or of an entry of an archive.
    pub fn at(self, path: &Path, entry: Option<&str>) -> CheckpointError {
        let of = |text: &str| match entry {
            Some(entry) => format!("array `{entry}`: {text}"),
            None => text.to_string(),
        };
        match self {
            Problem::Io(e) => CheckpointError::Io(path.into(), e),
            Problem::Malformed(why) => CheckpointError::Unreadable(path.into(), of(&why)),
            Problem::Unsupported(tensor) => {
                CheckpointError::Unreadable(path.into(), of(&format!("it is {tensor}")))
            }
            Problem::OutOfMemory(bytes) => CheckpointError::OutOfMemory {
                path: path.into(),
                bytes,
                part: entry.map_or("its elements".into(), |entry| format!("array `{entry}`")),
            },
        }
    }
}

/// Reads an array from `length` bytes.
pub(super) fn read(source: &mut dyn Read, length: u64) -> Result<AnyTensor, Problem> {
    let malformed = |why: String| Err(Problem::Malformed(why));
    let mut magic = Vec::new();
    source.take(8).read_to_end(&mut magic)?;
    let Some(&[major, minor]) = magic.strip_prefix(MAGIC) else {
        return malformed("it is no .npy file, which begins with \\x93NUMPY".into());
    };
    let (header, start) = match major {
        1 => {
            let mut bytes = [0; 2];
            source.read_exact(&mut bytes)?;
            (u16::from_le_bytes(bytes) as usize, 10)
        }
        2 | 3 => {
            let mut bytes = [0; 4];
            source.read_exact(&mut bytes)?;
            (u32::from_le_bytes(bytes) as usize, 12)
        }
        _ => return malformed(format!("it has version {major}.{minor} of the format, not 1 to 3")),
    };
    if header > LONGEST_HEADER {
        return malformed(format!("a header of {header} bytes exceeds {LONGEST_HEADER}"));
    }
    let mut text = vec![0; header];
    source.read_exact(&mut text)?;
    // Version 3 is UTF-8, the others are Latin-1; outside of strings both are ASCII.
    let Header { descr, fortran, shape } = parse(&String::from_utf8_lossy(&text))?;
    let unsupported = |reason: String| {
        Problem::Unsupported(Unsupported { dtype: descr.clone(), shape: shape.clone(), reason })
    };
    let (stored, big_endian) = element_type(&descr).map_err(|why| unsupported(why.into()))?;
    let width = stored.width();
    let expected = (shape.iter().filter(|&&n| n > 0))
        .try_fold(width as u64, |bytes, &n| bytes.checked_mul(n as u64));
    let Some(expected) = expected else {
        return malformed(format!("shape {shape:?} is too large"));
    };
    let expected = if shape.contains(&0) { 0 } else { expected };
    let given = length.checked_sub((start + header) as u64);
    if given != Some(expected) {
        let given = given.unwrap_or(0);
        return malformed(format!("{descr} {shape:?} takes {expected} bytes, it has {given}"));
    }
    if shape.len() > MAX_RANK {
        return Err(unsupported(format!("which has more than {MAX_RANK} axes")));
    }
    let mut sizes = shape.clone();
    if fortran {
        sizes.reverse();
    }
    let tensor = AnyTensor::read(stored, &sizes, &mut |bytes| {
        source.read_exact(bytes)?;
        if big_endian {
            bytes.chunks_exact_mut(width).for_each(<[u8]>::reverse);
        }
        Ok(())
    });
    let tensor = tensor.map_err(|e| match e {
        ReadError::Io(e) => e.into(),
        ReadError::Shape(e) if e.kind == ErrorKind::OutOfMemory => {
            Problem::OutOfMemory(expected as usize)
        }
        ReadError::Shape(e) => Problem::Malformed(e.to_string()),
        ReadError::Range(x) => unsupported(format!("whose element {x} exceeds i64")),
    })?;
    Ok(if fortran { transposed(tensor) } else { tensor })
}

/// The same elements with the axes in the opposite order, as a view.
fn transposed(tensor: AnyTensor) -> AnyTensor {
    fn all<T: Element>(tensor: Tensor<T>) -> Tensor<T> {
        tensor.permute((0..tensor.rank() as isize).rev().collect::<Vec<_>>())
    }
    match tensor {
        AnyTensor::F32(t) => AnyTensor::F32(all(t)),
        AnyTensor::F64(t) => AnyTensor::F64(all(t)),
        AnyTensor::I64(t) => AnyTensor::I64(all(t)),
        AnyTensor::U32(t) => AnyTensor::U32(all(t)),
        AnyTensor::Bool(t) => AnyTensor::Bool(all(t)),
    }
}

/// The element type, and whether the elements are big-endian; or why it is not supported.
fn element_type(descr: &str) -> Result<(Stored, bool), &'static str> {
    let other = "which is not supported";
    let (order, kind) = match descr.split_at_checked(1) {
        Some((order @ ("<" | ">" | "|" | "="), kind)) => (order, kind),
        _ => ("", descr),
    };
    let stored = match kind {
        "f2" => Stored::F16,
        "f4" => Stored::F32,
        "f8" => Stored::F64,
        "i1" => Stored::I8,
        "u1" => Stored::U8,
        "i2" => Stored::I16,
        "u2" => Stored::U16,
        "i4" => Stored::I32,
        "u4" => Stored::U32,
        "i8" => Stored::I64,
        "u8" => Stored::U64,
        "b1" => Stored::Bool,
        "O" => return Err("whose elements are Python objects, in a pickle"),
        "V2" => {
            return Err(
                "whose elements are raw bytes, as NumPy writes bfloat16 (hint: save it as float32)",
            );
        }
        _ if kind.starts_with('c') => return Err("whose elements are complex numbers"),
        _ if kind.starts_with(['U', 'S', 'T']) => return Err("whose elements are strings"),
        _ if kind.starts_with(['M', 'm']) => return Err("whose elements are dates"),
        _ => return Err(other),
    };
    let big_endian = match order {
        "<" => false,
        ">" => true,
        "=" => cfg!(target_endian = "big"),
        _ if stored.width() == 1 => false,
        _ => return Err(other),
    };
    Ok((stored, big_endian))
}

/// The contents of a header.
struct Header {
    /// The element type.
    descr: String,
    /// Whether the first axis varies fastest.
    fortran: bool,
    shape: Vec<usize>,
}

fn parse(text: &str) -> Result<Header, Problem> {
    let malformed = |why: &str| Problem::Malformed(format!("its header {why}"));
    let entries = python::dictionary(text.trim())
        .ok_or_else(|| malformed("is no dictionary in Python's syntax"))?;
    let entry = |name: &str| {
        let mut found = entries.iter().filter(|(key, _)| key == name);
        match (found.next(), found.next()) {
            (Some((_, value)), None) => Ok(value),
            (Some(_), Some(_)) => Err(malformed(&format!("has `{name}` twice"))),
            (None, _) => Err(malformed(&format!("has no `{name}`"))),
        }
    };
    let shape = match entry("shape")? {
        python::Value::List(sizes) => {
            let sizes = sizes.iter().map(|size| match size {
                python::Value::Integer(n) => usize::try_from(*n).ok(),
                _ => None,
            });
            sizes.collect::<Option<Vec<usize>>>()
        }
        _ => None,
    };
    let shape = shape.ok_or_else(|| malformed("has a `shape` that is no tuple of sizes"))?;
    let python::Value::Bool(fortran) = *entry("fortran_order")? else {
        return Err(malformed("has a `fortran_order` that is neither True nor False"));
    };
    match entry("descr")? {
        python::Value::Text(descr) => Ok(Header { descr: descr.clone(), fortran, shape }),
        python::Value::List(_) => {
            let (dtype, reason) = ("structured".into(), "whose elements have fields".into());
            Err(Problem::Unsupported(Unsupported { dtype, shape, reason }))
        }
        _ => Err(malformed("has a `descr` that is no text")),
    }
}

/// Number of digits for which NumPy leaves room, so that the first axis can grow.
const ROOM: usize = 21;

/// The bytes of a file before the elements, as NumPy writes them.
fn header(tensor: &AnyTensor) -> Vec<u8> {
    let descr = match Stored::F32.of(tensor.dtype()) {
        Stored::F32 => "<f4",
        Stored::F64 => "<f8",
        Stored::I64 => "<i8",
        Stored::U32 => "<u4",
        Stored::Bool => "|b1",
        other => unreachable!("no tensor has elements of {other:?}"),
    };
    let sizes: Vec<String> = tensor.shape().iter().map(usize::to_string).collect();
    let shape = match &sizes[..] {
        [one] => format!("({one},)"),
        all => format!("({})", all.join(", ")),
    };
    let mut text = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}");
    if let Some(first) = sizes.first() {
        text.extend(std::iter::repeat_n(' ', ROOM - first.len()));
    }
    // The elements begin at a multiple of 64 bytes, after a line feed.
    let end = (10 + text.len() + 1).next_multiple_of(64);
    text.extend(std::iter::repeat_n(' ', end - 10 - text.len() - 1));
    text.push('\n');
    let length = u16::try_from(text.len()).expect("at most 8 axes");
    [MAGIC, &[1, 0], &length.to_le_bytes(), text.as_bytes()].concat()
}

/// Number of bytes that [`write`] writes.
#[cfg(feature = "npz")]
pub(super) fn byte_len(tensor: &AnyTensor) -> u64 {
    header(tensor).len() as u64 + super::header::byte_len(tensor, Stored::F32)
}

/// Writes an array.
pub(super) fn write(tensor: &AnyTensor, sink: &mut dyn Write) -> io::Result<()> {
    sink.write_all(&header(tensor))?;
    tensor.write(Stored::F32, &mut |bytes| sink.write_all(bytes))
}
