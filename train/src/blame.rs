//! Which sequences of a batch moved the weights: `blame`.

use crate::files::make_folder_of;
use crate::flags::quoted;
use crate::output::say;
use crate::past::Past;
use crate::stop::{OrFailed, Result, usage};
use crate::xray;
use clap::Args;
use retrograd::autograd::per_sample;
use retrograd::nn::training::Step;
use retrograd::prelude::*;
use retrograd::study::Page;
use serde::Serialize;
use serde_json::json;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

/// The sequences without which the step is taken again, and the rows that are printed.
const WITHOUT: usize = 3;
const ROWS: usize = 12;

/// Report which sequences of the batch of a step moved the weights, and which made the held-out loss worse
///
/// The gradient of the step is the mean of those of its sequences, each of which is computed alone, with the same
/// dropout. A page shows the texts, with the loss of each token.
#[derive(Args, Debug)]
pub struct Blame {
    /// The folder of the run
    #[arg(value_name = "DIR")]
    run: PathBuf,

    /// The number of the step, from 1
    #[arg(value_name = "STEP")]
    step: u64,

    /// The text of the run, if it has been moved
    #[arg(long, value_name = "FILE")]
    data: Option<PathBuf>,

    /// Take the step again without each of the N sequences with the largest gradients [default: 3]
    ///
    /// The held-out loss after it is compared with that after the step as it was.
    #[arg(long, value_name = "N")]
    without: Option<usize>,

    /// The file of the page [default: blame-N.html in the folder of the run, after N steps]
    #[arg(long, value_name = "FILE")]
    page: Option<PathBuf>,

    /// Write no page
    #[arg(long, conflicts_with = "page")]
    no_page: bool,
}

/// A sequence of the batch.
#[derive(Clone, Debug, Serialize)]
struct Sequence {
    /// Its place in the batch, from 1.
    number: usize,
    loss: f64,
    loss_share: f64,
    norm: f64,
    norm_share: f64,
    /// Of its gradient and the sum of the gradients of the others.
    cosine: Option<f64>,
    /// By how much it made the held-out loss after the step larger.
    effect: Option<f64>,
    /// The first one is not predicted.
    labels: Vec<String>,
    losses: Vec<f32>,
    start: String,
}

/// Prints the sequences of a step, and writes the page.
pub fn blame(args: &Blame) -> Result<()> {
    let past = Past::open(&args.run, args.data.as_deref())?;
    past.check_step(args.step)?;
    let (name, n) = (past.folder.name(), args.step);
    if !past.steps.contains_key(&n) {
        return usage(format!("the run in {name} has ended before step {n}, or failed in it"));
    }
    let batch = past.run.recipe.batch;
    let without = match args.without {
        Some(1..) if batch == 1 => {
            return usage("a batch of one sequence has no step without it; --without 0 takes none");
        }
        None if batch == 1 => 0,
        asked => asked.unwrap_or(WITHOUT).min(batch),
    };
    let (step, held_out, sequences) =
        with_matmul_precision(past.run.recipe.precision, || analyse(&past, n, without))?;
    let sentence = sentence(&sequences[0]);
    print(&sequences);
    say!("{sentence}.");
    if args.no_page {
        return Ok(());
    }
    let default = || past.folder.join(&format!("blame-{}.html", n - 1));
    let path = args.page.clone().unwrap_or_else(default);
    make_folder_of(&path)?;
    let xray = xray::page_of(n - 1);
    let data = json!({
        "title": format!("The batch of step {n} of {name}"),
        "sentence": sentence,
        "step": { "loss": step.loss, "norm": step.grad_norm, "lr": step.lr, "held_out": held_out },
        "xray": path.with_file_name(&xray).exists().then_some(xray),
        "command": format!("retrograd replay {} {n} --xray", quoted(&name)),
        "sequences": sequences,
    });
    let page = Page::new(&format!("Step {n} of {name}"), &data).script(include_str!("blame.js"));
    page.write(&path).or_failed(format!("cannot write {}", path.display()))?;
    say!("The page is {}", path.display());
    Ok(())
}

