//! What is measured of a model and of the machine, for the page of a run.

use crate::ranks::Ranks;
use crate::run::Run;
use retrograd::machine::Peak;
use retrograd::nn::Names;
use retrograd::prelude::*;
use retrograd::study::load::{Others, Reading};
use retrograd::study::record::{Operation, Recorder, Seen};
use retrograd::study::{HeadLook, Summarize};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// The limit of the machine that MFU is a part of.
#[derive(Clone, Copy)]
pub struct Limit {
    pub peak: Peak,
    /// What other processes used meanwhile.
    pub others: Others,
}

/// The FMA peak of all ranks together, measured on all at the same time: the best of three measurements of some
/// hundredths of a second, since other processes only lower it.
pub fn limit(ranks: &Ranks) -> Limit {
    // So that all begin together.
    ranks.share(&());
    let before = Reading::now();
    let better = |a: Peak, b: Peak| if b.gflops.all > a.gflops.all { b } else { a };
    let mut peak = (0..2).map(|_| Peak::measure()).fold(Peak::measure(), better);
    // Other ranks may be processes of the same machine.
    let others = if ranks.count() == 1 { before.since() } else { Others::default() };
    peak.gflops.all = ranks.share(&peak.gflops.all).into_iter().sum();
    Limit { peak, others }
}

/// The floating-point operations of a step: the matrix products of the forward pass, and twice as many of the
/// backward pass.
pub fn flops(run: &Run) -> f64 {
    let tokens = Tensor::<i64>::zeros([1, run.recipe.context]);
    let summary = run.model.summary(|model| model.forward(&tokens, &mut Pass::eval()));
    3.0 * summary.total().flops as f64 * run.recipe.batch as f64
}

/// The attention weights `[1, heads, L, L]` of the layers that have a weight for each pair of tokens.
pub fn maps(run: &Run, sentence: &Tensor<i64>) -> Vec<Tensor> {
    let n = sentence.size(1);
    let mut maps = run.model.attention_maps(sentence);
    maps.retain(|map| map.size(1) > 0 && map.shape()[2..] == [n, n]);
    maps
}

/// For each layer, the root of the mean square of its output for the sentence, where it is finite.
pub fn scales(model: &Gpt, sentence: &Tensor<i64>) -> Vec<Option<f64>> {
    let seen = Arc::new(Mutex::new(BTreeMap::new()));
    let squares = seen.clone();
    let recorder = Recorder::new().watching(move |event| {
        if let Seen::Computed { operation, results, .. } = event
            && let Some(value) = results.first().and_then(|x| x.downcast_ref::<Tensor>())
        {
            let mean = f64::from(value.square().mean(..).item());
            squares.lock().unwrap_or_else(PoisonError::into_inner).insert(*operation, mean);
        }
    });
    let forward = || no_grad(|| model.forward(sentence, &mut Pass::eval()));
    let (_, recording) = recorder.record(forward);
    let seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
    let blocks = match model.config().names {
        Names::Gpt2 => "transformer.h",
        Names::Llama => "model.layers",
    };
    let of_layer = |layer: usize| {
        let block = format!("{blocks}.{layer}");
        let is_inside = |op: &Operation| {
            let path = op.module.as_ref().and_then(|module| module.path.strip_prefix(&block));
            path.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        let last = recording.operations.iter().rposition(is_inside)?;
        seen.get(&last).map(|mean| mean.sqrt()).filter(|x| x.is_finite())
    };
    (0..model.config().layers).map(of_layer).collect()
}

/// The attention weights within a sentence, of each head.
pub fn heads(run: &Run, sentence: &Tensor<i64>) -> Vec<HeadLook> {
    let n = sentence.size(1);
    let maps = maps(run, sentence);
    let heads = maps.iter().flat_map(|map| (0..map.size(1)).map(|h| map.select(0, 0).select(0, h)));
    heads.map(|weights| HeadLook::new(weights.contiguous().as_slice(), n)).collect()
}
