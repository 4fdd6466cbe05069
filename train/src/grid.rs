//! Runs of recipes that differ in some flags, and a table of their results: `grid`.

use crate::compare;
use crate::files;
use crate::flags::{NewRun, RunFlags};
use crate::folder::Folder;
use crate::line::{Done, Line};
use crate::output::{note, say, silently};
use crate::paired::Paired;
use crate::progress::duration;
use crate::ranks::Ranks;
use crate::resume;
use crate::stop::{OrFailed, Result, Stop, failed, usage};
use crate::train::{Job, Train, ends_as, fresh, train_run};
use clap::{Args, Parser};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

/// Train a run for each combination of values of flags, and print a table
///
/// As `grid lr=1e-3,4e-3 seed=1,2,3 --preset fast`: six runs, each in a folder of --out. Under mpiexec, each rank
/// trains whole runs. Finished runs are not repeated, interrupted ones are resumed. Runs with the same seed share the
/// initial weights whose name and shape agree, and other recipes are compared with the first one in pairs of seeds.
#[derive(Args, Debug)]
pub struct Grid {
    /// Flags of train, without --, and their values
    #[arg(required = true, value_name = "FLAG=VALUES")]
    values: Vec<String>,

    /// The folder of the runs
    #[arg(long, value_name = "DIR", default_value = "out/grid")]
    out: PathBuf,

    #[command(flatten)]
    pub new: NewRun,

    #[command(flatten)]
    pub run: RunFlags,
}

/// A command line of `train`.
#[derive(Parser)]
#[command(name = "train")]
struct TrainLine {
    #[command(flatten)]
    train: Train,

    // Flags of all commands, which the grid has obeyed.
    #[arg(long)]
    threads: Option<usize>,
    #[arg(long)]
    quiet: bool,
}

/// A run of a grid.
pub struct Point {
    /// The flags that vary, as `lr=1e-3,seed=2`.
    pub name: String,
    pub folder: PathBuf,
    pub args: Train,
}

/// The result of a run, or why it failed.
#[derive(Clone, Serialize, Deserialize)]
struct Outcome {
    index: usize,
    result: Result<Done, String>,
}

/// Trains all runs of the grid, divided among the ranks, each run by one rank. A run that fails does not end the
/// others; one that is finished is not repeated, and one that was interrupted is resumed.
///
/// `line` is the command line.
pub fn grid(args: &Grid, line: &[OsString], ranks: &Ranks) -> Result<()> {
    let root = &args.out;
    let points = points(args, line)?;
    let mut outcomes = Vec::new();
    let mut interrupted = None;
    for index in (ranks.rank()..points.len()).step_by(ranks.count()) {
        let point @ Point { name, .. } = &points[index];
        let result = match silently(|| run(point)) {
            Ok(done) => {
                let (time, Done { val_loss, steps, .. }) = (duration(done.seconds), &done);
                note!("{name}: held-out loss {val_loss:.4} after {steps} steps in {time}");
                Ok(done)
            }
            Err(stop) if stop.is_signal() => {
                interrupted = Some(stop.code);
                break;
            }
            Err(stop) => {
                note!("{name}: failed: {}", stop.text);
                Err(stop.text)
            }
        };
        outcomes.push(Outcome { index, result });
    }
    let mut all: Vec<Outcome> = ranks.share(&outcomes).into_iter().flatten().collect();
    all.sort_by_key(|outcome| outcome.index);
    let signal = ranks.share(&interrupted).into_iter().flatten().next();
    if ranks.is_first() && !all.is_empty() {
        report(&points, &all, root)?;
        if !args.run.no_page {
            let folders: Vec<PathBuf> = points.iter().map(|point| point.folder.clone()).collect();
            compare::write_or_warn(&folders, &root.join("compare.html"), None);
        }
    }
    let is_done = |outcome: &&Outcome| outcome.result.is_ok();
    let done = all.iter().filter(is_done).map(|outcome| &*points[outcome.index].name);
    let done: Vec<&str> = done.collect();
    match signal {
        Some(code) => {
            let (n, of, names) = (done.len(), points.len(), done.join("; "));
            let names = if n == 0 { names } else { format!(" ({names})") };
            let text =
                format!("Stopped; {n} of {of} runs are done{names}. The same command goes on");
            Err(Stop { code, text })
        }
        None if done.is_empty() => failed("every run failed"),
        None => Ok(()),
    }
}

