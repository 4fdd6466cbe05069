//! Pronoun resolution by attention. Tutorials say that in *"The chef prepared a delicious meal, and
//! it was served with wine"* the word *it* attends to *meal*, but show the weights of an untrained
//! model, in which it does not. Here a small causal model is trained on a language in which the next
//! word depends on the noun that *it* refers to. After training, a head attends from *it* to the noun.
//!
//! `cargo run --release --example it_means_meal` takes about a minute. Read [`language`]
//! first (the data), then [`learn`], then [`study`] (which head resolves the pronoun, and the effect
//! of removing it).

#[path = "../common/bar.rs"]
mod bar;
#[path = "../common/environment.rs"]
mod environment;
mod heat_map;
mod language;
mod learn;
#[path = "../common/output.rs"]
mod output;
mod page;
mod study;
#[path = "../common/svg.rs"]
mod svg;
#[path = "../common/weights.rs"]
mod weights;

use clap::Parser;
use language::{HELD_OUT, KINDS, LONGEST, Nouns, Sentence, Vocabulary, with_it};
use output::{note, say};
use retrograd::prelude::*;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use study::Head;

/// Trains a small causal model to resolve the pronoun "it", and shows its attention weights.
#[derive(Parser)]
#[command(version)]
struct Args {
    /// Training steps, of 64 sentences each
    #[arg(long, default_value_t = 2500, value_parser = clap::value_parser!(u64).range(1..))]
    steps: u64,
    /// Seed of weights, data and dropout
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Folder for the pictures
    #[arg(long, default_value = "out/it_means_meal")]
    out: PathBuf,
    /// Fail unless the mean weight from "it" to nouns that were held out is above 0.5, and 95 % of
    /// the words after "it was" are predicted correctly
    #[arg(long)]
    check: bool,
}

/// Sentences in an evaluation.
const MANY: usize = 1200;

fn main() -> ExitCode {
    retrograd::study::from_env();
    let args = Args::parse();
    environment::check("close other programs");
    output::end(match run(&args) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(e) => {
            note!("error: {e}");
            ExitCode::FAILURE
        }
    })
}

fn run(args: &Args) -> Result<bool, Box<dyn Error>> {
    std::fs::create_dir_all(&args.out)
        .map_err(|e| format!("cannot make the folder {}: {e}", args.out.display()))?;
    let vocabulary = Vocabulary::new();
    let config = GptConfig {
        vocab: vocabulary.len(),
        context: LONGEST,
        layers: 2,
        heads: 4,
        width: 64,
        dropout: 0.0,
        bias: false,
        tied: true,
        ..GptConfig::default()
    };
    let mut rng = Rng::new(args.seed);
    let model = Gpt::new(config, &mut rng)?;
    let draw = |nouns, rng: &mut Rng| (0..MANY).map(|_| with_it(nouns, rng)).collect::<Vec<_>>();
    let (familiar, held_out) = (draw(Nouns::Training, &mut rng), draw(Nouns::HeldOut, &mut rng));
    let shown = language::examples();
    say!(
        "A model of {} parameters (2 layers of 4 heads, 64 wide) learns {} words.\n\
         In training \"it\" does not refer to any of {} held-out nouns; \"meal\" is one of them.\n",
        model.num_parameters(),
        vocabulary.len(),
        HELD_OUT * KINDS.len(),
    );

    let before = study::maps(&model, &vocabulary, &shown);
    let mut explorer = page::explorer();
    page::record(&mut explorer, "before training", &model, &vocabulary, &shown);
    let guesses_before = study::accuracy(&model, &vocabulary, &held_out);
    learn::learn(&model, &vocabulary, args.steps, &mut rng)?;
    let after = study::maps(&model, &vocabulary, &shown);
    page::record(&mut explorer, "after training", &model, &vocabulary, &shown);

    // The head is chosen on nouns of the training set, and evaluated on the others.
    let heads = study::heads(&model, &vocabulary, &familiar);
    let best = heads.iter().max_by(|a, b| a.weight.total_cmp(&b.weight)).expect("some heads").head;
    let judged = study::heads(&model, &vocabulary, &held_out);
    let judged = judged.iter().find(|h| h.head == best).expect("the same heads");
    let accuracy = study::accuracy(&model, &vocabulary, &held_out);
    let without = study::accuracy_without(&model, &vocabulary, &held_out, best);

    say!(
        "The head that attends most from \"it\" to its noun is {best}. Its weights in the row of \"it\":\n"
    );
    let ours = &shown[0];
    let row = |maps: &[Vec<Tensor>]| study::row(&maps[0], best, ours.it);
    print_rows(ours, &row(&before), &row(&after));

    say!("\nOn {MANY} new sentences, in which \"it\" refers to a held-out noun:");
    let percent = |x: f64| format!("{:.1} %", 100.0 * x);
    say!("  mean weight from \"it\" to its noun            {:.3}", judged.weight);
    say!("  largest weight is on its noun                {}", percent(judged.found));
    say!("  word after \"it was\" is predicted correctly   {}", percent(accuracy));
    say!("    before training                            {}", percent(guesses_before));
    say!("    without that head                          {}", percent(without));

    let svg = args.out.join("attention.svg");
    let html = args.out.join("attention.html");
    let words = &ours.words;
    write(&svg, &heat_map::picture(words, best, &[&before[0], &after[0]])?)?;
    explorer.start(best.layer, best.head).write(&html)?;
    say!("\nPlots:");
    say!("  {:<40} all heads, before and after training", svg.display());
    say!("  {:<40} interactive: weights, scores and ablations of every head", html.display());

    let good = judged.weight > 0.5 && accuracy > 0.95;
    if args.check && !good {
        note!("error: the model did not learn to resolve \"it\"");
        return Ok(false);
    }
    Ok(true)
}

/// Prints a line for each word: the weights before and after training, as numbers and bars.
fn print_rows(sentence: &Sentence, before: &[f32], after: &[f32]) {
    const BAR: f32 = 24.0;
    let bar = |w: f32| "█".repeat((w * BAR).round() as usize);
    say!("  {:<12} {:<33} after training", "", "before training");
    for (i, word) in sentence.words[..=sentence.it].iter().enumerate() {
        let (b, a) = (before[i], after[i]);
        say!("  {word:<12} {b:.3} {:<27} {a:.3} {}", bar(b), bar(a));
    }
}

fn write(path: &Path, text: &str) -> Result<(), Box<dyn Error>> {
    std::fs::write(path, text).map_err(|e| format!("cannot write {}: {e}", path.display()).into())
}

impl std::fmt::Display for Head {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "head {} of layer {}", self.head + 1, self.layer + 1)
    }
}
