//! Products with the Jacobian and the Hessian of a language model's loss by all parameters.

use super::train::{config, flops, model, windows};
use super::{Run, Work, data, timed};
use retrograd::autograd::{jvp, jvp_by_double_reverse, per_sample};
use retrograd::nn::functional_call;
use retrograd::prelude::*;

/// `derivative nanogpt-cpu BATCH forward|gradient|hvp|jvp|double-reverse|per-sample-norms`: of the loss of one batch.
pub fn work(words: &[&str]) -> Option<Work> {
    let ["derivative", name, batch, what] = words else { return None };
    let (config, _) = config(name, 0.0)?;
    let batch: usize = batch.parse().ok()?;
    // The least work: each product of two matrices by the product rule.
    let times = match *what {
        "forward" => 1.0 / 3.0,
        "gradient" | "jvp" | "per-sample-norms" => 1.0,
        "hvp" | "double-reverse" => 3.0,
        _ => return None,
    };
    let (flops, what) = (times * flops(&config, batch), what.to_string());
    Work::new(flops, 0.0, move || start(config, batch, &what))
}

fn start(config: GptConfig, batch: usize, what: &str) -> Run {
    let mut text = data::Text::new(config.vocab);
    let [tokens, targets] = windows(&mut text, batch, config.context);
    let model = model(config);
    let parameters: Vec<Var> = model.named_parameters().iter().map(|(_, p)| p.to_var()).collect();
    let direction = |(i, w): (usize, &Var)| {
        let numbers = data::numbers(i as u32 + 1, w.value().numel());
        Tensor::from_vec(numbers, w.shape())
    };
    let v: Vec<Tensor> = parameters.iter().enumerate().map(direction).collect();
    let (x, y) = (tokens.clone(), targets.clone());
    let loss = move |model: &Gpt| model.loss(&x, &y, &mut Pass::eval());
    let digests = |grads: &Gradients| vec![grads.norm()];
    match what {
        "forward" => timed(move || no_grad(|| loss(&model)), |loss| vec![f64::from(loss.item())]),
        "gradient" => timed(move || loss(&model).backward(), digests),
        "hvp" => {
            let v = parameters.iter().zip(v).filter_map(|(w, v)| Some((w.id()?, v))).collect();
            timed(move || loss(&model).hvp(&v), digests)
        }
        "jvp" | "double-reverse" => {
            let v: Vec<Var> = v.into_iter().map(Var::constant).collect();
            let f = move |w: &Vec<Var>| functional_call(&model, w, &loss);
            let forward = what == "jvp";
            let of = move || match forward {
                true => jvp(&f, &parameters, &v),
                false => jvp_by_double_reverse(&f, &parameters, &v),
            };
            timed(move || no_grad(&of), |(_, t)| vec![f64::from(t.item())])
        }
        _ => {
            let each = move |i| {
                let (tokens, targets) = (tokens.narrow(0, i, 1), targets.narrow(0, i, 1));
                model.loss(&tokens, &targets, &mut Pass::eval())
            };
            let norm = |norms: &Vec<f64>| vec![norms.iter().map(|n| n * n).sum::<f64>().sqrt()];
            timed(move || per_sample(batch, &each, |g| g.norm()), norm)
        }
    }
}
