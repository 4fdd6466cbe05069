//! Cross-attention: an encoder reads a date in one of many formats, a decoder writes it in that of
//! ISO 8601, and attends to the characters that each symbol depends on.
//!
//! `cargo run --release --example translate_dates` takes about a minute. Read [`dates`] (the
//! data), [`translator`] (the model), then this file.

mod alignment;
#[path = "../common/bar.rs"]
mod bar;
mod dates;
#[path = "../common/environment.rs"]
mod environment;
#[path = "../common/output.rs"]
mod output;
mod page;
#[path = "../common/svg.rs"]
mod svg;
mod translator;
#[path = "../common/weights.rs"]
mod weights;

use bar::Bar;
use clap::Parser;
use dates::{Date, FORMATS, Pair, decode, encode, encode_iso};
use output::{note, say};
use retrograd::nn::schedule::Schedule;
use retrograd::prelude::*;
use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;
use translator::{Translator, behind_start};

/// Trains an encoder and a decoder to rewrite dates, and shows the cross-attention weights.
#[derive(Parser)]
#[command(version)]
struct Args {
    /// Training steps, of 64 dates each
    #[arg(long, default_value_t = 1500, value_parser = clap::value_parser!(u64).range(1..))]
    steps: u64,
    /// Seed of weights, data and dropout
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Folder for the picture
    #[arg(long, default_value = "out/translate_dates")]
    out: PathBuf,
    /// A date to translate after training, such as "Tuesday, May 3, 1988"; can be given again
    #[arg(long)]
    date: Vec<String>,
    /// Fail unless 95 % of the held-out dates are translated exactly
    #[arg(long)]
    check: bool,
}

/// The batch size.
const BATCH: usize = 64;
/// Held-out dates per format in the evaluation.
const EACH: usize = 200;

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
    let asked: Vec<&str> = args.date.iter().map(|d| d.as_str()).collect();
    encode(&asked)?;
    std::fs::create_dir_all(&args.out)
        .map_err(|e| format!("cannot make the folder {}: {e}", args.out.display()))?;
    // A tenth of all dates is held out, in all formats.
    let mut rng = Rng::new(args.seed);
    let dates: Vec<Date> = Date::all().collect();
    let order = Tensor::<i64>::randperm(dates.len(), &mut rng).to_vec();
    let dates: Vec<Date> = order.iter().map(|&i| dates[i as usize]).collect();
    let (held_out, known) = dates.split_at(dates.len() / 10);
    let model = Translator::new(&mut rng);
    say!(
        "An encoder and a decoder of {} parameters learn {} dates in {FORMATS} formats;\n\
         {} other dates are held out.\n",
        model.num_parameters(),
        known.len(),
        held_out.len()
    );
    let pair = |i: usize| Pair { written: held_out[i].written(2 + i), date: held_out[i] };
    let shown = [pair(0), pair(1), pair(2)];
    let mut explorer = page::explorer();
    page::record(&mut explorer, "before training", &model, &shown)?;
    learn(&model, known, args.steps, &mut rng)?;
    page::record(&mut explorer, "after training", &model, &shown)?;

    say!("On {EACH} held-out dates in each format, the ISO date is exact in");
    let mut right = 0;
    for format in 0..FORMATS {
        let some = held_out.iter().skip(format * 61 % (held_out.len() - EACH)).take(EACH);
        let pairs: Vec<Pair> =
            some.map(|&date| Pair { written: date.written(format), date }).collect();
        let exact = exact(&model, &pairs)?;
        right += exact;
        let percent = 100.0 * exact as f64 / EACH as f64;
        say!("  {percent:5.1} %  of those like \"{}\"", pairs[0].written);
    }
    let accuracy = right as f64 / (EACH * FORMATS) as f64;
    // As counts: a percentage could be rounded to 100 although not all are exact.
    say!("together {right} of {}.\n", EACH * FORMATS);

    show(&model, &shown[0].written, args)?;
    let path = args.out.join("attention.html");
    explorer.write(&path)?;
    say!("  {} is interactive: weights and scores of every head", path.display());
    if !asked.is_empty() {
        let (tokens, lengths) = encode(&asked)?;
        let translated = model.translate(&tokens, &lengths);
        say!("");
        for (i, text) in asked.iter().enumerate() {
            say!("  {text:<32} {}", decode(&translated.select(0, i).to_vec()));
        }
    }
    if args.check && accuracy <= 0.95 {
        note!("error: too few dates are exact");
        return Ok(false);
    }
    Ok(true)
}

/// Trains by teacher forcing: each symbol is predicted from the true ones before it.
fn learn(
    model: &Translator,
    dates: &[Date],
    steps: u64,
    rng: &mut Rng,
) -> Result<(), Box<dyn Error>> {
    let config =
        AdamConfig { lr: 2e-3, betas: (0.9, 0.99), weight_decay: 0.01, ..AdamConfig::default() };
    let mut adam = AdamW::new(model, config)?;
    let schedule =
        Schedule::WarmupCosine { lr: 2e-3, min_lr: 1e-5, warmup: (steps / 10).min(100), steps };
    let bar = Bar::new(steps);
    for step in 0..steps {
        let pairs: Vec<Pair> =
            (0..BATCH).map(|_| Pair::of(dates[rng.below(dates.len())], rng)).collect();
        let Batch { characters, lengths, targets } = Batch::new(&pairs)?;
        let mut pass = Pass::train_step(1, step);
        let memory = model.read(&characters, &lengths, &mut pass);
        let scores = model.write(&memory, &behind_start(&targets), &mut pass);
        let loss = scores.cross_entropy(&targets, CrossEntropy::default());
        let mut grads = loss.backward();
        grads.clip_norm(1.0);
        adam.set_lr(schedule.lr(step));
        adam.step(&grads)?;
        bar.step(step + 1, loss.item());
    }
    bar.end();
    Ok(())
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

/// Translates one date, and plots the cross-attention weights.
fn show(model: &Translator, written: &str, args: &Args) -> Result<(), Box<dyn Error>> {
    let (characters, lengths) = encode(&[written])?;
    let symbols = model.translate(&characters, &lengths);
    let iso = decode(&symbols.to_vec());
    let memory = no_grad(|| model.read(&characters, &lengths, &mut Pass::eval()));
    let maps = model.alignment(&memory, &behind_start(&symbols));
    let maps: Vec<Tensor> = maps.iter().map(|m| m.select(0, 0)).collect();
    let last = maps.last().expect("a layer");
    say!("Cross-attention weights of the last decoder layer, mean over its heads:\n");
    alignment::print(&last.mean(0), written, &iso);
    let path = args.out.join("alignment.svg");
    std::fs::write(&path, alignment::picture(&maps, written, &iso)?)
        .map_err(|e| format!("cannot write {}: {e}", path.display()))?;
    say!("\n  {} shows every head", path.display());
    Ok(())
}
