//! The element types of exported weights.

use crate::checkpoint::stored::{Stored, bf16, f16, to_bf16, to_f16};
use crate::config_error::ConfigError;
use crate::gpt::{by_name, named};
use retrograd_tensor::Tensor;
use std::fmt;
use std::str::FromStr;

/// The element type of exported weights. In GGUF and ONNX, it is that of matrices but for learned positions: these and vectors stay in
/// `f32`.
///
/// ```
/// use retrograd::nn::pretrained::WeightType;
/// use retrograd::prelude::*;
/// let x = Tensor::from([0.1f32, -0.25, 1.0]);
/// assert_eq!(WeightType::F16.rounded(&x).to_vec(), [0.099975586, -0.25, 1.0]);
/// assert_eq!("bf16".parse(), Ok(WeightType::Bf16));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WeightType {
    /// 32-bit floats.
    #[default]
    F32,
    /// 16-bit floats of IEEE 754, rounded to nearest, ties to even.
    F16,
    /// Bfloat16, the upper half of an `f32`, rounded to nearest, ties to even.
    Bf16,
    /// GGUF's `Q8_0`: blocks of 32 integers `q` of 8 bits with a scale `d` in [`WeightType::F16`]: `x ≈ d · q`, with
    /// `d = max |x| / 127` and `q = round(x / d)`. The error is about `d / 2` at most, and more where `d` is subnormal,
    /// below 6e-5. Takes 8.5 bits a weight.
    Q8_0,
}

/// Elements of a block of [`WeightType::Q8_0`].
pub(super) const BLOCK: usize = 32;

named! { WeightType, "element type",
    WeightType::F32 => WeightType::F32, "f32";
    WeightType::F16 => WeightType::F16, "f16";
    WeightType::Bf16 => WeightType::Bf16, "bf16";
    WeightType::Q8_0 => WeightType::Q8_0, "q8_0";
}

impl WeightType {
    /// The elements after encoding and decoding. Those of [`WeightType::Q8_0`] are blocks of the last axis, or stay as
    /// they are if its length is no multiple of 32.
    pub fn rounded(self, x: &Tensor<f32>) -> Tensor<f32> {
        let stored = self.of(x.shape());
        let x = x.contiguous();
        let (mut bytes, mut out) = (Vec::new(), x.clone());
        for (from, to) in x.as_slice().chunks(PIECE).zip(out.make_mut().chunks_mut(PIECE)) {
            bytes.clear();
            stored.encode(from, &mut bytes);
            stored.decode(&bytes, to);
        }
        out
    }

    /// The type of a matrix of this shape: `f32` if its rows are no whole number of blocks.
    pub(super) fn of(self, shape: &[usize]) -> WeightType {
        let whole = shape.last().is_some_and(|n| n.is_multiple_of(BLOCK));
        if self == WeightType::Q8_0 && !whole { WeightType::F32 } else { self }
    }

    /// The element type of a safetensors file.
    pub(super) fn stored(self) -> Result<Stored, ConfigError> {
        match self {
            WeightType::F32 => Ok(Stored::F32),
            WeightType::F16 => Ok(Stored::F16),
            WeightType::Bf16 => Ok(Stored::Bf16),
            WeightType::Q8_0 => Err(ConfigError("q8_0 is a type of GGUF and ONNX only".into())),
        }
    }

    /// Number of bytes of so many elements.
    pub(super) fn bytes(self, elements: usize) -> usize {
        match self {
            WeightType::F32 => 4 * elements,
            WeightType::F16 | WeightType::Bf16 => 2 * elements,
            WeightType::Q8_0 => elements / BLOCK * (2 + BLOCK),
        }
    }

    /// Appends the bytes of some elements; of whole blocks.
    pub(super) fn encode(self, x: &[f32], out: &mut Vec<u8>) {
        match self {
            WeightType::F32 => x.iter().for_each(|x| out.extend(x.to_le_bytes())),
            WeightType::F16 => x.iter().for_each(|&x| out.extend(to_f16(x).to_le_bytes())),
            WeightType::Bf16 => x.iter().for_each(|&x| out.extend(to_bf16(x).to_le_bytes())),
            WeightType::Q8_0 => {
                for block in x.chunks(BLOCK) {
                    let (d, q) = quantized(block);
                    out.extend(d.to_le_bytes());
                    out.extend(q.map(|q| q as u8));
                }
            }
        }
    }

    /// The inverse of [`WeightType::encode`].
    pub(super) fn decode(self, bytes: &[u8], out: &mut [f32]) {
        let halves = || bytes.as_chunks::<2>().0.iter().map(|&b| u16::from_le_bytes(b));
        match self {
            WeightType::F32 => {
                let words = bytes.as_chunks::<4>().0;
                out.iter_mut().zip(words).for_each(|(x, &b)| *x = f32::from_le_bytes(b));
            }
            WeightType::F16 => out.iter_mut().zip(halves()).for_each(|(x, b)| *x = f16(b)),
            WeightType::Bf16 => out.iter_mut().zip(halves()).for_each(|(x, b)| *x = bf16(b)),
            WeightType::Q8_0 => {
                let blocks = bytes.as_chunks::<{ 2 + BLOCK }>().0;
                for (x, [low, high, q @ ..]) in out.chunks_mut(BLOCK).zip(blocks) {
                    let d = f16(u16::from_le_bytes([*low, *high]));
                    x.iter_mut().zip(q).for_each(|(x, &q)| *x = d * f32::from(q as i8));
                }
            }
        }
    }
}

/// The element type of a weight in a file of GGUF or ONNX, by its name there or here: that of matrices, but for learned
/// positions, which llama.cpp adds as they are stored.
pub(super) fn kind(name: &str, shape: &[usize], weights: WeightType) -> WeightType {
    let is_positions = name == "position_embd.weight" || name.ends_with(".wpe.weight");
    if shape.len() == 2 && !is_positions { weights.of(shape) } else { WeightType::F32 }
}

/// Elements that are encoded at once: whole blocks.
pub(super) const PIECE: usize = 128 * BLOCK;

/// The scale of a block, in f16, and its integers.
pub(super) fn quantized(block: &[f32]) -> (u16, [i8; BLOCK]) {
    // NaN makes a block of NaN.
    let most = block.iter().fold(0.0f32, |most, x| if x.is_nan() { *x } else { most.max(x.abs()) });
    let d = to_f16(most / 127.0);
    let mut q = [0; BLOCK];
    // By the scale as it is stored; ggml rounds by the exact one.
    let scale = f16(d);
    if scale > 0.0 {
        let integer = |x: f32| (x / scale).round().clamp(-127.0, 127.0) as i8;
        q.iter_mut().zip(block).for_each(|(q, &x)| *q = integer(x));
    }
    (d, q)
}
