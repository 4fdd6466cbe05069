//! A ladder of kernels: every rung is checked, then timed.

use retrograd::machine::Machine;
use retrograd::prelude::Tensor;
use std::hint::black_box;
use std::time::{Duration, Instant};

/// Computes the result into the slice, or returns it as a new tensor.
type Run = Box<dyn Fn(&mut [f32]) -> Option<Tensor>>;

/// One way to compute the result.
pub struct Rung {
    name: &'static str,
    /// The difference from the previous rung.
    what: &'static str,
    /// Whether it uses all threads.
    threaded: bool,
    run: Run,
}

impl Rung {
    /// Computes the result into the slice, with one thread.
    pub fn new(name: &'static str, what: &'static str, run: impl Fn(&mut [f32]) + 'static) -> Rung {
        let run = Box::new(move |out: &mut [f32]| {
            run(out);
            None
        });
        Rung { name, what, threaded: false, run }
    }

    pub fn threaded(self) -> Rung {
        Rung { threaded: true, ..self }
    }

    /// The kernel of the library, which uses all threads.
    pub fn ours(
        name: &'static str,
        what: &'static str,
        run: impl Fn() -> Tensor + 'static,
    ) -> Rung {
        Rung { name, what, threaded: true, run: Box::new(move |_| Some(run())) }
    }
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

/// The largest difference from the first rung, relative to the largest element of the result. Sums are
/// taken in different orders, so results differ by rounding.
const TOLERANCE: f32 = 1e-5;

impl Ladder {
    /// Checks every rung against the first one, times it for about `time`, and returns a table of rates beside the
    /// limits of the machine.
    ///
    /// # Panics
    /// If the result of a rung differs from the result of the first rung.
    pub fn measure(&self, machine: &Machine, time: Duration) -> String {
        let (amount, unit, limit, what) = match self.bound {
            Bound::Flops(flops) => {
                let peak = machine.peak();
                (flops, "GFLOP/s", peak.gflops, format!("FMA peak, {}", peak.level))
            }
            Bound::Bytes(bytes) => {
                let memory = machine.holding(bytes);
                (bytes, "GB/s", memory.copy, format!("copy bandwidth, {}", memory.name))
            }
        };
        let (title, one, all) = (&self.title, limit.one, limit.all);
        let mut table = format!(
            "{title}\nlimit: {what}, {one:.0} {unit} with one thread, {all:.0} with all\n\
             {:<18}{unit:>9}{:>10}{:>10}  change\n",
            "", "of limit", "speedup"
        );
        let mut wanted = vec![f32::NAN; self.outputs];
        (self.rungs[0].run)(&mut wanted);
        let largest = wanted.iter().fold(0.0, |m: f32, x| m.max(x.abs()));
        let mut first = None;
        for Rung { name, what, threaded, run } in &self.rungs {
            let mut out = vec![f32::NAN; self.outputs];
            let made = run(&mut out);
            let result = made.as_ref().map_or(&out[..], Tensor::as_slice);
            assert_eq!(result.len(), wanted.len(), "{title}, {name}");
            for (i, (x, y)) in result.iter().zip(&wanted).enumerate() {
                let near = (x - y).abs() <= TOLERANCE * largest;
                assert!(near, "{title}, {name}: element {i} is {x}, not {y}");
            }
            let rate = amount / median_seconds(|| drop(black_box(run(&mut out))), time) / 1e9;
            let (threads, limit) = if *threaded { ("all", all) } else { ("one", one) };
            let (share, faster) = (100.0 * rate / limit, rate / *first.get_or_insert(rate));
            table +=
                &format!("{name:<18}{rate:>9.1}{share:>6.0} % {threads}{faster:>7.1} x  {what}\n");
        }
        table
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
