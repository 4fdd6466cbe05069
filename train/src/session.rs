//! A run while it is trained: its trainer and what it is trained on.

use crate::checkpoints::Best;
use crate::clock::Running;
use crate::flags::{program, quoted};
use crate::folder::Folder;
use crate::line::{Evaluation, PerByte, Step};
use crate::ranks::Ranks;
use crate::recipe::{CLIP, Recipe};
use crate::run::Run;
use crate::stop::{OrFailed, Result, Stop, failed};
use crate::text::Text;
use crate::watch::Watch;
use retrograd::distributed::{DataParallel, GradientSum};
use retrograd::nn::ConfigError;
use retrograd::nn::checkpoint::{Checkpoint, CheckpointError};
use retrograd::nn::optim::StepError;
use retrograd::nn::schedule::Schedule;
use retrograd::nn::text::{Corpus, TextMetrics, Window};
use retrograd::nn::training::{self, TrainError, Trainer, TrainerConfig};
use retrograd::prelude::*;
use std::fmt::Display;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What the error of a run that diverged says.
pub const LR_TOO_HIGH: &str = "The learning rate may be too high";

/// What all parts of training need.
pub struct Session<'a> {
    pub run: &'a Run,
    pub text: &'a Text,
    pub corpus: &'a Corpus,
    pub folder: &'a Folder,
    pub ranks: &'a Ranks,
    pub trainer: Trainer<'a>,
    /// Divides steps among the ranks.
    pub parallel: Arc<DataParallel>,
    /// The number of the last step; an estimate while a clock runs.
    pub last: u64,
    pub clock: Option<Running>,
    /// The evaluation during training with the lowest held-out loss.
    pub best: Option<Best>,
}

