//! Training: sentences, the loss, a step.

use crate::bar::Bar;
use crate::language::{LONGEST, Vocabulary, training_sentence};
use retrograd::nn::optim::StepError;
use retrograd::nn::schedule::Schedule;
use retrograd::prelude::*;

/// The batch size.
const BATCH: usize = 64;
/// The target that the loss ignores.
const IGNORED: i64 = -100;

/// Trains the model to predict the next word, on new sentences in every step.
pub fn learn(
    model: &Gpt,
    vocabulary: &Vocabulary,
    steps: u64,
    rng: &mut Rng,
) -> Result<(), StepError> {
    let config =
        AdamConfig { lr: 3e-3, betas: (0.9, 0.99), weight_decay: 0.1, ..AdamConfig::default() };
    let mut adam = AdamW::new(model, config).expect("a sensible configuration");
    let schedule =
        Schedule::WarmupCosine { lr: 3e-3, min_lr: 1e-4, warmup: (steps / 10).min(100), steps };
    let bar = Bar::new(steps);
    for step in 0..steps {
        let sentences: Vec<_> = (0..BATCH).map(|_| training_sentence(rng)).collect();
        let (tokens, targets) = batch(&sentences, vocabulary);
        let loss = model.loss(&tokens, &targets, &mut Pass::train_step(1, step));
        let mut grads = loss.backward();
        grads.clip_norm(1.0);
        adam.set_lr(schedule.lr(step));
        adam.step(&grads)?;
        bar.step(step + 1, loss.item());
    }
    bar.end();
    Ok(())
}

/// Sentences as padded rows, and the next word at each position. The loss ignores the padding, and
/// causal attention hides it from the words before.
pub fn batch(sentences: &[Vec<&str>], vocabulary: &Vocabulary) -> (Tensor<i64>, Tensor<i64>) {
    let length = sentences.iter().map(|s| s.len()).max().expect("a sentence").min(LONGEST);
    let ids: Vec<Vec<i64>> =
        sentences.iter().map(|s| s.iter().map(|word| vocabulary.encode(word)).collect()).collect();
    let at = |ahead: usize, or: i64| {
        Tensor::from_fn([ids.len(), length], |i| ids[i[0]].get(i[1] + ahead).copied().unwrap_or(or))
    };
    (at(0, vocabulary.encode(".")), at(1, IGNORED))
}
