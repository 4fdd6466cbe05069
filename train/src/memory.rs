//! `--memory`: how many blocks are recomputed in the backward pass, so that a step fits.

use crate::recipe::{LESS_MEMORY, Recipe};
use crate::run::Run;
use crate::stop::{OrFailed, Result, failed};
use retrograd::autograd::sharded;
use retrograd::nn::Shards;
use retrograd::nn::text::{Batch, Corpus};
use retrograd::prelude::*;
use retrograd::tensor::observe::{Event, Observer};
use retrograd::tensor::settings::with_observer;
use retrograd::tensor::storage::{pool_clear, pool_stats};
use std::any::type_name;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// The bytes that are allocated in a scope, in spans: one begins wherever the forward pass of a block begins or ends.
#[derive(Default)]
pub struct Meter(Mutex<State>);

#[derive(Default)]
struct State {
    live: i64,
    spans: Vec<Span>,
    /// For each open module, whether it is a block.
    modules: Vec<bool>,
}

#[derive(Clone, Copy)]
struct Span {
    begun: Instant,
    /// What is live before the first allocation.
    start: Option<i64>,
    peak: i64,
}

impl State {
    fn begin_span(&mut self) {
        self.spans.push(Span { begun: Instant::now(), start: None, peak: i64::MIN });
    }
}

impl Meter {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The most bytes that were live at once.
    pub fn peak(&self) -> i64 {
        self.state().spans.iter().map(|span| span.peak).max().unwrap_or(0)
    }
}

impl Observer for Meter {
    fn event(&self, event: &Event<'_>) {
        let mut state = self.state();
        if state.spans.is_empty() {
            state.begin_span();
        }
        match event {
            Event::Allocated { bytes, .. } => {
                let before = state.live;
                state.live += *bytes as i64;
                let live = state.live;
                let span = state.spans.last_mut().expect("there is one");
                span.start.get_or_insert(before);
                span.peak = span.peak.max(live);
            }
            Event::Freed { bytes, .. } => state.live -= *bytes as i64,
            Event::ModuleBegan(module) => {
                let is_block = module.type_name == type_name::<Block>();
                state.modules.push(is_block);
                if is_block {
                    state.begin_span();
                }
            }
            Event::ModuleEnded(_) if state.modules.pop() == Some(true) => state.begin_span(),
            _ => (),
        }
    }
}

/// What a step takes, by the number of blocks that are recomputed.
pub struct Forecast {
    /// Of a shard whose blocks are all recomputed: before the first block, then each block and what follows it, then
    /// from the last to the first each block again and its backward pass.
    spans: Vec<Span>,
    blocks: usize,
    /// What a block saves.
    saved: Vec<i64>,
    /// What is live besides shards.
    rest: i64,
    /// Shards of this process, and how many are computed at the same time.
    shards: i64,
    at_once: i64,
    /// The gradients of a shard.
    gradients: i64,
    /// Seconds of a step whose blocks are all recomputed, and the part of it that computes one block again.
    seconds: f64,
    part: f64,
}

impl Forecast {
    /// Computes the first shard, and then all, of a model whose blocks are all recomputed; `others` will be live too.
    pub fn new(shards: &Shards<'_, f32, i64>, blocks: usize, others: usize) -> Forecast {
        let meter = Arc::new(Meter::default());
        let rest = (pool_stats().live + others) as i64;
        let begun = Instant::now();
        let gradients = with_observer(meter.clone(), || shards.loss(0).backward());
        let whole = begun.elapsed().as_secs_f64();
        let State { spans, live: gradients_bytes, .. } = std::mem::take(&mut *meter.state());
        drop(gradients);
        let again = |i: usize| 1 + 2 * blocks + 2 * (blocks - 1 - i);
        let start = |i: usize| spans[i].start.unwrap_or(0);
        let seconds = |i: usize| (spans[i + 1].begun - spans[i].begun).as_secs_f64();
        let saved = (0..blocks).map(|i| start(again(i) + 1) - start(again(i))).collect();
        let part = (0..blocks).map(|i| seconds(again(i))).sum::<f64>() / blocks as f64 / whole;
        let begun = Instant::now();
        drop(sharded(shards.counts(), |i| shards.loss(i)));
        let seconds = begun.elapsed().as_secs_f64();
        let number = shards.counts().len();
        let at_once = number.min(retrograd::tensor::threads()) as i64;
        let (gradients, shards) = (gradients_bytes, number as i64);
        Forecast { spans, blocks, saved, rest, shards, at_once, gradients, seconds, part }
    }

