//! The format GGUF, version 3: entries of metadata, then a list of tensors, then their elements.
//!
//! Source: the specification `docs/gguf.md` of ggml.

use crate::checkpoint::open::open_file;
use crate::checkpoint::{AnyTensor, CheckpointError, atomic};
use crate::pretrained::weight_type::{PIECE, WeightType};
use retrograd_tensor::{ErrorKind, MAX_RANK, ShapeError, Tensor};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom, Write};
use std::path::Path;

pub(super) const MAGIC: [u8; 4] = *b"GGUF";
const VERSION: u32 = 3;
/// The first byte of a tensor is a multiple of it.
const ALIGNMENT: u64 = 32;
/// The largest alignment that is read.
const MAX_ALIGNMENT: u64 = 1 << 16;
/// Lists of numbers that are longer are skipped: nothing here is in them.
const LONGEST_LIST: u64 = 1 << 16;
/// The largest number of axes, as in ggml.
const MAX_AXES: usize = 4;

/// An entry of the metadata.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    Bool(bool),
    Integer(i128),
    Float(f64),
    Text(String),
    Texts(Vec<String>),
    Numbers(Vec<f64>),
    /// A list that is not needed here.
    Skipped,
}

/// The numbers of the types of entries.
mod kind {
    pub const U32: u32 = 4;
    pub const I32: u32 = 5;
    pub const F32: u32 = 6;
    pub const BOOL: u32 = 7;
    pub const TEXT: u32 = 8;
    pub const LIST: u32 = 9;
}

/// The bytes of a number of a type.
fn width(kind: u32) -> Option<u64> {
    Some(match kind {
        0 | 1 | kind::BOOL => 1,
        2 | 3 => 2,
        kind::U32 | kind::I32 | kind::F32 => 4,
        10..=12 => 8,
        _ => return None,
    })
}

/// The element type of a tensor, by its number.
const TYPES: [(WeightType, u32); 4] =
    [(WeightType::F32, 0), (WeightType::F16, 1), (WeightType::Q8_0, 8), (WeightType::Bf16, 30)];

/// The bytes of a file before the elements, as they are added.
#[derive(Default)]
pub(super) struct Entries {
    bytes: Vec<u8>,
    count: u64,
}

impl Entries {
    fn add(&mut self, key: &str, kind: u32) -> &mut Vec<u8> {
        self.count += 1;
        text(&mut self.bytes, key);
        self.bytes.extend(kind.to_le_bytes());
        &mut self.bytes
    }

    pub(super) fn integer(&mut self, key: &str, value: usize) {
        // The sizes of a model in memory are below.
        let value = u32::try_from(value).unwrap_or(u32::MAX);
        self.add(key, kind::U32).extend(value.to_le_bytes());
    }

    pub(super) fn float(&mut self, key: &str, value: f64) {
        self.add(key, kind::F32).extend((value as f32).to_le_bytes());
    }

    pub(super) fn bool(&mut self, key: &str, value: bool) {
        self.add(key, kind::BOOL).push(value.into());
    }

    pub(super) fn text(&mut self, key: &str, value: &str) {
        text(self.add(key, kind::TEXT), value);
    }

