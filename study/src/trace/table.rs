//! Traces as tables: a line per call, or per operation and kernel.

use retrograd_tensor::machine::{Limit, Roofline};
use retrograd_tensor::observe::KernelCall;
use std::borrow::Cow;
use std::fmt::{self, Display, Formatter};

/// The calls of kernels in a closure, by [`trace`](super::trace()).
///
/// [`Display`] prints a line per call. With limits ([`Trace::with_limits`]) it has the share of the
/// machine's limit.
#[derive(Clone, Debug)]
pub struct Trace {
    calls: Vec<KernelCall>,
    lanes: Vec<String>,
    seconds: f64,
    roofline: Option<Roofline>,
}

impl Trace {
    pub(super) fn new(calls: Vec<(KernelCall, String)>, seconds: f64) -> Trace {
        let (calls, lanes) = calls.into_iter().unzip();
        Trace { calls, lanes, seconds, roofline: None }
    }

    /// The calls, in the order in which they ended.
    pub fn calls(&self) -> &[KernelCall] {
        &self.calls
    }

    /// The name of the thread of each call: `worker 0` in a thread pool, else the name of the thread.
    pub fn lanes(&self) -> &[String] {
        &self.lanes
    }

    /// The time of the closure in seconds, including the collection of calls.
    pub fn seconds(&self) -> f64 {
        self.seconds
    }

    /// The trace with the limits of a machine, relative to which times are printed.
    pub fn with_limits(self, limits: impl Into<Roofline>) -> Trace {
        Trace { roofline: Some(limits.into()), ..self }
    }

    /// The calls of each operation by each kernel together, the longest time first.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// use retrograd::study::trace::trace;
    /// let x = Tensor::<f32>::ones([4]);
    /// let (_, trace) = trace(|| x.exp().exp().ln());
    /// let totals = trace.by_operation();
    /// let exp = totals.rows.iter().find(|total| total.operation == "exp").unwrap();
    /// assert_eq!((totals.rows.len(), exp.calls, exp.bytes), (2, 2, 2 * (16 + 16)));
    /// println!("{totals}");
    /// ```
    pub fn by_operation(&self) -> Totals {
        let mut totals = Totals::default();
        self.calls.iter().for_each(|call| totals.add(call, self.roofline.as_ref()));
        totals.sort();
        totals
    }
}

/// The least time of a call, and what determines it.
fn bound(call: &KernelCall, roofline: &Roofline) -> (f64, Limit) {
    let (flops, bytes) = (call.flops as f64, call.bytes() as f64);
    let bound = roofline.bound(call.threads, call.dtype, flops, bytes);
    (bound.seconds, bound.limit)
}

impl Display for Trace {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&header())?;
        for (call, lane) in self.calls.iter().zip(&self.lanes) {
            write!(f, "\n{}", Line { call, lane, roofline: self.roofline.as_ref() })?;
        }
        Ok(())
    }
}

/// The names of the columns of [`Line`].
pub(super) fn header() -> String {
    const NAMES: [&str; 10] =
        ["us", "share", "limit", "operation", "size", "type", "level", "threads", "lane", "kernel"];
    columns(NAMES)
}

fn columns(
    [us, share, limit, name, size, dtype, level, threads, lane, kernel]: [&str; 10],
) -> String {
    format!(
        "trace: {us:>11}  {share:>5}  {limit:<5}  {name:<18}  {size:<20}  {dtype:<4}  {level:<6}  \
         {threads:>7}  {lane:<9}  {kernel}"
    )
}

/// A share in per cent, with a digit more if it is small.
fn percent(share: f64) -> String {
    if share < 0.0995 { format!("{:.1}%", 100.0 * share) } else { format!("{:.0}%", 100.0 * share) }
}

/// One call as a line of ten columns.
pub(super) struct Line<'a> {
    pub call: &'a KernelCall,
    pub lane: &'a str,
    pub roofline: Option<&'a Roofline>,
}

