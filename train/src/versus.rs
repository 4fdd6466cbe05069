//! A comparison of two recipes in pairs of runs: `versus`.

use crate::flags::{NewRun, RunFlags};
use crate::folder::Folder;
use crate::grid::Point;
use crate::output::{note, say, silently};
use crate::paired::Paired;
use crate::presets::Preset;
use crate::progress::duration;
use crate::recipe::Recipe;
use crate::run::Run;
use crate::stop::{OrFailed, Result, Stop, failed, usage};
use crate::text::Source;
use crate::values::count;
use crate::{compare, grid};
use clap::{Args, ValueEnum};
use indicatif::HumanBytes;
use retrograd::nn::checkpoint::write_atomically;
use retrograd::tensor::storage::pool_stats;
use serde::Serialize;
use serde_json::json;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

const DIFFERENT_TEXTS: &str = "A and B have different texts, so their losses cannot be compared";

/// Compare two recipes by pairs of runs, until it is decided which one is better
///
/// As `versus 'lr=1e-3' 'lr=2e-3 layers=3' --preset fast`. The runs of a pair have the same batches, dropout masks and, where
/// name and shape agree, initial weights. Finished runs are not repeated, interrupted ones are resumed.
#[derive(Args, Debug)]
pub struct Versus {
    /// The first recipe: flags of train in quotes, a preset, or the folder of a run
    #[arg(allow_hyphen_values = true)]
    a: String,

    /// The second one
    #[arg(allow_hyphen_values = true)]
    b: String,

    /// The most pairs, each with a seed of its own: --seed and those that follow it; 4 are the fewest that can decide
    #[arg(long, value_name = "N", value_parser = count(1000), default_value_t = 5)]
    seeds: u64,

    /// The folder of the runs
    #[arg(long, value_name = "DIR", default_value = "out/versus")]
    out: PathBuf,

    #[command(flatten)]
    pub new: NewRun,

    #[command(flatten)]
    pub run: RunFlags,
}

/// The result of a run.
#[derive(Clone, Copy, Serialize)]
struct Outcome {
    /// Bits per byte of all of the held-out text.
    loss: f64,
    seconds: f64,
    /// The peak of the bytes of tensors; `None` if the run was finished before.
    memory: Option<usize>,
}

/// Two runs with the same seed.
#[derive(Serialize)]
struct Pair {
    seed: u64,
    a: Outcome,
    b: Outcome,
}

/// Trains pairs until one recipe is better, or all seeds are used. `line` is the command line.
pub fn versus(args: &Versus, line: &[OsString]) -> Result<()> {
    let line = grid::after(line, "versus");
    if line.get(..2).is_none_or(|sides| sides[0] != *args.a || sides[1] != *args.b) {
        return usage("A and B come first: versus A B, then the flags of both");
    }
    let common = grid::without(&line[2..], &["--out", "--seeds", "--seed"], &[]);
    let [(mut a, text), (mut b, other)] = [side(&args.a)?, side(&args.b)?];
    if let ([Some(text), Some(other)], true) = ([&text, &other], args.new.data.is_none())
        && text.fingerprint != other.fingerprint
    {
        return usage(DIFFERENT_TEXTS);
    }
    // The text of a run is that of both.
    if let Some(file) = text.or(other).and_then(|text| text.file)
        && args.new.data.is_none()
    {
        [&mut a, &mut b]
            .into_iter()
            .for_each(|side| side.push(format!("--data={}", file.display())));
    }
    let flags = [a, b];
    let first: u64 = args.new.given("seed").copied().unwrap_or(Recipe::default().seed);
    let point = |side: usize, seed: u64| {
        let name = format!("{}-{seed}", ["a", "b"][side]);
        let own = flags[side].iter().cloned().chain([format!("--seed={seed}")]).map(OsString::from);
        grid::point(name.clone(), args.out.join(name), common.iter().cloned().chain(own))
    };
    let mut points = Vec::new();
    for seed in first..first.saturating_add(args.seeds) {
        let (a, mut b) = (point(0, seed)?, point(1, seed)?);
        if a.args.new.data != b.args.new.data {
            return usage(DIFFERENT_TEXTS);
        }
        b.args.new.base = Some(Box::new(a.args.new.clone()));
        points.push((seed, [a, b]));
    }
    let (mut pairs, mut failed_runs) = (Vec::new(), [0, 0]);
    for (i, (seed, sides)) in points.iter().enumerate() {
        // Slow changes of the machine concern both.
        let mut outcomes: [Option<Outcome>; 2] = [None; 2];
        for side in if i % 2 == 0 { [0, 1] } else { [1, 0] } {
            outcomes[side] = outcome(&sides[side])?;
            failed_runs[side] += usize::from(outcomes[side].is_none());
        }
        let [Some(a), Some(b)] = outcomes else { continue };
        note!("seed {seed}: A {:.4}, B {:.4}, B - A {:+.4}", a.loss, b.loss, b.loss - a.loss);
        pairs.push(Pair { seed: *seed, a, b });
        if paired(&pairs).decided && failed_runs == [0, 0] {
            break;
        }
    }
    if pairs.is_empty() {
        return failed("no pair of runs is complete");
    }
    report(args, &flags, &pairs, failed_runs)
}