    pub(super) fn texts<'a>(&mut self, key: &str, values: impl ExactSizeIterator<Item = &'a str>) {
        let bytes = self.list(key, kind::TEXT, values.len());
        values.for_each(|value| text(bytes, value));
    }

    pub(super) fn integers(&mut self, key: &str, values: &[i32]) {
        let bytes = self.list(key, kind::I32, values.len());
        values.iter().for_each(|value| bytes.extend(value.to_le_bytes()));
    }

    pub(super) fn floats(&mut self, key: &str, values: &[f32]) {
        let bytes = self.list(key, kind::F32, values.len());
        values.iter().for_each(|value| bytes.extend(value.to_le_bytes()));
    }

    fn list(&mut self, key: &str, kind: u32, length: usize) -> &mut Vec<u8> {
        let bytes = self.add(key, kind::LIST);
        bytes.extend(kind.to_le_bytes());
        bytes.extend((length as u64).to_le_bytes());
        bytes
    }

    /// Writes the file, atomically.
    pub(super) fn write(
        self,
        path: &Path,
        tensors: &[(String, Tensor<f32>, WeightType)],
    ) -> io::Result<()> {
        let mut head = MAGIC.to_vec();
        head.extend(VERSION.to_le_bytes());
        head.extend((tensors.len() as u64).to_le_bytes());
        head.extend(self.count.to_le_bytes());
        head.extend(self.bytes);
        let mut offset = 0u64;
        for (name, tensor, weights) in tensors {
            text(&mut head, name);
            head.extend((tensor.rank() as u32).to_le_bytes());
            // The last axis comes first.
            tensor.shape().iter().rev().for_each(|&n| head.extend((n as u64).to_le_bytes()));
            let number = TYPES.iter().find(|row| row.0 == *weights).expect("all have a row").1;
            head.extend(number.to_le_bytes());
            head.extend(offset.to_le_bytes());
            offset += (weights.bytes(tensor.numel()) as u64).next_multiple_of(ALIGNMENT);
        }
        pad(&mut head);
        atomic::replace(&atomic::System, path, |file| {
            file.write_all(&head)?;
            for (_, tensor, weights) in tensors {
                let (tensor, mut bytes) = (tensor.contiguous(), Vec::new());
                let mut pieces = tensor.as_slice().chunks(PIECE).peekable();
                while let Some(piece) = pieces.next() {
                    bytes.clear();
                    weights.encode(piece, &mut bytes);
                    if pieces.peek().is_none() {
                        pad(&mut bytes);
                    }
                    file.write_all(&bytes)?;
                }
            }
            Ok(())
        })
    }
}

fn text(bytes: &mut Vec<u8>, text: &str) {
    bytes.extend((text.len() as u64).to_le_bytes());
    bytes.extend(text.as_bytes());
}

/// Zeros up to the alignment. All pieces but the last one of a tensor are multiples of it.
fn pad(bytes: &mut Vec<u8>) {
    bytes.resize(bytes.len().next_multiple_of(ALIGNMENT as usize), 0);
}

/// A tensor of a file.
struct Part {
    shape: Vec<usize>,
    weights: Result<WeightType, u32>,
    offset: u64,
}

/// A file whose metadata have been read and checked.
pub(super) struct Gguf {
    file: BufReader<File>,
    /// Bytes of the file that have not been read.
    left: u64,
    pub(super) entries: BTreeMap<String, Value>,
    parts: BTreeMap<String, Part>,
    /// The offset of the elements.
    data: u64,
}

/// A reason why a file is refused.
pub(super) enum Problem {
    Io(io::Error),
    Malformed(String),
}

impl From<io::Error> for Problem {
    fn from(e: io::Error) -> Problem {
        Problem::Io(e)
    }
}

impl Problem {
    pub(super) fn of(self, path: &Path) -> CheckpointError {
        match self {
            Problem::Io(e) => CheckpointError::Io(path.into(), e),
            Problem::Malformed(why) => CheckpointError::Unreadable(path.into(), why),
        }
    }
}

fn malformed<T>(why: impl Into<String>) -> Result<T, Problem> {
    Err(Problem::Malformed(why.into()))
}

impl Gguf {
    pub(super) fn open(path: &Path) -> Result<Gguf, Problem> {
        let (file, length) = open_file(path)?;
        let (entries, parts) = (BTreeMap::new(), BTreeMap::new());
        let mut file = Gguf { file: BufReader::new(file), left: length, entries, parts, data: 0 };
        if file.bytes()? != MAGIC {
            return malformed("it does not begin with GGUF");
        }
        let version = file.u32()?;
        if !(2..=VERSION).contains(&version) {
            return malformed(format!("it has version {version}, this build reads 2 and 3"));
        }
        let (tensors, entries) = (file.u64()?, file.u64()?);
        for _ in 0..entries {
            let key = file.text()?;
            let kind = file.u32()?;
            let value = file.value(kind)?;
            if file.entries.insert(key.clone(), value).is_some() {
                return malformed(format!("duplicate entry {key:?}"));
            }
        }
        for _ in 0..tensors {
            file.part()?;
        }
        let alignment = match file.entries.get("general.alignment") {
            Some(&Value::Integer(n)) => n as u64,
            _ => ALIGNMENT,
        };
        if !alignment.is_power_of_two() || alignment > MAX_ALIGNMENT {
            return malformed(format!("an alignment of {alignment} bytes"));
        }
        file.data = (length - file.left).next_multiple_of(alignment);
        file.check(length)?;
        Ok(file)
    }

