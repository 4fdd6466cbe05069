//! Operands, equal in all programs, so that their results can be compared.

/// The bits of a number's hash: `lowbias32` of Chris Wellons' "Prospecting for Hash Functions".
fn bits(seed: u32, i: usize) -> u32 {
    let mut x = (i as u32).wrapping_mul(0x9E37_79B1).wrapping_add(seed.wrapping_mul(0x85EB_CA6B));
    x = (x ^ (x >> 16)).wrapping_mul(0x7FEB_352D);
    x = (x ^ (x >> 15)).wrapping_mul(0x846C_A68B);
    x ^ (x >> 16)
}

fn number(seed: u32, i: usize) -> f64 {
    (f64::from(bits(seed, i)) / f64::from(1u32 << 31) - 1.0) * 3f64.sqrt()
}

/// Numbers with mean 0 and standard deviation 1, uniform in `[-√3, √3)`.
pub fn numbers(seed: u32, n: usize) -> Vec<f32> {
    (0..n).map(|i| number(seed, i) as f32).collect()
}

/// Integers below `end`.
pub fn integers(seed: u32, n: usize, end: usize) -> Vec<usize> {
    (0..n).map(|i| bits(seed, i) as usize % end).collect()
}

/// A digest of a result: the root mean square, and `Σ xᵢrᵢ / √n` with pseudorandom `rᵢ`, which has the
/// same magnitude but depends on the order of the elements.
pub fn digest(x: &[f32]) -> [f64; 2] {
    const SEED: u32 = 9;
    let n = x.len().max(1) as f64;
    let square: f64 = x.iter().map(|&x| f64::from(x) * f64::from(x)).sum();
    let product: f64 = x.iter().enumerate().map(|(i, &x)| f64::from(x) * number(SEED, i)).sum();
    [(square / n).sqrt(), product / n.sqrt()]
}

/// A text that can be learnt: each token is a function of the one before, plus noise. Its windows form
/// batches.
pub struct Text {
    tokens: Vec<usize>,
    batches: u32,
}

impl Text {
    /// A million tokens below `vocab`.
    pub fn new(vocab: usize) -> Text {
        let noise = integers(3, 1_000_000, 4);
        let follow = |token: &mut usize, noise: usize| {
            *token = (7 * *token + noise) % vocab;
            Some(*token)
        };
        Text { tokens: noise.into_iter().scan(0, follow).collect(), batches: 0 }
    }

    /// The next `batch` windows of `context` tokens, and the same one token later, row by row.
    pub fn batch(&mut self, batch: usize, context: usize) -> (Vec<usize>, Vec<usize>) {
        self.batches += 1;
        let starts = integers(1000 + self.batches, batch, self.tokens.len() - context - 1);
        let windows = |shift: usize| {
            starts.iter().flat_map(|&s| &self.tokens[s + shift..][..context]).copied().collect()
        };
        (windows(0), windows(1))
    }
}

/// The initial `i`-th matrix of a model, with a standard deviation of 0.02, divided by `√(2 layers)` if
/// its output is added to the residual.
pub fn matrix(i: usize, n: usize, residual_of: Option<usize>) -> Vec<f32> {
    let std = 0.02 / residual_of.map_or(1.0, |layers| (2.0 * layers as f64).sqrt());
    (0..n).map(|at| (number(100 + i as u32, at) * std) as f32).collect()
}
