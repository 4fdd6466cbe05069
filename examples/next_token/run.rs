//! A run: the model, its optimiser, how far it is, and the checkpoint that keeps all of it.

use crate::corpus::{Corpus, Source, Vocabulary};
use crate::folder::Folder;
use crate::recipe::Recipe;
use crate::stop::{OrFailed, Result, Stop, failed, usage};
use retrograd::nn::checkpoint::{Checkpoint, CheckpointError};
use retrograd::prelude::*;
use retrograd::tensor::random::Key;
use std::fmt::Display;

/// Everything there is to know about a run. Saved and loaded, it goes on as if nothing had
/// happened: batches and dropout follow from the seed and the number of the step alone.
pub struct Run {
    pub recipe: Recipe,
    pub source: Source,
    pub vocabulary: Vocabulary,
    pub model: Gpt,
    pub optimizer: AdamW,
    /// Steps taken.
    pub step: u64,
}

/// What random numbers are for. Each purpose has a seed of its own.
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
    /// A run that has not begun.
    pub fn new(recipe: Recipe, corpus: &Corpus) -> Result<Run> {
        Run::build(recipe, corpus.source.clone(), corpus.vocabulary.clone()).or_else(usage)
    }

    fn build(
        recipe: Recipe,
        source: Source,
        vocabulary: Vocabulary,
    ) -> std::result::Result<Run, retrograd::nn::ConfigError> {
        let mut rng = Rng::new(recipe.seed_for(Purpose::Weights));
        let model = Gpt::new(recipe.model(vocabulary.len()), &mut rng)?;
        let optimizer = AdamW::new(&model, recipe.adam())?;
        Ok(Run { recipe, source, vocabulary, model, optimizer, step: 0 })
    }

    /// Writes the checkpoint; a crash at any moment leaves the one before or this one.
    pub fn save(&self, folder: &Folder) -> Result<()> {
        folder.check()?;
        let weights = self.model.state_dict();
        if let Some((name, _)) = weights.iter().find(|(_, w)| !w.abs().max(..).item().is_finite()) {
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
            let note =
                |e: CheckpointError| format!("{} is of another program: {e}", path.display());
            let recipe = file.read_note("recipe").map_err(note)?;
            let source = file.read_note("text").map_err(note)?;
            let vocabulary = file.read_note("vocabulary").map_err(note)?;
            let mut run = Run::build(recipe, source, vocabulary)?;
            run.step = file.read_note("step").map_err(note)?;
            run.model.load_state_dict(&file.get("model")?)?;
            run.optimizer.load_state_dict(run.step, &file.get("optimizer")?)?;
            Ok(run)
        };
        read().or_failed("cannot load")
    }

    /// The end of a run that has lost its way. What it had saved is still there.
    pub fn diverged<T>(&self, folder: &Folder, why: impl Display) -> Result<T> {
        let kept = match Run::load(folder) {
            Ok(run) => format!("{} still holds step {}", folder.checkpoint().display(), run.step),
            Err(_) => "Nothing was saved".to_string(),
        };
        failed(format!(
            "stopped at step {}: {why}. {kept}. The learning rate may be too high: try a --lr below \
             {:?}",
            self.step, self.recipe.lr
        ))
    }

    /// The tokens of a prompt.
    pub fn encode(&self, prompt: &str) -> Result<Vec<i64>> {
        self.vocabulary.encode(prompt).map_err(|unknown| {
            let unknown: Vec<String> = unknown.iter().map(|c| format!("{c:?}")).collect();
            let known = String::from(self.vocabulary.clone());
            Stop::Usage(format!(
                "the model has never seen {}; it knows {known:?}",
                unknown.join(", ")
            ))
        })
    }
}