impl Display for Line<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Line { call, lane, roofline } = self;
        let (share, limit) = match roofline.map(|roofline| bound(call, roofline)) {
            Some((least, limit)) if least > 0.0 && call.seconds > 0.0 => {
                (percent(least / call.seconds), limit.to_string())
            }
            _ => ("-".into(), "-".into()),
        };
        let name = format!("{}{}", "> ".repeat(call.depth), call.operation);
        let separator = if call.detail.is_empty() { "" } else { "; " };
        // The name of a thread is free text; two spaces separate columns.
        let lane = lane.split_whitespace().collect::<Vec<_>>().join(" ");
        f.write_str(&columns([
            &format!("{:.1}", call.seconds * 1e6),
            &share,
            &limit,
            &name,
            &call.size.to_string(),
            &call.dtype.to_string(),
            call.level.unwrap_or("-"),
            &call.threads.to_string(),
            if lane.is_empty() { "-" } else { &lane },
            &format!("{}{separator}{}", call.kernel, call.detail),
        ]))
    }
}

/// The calls of one operation by one kernel together.
#[derive(Clone, Debug, PartialEq)]
pub struct Total {
    /// The operation.
    pub operation: &'static str,
    /// Which code ran.
    pub kernel: Cow<'static, str>,
    /// The SIMD level of the code.
    pub level: Option<&'static str>,
    /// The number of calls.
    pub calls: usize,
    /// Their time in seconds, without inner calls.
    pub seconds: f64,
    /// Their arithmetic operations, see [`KernelCall::flops`].
    pub flops: u64,
    /// The bytes that they must read and write.
    pub bytes: u64,
    /// The sum of their least times, if the trace has limits.
    pub least: Option<f64>,
}

/// A table of operations and kernels, by [`Trace::by_operation`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Totals {
    /// The rows, the longest time first.
    pub rows: Vec<Total>,
}

impl Totals {
    /// Brings the rows in order.
    pub(super) fn sort(&mut self) {
        self.rows.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
    }

    /// Adds a call to its row, which may be a new one at the end.
    pub(super) fn add(&mut self, call: &KernelCall, roofline: Option<&Roofline>) {
        let same = |t: &Total| {
            (t.operation, &t.kernel, t.level) == (call.operation, &call.kernel, call.level)
        };
        let row = self.rows.iter().position(same).unwrap_or(self.rows.len());
        if row == self.rows.len() {
            self.rows.push(Total {
                operation: call.operation,
                kernel: call.kernel.clone(),
                level: call.level,
                calls: 0,
                seconds: 0.0,
                flops: 0,
                bytes: 0,
                least: roofline.map(|_| 0.0),
            });
        }
        let total = &mut self.rows[row];
        total.calls += 1;
        total.seconds += call.seconds;
        total.flops += call.flops;
        total.bytes += call.bytes();
        if let (Some(least), Some(roofline)) = (&mut total.least, roofline) {
            *least += bound(call, roofline).0;
        }
    }
}

impl Display for Totals {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        const NAMES: [&str; 9] =
            ["calls", "ms", "time", "share", "GFLOP/s", "GB/s", "operation", "level", "kernel"];
        let columns = |[calls, ms, part, share, flops, bytes, name, level, kernel]: [&str; 9]| {
            format!(
                "{calls:>7}  {ms:>9}  {part:>5}  {share:>5}  {flops:>7}  {bytes:>7}  {name:<18}  \
                 {level:<6}  {kernel}"
            )
        };
        let all: f64 = self.rows.iter().map(|total| total.seconds).sum();
        f.write_str(&columns(NAMES))?;
        for total in &self.rows {
            let rate = |amount: u64| match amount {
                0 => "-".into(),
                amount => format!("{:.1}", amount as f64 / total.seconds.max(1e-9) / 1e9),
            };
            let share = match total.least {
                Some(least) if least > 0.0 => percent(least / total.seconds.max(1e-9)),
                _ => "-".into(),
            };
            f.write_str("\n")?;
            f.write_str(&columns([
                &total.calls.to_string(),
                &format!("{:.3}", total.seconds * 1e3),
                &percent(total.seconds / all.max(1e-9)),
                &share,
                &rate(total.flops),
                &rate(total.bytes),
                total.operation,
                total.level.unwrap_or("-"),
                &total.kernel,
            ]))?;
        }
        Ok(())
    }
}
