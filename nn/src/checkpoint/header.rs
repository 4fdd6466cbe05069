//! The header of a safetensors file: writing, reading and checking, with errors that name the
//! tensor.
//!
//! A file begins with the length of the header in 8 bytes, then the header, JSON, then the bytes
//! of all tensors without gaps: <https://huggingface.co/docs/safetensors>.

use super::any_tensor::AnyTensor;
use super::stored::Stored;
use retrograd_tensor::{DType, MAX_RANK};
use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Write};
use std::marker::PhantomData;

/// Version of the metadata this build writes, and the newest that it reads.
pub(super) const FORMAT: u32 = 1;
/// The largest header that is read, as in the reference implementation.
pub(super) const LIMIT: u64 = 100_000_000;
/// The largest number of axes; NumPy and PyTorch support no more.
const MAX_AXES: usize = 64;

/// The tensors and metadata of a file.
#[derive(Debug, Default)]
pub(super) struct Header {
    /// The tensors, by name.
    pub parts: Vec<Part>,
    /// The entries of `__metadata__`, in the order of the file.
    pub metadata: Vec<(String, String)>,
}

/// A tensor of a file.
#[derive(Debug)]
pub(super) struct Part {
    pub name: String,
    /// The name of the element type in the format.
    pub dtype: String,
    pub shape: Vec<usize>,
    /// The offset of its first byte in the data.
    pub begin: u64,
    /// The offset after its last byte.
    pub end: u64,
}

impl Part {
    /// The element type, or the reason why the tensor is not supported.
    pub fn stored(&self) -> Result<Stored, String> {
        let stored = Stored::from_safetensors(&self.dtype);
        let stored = stored.ok_or_else(|| "which is not supported".to_string())?;
        match self.shape.len() {
            n if n > MAX_RANK => Err(format!("which has more than {MAX_RANK} axes")),
            _ => Ok(stored),
        }
    }
}

/// The reason why a header is rejected.
#[derive(Debug)]
pub(crate) enum Problem {
    Malformed(String),
    /// There is no memory for so many bytes.
    OutOfMemory(usize),
}

/// The tensors in the order of a file: widest elements first, so that all are aligned, then by
/// name. It is the order of the reference implementation.
pub(super) fn in_file_order<'a>(
    tensors: impl Iterator<Item = (&'a String, &'a AnyTensor)> + Clone,
) -> impl Iterator<Item = (&'a String, &'a AnyTensor)> {
    let order = [DType::I64, DType::F64, DType::F32, DType::U32, DType::Bool];
    order.into_iter().flat_map(move |dtype| tensors.clone().filter(move |t| t.1.dtype() == dtype))
}

/// Number of bytes of a tensor, whose elements of `f32` are written as `floats`.
pub(super) fn byte_len(tensor: &AnyTensor, floats: Stored) -> u64 {
    (floats.of(tensor.dtype()).width() * tensor.shape().numel()) as u64
}

/// A growing buffer whose allocations may fail.
#[derive(Default)]
pub(super) struct Growing(pub Vec<u8>);

