//! Which sequences of a batch moved the weights: `blame`.

use crate::files::make_folder_of;
use crate::flags::quoted;
use crate::output::say;
use crate::past::{Past, PastArgs};
use crate::stop::{OrFailed, Result, usage};
use crate::xray;
use clap::Args;
use retrograd::autograd::per_sample;
use retrograd::prelude::*;
use retrograd::study::Page;
use serde::Serialize;
use serde_json::json;
use std::path::PathBuf;

/// Report which sequences of the batch of a step moved the weights, and which made the held-out loss worse
///
/// The gradient of the step is the mean of those of its sequences, each of which is computed alone, with the same
/// dropout. A page shows the texts, with the loss of each token.
#[derive(Args, Debug)]
pub struct Blame {
    #[command(flatten)]
    past: PastArgs,

    /// The number of the step, from 1
    #[arg(value_name = "STEP")]
    step: u64,

    /// Take the step again without each of the N sequences with the largest gradients [default: 3]
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
#[derive(Debug, Serialize)]
struct Sequence {
    /// Its place in the batch, from 1.
    number: usize,
    loss: f64,
    loss_share: f64,
    norm: f64,
    norm_share: f64,
    /// Of its gradient and the sum of the gradients of the others, if there are any.
    cosine: f64,
    /// By how much it made the held-out loss after the step larger.
    effect: Option<f64>,
    /// Of the tokens that are predicted.
    labels: Vec<String>,
    losses: Vec<f32>,
}

/// Prints the sequences of a step, and writes the page.
pub fn blame(args: &Blame) -> Result<()> {
    let past = args.past.open()?;
    past.check_step(args.step)?;
    let (name, n, batch) = (past.folder.name(), args.step, past.run.recipe.batch);
    if !past.steps.contains_key(&n) {
        return usage(format!("the run in {name} has ended before step {n}, or failed in it"));
    }
    if batch == 1 && args.without.is_some_and(|n| n > 0) {
        return usage("--without: the batch is a single sequence");
    }
    let without = if batch == 1 { 0 } else { args.without.unwrap_or(3).min(batch) };
    let found = with_matmul_precision(past.run.recipe.precision, || analyse(&past, n, without));
    let (step, sequences) = found?;
    let sentence = print(&sequences);
    say!("{sentence}");
    if args.no_page {
        return Ok(());
    }
    let (xray, own) = (xray::page_of(n - 1), format!("blame-{}.html", n - 1));
    let path = args.page.clone().unwrap_or_else(|| past.folder.join(&own));
    make_folder_of(&path)?;
    let data = json!({
        "step": step,
        "sentence": sentence,
        "xray": path.with_file_name(&xray).exists().then_some(xray),
        "command": format!("retrograd replay {} {n} --xray", quoted(&name)),
        "sequences": sequences,
    });
    let page = Page::new(&format!("The batch of step {n} of {name}"), &data);
    let page = page.script(include_str!("blame.js")).write(&path);
    page.or_failed(format!("cannot write {}", path.display()))?;
    say!("The page is {}", path.display());
    Ok(())
}

/// The step in words, and the sequences of its batch, those with the largest gradients first.
fn analyse(past: &Past, number: u64, without: usize) -> Result<(String, Vec<Sequence>)> {
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
    let without_one = |own: &Gradients| {
        let mut others = sum.clone();
        others.axpy(-1.0, own);
        others
    };
    let loss = |i| shards.token_losses(i).mean(..);
    let gradients = per_sample(n, loss, |own| (own.norm(), own.cosine(&without_one(&own))));
    let norms: f64 = gradients.iter().map(|(norm, _)| norm).sum::<f64>().max(f64::MIN_POSITIVE);
    let sequence = |(i, (norm, cosine))| {
        let losses = no_grad(|| shards.token_losses(i)).value().to_vec();
        let loss = losses.iter().map(|&x| f64::from(x)).sum::<f64>() / losses.len() as f64;
        let targets = batch.targets.select(0, i).to_vec().into_iter();
        let labels = targets.map(|token| past.run.tokenizer.label(token)).collect();
        let (loss_share, norm_share) = (loss / (step.loss * n as f64), norm / norms);
        let (number, effect) = (i + 1, None);
        Sequence { number, loss, loss_share, norm, norm_share, cosine, effect, labels, losses }
    };
    let mut sequences: Vec<Sequence> = gradients.into_iter().enumerate().map(sequence).collect();
    sequences.sort_by(|a, b| b.norm.total_cmp(&a.norm));

    for sequence in &mut sequences[..without] {
        let mut others = without_one(&loss(sequence.number - 1).backward());
        others.scale(1.0 / (n - 1) as f32);
        let stepped = session.trainer.step_with(|grads| *grads = others);
        stepped.or_failed(format!("the step without sequence {} fails", sequence.number))?;
        sequence.effect = Some(held_out - session.evaluate()?.val_loss);
        session.trainer.load(&before).or_failed("cannot go back")?;
    }
    let words = format!(
        "loss {:.4}, gradient norm {:.4}, learning rate {:.2e}; held-out loss after the step {held_out:.4}",
        step.loss, step.grad_norm, step.lr
    );
    Ok((words, sequences))
}

/// Prints a table of the first sequences; returns a sentence about the first one.
fn print(sequences: &[Sequence]) -> String {
    say!("rank  sequence     loss  of losses  of gradient norms  cosine  on held-out loss  text");
    for (rank, one) in (1..=12).zip(sequences) {
        let Sequence { number, loss, cosine, .. } = one;
        let (of_losses, of_norms) = (100.0 * one.loss_share, 100.0 * one.norm_share);
        let effect = one.effect.map_or("–".into(), |x| format!("{x:+.5}"));
        let text: String = one.labels.concat().chars().take(40).collect();
        say!(
            "{rank:>4}  {number:>8}  {loss:>7.4}  {of_losses:>7.1} %  {of_norms:>15.1} %  {cosine:>6.3}  {effect:>16}  {text:?}"
        );
    }
    let (number, share) = (sequences[0].number, 100.0 * sequences[0].norm_share);
    let effect = sequences[0].effect.map_or(String::new(), |x| {
        let side = if x > 0.0 { "lower" } else { "higher" };
        format!("; without it the held-out loss after the step is {:.4} {side}", x.abs())
    });
    format!("Sequence {number} has {share:.0} % of the gradient norms{effect}.")
}
