//! The format GGUF, version 3: entries of metadata, then a list of tensors, then their elements.
//!
//! Source: the specification `docs/gguf.md` of ggml.

use crate::checkpoint::open::open_file;
use crate::checkpoint::{AnyTensor, atomic};
use crate::pretrained::weight_type::{PIECE, WeightType};
use retrograd_tensor::{MAX_RANK, Tensor};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufReader, ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::Path;

pub(super) const MAGIC: [u8; 4] = *b"GGUF";
const VERSION: u32 = 3;
/// The first byte of a tensor is a multiple of it.
const ALIGNMENT: u64 = 32;
/// The largest alignment that is read.
const MAX_ALIGNMENT: u64 = 1 << 16;
/// The most entries and tensors that are read: their names take more memory than in a file.
const MOST: u64 = 1 << 18;
/// The largest number of axes, as in ggml.
const MAX_AXES: usize = 4;

/// The value of an entry.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    Bool(bool),
    Integer(i64),
    Float(f64),
    Text(String),
    Texts(Vec<String>),
    Integers(Vec<i64>),
    Floats(Vec<f64>),
    /// A list that is not needed here.
    Skipped,
}

/// The types of entries that are written.
mod kind {
    pub const U32: u32 = 4;
    pub const I32: u32 = 5;
    pub const F32: u32 = 6;
    pub const BOOL: u32 = 7;
    pub const TEXT: u32 = 8;
    pub const LIST: u32 = 9;
    pub const F64: u32 = 12;
}

/// The bytes of a number of a type.
fn width(kind: u32) -> Option<u64> {
    [1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8].get(kind as usize).copied().filter(|&n| n > 0)
}

/// The element types of tensors, with their numbers.
const TYPES: [(WeightType, u32); 4] =
    [(WeightType::F32, 0), (WeightType::F16, 1), (WeightType::Q8_0, 8), (WeightType::Bf16, 30)];

/// Writes a file, atomically.
pub(super) fn write(
    path: &Path,
    entries: &[(String, Value)],
    tensors: &[(String, Tensor<f32>, WeightType)],
) -> io::Result<()> {
    let mut head = MAGIC.to_vec();
    head.extend(VERSION.to_le_bytes());
    head.extend((tensors.len() as u64).to_le_bytes());
    head.extend((entries.len() as u64).to_le_bytes());
    for (key, value) in entries {
        text(&mut head, key);
        append(&mut head, value);
    }
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
            for piece in tensor.as_slice().chunks(PIECE) {
                bytes.clear();
                weights.encode(piece, &mut bytes);
                // All pieces but the last one are multiples of the alignment.
                pad(&mut bytes);
                file.write_all(&bytes)?;
            }
        }
        Ok(())
    })
}

/// Appends the type of a value, and the value.
fn append(bytes: &mut Vec<u8>, value: &Value) {
    let mut list = |of: u32, length: usize| {
        bytes.extend([kind::LIST, of].map(u32::to_le_bytes).concat());
        bytes.extend((length as u64).to_le_bytes());
    };
    match value {
        Value::Texts(texts) => {
            list(kind::TEXT, texts.len());
            texts.iter().for_each(|value| text(bytes, value));
        }
        Value::Integers(values) => {
            list(kind::I32, values.len());
            values.iter().for_each(|&n| bytes.extend((n as i32).to_le_bytes()));
        }
        Value::Floats(values) => {
            list(kind::F32, values.len());
            values.iter().for_each(|&x| bytes.extend((x as f32).to_le_bytes()));
        }
        Value::Bool(value) => {
            bytes.extend(kind::BOOL.to_le_bytes());
            bytes.push((*value).into());
        }
        Value::Integer(n) => {
            bytes.extend([kind::U32, *n as u32].map(u32::to_le_bytes).concat());
        }
        Value::Float(x) => {
            bytes.extend(kind::F32.to_le_bytes());
            bytes.extend((*x as f32).to_le_bytes());
        }
        Value::Text(value) => {
            bytes.extend(kind::TEXT.to_le_bytes());
            text(bytes, value);
        }
        Value::Skipped => unreachable!("it is of a file"),
    }
}

fn text(bytes: &mut Vec<u8>, text: &str) {
    bytes.extend((text.len() as u64).to_le_bytes());
    bytes.extend(text.as_bytes());
}

/// Appends zeros up to the alignment.
fn pad(bytes: &mut Vec<u8>) {
    bytes.resize(bytes.len().next_multiple_of(ALIGNMENT as usize), 0);
}