    /// Checks that the elements of all tensors are within the file and do not overlap.
    fn check(&self, length: u64) -> Result<(), Problem> {
        let mut ends: Vec<(u64, u64, &str)> = Vec::new();
        for (name, part) in &self.parts {
            let Ok(weights) = part.weights else { continue };
            let bytes = weights.bytes(part.shape.iter().product()) as u64;
            let end = part.offset.checked_add(bytes);
            if end.and_then(|end| end.checked_add(self.data)).is_none_or(|end| end > length) {
                return malformed(format!("tensor {name:?} ends after the file"));
            }
            ends.push((part.offset, part.offset + bytes, name));
        }
        ends.sort_unstable();
        match ends.windows(2).find(|pair| pair[1].0 < pair[0].1) {
            Some(pair) => malformed(format!("tensors {:?} and {:?} overlap", pair[0].2, pair[1].2)),
            None => Ok(()),
        }
    }

    fn part(&mut self) -> Result<(), Problem> {
        let name = self.text()?;
        let rank = self.u32()? as usize;
        if rank > MAX_AXES.min(MAX_RANK) {
            return malformed(format!("tensor {name:?} has {rank} axes"));
        }
        let mut shape = Vec::new();
        for _ in 0..rank {
            shape.push(usize::try_from(self.u64()?).unwrap_or(usize::MAX));
        }
        shape.reverse();
        let (number, offset) = (self.u32()?, self.u64()?);
        let weights = TYPES.iter().find(|row| row.1 == number).map(|row| row.0).ok_or(number);
        let elements = shape.iter().try_fold(1usize, |n, &size| n.checked_mul(size));
        if elements.is_none_or(|n| n > isize::MAX as usize / 4) {
            return malformed(format!("tensor {name:?} of sizes {shape:?} is too large"));
        }
        if weights.is_ok_and(|weights| weights.of(&shape) != weights) {
            return malformed(format!("tensor {name:?} of sizes {shape:?} has no whole blocks"));
        }
        if self.parts.insert(name.clone(), Part { shape, weights, offset }).is_some() {
            return malformed(format!("duplicate tensor {name:?}"));
        }
        Ok(())
    }

    fn value(&mut self, kind: u32) -> Result<Value, Problem> {
        Ok(match kind {
            kind::TEXT => Value::Text(self.text()?),
            kind::LIST => {
                let (kind, length) = (self.u32()?, self.u64()?);
                if kind == kind::TEXT {
                    let mut texts = Vec::new();
                    for _ in 0..length {
                        texts.push(self.text()?);
                    }
                    return Ok(Value::Texts(texts));
                }
                let Some(width) = width(kind) else {
                    return malformed(format!("a list of type {kind}"));
                };
                let bytes = length.checked_mul(width).filter(|bytes| *bytes <= self.left);
                let Some(bytes) = bytes else {
                    return malformed(format!("a list of {length} numbers ends after the file"));
                };
                if length > LONGEST_LIST {
                    self.file.seek_relative(bytes as i64)?;
                    self.left -= bytes;
                    return Ok(Value::Skipped);
                }
                let mut numbers = Vec::new();
                for _ in 0..length {
                    numbers.push(match self.number(kind)? {
                        Value::Integer(n) => n as f64,
                        Value::Float(x) => x,
                        _ => f64::NAN,
                    });
                }
                Value::Numbers(numbers)
            }
            _ => self.number(kind)?,
        })
    }

