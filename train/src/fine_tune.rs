//! A run that starts from the weights of another one.

use crate::checkpoints::Which;
use crate::flags::{ModelFlags, NewRun};
use crate::pretrained;
use crate::recipe::Recipe;
use crate::run::Run;
use crate::stop::{Result, failed, usage};
use crate::text::Text;
use crate::tokenizer::TokenizerKind;
use retrograd::nn::text::{Corpus, Documents, TextError, Tokenizer};
use std::collections::BTreeSet;
use std::path::Path;

/// The run whose weights are the first ones of another run.
pub struct Parent {
    /// Its folder or file, as it was named.
    pub name: String,
    pub run: Run,
}

impl Parent {
    /// Loads the model of a run, of one of its checkpoints, or of another program.
    pub fn load(path: &Path, tokenizer: Option<&TokenizerKind>) -> Result<Parent> {
        let run = match path.is_file() && !pretrained::is_there(path) {
            true => Run::load_model(path)?,
            false => {
                let tokenizer = tokenizer.filter(|_| pretrained::is_there(path)).cloned();
                let (out, checkpoint) = (Some(path.to_path_buf()), Which::Last);
                Run::of_folder(&ModelFlags { out, checkpoint, tokenizer })?
            }
        };
        Ok(Parent { name: path.display().to_string(), run })
    }

    /// Checks that a recipe has the model of this run.
    pub fn check(&self, recipe: &Recipe, args: &NewRun) -> Result<()> {
        let name = &self.name;
        let changed = self.run.recipe.differences(recipe, &Recipe::TRAINING);
        if !changed.is_empty() {
            return usage(format!(
                "the weights of {name} are those of another model:\n  {}\nOmit these flags, or train \
                 without --init-from.",
                changed.join("\n  ")
            ));
        }
        let known = &self.run.recipe.tokenizer;
        let same = match args.given("tokenizer") {
            None => true,
            Some(file @ TokenizerKind::File(_)) => {
                file.make(&Documents::default())? == self.run.tokenizer
            }
            Some(other) => other == known,
        };
        if same {
            return Ok(());
        }
        usage(format!(
            "--tokenizer is not that of {name}: {known} with {} tokens, to which its weights belong; \
             omit the flag",
            self.run.tokenizer.vocab_size()
        ))
    }

    /// The tokens of a text. The vocabulary is that of the weights; what it lacks is reported.
    pub fn corpus(&self, text: &Text) -> Result<Corpus> {
        text.corpus(&self.run.tokenizer).or_else(|e| match (e, &self.run.tokenizer) {
            (TextError::UnknownCharacters { unknown, .. }, Tokenizer::Char(vocabulary)) => {
                let used: BTreeSet<char> = text.documents.texts().flat_map(str::chars).collect();
                let unused: Vec<char> =
                    vocabulary.chars().iter().copied().filter(|c| !used.contains(c)).collect();
                failed(format!(
                    "the vocabularies of {} and {} differ. Only in the text: {}. Only in the run: \
                     {}. The run has {} characters; the weights have no rows for others. A run \
                     that was trained with --tokenizer byte has tokens for every text",
                    self.name,
                    text.source.name(),
                    list(&unknown),
                    list(&unused),
                    vocabulary.chars().len(),
                ))
            }
            (e, _) => failed(e),
        })
    }
}

/// Characters for messages: the first ones, and how many there are.
fn list(characters: &[char]) -> String {
    const SHOWN: usize = 20;
    let shown: Vec<String> = characters.iter().take(SHOWN).map(|c| format!("{c:?}")).collect();
    match characters.len() {
        0 => "none".into(),
        n if n <= SHOWN => shown.join(", "),
        n => format!("{} and {} more", shown.join(", "), n - SHOWN),
    }
}
