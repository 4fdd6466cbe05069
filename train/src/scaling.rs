//! A prediction of the time of a training step on more cores: `scaling`.

use crate::flags::NewRun;
use crate::folder::Folder;
use crate::output::say;
use crate::ranks::Ranks;
use crate::session::Session;
use crate::stop::{Result, usage};
use crate::train::new_run;
use clap::Args;
use retrograd::prelude::*;
use retrograd::study::regions::{RegionTree, record};
use retrograd::study::scaling::{Prediction, Rules, predict};
use retrograd::tensor::machine::RegionCost;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Predict the time of a training step on 1 to 64 cores, and what limits it
///
/// Records a step on one thread, predicts, and lists where most cores would be idle; then measures steps on the
/// cores of this machine. docs/SCALING.md explains it.
#[derive(Args, Debug)]
pub struct Scaling {
    #[command(flatten)]
    pub new: NewRun,
}

/// The numbers of cores in the table.
const CORES: [usize; 7] = [1, 2, 4, 8, 16, 32, 64];
/// The numbers of cores for which places are listed.
const CORES_OF_PLACES: [usize; 2] = [8, 64];
/// How many places are listed.
const PLACES: usize = 5;
/// Steps before the record, which allocate memory and fill caches.
const WARM_UP: usize = 2;
/// Recorded and measured steps at least; the fastest is used.
const STEPS: usize = 5;
/// The time for recorded steps, and for measured ones.
const ENOUGH: Duration = Duration::from_millis(1500);
/// The overhead of a parallel region on two cores, in seconds, where it cannot be measured.
const USUAL_OVERHEAD: f64 = 3e-6;

/// Records a step on one thread and prints the predictions; then measures steps on this machine.
pub fn scaling(args: &Scaling, ranks: &Ranks) -> Result<()> {
    if ranks.count() > 1 {
        return usage("scaling is about the threads of one process: start it without mpiexec");
    }
    let recording = recorded(args, ranks)?;
    let most = retrograd::tensor::threads();
    let (overhead, is_measured) = overhead(most);
    let (regions, tasks) = recording.counts();
    say!(
        "A step on one thread: {regions} regions, {tasks} tasks; {} overhead of a region on two \
         cores: {:.1} us",
        if is_measured { "measured" } else { "assumed" },
        overhead * 1e6
    );
    let on = |cores| predict(&recording, Rules::new(cores, &recording, overhead));
    say!("\ncores  step in ms  speedup  speedup at most");
    for cores in CORES {
        let p = on(cores);
        let most = recording.seconds() / p.least;
        say!("{cores:>5}  {:>10.2}  {:>7.2}  {most:>15.2}", p.seconds * 1e3, p.speedup);
    }
    for cores in CORES_OF_PLACES {
        print_places(&on(cores));
    }
    say!(
        "\nThe model leaves out that cores share memory bandwidth and the last cache, that data moves \
         between\ntheir caches, SMT, and clock rates that depend on load: see docs/SCALING.md."
    );
    let counts = CORES.into_iter().filter(|&n| n < most).chain([most]);
    say!("\nthreads  measured ms  predicted ms  measured / predicted");
    for threads in counts {
        let (measured, predicted) = (measured(args, ranks, threads)?, on(threads).seconds);
        let ratio = measured / predicted;
        let [measured, predicted] = [measured, predicted].map(|seconds| seconds * 1e3);
        say!("{threads:>7}  {measured:>11.2}  {predicted:>12.2}  {ratio:>20.3}");
    }
    Ok(())
}

/// What `observe` makes of the fastest step of a new run on a number of threads, and the seconds that it took, by which
/// steps are compared: other load can only slow them down.
fn fastest<R: Send>(
    args: &Scaling,
    ranks: &Ranks,
    threads: usize,
    observe: impl Fn(&mut dyn FnMut() -> Result<()>) -> Result<(f64, R)> + Sync,
) -> Result<(f64, R)> {
    with_threads(threads, || {
        let (run, text, corpus) = new_run(&args.new)?;
        let folder = Folder::from(PathBuf::from("(no folder)"));
        let session = Session::new(&run, (&text, &corpus), &folder, ranks, false);
        let mut session = session.or_else(usage)?;
        with_matmul_precision(run.recipe.precision, || {
            let mut step = || session.take_step(None).map(drop);
            for _ in 0..WARM_UP {
                step()?;
            }
            let mut fastest = observe(&mut step)?;
            let (start, mut count) = (Instant::now(), 1);
            while count < STEPS || start.elapsed() < ENOUGH {
                let next = observe(&mut step)?;
                count += 1;
                if next.0 < fastest.0 {
                    fastest = next;
                }
            }
            Ok(fastest)
        })
    })
}

/// The record of a step on one thread.
fn recorded(args: &Scaling, ranks: &Ranks) -> Result<RegionTree> {
    let observe = |step: &mut dyn FnMut() -> Result<()>| {
        let (done, recording) = record(step);
        done.map(|()| (recording.seconds(), recording))
    };
    fastest(args, ranks, 1, observe).map(|(_, recording)| recording)
}

/// The time of a step on a number of threads.
fn measured(args: &Scaling, ranks: &Ranks, threads: usize) -> Result<f64> {
    let observe = |step: &mut dyn FnMut() -> Result<()>| {
        let start = Instant::now();
        step().map(|()| (start.elapsed().as_secs_f64(), ()))
    };
    fastest(args, ranks, threads, observe).map(|(seconds, ())| seconds)
}

/// The overhead of a parallel region on two cores, in seconds, and whether it has been measured.
fn overhead(threads: usize) -> (f64, bool) {
    if threads == 1 {
        return (USUAL_OVERHEAD, false);
    }
    let times = with_threads(2, || [(); 12].map(|()| RegionCost::measure().busy));
    let least = times.into_iter().fold(f64::INFINITY, f64::min);
    (least.max(0.0) * 1e-6, true)
}

/// Prints where the most cores are idle.
fn print_places(p: &Prediction) {
    let cores = p.cores;
    let [idle, extra] = [p.idle, p.extra].map(|x| 100.0 * x);
    say!(
        "\nOn {cores} cores {idle:.1}% of their time is idle, and dividing the work costs {extra:.1}%. Idle \
         while one waits for:"
    );
    say!(" idle   time  cores busy");
    for place in p.places.iter().take(PLACES) {
        let [lost, time] = [place.lost, place.seconds / p.seconds].map(|x| 100.0 * x);
        say!("{lost:>4.1}%  {time:>4.1}%  {:>10.1}  {}", place.busy, place.name);
    }
}
