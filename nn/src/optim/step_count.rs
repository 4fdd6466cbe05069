//! Numbers of steps in state dicts.

use retrograd_tensor::{Real, Tensor};

/// The first part of the name of a step count.
pub(super) const NAME: &str = "step";

/// What a valid step count is, for errors.
pub(super) const EXPECTED: &str = "a whole number of steps, at least 0";

/// The name of the step count of a parameter.
pub(super) fn key(param: &str) -> String {
    format!("{NAME}.{param}")
}

/// Bits of a count in one element: `f32` represents all integers below 2²⁴.
const COUNT_BITS: u32 = 24;

/// A count as a tensor: of rank 0, as in PyTorch, or, if it has more than 24 bits, of rank 1, the
/// lowest 24 bits first.
pub(super) fn to_tensor<T: Real>(count: u64) -> Tensor<T> {
    let digit = |i: u32| T::from_f64((count >> (i * COUNT_BITS) & ((1 << COUNT_BITS) - 1)) as f64);
    match count >> COUNT_BITS {
        0 => Tensor::scalar(digit(0)),
        _ => Tensor::from_vec((0..u64::BITS.div_ceil(COUNT_BITS)).map(digit).collect(), [3]),
    }
}

/// The inverse of [`to_tensor`]; `None` for an invalid count. A single element may be any integer.
pub(super) fn from_tensor<T: Real>(tensor: &Tensor<T>) -> Option<u64> {
    let digits: Vec<f64> = tensor.to_vec().into_iter().map(|x| x.to_f64()).collect();
    let below = |bits: u32| (bits as f64).exp2();
    let most = if digits.len() == 1 { below(u64::BITS) } else { below(COUNT_BITS) };
    if digits.is_empty() || digits.iter().any(|&x| !(0.0 <= x && x < most && x.fract() == 0.0)) {
        return None;
    }
    let add = |sum: u64, &x: &f64| sum.checked_mul(1 << COUNT_BITS)?.checked_add(x as u64);
    digits.iter().rev().try_fold(0, add)
}
