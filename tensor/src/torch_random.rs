//! PyTorch's random numbers on the CPU, so that published results can be reproduced.
//!
//! The numbers are the same as after `torch.manual_seed(seed)` followed by the same calls in the same
//! order. For anything else use [`random`](crate::random): this generator is sequential, so it
//! runs on one thread.
//!
//! Compared to PyTorch 2.11 on a CPU with FMA instructions:
//!
//! * [`rand`](TorchRng::rand), [`uniform`](TorchRng::uniform), [`randint`](TorchRng::randint)
//!   and [`randperm`](TorchRng::randperm) have equal bits.
//! * [`randn`](TorchRng::randn) and [`normal`](TorchRng::normal) draw the same uniform numbers
//!   and differ by the rounding of `ln`, `sin` and `cos`. Of 2.7 · 10⁸ numbers in
//!   `f32`, five of six had equal bits; nine, all near 0, differed by more than 3 ULP, and none by
//!   more than 7 ULP or more than `4.8e-7`. Of 1.3 · 10⁸ numbers in `f64`, none differed by more
//!   than 3 ULP or more than `8.9e-16`. `std` multiplies the absolute differences. Differences in
//!   ULP are larger where adding the mean cancels leading digits.
//!
//! PyTorch's dropout is not reproduced: its masks depend on the build of PyTorch.
//!
//! Sources: Matsumoto, Nishimura: *Mersenne Twister*, 1998. The order of the draws comes from
//! `aten/src/ATen/native/cpu/DistributionTemplates.h` in PyTorch.
//!
//! ```
//! use retrograd::prelude::*;
//! use retrograd::tensor::torch_random::TorchRng;
//! let x: Tensor = TorchRng::manual_seed(123).rand([2, 2]);
//! assert_eq!(x.to_string(), "tensor([[0.2961, 0.5166],\n        [0.2517, 0.6886]])");
//! ```

use crate::element::{DType, Element, Float, Integer};
use crate::error::{ErrorKind, assert};
use crate::random::rand_traits;
use crate::shape::IntoShape;
use crate::tensor::Tensor;
use std::f64::consts::TAU;
use std::fmt;

/// Words of state of MT19937.
const WORDS: usize = 624;
/// Normal numbers in a block. A tensor with fewer elements is filled in pairs.
const BLOCK: usize = 16;

/// PyTorch's generator on the CPU: MT19937 and one normal number kept for the next call.
///
/// It also implements the generator traits of the crate `rand`.
#[derive(Clone, PartialEq)]
pub struct TorchRng {
    words: [u32; WORDS],
    /// The index of the next word; `WORDS` if the state must be advanced first.
    next: usize,
    /// The second normal number of a pair whose first has been used.
    spare: Option<f64>,
}

impl TorchRng {
    /// The state after `torch.manual_seed(seed)`. Only the lower 32 bits of the seed are used.
    pub fn manual_seed(seed: u64) -> TorchRng {
        let mut words = [seed as u32; WORDS];
        for i in 1..WORDS {
            let before = words[i - 1];
            words[i] = 1_812_433_253u32.wrapping_mul(before ^ before >> 30).wrapping_add(i as u32);
        }
        TorchRng { words, next: WORDS, spare: None }
    }

    /// Advances the state by all its words.
    fn twist(&mut self) {
        let words = &mut self.words;
        for i in 0..WORDS {
            let y = words[i] & 0x8000_0000 | words[(i + 1) % WORDS] & 0x7FFF_FFFF;
            let odd = if y & 1 == 1 { 0x9908_B0DF } else { 0 };
            words[i] = words[(i + 397) % WORDS] ^ y >> 1 ^ odd;
        }
        self.next = 0;
    }

    /// 32 random bits: one draw.
    fn draw(&mut self) -> u32 {
        if self.next == WORDS {
            self.twist();
        }
        let mut y = self.words[self.next];
        self.next += 1;
        y ^= y >> 11;
        y ^= y << 7 & 0x9D2C_5680;
        y ^= y << 15 & 0xEFC6_0000;
        y ^ y >> 18
    }

    /// 64 random bits: two draws, the upper half first.
    fn draw64(&mut self) -> u64 {
        u64::from(self.draw()) << 32 | u64::from(self.draw())
    }

