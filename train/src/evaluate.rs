//! The loss, bits per byte, perplexity and accuracy on held-out text: `evaluate`.

use crate::cli::ModelFlags;
use crate::folder::Folder;
use crate::line::PerByte;
use crate::output::say;
use crate::ranks::Ranks;
use crate::resume;
use crate::run::Run;
use crate::signals::StopRequest;
use crate::stop::{OrFailed, Result, Stop, failed, usage};
use crate::text::Text;
use clap::Args;
use indicatif::HumanCount;
use retrograd::distributed::DataParallel;
use retrograd::nn::text::{TextMetrics, Window};
use retrograd::nn::training;
use retrograd::prelude::*;
use std::path::PathBuf;

/// Report loss, bits per byte, perplexity and accuracy of a model on held-out text
///
/// The loss is in nats per token, over the whole held-out part of the text of the run, or of --data. Bits per byte
/// are the losses of all predicted tokens, divided by ln 2 and by the bytes of their text in UTF-8: they compare
/// tokenizers. Perplexity is exp(loss), accuracy the part of the tokens that were the most probable ones.
#[derive(Args, Debug)]
pub struct Evaluate {
    #[command(flatten)]
    pub model: ModelFlags,

    /// Another text than that of the run; its last tenth is the held-out part
    #[arg(long, value_name = "FILE")]
    data: Option<PathBuf>,
}

/// The number of held-out windows in an evaluation during training.
const EVAL_WINDOWS: usize = 64;

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

/// Evaluates a model on the whole held-out part of its text, or of another one.
pub fn evaluate(args: &Evaluate, ranks: &Ranks) -> Result<()> {
    let ModelFlags { out, checkpoint, tokenizer } = &args.model;
    let prepare = || {
        let run = Run::of_folder(out.as_deref(), *checkpoint, tokenizer.as_ref())?;
        let (text, corpus) = match (&args.data, &run.source) {
            (Some(file), _) => {
                let text = Text::read(Some(file), None)?;
                let reading = format!("cannot read {}", text.source.name());
                let corpus = text.corpus(&run.tokenizer).or_failed(reading)?;
                corpus.check(run.recipe.context).or_else(failed)?;
                (text, corpus)
            }
            (None, Some(_)) => resume::text_of(&run, &Folder::earlier(out.as_deref())?, None)?,
            (None, None) => return usage("the weights come without a text: name one by --data"),
        };
        Ok((run, text, corpus, StopRequest::watch()?))
    };
    let (run, text, corpus, request) = ranks.agree(prepare())?;
    ranks.check_same(&[("arithmetic", run.recipe.arithmetic())])?;
    let windows = corpus.windows(run.recipe.context);
    let metrics = with_matmul_precision(run.recipe.precision, || {
        let parallel = DataParallel::new(&run.model, ranks.comm());
        training::evaluate(&run.model, &windows, &parallel, &|| request.is_made())
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
