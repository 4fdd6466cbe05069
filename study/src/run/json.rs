//! The data of a page, within limits.

use super::envelope::{Envelope, MOST as LOOKS, POINTS, spread};
use super::looks::SAMPLE;
use super::verdict::Curves;
use super::{RunPage, RunStatus};
use crate::grouped;
use serde_json::{Value, json};

/// The most bytes of attention weights on a page.
const WEIGHTS: usize = 1_300_000;
/// The most bytes of data on a page.
const BYTES: usize = 2_800_000;
/// The most events on a page.
const EVENTS: usize = 200;
/// The most characters of a short text.
const TEXT: usize = 1000;

/// How much a page shows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    pub points: usize,
    pub looks: usize,
    /// Bytes of attention weights.
    pub weights: usize,
}

/// The largest data within the limit of bytes.
pub(crate) fn bounded(data: impl Fn(Size) -> Value) -> Value {
    let mut size = Size { points: POINTS, looks: LOOKS, weights: WEIGHTS };
    loop {
        let found = data(size);
        // A `<` needs six bytes on the page.
        let text = found.to_string();
        let bytes = text.len() + 5 * text.matches('<').count();
        if bytes <= BYTES || size.looks == 1 {
            return found;
        }
        size = Size {
            points: (size.points / 2).max(100),
            looks: size.looks / 2,
            weights: size.weights / 2,
        };
    }
}

/// A number with five significant digits; `null` if it is not finite.
pub(crate) fn short(x: f64) -> Value {
    if !x.is_finite() {
        return Value::Null;
    }
    if x == x.trunc() && x.abs() < 1e15 {
        return json!(x as i64);
    }
    json!(format!("{x:.4e}").parse::<f64>().unwrap_or(x))
}

fn list(values: impl Iterator<Item = f64>) -> Value {
    values.map(short).collect()
}

/// The beginning of a text.
fn cut(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((at, _)) => format!("{} …", &text[..at]),
        None => text.to_string(),
    }
}

/// A column as its means, with its extremes if points stand for several steps.
fn column<const N: usize>(series: &Envelope<N>, i: usize) -> Value {
    let points = series.points();
    let mean = list(points.iter().map(|p| p.mean(i)));
    if !series.is_reduced() {
        return json!({ "mean": mean });
    }
    let extremes =
        |pick: fn((f64, f64)) -> f64| list(points.iter().map(move |p| pick(p.extremes(i))));
    json!({ "mean": mean, "low": extremes(|e| e.0), "high": extremes(|e| e.1) })
}

impl RunPage {
    /// The data of the page, in which nothing is larger than `size` says.
    pub(crate) fn json(&self, size: Size, written: f64) -> Value {
        let steps = self.steps.reduced(size.points);
        let smoothed = self.smoothed.reduced(size.points);
        let evaluations = self.evaluations.reduced(size.points);
        let memory = self.memory.reduced(size.points);
        let moments = memory.points();
        let points = steps.points();
        let held_out = evaluations.points();
        let (looks, mut left_out) = self.looks_json(size);
        if steps.is_reduced() {
            let each = points[0].last.abs_diff(points[0].first) + 1;
            let text = format!(
                "Each point of a series stands for {each} steps: the line is their mean, and the band reaches \
                 from the least to the largest value."
            );
            left_out.insert(0, text);
        }
        let (events, hidden) = self.events_json();
        if hidden > 0 {
            let hidden = grouped(hidden as u64);
            left_out.push(format!("{hidden} events in the middle of the run are left out."));
        }
        let levels = self.baselines.map(|b| {
            json!({ "uniform": short(b.uniform), "unigram": short(b.unigram), "bigram": short(b.bigram) })
        });
        let peaks = &self.peaks[self.peaks.len().saturating_sub(20)..];
        let peaks: Value = peaks.iter().map(|p| json!([p.from, short(p.flops)])).collect();
        json!({
            "run": 1,
            "title": cut(&self.title, TEXT),
            "status": self.status_json(),
            "written": (written * 1e3).round(),
            "step": self.last.map_or(0, |s| s.step).max(self.ends.map_or(0, |e| e[0].0)),
            "planned": self.planned,
            "seconds": short(self.seconds),
            "tokens_per_step": self.tokens_per_step,
            "unit": self.unit,
            "facts": self.facts.iter().take(60).map(|(n, v)| [cut(n, 80), cut(v, TEXT)]).collect::<Vec<_>>(),
            "recipe": self.recipe_json(),
            "levels": levels,
            "clip": self.clip,
            "clipped": column(&self.clipped.reduced(size.points), 0)["mean"],
            "flops": self.flops,
            "peaks": peaks,
            "series": {
                "step": points.iter().map(|p| p.step()).collect::<Vec<_>>(),
                "seconds": list(points.iter().map(|p| p.seconds())),
                "loss": column(&steps, 0),
                "smoothed": column(&smoothed, 0)["mean"],
                "lr": column(&steps, 1),
                "grad_norm": column(&steps, 2),
                "step_seconds": column(&steps, 3),
                "utilisation": column(&steps, 4),
            },
            "evaluations": {
                "step": held_out.iter().map(|p| p.step()).collect::<Vec<_>>(),
                "seconds": list(held_out.iter().map(|p| p.seconds())),
                "loss": column(&evaluations, 0),
                "last": self.ends.map(|e| json!([e[0].0, e[0].1])),
                "best": self.ends.map(|e| json!([e[1].0, e[1].1])),
            },
            "memory": {
                "step": moments.iter().map(|p| p.step()).collect::<Vec<_>>(),
                "seconds": list(moments.iter().map(|p| p.seconds())),
                "live": list(moments.iter().map(|p| p.extremes(0).1)),
                "peak": list(moments.iter().map(|p| p.extremes(1).1)),
            },
            "looks": looks,
            "events": events,
            "verdicts": self.curves(|curves| curves.verdicts()),
            "left_out": left_out,
        })
    }

