//! The wire format of protocol buffers, as far as ONNX needs it.
//!
//! Source: <https://protobuf.dev/programming-guides/encoding>.

/// A message under construction: its fields in the order in which they are added.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Message(pub Vec<u8>);

/// The types of fields.
const VARINT: u64 = 0;
const FIXED64: u64 = 1;
const BYTES: u64 = 2;
const FIXED32: u64 = 5;

impl Message {
    pub(super) fn new() -> Message {
        Message::default()
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn key(&mut self, field: u64, kind: u64) {
        self.varint(field << 3 | kind);
    }

    pub(super) fn integer(mut self, field: u64, value: i64) -> Message {
        self.key(field, VARINT);
        self.varint(value as u64);
        self
    }

    pub(super) fn float(mut self, field: u64, value: f32) -> Message {
        self.key(field, FIXED32);
        self.0.extend(value.to_le_bytes());
        self
    }

    /// A text, or the bytes of a message.
    pub(super) fn bytes(mut self, field: u64, value: impl AsRef<[u8]>) -> Message {
        let value = value.as_ref();
        self = self.begin(field, value.len());
        self.0.extend(value);
        self
    }

    /// The beginning of a field of so many bytes, which follow.
    pub(super) fn begin(mut self, field: u64, length: usize) -> Message {
        self.key(field, BYTES);
        self.varint(length as u64);
        self
    }
}

impl AsRef<[u8]> for Message {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// The value of a field.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Field<'a> {
    Integer(i64),
    Bytes(&'a [u8]),
    /// A number of 4 or 8 bytes.
    Fixed,
}

impl<'a> Field<'a> {
    pub(super) fn text(self) -> Option<&'a str> {
        match self {
            Field::Bytes(bytes) => str::from_utf8(bytes).ok(),
            _ => None,
        }
    }
}

/// A field of a message: its number, its value, and its bytes as a whole.
type Numbered<'a> = (u64, Field<'a>, &'a [u8]);

/// The fields of a message; `None` if it is none.
pub(super) fn fields(mut bytes: &[u8]) -> impl Iterator<Item = Option<Numbered<'_>>> {
    std::iter::from_fn(move || {
        let field = (!bytes.is_empty()).then(|| field(&mut bytes))?;
        if field.is_none() {
            bytes = &[];
        }
        Some(field)
    })
}

fn field<'a>(bytes: &mut &'a [u8]) -> Option<Numbered<'a>> {
    let whole = *bytes;
    let key = varint(bytes)?;
    let length = match key & 7 {
        VARINT => 0,
        BYTES => usize::try_from(varint(bytes)?).ok()?,
        FIXED64 => 8,
        FIXED32 => 4,
        _ => return None,
    };
    let value = match key & 7 {
        VARINT => Field::Integer(varint(bytes)? as i64),
        kind => {
            let (value, rest) = bytes.split_at_checked(length)?;
            *bytes = rest;
            if kind == BYTES { Field::Bytes(value) } else { Field::Fixed }
        }
    };
    Some((key >> 3, value, &whole[..whole.len() - bytes.len()]))
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}
