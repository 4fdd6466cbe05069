//! A run: model, optimiser, number of steps, and the checkpoint with all of them.

use crate::corpus::{Corpus, Source, Vocabulary};
use crate::folder::Folder;
use crate::recipe::Recipe;
use crate::stop::{OrFailed, Result, Stop, failed, usage};
use retrograd::nn::ConfigError;
use retrograd::nn::checkpoint::{Checkpoint, CheckpointError};
use retrograd::prelude::*;
use retrograd::tensor::random::Key;
use std::fmt::Display;
use std::io::ErrorKind;
use std::path::Path;

/// The complete state of a run. A run that is saved and loaded continues with the same bits: batches
/// and dropout are functions of the seed and the step.
///
/// `Run<()>` has no optimiser: it can generate text, but not be trained.
pub struct Run<O = Box<dyn Optimizer>> {
    pub recipe: Recipe,
    pub source: Source,
    pub vocabulary: Vocabulary,
    pub model: Gpt,
    pub optimizer: O,
    /// Steps taken.
    pub step: u64,
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
}

impl Run {
    /// A new run.
    pub fn new(recipe: Recipe, corpus: &Corpus) -> Result<Run> {
        Run::build(recipe, corpus.source.clone(), corpus.vocabulary.clone())
            .and_then(Run::with_optimizer)
            .or_else(usage)
    }

    /// Writes the checkpoint atomically: after a crash, the file is the old one or the new one.
    pub fn save(&self, folder: &Folder) -> Result<()> {
        folder.check()?;
        let weights = self.model.state_dict();
        // Without a copy, for which there may be no memory.
        let non_finite = |w: &Tensor| w.contiguous().as_slice().iter().any(|x| !x.is_finite());
        if let Some((name, _)) = weights.iter().find(|(_, w)| non_finite(w)) {
            return self.diverged(folder, format!("the weights are not finite in {name}"));
        }
        let mut file = Checkpoint::new();
        file.put("model", &weights);
        file.put("optimizer", &self.optimizer.state_dict());
        file.note("step", &self.step);
        file.note("recipe", &self.recipe);
        file.note("text", &self.source);
        file.note("vocabulary", &self.vocabulary);
        file.save(&folder.checkpoint()).or_failed("cannot save")
    }

    /// Reads the checkpoint.
    pub fn load(folder: &Folder) -> Result<Run> {
        let path = folder.checkpoint();
        let read = || -> std::result::Result<Run, Box<dyn std::error::Error>> {
            let file = Checkpoint::load(&path)?;
            let mut run = Run::restore(&path, &file)?.with_optimizer()?;
            run.optimizer.load_state_dict(run.step, &file.get("optimizer")?)?;
            Ok(run)
        };
        read().or_failed("cannot load")
    }

    /// The error of a run that diverged. The last checkpoint is kept.
    pub fn diverged<T>(&self, folder: &Folder, why: impl Display) -> Result<T> {
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
            "stopped at step {}: {why}. {kept}. The learning rate may be too high: try a --lr below \
             {:?}",
            self.step, self.recipe.lr
        ))
    }
}

/// Without an optimiser.
impl Run<()> {
    fn build(
        recipe: Recipe,
        source: Source,
        vocabulary: Vocabulary,
    ) -> std::result::Result<Run<()>, ConfigError> {
        let mut rng = Rng::new(recipe.seed_for(Purpose::Weights));
        let model = Gpt::new(recipe.model(vocabulary.len()), &mut rng)?;
        Ok(Run { recipe, source, vocabulary, model, optimizer: (), step: 0 })
    }

    fn with_optimizer(self) -> std::result::Result<Run, ConfigError> {
        let optimizer = self.recipe.optimizer(&self.model)?;
        let Run { recipe, source, vocabulary, model, step, .. } = self;
        Ok(Run { recipe, source, vocabulary, model, optimizer, step })
    }

    /// Loads the model only, a third of the checkpoint.
    pub fn load_model(folder: &Folder) -> Result<Run<()>> {
        let path = folder.checkpoint();
        Checkpoint::load_filtered(&path, |name| name.starts_with("model."))
            .map_err(Into::into)
            .and_then(|file| Run::restore(&path, &file))
            .or_failed("cannot load")
    }

    fn restore(
        path: &Path,
        file: &Checkpoint,
    ) -> std::result::Result<Run<()>, Box<dyn std::error::Error>> {
        let note = |e: CheckpointError| format!("{} is of another program: {e}", path.display());
        let recipe = file.read_note("recipe").map_err(note)?;
        let source = file.read_note("text").map_err(note)?;
        let vocabulary = file.read_note("vocabulary").map_err(note)?;
        let mut run = Run::build(recipe, source, vocabulary)?;
        run.step = file.read_note("step").map_err(note)?;
        run.model.load_state_dict(&file.get("model")?)?;
        Ok(run)
    }
}

impl<O> Run<O> {
    /// The tokens of a prompt.
    pub fn encode(&self, prompt: &str) -> Result<Vec<i64>> {
        self.vocabulary.encode(prompt).map_err(|unknown| {
            let unknown: Vec<String> = unknown.iter().map(|c| format!("{c:?}")).collect();
            let known = String::from(self.vocabulary.clone());
            Stop::Usage(format!(
                "the vocabulary does not contain {}; it contains {known:?}",
                unknown.join(", ")
            ))
        })
    }
}
