//! Checks the header of a safetensors file, and says what is wrong with which tensor.
//!
//! The crate that reads the file checks most of this again, but in fewer words; and of
//! tensors with the same name it takes the last.

use safetensors::tensor::TensorInfo;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fmt;

/// The largest header that is read, as in the safetensors crate.
const LIMIT: u64 = 100_000_000;

/// What is wrong with the header of a whole file, if anything.
pub(super) fn check(bytes: &[u8]) -> Result<(), String> {
    let Some((length, rest)) = bytes.split_first_chunk::<8>() else {
        return Err(format!("it has {} bytes, a safetensors file has at least 8", bytes.len()));
    };
    let length = u64::from_le_bytes(*length);
    if length > LIMIT {
        return Err(format!("a header of {length} bytes exceeds the limit of {LIMIT}"));
    }
    let Some((text, data)) = rest.split_at_checked(length as usize) else {
        return Err(format!("a header of {length} bytes exceeds the {} of the file", bytes.len()));
    };
    let text = std::str::from_utf8(text)
        .map_err(|e| format!("byte {} of the header is not UTF-8", e.valid_up_to()))?;
    let Entries(entries) =
        serde_json::from_str(text).map_err(|e| format!("the header is no JSON object: {e}"))?;

    let mut names = BTreeSet::new();
    let mut parts = Vec::new();
    for (name, value) in &entries {
        if !names.insert(name) {
            return Err(format!("duplicate tensor name `{name}`"));
        }
        if name == "__metadata__" {
            check_metadata(value)?;
        } else {
            let (begin, end) =
                span(value, data.len()).map_err(|e| format!("tensor `{name}`: {e}"))?;
            parts.push((begin, end, name));
        }
    }
    parts.sort();
    let mut covered = 0;
    for (i, &(begin, end, name)) in parts.iter().enumerate() {
        if begin < covered {
            return Err(format!("tensors `{}` and `{name}` overlap", parts[i - 1].2));
        }
        if begin > covered {
            return Err(format!("bytes {covered}..{begin} before tensor `{name}` belong to none"));
        }
        covered = end;
    }
    match data.len() - covered {
        0 => Ok(()),
        rest => Err(format!("{rest} bytes at the end belong to no tensor")),
    }
}

fn check_metadata(value: &Value) -> Result<(), String> {
    let entries = value.as_object().ok_or("`__metadata__` is no JSON object")?;
    match entries.iter().find(|(_, v)| !v.is_string()) {
        Some((name, _)) => Err(format!("`{name}` in `__metadata__` is no string")),
        None => Ok(()),
    }
}

/// Where a tensor's bytes begin and end.
fn span(value: &Value, len: usize) -> Result<(usize, usize), String> {
    let info = TensorInfo::deserialize(value).map_err(|e| e.to_string())?;
    let (begin, end) = info.data_offsets;
    if begin > end {
        return Err(format!("offsets [{begin}, {end}] are reversed"));
    }
    if end > len {
        return Err(format!("offsets [{begin}, {end}] exceed the {len} bytes of data"));
    }
    // Sizes other than 0 must not overflow by themselves, so that their order does not count.
    let bits = info
        .shape
        .iter()
        .filter(|&&n| n > 0)
        .try_fold(info.dtype.bitsize(), |bits, &n| bits.checked_mul(n));
    let bits = bits.ok_or_else(|| format!("shape {:?} is too large", info.shape))?;
    let bytes = if info.shape.contains(&0) { 0 } else { bits.div_ceil(8) };
    if bytes != end - begin {
        let (dtype, shape, given) = (info.dtype, info.shape, end - begin);
        return Err(format!("{dtype} {shape:?} takes {bytes} bytes, the offsets give {given}"));
    }
    Ok((begin, end))
}

/// The entries of a JSON object in order, of one name too.
struct Entries(Vec<(String, Value)>);

impl<'de> Deserialize<'de> for Entries {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct All;
        impl<'de> Visitor<'de> for All {
            type Value = Entries;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Entries, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(Entries(entries))
            }
        }
        deserializer.deserialize_map(All)
    }
}
