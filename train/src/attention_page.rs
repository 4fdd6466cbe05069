//! The attention explorer of a run or of a sample: `--attention-page`.

use crate::output::note;
use crate::run::Run;
use crate::samples::first_words;
use crate::stop::{OrFailed, Result};
use retrograd::prelude::*;
use retrograd::study::{AttentionExplorer, ExplorerText};
use std::cell::RefCell;
use std::path::{Path, PathBuf};

/// The most tokens of the sentence that is recorded during training, and of a sample.
const SENTENCE: usize = 64;
const SAMPLE: usize = 256;
/// The most snapshots of a run, about.
const SNAPSHOTS: u64 = 12;

/// The attention of a model within one sentence, at several evaluations of its training.
pub struct AttentionLooks {
    path: PathBuf,
    tokens: Tensor<i64>,
    text: ExplorerText,
    /// Steps between snapshots.
    every: u64,
    explorer: RefCell<AttentionExplorer>,
}

impl AttentionLooks {
    /// Looks at this sentence, for a page at `path`; `eval_every` steps are between evaluations.
    pub fn new<O>(run: &Run<O>, sentence: &str, path: &Path, eval_every: u64) -> Result<Self> {
        let most = SENTENCE.min(run.recipe.context);
        let mut tokens = run.encode(&first_words(sentence, most))?;
        tokens.truncate(most);
        let evaluations = run.recipe.steps.div_ceil(eval_every);
        Ok(AttentionLooks {
            path: path.to_path_buf(),
            text: text_of(run, "a sentence", &tokens),
            tokens: Tensor::from_vec(tokens.clone(), [1, tokens.len()]),
            every: eval_every * evaluations.div_ceil(SNAPSHOTS).max(1),
            explorer: RefCell::new(explorer("Attention in training")),
        })
    }

    /// Records the model as it is, and writes the page. A page that cannot be written does not end the
    /// training.
    pub fn record<O>(&self, run: &Run<O>) {
        if !(run.step.is_multiple_of(self.every) || run.step == run.recipe.steps) {
            return;
        }
        let mut explorer = self.explorer.borrow_mut();
        let snapshot = format!("step {}", run.step);
        explorer.record_gpt(&snapshot, &run.model, &self.text, &self.tokens);
        if let Err(why) = explorer.page.write(&self.path) {
            note!("warning: cannot write the attention page: {why}");
        }
    }
}

/// Writes a page of the attention within a prompt and its continuation, as far as they fit into the
/// context.
pub fn of_sample<O>(run: &Run<O>, prompt: usize, tokens: &[i64], path: &Path) -> Result<()> {
    let tokens = &tokens[..tokens.len().min(run.recipe.context).min(SAMPLE)];
    let text = text_of(run, "a sample", tokens).generated_after(prompt.min(tokens.len()));
    let mut explorer = explorer("Attention in a sample");
    let tokens = Tensor::from_vec(tokens.to_vec(), [1, tokens.len()]);
    explorer.record_gpt(&format!("step {}", run.step), &run.model, &text, &tokens);
    explorer.page.write(path).or_failed("cannot write the attention page")?;
    note!("Attention page: {}", path.display());
    Ok(())
}

fn explorer(title: &str) -> AttentionExplorer {
    AttentionExplorer::new(title).ablations(true)
}

fn text_of<O>(run: &Run<O>, name: &str, tokens: &[i64]) -> ExplorerText {
    let labels = tokens.iter().map(|&token| run.tokenizer.label(token));
    ExplorerText::new(name, labels).tokens(tokens.iter().copied())
}
