//! Pronoun resolution by attention. Tutorials say that in *"The chef prepared a delicious meal, and
//! it was served with wine"* the word *it* attends to *meal*, but show the weights of an untrained
//! model, in which it does not. Here a small causal model is trained on a language in which the next
//! word depends on the noun that *it* refers to. After training, a head attends from *it* to the noun.

use crate::heads::{self, accuracy, accuracy_without, tokens};
use crate::language::{
    self, HELD_OUT, KINDS, LONGEST, Nouns, Sentence, Vocabulary, training_sentence, with_it,
};
use crate::training::{BATCH, train};
use retrograd::prelude::*;
use retrograd::study::{AttentionExplorer, ExplorerText};
use std::error::Error;
use std::path::Path;

/// Sentences in an evaluation.
const MANY: usize = 1200;
/// The target that the loss ignores.
const IGNORED: i64 = -100;

/// Trains and evaluates the model; whether it has learned to resolve the pronoun.
pub fn run(seed: u64, steps: u64, page: &Path) -> Result<bool, Box<dyn Error>> {
    let vocabulary = Vocabulary::new();
    let config = GptConfig {
        vocab: vocabulary.len(),
        context: LONGEST,
        layers: 2,
        heads: 4,
        width: 64,
        bias: false,
        ..GptConfig::default()
    };
    let mut rng = Rng::new(seed);
    let model = Gpt::new(config, &mut rng)?;
    let draw = |nouns, rng: &mut Rng| (0..MANY).map(|_| with_it(nouns, rng)).collect::<Vec<_>>();
    let (familiar, held_out) = (draw(Nouns::Training, &mut rng), draw(Nouns::HeldOut, &mut rng));
    let shown = language::examples();
    println!(
        "A model of {} parameters (2 layers of 4 heads, 64 wide) learns {} words.\n\
         In training \"it\" does not refer to any of {} held-out nouns; \"meal\" is one of them.\n",
        model.num_parameters(),
        vocabulary.len(),
        HELD_OUT * KINDS.len(),
    );

    let title = "Which noun does \u{201c}it\u{201d} mean?";
    let mut explorer = AttentionExplorer::new(title).ablations(true);
    explorer.page.note(
        "Attention weights before and after training. After it, a head attends from \u{201c}it\u{201d} \
         to the noun that the pronoun refers to.",
    );
    // The pair that is shown first is "it" and its noun.
    let mut record = |snapshot| {
        for sentence in &shown {
            let words = &sentence.words;
            let text = ExplorerText::new(&words.join(" "), words.iter().copied());
            let text = text.pair(sentence.it, sentence.noun);
            explorer.record_gpt(snapshot, &model, &text, &tokens(&[words], &vocabulary));
        }
        heads::maps(&model, &vocabulary, &shown[0])
    };
    let before = record("before training");
    let guesses_before = accuracy(&model, &vocabulary, &held_out);
    train(&model, steps, (3e-3, 1e-4, 0.1), |pass| {
        let sentences: Vec<_> = (0..BATCH).map(|_| training_sentence(&mut rng)).collect();
        let (tokens, targets) = batch(&sentences, &vocabulary);
        Ok(model.loss(&tokens, &targets, pass))
    })?;
    let after = record("after training");

    // The head is chosen on nouns of the training set, and evaluated on the others.
    let found = heads::findings(&model, &vocabulary, &familiar);
    let best = found.iter().max_by(|a, b| a.weight.total_cmp(&b.weight)).expect("some heads").head;
    let judged = heads::findings(&model, &vocabulary, &held_out);
    let judged = judged.iter().find(|h| h.head == best).expect("the same heads");
    let accuracy = accuracy(&model, &vocabulary, &held_out);
    let without = accuracy_without(&model, &vocabulary, &held_out, best);

    println!(
        "The head that attends most from \"it\" to its noun is {best}. Its weights in the row of \"it\":\n"
    );
    let row = |maps: &[Tensor]| heads::row(maps, best, shown[0].it);
    print_rows(&shown[0], &row(&before), &row(&after));

    println!("\nOn {MANY} new sentences, in which \"it\" refers to a held-out noun:");
    let percent = |x: f64| format!("{:.1} %", 100.0 * x);
    println!("  mean weight from \"it\" to its noun            {:.3}", judged.weight);
    println!("  largest weight is on its noun                {}", percent(judged.found));
    println!("  word after \"it was\" is predicted correctly   {}", percent(accuracy));
    println!("    before training                            {}", percent(guesses_before));
    println!("    without that head                          {}", percent(without));

    explorer.page.start(best.layer, best.head);
    explorer.page.write(page)?;
    println!("\n{} shows weights, scores and ablations of every head\n", page.display());
    Ok(judged.weight > 0.5 && accuracy > 0.95)
}

/// Sentences as padded rows, and the next word at each position. The loss ignores the padding, and
/// causal attention hides it from the words before.
fn batch(sentences: &[Vec<&str>], vocabulary: &Vocabulary) -> (Tensor<i64>, Tensor<i64>) {
    let rows: Vec<&[&str]> = sentences.iter().map(Vec::as_slice).collect();
    let tokens = tokens(&rows, vocabulary);
    let next =
        |i: &[usize]| sentences[i[0]].get(i[1] + 1).map_or(IGNORED, |word| vocabulary.encode(word));
    let targets = Tensor::from_fn(tokens.shape(), next);
    (tokens, targets)
}

/// Prints a line for each word: the weights before and after training, as numbers and bars.
fn print_rows(sentence: &Sentence, before: &[f32], after: &[f32]) {
    const BAR: f32 = 24.0;
    let bar = |w: f32| "█".repeat((w * BAR).round() as usize);
    println!("  {:<12} {:<33} after training", "", "before training");
    for (i, word) in sentence.words[..=sentence.it].iter().enumerate() {
        let (b, a) = (before[i], after[i]);
        println!("  {word:<12} {b:.3} {:<27} {a:.3} {}", bar(b), bar(a));
    }
}
