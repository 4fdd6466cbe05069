//! The page of a run, `run.html`, which is written beside the log while the run goes on.

use crate::cli::Args;
use crate::folder::Folder;
use crate::line::{Line, Step};
use crate::looks::{self, Event, Looks, Memory, Start};
use crate::output::note;
use crate::progress::duration;
use crate::ranks::Ranks;
use crate::recipe::{CLIP, Preset};
use crate::run::{LR_TOO_HIGH, Purpose, Run};
use crate::samples::prompts;
use crate::samples::sentence_tokens;
use crate::stop::Stop;
use crate::text::Text;
use crate::watch::{Norms, Parts};
use retrograd::machine::Peak;
use retrograd::nn::Sampler;
use retrograd::nn::text::Corpus;
use retrograd::prelude::*;
use retrograd::study::load::{Others, Reading};
use retrograd::study::record::{Operation, Recorder, Seen};
use retrograd::study::{
    Baselines, HeadLook, RunLook, RunPage, RunStatus, RunStep, Summarize, grouped,
};
use retrograd::tensor::storage::{PoolStats, pool_stats};
use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The most looks of a run: of more evaluations, only some have one.
const LOOKS: u64 = 400;
/// Tokens of a sample.
const SAMPLE: usize = 100;
/// Its temperature, whatever the flags say: all samples of the page can be compared.
const TEMPERATURE: f64 = 0.8;
/// The longest time between two writes, but for the time of a step.
const EVERY: Duration = Duration::from_secs(30);
/// The largest share of the time for writing at evaluations that follow one another quickly.
const SHARE: f64 = 0.02;

/// The steps between looks, a multiple of those between evaluations.
pub fn look_every(steps: u64, eval_every: u64) -> u64 {
    eval_every * steps.div_ceil(eval_every * LOOKS).max(1)
}

/// The page of a run, and the file of looks that it is made from when the run is resumed. What cannot be
/// written is reported once: training goes on without it.
pub struct RunRecord {
    page: RunPage,
    looks: Option<Looks>,
    sentence: Tensor<i64>,
    prompt: Vec<i64>,
    /// The time of the last write, and how long it took.
    written: Option<(Instant, Duration)>,
    /// The time of looks and writes of this process.
    cost: Duration,
    began: Instant,
    /// The last step that is on the page.
    last: u64,
    step_seconds: f64,
    /// The page in another folder, if the first one was removed.
    moved: Option<PathBuf>,
    has_warned: bool,
    has_ended: bool,
}

impl RunRecord {
    /// The page of a run, with what the log and the file of looks have of it. `limit` is that of all ranks.
    pub fn start(
        run: &Run,
        (text, corpus): (&Text, &Corpus),
        (folder, log): (&Folder, &[Line]),
        args: &Args,
        limit: Limit,
    ) -> RunRecord {
        let began = Instant::now();
        let (earlier, unreadable) = match log.is_empty() {
            true => (Vec::new(), Ok(0)),
            false => Looks::read(folder, run.step)
                .map_or_else(|e| (Vec::new(), Err(e)), |(lines, n)| (lines, Ok(n))),
        };
        let (start, sentence, prompt) = about(run, text, corpus, args, (&earlier, limit));
        let is_new = log.is_empty();
        let mut lines = earlier;
        let verb = if is_new { "The program started" } else { "The program started again" };
        let changed = run.history.changed_steps.last().filter(|c| c.at == run.step && !is_new);
        let changed = changed.map_or(String::new(), |c| {
            format!("; the run has {} steps now, not {}", grouped(c.after), grouped(c.before))
        });
        let event = Event {
            step: run.step,
            kind: if is_new { "start" } else { "resume" }.into(),
            text: format!("{verb}, on {} ({}){changed}.", processes(run), limit.peak.level),
        };
        lines.extend([looks::Line::Start(start), looks::Line::Event(event)]);
        let page = restored(&folder.name(), &lines, log);
        let mut record = RunRecord {
            page,
            looks: None,
            sentence,
            prompt,
            written: None,
            cost: Duration::ZERO,
            began,
            last: run.step,
            step_seconds: 0.0,
            moved: None,
            has_warned: false,
            has_ended: false,
        };
        match Looks::begin(folder, &lines) {
            Ok(looks) => record.looks = Some(looks),
            Err(e) => record.warn(&folder.looks().display().to_string(), &e),
        }
        match unreadable {
            Ok(0) => {}
            Ok(n) => {
                note!("note: {}: {n} unreadable lines were left out", folder.looks().display())
            }
            Err(e) => record.warn(&folder.looks().display().to_string(), &e),
        }
        record.cost += began.elapsed();
        record.write(folder);
        record
    }