    fn number(&mut self, kind: u32) -> Result<Value, Problem> {
        Ok(match kind {
            0 => Value::Integer(u8::from_le_bytes(self.bytes()?).into()),
            1 => Value::Integer(i8::from_le_bytes(self.bytes()?).into()),
            2 => Value::Integer(u16::from_le_bytes(self.bytes()?).into()),
            3 => Value::Integer(i16::from_le_bytes(self.bytes()?).into()),
            kind::U32 => Value::Integer(self.u32()?.into()),
            kind::I32 => Value::Integer(i32::from_le_bytes(self.bytes()?).into()),
            kind::F32 => Value::Float(f32::from_le_bytes(self.bytes()?).into()),
            kind::BOOL => Value::Bool(self.bytes::<1>()? != [0]),
            10 => Value::Integer(self.u64()?.into()),
            11 => Value::Integer(i64::from_le_bytes(self.bytes()?).into()),
            12 => Value::Float(f64::from_le_bytes(self.bytes()?)),
            _ => return malformed(format!("an entry of type {kind}")),
        })
    }

    fn bytes<const N: usize>(&mut self) -> Result<[u8; N], Problem> {
        self.take(N as u64)?;
        let mut bytes = [0; N];
        self.file.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    /// Counts bytes that are read next.
    fn take(&mut self, bytes: u64) -> Result<(), Problem> {
        match self.left.checked_sub(bytes) {
            Some(left) => self.left = left,
            None => return malformed("it ends too early"),
        }
        Ok(())
    }

    fn u32(&mut self) -> Result<u32, Problem> {
        Ok(u32::from_le_bytes(self.bytes()?))
    }

    fn u64(&mut self) -> Result<u64, Problem> {
        Ok(u64::from_le_bytes(self.bytes()?))
    }

    fn text(&mut self) -> Result<String, Problem> {
        let length = self.u64()?;
        self.take(length)?;
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(length as usize).map_err(io::Error::from)?;
        bytes.resize(length as usize, 0);
        self.file.read_exact(&mut bytes)?;
        let text = String::from_utf8(bytes);
        text.or_else(|e| malformed(format!("an entry is not UTF-8: {e}")))
    }

    /// Whether there is a tensor of this name.
    pub(super) fn has(&self, name: &str) -> bool {
        self.parts.contains_key(name)
    }

    /// The number of rows of a tensor.
    pub(super) fn rows(&self, name: &str) -> Option<usize> {
        self.parts.get(name).and_then(|part| part.shape.first().copied())
    }

    /// The tensors, by name; an element type that is not supported is an error for one that is wanted.
    pub(super) fn tensors(
        &mut self,
        wanted: impl Fn(&str) -> bool,
    ) -> Result<BTreeMap<String, AnyTensor>, Problem> {
        let mut out = BTreeMap::new();
        for (name, part) in std::mem::take(&mut self.parts) {
            if !wanted(&name) {
                continue;
            }
            let weights = part.weights.or_else(|number| {
                malformed(format!(
                    "tensor {name:?} has type {number}, this build reads f32, f16, bf16 and q8_0"
                ))
            })?;
            self.file.seek(SeekFrom::Start(self.data + part.offset))?;
            let tensor = self.tensor(&part.shape, weights).or_else(|e| match e {
                Ok(e) if e.kind == ErrorKind::OutOfMemory => {
                    malformed(format!("no memory for tensor {name:?}"))
                }
                Ok(e) => malformed(format!("tensor {name:?}: {e}")),
                Err(e) => Err(e.into()),
            })?;
            out.insert(name, AnyTensor::F32(tensor));
        }
        Ok(out)
    }

    fn tensor(
        &mut self,
        shape: &[usize],
        weights: WeightType,
    ) -> Result<Tensor<f32>, Result<ShapeError, io::Error>> {
        let mut tensor = Tensor::try_full(shape, 0.0f32).map_err(Ok)?;
        let mut bytes = Vec::new();
        for piece in tensor.make_mut().chunks_mut(PIECE) {
            bytes.resize(weights.bytes(piece.len()), 0);
            self.file.read_exact(&mut bytes).map_err(Err)?;
            weights.decode(&bytes, piece);
        }
        Ok(tensor)
    }
}