    /// Uniform in `[0, 1)`, in steps of 2⁻⁵³.
    fn unit64(&mut self) -> f64 {
        (self.draw64() & ((1 << 53) - 1)) as f64 / (1u64 << 53) as f64
    }

    /// Uniform in `[0, 1)`: the lower 24 bits of a draw, or the lower 53 of two.
    fn unit<T: Float>(&mut self) -> T {
        T::from_f64(match T::DTYPE {
            DType::F32 => f64::from(self.draw() & ((1 << 24) - 1)) / f64::from(1 << 24),
            _ => self.unit64(),
        })
    }

    /// As `torch.rand`: uniform in `[0, 1)`.
    ///
    /// ```
    /// use retrograd::tensor::torch_random::TorchRng;
    /// let x = TorchRng::manual_seed(0).rand::<f32>([2]);
    /// assert!((x.at(&[0]) - 0.4963).abs() < 1e-4); // as torch.rand(2)
    /// ```
    #[track_caller]
    pub fn rand<T: Float>(&mut self, shape: impl IntoShape) -> Tensor<T> {
        self.each(shape, Self::unit)
    }

    /// As `uniform_(lo, hi)`: `u · (hi - lo) + lo` in the arithmetic of `T`, with a fused multiply-add.
    ///
    /// # Panics
    /// If `lo > hi`, or `lo`, `hi` or `hi - lo` is not finite in `T`.
    #[track_caller]
    pub fn uniform<T: Float>(&mut self, shape: impl IntoShape, lo: f64, hi: f64) -> Tensor<T> {
        let (lo, hi) = (T::from_f64(lo), T::from_f64(hi));
        let valid = lo <= hi && (hi - lo).to_f64().is_finite();
        assert(valid, "uniform", ErrorKind::Value, || {
            format!("[{lo}, {hi}) must be in order and of finite width")
        });
        self.each(shape, |rng| mul_add(rng.unit(), hi - lo, lo))
    }

    /// As `torch.randn`: normal with mean 0 and standard deviation 1.
    ///
    /// ```
    /// use retrograd::tensor::torch_random::TorchRng;
    /// let x = TorchRng::manual_seed(0).randn::<f32>([2]);
    /// assert!((x.at(&[0]) - 1.5410).abs() < 1e-4); // as torch.randn(2)
    /// ```
    #[track_caller]
    pub fn randn<T: Float>(&mut self, shape: impl IntoShape) -> Tensor<T> {
        self.normal(shape, 0.0, 1.0)
    }

    /// As `normal_(mean, std)`, by the transform of Box and Muller (1958).
    ///
    /// Below 16 elements, pairs of numbers are computed in `f64`. If the number of elements is odd,
    /// the second number of the last pair is kept, and is the first one of the next call with fewer
    /// than 16 elements. From 16 on, all elements are filled with uniform numbers, and
    /// blocks of 16 are transformed, with radii from the first half and angles from the second. If
    /// the last block is incomplete, the last 16 elements are drawn and transformed again.
    ///
    /// # Panics
    /// If `std` is negative, or either is NaN.
    #[track_caller]
    pub fn normal<T: Float>(&mut self, shape: impl IntoShape, mean: f64, std: f64) -> Tensor<T> {
        assert(std >= 0.0 && !mean.is_nan(), "normal", ErrorKind::Value, || {
            format!("std must be at least 0 and the mean not NaN, got mean {mean}, std {std}")
        });
        let shape = shape.into();
        let n = shape.numel();
        if n < BLOCK {
            return self.each(shape, |rng| T::from_f64(rng.paired_normal().mul_add(std, mean)));
        }
        let (mean, std) = (T::from_f64(mean), T::from_f64(std));
        let mut data: Vec<T> = (0..n).map(|_| self.unit()).collect();
        for block in data.chunks_exact_mut(BLOCK) {
            normal_block(block, mean, std);
        }
        if !n.is_multiple_of(BLOCK) {
            let last = &mut data[n - BLOCK..];
            last.fill_with(|| self.unit());
            normal_block(last, mean, std);
        }
        Tensor::from_vec(data, shape)
    }