/// The step, the held-out loss after it, and the sequences of its batch, those with the largest gradients first.
fn analyse(past: &Past, number: u64, without: usize) -> Result<(Step, f64, Vec<Sequence>)> {
    let mut replay = past.replay()?;
    replay.go_to(number - 1)?;
    let trainer = &replay.session.trainer;
    let before = trainer.checkpoint().expect("there is one process");
    let (batch, shards) = (trainer.batch(), trainer.shards());
    let mut sum = Gradients::empty();
    let step = replay.step(|grads| sum = grads.clone())?;
    replay.check()?;
    let mut session = replay.session;
    let held_out = session.evaluate()?.val_loss;
    session.trainer.load(&before).or_failed("cannot go back")?;

    let n = batch.tokens.size(0);
    sum.scale(n as f32);
    let rest = |own: &Gradients| {
        let mut rest = sum.clone();
        rest.axpy(-1.0, own);
        rest
    };
    let losses = Mutex::new(vec![Vec::new(); n]);
    let loss = |i| {
        let each = shards.token_losses(i);
        losses.lock().unwrap_or_else(PoisonError::into_inner)[i] = each.value().to_vec();
        each.mean(..)
    };
    let gradients =
        per_sample(n, loss, |own| (own.norm(), (n > 1).then(|| own.cosine(&rest(&own)))));
    let norms: f64 = gradients.iter().map(|(norm, _)| norm).sum();
    let losses = losses.into_inner().unwrap_or_else(PoisonError::into_inner);
    let sequence = |(i, ((norm, cosine), losses)): (usize, (_, Vec<f32>))| {
        let loss = losses.iter().map(|&x| f64::from(x)).sum::<f64>() / losses.len() as f64;
        let (tokens, targets) = (batch.tokens.select(0, i), batch.targets.select(0, i).to_vec());
        let tokens: Vec<i64> = tokens.to_vec().into_iter().take(1).chain(targets).collect();
        let tokenizer = &past.run.tokenizer;
        Sequence {
            number: i + 1,
            loss,
            loss_share: loss / (step.loss * n as f64),
            norm,
            norm_share: norm / norms,
            cosine,
            effect: None,
            labels: tokens.iter().map(|&token| tokenizer.label(token)).collect(),
            losses,
            start: tokenizer.decode(&tokens).chars().take(40).collect(),
        }
    };
    let each = gradients.into_iter().zip(losses).enumerate();
    let mut sequences: Vec<Sequence> = each.map(sequence).collect();
    sequences.sort_by(|a, b| b.norm.total_cmp(&a.norm));

    for sequence in &mut sequences[..without] {
        let mut others = rest(&shards.token_losses(sequence.number - 1).mean(..).backward());
        let count = (n - 1) as f64;
        others.scale((1.0 / count) as f32);
        let loss = (step.loss * n as f64 - sequence.loss) / count;
        let stepped = session.trainer.step_by(loss as f32, others);
        stepped.or_failed(format!("the step without sequence {} fails", sequence.number))?;
        sequence.effect = Some(held_out - session.evaluate()?.val_loss);
        session.trainer.load(&before).or_failed("cannot go back")?;
    }
    Ok((step, held_out, sequences))
}

/// What the first sequence has done.
fn sentence(first: &Sequence) -> String {
    let share = 100.0 * first.norm_share;
    let text = format!("Sequence {} has {share:.0} % of the gradient norms", first.number);
    let Some(effect) = first.effect else { return text };
    let (size, side) = (effect.abs(), if effect > 0.0 { "lower" } else { "higher" });
    format!("{text}; without it the held-out loss after the step is {size:.4} {side}")
}

/// Prints a table of the first sequences.
fn print(sequences: &[Sequence]) {
    let or = |x: Option<String>| x.unwrap_or_else(|| "–".into());
    say!("rank  sequence     loss  of losses  of gradient norms  cosine  on held-out loss  text");
    for (i, one) in sequences.iter().take(ROWS).enumerate() {
        say!(
            "{:>4}  {:>8}  {:>7.4}  {:>7.1} %  {:>15.1} %  {:>6}  {:>16}  {:?}",
            i + 1,
            one.number,
            one.loss,
            100.0 * one.loss_share,
            100.0 * one.norm_share,
            or(one.cosine.map(|x| format!("{x:.3}"))),
            or(one.effect.map(|x| format!("{x:+.5}"))),
            one.start
        );
    }
    if sequences.len() > ROWS {
        say!("and {} more, with smaller gradients", sequences.len() - ROWS);
    }
}