    /// The peak of the bytes of tensors, weights and state included.
    pub fn peak(&self, recomputed: usize) -> i64 {
        self.rest + self.of_step(recomputed)
    }

    /// The peak of the bytes that a step allocates.
    pub fn of_step(&self, recomputed: usize) -> i64 {
        // A block that is not recomputed keeps what it saves until its backward pass.
        let kept = |i: usize| self.saved[..i].iter().skip(recomputed).sum::<i64>();
        let mut peak = self.spans[0].peak;
        for i in 0..self.blocks {
            let (first, again) = (1 + 2 * i, 1 + 2 * self.blocks + 2 * (self.blocks - 1 - i));
            peak = peak.max(self.spans[first].peak + kept(i));
            peak = peak.max(self.spans[first + 1].peak + kept(i + 1));
            peak = peak.max(self.spans[again + 1].peak + kept(i));
            if i < recomputed {
                peak = peak.max(self.spans[again].peak);
            }
        }
        let finished = (self.shards - self.at_once) * self.gradients;
        (self.at_once * peak + finished).max(self.shards * self.gradients)
    }

    /// The seconds of a step.
    pub fn seconds(&self, recomputed: usize) -> f64 {
        self.seconds * (1.0 - (self.blocks - recomputed) as f64 * self.part)
    }
}

/// Chooses the fewest blocks to recompute so that a step fits into so many bytes. Says what to expect.
pub fn fit(run: &mut Run, corpus: &Corpus, limit: u64, ranks: usize) -> Result<String> {
    let blocks = run.model.config().layers;
    run.model = run.model.clone().with_recompute(blocks);
    let Recipe { batch, context, seed, precision, .. } = run.recipe;
    let Batch { tokens, targets } = corpus.batch(seed, 0, batch, context);
    let number = run.recipe.number_of_shards();
    let before = pool_stats().live;
    let optimizer = run.recipe.optimizer(&run.model).or_failed("cannot train")?;
    let state = pool_stats().live - before;
    drop(optimizer);
    // The sequences of this process, or as many.
    let own = number.div_ceil(ranks);
    let [tokens, targets] = [tokens, targets].map(|x| x.narrow(0, 0, batch * own / number));
    let shards = run.model.shards(&tokens, &targets, Some(own), &mut Pass::train(seed));
    let forecast = with_matmul_precision(precision, || Forecast::new(&shards, blocks, state));
    drop(shards);
    pool_clear();
    let fits = |&n: &usize| forecast.peak(n) as u64 <= limit;
    let Some(recomputed) = (0..=blocks).find(fits) else {
        let least = (0..=blocks).map(|n| forecast.peak(n)).min().unwrap_or(0);
        return failed(format!(
            "a step takes at least {}, more than the --memory of {}; {LESS_MEMORY}",
            size(least as u64),
            size(limit)
        ));
    };
    run.model = run.model.clone().with_recompute(recomputed);
    Ok(format!(
        "{recomputed} of {blocks} blocks are recomputed; expected are {} of tensors and {:.2} s per step",
        size(forecast.peak(recomputed) as u64),
        forecast.seconds(recomputed)
    ))
}

/// The peaks of this process until now: of tensors, and of all memory, where the system tells.
pub fn peaks() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let resident =
        status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.split(' ').rev().nth(1));
    let kilobytes = resident.and_then(|text| text.trim().parse::<u64>().ok());
    let whole = kilobytes.map(|n| format!(", {} of the process", size(n * 1024)));
    format!("{} of tensors{} at most", size(pool_stats().peak as u64), whole.unwrap_or_default())
}

/// A number of bytes with a unit.
fn size(bytes: u64) -> String {
    match bytes as f64 {
        n if n < 1e6 => format!("{:.0} KB", n / 1e3),
        n if n < 1e9 => format!("{:.0} MB", n / 1e6),
        n => format!("{:.2} GB", n / 1e9),
    }
}