/// A tensor of a file; the number of its element type, if it is none that is read.
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
    pub entries: BTreeMap<String, Value>,
    parts: BTreeMap<String, Part>,
    /// The offset of the elements.
    data: u64,
}

/// The error that a file is damaged, or not supported.
fn malformed<T>(why: impl Into<String>) -> io::Result<T> {
    Err(io::Error::new(ErrorKind::InvalidData, why.into()))
}

impl Gguf {
    pub(super) fn open(path: &Path) -> io::Result<Gguf> {
        let (file, length) = open_file(path)?;
        let (entries, parts) = (BTreeMap::new(), BTreeMap::new());
        let mut file = Gguf { file: BufReader::new(file), left: length, entries, parts, data: 0 };
        let (magic, version) = (file.bytes::<4>()?, file.u32()?);
        if magic != MAGIC || !(2..=VERSION).contains(&version) {
            return malformed(format!("it is no file of GGUF of version 2 or 3, but {version}"));
        }
        let (tensors, entries) = (file.u64()?, file.u64()?);
        if tensors.max(entries) > MOST {
            return malformed(format!("{tensors} tensors and {entries} entries, more than {MOST}"));
        }
        for _ in 0..entries {
            let (key, kind) = (file.text()?, file.u32()?);
            let value = file.value(&key, kind)?;
            if file.entries.insert(key.clone(), value).is_some() {
                return malformed(format!("duplicate entry {key:?}"));
            }
        }
        for _ in 0..tensors {
            file.part()?;
        }
        let alignment = match file.entries.get("general.alignment") {
            Some(&Value::Integer(n)) => u64::try_from(n).unwrap_or(0),
            Some(_) => 0,
            None => ALIGNMENT,
        };
        if !alignment.is_power_of_two() || alignment > MAX_ALIGNMENT {
            return malformed(format!("an alignment of {alignment} bytes"));
        }
        file.data = (length - file.left).next_multiple_of(alignment);
        file.check(length)?;
        Ok(file)
    }

    /// Checks that the elements of all tensors are within the file and do not overlap.
    fn check(&self, length: u64) -> io::Result<()> {
        let mut ends: Vec<(u64, u64, &str)> = Vec::new();
        for (name, part) in &self.parts {
            let Ok(weights) = part.weights else { continue };
            let bytes = weights.bytes(part.shape.iter().product()) as u64;
            let end = part.offset.checked_add(bytes).filter(|_| self.data <= length);
            let Some(end) = end.filter(|&end| end <= length - self.data) else {
                return malformed(format!("tensor {name:?} ends after the file"));
            };
            ends.push((part.offset, end, name));
        }
        ends.sort_unstable();
        match ends.windows(2).find(|pair| pair[1].0 < pair[0].1) {
            Some(pair) => malformed(format!("tensors {:?} and {:?} overlap", pair[0].2, pair[1].2)),
            None => Ok(()),
        }
    }

    fn part(&mut self) -> io::Result<()> {
        let name = self.text()?;
        let rank = self.u32()? as usize;
        if rank > MAX_AXES.min(MAX_RANK) {
            return malformed(format!("tensor {name:?} has {rank} axes"));
        }
        let mut shape = Vec::new();
        for _ in 0..rank {
            shape.insert(0, usize::try_from(self.u64()?).unwrap_or(usize::MAX));
        }
        let (number, offset) = (self.u32()?, self.u64()?);
        let weights = TYPES.iter().find(|row| row.1 == number).map(|row| row.0).ok_or(number);
        let elements = shape.iter().try_fold(1usize, |n, &size| n.checked_mul(size));
        if elements.is_none_or(|n| n > isize::MAX as usize / 4) {
            return malformed(format!("tensor {name:?} of sizes {shape:?} is too large"));
        }
        if weights.is_ok_and(|weights| weights.of(&shape) != weights) {
            return malformed(format!("tensor {name:?} of sizes {shape:?} has no whole blocks"));
        }
        match self.parts.insert(name.clone(), Part { shape, weights, offset }) {
            None => Ok(()),
            Some(_) => malformed(format!("duplicate tensor {name:?}")),
        }
    }

