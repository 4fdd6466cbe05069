//! The loss, bits per byte, perplexity and accuracy on held-out text: `evaluate`.

use crate::flags::ModelFlags;
use crate::folder::Folder;
use crate::line::Metrics;
use crate::output::say;
use crate::ranks::Ranks;
use crate::run::Run;
use crate::signals;
use crate::stop::{Result, Stop, usage};
use crate::text::Text;
use clap::Args;
use indicatif::HumanCount;
use retrograd::distributed::DataParallel;
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

/// What a signal leaves.
const UNCHANGED: &str = "Stopped; nothing was changed";

/// Evaluates a model on the whole held-out part of its text, or of another one.
pub fn evaluate(args: &Evaluate, ranks: &Ranks) -> Result<()> {
    let prepare = || {
        let run = Run::of_folder(&args.model)?;
        let (text, corpus) = match &args.data {
            None if run.source.is_none() => {
                return usage("the weights come without a text: name one by --data");
            }
            None => run.text(&Folder::earlier(args.model.out.as_deref())?, None)?,
            Some(file) => {
                let text = Text::read(Some(file), None)?;
                let corpus = run.corpus(&text)?;
                (text, corpus)
            }
        };
        signals::watch(|| UNCHANGED.into())?;
        Ok((run, text, corpus))
    };
    let (run, text, corpus) = ranks.agree(prepare())?;
    ranks.check_same(&[("arithmetic", run.recipe.arithmetic())])?;
    let windows = corpus.windows(run.recipe.context);
    let metrics = with_matmul_precision(run.recipe.precision, || {
        let parallel = DataParallel::new(&run.model, ranks.comm());
        training::evaluate(&run.model, &windows, &parallel, &signals::is_received)
    });
    let Some(metrics) = metrics else {
        // Of one of the ranks.
        let signal = ranks.share(&signals::exit_code()).into_iter().flatten().next();
        return Err(Stop { code: signal.expect("a signal stopped it"), text: UNCHANGED.into() });
    };
    say!(
        "Held-out loss {:.4} after {} steps, in nats per token over all {} held-out tokens ({} bytes) \
         of {}: {}.",
        metrics.loss(),
        run.step,
        HumanCount(corpus.held_out().len() as u64),
        HumanCount(metrics.bytes),
        text.source.name(),
        Metrics::of(&metrics, corpus.lost_share())
    );
    Ok(())
}
