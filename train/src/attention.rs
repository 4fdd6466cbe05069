//! What the heads of a model attend to within a text: `attention`.

use crate::attention_page;
use crate::cli::ModelFlags;
use crate::run::Run;
use crate::stop::{OrFailed, Result};
use clap::Args;
use retrograd::prelude::*;
use std::path::PathBuf;

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
    let ModelFlags { out, checkpoint, tokenizer } = &args.model;
    let run = Run::of_folder(out.as_deref(), *checkpoint, tokenizer.as_ref())?;
    let tokens = run.encode(&args.text)?;
    if let Some(folder) = args.page.parent() {
        let making = format!("cannot make the folder {}", folder.display());
        std::fs::create_dir_all(folder).or_failed(making)?;
    }
    with_matmul_precision(run.recipe.precision, || {
        attention_page::of_sample(&run, tokens.len(), &tokens, &args.page)
    })
}
