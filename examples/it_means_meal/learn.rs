//! Training: sentences, the loss, a step.

use crate::bar::Bar;
use crate::language::{LONGEST, Vocabulary, to_learn_from};
use retrograd::nn::optim::StepError;
use retrograd::nn::schedule::Schedule;
use retrograd::prelude::*;

/// Sentences in a step.
const BATCH: usize = 64;
/// A target that does not count.
const NOTHING: i64 = -100;

/// Teaches the model to guess the next word of sentences, new ones in every step.
pub fn learn(
    model: &Gpt,
    vocabulary: &Vocabulary,
    steps: u64,
    rng: &mut Rng,
) -> Result<(), StepError> {
    let config = AdamConfig { lr: 3e-3, betas: (0.9, 0.99), eps: 1e-8, weight_decay: 0.1 };
    let mut adam = AdamW::new(model, config).expect("a sensible configuration");
    let schedule =
        Schedule::WarmupCosine { lr: 3e-3, min_lr: 1e-4, warmup: (steps / 10).min(100), steps };
    let bar = Bar::new(steps);
    for step in 0..steps {
        let sentences: Vec<_> = (0..BATCH).map(|_| to_learn_from(rng)).collect();
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

/// Sentences as rows of equal length, and for each word the one after it. Behind the end of a
/// sentence nothing counts, and nothing before can see what stands there.
pub fn batch(sentences: &[Vec<&str>], vocabulary: &Vocabulary) -> (Tensor<i64>, Tensor<i64>) {
    let length = sentences.iter().map(|s| s.len()).max().expect("a sentence").min(LONGEST);
    let ids: Vec<Vec<i64>> =
        sentences.iter().map(|s| s.iter().map(|word| vocabulary.encode(word)).collect()).collect();
    let at = |ahead: usize, or: i64| {
        Tensor::from_fn([ids.len(), length], |i| ids[i[0]].get(i[1] + ahead).copied().unwrap_or(or))
    };
    (at(0, vocabulary.encode(".")), at(1, NOTHING))
}
