//! The lines of `log.jsonl`.

use retrograd::nn::text::TextMetrics;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The largest magnitude of a loss: the model computes it in f32.
const LOSS: f64 = f32::MAX as f64;
/// The longest step, in milliseconds: 30 years.
const MS: f64 = 1e12;

/// A line of the log. Its kind follows from its fields.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Line {
    Step(Step),
    Evaluation(Evaluation),
    Done(Done),
}

impl Line {
    /// A line from its JSON, or what is invalid in it.
    pub fn read(json: &str) -> Result<Line, String> {
        let line = serde_json::from_str(json).map_err(|_| "no line of a log".to_string())?;
        let within = |name: &str, x: f64, low: f64, high: f64| {
            let inside = (low..=high).contains(&x);
            inside.then_some(()).ok_or_else(|| format!("{name} cannot be {x:e}"))
        };
        match &line {
            Line::Step(s) => {
                within("step", s.step as f64, 1.0, f64::INFINITY)?;
                within("loss", s.loss, -LOSS, LOSS)?;
                within("ms", s.ms, 0.0, MS)?;
            }
            Line::Evaluation(e) => within("val_loss", e.val_loss, -LOSS, LOSS)?,
            Line::Done(_) => {}
        }
        Ok(line)
    }
}

/// A step of training; steps are counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Step {
    pub step: u64,
    /// The loss of this step's batch, before the step.
    pub loss: f64,
    pub lr: f64,
    /// The norm of the gradients before clipping.
    pub grad_norm: f64,
    pub ms: f64,
    pub tokens_per_s: f64,
    /// With several ranks: the time in which this rank exchanged gradients, and the part of it after its last
    /// backward pass.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exchange_ms: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exposed_ms: Option<f64>,
}

/// The loss on held-out text after a step.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Evaluation {
    pub step: u64,
    /// In nats per token, on windows that are the same in all evaluations.
    pub val_loss: f64,
    /// Older logs lack it.
    #[serde(flatten)]
    pub per_byte: Option<PerByte>,
    /// A hash of the bits of all weights, of 53 bits, so that every reader of JSON has it exactly. Older logs lack it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weights: Option<u64>,
}

/// The end of the run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Done {
    /// Always true.
    pub done: bool,
    pub params: usize,
    pub steps: u64,
    /// Time spent in training, over all processes.
    pub seconds: f64,
    /// The loss on all of the held-out text, in nats per token.
    pub val_loss: f64,
    /// The other metrics on that text.
    #[serde(flatten)]
    pub metrics: Option<Metrics>,
}

/// Metrics of the held-out text.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Metrics {
    #[serde(flatten)]
    pub per_byte: PerByte,
    pub perplexity: f64,
    pub accuracy: f64,
}

/// What a log says of the bytes of the held-out text.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PerByte {
    BitsPerByte(f64),
    /// The part of the bytes that the tokenizer loses.
    LostShare(f64),
}

impl Done {
    /// Bits per byte of all of the held-out text; `None` if the tokenizer loses bytes.
    pub fn bits_per_byte(&self) -> Option<f64> {
        match self.metrics?.per_byte {
            PerByte::BitsPerByte(bits) => Some(bits),
            PerByte::LostShare(_) => None,
        }
    }
}

impl Metrics {
    pub fn of(metrics: &TextMetrics, lost_share: f64) -> Metrics {
        Metrics {
            per_byte: PerByte::of(metrics, lost_share),
            perplexity: metrics.perplexity(),
            accuracy: metrics.accuracy(),
        }
    }
}

/// The metrics as text, without the loss.
impl fmt::Display for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Metrics { per_byte, perplexity, accuracy } = self;
        let percent = 100.0 * accuracy;
        write!(f, "{per_byte}, perplexity {perplexity:.4}, next-token accuracy {percent:.2} %")
    }
}

impl PerByte {
    pub fn of(metrics: &TextMetrics, lost_share: f64) -> PerByte {
        match lost_share {
            0.0 => PerByte::BitsPerByte(metrics.bits_per_byte()),
            lost => PerByte::LostShare(lost),
        }
    }
}

impl fmt::Display for PerByte {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PerByte::BitsPerByte(bits) => write!(f, "{bits:.4} bits per byte"),
            PerByte::LostShare(lost) => write!(
                f,
                "no bits per byte, since {:.2} % of the bytes do not come back from the tokens",
                100.0 * lost
            ),
        }
    }
}
