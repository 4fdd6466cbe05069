//! The attention explorer on a few dates.

use crate::dates::{Pair, encode, encode_iso};
use crate::translator::{Translator, behind_start};
use retrograd::prelude::*;
use retrograd::study::{AttentionExplorer, ExplorerText};

/// An explorer of the heads of the model.
pub fn explorer() -> AttentionExplorer {
    AttentionExplorer::new("Dates by cross-attention")
        .note(
            "The encoder reads a date, and the decoder writes it in the format of ISO 8601. A query of the \
             decoder is labelled by the symbol that it writes.",
        )
        .ablations(true)
}

/// Records the attention of the model on pairs, with the loss of predicting each symbol from the true
/// ones before it.
pub fn record(
    explorer: &mut AttentionExplorer,
    snapshot: &str,
    model: &Translator,
    pairs: &[Pair],
) -> Result<(), String> {
    for Pair { written, date } in pairs {
        let (characters, lengths) = encode(&[written])?;
        let symbols = encode_iso(&[*date]);
        let letters = |text: &str| text.chars().map(String::from).collect::<Vec<_>>();
        let text = ExplorerText::new(written, letters(&date.to_string())).source(letters(written));
        explorer.record(snapshot, model, &text, || {
            let memory = model.read(&characters, &lengths, &mut Pass::eval());
            let scores = model.write(&memory, &behind_start(&symbols), &mut Pass::eval());
            scores.cross_entropy(&symbols, CrossEntropy::default())
        });
    }
    Ok(())
}
