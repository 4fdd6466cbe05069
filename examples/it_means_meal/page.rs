//! The attention explorer on a few sentences.

use crate::language::{Sentence, Vocabulary};
use crate::learn::batch;
use retrograd::prelude::*;
use retrograd::study::{AttentionExplorer, ExplorerText};

/// An explorer of the heads of the model.
pub fn explorer() -> AttentionExplorer {
    AttentionExplorer::new("Which noun does \u{201c}it\u{201d} mean?")
        .note(
            "Attention weights before and after training. After it, a head attends from \u{201c}it\u{201d} \
             to the noun that the pronoun refers to.",
        )
        .ablations(true)
}

/// Records the attention of the model on each sentence. The pair that is shown first is that of *it* and
/// its noun.
pub fn record(
    explorer: &mut AttentionExplorer,
    snapshot: &str,
    model: &Gpt,
    vocabulary: &Vocabulary,
    sentences: &[Sentence],
) {
    for sentence in sentences {
        let (tokens, _) = batch(std::slice::from_ref(&sentence.words), vocabulary);
        let text = ExplorerText::new(&sentence.words.join(" "), sentence.words.iter().copied());
        explorer.record_gpt(snapshot, model, &text.pair(sentence.it, sentence.noun), &tokens);
    }
}
