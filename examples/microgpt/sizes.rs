//! The sizes of the model, and how it is trained.

use retrograd::prelude::AdamConfig;

/// Numbers for each token.
pub(crate) const WIDTH: usize = 16;
pub(crate) const HEADS: usize = 4;
/// The width of a head.
pub(crate) const HEAD: usize = WIDTH / HEADS;
/// The largest number of tokens that the model reads.
pub(crate) const CONTEXT: usize = 16;
/// The hidden numbers of the feed-forward layer.
pub(crate) const HIDDEN: usize = 4 * WIDTH;
/// Added to the mean square in RMS norms.
pub(crate) const EPS: f64 = 1e-5;

/// The hyperparameters of Adam; the learning rate falls linearly to 0.
pub(crate) const ADAM: AdamConfig =
    AdamConfig { lr: 0.01, betas: (0.85, 0.99), eps: 1e-8, weight_decay: 0.0, amsgrad: false };
