//! The loss, bits per byte, perplexity and accuracy on held-out text.

use crate::cli::Args;
use crate::folder::Folder;
use crate::output::say;
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
pub fn metrics(model: &Gpt, windows: &[Window<'_>], request: &StopRequest) -> Option<TextMetrics> {
    let mut metrics = TextMetrics::default();
    let row = model.config().context * model.config().vocab;
    let most = (EVAL_LOGITS / row.max(1)).clamp(1, EVAL_BATCH);
    // The last window may be shorter, and is then a batch of its own.
    let equal = windows.chunk_by(|a, b| a.tokens.len() == b.tokens.len());
    for group in equal.flat_map(|windows| windows.chunks(most)) {
        if request.is_made() {
            return None;
        }
        let Batch { tokens, targets } = Batch::new(group.iter().map(|window| window.tokens));
        let logits = no_grad(|| model.forward(&tokens, &mut Pass::eval()));
        metrics.add(logits.value(), &targets, group.iter().map(|window| window.bytes).sum());
    }
    Some(metrics)
}

/// The windows of all evaluations during a run: at most 64, evenly spread.
pub fn spread<'a>(windows: &[Window<'a>]) -> Vec<Window<'a>> {
    let n = EVAL_WINDOWS.min(windows.len());
    (0..n).map(|i| windows[i * windows.len() / n]).collect()
}

/// The metrics as text, without the loss.
pub fn described(metrics: &TextMetrics) -> String {
    format!(
        "{:.4} bits per byte, perplexity {:.4}, next-token accuracy {:.2} %",
        metrics.bits_per_byte(),
        metrics.perplexity(),
        100.0 * metrics.accuracy()
    )
}

/// Evaluates a run on the whole held-out part of its text, or of another one.
pub fn evaluate(args: &Args) -> Result<()> {
    let folder = Folder::earlier(args.out.as_deref())?;
    let run = Run::load_model(&folder.checkpoint_of(args.checkpoint)?)?;
    let file = args.data.as_deref().or(run.source.file.as_deref());
    let text = Text::read(file)?;
    if args.data.is_none() {
        text.check_same(&run.source, &folder.name(), file)?;
    }
    let corpus =
        text.corpus(&run.tokenizer).or_failed(format!("cannot read {}", text.source.name()))?;
    corpus.check(run.recipe.context).or_else(failed)?;
    let request = StopRequest::watch()?;
    let windows = corpus.windows(run.recipe.context);
    let metrics =
        with_matmul_precision(run.recipe.precision, || metrics(&run.model, &windows, &request));
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
        described(&metrics)
    );
    Ok(())
}
