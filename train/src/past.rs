//! The past of a run: its steps, computed again from the checkpoints that were kept.

use crate::checkpoints::Which;
use crate::files;
use crate::folder::Folder;
use crate::json_lines::lines_of;
use crate::line::{Evaluation, Line, Step};
use crate::ranks::Ranks;
use crate::run::Run;
use crate::session::Session;
use crate::stop::{OrFailed, Result, failed, usage};
use crate::text::Text;
use clap::Args;
use retrograd::autograd::sharded;
use retrograd::nn::checkpoint::Checkpoint;
use retrograd::nn::schedule::Schedule;
use retrograd::nn::text::Corpus;
use retrograd::nn::training;
use retrograd::prelude::*;
use retrograd::study::record::{NonFinite, find_nonfinite};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The run of a command that looks at its past.
#[derive(Args, Debug)]
pub struct PastArgs {
    /// The folder of the run
    #[arg(value_name = "DIR")]
    run: PathBuf,

    /// The text of the run, if it has been moved
    #[arg(long, value_name = "FILE")]
    data: Option<PathBuf>,
}

impl PastArgs {
    pub fn open(&self) -> Result<Past> {
        Past::open(&self.run, self.data.as_deref())
    }
}

/// A run that is finished, was stopped, or goes on in another process.
pub struct Past {
    pub run: Run,
    pub text: Text,
    pub corpus: Corpus,
    pub folder: Folder,
    ranks: Ranks,
    /// What the log has of each step, and of the evaluations after steps.
    pub steps: BTreeMap<u64, Step>,
    evaluations: BTreeMap<u64, Evaluation>,
    /// The checkpoints, by the steps that were taken before.
    pub checkpoints: BTreeMap<u64, Which>,
}

impl Past {
    /// Of the run in a folder; `data` is where its text is now.
    pub fn open(folder: &Path, data: Option<&Path>) -> Result<Past> {
        let folder = Folder::earlier(Some(folder))?;
        let run = Run::load_model(&folder.checkpoint())?;
        let (text, corpus) = run.text(&folder, data)?;
        let reading = format!("cannot read {}", folder.log().display());
        let bytes = files::read(&folder.log()).or_failed(reading)?;
        let log = String::from_utf8_lossy(&bytes);
        let (lines, _) = lines_of(&log, Line::read);
        let (mut steps, mut evaluations) = (BTreeMap::new(), BTreeMap::new());
        for (line, _) in lines {
            match line {
                Line::Step(step) => _ = steps.insert(step.step, step),
                Line::Evaluation(e) => _ = evaluations.insert(e.step, e),
                Line::Done(_) => {}
            }
        }
        let kept = folder.kept_steps().into_iter().map(|step| (step, Which::Step(step)));
        let best = run.best.filter(|_| folder.best().exists()).map(|best| (best.step, Which::Best));
        let checkpoints = best.into_iter().chain([(run.step, Which::Last)]).chain(kept).collect();
        let ranks = Ranks::alone();
        Ok(Past { run, text, corpus, folder, ranks, steps, evaluations, checkpoints })
    }

    /// The last step that may be computed: one after that of the log, at which the run may have failed.
    pub fn last(&self) -> u64 {
        self.steps.keys().next_back().map_or(1, |last| last + 1)
    }

    /// # Errors
    /// If the run has not come to this step.
    pub fn check_step(&self, step: u64) -> Result<()> {
        if (1..=self.last()).contains(&step) {
            return Ok(());
        }
        let (name, last) = (self.folder.name(), self.last() - 1);
        usage(format!("the run in {name} has no step {step}; its log has steps 1 to {last}"))
    }

    /// The run, to be brought to any step.
    pub fn replay(&self) -> Result<Replay<'_>> {
        let Past { run, text, corpus, folder, ranks, .. } = self;
        let session = Session::new(run, (text, corpus), folder, ranks, false).or_else(usage)?;
        Ok(Replay { past: self, session, from: None, taken: 0, differs: None })
    }
}

/// A run that is computed again. What it computes is compared with the log.
pub struct Replay<'a> {
    past: &'a Past,
    pub session: Session<'a>,
    /// The step of the checkpoint that was loaded last.
    pub from: Option<u64>,
    /// The steps that were computed.
    pub taken: u64,
    /// The first difference to the log.
    pub differs: Option<String>,
}

impl Replay<'_> {
    /// Goes to the state after so many steps: from the last checkpoint before, or from the present state if that is
    /// later.
    pub fn go_to(&mut self, steps: u64) -> Result<()> {
        let folder = &self.past.folder;
        let Some((&from, &which)) = self.past.checkpoints.range(..=steps).next_back() else {
            return failed(format!(
                "{} has no checkpoint of step {steps} or before; train --keep-every and --keep-size keep more",
                folder.name()
            ));
        };
        if self.from.is_none() || !(from..=steps).contains(&self.session.step()) {
            let path = folder.checkpoint_of(which).or_else(|stop| failed(stop.text))?;
            let file = Checkpoint::load(path).or_failed("cannot load")?;
            self.session.trainer.load(&file).or_failed("cannot load")?;
            if self.session.step() > steps {
                return failed("the run has gone on meanwhile; the same command finds the step");
            }
            self.from = Some(self.session.step());
            self.check_weights();
        }
        while self.session.step() < steps {
            self.step(|_| ())?;
        }
        Ok(())
    }

    /// Takes the next step, with the learning rate of the log. The callback sees the gradients before clipping.
    pub fn step(&mut self, callback: impl FnOnce(&Gradients)) -> Result<training::Step> {
        let next = self.session.step() + 1;
        let logged = self.past.steps.get(&next);
        let schedule = self.past.run.recipe.schedule();
        let schedule = logged.map_or(schedule, |step| Schedule::Constant { lr: step.lr });
        self.session.trainer.set_schedule(schedule);
        self.taken += 1;
        let step = self.session.trainer.step_with(|grads| callback(grads));
        let step = step.or_failed(format!("step {next} fails"))?;
        if let Some(logged) = logged {
            let bits = |loss: f64, norm: f64| (loss.to_bits(), norm.to_bits());
            if bits(step.loss, step.grad_norm) != bits(logged.loss, logged.grad_norm) {
                let Step { loss, grad_norm, .. } = logged;
                let differs = format!(
                    "step {next} has the loss {} and the gradient norm {}, the log has {loss} and {grad_norm}",
                    step.loss, step.grad_norm
                );
                self.differs.get_or_insert(differs);
            }
        }
        self.check_weights();
        Ok(step)
    }

    /// Compares the weights, if an evaluation has logged them.
    fn check_weights(&mut self) {
        let step = self.session.step();
        let logged = self.past.evaluations.get(&step).and_then(|evaluation| evaluation.weights);
        if logged.is_some_and(|logged| logged != self.session.fingerprint()) {
            let differs = format!("the weights after step {step} are not those of the log");
            self.differs.get_or_insert(differs);
        }
    }

    /// The first NaN or infinity of the next step, which is not taken.
    pub fn first_nonfinite(&self) -> Option<NonFinite> {
        let shards = self.session.trainer.shards();
        find_nonfinite(|| drop(sharded(shards.counts(), |i| shards.loss(i)))).1
    }

    /// # Errors
    /// If anything that was computed had other bits than the log.
    pub fn check(&self) -> Result<()> {
        let Some(differs) = &self.differs else { return Ok(()) };
        let run = &self.past.run;
        failed(format!(
            "{differs}. The run was trained with {}, and this is {}; other causes are another version of the program, \
             --all-reduce, and files that were changed",
            run.history.arithmetic,
            run.recipe.arithmetic()
        ))
    }
}
