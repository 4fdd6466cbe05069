//! The plots of a run: its loss curve and its attention maps.

use crate::folder::Folder;
use crate::log::Log;
use crate::run::Run;
use crate::samples::sentence_tokens;
use crate::stop::{OrFailed, Result};
use crate::{attention, loss_curve};
use retrograd::nn::checkpoint::write_atomically;
use retrograd::prelude::*;
use std::path::Path;

/// Writes the loss curve of the steps so far.
pub fn draw_loss_curve(folder: &Folder, log: &Log) -> Result<()> {
    let steps: Vec<(u64, f64)> = log.steps().map(|s| (s.step, s.loss)).collect();
    let held_out: Vec<(u64, f64)> = log.evaluations().map(|e| (e.step, e.val_loss)).collect();
    write(&folder.loss_curve(), loss_curve::picture(&steps, &held_out))
}

/// Writes a map for each layer of the attention within a sentence; returns the number of layers.
pub fn draw_attention(run: &Run, sentence: &str, folder: &Folder) -> Result<usize> {
    let tokens = sentence_tokens(run, sentence)?;
    let labels: Vec<String> = tokens.iter().map(|&token| run.tokenizer.label(token)).collect();
    let tokens = Tensor::from_vec(tokens.clone(), [1, tokens.len()]);
    let maps = run.model.attention_maps(&tokens);
    // Some variants of attention have no weights.
    let maps: Vec<&Tensor> = maps.iter().filter(|weights| weights.size(1) > 0).collect();
    for (layer, weights) in (1..).zip(&maps) {
        let picture = attention::picture(layer, &weights.select(0, 0), &labels);
        write(&folder.attention(layer), picture)?;
    }
    Ok(maps.len())
}

fn write(path: &Path, svg: std::result::Result<String, String>) -> Result<()> {
    let name = path.display();
    let svg = svg.or_failed(format!("cannot draw {name}"))?;
    write_atomically(path, svg.as_bytes()).or_failed(format!("cannot write {name}"))
}
