//! A training run as a page, and several runs on one page.

mod baselines;
mod compare;
mod envelope;
mod json;
mod looks;
mod verdict;

pub use baselines::Baselines;
pub use compare::compare_runs;
pub use looks::{HeadLook, RunLook};

use crate::Page;
use envelope::{Envelope, Smooth, Thinned};
use std::io;
use std::path::Path;
use std::time::SystemTime;

const SCRIPT: &str = include_str!("../../assets/run.js");
const COMPARE: &str = include_str!("../../assets/run_compare.js");
const STYLE: &str = include_str!("../../assets/run.css");

/// A step of training.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RunStep {
    /// The number of steps, this one included.
    pub step: u64,
    /// The loss of its batch.
    pub loss: f64,
    /// The learning rate.
    pub lr: f64,
    /// The norm of all gradients before clipping.
    pub grad_norm: f64,
    /// Its time in seconds.
    pub seconds: f64,
}

/// Whether a run goes on.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum RunStatus {
    /// It goes on. The page is written again at least every so many seconds, and loads itself again.
    Running {
        /// The longest time in seconds between two writes that is expected.
        every: f64,
    },
    /// It has taken all its steps.
    #[default]
    Finished,
    /// It was stopped, and can be resumed: by what.
    Interrupted(String),
    /// It failed: why.
    Failed(String),
}

/// The FMA peak of the machine from a step on.
#[derive(Clone, Copy, Debug)]
struct Peak {
    from: u64,
    flops: f64,
}

#[derive(Clone, Debug)]
struct Event {
    step: u64,
    kind: String,
    text: String,
}

/// The columns of the steps: loss, learning rate, norm of the gradients, seconds, and part of the peak.
const COLUMNS: usize = 5;

/// The page of a training run, from plain data: series by step, evaluations, looks at the model, events and
/// the recipe. It can be written while the run goes on.
///
/// It is small for any number of steps: series have at most 2000 points, each with the mean and the extremes of
/// the steps that it stands for; looks are thinned evenly; the file has at most 3 MB. Adding a step takes
/// constant time and no memory in the mean.
///
/// ```
/// use retrograd::study::{RunPage, RunStep};
///
/// let mut page = RunPage::new("A parabola");
/// let mut x = 3.0f64;
/// for step in 1..=100 {
///     let (loss, slope) = (x * x, 2.0 * x);
///     x -= 0.1 * slope;
///     page.step(RunStep { step, loss, lr: 0.1, grad_norm: slope, seconds: 1e-3 });
/// }
/// page.evaluation(100, x * x);
/// assert!(page.page().html().len() < 100_000);
/// ```
#[derive(Clone, Debug, Default)]
pub struct RunPage {
    title: String,
    status: RunStatus,
    planned: u64,
    tokens_per_step: u64,
    unit: String,
    facts: Vec<(String, String)>,
    recipe: Vec<(String, String)>,
    base: Option<(String, Vec<(String, String)>)>,
    baselines: Option<Baselines>,
    clip: Option<f64>,
    flops: Option<f64>,
    peaks: Vec<Peak>,
    steps: Envelope<COLUMNS>,
    smooth: Smooth,
    smoothed: Envelope<1>,
    last: Option<RunStep>,
    seconds: f64,
    clipped: Envelope<1>,
    /// Bytes in use and their peak.
    memory: Envelope<2>,
    evaluations: Envelope<1>,
    /// The last evaluation, and the one with the lowest loss.
    ends: Option<[(u64, f64); 2]>,
    sentence: Vec<String>,
    prompt: String,
    parts: Vec<String>,
    layers: Vec<usize>,
    looks: Thinned<RunLook>,
    events: Vec<Event>,
}

impl RunPage {
    /// A page without data.
    pub fn new(title: &str) -> RunPage {
        RunPage { title: title.into(), unit: "nats per token".into(), ..RunPage::default() }
    }

    /// Sets the number of steps of the whole run, and the tokens (or samples) of a step.
    pub fn planned(mut self, steps: u64, tokens_per_step: u64) -> RunPage {
        (self.planned, self.tokens_per_step) = (steps, tokens_per_step);
        self
    }

    /// Sets a line of the list of facts: the text, the model, the machine.
    pub fn fact(&mut self, name: &str, value: &str) {
        match self.facts.iter_mut().find(|fact| fact.0 == name) {
            Some(fact) => fact.1 = value.into(),
            None => self.facts.push((name.into(), value.into())),
        }
    }

