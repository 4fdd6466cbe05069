//! The roofline model: the least time of a computation, and what determines it.

use super::{Machine, Memory, Peak, Rate};
use crate::element::DType;
use std::fmt::{self, Display, Formatter};

/// The limits that the least time of a computation follows from: a part of [`Machine`] that is measured in a
/// fraction of the time.
#[derive(Clone, Debug, PartialEq)]
pub struct Roofline {
    /// The number of threads of the rates with all threads.
    pub threads: usize,
    /// The `f32` arithmetic rate of the best SIMD level.
    pub peak: Peak,
    /// The memory hierarchy, from L1 to main memory.
    pub memory: Vec<Memory>,
}

/// The least time of a computation on a machine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bound {
    /// The least time, in seconds.
    pub seconds: f64,
    /// What determines it.
    pub limit: Limit,
}

/// What determines the least time of a computation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Limit {
    /// Multiply-adds in registers.
    Arithmetic,
    /// The bandwidth of a level of memory: `L1`, `L2`, `L3` or `DRAM`.
    Memory(&'static str),
}

impl Display for Limit {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Limit::Arithmetic => "FMA",
            Limit::Memory(name) => name,
        })
    }
}

/// The rate of some of the `all` threads: one thread's rate times their number, but at most the rate of all.
fn rate_of(rate: Rate, threads: usize, all: usize) -> f64 {
    if threads >= all { rate.all } else { (rate.one * threads as f64).min(rate.all.max(rate.one)) }
}

impl Roofline {
    /// The least time on so many threads of `flops` operations on numbers of a type, with `bytes` moved once
    /// to or from the first level of memory that holds them (or a later level, if that is faster).
    ///
    /// The peak of `f64` is half the peak of `f32`. For integers, only memory is a limit. Products by
    /// AMX tiles can be faster than the peak of `f32`.
    ///
    /// ```
    /// use retrograd::tensor::DType;
    /// use retrograd::tensor::machine::{Limit, Machine, Memory, Peak, Rate, Roofline};
    /// use retrograd::tensor::simd::Level;
    /// let (gflops, read) = (Rate { one: 50.0, all: 100.0 }, Rate { one: 8.0, all: 10.0 });
    /// let dram = Memory { name: "DRAM", bytes: usize::MAX, per_core: false, read, copy: read };
    /// let peak = Peak { level: Level::Scalar, gflops };
    /// let roofline = Roofline { threads: 2, peak, memory: vec![dram] };
    /// // 100 GFLOP/s and 10 GB/s with both threads:
    /// let bound = roofline.bound(2, DType::F32, 1e9, 1e6);
    /// assert_eq!((bound.seconds, bound.limit), (0.01, Limit::Arithmetic));
    /// assert_eq!(roofline.bound(2, DType::F32, 1e6, 1e9).limit, Limit::Memory("DRAM"));
    /// ```
    pub fn bound(&self, threads: usize, dtype: DType, flops: f64, bytes: f64) -> Bound {
        let threads = threads.clamp(1, self.threads.max(1));
        let gflops = rate_of(self.peak.gflops, threads, self.threads);
        let arithmetic = match dtype {
            DType::F32 => flops / (gflops * 1e9),
            DType::F64 => flops / (gflops * 0.5e9),
            DType::I64 | DType::U32 | DType::Bool => 0.0,
        };
        let holds = |m: &Memory| {
            let each = if m.per_core { threads } else { 1 };
            m.bytes as f64 * each as f64 >= bytes
        };
        let nearest = self.memory.iter().position(holds).unwrap_or(0);
        let bandwidth = |m: &Memory| {
            rate_of(m.read, threads, self.threads).max(rate_of(m.copy, threads, self.threads))
        };
        let levels = self.memory[nearest..].iter().map(|m| (bandwidth(m), m.name));
        // The first of equal ones: it is nearer.
        let (rate, name) = levels.fold((0.0, ""), |best, m| if m.0 > best.0 { m } else { best });
        let memory = if bytes > 0.0 { bytes / (rate * 1e9) } else { 0.0 };
        match arithmetic > memory {
            true => Bound { seconds: arithmetic, limit: Limit::Arithmetic },
            false => Bound { seconds: memory, limit: Limit::Memory(name) },
        }
    }
}

impl From<&Machine> for Roofline {
    fn from(machine: &Machine) -> Roofline {
        Roofline { threads: machine.threads, peak: machine.peak(), memory: machine.memory.clone() }
    }
}

/// One line: the rates of one thread and of all.
impl Display for Roofline {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Peak { level, gflops } = self.peak;
        write!(
            f,
            "{level} {:.0} GFLOP/s on 1 thread, {:.0} on {}",
            gflops.one, gflops.all, self.threads
        )?;
        for m in &self.memory {
            let (one, all) = (m.read.one.max(m.copy.one), m.read.all.max(m.copy.all));
            write!(f, "; {} {one:.0} and {all:.0} GB/s", m.name)?;
        }
        Ok(())
    }
}