impl Write for Growing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_reserve(bytes.len()).map_err(|_| {
            let text = format!("no memory for {} bytes of the header", self.0.len() + bytes.len());
            io::Error::new(io::ErrorKind::OutOfMemory, text)
        })?;
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The bytes of a file before the data. `tensors` are in the order of the file, those of `f32` are written as `floats`.
pub(super) fn write<'a>(
    tensors: impl Iterator<Item = (&'a String, &'a AnyTensor)>,
    metadata: &[(&str, &str)],
    floats: Stored,
) -> io::Result<Vec<u8>> {
    let mut out = Growing::default();
    out.write_all(&[0; 8])?;
    out.write_all(b"{")?;
    if !metadata.is_empty() {
        out.write_all(br#""__metadata__":{"#)?;
        for (i, (key, value)) in metadata.iter().enumerate() {
            out.write_all(if i > 0 { b"," } else { b"" })?;
            serde_json::to_writer(&mut out, key)?;
            out.write_all(b":")?;
            serde_json::to_writer(&mut out, value)?;
        }
        out.write_all(b"}")?;
    }
    let mut end = 0;
    for (i, (name, tensor)) in tensors.enumerate() {
        let begin = end;
        end += byte_len(tensor, floats);
        out.write_all(if i > 0 || !metadata.is_empty() { b"," } else { b"" })?;
        serde_json::to_writer(&mut out, name)?;
        write!(out, r#":{{"dtype":"{}","shape":"#, floats.of(tensor.dtype()).safetensors())?;
        serde_json::to_writer(&mut out, &tensor.shape()[..])?;
        write!(out, r#","data_offsets":[{begin},{end}]}}"#)?;
    }
    out.write_all(b"}")?;
    // Padded with spaces, so that the data are aligned.
    let missing = out.0.len().next_multiple_of(8) - out.0.len();
    out.write_all(&[b' '; 8][..missing])?;
    let Growing(mut out) = out;
    let length = out.len() as u64 - 8;
    if length > LIMIT {
        let text = format!("names and notes take {length} bytes, a header has at most {LIMIT}");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    out[..8].copy_from_slice(&length.to_le_bytes());
    Ok(out)
}

/// Parses and checks a header that is followed by `data` bytes of data.
///
/// Lists are read element by element, and unknown entries are skipped, so that any header takes
/// memory of a few times its length.
pub(super) fn parse(text: &[u8], data: u64) -> Result<Header, Problem> {
    // serde_json unescapes strings in memory whose allocation cannot fail gracefully.
    check_memory(4 * text.len())?;
    let text = std::str::from_utf8(text).map_err(|e| {
        Problem::Malformed(format!("byte {} of the header is not UTF-8", e.valid_up_to()))
    })?;
    let mut found = Found { header: Header::default(), has_metadata: false, data };
    let (mut json, mut problem) = (serde_json::Deserializer::from_str(text), None);
    let entry = ForEach(|name: String, value: &RawValue| {
        found.entry(name, value).map_err(|p| problem = Some(p)).is_ok()
    });
    let read = json.deserialize_map(entry).and_then(|()| json.end());
    if let Some(problem) = problem {
        return Err(problem);
    }
    read.map_err(|e| Problem::Malformed(format!("the header is no JSON object: {e}")))?;
    let Header { mut parts, metadata } = found.header;
    check_order(&mut parts, data)?;
    Ok(Header { parts, metadata })
}

/// Checks that the parts cover the data without gaps or overlaps, and sorts them by name.
fn check_order(parts: &mut [Part], data: u64) -> Result<(), Problem> {
    let malformed = |why| Err(Problem::Malformed(why));
    parts.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    if let Some(pair) = parts.windows(2).find(|pair| pair[0].name == pair[1].name) {
        return malformed(format!("duplicate tensor name `{}`", pair[0].name));
    }
    parts.sort_unstable_by(|a, b| (a.begin, a.end, &a.name).cmp(&(b.begin, b.end, &b.name)));
    let mut covered = 0;
    for (i, Part { name, begin, end, .. }) in parts.iter().enumerate() {
        if *begin < covered {
            return malformed(format!("tensors `{}` and `{name}` overlap", parts[i - 1].name));
        }
        if *begin > covered {
            return malformed(format!(
                "bytes {covered}..{begin} before tensor `{name}` belong to none"
            ));
        }
        covered = *end;
    }
    if covered < data {
        let rest = data - covered;
        return malformed(format!("{rest} bytes at the end belong to no tensor"));
    }
    parts.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    Ok(())
}

/// Checks that `bytes` bytes can be allocated, and frees them.
pub(crate) fn check_memory(bytes: usize) -> Result<(), Problem> {
    let mut memory = Vec::<u8>::new();
    let result = memory.try_reserve_exact(bytes);
    // Without it the compiler removes the allocation and its failure.
    std::hint::black_box(&mut memory);
    result.map_err(|_| Problem::OutOfMemory(bytes))
}

/// Pushes an item, if there is memory for the list and as much again for memory its items own.
fn push<T>(list: &mut Vec<T>, item: T) -> Result<(), Problem> {
    if list.len() == list.capacity() {
        let more = list.len().max(16);
        check_memory(4 * more * size_of::<T>())?;
        let bytes = (list.len() + more) * size_of::<T>();
        list.try_reserve_exact(more).map_err(|_| Problem::OutOfMemory(bytes))?;
    }
    list.push(item);
    Ok(())
}

/// The state of parsing a header.
struct Found {
    header: Header,
    has_metadata: bool,
    /// Number of bytes after the header.
    data: u64,
}

impl Found {
    /// Adds an entry.
    fn entry(&mut self, name: String, value: &RawValue) -> Result<(), Problem> {
        if name == "__metadata__" {
            if std::mem::replace(&mut self.has_metadata, true) {
                return Err(Problem::Malformed(format!("duplicate tensor name `{name}`")));
            }
            return self.metadata(value);
        }
        let Info { dtype, shape: Sizes(shape), data_offsets: (begin, end) } =
            info(value, self.data)
                .map_err(|why| Problem::Malformed(format!("tensor `{name}`: {why}")))?;
        push(&mut self.header.parts, Part { name, dtype, shape, begin, end })
    }

    fn metadata(&mut self, value: &RawValue) -> Result<(), Problem> {
        let no_object = || Problem::Malformed("`__metadata__` is no JSON object".into());
        let mut problem = None;
        let mut json = serde_json::Deserializer::from_str(value.get());
        let read = json.deserialize_map(ForEach(|name: String, value: &RawValue| {
            let item = match serde_json::from_str(value.get()) {
                Ok(text) => push(&mut self.header.metadata, (name, text)),
                Err(_) => {
                    let why = format!("`{name}` in `__metadata__` is no string");
                    Err(Problem::Malformed(why))
                }
            };
            item.map_err(|p| problem = Some(p)).is_ok()
        }));
        match problem {
            Some(problem) => Err(problem),
            None => read.map_err(|_| no_object()),
        }
    }
}

/// Calls a function with each entry of an object, including duplicates, until it returns false.
/// Values are unparsed text.
struct ForEach<F>(F);

impl<'de, F: FnMut(String, &RawValue) -> bool> Visitor<'de> for ForEach<F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
        while let Some((name, value)) = map.next_entry::<String, &RawValue>()? {
            if !(self.0)(name, value) {
                return Err(A::Error::custom("stopped by the problem of this entry"));
            }
        }
        Ok(())
    }
}

/// An object as a map. A name that it has twice is an error, where [`BTreeMap`] has the last value.
pub(crate) struct UniqueNames<V>(pub BTreeMap<String, V>);

impl<'de, V: Deserialize<'de>> Deserialize<'de> for UniqueNames<V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries<V>(PhantomData<V>);
        impl<'de, V: Deserialize<'de>> Visitor<'de> for Entries<V> {
            type Value = UniqueNames<V>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut all = BTreeMap::new();
                while let Some((name, value)) = map.next_entry::<String, V>()? {
                    if all.contains_key(&name) {
                        return Err(A::Error::custom(format!("duplicate name {name:?}")));
                    }
                    all.insert(name, value);
                }
                Ok(UniqueNames(all))
            }
        }
        deserializer.deserialize_map(Entries(PhantomData))
    }
}

