//! Weights of other programs: a folder of Hugging Face's `transformers`, a file of GGUF or ONNX.

use crate::checkpoints::Which;
use crate::flags::ModelFlags;
use crate::folder::Folder;
use crate::recipe::Recipe;
use crate::run::Run;
use crate::stop::{OrFailed, Result, usage};
use crate::tokenizer::TokenizerKind;
use retrograd::nn::StateDict;
use retrograd::nn::text::Documents;
use retrograd::prelude::*;
use std::path::Path;

/// Whether this is such a folder or file, and not that of a run.
pub fn is_there(path: &Path) -> bool {
    let is_folder =
        path.join("config.json").is_file() && !path.join("checkpoint.safetensors").exists();
    is_folder || path.is_file() && path.extension().is_none_or(|end| end != "safetensors")
}

impl Run {
    /// The model of a folder, of a run or of another program.
    pub fn of_folder(ModelFlags { out, checkpoint, tokenizer }: &ModelFlags) -> Result<Run> {
        let folder = out.as_deref();
        if let Some(folder) = folder.filter(|folder| is_there(folder)) {
            return match checkpoint {
                Which::Last => load(folder, tokenizer.as_ref()),
                _ => usage(format!("{} is no run: it has no checkpoints", folder.display())),
            };
        }
        if tokenizer.is_some() {
            return usage(
                "--tokenizer is for weights of another program: a run has its own tokenizer",
            );
        }
        let folder = Folder::earlier(folder)?;
        let path = folder.checkpoint_of(*checkpoint)?;
        Run::load_model(&path).inspect_err(|_| folder.note_whole())
    }
}

/// The model of a folder, with the tokenizer in `tokenizer.json`, or another one. Weights for tokens that the
/// tokenizer does not have are left out: vocabularies are often rounded up.
fn load(folder: &Path, tokenizer: Option<&TokenizerKind>) -> Result<Run> {
    let name = folder.display();
    let file = folder.join("tokenizer.json");
    let kind = match tokenizer {
        Some(TokenizerKind::Char | TokenizerKind::Bpe(_)) => {
            return usage(format!(
                "the tokenizer of {name} cannot follow from a text: its weights belong to fixed tokens; \
                 --tokenizer is byte, or a file"
            ));
        }
        Some(kind) => Some(kind.clone()),
        None if file.exists() => Some(TokenizerKind::File(file)),
        None if folder.is_file() => None,
        None => {
            return usage(format!(
                "there is no {}; --tokenizer byte takes bytes as tokens, or name such a file",
                file.display()
            ));
        }
    };
    let (model, own) = Gpt::from_pretrained_with_tokenizer(folder).or_failed("cannot load")?;
    let (kind, tokenizer) = match (kind, own) {
        (Some(kind), _) => (kind.clone(), kind.make(&Documents::default())?),
        (None, Some(own)) => match &own {
            Tokenizer::Char(_) => (TokenizerKind::Char, own),
            Tokenizer::Byte { .. } => (TokenizerKind::Byte, own),
            _ => (TokenizerKind::File(folder.into()), own),
        },
        (None, None) => {
            return usage(format!(
                "{name} has no tokenizer that can be read; --tokenizer is byte, or a file"
            ));
        }
    };
    let (tokens, rows) = (tokenizer.vocab_size(), model.config().vocab);
    if tokens > rows {
        return usage(format!(
            "the vocabularies differ: {kind} has {tokens} tokens, and {name} has weights for {rows}; name a tokenizer \
             with at most so many by --tokenizer, such as the file that belongs to the weights"
        ));
    }
    let config = GptConfig { vocab: tokens, ..model.config().clone() };
    let recipe = Recipe {
        tokenizer: kind,
        layers: config.layers,
        heads: config.heads,
        width: config.width,
        context: config.context,
        dropout: config.dropout,
        batch: 4,
        steps: 200,
        lr: 1e-4,
        config: Some(config.clone()),
        ..Recipe::default()
    };
    let recipe = recipe.with_parts(config);
    let run = Run::new(recipe, None, tokenizer).or_else(usage)?;
    let weights: StateDict = model.state_dict();
    let of_tokens = run.model.state_dict().into_iter().map(|(name, new)| {
        let value = weights[&name].narrow(0, 0, new.size(0));
        (name, value)
    });
    run.model.load_state_dict(&of_tokens.collect()).or_failed(format!("cannot use {name}"))?;
    Ok(run)
}