    /// Adds a line of the log, and writes the page if the last write is long ago.
    pub fn line(&mut self, folder: &Folder, line: &Line) {
        add(&mut self.page, line);
        match line {
            Line::Step(step) => (self.last, self.step_seconds) = (step.step, step.ms / 1e3),
            Line::Evaluation(evaluation) => self.last = evaluation.step,
            Line::Done(_) => {}
        }
        if self.written.is_some_and(|(at, _)| at.elapsed() > EVERY) {
            self.write(folder);
        }
    }

    /// Adds a look at the model, with the norms of the last step if it was observed, and writes the page unless
    /// that was done just now.
    pub fn evaluated(&mut self, run: &Run, folder: &Folder, norms: Option<Norms>) {
        let start = Instant::now();
        if let Some(norms) = norms {
            let PoolStats { live, peak, .. } = pool_stats();
            self.page.memory(run.step, live, peak);
            self.append(folder, &looks::Line::Memory(Memory { step: run.step, live, peak }));
            let Norms { grad_norms, updates } = norms;
            let look = RunLook {
                step: run.step,
                sample: self.sample(run),
                heads: self.heads(run),
                grad_norms,
                updates,
                scales: scales(&run.model, &self.sentence),
            };
            let line = looks::Line::Look(look);
            self.append(folder, &line);
            if let looks::Line::Look(look) = line {
                self.page.look(look);
            }
        }
        self.cost += start.elapsed();
        let is_recent = |(at, took): &(Instant, Duration)| {
            took.as_secs_f64() > SHARE * at.elapsed().as_secs_f64()
        };
        if !self.written.as_ref().is_some_and(is_recent) {
            self.write(folder);
        }
    }

    /// The continuation of the prompt, with the same random numbers each time.
    fn sample(&self, run: &Run) -> String {
        let sampler = Sampler { temperature: TEMPERATURE, ..Sampler::default() };
        let mut rng = Rng::new(run.recipe.seed_for(Purpose::Samples));
        let mut stream = run.tokenizer.decode_stream_after(&self.prompt);
        let tokens = run.model.generate(&self.prompt, sampler, &mut rng).take(SAMPLE);
        let text: String = tokens.map(|token| stream.step(token)).collect();
        text + &stream.finish()
    }

    /// The attention weights within the sentence.
    fn heads(&self, run: &Run) -> Vec<HeadLook> {
        let n = self.sentence.size(1);
        let maps = maps(run, &self.sentence);
        let heads =
            maps.iter().flat_map(|map| (0..map.size(1)).map(|h| map.select(0, 0).select(0, h)));
        heads.map(|weights| HeadLook::new(weights.contiguous().as_slice(), n)).collect()
    }

    /// Writes the page before the evaluation on so many tokens, with the announcement that the next write may be
    /// late: a forward pass takes about a third of the time of a step.
    pub fn before_evaluation(&mut self, run: &Run, folder: &Folder, tokens: usize) {
        let steps = tokens as f64 / (run.recipe.batch * run.recipe.context) as f64;
        let seconds = self.step_seconds * steps / 3.0;
        self.page.status(RunStatus::Running { every: EVERY.as_secs_f64() + 2.0 * seconds });
        self.write_as_it_is(folder);
    }

    /// Writes the page while the run goes on.
    fn write(&mut self, folder: &Folder) {
        let every = EVERY.as_secs_f64() + 2.0 * self.step_seconds;
        self.page.status(RunStatus::Running { every });
        self.write_as_it_is(folder);
    }

    fn write_as_it_is(&mut self, folder: &Folder) {
        let path = match &self.moved {
            Some(path) => path.clone(),
            // In a folder that was deleted or replaced, nothing is written.
            None if folder.check().is_err() => return,
            None => folder.page(),
        };
        let start = Instant::now();
        let (cost, all) = (self.cost.as_secs_f64(), self.began.elapsed().as_secs_f64());
        let share = 100.0 * cost / all.max(1e-9);
        let text = format!(
            "{} of {} ({share:.1} %) were spent on looks and on this page",
            duration(cost),
            duration(all)
        );
        self.page.fact("cost", &text);
        if let Err(e) = self.page.write(path) {
            self.warn("the page of the run", &e);
        }
        let took = start.elapsed();
        self.written = Some((Instant::now(), took));
        self.cost += took;
    }

