//! Training steps of small language models.

use super::{Run, Work};
use retrograd::prelude::*;

/// What a model of that name is like, and how many sequences a batch has by default.
pub fn config(name: &str, dropout: f64) -> Option<(GptConfig, usize)> {
    let (layers, heads, width, context, batch) = match name {
        "nanogpt-cpu" => (4, 4, 128, 64, 12),
        "baby" => (6, 6, 384, 256, 64),
        _ => return None,
    };
    let (vocab, bias, tied) = (65, false, true);
    Some((GptConfig { vocab, context, layers, heads, width, dropout, bias, tied }, batch))
}

/// Operations of a step: those of the linear layers, `24 N C²` each block and `2 N C V` of the
/// head, and of attention, where a query of a causal model meets the keys up to its own; three
/// times, forward and backward to both operands.
pub fn flops(config: &GptConfig, batch: usize) -> f64 {
    let GptConfig { vocab, context, layers, width, .. } = *config;
    let tokens = batch * context;
    let linear = 24 * tokens * width * width;
    let attention = 4 * batch * width * context * (context + 1) / 2;
    3.0 * (layers * (linear + attention) + 2 * tokens * width * vocab) as f64
}

/// A text that can be learnt: each token follows from the one before, but for some noise.
pub fn text(len: usize, vocab: i64) -> Vec<i64> {
    let noise = Tensor::<i64>::randint(0, 4, [len], &mut Rng::new(3)).to_vec();
    let mut token = 0;
    noise
        .into_iter()
        .map(|noise| {
            token = (7 * token + noise) % vocab;
            token
        })
        .collect()
}

/// `train nanogpt-cpu|baby BATCH DROPOUT`: batch, forward, backward, clipping, AdamW, loss.
pub fn work(words: &[&str]) -> Option<Work> {
    let ["train", name, batch, dropout] = words else { return None };
    let (batch, dropout): (usize, f64) = (batch.parse().ok()?, dropout.parse().ok()?);
    let (config, _) = config(name, dropout)?;
    let flops = flops(&config, batch);
    Work::new(flops, 0.0, move || start(config, batch))
}

fn start(config: GptConfig, batch: usize) -> Run {
    let mut rng = Rng::new(1);
    let (vocab, context) = (config.vocab as i64, config.context);
    let model = Gpt::<f32>::new(config, &mut rng).expect("a valid model");
    let adam = AdamConfig { betas: (0.9, 0.99), weight_decay: 0.1, ..AdamConfig::default() };
    let mut optimizer = AdamW::new(&model, adam).expect("valid hyperparameters");
    let text = text(1_000_000, vocab);
    let mut steps = 0;
    Box::new(move || {
        let last = (text.len() - context - 1) as i64;
        let starts = Tensor::<i64>::randint(0, last, [batch], &mut rng).to_vec();
        let windows = |shift: usize| {
            let rows = starts.iter().flat_map(|&s| &text[s as usize + shift..][..context]);
            Tensor::from_vec(rows.copied().collect(), [batch, context])
        };
        let (tokens, targets) = (windows(0), windows(1));
        steps += 1;
        let loss = model.loss(&tokens, &targets, &mut Pass::train_step(1, steps));
        let mut grads = loss.backward();
        grads.clip_norm(1.0);
        optimizer.step(&grads).expect("finite gradients of every parameter");
        Some(loss.item().into())
    })
}