    /// A standard normal number. Two are computed at a time, and the second is kept for the next call.
    fn paired_normal(&mut self) -> f64 {
        if let Some(spare) = self.spare.take() {
            return spare;
        }
        let (sin, cos) = libm::sincos(TAU * self.unit64());
        let radius = (-2.0 * libm::log1p(-self.unit64())).sqrt();
        self.spare = Some(radius * sin);
        radius * cos
    }

    /// As `torch.randint(lo, hi, shape)`: `lo + draw mod (hi - lo)`, with draws of 32 bits if the
    /// range is below 2²⁸, else of 64 bits.
    ///
    /// # Panics
    /// If `lo..hi` is empty.
    ///
    /// ```
    /// use retrograd::tensor::torch_random::TorchRng;
    /// let x = TorchRng::manual_seed(0).randint(0i64, 10, [3]);
    /// assert_eq!(x.to_vec(), [4, 9, 3]); // as torch.randint(0, 10, (3,))
    /// ```
    #[track_caller]
    pub fn randint<I: Integer>(&mut self, lo: I, hi: I, shape: impl IntoShape) -> Tensor<I> {
        let (lo, range) = (lo.to_i128(), hi.to_i128() - lo.to_i128());
        assert(range > 0, "randint", ErrorKind::Value, || format!("the range {lo}..{hi} is empty"));
        self.each(shape, |rng| {
            let draw = if range < 1 << 28 { rng.draw().into() } else { rng.draw64() };
            I::from_i128(lo + i128::from(draw) % range)
        })
    }

    /// As `torch.randperm(n)`: the numbers `0..n` in random order.
    ///
    /// ```
    /// use retrograd::tensor::torch_random::TorchRng;
    /// let x = TorchRng::manual_seed(0).randperm::<i64>(4);
    /// assert_eq!(x.to_vec(), [0, 1, 3, 2]);
    /// ```
    #[track_caller]
    pub fn randperm<I: Integer>(&mut self, n: usize) -> Tensor<I> {
        let mut order = Tensor::indices(n);
        let out = order.make_mut();
        for i in 0..n.saturating_sub(1) {
            let small = n < (u32::MAX / 20) as usize;
            let draw = if small { self.draw().into() } else { self.draw64() };
            out.swap(i, i + (draw % (n - i) as u64) as usize);
        }
        order
    }

    /// A tensor whose elements are drawn by `f`, in row-major order.
    #[track_caller]
    fn each<T: Element>(
        &mut self,
        shape: impl IntoShape,
        mut f: impl FnMut(&mut Self) -> T,
    ) -> Tensor<T> {
        let shape = shape.into();
        Tensor::from_vec((0..shape.numel()).map(|_| f(self)).collect(), shape)
    }
}

/// `a · b + c`, rounded once.
fn mul_add<T: Float>(a: T, b: T, c: T) -> T {
    let (a, b, c) = (a.to_f64(), b.to_f64(), c.to_f64());
    T::from_f64(match T::DTYPE {
        DType::F32 => (a as f32).mul_add(b as f32, c as f32).into(),
        _ => a.mul_add(b, c),
    })
}

/// Transforms 16 uniform numbers to 16 normal numbers; the first half gives radii, the second
/// angles. `ln`, `sqrt`, `sin` and `cos` are evaluated in `f64` and rounded to `T`. All other
/// arithmetic is in `T`, as in PyTorch.
fn normal_block<T: Float>(block: &mut [T], mean: T, std: T) {
    let (radii, angles) = block.split_at_mut(BLOCK / 2);
    for (a, b) in radii.iter_mut().zip(angles) {
        let ln = T::from_f64(libm::log((T::ONE - *a).to_f64()));
        let radius = T::from_f64((T::from_f64(-2.0) * ln).to_f64().sqrt());
        let (sin, cos) = libm::sincos((T::from_f64(TAU) * *b).to_f64());
        *a = mul_add(radius * T::from_f64(cos), std, mean);
        *b = mul_add(radius * T::from_f64(sin), std, mean);
    }
}

impl fmt::Debug for TorchRng {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TorchRng(word {} of {WORDS}, spare {:?})", self.next, self.spare)
    }
}

rand_traits!(TorchRng::manual_seed, u32 | rng | rng.draw(), u64 | rng | rng.draw64());