    /// Writes the page of a run that has ended, for which reason ever. What happens after the first call does not
    /// concern the run.
    pub fn end(&mut self, folder: &Folder, result: &Result<(), Stop>) {
        if std::mem::replace(&mut self.has_ended, true) {
            return;
        }
        let (status, kind, text) = match result {
            Ok(()) => (RunStatus::Finished, "end", "All steps were taken.".to_string()),
            Err(Stop::Interrupted(text, code)) => {
                let text = text.replace("\n    ", " ");
                (
                    RunStatus::Interrupted(text),
                    "interrupt",
                    format!("A signal ended the program (exit code {code})."),
                )
            }
            Err(stop) => {
                let text = match stop.text() {
                    "" => "another rank reported the error".to_string(),
                    text => text.replace("\n    ", " "),
                };
                let kind = if text.contains(LR_TOO_HIGH) { "diverged" } else { "failure" };
                (RunStatus::Failed(text.clone()), kind, text)
            }
        };
        let event = Event { step: self.last, kind: kind.into(), text };
        self.page.event(event.step, &event.kind, &event.text);
        self.append(folder, &looks::Line::Event(event));
        self.page.status(status);
        self.write_as_it_is(folder);
    }

    /// Continues in another folder.
    pub fn move_to(&mut self, folder: &Folder) {
        self.moved = Some(folder.page());
        if let Some(looks) = &mut self.looks {
            match looks.move_to(folder) {
                Ok(()) => {}
                Err(e) => self.warn(&folder.looks().display().to_string(), &e),
            }
        }
    }

    fn append(&mut self, folder: &Folder, line: &looks::Line) {
        if let Some(looks) = &mut self.looks
            && (self.moved.is_some() || folder.check().is_ok())
            && let Err(e) = looks.write(line)
        {
            self.warn(&folder.looks().display().to_string(), &e);
        }
    }

    /// Reports an error, once.
    fn warn(&mut self, what: &str, error: &io::Error) {
        if !std::mem::replace(&mut self.has_warned, true) {
            note!("warning: cannot write {what}: {error}. Training goes on without it");
        }
    }
}

