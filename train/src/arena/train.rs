//! One run: a variant of attention trained on a task.

use super::tasks::{Task, Text};
use retrograd::nn::AttentionKind;
use retrograd::nn::schedule::Schedule;
use retrograd::nn::text::Batch;
use retrograd::prelude::*;
use serde::{Deserialize, Serialize};
use std::time::Instant;

/// Held-out sequences of the evaluation.
const HELD_OUT: usize = 256;

/// The model and the budget of every run.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    pub steps: u64,
    pub batch: usize,
    pub width: usize,
    pub seed: u64,
}

/// The result of a run.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Score {
    /// The fraction of targets predicted correctly, on held-out sequences.
    pub accuracy: f64,
    /// The mean loss in nats, on held-out sequences.
    pub loss: f64,
    pub parameters: usize,
    /// The median time of a step.
    pub ms: f64,
    /// Bytes of the cache for each token; `None` if the attention cannot be cached.
    pub cache: Option<usize>,
}

/// Trains a model with this attention, and evaluates it. Runs with equal arguments have equal results,
/// except for times.
///
/// # Errors
/// If the run diverges.
pub fn run(kind: AttentionKind, task: Task, text: &Text, budget: Budget) -> Result<Score, String> {
    let Budget { steps, batch, width, seed } = budget;
    let (vocab, context) = (task.vocab(text), task.context());
    let (layers, heads, bias) = (2, 4, false);
    let config = GptConfig { vocab, context, layers, heads, width, bias, ..GptConfig::default() };
    let config = config.with_attention(kind);
    let model = Gpt::new(config, &mut Rng::new(seed)).expect("a valid configuration");
    let lr = 2e-3;
    let adam = AdamConfig { lr, betas: (0.9, 0.99), weight_decay: 0.01, ..AdamConfig::default() };
    let mut adam = AdamW::new(&model, adam).expect("a valid configuration");
    let schedule = Schedule::WarmupCosine { lr, min_lr: lr / 20.0, warmup: steps / 10, steps };
    let mut times = Vec::new();
    for step in 0..steps {
        let start = Instant::now();
        let mut rng = Rng::at_step(seed, step);
        let Batch { tokens, targets } = task.batch(batch, text, false, &mut rng);
        let mut grads = model.loss(&tokens, &targets, &mut Pass::train_step(seed, step)).backward();
        grads.clip_norm(1.0);
        adam.set_lr(schedule.lr(step));
        adam.step(&grads).map_err(|e| format!("step {step}: {e}"))?;
        times.push(start.elapsed().as_secs_f64() * 1e3);
    }
    times.sort_unstable_by(f64::total_cmp);
    let (accuracy, loss) = evaluate(&model, task, text);
    let ms = times[times.len() / 2];
    if !loss.is_finite() {
        return Err(format!("the held-out loss is {loss}"));
    }
    let (parameters, cache) = (model.num_parameters(), cache(&model, task, text));
    Ok(Score { accuracy, loss, parameters, ms, cache })
}

/// Accuracy and loss on sequences that are equal for all variants, and not trained on.
fn evaluate(model: &Gpt, task: Task, text: &Text) -> (f64, f64) {
    let Batch { tokens, targets } = task.batch(HELD_OUT, text, true, &mut Rng::new(u64::MAX));
    no_grad(|| {
        let logits = model.forward(&tokens, &mut Pass::eval());
        let loss = f64::from(logits.cross_entropy(&targets, CrossEntropy::default()).item());
        let guesses = logits.value().argmax(-1).to_vec();
        let counted: Vec<(i64, i64)> =
            targets.to_vec().into_iter().zip(guesses).filter(|(target, _)| *target >= 0).collect();
        let right = counted.iter().filter(|(target, guess)| target == guess).count();
        (right as f64 / counted.len() as f64, loss)
    })
}

/// Bytes of the cache for each token.
fn cache(model: &Gpt, task: Task, text: &Text) -> Option<usize> {
    let tokens = task.batch(1, text, true, &mut Rng::new(1)).tokens;
    let mut cache = model.cache();
    model.forward_cached(&tokens, &mut cache);
    model.is_cached().then(|| cache.bytes() / tokens.numel())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_context_is_that_of_the_task() {
        let budget = Budget { steps: 1, batch: 1, width: 8, seed: 1 };
        let run = |task| run(AttentionKind::Causal, task, &Text::new("ab"), budget).unwrap();
        let more = run(Task::Longer).parameters - run(Task::Copy).parameters;
        assert_eq!(more, 8 * (Task::Longer.context() - Task::Copy.context()));
    }
}