    fn value(&mut self, key: &str, kind: u32) -> io::Result<Value> {
        if kind == kind::TEXT {
            return Ok(Value::Text(self.text()?));
        }
        if kind != kind::LIST {
            return self.number(kind);
        }
        let (kind, length) = (self.u32()?, self.u64()?);
        // Only these lists are needed; others take more memory than in the file.
        let of_tokens = key.strip_prefix("tokenizer.ggml.");
        if kind == kind::TEXT {
            let mut texts = Vec::new();
            for _ in 0..length {
                let text = self.text()?;
                if matches!(of_tokens, Some("tokens" | "merges")) {
                    texts.push(text);
                }
            }
            return Ok(Value::Texts(texts));
        }
        let Some(width) = width(kind) else { return malformed(format!("a list of type {kind}")) };
        let bytes = length.saturating_mul(width);
        if width < 4 || of_tokens != Some("token_type") && !key.starts_with("xielu.") {
            self.take(bytes)?;
            self.file.seek_relative(bytes as i64)?;
            return Ok(Value::Skipped);
        }
        let (mut integers, mut floats) = (Vec::new(), Vec::new());
        for _ in 0..length {
            match self.number(kind)? {
                Value::Float(x) => floats.push(x),
                Value::Integer(n) => integers.push(n),
                _ => {}
            }
        }
        let is_float = matches!(kind, kind::F32 | kind::F64);
        Ok(if is_float { Value::Floats(floats) } else { Value::Integers(integers) })
    }

    fn number(&mut self, kind: u32) -> io::Result<Value> {
        let Some(width) = width(kind) else { return malformed(format!("an entry of type {kind}")) };
        self.take(width)?;
        let mut bytes = [0; 8];
        self.file.read_exact(&mut bytes[..width as usize])?;
        let n = u64::from_le_bytes(bytes);
        let unused = 64 - 8 * width;
        Ok(match kind {
            kind::F32 => Value::Float(f32::from_bits(n as u32).into()),
            kind::F64 => Value::Float(f64::from_bits(n)),
            kind::BOOL => Value::Bool(n != 0),
            1 | 3 | kind::I32 | 11 => Value::Integer((n << unused) as i64 >> unused),
            // No size is above.
            _ => Value::Integer(n.try_into().unwrap_or(i64::MAX)),
        })
    }

    fn bytes<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        self.take(N as u64)?;
        let mut bytes = [0; N];
        self.file.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    /// Counts bytes that are read next.
    fn take(&mut self, bytes: u64) -> io::Result<()> {
        match self.left.checked_sub(bytes) {
            Some(left) => self.left = left,
            None => return malformed("it ends too early"),
        }
        Ok(())
    }

    fn u32(&mut self) -> io::Result<u32> {
        Ok(u32::from_le_bytes(self.bytes()?))
    }

    fn u64(&mut self) -> io::Result<u64> {
        Ok(u64::from_le_bytes(self.bytes()?))
    }

    fn text(&mut self) -> io::Result<String> {
        let length = self.u64()?;
        self.take(length)?;
        let mut bytes = Vec::new();
        let length = usize::try_from(length).or_else(|_| malformed("a text is too long"))?;
        bytes.try_reserve_exact(length)?;
        bytes.resize(length, 0);
        self.file.read_exact(&mut bytes)?;
        String::from_utf8(bytes).or_else(|e| malformed(format!("an entry is not UTF-8: {e}")))
    }

    /// The sizes of a tensor, if there is one of this name.
    pub(super) fn shape(&self, name: &str) -> Option<&[usize]> {
        self.parts.get(name).map(|part| &part.shape[..])
    }

    /// All tensors, by name.
    pub(super) fn tensors(&mut self) -> io::Result<BTreeMap<String, AnyTensor>> {
        let mut out = BTreeMap::new();
        for (name, Part { shape, weights, offset }) in std::mem::take(&mut self.parts) {
            let weights = weights.or_else(|number| {
                malformed(format!(
                    "tensor {name:?} has type {number}, this build reads f32, f16, bf16 and q8_0"
                ))
            })?;
            let tensor = Tensor::try_full(&shape[..], 0.0f32);
            let mut tensor = tensor.or_else(|e| malformed(format!("tensor {name:?}: {e}")))?;
            self.file.seek(SeekFrom::Start(self.data + offset))?;
            let mut bytes = Vec::new();
            for piece in tensor.make_mut().chunks_mut(PIECE) {
                bytes.resize(weights.bytes(piece.len()), 0);
                self.file.read_exact(&mut bytes)?;
                weights.decode(&bytes, piece);
            }
            out.insert(name, AnyTensor::F32(tensor));
        }
        Ok(out)
    }
}