/// The limit of the machine that MFU is a part of.
#[derive(Clone, Copy)]
pub struct Limit {
    peak: Peak,
    /// What other processes used meanwhile.
    others: Others,
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
fn flops(run: &Run) -> f64 {
    let tokens = Tensor::<i64>::zeros([1, run.recipe.context]);
    let summary = run.model.summary(|model| model.forward(&tokens, &mut Pass::eval()));
    3.0 * summary.total().flops as f64 * run.recipe.batch as f64
}

/// The attention weights `[1, heads, L, L]` of the layers that have a weight for each pair of tokens.
fn maps(run: &Run, sentence: &Tensor<i64>) -> Vec<Tensor> {
    let n = sentence.size(1);
    let mut maps = run.model.attention_maps(sentence);
    maps.retain(|map| map.size(1) > 0 && map.shape()[2..] == [n, n]);
    maps
}

/// For each layer, the root of the mean square of its output for the sentence, where it is finite.
fn scales(model: &Gpt, sentence: &Tensor<i64>) -> Vec<Option<f64>> {
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
    let of_layer = |layer: usize| {
        let block = format!("transformer.h.{layer}");
        let is_inside = |op: &Operation| {
            let path = op.module.as_ref().and_then(|module| module.path.strip_prefix(&block));
            path.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        let last = recording.operations.iter().rposition(is_inside)?;
        seen.get(&last).map(|mean| mean.sqrt()).filter(|x| x.is_finite())
    };
    (0..model.config().layers).map(of_layer).collect()
}

/// What is said of a peak that other processes have disturbed.
fn disturbance(others: Others) -> String {
    match others.disturb() {
        true => format!("; {others} meanwhile, so it may be too low, and MFU too high"),
        false => String::new(),
    }
}

/// A number of things, by the name of one and of many.
fn number(n: usize, one: &str, many: &str) -> String {
    format!("{} {}", grouped(n as u64), if n == 1 { one } else { many })
}

/// The processes of a run and their threads, in words.
fn processes(run: &Run) -> String {
    let threads = number(retrograd::tensor::threads(), "thread", "threads");
    format!("{} with {threads}", number(run.training.ranks.count(), "process", "processes"))
}

/// What the page says about a run and its machine, with the tokens of the sentence and of the prompt. The
/// sentence and the prompt are those of the first start.
fn about(
    run: &Run,
    text: &Text,
    corpus: &Corpus,
    args: &Args,
    (earlier, limit): (&[looks::Line], Limit),
) -> (Start, Tensor<i64>, Vec<i64>) {
    let first = earlier.iter().find_map(|line| match line {
        looks::Line::Start(start) => Some(start),
        _ => None,
    });
    let beginnings = text.beginnings();
    // Both are parts of the text, which has tokens.
    let sentence = sentence_tokens(run, &beginnings[0]).unwrap_or_default();
    let prompt_text = prompts(run, &beginnings).swap_remove(0);
    let prompt = run.encode(&prompt_text).unwrap_or_else(|_| sentence.clone());
    let labels = sentence.iter().map(|&token| run.tokenizer.label(token)).collect();
    let sentence = Tensor::from_vec(sentence.clone(), [1, sentence.len()]);
    let layers = maps(run, &sentence).iter().map(|map| map.size(1)).collect();
    let (preset, recipe) = match (args.preset, first) {
        (None, Some(start)) if !start.preset.is_empty() => {
            (start.preset.clone(), start.preset_recipe.clone())
        }
        (preset, _) => {
            let preset = preset.unwrap_or(Preset::Tales);
            (preset.name(), looks::value(&preset.recipe()))
        }
    };
    let vocab = run.tokenizer.vocab_size();
    let baselines = Baselines::of(corpus.train(), corpus.held_out(), vocab);
    let r = &run.recipe;
    let count = |n: usize| grouped(n as u64);
    let all = corpus.train().len() + corpus.held_out().len();
    let parts = r.parts();
    let mut facts = vec![
        (
            "text",
            format!(
                "{}: {} tokens of {} different ones ({}), of which the last {} are held out",
                run.source.name(),
                count(all),
                count(vocab),
                r.tokenizer,
                count(corpus.held_out().len())
            ),
        ),
        (
            "model",
            format!(
                "{} layers, {} heads, {} wide, context {}: {} parameters{}{parts}",
                r.layers,
                r.heads,
                count(r.width),
                count(r.context),
                count(run.model.num_parameters()),
                if parts.is_empty() { "" } else { "; " }
            ),
        ),
        (
            "step",
            format!(
                "{} of {} tokens in {}; {}",
                number(r.batch, "sequence", "sequences"),
                count(r.context),
                number(r.number_of_shards(), "shard", "shards"),
                r.schedule_in_words()
            ),
        ),
        (
            "machine",
            format!(
                "{}; peak {:.0} GFLOP/s with {}, measured at the start on all threads{}",
                processes(run),
                limit.peak.gflops.all,
                limit.peak.level,
                disturbance(limit.others)
            ),
        ),
        ("version", format!("retrograd {}", env!("CARGO_PKG_VERSION"))),
    ];
    if let Some(origin) = &run.history.init_from {
        facts.push((
            "weights",
            format!("begun with those of {} after step {}", origin.run, grouped(origin.step)),
        ));
    }
    let start = Start {
        step: run.step,
        recipe: looks::value(r),
        preset,
        preset_recipe: recipe,
        facts: facts.into_iter().map(|(name, text)| (name.to_string(), text)).collect(),
        baselines: Some([baselines.uniform, baselines.unigram, baselines.bigram]),
        flops: Some(flops(run)),
        peak: Some(limit.peak.gflops.all * 1e9),
        sentence: labels,
        prompt: prompt_text,
        parts: Parts::of(&run.model).names,
        layers,
    };
    (start, sentence, prompt)
}

/// The page of a run, from the lines of its files.
pub fn restored(title: &str, looks: &[looks::Line], log: &[Line]) -> RunPage {
    let mut starts: Vec<&Start> = looks
        .iter()
        .filter_map(|line| match line {
            looks::Line::Start(start) => Some(start),
            _ => None,
        })
        .collect();
    let mut page = RunPage::new(title).clip(CLIP);
    if let Some(&start) = starts.last() {
        let number = |name: &str| start.recipe.get(name).and_then(|x| x.as_u64()).unwrap_or(0);
        let base = (!start.preset.is_empty())
            .then(|| (&*start.preset, looks::fields(&start.preset_recipe)));
        page = page
            .planned(number("steps"), number("batch") * number("context"))
            .recipe(looks::fields(&start.recipe), base)
            .looks_at(
                start.sentence.clone(),
                &start.prompt,
                start.parts.clone(),
                start.layers.clone(),
            );
        if let Some([uniform, unigram, bigram]) = start.baselines {
            page = page.baselines(Baselines { uniform, unigram, bigram });
        }
        if let Some(flops) = start.flops {
            page = page.flops(flops);
        }
        for (name, text) in &start.facts {
            page.fact(name, text);
        }
    }
    starts.reverse();
    let memory = looks.iter().filter_map(|line| match line {
        looks::Line::Memory(memory) => Some(*memory),
        _ => None,
    });
    let mut memory = memory.peekable();
    for line in log {
        if let Line::Step(step) = line {
            while let Some(Memory { step, live, peak }) = memory.next_if(|m| m.step < step.step) {
                page.memory(step, live, peak);
            }
            // The machine may have been another one each time.
            while let Some(start) = starts.pop_if(|start| start.step < step.step) {
                start.peak.into_iter().for_each(|peak| page.peak(peak));
            }
        }
        add(&mut page, line);
    }
    for Memory { step, live, peak } in memory {
        page.memory(step, live, peak);
    }
    for start in starts.into_iter().rev() {
        start.peak.into_iter().for_each(|peak| page.peak(peak));
    }
    for line in looks {
        match line {
            looks::Line::Start(_) => {}
            looks::Line::Look(look) => page.look(look.clone()),
            looks::Line::Event(event) => page.event(event.step, &event.kind, &event.text),
            looks::Line::Memory(_) => {}
        }
    }
    page
}

/// Adds a line of the log.
fn add(page: &mut RunPage, line: &Line) {
    match line {
        Line::Step(Step { step, loss, lr, grad_norm, ms, .. }) => {
            page.step(RunStep {
                step: *step,
                loss: *loss,
                lr: *lr,
                grad_norm: *grad_norm,
                seconds: ms / 1e3,
            });
        }
        Line::Evaluation(evaluation) => page.evaluation(evaluation.step, evaluation.val_loss),
        Line::Done(done) => {
            let mut text = format!("{:.4}", done.val_loss);
            if let Some(metrics) = done.metrics {
                text += &format!(
                    "; {}, perplexity {:.4}, accuracy {:.2} %",
                    metrics.per_byte,
                    metrics.perplexity,
                    100.0 * metrics.accuracy
                );
            }
            page.fact("all held-out text", &text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scale_of_the_last_layer_is_that_of_the_input_of_the_last_norm() {
        let config = GptConfig {
            vocab: 7,
            context: 4,
            layers: 11,
            heads: 2,
            width: 8,
            ..GptConfig::default()
        };
        let model = Gpt::new(config, &mut Rng::new(1)).unwrap();
        let tokens = Tensor::from([[1i64, 2, 3]]);
        let found = scales(&model, &tokens);
        assert_eq!(found.len(), 11);
        // Layer 1 is another one than layer 10.
        assert!(found.iter().all(|x| x.is_some()) && found[1] != found[10], "{found:?}");
        let inputs = Arc::new(Mutex::new(BTreeMap::new()));
        let seen = inputs.clone();
        let recorder = Recorder::new().watching(move |event| {
            if let Seen::Computed { operation, inputs, .. } = event
                && let Some(x) = inputs[0].1.downcast_ref::<Tensor>()
            {
                seen.lock().unwrap().insert(*operation, x.clone());
            }
        });
        let (_, recording) = recorder.record(|| model.forward(&tokens, &mut Pass::eval()));
        let of_norm = |op: &Operation| {
            op.module.as_ref().is_some_and(|module| module.path == "transformer.ln_f")
        };
        let norm = recording.operations.iter().position(of_norm).unwrap();
        let x = f64::from(inputs.lock().unwrap()[&norm].square().mean(..).item()).sqrt();
        assert!((found[10].unwrap() / x - 1.0).abs() < 1e-6, "{found:?}, not {x}");
    }
}
