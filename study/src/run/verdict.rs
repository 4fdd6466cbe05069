//! Statements about the curves of a run, by rules that the page prints.

use super::Baselines;
use crate::grouped;
use serde::Serialize;

/// A statement about a run, and the rule that it follows from.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Verdict {
    /// `good`, `bad` or `plain`.
    pub tone: &'static str,
    pub text: String,
    pub rule: &'static str,
}

/// What the verdicts are about.
pub(crate) struct Curves<'a> {
    /// Steps and held-out losses of all evaluations.
    pub held_out: &'a [(u64, f64)],
    /// Steps and smoothed losses of batches.
    pub smoothed: &'a [(u64, f64)],
    /// The share of the steps in the last quarter whose gradients were clipped.
    pub clipped: Option<f64>,
    pub baselines: Option<Baselines>,
    pub has_diverged: bool,
}

/// The least evaluations after the first step for a statement about the trend.
const ENOUGH: usize = 4;
/// The relative change that counts as one.
const CHANGE: f64 = 0.005;

const DIVERGED: &str = "The learning rate counts as too high if the loss, a gradient or a weight was not finite, \
    or if the smoothed batch loss is now more than 10 % above its lowest value and above the held-out losses of \
    the first third of the evaluations.";
const OVERFITTING: &str = "A run overfits since the evaluation with the lowest held-out loss if the held-out loss \
    is now more than 0.5 % above that, at least two evaluations later, while the smoothed batch loss is lower now \
    than then.";
const TREND: &str = "With at least four evaluations after the first step: the held-out loss still falls if its \
    lowest value in the last quarter of the evaluations is more than 0.5 % below the lowest one before; otherwise \
    there is a plateau since the first evaluation that was within 0.5 % of the lowest loss.";
const COUNTS: &str = "The held-out loss is compared with the horizontal lines of the chart of the loss: the first \
    evaluation from which on it stays below the line.";
const CLIPPED: &str = "Clipping counts as frequent if more than half of the steps in the last quarter of the run \
    were clipped. With SGD, the learning rate of those steps is in effect lower than the one shown. AdamW and Muon \
    divide by the size of gradients: clipping all of them by much the same factor changes little there.";

impl Curves<'_> {
    pub fn verdicts(&self) -> Vec<Verdict> {
        let mut all = Vec::new();
        let overfitting = self.overfitting();
        match (self.too_high(), &overfitting) {
            (Some(verdict), _) => all.push(verdict),
            (None, Some(verdict)) => all.push(verdict.clone()),
            (None, None) => all.push(self.trend()),
        }
        all.extend(self.against_counts());
        if let Some(share) = self.clipped.filter(|&share| share > 0.5) {
            let text = format!("{:.0} % of the last steps were clipped.", 100.0 * share);
            all.push(Verdict { tone: "plain", text, rule: CLIPPED });
        }
        all
    }

    fn too_high(&self) -> Option<Verdict> {
        let bad = |text: &str| Verdict { tone: "bad", text: text.into(), rule: DIVERGED };
        if self.has_diverged {
            return Some(bad(
                "The learning rate was too high, or a number was not finite for another reason.",
            ));
        }
        let (_, now) = *self.smoothed.last()?;
        let lowest = lowest(self.smoothed)?;
        let early = &self.held_out[..self.held_out.len().div_ceil(3)];
        let early = early.iter().map(|e| e.1).fold(f64::INFINITY, f64::min);
        let risen = now > lowest.1 + 0.1 * lowest.1.abs() && now > early;
        let (step, low) = (grouped(lowest.0), lowest.1);
        risen.then(|| {
            bad(&format!(
                "The learning rate is probably too high: the batch loss has risen from {low:.3} near step \
                 {step} to {now:.3}."
            ))
        })
    }

    fn overfitting(&self) -> Option<Verdict> {
        let trained = self.trained();
        let best = lowest(trained)?;
        let after = trained.iter().filter(|e| e.0 > best.0).count();
        let (_, now) = *trained.last()?;
        let batch = |step| {
            let at = self.smoothed.partition_point(|e| e.0 < step);
            self.smoothed.get(at).or(self.smoothed.last()).map(|e| e.1)
        };
        let falls = self.smoothed.last()?.1 < batch(best.0)?;
        let (step, low) = (grouped(best.0), best.1);
        (after >= 2 && now > best.1 + CHANGE * best.1.abs() && falls).then(|| Verdict {
            tone: "bad",
            text: format!(
                "The run overfits since step {step}: the held-out loss was {low:.3} there and is {now:.3} now."
            ),
            rule: OVERFITTING,
        })
    }

    fn trend(&self) -> Verdict {
        let trained = self.trained();
        let lowest_of = |part: &[(u64, f64)]| lowest(part).map_or(f64::INFINITY, |e| e.1);
        let n = trained.len();
        if n < ENOUGH {
            let text = format!("Too early to say: {n} evaluations after the first step.");
            return Verdict { tone: "plain", text, rule: TREND };
        }
        let (before, last) = trained.split_at(n - n.div_ceil(4));
        let (before, last) = (lowest_of(before), lowest_of(last));
        let best = before.min(last);
        if last < before - CHANGE * before.abs() {
            let text = format!(
                "The held-out loss still falls: {before:.3} before the last quarter, {last:.3} in it."
            );
            return Verdict { tone: "good", text, rule: TREND };
        }
        let since = trained.iter().find(|e| e.1 <= best + CHANGE * best.abs());
        let since = grouped(since.map_or(0, |e| e.0));
        let text = format!(
            "Plateau since step {since}: there the held-out loss came within 0.5 % of its lowest value, {best:.3}."
        );
        Verdict { tone: "plain", text, rule: TREND }
    }

    fn against_counts(&self) -> Option<Verdict> {
        let Baselines { uniform, unigram, bigram } = self.baselines?;
        let (_, now) = *self.held_out.last()?;
        let named = [
            (bigram, "counts of pairs (bigrams)"),
            (unigram, "frequencies of tokens (unigrams)"),
            (uniform, "blind guessing"),
        ];
        let Some((line, name)) = named.into_iter().find(|(line, _)| now < *line) else {
            let text = format!(
                "The held-out loss of {now:.3} is not below that of blind guessing, {uniform:.3}: the model has \
                 learnt nothing yet."
            );
            return Some(Verdict { tone: "bad", text, rule: COUNTS });
        };
        let above = self.held_out.iter().rposition(|e| e.1 >= line);
        let since = grouped(self.held_out[above.map_or(0, |i| i + 1)].0);
        let text = format!(
            "Better than {name} since step {since}: {now:.3} against {line:.3} nats per token."
        );
        Some(Verdict { tone: if line == bigram { "good" } else { "plain" }, text, rule: COUNTS })
    }

    /// The evaluations after the first step.
    fn trained(&self) -> &[(u64, f64)] {
        &self.held_out[self.held_out.partition_point(|e| e.0 == 0)..]
    }
}

/// The first lowest point.
fn lowest(curve: &[(u64, f64)]) -> Option<(u64, f64)> {
    curve.iter().copied().filter(|e| e.1.is_finite()).min_by(|a, b| a.1.total_cmp(&b.1))
}
