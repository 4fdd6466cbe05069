//! The page of a run, `run.html`, which is written beside the log while the run goes on.

mod about;
mod measure;
mod restore;

pub use measure::{flops, limit, scales};
pub use restore::restored;

use crate::facts::processes;
use crate::folder::Folder;
use crate::json_lines::{JsonLines, json};
use crate::line::Line;
use crate::looks::{self, Event, Memory};
use crate::output::note;
use crate::presets::Preset;
use crate::progress::duration;
use crate::session::{LR_TOO_HIGH, Session};
use crate::stop::Stop;
use crate::watch::Norms;
use about::about;
use measure::{Limit, heads};
use restore::{add, add_look};
use retrograd::nn::Sampler;
use retrograd::nn::training::Purpose;
use retrograd::prelude::*;
use retrograd::study::{RunLook, RunPage, RunStatus, grouped};
use retrograd::tensor::storage::{PoolStats, pool_stats};
use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The most looks of a run: of more evaluations, only some have one.
const LOOKS: u64 = 400;
const FILE: &str = "run.html";
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
    looks: Option<JsonLines>,
    sentence: Tensor<i64>,
    prompt: Vec<i64>,
    /// The time of the last write, and how long it took.
    written: Option<(Instant, Duration)>,
    /// The time of looks and writes of this process.
    cost: Duration,
    began: Instant,
    /// Since when, if this process has resumed the run.
    since: String,
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
        session: &Session<'_>,
        log: &[Line],
        preset: Option<Preset>,
        limit: Limit,
    ) -> RunRecord {
        let began = Instant::now();
        let Session { run, folder, .. } = *session;
        let is_new = log.is_empty();
        let read = if is_new { Ok((Vec::new(), 0)) } else { looks::read(folder, run.step) };
        let (mut lines, unreadable) =
            read.map_or_else(|e| (Vec::new(), Err(e)), |(lines, n)| (lines, Ok(n)));
        let (start, sentence, prompt) = about(session, preset, &lines, limit);
        let verb = if is_new { "The program started" } else { "The program started again" };
        let changed = run.history.changed_steps.last().filter(|c| c.at == run.step && !is_new);
        let changed = changed.map_or(String::new(), |c| {
            format!("; the run has {} steps now, not {}", grouped(c.after), grouped(c.before))
        });
        let event = Event {
            step: run.step,
            kind: if is_new { "start" } else { "resume" }.into(),
            text: format!("{verb}, on {} ({}){changed}.", processes(session), limit.peak.level),
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
            since: if is_new { String::new() } else { format!(" since step {}", run.step) },
            last: run.step,
            step_seconds: 0.0,
            moved: None,
            has_warned: false,
            has_ended: false,
        };
        match JsonLines::begin(folder.looks(), lines.iter().map(json).collect()) {
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
    pub fn evaluated(&mut self, session: &Session<'_>, norms: Option<Norms>) {
        let start = Instant::now();
        let (folder, step) = (session.folder, session.step());
        if let Some(norms) = norms {
            let PoolStats { live, peak, .. } = pool_stats();
            self.append(folder, &looks::Line::Memory(Memory { step, live, peak }));
            let Norms { grad_norms, updates } = norms;
            let look = RunLook {
                step,
                sample: self.sample(session),
                heads: heads(session.run, &self.sentence),
                grad_norms,
                updates,
                scales: scales(&session.run.model, &self.sentence),
            };
            self.append(folder, &looks::Line::Look(look));
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
    fn sample(&self, session: &Session<'_>) -> String {
        let run = session.run;
        let sampler = Sampler { temperature: TEMPERATURE, ..Sampler::default() };
        let mut rng = Rng::new(Purpose::Samples.seed(run.recipe.seed));
        let mut stream = run.tokenizer.decode_stream_after(&self.prompt);
        let tokens = run.model.generate(&self.prompt, sampler, &mut rng).take(SAMPLE);
        let text: String = tokens.map(|token| stream.step(token)).collect();
        text + &stream.finish()
    }

    /// Writes the page before the evaluation on the whole held-out part, with the announcement that the next write may be
    /// late: a forward pass takes about a third of the time of a step.
    pub fn before_evaluation(&mut self, session: &Session<'_>) {
        let recipe = &session.run.recipe;
        let tokens = session.corpus.held_out().len();
        let steps = tokens as f64 / (recipe.batch * recipe.context) as f64;
        self.write_running(session.folder, self.step_seconds * steps / 3.0);
    }

    /// Writes the page while the run goes on.
    fn write(&mut self, folder: &Folder) {
        self.write_running(folder, self.step_seconds);
    }

    /// Writes the page, with the announcement that the next write may be late by some seconds.
    fn write_running(&mut self, folder: &Folder, late: f64) {
        self.page.status(RunStatus::Running { every: EVERY.as_secs_f64() + 2.0 * late });
        self.write_as_it_is(folder);
    }

    fn write_as_it_is(&mut self, folder: &Folder) {
        let path = match &self.moved {
            Some(path) => path.clone(),
            // In a folder that was deleted or replaced, nothing is written.
            None if folder.check().is_err() => return,
            None => folder.join(FILE),
        };
        let start = Instant::now();
        let (cost, all) = (self.cost.as_secs_f64(), self.began.elapsed().as_secs_f64());
        let share = 100.0 * cost / all.max(1e-9);
        let (cost, all) = (duration(cost), duration(all));
        let since = &self.since;
        let text =
            format!("{cost} of {all}{since} ({share:.1} %) were spent on looks and this page");
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
            Err(stop) if stop.is_signal() => (
                RunStatus::Interrupted(stop.text.replace("\n    ", " ")),
                "interrupt",
                format!("A signal ended the program (exit code {}).", stop.code),
            ),
            Err(stop) => {
                let text = match &*stop.text {
                    "" => "another rank reported the error".to_string(),
                    text => text.replace("\n    ", " "),
                };
                let kind = if text.contains(LR_TOO_HIGH) { "diverged" } else { "failure" };
                (RunStatus::Failed(text.clone()), kind, text)
            }
        };
        let event = Event { step: self.last, kind: kind.into(), text };
        self.append(folder, &looks::Line::Event(event));
        self.page.status(status);
        self.write_as_it_is(folder);
    }

    /// Continues in another folder.
    pub fn move_to(&mut self, folder: &Folder) {
        self.moved = Some(folder.join(FILE));
        if let Some(Err(e)) = self.looks.as_mut().map(|looks| looks.move_to(folder.looks())) {
            self.warn(&folder.looks().display().to_string(), &e);
        }
    }

    /// Adds a line of the looks to the page and to its file.
    fn append(&mut self, folder: &Folder, line: &looks::Line) {
        add_look(&mut self.page, line);
        let Some(looks) = &mut self.looks else { return };
        looks.add(line);
        if (self.moved.is_some() || folder.check().is_ok())
            && let Err(e) = looks.write()
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
