//! Counter-based random numbers: functions of a key and an index.
//!
//! The generator is Philox4x32-10 (Salmon, Moraes, Dror, Shaw: *Parallel random numbers: as easy as
//! 1, 2, 3*, SC 2011), which encrypts a counter. It has no state, so any number can be computed at
//! any time, on any thread, and again in the backward pass: a random tensor does not depend on
//! threads, layouts or instruction sets, and dropout saves a [`Key`] instead of a mask.

use crate::error::{ErrorKind, assert};
use crate::settings;
use crate::simd::{Level, inlined, vectorized};

/// Blocks that are computed in parallel, one per lane.
const LANES: usize = 16;
/// The words of as many blocks.
const GROUP: usize = 4 * LANES;

/// Philox4x32-10 of a counter under a key.
#[inline(always)]
fn philox([c0, c1, c2, c3]: [u32; 4], [mut k0, mut k1]: [u32; 2]) -> [u32; 4] {
    // Words are in the lower halves of 64 bits, as vector multiplication requires; the upper halves
    // are ignored.
    let mut c: [u64; 4] = [c0.into(), c1.into(), c2.into(), c3.into()];
    for _ in 0..10 {
        let a = u64::from(c[0] as u32) * 0xD251_1F53;
        let b = u64::from(c[2] as u32) * 0xCD9E_8D57;
        c = [b >> 32 ^ c[1] ^ u64::from(k0), b, a >> 32 ^ c[3] ^ u64::from(k1), a];
        k0 = k0.wrapping_add(0x9E37_79B9);
        k1 = k1.wrapping_add(0xBB67_AE85);
    }
    [c[0] as u32, c[1] as u32, c[2] as u32, c[3] as u32]
}

/// The key of an infinite sequence of random numbers, which are read by index.
///
/// There are 2⁶⁴ independent streams for each of 2⁶⁴ seeds. Use a key for one purpose only:
/// its words, bits and uniform numbers are computed from the same blocks.
///
/// ```
/// use retrograd::tensor::random::Key;
/// let key = Key::new(42, 0);
/// assert_eq!(key.bits(7), Key::new(42, 0).bits(7));
/// assert_ne!(key.bits(7), Key::new(42, 1).bits(7));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    seed: u64,
    stream: u64,
}

impl Key {
    /// The key of a stream of a seed.
    pub fn new(seed: u64, stream: u64) -> Key {
        Key { seed, stream }
    }

    /// The seed.
    pub fn seed(self) -> u64 {
        self.seed
    }

    /// The stream.
    pub fn stream(self) -> u64 {
        self.stream
    }

    /// Block `number`: the counter consists of the number and the stream.
    #[inline(always)]
    fn block(self, number: u64) -> [u32; 4] {
        let halves = |x: u64| [x as u32, (x >> 32) as u32];
        let ([a, b], [c, d]) = (halves(number), halves(self.stream));
        philox([a, b, c, d], halves(self.seed))
    }

    /// 128 bits as two numbers.
    #[inline(always)]
    fn pair(self, block: u64) -> [u64; 2] {
        let [a, b, c, d] = self.block(block);
        [u64::from(b) << 32 | u64::from(a), u64::from(d) << 32 | u64::from(c)]
    }

    /// 64 random bits.
    pub fn bits(self, index: u64) -> u64 {
        self.pair(index / 2)[(index % 2) as usize]
    }

    /// `out[i] = bits(first + i)` for an even `first`.
    pub(crate) fn fill_bits(self, level: Level, first: u64, out: &mut [u64]) {
        vectorized(
            level,
            inlined!(move || {
                let mut block = first / 2;
                for out in out.chunks_mut(2 * LANES) {
                    // The compiler vectorises this loop, with one iteration per lane.
                    let mut pairs = [[0; 2]; LANES];
                    for i in 0..LANES {
                        pairs[i] = self.pair(block + i as u64);
                    }
                    out.copy_from_slice(&pairs.as_flattened()[..out.len()]);
                    block += LANES as u64;
                }
            }),
        );
    }

