//! Training steps of small language models.

use super::{Run, Work, data, timed};
use retrograd::nn::{MlpKind, NormKind};
use retrograd::prelude::*;

/// The configuration of the model of that name, and its default batch size.
pub fn config(name: &str, dropout: f64) -> Option<(GptConfig, usize)> {
    let (layers, heads, width, context, batch) = match name {
        "nanogpt-cpu" => (4, 4, 128, 64, 12),
        "baby" => (6, 6, 384, 256, 64),
        "microgpt-16" => (1, 4, 16, 16, 16),
        "microgpt-64" => (1, 4, 64, 16, 16),
        _ => return None,
    };
    let (vocab, bias, tied) = (65, false, true);
    let config = GptConfig {
        vocab,
        context,
        layers,
        heads,
        width,
        dropout,
        bias,
        tied,
        ..Default::default()
    };
    if !name.starts_with("microgpt") {
        return Some((config, batch));
    }
    // The model of Karpathy's microgpt, and of EEmicroGPT: names of at most 16 characters.
    let (norm, mlp) = (NormKind::RmsNorm, MlpKind::ReluSquared);
    Some((GptConfig { vocab: 27, tied: false, norm, mlp, ..config }, batch))
}

/// Floating-point operations of a step: `24 N C²` of the linear layers of each block, `2 N C V` of the
/// head, and those of causal attention over the visible pairs; times three, for the forward pass and
/// the gradients of both operands.
pub fn flops(config: &GptConfig, batch: usize) -> f64 {
    let GptConfig { vocab, context, layers, width, .. } = *config;
    let tokens = batch * context;
    let linear = 24 * tokens * width * width;
    let attention = 4 * batch * width * context * (context + 1) / 2;
    3.0 * (layers * (linear + attention) + 2 * tokens * width * vocab) as f64
}

/// A model with the same initial parameters as in every other program.
pub fn model(config: GptConfig) -> Gpt {
    let layers = config.layers;
    let model = Gpt::new(config, &mut Rng::new(1)).expect("a valid model");
    let parameters = model.named_parameters();
    let matrices = parameters.iter().filter(|(_, p)| p.shape().rank() == 2);
    for (i, (name, p)) in matrices.enumerate() {
        let residual = name.ends_with("c_proj.weight").then_some(layers);
        let values = data::matrix(i, p.shape().numel(), residual);
        p.set(Tensor::from_vec(values, p.shape()));
    }
    model
}

/// Tokens and targets of the next batch.
pub fn windows(text: &mut data::Text, batch: usize, context: usize) -> [Tensor<i64>; 2] {
    let (tokens, targets) = text.batch(batch, context);
    [tokens, targets]
        .map(|x| Tensor::from_vec(x.into_iter().map(|i| i as i64).collect(), [batch, context]))
}

/// `train nanogpt-cpu|baby|microgpt-16|microgpt-64 BATCH DROPOUT`: batch, forward, backward, clipping, AdamW, loss.
pub fn work(words: &[&str]) -> Option<Work> {
    let ["train", name, batch, dropout] = words else { return None };
    let (batch, dropout): (usize, f64) = (batch.parse().ok()?, dropout.parse().ok()?);
    let (config, _) = config(name, dropout)?;
    let flops = flops(&config, batch);
    Work::new(flops, 0.0, move || start(config, batch))
}

fn start(config: GptConfig, batch: usize) -> Run {
    let (vocab, context) = (config.vocab, config.context);
    let model = model(config);
    let adam = AdamConfig { betas: (0.9, 0.99), weight_decay: 0.1, ..AdamConfig::default() };
    let mut optimizer = AdamW::new(&model, adam).expect("valid hyperparameters");
    let (mut text, mut steps) = (data::Text::new(vocab), 0);
    let step = move || {
        let [tokens, targets] = windows(&mut text, batch, context);
        steps += 1;
        let pass = &mut Pass::train_step(1, steps);
        let (loss, mut grads) = model.loss_and_gradients(&tokens, &targets, pass);
        grads.clip_norm(1.0);
        optimizer.step(&grads).expect("finite gradients of every parameter");
        f64::from(loss)
    };
    timed(step, |loss| vec![*loss])
}
