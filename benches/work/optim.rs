//! What is done to parameters and gradients after a backward pass.

use super::train::{config, text};
use super::{Run, Work};
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
    let tokens = Tensor::from_vec(text(config.context, config.vocab as i64), [1, config.context]);
    let model = Gpt::<f32>::new(config, &mut Rng::new(1)).expect("a valid model");
    let grads = model.loss(&tokens, &tokens, &mut Pass::train(1)).backward();
    if !adamw {
        return Box::new(move || Some(grads.norm()));
    }
    let config = AdamConfig { weight_decay: 0.1, ..AdamConfig::default() };
    let mut optimizer = AdamW::new(&model, config).expect("valid hyperparameters");
    Box::new(move || {
        optimizer.step(&grads).expect("finite gradients of every parameter");
        None
    })
}