    /// Uniform in `[0, 1)`: the upper 53 of [`Key::bits`].
    pub fn uniform(self, index: u64) -> f64 {
        unit(self.bits(index))
    }

    /// Uniform in `[0, 1)`: the upper 24 of [`Key::bits`], so [`Key::uniform`] rounded down.
    pub fn uniform_f32(self, index: u64) -> f32 {
        unit_f32(self.bits(index))
    }

    /// 32 random bits, four words per block: the fast sequence, of which [`Key::words`] computes
    /// many at once. Element `64 g + 16 w + i` is word `w` of block `16 g + i`, so that 16 blocks
    /// in 16 lanes are in order.
    ///
    /// ```
    /// use retrograd::tensor::random::Key;
    /// let mut words = [0; 4];
    /// let key = Key::new(1, 0);
    /// key.words(4, &mut words);
    /// assert_eq!(key.word(6), words[2]);
    /// ```
    pub fn word(self, index: u64) -> u32 {
        let mut word = [0];
        self.words(index, &mut word);
        word[0]
    }

    /// `out[i] = word(first + i)`.
    pub fn words(self, first: u64, out: &mut [u32]) {
        self.fill(
            settings::level(),
            first,
            out,
            inlined!(move |words, _, out| out.copy_from_slice(words)),
        );
    }

    /// Calls `f` with the words from `first` on, at most a group at a time, with their start in
    /// `out` and the part of `out` that corresponds to them.
    pub(crate) fn fill<T>(
        self,
        level: Level,
        first: u64,
        out: &mut [T],
        f: impl Fn(&[u32], usize, &mut [T]),
    ) {
        vectorized(
            level,
            inlined!(move || {
                let mut group = first / GROUP as u64;
                let mut skip = (first % GROUP as u64) as usize;
                let mut done = 0;
                while done < out.len() {
                    // The compiler vectorises this loop, with one iteration per lane.
                    let mut words = [0; GROUP];
                    for i in 0..LANES {
                        let block = self.block(group * LANES as u64 + i as u64);
                        for w in 0..4 {
                            words[w * LANES + i] = block[w];
                        }
                    }
                    if skip == 0 && out.len() - done >= GROUP {
                        // A constant length.
                        f(&words, done, &mut out[done..done + GROUP]);
                        done += GROUP;
                    } else {
                        let n = (GROUP - skip).min(out.len() - done);
                        f(&words[skip..skip + n], done, &mut out[done..done + n]);
                        done += n;
                        skip = 0;
                    }
                    group += 1;
                }
            }),
        );
    }

    /// Whether the event of probability `p` happens at `index`: `word / 2³² < p`.
    ///
    /// # Panics
    /// If `p` is outside `[0, 1]` or NaN.
    ///
    /// ```
    /// use retrograd::tensor::random::Key;
    /// let key = Key::new(1, 0);
    /// let n = (0..10_000).filter(|&i| key.happens(i, 0.25)).count();
    /// assert!((2300..2700).contains(&n));
    /// ```
    #[track_caller]
    pub fn happens(self, index: u64, p: f64) -> bool {
        assert((0.0..=1.0).contains(&p), "happens", ErrorKind::Value, || {
            format!("p must be in [0, 1], got {p}")
        });
        u64::from(self.word(index)) < threshold(p)
    }
}

/// `word < threshold` for the words that are below `p`, in units of 2⁻³².
pub(crate) fn threshold(p: f64) -> u64 {
    (p * (1u64 << 32) as f64).ceil() as u64
}

pub(crate) fn unit(bits: u64) -> f64 {
    (bits >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
}

pub(crate) fn unit_f32(bits: u64) -> f32 {
    (bits >> 40) as f32 * (1.0 / (1u32 << 24) as f32)
}

/// Uniform in `0..n`, without bias (Lemire: *Fast random integer generation in an interval*,
/// 2019).
pub(crate) fn below(n: u64, mut bits: impl FnMut() -> u64) -> u64 {
    loop {
        let product = u128::from(bits()) * u128::from(n);
        let low = product as u64;
        if low >= n || low >= n.wrapping_neg() % n {
            return (product >> 64) as u64;
        }
    }
}

/// A generator of keys: a seed, and the next stream.
///
/// Its whole state is two numbers ([`Rng::state`]). It is also a generator of the `rand`
/// crate, each number from a stream of its own.
///
/// ```
/// use retrograd::prelude::*;
/// let mut rng = Rng::new(42);
/// let a = Tensor::<f32>::randn([2, 3], &mut rng);
/// let b = Tensor::<f32>::randn([2, 3], &mut rng);
/// assert_ne!(a, b);
/// assert_eq!(a, Tensor::randn([2, 3], &mut Rng::new(42)));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rng {
    seed: u64,
    next: u64,
}

