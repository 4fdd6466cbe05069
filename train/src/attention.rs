//! What the heads of a model attend to: `attention`, and `--attention-page` of a run or a sample.

use crate::files::make_folder_of;
use crate::flags::ModelFlags;
use crate::output::note;
use crate::run::Run;
use crate::session::Session;
use crate::stop::{OrFailed, Result};
use clap::Args;
use retrograd::prelude::*;
use retrograd::study::{AttentionExplorer, ExplorerText};
use std::cell::RefCell;
use std::path::{Path, PathBuf};

/// The most tokens of the sentence that is recorded during training, and of a sample.
const SENTENCE: usize = 64;
const SAMPLE: usize = 256;
/// The most snapshots of a run, about.
const SNAPSHOTS: u64 = 12;

/// Write a page of what every head of a model attends to within a text
///
/// The page is interactive: heads can be switched off, and queries followed through the layers. Only as many tokens
/// are shown as fit into the context, and at most 256.
#[derive(Args, Debug)]
pub struct Attention {
    /// The text
    text: String,

    #[command(flatten)]
    pub model: ModelFlags,

    /// The file of the page
    #[arg(long, value_name = "FILE", default_value = "out/attention.html")]
    page: PathBuf,
}

/// Writes the page.
pub fn attention(args: &Attention) -> Result<()> {
    let run = Run::of_folder(&args.model)?;
    let tokens = run.encode(&args.text)?;
    with_matmul_precision(run.recipe.precision, || {
        of_sample(&run, run.step, tokens.len(), &tokens, &args.page)
    })
}

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
    pub fn new(run: &Run, sentence: &str, path: &Path, eval_every: u64) -> Result<Self> {
        let tokens = run.sentence(sentence, SENTENCE)?;
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
    pub fn record(&self, session: &Session<'_>) {
        let (run, step) = (session.run, session.step());
        if !(step.is_multiple_of(self.every) || step == session.last) {
            return;
        }
        let mut explorer = self.explorer.borrow_mut();
        let snapshot = format!("step {step}");
        explorer.record_gpt(&snapshot, &run.model, &self.text, &self.tokens);
        if let Err(why) = explorer.page.write(&self.path) {
            note!("warning: cannot write the attention page: {why}");
        }
    }
}

/// Writes a page of the attention within a prompt and its continuation, as far as they fit into the
/// context.
pub fn of_sample(run: &Run, step: u64, prompt: usize, tokens: &[i64], path: &Path) -> Result<()> {
    make_folder_of(path)?;
    let (all, context) = (tokens.len(), run.recipe.context);
    let tokens = &tokens[..all.min(context).min(SAMPLE)];
    if tokens.len() < all {
        let limit = match context < SAMPLE {
            true => "the context of the model, which train --context sets",
            false => "the most of a page",
        };
        note!("note: the page shows the first {} of {all} tokens: {limit}", tokens.len());
    }
    let text = text_of(run, "a sample", tokens).generated_after(prompt.min(tokens.len()));
    let mut explorer = explorer("Attention in a sample");
    let tokens = Tensor::from_vec(tokens.to_vec(), [1, tokens.len()]);
    explorer.record_gpt(&format!("step {step}"), &run.model, &text, &tokens);
    explorer.page.write(path).or_failed("cannot write the attention page")?;
    note!("Attention page: {}", path.display());
    Ok(())
}

fn explorer(title: &str) -> AttentionExplorer {
    AttentionExplorer::new(title).ablations(true)
}

fn text_of(run: &Run, name: &str, tokens: &[i64]) -> ExplorerText {
    let labels = tokens.iter().map(|&token| run.tokenizer.label(token));
    ExplorerText::new(name, labels).tokens(tokens.iter().copied())
}
