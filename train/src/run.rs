//! A run: its recipe, tokenizer and model, as a checkpoint has them.

use crate::checkpoints::Best;
use crate::clock::Clock;
use crate::folder::Folder;
use crate::recipe::Recipe;
use crate::stop::{OrFailed, Result, failed, usage};
use crate::text::{Source, Text, first_words};
use crate::tokenizer::with_feature;
use retrograd::nn::ConfigError;
use retrograd::nn::checkpoint::{Checkpoint, CheckpointError};
use retrograd::nn::text::{Corpus, TextError, Tokenizer};
use retrograd::nn::training::Purpose;
use retrograd::prelude::*;
use retrograd::tensor::kernels::gemm::arithmetic;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// A run as it is at its beginning, or as it was saved.
pub struct Run {
    pub recipe: Recipe,
    /// The text; `None` for weights of another program.
    pub source: Option<Source>,
    pub tokenizer: Tokenizer,
    pub model: Gpt,
    /// Steps taken.
    pub step: u64,
    /// The evaluation during training with the lowest held-out loss.
    pub best: Option<Best>,
    /// If the run ends by the clock.
    pub clock: Option<Clock>,
    pub history: History,
}

/// What a recipe does not tell about a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct History {
    /// The run whose weights were the first ones.
    pub init_from: Option<Origin>,
    /// Changes of the number of steps, by `resume --steps`.
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

impl Recipe {
    /// What the bits of a run depend on, beside the recipe and the text.
    pub fn arithmetic(&self) -> String {
        with_matmul_precision(self.precision, arithmetic::<f32>)
    }
}

impl Run {
    /// A new run, with random weights.
    pub fn new(
        recipe: Recipe,
        source: Option<Source>,
        tokenizer: Tokenizer,
    ) -> Result<Run, ConfigError> {
        let mut rng = Rng::new(Purpose::Weights.seed(recipe.seed));
        let model = Gpt::new(recipe.model(tokenizer.vocab_size()), &mut rng)?;
        let history = History { arithmetic: recipe.arithmetic(), ..History::default() };
        Ok(Run { recipe, source, tokenizer, model, step: 0, best: None, clock: None, history })
    }

    /// Loads the model only, a third of the checkpoint.
    pub fn load_model(path: &Path) -> Result<Run> {
        Checkpoint::load_filtered(path, |name| name.starts_with("model."))
            .map_err(Into::into)
            .and_then(|file| Run::restore(path, &file))
            .or_failed("cannot load")
    }

    /// Loads a run, and its checkpoint.
    pub fn load(path: &Path) -> Result<(Run, Checkpoint)> {
        let file = Checkpoint::load(path).or_failed("cannot load")?;
        Ok((Run::restore(path, &file).or_failed("cannot load")?, file))
    }

    fn restore(path: &Path, file: &Checkpoint) -> Result<Run, Box<dyn std::error::Error>> {
        let note = |e: CheckpointError| format!("{} is of another program: {e}", path.display());
        let recipe = file.read_note("recipe").map_err(note)?;
        let source = file.read_note("text").map_err(note)?;
        let mut run = Run::new(recipe, source, tokenizer(file, note)?)?;
        run.step = file.read_note("step").map_err(note)?;
        run.best = later_note(file, "best").map_err(note)?;
        run.clock = later_note(file, "clock").map_err(note)?;
        run.history = later_note(file, "history").map_err(note)?;
        run.model.load_state_dict(&file.get("model")?)?;
        Ok(run)
    }

    /// Takes over the weights of another run.
    pub fn init_from(&mut self, parent: &Run, name: &str) -> Result<()> {
        let weights = parent.model.state_dict();
        self.model.load_state_dict(&weights).or_failed(format!("cannot use {name}"))?;
        self.history.init_from = Some(Origin { run: name.to_string(), step: parent.step });
        Ok(())
    }

    /// Takes over the weights of another run whose names and shapes agree.
    pub fn share_weights(&mut self, other: &Run) -> Result<()> {
        let mut weights = self.model.state_dict();
        for (name, weight) in other.model.state_dict() {
            if let Some(own) = weights.get_mut(&name).filter(|own| own.shape() == weight.shape()) {
                *own = weight;
            }
        }
        self.model.load_state_dict(&weights).or_failed("cannot share weights")
    }

    /// Changes the number of steps. The schedule is that of a run of so many steps, from here on.
    pub fn change_steps(&mut self, steps: u64) {
        let change = ChangedSteps { at: self.step, before: self.recipe.steps, after: steps };
        self.history.changed_steps.push(change);
        self.recipe.steps = steps;
    }

    /// The text of the run, and its tokens; `file` is where it is now.
    ///
    /// # Errors
    /// If it is another text.
    pub fn text(&self, folder: &Folder, file: Option<&Path>) -> Result<(Text, Corpus)> {
        let Some(source) = &self.source else { return failed("the run has no text") };
        let file = file.or(source.file.as_deref());
        let text = Text::read(file, Some(source))?;
        text.check_same(source, &folder.name(), file)?;
        let corpus = self.corpus(&text)?;
        Ok((text, corpus))
    }

    /// The tokens of a text.
    pub fn corpus(&self, text: &Text) -> Result<Corpus> {
        let reading = format!("cannot read {}", text.source.name());
        let corpus = text.corpus(&self.tokenizer).or_failed(reading)?;
        corpus.check(self.recipe.context).or_else(failed)?;
        Ok(corpus)
    }

    /// The first tokens of a sentence, at most so many, and as many as fit into the context.
    pub fn sentence(&self, sentence: &str, most: usize) -> Result<Vec<i64>> {
        let most = most.min(self.recipe.context);
        let mut tokens = self.encode(&first_words(sentence, most))?;
        tokens.truncate(most);
        Ok(tokens)
    }

    /// The tokens of a prompt, of which there is at least one.
    pub fn encode(&self, prompt: &str) -> Result<Vec<i64>> {
        let tokens = self.tokenizer.encode(prompt).or_else(usage)?;
        if tokens.is_empty() {
            return usage(format!("the tokenizer has no tokens for {prompt:?}"));
        }
        Ok(tokens)
    }
}

/// A note that older checkpoints lack.
fn later_note<D: DeserializeOwned + Default>(
    file: &Checkpoint,
    name: &str,
) -> Result<D, CheckpointError> {
    if file.notes.contains_key(name) { file.read_note(name) } else { Ok(D::default()) }
}

/// The tokenizer of a checkpoint. Older ones have characters as a text.
fn tokenizer(
    file: &Checkpoint,
    other: impl Fn(CheckpointError) -> String,
) -> Result<Tokenizer, String> {
    if let Some(json) = file.notes.get("tokenizer") {
        return Tokenizer::from_json(json.json()).map_err(|e| match e {
            TextError::NeedsFeature { .. } => format!("{e}{}", with_feature()),
            e => e.to_string(),
        });
    }
    let characters: String = file.read_note("vocabulary").map_err(other)?;
    Ok(Tokenizer::chars([characters.as_str()]))
}
