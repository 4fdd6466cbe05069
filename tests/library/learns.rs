//! A tiny model learns, with weights that do not depend on the number of threads.

use retrograd::nn::Sampler;
use retrograd::nn::schedule::Schedule;
use retrograd::prelude::*;

const VOCAB: usize = 8;
const CONTEXT: usize = 16;

/// Sequences that count upwards modulo the vocabulary, by a step of 1, 2 or 3 that follows from the
/// first two tokens; and their targets, the next tokens.
fn batch(rows: usize, rng: &mut Rng) -> (Tensor<i64>, Tensor<i64>) {
    let mut x = Vec::new();
    let mut y = Vec::new();
    for _ in 0..rows {
        let (start, by) = (rng.below(VOCAB), 1 + rng.below(3));
        let token = |i: usize| ((start + by * i) % VOCAB) as i64;
        x.extend((0..CONTEXT).map(token));
        y.extend((1..=CONTEXT).map(token));
        // The second token cannot be predicted.
        let first = y.len() - CONTEXT;
        y[first] = -100;
    }
    (Tensor::from_vec(x, [rows, CONTEXT]), Tensor::from_vec(y, [rows, CONTEXT]))
}

fn model(width: usize, dropout: f64) -> Gpt {
    let (vocab, context, layers, heads, bias) = (VOCAB, CONTEXT, 2, 2, false);
    let config =
        GptConfig { vocab, context, layers, heads, width, dropout, bias, ..Default::default() };
    Gpt::new(config, &mut Rng::new(1)).unwrap()
}

/// The losses of all steps.
fn train(model: &Gpt, steps: u64, rows: usize) -> Vec<f32> {
    let mut rng = Rng::new(2);
    let config = AdamConfig { betas: (0.9, 0.99), weight_decay: 0.01, ..Default::default() };
    let mut adamw = AdamW::new(model, config).unwrap();
    let schedule = Schedule::WarmupCosine { lr: 1e-2, min_lr: 0.0, warmup: 10, steps };
    let mut losses = Vec::new();
    for step in 0..steps {
        let (x, y) = batch(rows, &mut rng);
        let loss = model.loss(&x, &y, &mut Pass::train_step(3, step));
        let mut grads = loss.backward();
        grads.clip_norm(1.0);
        adamw.set_lr(schedule.lr(step));
        adamw.step(&grads).unwrap();
        losses.push(loss.item());
    }
    losses
}

#[test]
fn the_model_learns_to_count() {
    let model = model(32, 0.0);
    let losses = train(&model, 400, 12);
    let (first, last) = (losses[0], losses[losses.len() - 1]);
    println!("loss {first:.3} to {last:.4}");
    assert!((first - (VOCAB as f32).ln()).abs() < 0.2, "the loss of the first step: {first}");
    assert!(last < 0.02, "loss {last}");
    // It continues to count, by the step in the prompt.
    for (prompt, want) in [
        ([0, 1], [2, 3, 4, 5, 6, 7, 0, 1]),
        ([5, 7], [1, 3, 5, 7, 1, 3, 5, 7]),
        ([4, 7], [2, 5, 0, 3, 6, 1, 4, 7]),
    ] {
        let mut rng = Rng::new(0);
        let made: Vec<i64> = model.generate(&prompt, Sampler::greedy(), &mut rng).take(8).collect();
        assert_eq!(made, want, "after {prompt:?}");
    }
}

#[test]
fn weights_do_not_depend_on_threads() {
    // Wide enough that products, softmax, dropout and the optimiser are divided among threads.
    let run = |threads| {
        with_threads(threads, || {
            let model = model(128, 0.1);
            let losses = train(&model, 6, 32);
            let weights: Vec<Vec<u32>> = model
                .state_dict()
                .values()
                .map(|t| t.to_vec().into_iter().map(f32::to_bits).collect())
                .collect();
            (losses, weights)
        })
    };
    let one = run(1);
    assert!(one == run(2), "2 threads");
    assert!(one == run(4), "4 threads");
}
