//! A ladder of kernels: every rung is checked, then timed.

use retrograd::machine::Machine;
use retrograd::prelude::Tensor;
use std::fmt::{self, Display, Formatter};
use std::hint::black_box;
use std::time::{Duration, Instant};

/// Computes the result into the slice, or returns it as a new tensor.
pub type Run = Box<dyn Fn(&mut [f32]) -> Option<Tensor>>;

/// One way to compute the result.
pub struct Rung {
    pub name: &'static str,
    /// The difference from the previous rung.
    pub what: &'static str,
    /// Whether it uses all threads.
    pub threaded: bool,
    pub run: Run,
}

/// What bounds a kernel.
#[derive(Clone, Copy)]
pub enum Bound {
    /// Arithmetic: the number of floating-point operations.
    Flops(f64),
    /// Memory bandwidth: the number of bytes to be moved.
    Bytes(f64),
}

/// Versions of a kernel, from naive to fast.
pub struct Ladder {
    pub title: String,
    pub bound: Bound,
    /// The number of elements of the result.
    pub outputs: usize,
    pub rungs: Vec<Rung>,
}

/// A timed rung.
pub struct Step {
    pub name: &'static str,
    pub what: &'static str,
    pub threaded: bool,
    /// GFLOP/s or GB/s.
    pub rate: f64,
}

/// A timed ladder.
pub struct Results {
    pub title: String,
    /// The unit of the rates.
    pub unit: &'static str,
    /// The limit of the machine, with one thread and with all, and its name.
    pub one: f64,
    pub all: f64,
    pub limit: String,
    pub steps: Vec<Step>,
}

/// The largest difference from the first rung, relative to the largest element of the result. Sums are
/// taken in different orders, so results differ by rounding.
const TOLERANCE: f32 = 1e-5;

impl Ladder {
    /// Checks every rung against the first one, and times it for about `time`.
    ///
    /// # Panics
    /// If the result of a rung differs from that of the first one.
    pub fn measure(&self, machine: &Machine, time: Duration) -> Results {
        let mut wanted = vec![f32::NAN; self.outputs];
        (self.rungs[0].run)(&mut wanted);
        let largest = wanted.iter().fold(0.0, |m: f32, x| m.max(x.abs()));
        let amount = match self.bound {
            Bound::Flops(x) | Bound::Bytes(x) => x,
        };
        let steps = self.rungs.iter().map(|rung| {
            let mut out = vec![f32::NAN; self.outputs];
            let made = (rung.run)(&mut out);
            let result = made.as_ref().map_or(&out[..], Tensor::as_slice);
            assert_eq!(result.len(), wanted.len(), "{}, {}", self.title, rung.name);
            for (i, (x, y)) in result.iter().zip(&wanted).enumerate() {
                let near = (x - y).abs() <= TOLERANCE * largest;
                assert!(near, "{}, {}: element {i} is {x}, not {y}", self.title, rung.name);
            }
            let rate =
                amount / median_seconds(|| drop(black_box((rung.run)(&mut out))), time) / 1e9;
            Step { name: rung.name, what: rung.what, threaded: rung.threaded, rate }
        });
        let steps = steps.collect();
        let (unit, limit, what) = match self.bound {
            Bound::Flops(_) => {
                let peak = machine.peak();
                ("GFLOP/s", peak.gflops, format!("FMA peak, {}", peak.level))
            }
            Bound::Bytes(bytes) => {
                let memory = machine.holding(bytes);
                ("GB/s", memory.copy, format!("copy bandwidth, {}", memory.name))
            }
        };
        let title = self.title.clone();
        Results { title, unit, one: limit.one, all: limit.all, limit: what, steps }
    }
}

/// The median time of a call, over calls for about `time` and at least one.
fn median_seconds(mut f: impl FnMut(), time: Duration) -> f64 {
    let (start, mut seconds) = (Instant::now(), Vec::new());
    while seconds.is_empty() || start.elapsed() < time {
        let before = Instant::now();
        f();
        seconds.push(before.elapsed().as_secs_f64());
    }
    seconds.sort_by(f64::total_cmp);
    seconds[seconds.len() / 2]
}

impl Results {
    /// The rate as a fraction of the limit, of one thread or of all.
    pub fn share(&self, step: &Step) -> f64 {
        step.rate / if step.threaded { self.all } else { self.one }
    }
}

impl Display for Results {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Results { title, unit, one, all, limit, steps } = self;
        writeln!(f, "{title}")?;
        writeln!(f, "limit: {limit}, {one:.0} {unit} with one thread, {all:.0} with all")?;
        writeln!(f, "{:<18}{unit:>9}{:>10}{:>10}  change", "", "of limit", "speedup")?;
        let first = steps.first().map_or(1.0, |s| s.rate);
        for step in steps {
            let Step { name, what, threaded, rate } = step;
            let threads = if *threaded { "all" } else { "one" };
            let share = 100.0 * self.share(step);
            let faster = rate / first;
            writeln!(f, "{name:<18}{rate:>9.1}{share:>6.0} % {threads}{faster:>7.1} x  {what}")?;
        }
        Ok(())
    }
}
