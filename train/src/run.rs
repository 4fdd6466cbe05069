//! A run: model, optimiser, number of steps, and the checkpoint with all of them.

use crate::checkpoints::Best;
use crate::folder::Folder;
use crate::ranks::Ranks;
use crate::recipe::Recipe;
use crate::stop::{OrFailed, Result, Stop, failed, usage};
use crate::text::Source;
use crate::tokenizer::with_feature;
use retrograd::distributed::DataParallel;
use retrograd::nn::checkpoint::{Checkpoint, CheckpointError};
use retrograd::nn::text::{TextError, Tokenizer};
use retrograd::nn::{ConfigError, StateDict};
use retrograd::prelude::*;
use retrograd::tensor::kernels::gemm::arithmetic;
use retrograd::tensor::random::Key;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::fmt::Display;
use std::io::ErrorKind;
use std::path::Path;

/// What the error of a run that diverged says.
pub const LR_TOO_HIGH: &str = "The learning rate may be too high";

/// The complete state of a run. A run that is saved and loaded continues with the same bits: batches
/// and dropout are functions of the seed and the step.
///
/// `Run<()>` has no optimiser: it can generate text, but not be trained.
pub struct Run<O = Training> {
    pub recipe: Recipe,
    pub source: Source,
    pub tokenizer: Tokenizer,
    pub model: Gpt,
    pub training: O,
    /// Steps taken.
    pub step: u64,
    /// The evaluation during training with the lowest held-out loss.
    pub best: Option<Best>,
    pub history: History,
}

/// What training needs beside the model.
pub struct Training {
    pub ranks: Ranks,
    /// Divides steps among the ranks.
    pub parallel: DataParallel,
    /// For the parameters that this rank owns.
    pub optimizer: Box<dyn Optimizer>,
}

/// What a recipe does not tell about a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct History {
    /// The run whose weights were the first ones.
    pub init_from: Option<Origin>,
    /// Changes of the number of steps, by `--resume --steps`.
    pub changed_steps: Vec<ChangedSteps>,
    /// That of the last start; empty in older checkpoints.
    #[serde(default)]
    pub arithmetic: String,
}

/// The run whose weights were the first ones of another run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Origin {
    /// The folder or file.
    pub run: String,
    pub step: u64,
}

/// From this step on, the schedule was that of another number of steps.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChangedSteps {
    pub at: u64,
    pub before: u64,
    pub after: u64,
}

/// The purposes of random numbers. Each has its own seed.
#[derive(Clone, Copy)]
pub enum Purpose {
    Weights,
    Batches,
    Dropout,
    Samples,
}

impl Recipe {
    pub fn seed_for(&self, purpose: Purpose) -> u64 {
        Key::new(self.seed, u64::MAX).bits(purpose as u64)
    }

    /// What the bits of a run depend on, beside the recipe and the text.
    pub fn arithmetic(&self) -> String {
        with_matmul_precision(self.precision, arithmetic::<f32>)
    }
}

impl Run {
    /// A new run.
    pub fn new(recipe: Recipe, source: Source, tokenizer: Tokenizer, ranks: &Ranks) -> Result<Run> {
        let run = Run::build(recipe, source, tokenizer);
        run.and_then(|run| run.with_optimizer(ranks)).or_else(usage)
    }

    /// Takes over the weights of another run.
    pub fn init_from(&mut self, parent: &Run<()>, name: &str) -> Result<()> {
        let weights = parent.model.state_dict();
        self.model.load_state_dict(&weights).or_failed(format!("cannot use {name}"))?;
        self.history.init_from = Some(Origin { run: name.to_string(), step: parent.step });
        Ok(())
    }

    /// Changes the number of steps. The schedule is that of a run of so many steps, from here on.
    pub fn change_steps(&mut self, steps: u64) {
        let change = ChangedSteps { at: self.step, before: self.recipe.steps, after: steps };
        self.history.changed_steps.push(change);
        self.recipe.steps = steps;
    }

    /// The state of the optimiser, which the ranks have in parts: at rank 0. All ranks call this.
    pub fn optimizer_state(&self) -> Option<StateDict> {
        self.training.parallel.gather_state(&self.training.optimizer.state_dict())
    }

    /// Writes the checkpoint atomically, with the [`Run::optimizer_state`]: after a crash, the file is the old
    /// one or the new one.
    pub fn save(&self, folder: &Folder, optimizer: &StateDict) -> Result<()> {
        folder.check()?;
        let weights = self.model.state_dict();
        // Without a copy, for which there may be no memory.
        let non_finite = |w: &Tensor| w.contiguous().as_slice().iter().any(|x| !x.is_finite());
        if let Some((name, _)) = weights.iter().find(|(_, w)| non_finite(w)) {
            return self.diverged(folder, format!("the weights are not finite in {name}"));
        }
        let mut file = Checkpoint::new();
        file.put("model", &weights);
        file.put("optimizer", optimizer);
        file.note("step", &self.step);
        file.note("recipe", &self.recipe);
        file.note("text", &self.source);
        file.note("tokenizer", &self.tokenizer);
        file.note("best", &self.best);
        file.note("history", &self.history);
        file.save(&folder.checkpoint()).or_failed("cannot save")
    }

