//! The mode of a forward pass, and its randomness.

use retrograd_tensor::random::{Key, Rng};

/// The mode of a forward pass: training with a seed, or evaluation. Every `forward` takes one, so
/// that there is no hidden state, and the same seed gives the same results on any number of
/// threads.
///
/// ```
/// use retrograd::prelude::*;
/// assert_eq!(Pass::train(7).key(), Pass::train(7).key());
/// assert_eq!(Pass::eval().key(), None);
/// ```
#[derive(Clone, Debug)]
pub struct Pass {
    seed: Option<u64>,
    next: u64,
}

// Constructors are not inlined: if the compiler proves that two passes are equal, it may pass the
// same memory to two callees that each take a pass by value and change it (rust-lang/rust#158830).
impl Pass {
    /// A training pass, whose dropout and other random operations use this seed.
    #[inline(never)]
    pub fn train(seed: u64) -> Pass {
        Pass { seed: Some(seed), next: 0 }
    }

    /// The training pass of step `step` of a run. It is a function of the seed and the step.
    #[inline(never)]
    pub fn train_step(seed: u64, step: u64) -> Pass {
        let (seed, next) = Rng::at_step(seed, step).state();
        Pass { seed: Some(seed), next }
    }

    /// An evaluation pass, without randomness.
    #[inline(never)]
    pub fn eval() -> Pass {
        Pass { seed: None, next: 0 }
    }

    /// Passes for `n` parts of a batch, which are computed concurrently, each with its own randomness; a
    /// single part has the randomness of this pass. The result depends on `n`, but not on the number of threads.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let mut parts = Pass::train(1).split(2);
    /// assert_ne!(parts[0].key(), parts[1].key());
    /// ```
    pub fn split(&mut self, n: usize) -> Vec<Pass> {
        // Each part has 2^24 streams of its own. Those of a step have room for 256 parts; others have another seed.
        let part = |i: u64| Pass {
            seed: self.seed.map(|seed| seed ^ (i >> 8).wrapping_mul(0xd1b5_4a32_d192_ed03)),
            next: self.next.wrapping_add((i & 255) << 24),
        };
        let parts = (0..n as u64).map(part).collect();
        self.next = self.next.wrapping_add((n.min(256) as u64) << 24);
        parts
    }

    /// Whether this is a training pass.
    pub fn is_training(&self) -> bool {
        self.seed.is_some()
    }

    /// A key for the next random operation; `None` in evaluation.
    pub fn key(&mut self) -> Option<Key> {
        let key = Key::new(self.seed?, self.next);
        self.next += 1;
        Some(key)
    }
}
