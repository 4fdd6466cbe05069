//! The loop that trains both models.

use retrograd::prelude::*;
use std::error::Error;

/// The batch size.
pub const BATCH: usize = 64;

/// Trains a model by AdamW. `loss` computes the loss of the next batch.
pub fn train(
    model: &impl Module,
    steps: u64,
    (lr, min_lr, weight_decay): (f64, f64, f64),
    mut loss: impl FnMut(&mut Pass) -> Result<Var, String>,
) -> Result<(), Box<dyn Error>> {
    let config = AdamConfig { lr, betas: (0.9, 0.99), weight_decay, ..AdamConfig::default() };
    let mut adam = AdamW::new(model, config)?;
    let schedule = Schedule::WarmupCosine { lr, min_lr, warmup: (steps / 10).min(100), steps };
    for step in 0..steps {
        let loss = loss(&mut Pass::train_step(1, step))?;
        let mut grads = loss.backward();
        grads.clip_norm(1.0);
        adam.set_lr(schedule.lr(step));
        adam.step(&grads)?;
        if (step + 1) % 250 == 0 {
            println!("step {} of {steps}: loss {:.3}", step + 1, loss.item());
        }
    }
    Ok(())
}