/// All combinations of the values of the flags.
fn points(args: &Grid, line: &[OsString]) -> Result<Vec<Point>> {
    let mut combinations: Vec<Vec<(&str, &str)>> = vec![Vec::new()];
    for part in &args.values {
        let Some((flag, values)) = part.split_once('=').filter(|(flag, _)| !flag.is_empty()) else {
            return usage(format!("{part:?} is not FLAG=VALUE,VALUE,.., as lr=1e-3,4e-3"));
        };
        let flag = flag.trim_start_matches('-');
        let mut longer = Vec::new();
        for so_far in &combinations {
            longer.extend(values.split(',').map(|value| [&so_far[..], &[(flag, value)]].concat()));
        }
        combinations = longer;
    }
    let points = combinations.iter().map(|flags| combination(flags, args, line));
    let mut points = points.collect::<Result<Vec<Point>>>()?;
    // The first weights are those of the first row with the same seed, where name and shape agree.
    for i in 1..points.len() {
        let (name, seed) = without_seed(&points[i].name);
        let first = points.iter().find(|first| without_seed(&first.name).1 == seed);
        let first = first.filter(|first| without_seed(&first.name).0 != name);
        points[i].args.new.base = first.map(|first| Box::new(first.args.new.clone()));
    }
    Ok(points)
}

/// The run with these flags, beside those of the command line.
fn combination(flags: &[(&str, &str)], args: &Grid, line: &[OsString]) -> Result<Point> {
    let parts: Vec<String> = flags.iter().map(|(flag, value)| format!("{flag}={value}")).collect();
    // A name of a file.
    let name = parts.join(",").replace(['/', '\\'], "_");
    let values: Vec<OsString> = args.values.iter().map(Into::into).collect();
    let words = without(after(line, "grid"), &["--out"], &values).into_iter();
    let flags = flags.iter().map(|(flag, value)| format!("--{flag}={value}").into());
    point(name.clone(), args.out.join(name), words.chain(flags))
}

/// The arguments after a command.
pub fn after<'a>(line: &'a [OsString], command: &str) -> &'a [OsString] {
    let at = line.iter().position(|word| word == command);
    at.map_or(&[], |at| &line[at + 1..])
}

/// The run with these flags of `train`, which keeps no checkpoints by default.
pub fn point(
    name: String,
    folder: PathBuf,
    flags: impl Iterator<Item = OsString>,
) -> Result<Point> {
    let train = ["train".into(), "--out".into(), folder.clone().into_os_string()];
    let train = train.into_iter().chain(flags);
    let TrainLine { train: mut args, .. } = TrainLine::try_parse_from(train).or_else(|e| {
        let text = e.to_string();
        usage(format!("{name}: {}", text.trim_start_matches("error: ").trim_end()))
    })?;
    if args.run.keep_every.is_none() {
        args.run.keep_size.get_or_insert(0);
    }
    Ok(Point { name, folder, args })
}

/// The arguments without some flags and their values, and without some words.
pub fn without(line: &[OsString], flags: &[&str], words: &[OsString]) -> Vec<OsString> {
    let (mut all, mut kept) = (line.iter(), Vec::new());
    while let Some(argument) = all.next() {
        let text = argument.to_string_lossy();
        if flags.contains(&&*text) {
            all.next();
        } else if !text.split_once('=').is_some_and(|(flag, _)| flags.contains(&flag))
            && !words.contains(argument)
        {
            kept.push(argument.clone());
        }
    }
    kept
}

/// Trains a run, unless it is finished.
///
/// # Errors
/// Also if there is a run of other flags, or of another text.
pub fn run(Point { folder, args, .. }: &Point) -> Result<Done> {
    let (ranks, out) = (Ranks::alone(), Some(&**folder));
    let new @ NewRun { data, preset, .. } = &args.new;
    let earlier = || {
        let earlier = resume::earlier(out, None, data.as_deref(), Some(new), &ranks)?;
        match ends_as(new, &earlier.run) {
            true => Ok(earlier),
            false => usage(format!(
                "the run in {} has another number of steps, or other minutes; name another --out",
                folder.display()
            )),
        }
    };
    if let Some(done) = finished(folder) {
        let run = earlier()?.run;
        if run.step == run.recipe.steps {
            return Ok(done);
        }
    }
    let begin = || match folder.join("checkpoint.safetensors").exists() {
        true => earlier(),
        false => fresh(new, &args.pages),
    };
    let job = Job { flags: &args.run, quiet: true, pages: &args.pages, preset: *preset, out };
    train_run(begin, &job, &ranks)?;
    finished(folder).ok_or("its log has no result").or_failed(folder.display())
}