/// Trains a run; `None` if it failed, which is said.
fn outcome(point: &Point) -> Result<Option<Outcome>> {
    let is_new = grid::finished(&point.folder).is_none();
    let done = match silently(|| grid::run(point)) {
        Ok(done) => done,
        Err(stop) if stop.is_signal() => {
            let text = "Stopped. The same command goes on".into();
            return Err(Stop { text, ..stop });
        }
        // Not of the training.
        Err(stop) if stop.is_usage() => return Err(stop),
        Err(stop) => {
            note!("{}: failed, so its seed has no pair: {}", point.name, stop.text);
            return Ok(None);
        }
    };
    let Some(loss) = done.bits_per_byte() else {
        let name = &point.name;
        return failed(format!("{name}: the tokenizer loses bytes, so there are no bits per byte"));
    };
    let memory = is_new.then(|| pool_stats().peak);
    Ok(Some(Outcome { loss, seconds: done.seconds, memory }))
}

fn paired(pairs: &[Pair]) -> Paired {
    Paired::of(&pairs.iter().map(|pair| pair.b.loss - pair.a.loss).collect::<Vec<_>>())
}

/// Prints the result, and writes it as JSON and as a page.
fn report(
    args: &Versus,
    flags: &[Vec<String>; 2],
    pairs: &[Pair],
    failed_runs: [usize; 2],
) -> Result<()> {
    let result = paired(pairs);
    let won = pairs.iter().filter(|pair| pair.b.loss < pair.a.loss).count();
    let equal = pairs.iter().filter(|pair| pair.b.loss == pair.a.loss).count();
    for (name, of) in [("A", (|pair| pair.a) as fn(&Pair) -> Outcome), ("B", |pair| pair.b)] {
        let losses = pairs.iter().map(|pair| of(pair).loss).sum::<f64>() / pairs.len() as f64;
        let mut seconds: Vec<f64> = pairs.iter().map(|pair| of(pair).seconds).collect();
        seconds.sort_by(f64::total_cmp);
        let n = seconds.len();
        let memory = pairs.iter().filter_map(|pair| of(pair).memory).max();
        let memory = memory.map_or("not measured".into(), |n| HumanBytes(n as u64).to_string());
        say!(
            "{name}  {losses:.4} bits per byte, median time {}, memory {memory}",
            duration(seconds[(n - 1) / 2].midpoint(seconds[n / 2]))
        );
    }
    let interval = result
        .interval
        .map_or("not bounded yet".into(), |(low, high)| format!("{low:+.4} to {high:+.4}"));
    say!(
        "B - A: {:+.4} bits per byte, 95 % interval {interval}; of {} pairs, B has won {won}, A {}",
        result.mean,
        pairs.len(),
        pairs.len() - won - equal
    );
    let verdict = match failed_runs {
        [a, b] if a != b => {
            format!("Not decided: {a} runs of A failed, and {b} of B, which have no pairs")
        }
        _ => result.verdict("B"),
    };
    say!("{verdict}");
    let side = |argument: &str, flags: &[String]| json!({ "argument": argument, "flags": flags });
    let (a, b) = (side(&args.a, &flags[0]), side(&args.b, &flags[1]));
    let json = json!({ "a": a, "b": b, "pairs": pairs, "b_minus_a": result, "pairs_won_by_b": won, "failed_runs": failed_runs, "verdict": verdict });
    let path = args.out.join("result.json");
    let written = write_atomically(&path, format!("{json:#}\n").as_bytes());
    written.or_failed(format!("cannot write {}", path.display()))?;
    if !args.run.no_page {
        let path = args.out.join("versus.html");
        let folders: Vec<PathBuf> = pairs
            .iter()
            .flat_map(|pair| ["a", "b"].map(|side| args.out.join(format!("{side}-{}", pair.seed))))
            .collect();
        let page = json!({ "pairs": pairs, "result": result, "verdict": verdict });
        compare::write_or_warn(&folders, &path, Some(page));
    }
    Ok(())
}

/// The flags of a side: those of a preset, of the recipe of a run, which has a text, or as they are.
fn side(text: &str) -> Result<(Vec<String>, Option<Source>)> {
    if Preset::from_str(text, false).is_ok() {
        return Ok((vec![format!("--preset={text}")], None));
    }
    let path = Path::new(text);
    if path.is_dir() {
        let Run { recipe, source, history, .. } =
            Run::load_model(&Folder::earlier(Some(path))?.checkpoint())?;
        let flags = recipe.flags().into_iter().map(|(name, value)| format!("--{name}={value}"));
        let flags: Vec<String> = flags.filter(|flag| !flag.starts_with("--seed=")).collect();
        let point = grid::point(text.into(), path.into(), flags.iter().map(Into::into))?;
        let said = point.args.new.recipe(&Preset::Tales.recipe());
        if !recipe.differences(&said, &["seed"]).is_empty()
            || recipe.config.is_some()
            || history.init_from.is_some()
        {
            return usage(format!(
                "flags cannot say all of the recipe of {text}; give those of train"
            ));
        }
        return Ok((flags, source));
    }
    let with_dashes = |word: &str| match word.contains('=') && !word.starts_with('-') {
        true => format!("--{word}"),
        false => word.to_string(),
    };
    Ok((text.split_whitespace().map(with_dashes).collect(), None))
}
