//! The element types of files.

use retrograd_tensor::DType;

/// An element type of a file. Tensors have five of them; elements of the others are converted to a
/// wider type when they are read, without a change of value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stored {
    F16,
    Bf16,
    F32,
    F64,
    I8,
    U8,
    I16,
    U16,
    I32,
    U32,
    I64,
    U64,
    Bool,
}

/// Each type, its name in safetensors, and the number of bytes of an element.
const TYPES: [(Stored, &str, usize); 13] = [
    (Stored::F16, "F16", 2),
    (Stored::Bf16, "BF16", 2),
    (Stored::F32, "F32", 4),
    (Stored::F64, "F64", 8),
    (Stored::I8, "I8", 1),
    (Stored::U8, "U8", 1),
    (Stored::I16, "I16", 2),
    (Stored::U16, "U16", 2),
    (Stored::I32, "I32", 4),
    (Stored::U32, "U32", 4),
    (Stored::I64, "I64", 8),
    (Stored::U64, "U64", 8),
    (Stored::Bool, "BOOL", 1),
];

impl Stored {
    /// The type as which elements of a tensor are written: the same, or `self` for `f32`.
    pub fn of(self, dtype: DType) -> Stored {
        match dtype {
            DType::F32 => self,
            DType::F64 => Stored::F64,
            DType::I64 => Stored::I64,
            DType::U32 => Stored::U32,
            DType::Bool => Stored::Bool,
        }
    }

    /// The type with this name in safetensors.
    pub fn from_safetensors(name: &str) -> Option<Stored> {
        TYPES.iter().find(|row| row.1 == name).map(|row| row.0)
    }

    /// The name in safetensors.
    pub fn safetensors(self) -> &'static str {
        self.row().1
    }

    /// Number of bytes of an element.
    pub fn width(self) -> usize {
        self.row().2
    }

    fn row(self) -> (Stored, &'static str, usize) {
        *TYPES.iter().find(|row| row.0 == self).expect("every type has a row")
    }
}

/// The value of a 16-bit float of IEEE 754: 1 bit of sign, 5 of exponent, 10 of fraction.
pub fn f16(bits: u16) -> f32 {
    let sign = u32::from(bits >> 15) << 31;
    let (exponent, fraction) = (u32::from(bits >> 10 & 0x1f), u32::from(bits & 0x3ff));
    let magnitude = match exponent {
        // Zero and subnormal numbers are multiples of 2^-24, which f32 holds exactly.
        0 => (fraction as f32 / (1 << 24) as f32).to_bits(),
        0x1f => 0x7f80_0000 | fraction << 13,
        // The exponents are biased by 15 and 127.
        _ => (exponent + 112) << 23 | fraction << 13,
    };
    f32::from_bits(sign | magnitude)
}

/// The value of a bfloat16: the upper half of an f32.
pub fn bf16(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

/// The nearest 16-bit float, of two the one with an even fraction.
pub fn to_f16(x: f32) -> u16 {
    let sign = (x.to_bits() >> 16) as u16 & 0x8000;
    let magnitude = x.to_bits() & 0x7fff_ffff;
    sign | match magnitude {
        // NaN stays one.
        0x7f80_0001.. => 0x7e00,
        // From the middle between the largest number, 65504, and 2^16 on.
        0x477f_f000.. => 0x7c00,
        // Below 2^-14, multiples of 2^-24: the sum has no bits below them.
        ..0x3880_0000 => {
            let half = f32::from_bits(magnitude) + 0.5;
            (half.to_bits() - 0.5f32.to_bits()) as u16
        }
        // The exponents are biased by 127 and 15.
        _ => ((round_even(magnitude, 13) >> 13) - (112 << 10)) as u16,
    }
}

/// The nearest bfloat16, of two the one with an even fraction.
pub fn to_bf16(x: f32) -> u16 {
    if x.is_nan() {
        return (x.to_bits() >> 16) as u16 | 0x40;
    }
    (round_even(x.to_bits(), 16) >> 16) as u16
}

/// The bits of a number plus half of the unit that is kept if the lowest `dropped` bits are cut off, or of a tie to
/// the even one.
fn round_even(bits: u32, dropped: u32) -> u32 {
    bits + (1 << (dropped - 1)) - 1 + (bits >> dropped & 1)
}
