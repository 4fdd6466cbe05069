//! Cross-attention: an encoder reads a date in one of many formats, a decoder writes it in the format of
//! ISO 8601, and attends to the characters that each symbol depends on.

use crate::dates::{Date, FORMATS, Pair, decode, encode, encode_iso};
use crate::training::{BATCH, train};
use crate::translator::{Translator, behind_start};
use retrograd::prelude::*;
use retrograd::study::{AttentionExplorer, ExplorerText};
use std::error::Error;
use std::path::Path;

/// Held-out dates per format in the evaluation.
const EACH: usize = 200;

/// Trains and evaluates the model, and translates what is asked; whether enough held-out dates are exact.
pub fn run(seed: u64, steps: u64, asked: &[&str], page: &Path) -> Result<bool, Box<dyn Error>> {
    // A tenth of all dates is held out, in all formats.
    let mut rng = Rng::new(seed);
    let dates: Vec<Date> = Date::all().collect();
    let order = Tensor::<i64>::randperm(dates.len(), &mut rng).to_vec();
    let dates: Vec<Date> = order.iter().map(|&i| dates[i as usize]).collect();
    let (held_out, known) = dates.split_at(dates.len() / 10);
    let model = Translator::new(&mut rng);
    println!(
        "An encoder and a decoder of {} parameters learn {} dates in {FORMATS} formats;\n\
         {} other dates are held out.\n",
        model.num_parameters(),
        known.len(),
        held_out.len()
    );
    let pair = |i: usize| Pair { written: held_out[i].written(2 + i), date: held_out[i] };
    let shown = [pair(0), pair(1), pair(2)];
    let title = "Dates by cross-attention";
    let mut explorer = AttentionExplorer::new(title).ablations(true);
    explorer.page.note(
        "The encoder reads a date, and the decoder writes it in the format of ISO 8601. A query of the \
         decoder is labelled by the symbol that it writes.",
    );
    record(&mut explorer, "before training", &model, &shown)?;
    // Teacher forcing: each symbol is predicted from the true ones before it.
    train(&model, steps, (2e-3, 1e-5, 0.01), |pass| {
        let pairs: Vec<Pair> =
            (0..BATCH).map(|_| Pair::of(known[rng.below(known.len())], &mut rng)).collect();
        Batch::new(&pairs).map(|batch| batch.loss(&model, pass))
    })?;
    record(&mut explorer, "after training", &model, &shown)?;

    println!("On {EACH} held-out dates in each format, the ISO date is exact in");
    let mut right = 0;
    for format in 0..FORMATS {
        let some = held_out.iter().skip(format * 61 % (held_out.len() - EACH)).take(EACH);
        let pairs: Vec<Pair> =
            some.map(|&date| Pair { written: date.written(format), date }).collect();
        let exact = exact(&model, &pairs)?;
        right += exact;
        let percent = 100.0 * exact as f64 / EACH as f64;
        println!("  {percent:5.1} %  of those like \"{}\"", pairs[0].written);
    }
    let accuracy = right as f64 / (EACH * FORMATS) as f64;
    // As counts: a percentage could be rounded to 100 although not all are exact.
    println!("together {right} of {}.\n", EACH * FORMATS);

    print_alignment(&model, &shown[0].written)?;
    explorer.page.write(page)?;
    println!("\n{} shows weights and scores of every head", page.display());
    if !asked.is_empty() {
        let (tokens, lengths) = encode(asked)?;
        let translated = model.translate(&tokens, &lengths);
        println!();
        for (i, text) in asked.iter().enumerate() {
            println!("  {text:<32} {}", decode(&translated.select(0, i).to_vec()));
        }
    }
    Ok(accuracy > 0.95)
}

/// Pairs as tokens.
struct Batch {
    characters: Tensor<i64>,
    /// The number of characters of each.
    lengths: Vec<usize>,
    /// The symbols to write.
    targets: Tensor<i64>,
}

impl Batch {
    fn new(pairs: &[Pair]) -> Result<Batch, String> {
        let written: Vec<&str> = pairs.iter().map(|p| p.written.as_str()).collect();
        let dates: Vec<Date> = pairs.iter().map(|p| p.date).collect();
        let (characters, lengths) = encode(&written)?;
        Ok(Batch { characters, lengths, targets: encode_iso(&dates) })
    }

    /// The loss of predicting each symbol from the true ones before it.
    fn loss(&self, model: &Translator, pass: &mut Pass) -> Var {
        let memory = model.read(&self.characters, &self.lengths, pass);
        let scores = model.write(&memory, &behind_start(&self.targets), pass);
        scores.cross_entropy(&self.targets, CrossEntropy::default())
    }
}

/// Records the attention of the model on pairs, with their losses.
fn record(
    explorer: &mut AttentionExplorer,
    snapshot: &str,
    model: &Translator,
    pairs: &[Pair],
) -> Result<(), String> {
    for pair in pairs {
        let batch = Batch::new(std::slice::from_ref(pair))?;
        let letters = |text: &str| text.chars().map(String::from).collect::<Vec<_>>();
        let text = ExplorerText::new(&pair.written, letters(&pair.date.to_string()));
        let text = text.source(letters(&pair.written));
        explorer.record(snapshot, model, &text, || batch.loss(model, &mut Pass::eval()));
    }
    Ok(())
}

/// The number of pairs that are translated exactly.
fn exact(model: &Translator, pairs: &[Pair]) -> Result<usize, String> {
    let Batch { characters, lengths, targets } = Batch::new(pairs)?;
    let translated = model.translate(&characters, &lengths);
    let same = |i: &usize| {
        let row = |t: &Tensor<i64>| t.select(0, *i).to_vec();
        row(&translated) == row(&targets)
    };
    Ok((0..pairs.len()).filter(same).count())
}

/// Translates one date, and prints a line for each symbol, with a shade under each character: darker is a
/// larger weight.
fn print_alignment(model: &Translator, written: &str) -> Result<(), String> {
    const SHADES: [char; 5] = [' ', '░', '▒', '▓', '█'];
    let (characters, lengths) = encode(&[written])?;
    let symbols = model.translate(&characters, &lengths);
    let memory = no_grad(|| model.read(&characters, &lengths, &mut Pass::eval()));
    let maps = model.alignment(&memory, &behind_start(&symbols));
    let weights = maps.last().expect("a layer").select(0, 0).mean(0);
    println!("Cross-attention weights of the last decoder layer, mean over its heads:\n");
    println!("      {written}");
    for (i, symbol) in decode(&symbols.to_vec()).chars().enumerate() {
        let row = weights.select(0, i).to_vec();
        let shade = |w: f32| SHADES[((w.sqrt() * 5.0) as usize).min(4)];
        println!("    {symbol} {}", row.into_iter().map(shade).collect::<String>());
    }
    Ok(())
}