    /// Reads the checkpoint.
    pub fn load(folder: &Folder, ranks: &Ranks) -> Result<Run> {
        let path = folder.checkpoint();
        let read = || -> std::result::Result<Run, Box<dyn std::error::Error>> {
            let file = Checkpoint::load(&path)?;
            let mut run = Run::restore(&path, &file)?.with_optimizer(ranks)?;
            let own = run.training.parallel.own_state(&file.get("optimizer")?);
            run.training.optimizer.load_state_dict(run.step, &own)?;
            Ok(run)
        };
        read().or_failed("cannot load")
    }

    /// The error of a run that diverged, which is the same on all ranks. The last checkpoint is kept.
    pub fn diverged<T>(&self, folder: &Folder, why: impl Display) -> Result<T> {
        if !self.training.ranks.is_first() {
            return Err(Stop::Reported(1));
        }
        let path = folder.checkpoint();
        // Only its metadata, which needs little memory.
        let saved = Checkpoint::load_filtered(&path, |_| false);
        let kept = match saved.and_then(|file| file.read_note::<u64>("step")) {
            Ok(step) => format!("{} still holds step {step}", path.display()),
            Err(CheckpointError::Io(_, e)) if e.kind() == ErrorKind::NotFound => {
                "Nothing was saved".to_string()
            }
            Err(e) => format!("What was saved cannot be read: {e}"),
        };
        failed(format!(
            "stopped at step {}: {why}. {kept}. {LR_TOO_HIGH}: try a --lr below {}",
            self.step, self.recipe.lr
        ))
    }
}

/// Without an optimiser.
impl Run<()> {
    fn build(
        recipe: Recipe,
        source: Source,
        tokenizer: Tokenizer,
    ) -> std::result::Result<Run<()>, ConfigError> {
        let mut rng = Rng::new(recipe.seed_for(Purpose::Weights));
        let model = Gpt::new(recipe.model(tokenizer.vocab_size()), &mut rng)?;
        let history = History { arithmetic: recipe.arithmetic(), ..History::default() };
        Ok(Run { recipe, source, tokenizer, model, training: (), step: 0, best: None, history })
    }

    fn with_optimizer(self, ranks: &Ranks) -> std::result::Result<Run, ConfigError> {
        let parallel = DataParallel::new(&self.model, ranks.comm());
        let optimizer = parallel.optimizer(|owned| self.recipe.optimizer(owned))?;
        let training = Training { ranks: ranks.clone(), parallel, optimizer };
        let Run { recipe, source, tokenizer, model, step, best, history, .. } = self;
        Ok(Run { recipe, source, tokenizer, model, training, step, best, history })
    }

    /// Loads the model only, a third of the checkpoint.
    pub fn load_model(path: &Path) -> Result<Run<()>> {
        Checkpoint::load_filtered(path, |name| name.starts_with("model."))
            .map_err(Into::into)
            .and_then(|file| Run::restore(path, &file))
            .or_failed("cannot load")
    }

    fn restore(
        path: &Path,
        file: &Checkpoint,
    ) -> std::result::Result<Run<()>, Box<dyn std::error::Error>> {
        let note = |e: CheckpointError| format!("{} is of another program: {e}", path.display());
        let recipe = file.read_note("recipe").map_err(note)?;
        let source = file.read_note("text").map_err(note)?;
        let mut run = Run::build(recipe, source, tokenizer(file, note)?)?;
        run.step = file.read_note("step").map_err(note)?;
        run.best = later_note(file, "best").map_err(note)?;
        run.history = later_note(file, "history").map_err(note)?;
        run.model.load_state_dict(&file.get("model")?)?;
        Ok(run)
    }
}

/// A note that older checkpoints lack.
fn later_note<D: DeserializeOwned + Default>(
    file: &Checkpoint,
    name: &str,
) -> std::result::Result<D, CheckpointError> {
    if file.notes.contains_key(name) { file.read_note(name) } else { Ok(D::default()) }
}

/// The tokenizer of a checkpoint. Older ones have characters as a text.
fn tokenizer(
    file: &Checkpoint,
    other: impl Fn(CheckpointError) -> String,
) -> std::result::Result<Tokenizer, String> {
    if let Some(json) = file.notes.get("tokenizer") {
        return Tokenizer::from_json(json.json()).map_err(|e| match e {
            TextError::NeedsFeature { .. } => format!("{e}{}", with_feature()),
            e => e.to_string(),
        });
    }
    let characters: String = file.read_note("vocabulary").map_err(other)?;
    Ok(Tokenizer::chars([characters.as_str()]))
}

impl<O> Run<O> {
    /// The tokens of a prompt, of which there is at least one.
    pub fn encode(&self, prompt: &str) -> Result<Vec<i64>> {
        let tokens = self.tokenizer.encode(prompt).map_err(|e| Stop::Usage(e.to_string()))?;
        if tokens.is_empty() {
            return usage(format!("the tokenizer has no tokens for {prompt:?}"));
        }
        Ok(tokens)
    }
}