/// The result of a finished run.
pub fn finished(folder: &Path) -> Option<Done> {
    let log = files::read(&Folder::from(folder.to_path_buf()).log()).ok()?;
    String::from_utf8(log).ok()?.lines().rev().find_map(|line| match Line::read(line) {
        Ok(Line::Done(done)) => Some(done),
        _ => None,
    })
}

/// The name of a point without its seed, and the seed.
fn without_seed(name: &str) -> (String, Option<&str>) {
    let parts = name.split(',');
    let (seeds, others): (Vec<&str>, Vec<&str>) = parts.partition(|p| p.starts_with("seed="));
    (others.join(","), seeds.first().copied())
}

/// The recipes other than that of the first row, against it: their bits per byte in pairs with the same seed.
fn against_first(points: &[Point], outcomes: &[Outcome]) -> Vec<(String, Paired)> {
    let loss = |outcome: &Outcome| {
        let (name, seed) = without_seed(&points[outcome.index].name);
        let is_same_text = points[outcome.index].args.new.data == points[0].args.new.data;
        let bits = outcome.result.as_ref().ok()?.bits_per_byte().filter(|_| is_same_text);
        Some((name, seed?.to_string(), bits?))
    };
    let losses: Vec<_> = outcomes.iter().filter_map(loss).collect();
    let (first, _) = without_seed(&points[0].name);
    let mut differences: Vec<(String, Vec<f64>)> = Vec::new();
    for (name, seed, loss) in losses.iter().filter(|(name, ..)| *name != first) {
        let Some(base) = losses.iter().find(|(n, s, _)| *n == first && s == seed) else { continue };
        match differences.iter_mut().find(|(other, _)| other == name) {
            Some((_, all)) => all.push(loss - base.2),
            None => differences.push((name.clone(), vec![loss - base.2])),
        }
    }
    let several = differences.into_iter().filter(|(_, all)| all.len() > 1);
    several.map(|(name, all)| (name, Paired::of(&all))).collect()
}

/// Prints a table, and writes it as `grid.csv`.
fn report(points: &[Point], outcomes: &[Outcome], root: &Path) -> Result<()> {
    let losses = outcomes.iter().flat_map(|outcome| &outcome.result).map(|done| done.val_loss);
    let best = losses.fold(f64::INFINITY, f64::min);
    let width = points.iter().map(|point| point.name.len()).max().unwrap_or(0);
    let mut csv = "run,held-out loss,bits per byte,steps,parameters,seconds,failure\n".to_string();
    say!("{:<width$}  held-out loss   parameters   time", "");
    for Outcome { index, result } in outcomes {
        let name = &points[*index].name;
        match result {
            Ok(done) => {
                let &Done { params, steps, seconds, val_loss, .. } = done;
                let mark = if val_loss == best { " *" } else { "" };
                let time = duration(seconds);
                say!("{name:<width$}  {val_loss:>13.4}   {params:>10}   {time}{mark}");
                let bits = done.bits_per_byte().unwrap_or(f64::NAN);
                csv += &format!("\"{name}\",{val_loss},{bits},{steps},{params},{seconds},\n");
            }
            Err(why) => {
                say!("{name:<width$}  failed: {}", why.lines().next().unwrap_or_default());
                csv += &format!("\"{name}\",,,,,,\"{}\"\n", why.replace('"', "'"));
            }
        }
    }
    for (name, paired) in against_first(points, outcomes) {
        let (verdict, Paired { mean, pairs, .. }) = (paired.verdict(&name), paired);
        say!("{verdict}: {mean:+.4} bits per byte compared with the first row, in {pairs} pairs");
    }
    let path = root.join("grid.csv");
    let written = fs::create_dir_all(root).and_then(|()| fs::write(&path, csv));
    written.or_failed(format!("cannot write {}", path.display()))?;
    let mark = if best.is_finite() { "* the best one. " } else { "" };
    say!("\n{mark}The runs and the table as grid.csv are in {}", root.display());
    Ok(())
}
