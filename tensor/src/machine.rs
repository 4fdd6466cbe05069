//! The measured limits of a machine, relative to which benchmarks report their results.
//!
//! Absolute times cannot be compared between machines; fractions of the limits of a machine can. So
//! every benchmark measures the limits first and reports its results as fractions of them: of the
//! peak rate of multiply-adds if it is bound by arithmetic, of the memory bandwidth if it is bound
//! by memory, and else of the smaller bound (the roofline model: Williams, Waterman, Patterson
//! 2009).

pub(crate) mod probe;
mod roofline;

pub use roofline::{Bound, Limit, Roofline};

use crate::simd::Level;
use std::fmt::{self, Display, Formatter};

/// A rate with one thread, and with all threads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    /// With one thread, while the others are idle.
    pub one: f64,
    /// The total of all threads.
    pub all: f64,
}

/// The peak `f32` arithmetic rate of a SIMD level.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Peak {
    /// The instruction set.
    pub level: Level,
    /// GFLOP/s of independent multiply-adds in registers, each counted as two operations.
    pub gflops: Rate,
}

/// The bandwidth of one level of the memory hierarchy, with the best instruction set.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Memory {
    /// `L1`, `L2`, `L3` or `DRAM`.
    pub name: &'static str,
    /// The capacity, per core or, of the last-level cache, of all cores; `usize::MAX` for main
    /// memory.
    pub bytes: usize,
    /// Whether the cache is private to each core.
    pub per_core: bool,
    /// The rate of a sum, in GB/s.
    pub read: Rate,
    /// The rate of a copy, in GB/s, with bytes read and bytes written both counted.
    pub copy: Rate,
}

/// The overhead of a parallel region: its time minus the time of the work in it, which is 20
/// microseconds per thread.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RegionCost {
    /// Microseconds, for consecutive regions.
    pub busy: f64,
    /// Microseconds, after 200 of serial work, when the threads are asleep.
    pub rested: f64,
}

/// The measured limits of a machine.
#[derive(Clone, Debug, PartialEq)]
pub struct Machine {
    /// Processors that the operating system offers.
    pub cores: usize,
    /// Threads that parallel work uses.
    pub threads: usize,
    /// The clock rate in GHz, from a chain of instructions of known latency: a multiplication and
    /// an exclusive or, 4 cycles on x86-64 since 2008 and on most 64-bit Arm CPUs. Wide vectors may
    /// reduce the clock rate.
    pub clock: f64,
    /// The peak of every SIMD level that the CPU supports, the best last.
    pub peaks: Vec<Peak>,
    /// The memory hierarchy, from L1 to main memory.
    pub memory: Vec<Memory>,
    /// Nanoseconds for the first access to 4 KiB of memory (a page fault).
    pub page_fault: f64,
    /// The overhead of a parallel region from a thread outside of the pool.
    pub region_outside: RegionCost,
    /// The same inside [`with_threads`](crate::with_threads).
    pub region_inside: RegionCost,
}

impl Machine {
    /// The largest peak with all threads.
    pub fn peak(&self) -> Peak {
        let best = |a: &Peak, b: &Peak| a.gflops.all.total_cmp(&b.gflops.all);
        *self.peaks.iter().max_by(|a, b| best(a, b)).expect("the scalar level is always there")
    }

    /// The first level of memory that holds `bytes`, with the private caches of all threads
    /// together.
    pub fn holding(&self, bytes: f64) -> &Memory {
        let holds = |m: &&Memory| {
            let each = if m.per_core { self.threads } else { 1 };
            m.bytes as f64 * each as f64 >= bytes
        };
        self.memory.iter().find(holds).expect("main memory holds everything")
    }

    /// The largest bandwidth in GB/s, of reads or copies by all threads, of a level of memory that
    /// holds `bytes`: the first such level, or a later one if that is faster.
    pub fn bandwidth(&self, bytes: f64) -> f64 {
        let nearest = self.holding(bytes).bytes;
        let far_enough = self.memory.iter().filter(|m| m.bytes >= nearest);
        far_enough.map(|m| m.read.all.max(m.copy.all)).fold(0.0, f64::max)
    }

    /// The roofline bound in seconds for `flops` operations on `bytes`, each of which is moved once
    /// to or from the first level of memory that holds them.
    pub fn least_seconds(&self, flops: f64, bytes: f64) -> f64 {
        let bandwidth = self.bandwidth(bytes);
        (flops / (self.peak().gflops.all * 1e9)).max(bytes / (bandwidth * 1e9))
    }

    /// A summary in two lines.
    pub fn summary(&self) -> String {
        let Peak { level, gflops } = self.peak();
        let memory: Vec<String> =
            self.memory.iter().map(|m| format!("{} {:.0}", m.name, m.copy.all)).collect();
        format!(
            "machine: {} threads, {:.2} GHz, {level} {:.0} GFLOP/s on one and {:.0} on all\n         \
             copies at GB/s: {}; parallel region {:.1} us outside the pool, {:.1} inside",
            self.threads,
            self.clock,
            gflops.one,
            gflops.all,
            memory.join(", "),
            self.region_outside.busy,
            self.region_inside.busy
        )
    }
}

/// A size as text, for example `48 KiB`; empty for main memory.
fn size(bytes: usize) -> String {
    match bytes {
        usize::MAX => String::new(),
        b if b < 1 << 20 => format!("{} KiB", b >> 10),
        b => format!("{} MiB", b >> 20),
    }
}

impl Display for Machine {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let levels: Vec<&str> = self.peaks.iter().map(|p| p.level.name()).collect();
        let levels = levels.join(", ");
        let (cores, threads, clock) = (self.cores, self.threads, self.clock);
        writeln!(f, "{cores} cores, {threads} threads, {clock:.2} GHz, SIMD levels {levels}\n")?;
        let all = if threads == 1 { "all".into() } else { format!("all {threads}") };
        writeln!(f, "{:<28}{:>12}{all:>12}", "f32 multiply-adds, GFLOP/s", "1 thread")?;
        for Peak { level, gflops } in &self.peaks {
            writeln!(f, "  {level:<26}{:>12.1}{:>12.1}", gflops.one, gflops.all)?;
        }
        writeln!(f, "\n{:<28}{:>24}{:>24}", "memory, GB/s", "read", "copy (read + written)")?;
        writeln!(f, "{:<28}{:>12}{all:>12}{:>12}{all:>12}", "", "1 thread", "1 thread")?;
        for m in &self.memory {
            let each = if m.per_core { "per core" } else { "" };
            let name = format!("{:<5}{:>8} {each}", m.name, size(m.bytes));
            let (r, c) = (m.read, m.copy);
            writeln!(
                f,
                "  {name:<26}{:>12.1}{:>12.1}{:>12.1}{:>12.1}",
                r.one, r.all, c.one, c.all
            )?;
        }
        let fault = self.page_fault;
        writeln!(f, "\n{:<40}{fault:>12.0} ns", "first touch of 4 KiB of fresh memory")?;
        writeln!(
            f,
            "\n{:<28}{:>24}{:>24}",
            "overhead of a parallel region", "back to back", "after 200 us"
        )?;
        for (name, r) in [("outside", self.region_outside), ("inside", self.region_inside)] {
            let name = format!("from {name} the pool, us");
            writeln!(f, "  {name:<26}{:>24.1}{:>24.1}", r.busy, r.rested)?;
        }
        Ok(())
    }
}
