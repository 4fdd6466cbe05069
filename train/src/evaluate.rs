//! The loss, bits per byte, perplexity and accuracy on held-out text.

use crate::cli::Args;
use crate::folder::Folder;
use crate::line::PerByte;
use crate::output::say;
use crate::ranks::Ranks;
use crate::run::Run;
use crate::signals::StopRequest;
use crate::stop::{OrFailed, Result, Stop, failed};
use crate::text::Text;
use indicatif::HumanCount;
use retrograd::nn::text::{Batch, TextMetrics, Window};
use retrograd::prelude::*;

/// The number of held-out windows in an evaluation during training.
const EVAL_WINDOWS: usize = 64;
/// Held-out windows per batch.
const EVAL_BATCH: usize = 32;
/// The most logits of a batch: 64 MB.
const EVAL_LOGITS: usize = 1 << 24;

/// The metrics over all windows; `None` if a signal was received.
///
/// The batches are divided among ranks, and their metrics added in one order: the result has the same bits
/// for any number of ranks.
pub fn metrics(
    model: &Gpt,
    windows: &[Window<'_>],
    ranks: &Ranks,
    request: &StopRequest,
) -> Option<TextMetrics> {
    let row = model.config().context * model.config().vocab;
    let most = (EVAL_LOGITS / row.max(1)).clamp(1, EVAL_BATCH);
    // The last window may be shorter, and is then a batch of its own.
    let equal = windows.chunk_by(|a, b| a.tokens.len() == b.tokens.len());
    let groups: Vec<&[Window<'_>]> = equal.flat_map(|windows| windows.chunks(most)).collect();
    let mut mine = Some(Vec::new());
    for group in groups.iter().skip(ranks.rank()).step_by(ranks.count()) {
        if request.is_made() {
            mine = None;
            break;
        }
        let Batch { tokens, targets } = Batch::new(group.iter().map(|window| window.tokens));
        let logits = no_grad(|| model.forward(&tokens, &mut Pass::eval()));
        let mut of_group = TextMetrics::default();
        of_group.add(logits.value(), &targets, group.iter().map(|window| window.bytes).sum());
        mine.get_or_insert_default().push(encoded(of_group));
    }
    let all: Option<Vec<Vec<[u64; 4]>>> = ranks.share(&mine).into_iter().collect();
    let all = all?;
    let in_order = (0..groups.len()).map(|i| all[i % ranks.count()][i / ranks.count()]);
    Some(in_order.fold(TextMetrics::default(), |sum, x| sum + decoded(x)))
}

/// Metrics as integers: JSON has no NaN.
fn encoded(m: TextMetrics) -> [u64; 4] {
    [m.nats.to_bits(), m.tokens, m.correct, m.bytes]
}

fn decoded([nats, tokens, correct, bytes]: [u64; 4]) -> TextMetrics {
    TextMetrics { nats: f64::from_bits(nats), tokens, correct, bytes }
}

/// The windows of all evaluations during a run: at most 64, evenly spread.
pub fn spread<'a>(windows: &[Window<'a>]) -> Vec<Window<'a>> {
    let n = EVAL_WINDOWS.min(windows.len());
    (0..n).map(|i| windows[i * windows.len() / n]).collect()
}

/// The metrics as text, without the loss.
pub fn described(metrics: &TextMetrics, lost_share: f64) -> String {
    format!(
        "{}, perplexity {:.4}, next-token accuracy {:.2} %",
        PerByte::of(metrics, lost_share),
        metrics.perplexity(),
        100.0 * metrics.accuracy()
    )
}

/// Evaluates a run on the whole held-out part of its text, or of another one.
pub fn evaluate(args: &Args, ranks: &Ranks) -> Result<()> {
    let prepare = || {
        let folder = Folder::earlier(args.out.as_deref())?;
        let run = Run::load_model(&folder.checkpoint_of(args.checkpoint)?)?;
        let file = args.data.as_deref().or(run.source.file.as_deref());
        let text = Text::read(file)?;
        if args.data.is_none() {
            text.check_same(&run.source, &folder.name(), file)?;
        }
        let reading = format!("cannot read {}", text.source.name());
        let corpus = text.corpus(&run.tokenizer).or_failed(reading)?;
        corpus.check(run.recipe.context).or_else(failed)?;
        Ok((run, text, corpus, StopRequest::watch()?))
    };
    let (run, text, corpus, request) = ranks.agree(prepare())?;
    ranks.check_same(&[("arithmetic", run.recipe.arithmetic())])?;
    let windows = corpus.windows(run.recipe.context);
    let metrics = with_matmul_precision(run.recipe.precision, || {
        metrics(&run.model, &windows, ranks, &request)
    });
    let Some(metrics) = metrics else {
        let code = request.exit_code().unwrap_or(1);
        return Err(Stop::Interrupted("Stopped; nothing was changed".into(), code));
    };
    say!(
        "Held-out loss {:.4} after {} steps, in nats per token over all {} held-out tokens ({} bytes) \
         of {}: {}.",
        metrics.loss(),
        run.step,
        HumanCount(corpus.held_out().len() as u64),
        HumanCount(metrics.bytes),
        text.source.name(),
        described(&metrics, corpus.lost_share())
    );
    Ok(())
}
