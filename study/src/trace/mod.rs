//! Traces: which kernels run, how long they take, and what the machine could do.
//!
//! The environment variable `RETROGRAD_TRACE` traces a program that calls [`from_env`](crate::from_env): with
//! `1` it prints a line for every kernel on standard error, with the path of a file (anything with a `/` or a
//! `.`) it writes the lines there. With `summary` it prints one table on standard error when the thread that
//! called `from_env` ends, which is the end of `main`: the calls of each operation by each kernel together, the
//! longest time first ([`Totals`]). Unset, empty or `0` it does nothing.
//!
//! ```text
//! trace:          us  share  limit  operation           size                  type  level   threads  lane       kernel
//! trace:       338.8    83%  FMA    relu                512x128x512           f32   avx512        1  worker 0   6x64, A in place, B packed
//! trace:         4.0   0.1%  L1     > sum               [1,128]               f32   avx512        1  worker 0   outer reduction
//! trace:        24.7    16%  L2     rms_norm_vjp        [8,64,128]            f32   avx512        1  worker 0   rows and column sums
//! ```
//!
//! Columns are separated by two or more spaces, which no column contains. The times are in microseconds,
//! without inner calls, whose operation is preceded by `>` and which are printed first. The share is
//! the least time by the [roofline model](retrograd_tensor::machine::Roofline::bound) on the threads that the call
//! used, relative to its time; the limit is what determines the least time: `FMA`, or a level of memory.
//! The limits are measured at the beginning, in half a second.
//!
//! [`trace()`] does the same for a closure, and returns the calls.

mod lines;
mod table;

pub(crate) use lines::{summarize_process, trace_process};
pub use table::{Total, Totals, Trace};

use crate::locked::locked;
use retrograd_tensor::observe::{Event, KernelCall, Observer};
use retrograd_tensor::{par, settings};
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// Collects all calls, with the names of the threads.
#[derive(Default)]
struct Collector(Mutex<Vec<(KernelCall, String)>>);

impl Observer for Collector {
    fn event(&self, event: &Event<'_>) {
        if let Event::Kernel(call) = *event {
            locked(&self.0).push((call.clone(), par::lane()));
        }
    }
}

/// Runs `f`, and collects the calls of kernels in it, on this thread and on all that work is distributed to.
/// Observers around it are told as well. The bits of results are those without a trace.
///
/// ```
/// use retrograd::prelude::*;
/// use retrograd::study::trace::trace;
///
/// let x = Tensor::<f32>::randn([64, 64], &mut Rng::new(1));
/// let (y, trace) = trace(|| x.matmul(&x).exp());
/// assert_eq!(y.shape()[..], [64, 64]);
/// let names: Vec<&str> = trace.calls().iter().map(|call| call.operation).collect();
/// assert_eq!(names, ["matmul", "exp"]);
/// assert_eq!(trace.calls()[0].flops, 2 * 64 * 64 * 64);
/// println!("{trace}");
/// ```
pub fn trace<R>(f: impl FnOnce() -> R) -> (R, Trace) {
    let collector = Arc::new(Collector::default());
    let start = Instant::now();
    let result = settings::with_observer(collector.clone(), f);
    let seconds = start.elapsed().as_secs_f64();
    let calls = std::mem::take(&mut *locked(&collector.0));
    (result, Trace::new(calls, seconds))
}