    /// Sets the hyperparameters as names and values, and the recipe that they are compared with: its name, its
    /// names and values.
    pub fn recipe(
        mut self,
        recipe: Vec<(String, String)>,
        base: Option<(&str, Vec<(String, String)>)>,
    ) -> RunPage {
        self.recipe = recipe;
        self.base = base.map(|(name, fields)| (name.to_string(), fields));
        self
    }

    /// Sets the losses that the loss is compared with.
    pub fn baselines(mut self, baselines: Baselines) -> RunPage {
        self.baselines = Some(baselines);
        self
    }

    /// Sets the norm above which gradients are clipped.
    pub fn clip(mut self, norm: f64) -> RunPage {
        self.clip = Some(norm);
        self
    }

    /// Sets the floating-point operations that a step requires.
    pub fn flops(mut self, step: f64) -> RunPage {
        self.flops = Some(step);
        self
    }

    /// Sets what looks show: the tokens of the sentence, the prompt of the sample, the names of the parts of the
    /// model, and the number of heads of each layer with attention weights.
    pub fn looks_at(
        mut self,
        sentence: Vec<String>,
        prompt: &str,
        parts: Vec<String>,
        layers: Vec<usize>,
    ) -> RunPage {
        (self.sentence, self.prompt) = (sentence, prompt.into());
        (self.parts, self.layers) = (parts, layers);
        self
    }

    /// Sets the peak of the machine in floating-point operations per second, for the steps from here on.
    pub fn peak(&mut self, flops: f64) {
        let from = self.last.map_or(0, |step| step.step);
        self.peaks.push(Peak { from, flops });
    }

    /// Adds a step. Steps are added in their order.
    pub fn step(&mut self, step: RunStep) {
        if step.seconds.is_finite() {
            self.seconds += step.seconds;
        }
        let peak = self.peaks.last().map_or(f64::NAN, |peak| peak.flops);
        let utilisation = self.flops.unwrap_or(f64::NAN) / step.seconds / peak;
        let RunStep { step: number, loss, lr, grad_norm, seconds } = step;
        self.steps.push(number, self.seconds, [loss, lr, grad_norm, seconds, utilisation]);
        self.smoothed.push(number, self.seconds, [self.smooth.add(loss)]);
        if let Some(clip) = self.clip {
            self.clipped.push(number, self.seconds, [f64::from(u8::from(grad_norm > clip))]);
        }
        self.last = Some(step);
    }

    /// Adds the loss on held-out data after a step. Evaluations are added in their order, after their step.
    pub fn evaluation(&mut self, step: u64, loss: f64) {
        self.evaluations.push(step, self.seconds, [loss]);
        let now = (step, loss);
        let best = self.ends.map_or(now, |[_, best]| if loss < best.1 { now } else { best });
        self.ends = Some([now, best]);
    }

    /// Adds the bytes of tensors that are in use after a step, and the most that were in use at once so far.
    pub fn memory(&mut self, step: u64, live: usize, peak: usize) {
        self.memory.push(step, self.seconds, [live as f64, peak as f64]);
    }

    /// Adds a look at the model. Looks are added in their order. When there are many, they are thinned evenly;
    /// the first and the last one stay.
    pub fn look(&mut self, look: RunLook) {
        self.looks.push(look);
    }

    /// Adds an event: its step, its kind (`start`, `resume`, `interrupt`, ..) and a sentence.
    pub fn event(&mut self, step: u64, kind: &str, text: &str) {
        self.events.push(Event { step, kind: kind.into(), text: text.into() });
    }

    /// Sets whether the run goes on.
    pub fn status(&mut self, status: RunStatus) {
        self.status = status;
    }

    /// The document.
    pub fn page(&self) -> Page {
        let written = SystemTime::UNIX_EPOCH.elapsed().map_or(0.0, |time| time.as_secs_f64());
        let data = json::bounded(|size| self.json(size, written));
        scripts(Page::new(&self.title, &data))
    }

    /// Writes the document to a file, which at every moment contains either its old or its new content.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write(&self, path: impl AsRef<Path>) -> io::Result<()> {
        self.page().write(path)
    }
}

fn scripts(page: Page) -> Page {
    page.style(STYLE).script(SCRIPT).script(COMPARE)
}