/// Parses and checks the header entry of one tensor.
fn info(value: &RawValue, data: u64) -> Result<Info, String> {
    let info: Info = serde_json::from_str(value.get()).map_err(|e| {
        let place = format!(" at line {} column {}", e.line(), e.column());
        let text = e.to_string();
        // The position is relative to this entry and would mislead.
        text.strip_suffix(&place).unwrap_or(&text).to_string()
    })?;
    let Info { dtype, shape: Sizes(shape), data_offsets: (begin, end) } = &info;
    let (begin, end) = (*begin, *end);
    if begin > end {
        return Err(format!("offsets [{begin}, {end}] are reversed"));
    }
    if end > data {
        return Err(format!("offsets [{begin}, {end}] exceed the {data} bytes of data"));
    }
    // For unknown types only the offsets are known.
    if let Some(bits) = bits(dtype) {
        // The sizes other than 0 must not exceed what a tensor of this type may have, independent of their order.
        let mut sizes = shape.iter().filter(|&&n| n > 0);
        let bits = sizes.try_fold(bits, |bits, &n| bits.checked_mul(n as u128));
        let bytes = bits.map(|bits| bits.div_ceil(8)).filter(|&bytes| bytes <= isize::MAX as u128);
        let bytes = bytes.ok_or_else(|| format!("shape {shape:?} is too large"))?;
        let bytes = if shape.contains(&0) { 0 } else { bytes };
        if bytes != u128::from(end - begin) {
            let given = end - begin;
            return Err(format!("{dtype} {shape:?} takes {bytes} bytes, the offsets give {given}"));
        }
    }
    Ok(info)
}

/// Bits of an element, for the known types of the format.
fn bits(dtype: &str) -> Option<u128> {
    Some(match dtype {
        "F4" => 4,
        "F6_E2M3" | "F6_E3M2" => 6,
        "BOOL" | "U8" | "I8" => 8,
        "F8_E5M2" | "F8_E4M3" | "F8_E8M0" | "F8_E4M3FNUZ" | "F8_E5M2FNUZ" => 8,
        "I16" | "U16" | "F16" | "BF16" => 16,
        "I32" | "U32" | "F32" => 32,
        "C64" | "F64" | "I64" | "U64" => 64,
        _ => return None,
    })
}

#[derive(serde::Deserialize)]
struct Info {
    dtype: String,
    shape: Sizes,
    data_offsets: (u64, u64),
}

/// The sizes of the axes of a tensor, at most [`MAX_AXES`].
struct Sizes(Vec<usize>);

impl<'de> Deserialize<'de> for Sizes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct List;
        impl<'de> Visitor<'de> for List {
            type Value = Sizes;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a sequence")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Sizes, A::Error> {
                let mut sizes = Vec::new();
                while let Some(size) = list.next_element()? {
                    if sizes.len() == MAX_AXES {
                        let text = format!("its shape has more than {MAX_AXES} axes");
                        return Err(A::Error::custom(text));
                    }
                    sizes.push(size);
                }
                Ok(Sizes(sizes))
            }
        }
        deserializer.deserialize_seq(List)
    }
}
