//! One recorded step as a page: the forward and the backward pass, event by event, with values.

mod build;
mod checks;
mod collect;
mod data;
mod differences;
pub(crate) mod elements;
mod model;
mod names;
mod text;
mod values;

use crate::locked::locked;
use crate::page::Page;
use crate::record::{Recorder, Recording};
use build::{Shown, Sources, build};
use collect::Collected;
use data::Data;
use differences::Adjustable;
use names::{Leaf, Names};
use retrograd_autograd::{Id, Var};
use retrograd_tensor::Real;
use retrograd_tensor::machine::Roofline;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::slice;
use std::time::Instant;
use values::Values;

const STYLE: &str = include_str!("../../assets/xray/style.css");
const SCRIPTS: [&str; 12] = [
    include_str!("../../assets/xray/step.js"),
    include_str!("../../assets/xray/tape.js"),
    include_str!("../../assets/xray/player.js"),
    include_str!("../../assets/xray/layered.js"),
    include_str!("../../assets/xray/graph.js"),
    include_str!("../../assets/xray/inspector.js"),
    include_str!("../../assets/xray/memory.js"),
    include_str!("../../assets/xray/health.js"),
    include_str!("../../assets/xray/cost.js"),
    include_str!("../../assets/xray/order.js"),
    include_str!("../../assets/xray/compare.js"),
    include_str!("../../assets/xray/page.js"),
];
/// Pages of more bytes leave out pictures and histograms.
const MOST_BYTES: usize = 6_000_000;

/// Records a step and makes a page of it.
///
/// ```
/// use retrograd::prelude::*;
///
/// let a = Var::leaf(Tensor::scalar(3.0f32));
/// let step = XRay::new("A diamond").leaf("a", &a).record(|| {
///     let b = a.square();
///     (&b + &(&b * &a)).backward()
/// });
/// assert!(step.page().html().contains("A diamond")); // or step.write("diamond.html")
/// ```
///
/// [`XRay::of`] knows the names of the parameters and modules of a model.
#[derive(Clone, Debug)]
pub struct XRay {
    title: String,
    names: Names,
    roofline: Option<Roofline>,
    updates: BTreeMap<Id, f64>,
    /// The elements of each parameter whose gradient is compared with a central difference.
    checks: usize,
    adjustable: BTreeMap<Id, Adjustable>,
}

impl XRay {
    /// An X-ray with a title, and without names of leaves.
    pub fn new(title: &str) -> XRay {
        XRay {
            title: title.into(),
            names: Names::default(),
            roofline: None,
            updates: BTreeMap::new(),
            checks: 0,
            adjustable: BTreeMap::new(),
        }
    }

    /// Sets the title.
    pub fn title(self, title: &str) -> XRay {
        XRay { title: title.into(), ..self }
    }

    /// Names a leaf.
    ///
    /// # Panics
    /// If it is not tracked.
    #[track_caller]
    pub fn leaf<T: Real>(self, name: &str, leaf: &Var<T>) -> XRay {
        let id = leaf.id().expect("XRay::leaf: the variable is a constant");
        self.parameter(name, id, leaf, true)
    }

    /// Names a parameter, which has no gradient if it is not trainable. Further names of the same
    /// parameter belong to other modules that use it.
    pub fn parameter<T: Real>(
        mut self,
        name: &str,
        id: Id,
        leaf: &Var<T>,
        is_trainable: bool,
    ) -> XRay {
        let value = leaf.value();
        let new = || Leaf {
            names: Vec::new(),
            is_trainable,
            address: value.storage_address(),
            layout: *value.layout(),
            shape: value.shape().to_vec(),
            values: Values::of(value),
        };
        self.names.leaves.entry(id).or_insert_with(new).names.push(name.to_string());
        self
    }

    /// Names a module. The first one is the model, whose path is empty. An operation that uses the parameter
    /// `inner.scale` is shown in the module `inner`.
    pub fn module(mut self, path: &str, type_name: &str) -> XRay {
        self.names.add_module(path, type_name);
        self
    }

    /// Shows times relative to the limits of the machine.
    ///
    /// ```no_run
    /// use retrograd::prelude::*;
    /// use retrograd::tensor::machine::Roofline;
    /// let a = Var::leaf(Tensor::scalar(3.0f32));
    /// let xray = XRay::new("A step").limits(Roofline::measure());
    /// println!("{}", xray.record(|| a.square().backward()).costs());
    /// ```
    pub fn limits(mut self, limits: impl Into<Roofline>) -> XRay {
        self.roofline = Some(limits.into());
        self
    }

    /// Shows the norm of the last update of a parameter, relative to the norm of the parameter before.
    pub fn update(mut self, parameter: Id, ratio: f64) -> XRay {
        self.updates.insert(parameter, ratio);
        self
    }

    /// Runs `f` to fill caches and the memory pool, up to five times with times and memory, and with values. No other
    /// run with times begins after two seconds. A time is the least of these runs, since other programs only make
    /// it longer; the page also says how far the median is above it.
    ///
    /// `f` should do the same each time. If it does not (it takes other random numbers, say), it is a
    /// [finding](RecordedStep::findings): from which event on a run differed from that with values, whose times and
    /// memory are shown if all did; or that their losses differ. With [`XRay::checked`], `f` runs more often.
    pub fn record<R>(self, mut f: impl FnMut() -> R) -> RecordedStep {
        drop(f());
        let (began, mut clocks) = (Instant::now(), Vec::new());
        while clocks.is_empty()
            || clocks.len() < RUNS && began.elapsed().as_secs_f64() < MOST_SECONDS
        {
            let (result, clock) = self.recorder().record(&mut f);
            drop(result);
            clocks.push(clock);
        }
        let (recorder, collected) = Collected::by(self.recorder());
        let (result, values) = recorder.record(&mut f);
        drop(result);
        let collected = std::mem::take(&mut *locked(&collected));
        let (mut data, leaves) = self.data(&clocks, &values, collected);
        if self.checks > 0 {
            self.check(&mut data, &leaves, &mut f);
        }
        let shortest = clocks.into_iter().min_by(|a, b| a.seconds.total_cmp(&b.seconds));
        RecordedStep { data: fitted(data), recording: shortest.expect("at least one run") }
    }

