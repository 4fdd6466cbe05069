//! Code that all benchmarks use: the work to be timed, rates as fractions of the machine's limits, the
//! conditions of the measurement, and a warning if other processes disturb it.

#[path = "../tasks/mod.rs"]
pub mod tasks;

use criterion::measurement::{Measurement, ValueFormatter, WallTime};
use criterion::{Criterion, Throughput};
use retrograd::machine::Machine;
use retrograd::prelude::with_threads;
use retrograd::study::load;
use retrograd::tensor::threads;
use std::time::Duration;

/// Prints the machine's limits, then runs the benchmarks of one program, within one thread pool as
/// in a training loop.
pub fn main(f: impl FnOnce(&mut Criterion<Limits>) + Send) {
    retrograd::study::from_env();
    with_threads(threads(), || {
        println!("{}", retrograd::study::conditions::sentence());
        load::warn_if_busy();
        let machine = Machine::measure();
        println!("{}\n", machine.summary());
        let mut c = Criterion::default()
            .with_measurement(Limits(machine))
            .warm_up_time(Duration::from_millis(300))
            .measurement_time(Duration::from_secs(1))
            .sample_size(20)
            .configure_from_args();
        f(&mut c);
        c.final_summary();
    });
}

/// One group of benchmarks: the work of each name, see [`tasks::work`].
pub fn group(c: &mut Criterion<Limits>, name: &str, cases: impl IntoIterator<Item = String>) {
    let mut group = c.benchmark_group(name);
    for case in cases {
        let work = tasks::work(&case).unwrap_or_else(|| panic!("there is no work named {case}"));
        let (elements, bytes) = (work.flops as u64, work.bytes as u64);
        if let Some(throughput) = match (elements, bytes) {
            (0, 0) => None,
            (0, _) => Some(Throughput::Bytes(bytes)),
            (_, 0) => Some(Throughput::Elements(elements)),
            _ => Some(Throughput::ElementsAndBytes { elements, bytes }),
        } {
            group.throughput(throughput);
        }
        // Operands are allocated only if the case is measured, and freed before the next case.
        let (mut start, mut run) = (Some(work.start), None);
        let mut others = load::Others::default();
        group.bench_function(&case, |b| {
            let run = run.get_or_insert_with(|| start.take().expect("started once")());
            let before = load::Reading::now();
            b.iter(|| run(false));
            others += before.since();
        });
        if others.disturb() {
            eprintln!("warning: {others} during {case}; its time is not to be trusted\n");
        }
    }
    group.finish();
}

/// Wall time, with rates as fractions of the machine's limits.
pub struct Limits(Machine);

impl Measurement for Limits {
    type Intermediate = <WallTime as Measurement>::Intermediate;
    type Value = Duration;

    fn start(&self) -> Self::Intermediate {
        WallTime.start()
    }
    fn end(&self, start: Self::Intermediate) -> Duration {
        WallTime.end(start)
    }
    fn add(&self, a: &Duration, b: &Duration) -> Duration {
        WallTime.add(a, b)
    }
    fn zero(&self) -> Duration {
        WallTime.zero()
    }
    fn to_f64(&self, value: &Duration) -> f64 {
        WallTime.to_f64(value)
    }
    fn formatter(&self) -> &dyn ValueFormatter {
        self
    }
}

impl ValueFormatter for Limits {
    /// `231.2 GFLOP/s = 88 %` of the FMA peak of all threads, or `12.3 GB/s = 41 % of DRAM`: of the
    /// bandwidth of the fastest memory level that holds as many bytes.
    fn format_throughput(&self, throughput: &Throughput, nanoseconds: f64) -> String {
        match *throughput {
            Throughput::Elements(flops) => {
                let rate = flops as f64 / nanoseconds;
                let share = rate / self.0.peak().gflops.all * 100.0;
                format!("{rate:.1} GFLOP/s = {share:.0} %")
            }
            Throughput::Bytes(bytes) => {
                let bytes = bytes as f64;
                let least = self.0.least_seconds(0.0, bytes) * 1e9;
                let (rate, share) = (bytes / nanoseconds, least / nanoseconds * 100.0);
                format!("{rate:.1} GB/s = {share:.0} % of {}", self.0.holding(bytes).name)
            }
            ref other => WallTime.formatter().format_throughput(other, nanoseconds),
        }
    }
    fn scale_values(&self, typical: f64, values: &mut [f64]) -> &'static str {
        WallTime.formatter().scale_values(typical, values)
    }
    fn scale_throughputs(&self, typical: f64, t: &Throughput, values: &mut [f64]) -> &'static str {
        WallTime.formatter().scale_throughputs(typical, t, values)
    }
    fn scale_for_machines(&self, values: &mut [f64]) -> &'static str {
        WallTime.formatter().scale_for_machines(values)
    }
}