impl<'a> Session<'a> {
    /// Before the first step. `all_reduce`: gradients are added in an order that MPI chooses.
    pub fn new(
        run: &'a Run,
        (text, corpus): (&'a Text, &'a Corpus),
        folder: &'a Folder,
        ranks: &'a Ranks,
        all_reduce: bool,
    ) -> Result<Session<'a>, ConfigError> {
        let recipe = &run.recipe;
        let sum = if all_reduce { GradientSum::AllReduce } else { GradientSum::default() };
        let parallel = Arc::new(DataParallel::new(&run.model, ranks.comm()).with_reduction(sum));
        let optimizer = parallel.optimizer(|owned| recipe.optimizer(owned))?;
        let Recipe { batch, shards, seed, .. } = *recipe;
        let config = TrainerConfig { schedule: recipe.schedule(), batch, shards, clip: CLIP, seed };
        let trainer = Trainer::new(&run.model, corpus, optimizer, config)?;
        let trainer = trainer.with_strategy(parallel.clone());
        let (last, clock, best) = (recipe.steps, run.clock.map(Running::new), run.best);
        Ok(Session { run, text, corpus, folder, ranks, trainer, parallel, last, clock, best })
    }

    /// The steps that were taken.
    pub fn step(&self) -> u64 {
        self.trainer.steps()
    }

    /// The recipe, with the number of steps that the clock has set.
    pub fn recipe(&self) -> Recipe {
        Recipe { steps: self.last, ..self.run.recipe.clone() }
    }

    /// Estimates the number of all steps of a new run by the clock.
    pub fn estimate_steps(&mut self) {
        if let Some(clock) = self.clock.as_mut().filter(|_| self.trainer.steps() == 0) {
            self.last = clock.estimate(&self.trainer, self.ranks);
        }
    }

    /// Takes the learning rate of the next step from the clock, and whether that step is the last one.
    pub fn look_at_clock(&mut self) {
        let Some(clock) = &self.clock else { return };
        self.last = clock.last(self.step(), self.last, self.ranks);
        let lr = self.recipe().schedule().lr(self.step());
        self.trainer.set_schedule(Schedule::Constant { lr });
    }

    /// Notes the time of an evaluation, with its checkpoint and page.
    pub fn end_evaluation(&mut self, time: Duration) {
        if let Some(clock) = &mut self.clock {
            clock.evaluation = time.as_secs_f64();
        }
    }

    /// Takes a step. An error may be that of this rank alone. `watch` observes the step; its time does not count.
    pub fn take_step(&mut self, mut watch: Option<&mut Watch<'_>>) -> Result<Step> {
        let start = Instant::now();
        let stepped = self.trainer.step_with(|grads| {
            if let Some(watch) = &mut watch {
                watch.gradients(grads);
            }
        });
        let taken = match stepped {
            Ok(step) => step,
            Err(TrainError::Optimizer(StepError::NotFinite(names))) => {
                let (first, all) = (&names[0], names.len());
                let why = format!("the gradient of {first} is not finite ({all} such parameters)");
                return self.diverged(why);
            }
            Err(why @ TrainError::Loss(_)) => return self.diverged(why),
            Err(e) => return failed(e),
        };
        let aside = watch.map_or(Duration::ZERO, |watch| watch.gradients_time);
        let seconds = start.elapsed().saturating_sub(aside).as_secs_f64();
        if let Some(clock) = &mut self.clock {
            clock.step = seconds;
        }
        let Recipe { batch, context, .. } = self.run.recipe;
        let ms = |time: Duration| (self.ranks.count() > 1).then_some(time.as_secs_f64() * 1e3);
        let exchange = self.parallel.timing();
        Ok(Step {
            step: taken.number,
            loss: taken.loss,
            lr: taken.lr,
            grad_norm: taken.grad_norm,
            ms: seconds * 1e3,
            tokens_per_s: (batch * context) as f64 / seconds,
            exchange_ms: ms(exchange.total),
            exposed_ms: ms(exchange.exposed),
        })
    }

    /// Metrics on held-out windows, on all ranks; `None` if `stops` is true on one of them.
    pub fn metrics(&self, windows: &[Window<'_>], stops: fn() -> bool) -> Option<TextMetrics> {
        training::evaluate(&self.run.model, windows, &*self.parallel, &stops)
    }

    /// The loss on held-out windows that are the same in all evaluations: at most 64, evenly spread.
    pub fn evaluate(&self) -> Result<Evaluation> {
        const WINDOWS: usize = 64;
        let all = self.corpus.windows(self.run.recipe.context);
        let n = WINDOWS.min(all.len());
        let windows: Vec<Window<'_>> = (0..n).map(|i| all[i * all.len() / n]).collect();
        let metrics = self.metrics(&windows, || false).unwrap_or_default();
        let val_loss = metrics.loss();
        if !val_loss.is_finite() {
            return self.diverged(format!("the loss on held-out text is {val_loss}"));
        }
        let per_byte = Some(PerByte::of(&metrics, self.corpus.lost_share()));
        Ok(Evaluation { step: self.step(), val_loss, per_byte, weights: Some(self.fingerprint()) })
    }

    /// A hash of the bits of all weights: FNV-1a by elements, without its last 11 bits.
    pub fn fingerprint(&self) -> u64 {
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        for weight in self.run.model.state_dict().values() {
            for x in weight.contiguous().as_slice() {
                hash = (hash ^ u64::from(x.to_bits())).wrapping_mul(0x0100_0000_01b3);
            }
        }
        hash >> 11
    }

    /// Writes the checkpoint of the trainer atomically, to this folder or another one: after a crash, the file is
    /// the old one or the new one.
    pub fn save(&self, folder: &Folder, mut file: Checkpoint) -> Result<()> {
        folder.check()?;
        let weights = self.run.model.state_dict();
        // Without a copy, for which there may be no memory.
        let non_finite = |w: &Tensor| w.contiguous().as_slice().iter().any(|x| !x.is_finite());
        if let Some((name, _)) = weights.iter().find(|(_, w)| non_finite(w)) {
            return self.diverged(format!("the weights are not finite in {name}"));
        }
        file.note("recipe", &self.recipe());
        if let Some(clock) = &self.clock {
            file.note("clock", &clock.now());
        }
        file.note("text", &self.run.source);
        file.note("tokenizer", &self.run.tokenizer);
        file.note("best", &self.best);
        file.note("history", &self.run.history);
        file.save(folder.checkpoint()).or_failed("cannot save")
    }

    /// The error of a run that diverged, which is the same on all ranks. The last checkpoint is kept.
    pub fn diverged<T>(&self, why: impl Display) -> Result<T> {
        if !self.ranks.is_first() {
            return Err(Stop::printed(1));
        }
        failed(format!(
            "stopped at step {}: {why}. {}. {LR_TOO_HIGH}: try a --lr below {}",
            self.step(),
            saved(&self.folder.checkpoint()),
            self.run.recipe.lr
        ))
    }

    /// The end by a signal, whose exit code is the conventional one.
    pub fn interrupted(&self, code: u8) -> Stop {
        Stop { code, text: self.stopped(self.folder) }
    }

    /// Where the run stopped, and how to continue it.
    pub fn stopped(&self, folder: &Folder) -> String {
        let (step, last, name, resume) = (self.step(), self.last, folder.name(), resume(folder));
        format!("Stopped after step {step} of {last}, saved in {name}. To resume:\n    {resume}")
    }

    /// What is said of the run if the program ends at once; nothing on ranks other than 0.
    pub fn last_words(&self) -> impl Fn() -> String + Send + use<> {
        let (path, resume) = (self.folder.checkpoint(), resume(self.folder));
        let is_first = self.ranks.is_first();
        move || match (is_first, path.exists()) {
            (false, _) => String::new(),
            (true, false) => saved(&path),
            (true, true) => {
                format!("Ended without saving. {}, from which it goes on: {resume}", saved(&path))
            }
        }
    }
}

/// The command that resumes the run in a folder.
pub fn resume(folder: &Folder) -> String {
    format!("{} resume --out {}", program(), quoted(&folder.name()))
}

/// What a checkpoint holds.
fn saved(path: &Path) -> String {
    // Only its metadata, which needs little memory.
    let saved = Checkpoint::load_filtered(path, |_| false);
    match saved.and_then(|file| file.read_note::<u64>("step")) {
        Ok(step) => format!("{} still holds step {step}", path.display()),
        Err(CheckpointError::Io(_, e)) if e.kind() == ErrorKind::NotFound => {
            "Nothing was saved".to_string()
        }
        Err(e) => format!("What was saved cannot be read: {e}"),
    }
}
