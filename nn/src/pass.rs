//! The mode of a forward pass, and its randomness.

use retrograd_tensor::random::Key;

/// Training with a seed, or evaluation. Every `forward` takes one, so that nothing depends
/// on hidden state, and the same seed gives the same pass on any number of threads.
///
/// ```
/// use retrograd_nn::Pass;
/// assert_eq!(Pass::train(7).key(), Pass::train(7).key());
/// assert_eq!(Pass::eval().key(), None);
/// ```
#[derive(Clone, Debug)]
pub struct Pass {
    seed: Option<u64>,
    next: u64,
}

// Passes are not made inline: where the compiler sees that two are equal, it may hand the same
// memory to two callees that each take a pass by value and change it (rust-lang/rust#158830).
impl Pass {
    /// A training pass: dropout and the like draw from this seed.
    #[inline(never)]
    pub fn train(seed: u64) -> Pass {
        Pass { seed: Some(seed), next: 0 }
    }

    /// Training pass number `step` of a run: a different one for each step, and nothing but
    /// the two numbers is needed to repeat it.
    #[inline(never)]
    pub fn train_step(seed: u64, step: u64) -> Pass {
        // Streams of one step are numbered from a place of its own.
        Pass { seed: Some(seed), next: step << 32 }
    }

    /// An evaluation pass: nothing is random.
    #[inline(never)]
    pub fn eval() -> Pass {
        Pass { seed: None, next: 0 }
    }

    /// Passes for `n` parts of what this one was for, each with randomness of its own; with one
    /// part it is that of this pass.
    pub(crate) fn split(&mut self, n: usize) -> Vec<Pass> {
        // Streams of one part are numbered from a place of its own; see `train_step`.
        let part = |i| Pass { seed: self.seed, next: self.next.wrapping_add((i as u64) << 24) };
        let parts = (0..n).map(part).collect();
        self.next = self.next.wrapping_add((n as u64) << 24);
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