impl Rng {
    /// A generator that starts with stream 0 of a seed.
    pub fn new(seed: u64) -> Rng {
        Rng { seed, next: 0 }
    }

    /// The key of the next stream.
    pub fn key(&mut self) -> Key {
        let key = Key::new(self.seed, self.next);
        self.next = self.next.wrapping_add(1);
        key
    }

    /// The seed and the next stream, for [`Rng::from_state`].
    pub fn state(&self) -> (u64, u64) {
        (self.seed, self.next)
    }

    /// A generator with the state of another one.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let mut rng = Rng::new(1);
    /// rng.key();
    /// let mut resumed = Rng::from_state(rng.state());
    /// assert_eq!(resumed.key(), rng.key());
    /// ```
    pub fn from_state((seed, next): (u64, u64)) -> Rng {
        Rng { seed, next }
    }

    /// The generator of a step of a run: each step has 2³² streams of its own.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// assert_ne!(Rng::at_step(1, 2).key(), Rng::at_step(1, 3).key());
    /// ```
    pub fn at_step(seed: u64, step: u64) -> Rng {
        // The number of a stream has no room for the upper half of the step.
        let seed = seed ^ (step >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Rng { seed, next: step << 32 }
    }

    /// Uniform in `0..n`, without bias.
    ///
    /// # Panics
    /// If `n` is 0.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// assert!(Rng::new(1).below(10) < 10);
    /// ```
    #[track_caller]
    pub fn below(&mut self, n: usize) -> usize {
        assert(n > 0, "below", ErrorKind::Value, || "the range 0..0 is empty".into());
        let (key, mut indices) = (self.key(), 0..);
        below(n as u64, || key.bits(indices.next().expect("2⁶⁴ draws"))) as usize
    }
}

/// The bits of a key in order, of which many are needed.
pub(crate) fn draws(key: Key) -> impl FnMut() -> u64 {
    let (level, mut next, mut bits) = (settings::level(), 0, [0; 4 * LANES]);
    move || {
        let at = next as usize % bits.len();
        if at == 0 {
            key.fill_bits(level, next, &mut bits);
        }
        next += 1;
        bits[at]
    }
}

/// The traits of the crate `rand` for a generator, by its constructor and its next 32 and 64 bits.
macro_rules! rand_traits {
    ($Rng:ident::$new:ident, u32 |$rng:ident| $bits32:expr, u64 |$rng64:ident| $bits64:expr) => {
        impl rand::TryRng for $Rng {
            type Error = std::convert::Infallible;

            fn try_next_u32(&mut self) -> Result<u32, Self::Error> {
                let $rng = self;
                Ok($bits32)
            }

            fn try_next_u64(&mut self) -> Result<u64, Self::Error> {
                let $rng64 = self;
                Ok($bits64)
            }

            fn try_fill_bytes(&mut self, out: &mut [u8]) -> Result<(), Self::Error> {
                rand::rand_core::utils::fill_bytes_via_next_word(out, || self.try_next_u64())
            }
        }

        impl rand::SeedableRng for $Rng {
            type Seed = [u8; 8];

            fn from_seed(seed: [u8; 8]) -> $Rng {
                $Rng::$new(u64::from_le_bytes(seed))
            }

            fn seed_from_u64(seed: u64) -> $Rng {
                $Rng::$new(seed)
            }
        }
    };
}
pub(crate) use rand_traits;

rand_traits!(Rng::new, u32 | rng | (rng.key().bits(0) >> 32) as u32, u64 | rng | rng.key().bits(0));
