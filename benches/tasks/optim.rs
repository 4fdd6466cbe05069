//! Optimiser steps and gradient norms.

use super::train::{config, model, windows};
use super::{Run, Work, data, digest, timed};
use retrograd::prelude::*;

/// `adamw MODEL` and `grad_norm MODEL`, on all parameters of that model.
pub fn work(words: &[&str]) -> Option<Work> {
    let [op, model] = words else { return None };
    let (config, _) = config(model, 0.0)?;
    let (vocab, context, width) = (config.vocab, config.context, config.width);
    let block = 12 * width * width + 2 * width;
    let parameters = ((vocab + context + 1) * width + config.layers * block) as f64;
    let (bytes, adamw) = match *op {
        // Gradient, parameter and two averages are read, and all but the gradient written.
        "adamw" => (7.0 * 4.0 * parameters, true),
        "grad_norm" => (4.0 * parameters, false),
        _ => return None,
    };
    Work::new(0.0, bytes, move || start(config, adamw))
}

fn start(config: GptConfig, adamw: bool) -> Run {
    let (vocab, context) = (config.vocab, config.context);
    let model = model(config);
    let [tokens, targets] = windows(&mut data::Text::new(vocab), 1, context);
    let (_, grads) = model.loss_and_gradients(&tokens, &targets, &mut Pass::train(1));
    if !adamw {
        return timed(move || grads.norm(), |norm| vec![*norm]);
    }
    let config = AdamConfig { weight_decay: 0.1, ..AdamConfig::default() };
    let mut optimizer = AdamW::new(&model, config).expect("valid hyperparameters");
    timed(
        move || optimizer.step(&grads).expect("finite gradients of every parameter"),
        move |_| digest(&model.named_parameters()[0].1.value()),
    )
}