    /// Calls `f` with what verdicts are about.
    fn curves<R>(&self, f: impl FnOnce(&Curves) -> R) -> R {
        let of = |series: &Envelope<1>| -> Vec<(u64, f64)> {
            let points = series.points().iter().map(|p| (p.step(), p.mean(0)));
            points.filter(|p| p.1.is_finite()).collect()
        };
        let (mut held_out, smoothed) = (of(&self.evaluations), of(&self.smoothed));
        if self.evaluations.is_reduced() {
            // The last evaluation itself, and not the mean that it is in.
            held_out.extend(self.ends.map(|ends| ends[0]));
        }
        let clipped = self.clipped.points();
        let last = &clipped[clipped.len() - clipped.len() / 4..];
        let share = last.iter().map(|p| p.mean(0)).sum::<f64>() / last.len() as f64;
        f(&Curves {
            held_out: &held_out,
            smoothed: &smoothed,
            clipped: (!last.is_empty()).then_some(share),
            baselines: self.baselines,
            has_diverged: self.events.last().is_some_and(|event| event.kind == "diverged"),
        })
    }

    fn status_json(&self) -> Value {
        match &self.status {
            RunStatus::Running { every } => json!({ "state": "running", "every": short(*every) }),
            RunStatus::Finished => json!({ "state": "finished" }),
            RunStatus::Interrupted(by) => json!({ "state": "interrupted", "text": cut(by, TEXT) }),
            RunStatus::Failed(why) => json!({ "state": "failed", "text": cut(why, TEXT) }),
        }
    }

    fn recipe_json(&self) -> Value {
        let base = self.base.as_ref();
        let of_base = |name: &str| {
            let field = base?.1.iter().find(|(n, _)| n == name);
            Some(field.map_or(Value::Null, |(_, value)| json!(cut(value, TEXT))))
        };
        let row = |(name, value): &(String, String)| {
            json!([cut(name, 80), cut(value, TEXT), of_base(name)])
        };
        json!({
            "base": base.map(|(name, _)| cut(name, 80)),
            "rows": self.recipe.iter().take(200).map(row).collect::<Vec<_>>(),
        })
    }

    /// The first and the last events, with the best evaluation among them, and how many are left out.
    fn events_json(&self) -> (Value, usize) {
        let mut all: Vec<(u64, &str, &str)> =
            self.events.iter().map(|e| (e.step, e.kind.as_str(), e.text.as_str())).collect();
        let best = self
            .ends
            .map(|[_, best]| (best.0, format!("Lowest held-out loss so far: {:.4}.", best.1)));
        if let Some((step, text)) = &best {
            let at = all
                .iter()
                .position(|event| event.0 > *step || event.1 == "end" && event.0 == *step);
            all.insert(at.unwrap_or(all.len()), (*step, "best", text));
        }
        let hidden = all.len().saturating_sub(EVENTS);
        let first = EVENTS / 4;
        let shown =
            all[..all.len().min(first)].iter().chain(&all[(first + hidden).min(all.len())..]);
        let events = shown.map(|(step, kind, text)| json!([step, cut(kind, 80), cut(text, TEXT)]));
        (events.collect(), hidden)
    }

    /// The looks, thinned evenly, and what is left out. Weights are thinned further.
    fn looks_json(&self, size: Size) -> (Value, Vec<String>) {
        let all = self.looks.items();
        let shown = spread(all.len(), size.looks);
        let bytes = |&i: &usize| all[i].heads.iter().map(|head| head.weights.len()).sum::<usize>();
        let largest = shown.iter().map(bytes).max().unwrap_or(0).max(1);
        let with_weights: Vec<usize> =
            spread(shown.len(), size.weights / largest).into_iter().map(|i| shown[i]).collect();
        let mut left_out = Vec::new();
        let (some, n, count) = (with_weights.len(), shown.len(), self.looks.count());
        if some < n {
            left_out.push(format!("Attention weights are shown of {some} of {n} looks."));
        }
        if n < count {
            left_out.push(format!("{n} of {count} looks are shown."));
        }
        let looks = shown.iter().map(|&i| {
            let look = &all[i];
            let optional = |x: &Option<f64>| x.map_or(Value::Null, short);
            let weights = with_weights
                .contains(&i)
                .then(|| look.heads.iter().map(|head| head.weights.as_str()).collect::<Vec<_>>());
            json!({
                "step": look.step,
                "sample": cut(&look.sample, SAMPLE),
                "entropy": list(look.heads.iter().map(|head| head.entropy)),
                "distance": look.heads.iter().map(|head| optional(&head.distance)).collect::<Vec<_>>(),
                "scales": look.scales.iter().map(optional).collect::<Vec<_>>(),
                "weights": weights,
                "grad_norms": look.grad_norms.iter().map(optional).collect::<Vec<_>>(),
                "updates": look.updates.iter().map(optional).collect::<Vec<_>>(),
            })
        });
        let looks: Vec<Value> = looks.collect();
        let names = json!({
            "sentence": self.sentence.iter().take(512).map(|t| cut(t, 80)).collect::<Vec<_>>(),
            "prompt": cut(&self.prompt, TEXT),
            "parts": self.parts.iter().map(|p| cut(p, 80)).collect::<Vec<_>>(),
            "layers": self.layers,
            "at": looks,
        });
        (names, left_out)
    }
}
