//! Generation of tokens by small language models.

use super::{Work, data, digest, timed, train};
use retrograd::prelude::*;

/// `generate nanogpt-cpu|baby BATCH PROMPT COUNT`: COUNT tokens after each of BATCH prompts of PROMPT
/// tokens, by greedy decoding. Beyond the context, half of it is computed again at a time.
pub fn work(words: &[&str]) -> Option<Work> {
    let ["generate", name, sizes @ ..] = words else { return None };
    let [batch, prompt, count] = super::numbers(sizes)?;
    let (config, _) = train::config(name, 0.0)?;
    Work::new(0.0, 0.0, move || {
        let vocab = config.vocab;
        let model = train::model(config);
        let tokens = data::integers(2, batch * prompt, vocab);
        let tokens: Vec<i64> = tokens.into_iter().map(|i| i as i64).collect();
        let generate = move || {
            let prompts: Vec<&[i64]> = tokens.chunks(prompt).collect();
            model.generate_batch(&prompts, count, Sampler::greedy(), &mut Rng::new(1))
        };
        let digest = |tokens: Vec<i64>| {
            let n = tokens.len();
            digest(&Tensor::from_vec(tokens.into_iter().map(|token| token as f32).collect(), [n]))
        };
        timed(generate, move |rows| digest(rows.concat()))
    })
}