    /// A recorder that knows the leaves that have names.
    fn recorder(&self) -> Recorder {
        let leaves = self.names.leaves.iter();
        leaves.fold(Recorder::new(), |recorder, (id, leaf)| {
            recorder.leaf_at(*id, leaf.address, leaf.layout)
        })
    }

    /// Records the first backward pass of the process, with all that was computed before it, and writes the page
    /// to a file. The closure of a program is not known, so it runs once, and times include the recording.
    fn write_first_backward(self, path: PathBuf) {
        let (recorder, collected) = Collected::by(Recorder::new());
        recorder.record_first_backward(move |recording| {
            let collected = std::mem::take(&mut *locked(&collected));
            let mut xray = self.clone();
            xray.names.add_recorded(&recording);
            let (data, _) = xray.data(slice::from_ref(&recording), &recording, collected);
            let step = RecordedStep { data: fitted(data), recording };
            match step.write(&path) {
                Ok(()) => eprintln!("{VARIABLE}: the first backward pass is in {}", path.display()),
                Err(why) => eprintln!("{VARIABLE}: cannot write the page: {why}"),
            }
        });
    }

    /// The data of the page, and its leaves, which are its first nodes.
    fn data(
        &self,
        clocks: &[Recording],
        values: &Recording,
        collected: Collected,
    ) -> (Data, Vec<Id>) {
        let mut warnings = Vec::new();
        let seen = Shown::of(values);
        let mut runs: Vec<Shown<'_>> = clocks.iter().map(Shown::of).collect();
        let difference = runs.iter().find_map(|run| run.difference(&seen));
        runs.retain(|run| run.difference(&seen).is_none());
        runs.sort_by(|a, b| a.recording.seconds.total_cmp(&b.recording.seconds));
        if let (Some(event), true) = (difference, runs.is_empty()) {
            warnings.push(format!(
                "undisturbed times, because the recorded code did something else in each run, from event {} on",
                event + 1
            ));
            runs.push(Shown::of(values));
        }
        let leaves = runs[0].leaves.clone();
        let mut data = build(Sources {
            title: &self.title,
            names: &self.names,
            runs,
            values: seen,
            collected,
            roofline: self.roofline.as_ref(),
            updates: &self.updates,
            warnings,
        });
        data.difference = differences::of_runs(clocks, values);
        (data, leaves)
    }
}

/// Runs of the recorded code with times, and the seconds after which no other run begins.
const RUNS: usize = 5;
const MOST_SECONDS: f64 = 2.0;

const VARIABLE: &str = "RETROGRAD_XRAY";

/// Records the first backward pass of the process as a page, in a file or in `xray.html`.
pub(crate) fn record_process(file: Option<PathBuf>) -> Result<(), String> {
    let path = file.unwrap_or("xray.html".into());
    let program = std::env::args().next().unwrap_or_default();
    let program = Path::new(&program).file_name().unwrap_or_default().to_string_lossy();
    // That nothing follows, nobody could say at the end of the process.
    eprintln!("{VARIABLE}: the first backward pass is going to be in {}", path.display());
    XRay::new(&format!("The first backward pass of {program}")).write_first_backward(path);
    Ok(())
}

/// A recorded step: a page, and what it was made from.
#[derive(Clone, Debug)]
pub struct RecordedStep {
    data: Data,
    recording: Recording,
}

impl RecordedStep {
    /// The page: one file of HTML, with the data and the scripts.
    pub fn page(&self) -> Page {
        let page = Page::new(&self.data.title, &self.data).style(STYLE);
        SCRIPTS.iter().fold(page, |page, script| page.script(script))
    }

    /// Writes the page to a file.
    ///
    /// # Errors
    /// If the file cannot be written; the message names it.
    pub fn write(&self, path: impl AsRef<Path>) -> io::Result<()> {
        self.page().write(path)
    }

    /// The data of the page in JSON. Only the page limits its size.
    pub fn json(&self) -> String {
        serde_json::to_string(&self.data).expect("no map, and numbers are finite or null")
    }

    /// The shortest record with times.
    pub fn recording(&self) -> &Recording {
        &self.recording
    }
}

/// The data without what makes a page too large: first the samples, then histograms, then pictures.
fn fitted(mut data: Data) -> Data {
    let size = |data: &Data| serde_json::to_string(data).map_or(0, |json| json.len());
    type Removal = (&'static str, fn(&mut Values));
    let removals: [Removal; 3] = [
        ("samples for the comparison of two recordings", |v| v.sample = None),
        ("histograms", |v| v.histogram = None),
        ("pictures of large tensors", |v| v.picture = None),
    ];
    for (what, remove) in removals {
        if size(&data) <= MOST_BYTES {
            break;
        }
        data.values.iter_mut().for_each(remove);
        data.left_out.push(what.into());
    }
    data
}
