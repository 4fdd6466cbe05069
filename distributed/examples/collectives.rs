//! The collective operations of training over MPI: their time by message size on these processes, and the training
//! step that a model of them predicts for other networks and numbers of processes.
//!
//! ```text
//! cargo build --release -p retrograd-train
//! cargo build --release --features mpi -p retrograd-distributed --example collectives
//! target/release/retrograd train --preset nanogpt-cpu --threads 1 --out alone
//! mpiexec -n 4 target/release/examples/collectives --run alone
//! ```
//!
//! The model is `latency + bytes / bandwidth` per message (Hockney 1994), with the messages of the usual
//! algorithms: an all-to-all of `N` ranks sends `N - 1` messages one after the other, an all-gather in a ring as
//! well, and a small all-gather `log2 N` (Thakur, Rabenseifner, Gropp 2005). docs/MPI.md has the formulas, what the
//! model leaves out, and a comparison with measured steps.

use clap::Parser;
use retrograd::distributed::{Collectives, Communicator, Mpi};
use retrograd::nn::checkpoint::{Checkpoint, read};
use retrograd::nn::default_shards;
use std::error::Error;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

/// Times collective operations on the processes that mpiexec started, and predicts training steps.
#[derive(Parser)]
struct Args {
    /// The folder of a finished run of `retrograd` by one process with one thread: predict its step on
    /// other networks
    #[arg(long, value_name = "DIR")]
    run: Option<PathBuf>,
    /// A network beside the default ones: its name, latency in µs and bandwidth in Gbit/s, as hdr:1.2:200
    #[arg(long, value_name = "NAME:US:GBIT")]
    network: Vec<String>,
}

/// The time of a message: `latency + bytes / bandwidth`.
#[derive(Clone, Debug)]
struct Network {
    name: String,
    /// In seconds.
    latency: f64,
    /// In bytes per second.
    bandwidth: f64,
    /// Whether messages are copied by the cores that compute, as on one machine. Else network adapters move
    /// them while the cores compute.
    is_copied: bool,
}

impl Network {
    fn new(name: &str, us: f64, gbit: f64) -> Network {
        let (latency, bandwidth) = (us * 1e-6, gbit * 1e9 / 8.0);
        Network { name: name.into(), latency, bandwidth, is_copied: false }
    }

    /// `messages` one after the other, with these bytes together.
    fn time(&self, messages: f64, bytes: f64) -> f64 {
        messages * self.latency + bytes / self.bandwidth
    }
}

/// Orders of magnitude that vendors and the OSU benchmarks report for messages between two machines.
fn usual_networks() -> Vec<Network> {
    vec![
        Network::new("10 Gbit Ethernet, TCP", 20.0, 10.0),
        Network::new("100 Gbit Ethernet, RDMA", 2.5, 100.0),
        Network::new("InfiniBand HDR", 1.2, 200.0),
    ]
}

fn main() -> ExitCode {
    retrograd::study::from_env();
    let Err(error) = run(&Args::parse(), &mut io::stdout()) else { return ExitCode::SUCCESS };
    if error.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe) {
        return ExitCode::SUCCESS; // as `| head` ends
    }
    eprintln!("error: {error}");
    ExitCode::FAILURE
}

fn run(args: &Args, out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    let step = args.run.as_deref().map(Step::read).transpose()?;
    let mut networks = usual_networks();
    for text in &args.network {
        networks.push(parse(text).ok_or(format!("{text:?} is not NAME:US:GBIT, as hdr:1.2:200"))?);
    }
    let mpi = Mpi::start()?;
    let is_first = mpi.rank() == 0;
    if mpi.size() > 1 {
        let measured = measure(&mpi);
        let is_copied = is_one_machine(&mpi);
        if is_first {
            networks.insert(0, Network { is_copied, ..report(&measured, mpi.size(), out)? });
        }
    } else {
        writeln!(
            out,
            "One process has nobody to talk to: start several with mpiexec to measure.\n"
        )?;
    }
    if let Some(step) = step.filter(|_| is_first) {
        step.predict(&networks, out)?;
    }
    Ok(())
}

fn parse(text: &str) -> Option<Network> {
    let [name, us, gbit] = text.split(':').collect::<Vec<_>>()[..] else { return None };
    let (us, gbit) = (us.parse().ok()?, gbit.parse().ok()?);
    (us > 0.0 && gbit > 0.0).then(|| Network::new(name, us, gbit))
}

/// Whether all ranks are on one machine, by what Linux draws at each boot. Elsewhere: no.
fn is_one_machine(mpi: &Mpi) -> bool {
    let boot = std::fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let boots = mpi.all_gather_bytes(&boot);
    !boot.is_empty() && boots.iter().all(|other| *other == boot)
}

/// The times of operations in which each rank sends `bytes` to each other one.
struct Measured {
    bytes: usize,
    all_to_all: f64,
    all_gather: f64,
    all_reduce: f64,
}

fn measure(mpi: &Mpi) -> Vec<Measured> {
    let ranks = mpi.size();
    let sizes = (1..=11).map(|power| 4usize.pow(power));
    let time = |f: &mut dyn FnMut()| {
        let mut times = Vec::new();
        for _ in 0..15 {
            mpi.all_gather_bytes(&[]); // All begin together.
            let start = Instant::now();
            f();
            times.push(start.elapsed().as_secs_f64());
        }
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    };
    sizes
        .map(|bytes| {
            let n = bytes / 4;
            let (send, mut receive) = (vec![1f32; n * ranks], vec![0f32; n * ranks]);
            let mut sum = vec![0f32; n];
            let counts = vec![n; ranks];
            Measured {
                bytes,
                all_to_all: time(&mut || mpi.all_to_all(&send, &counts, &mut receive, &counts)),
                all_gather: time(&mut || mpi.all_gather(&send[..n], &mut receive, &counts)),
                all_reduce: time(&mut || mpi.all_reduce(&send[..n], &mut sum)),
            }
        })
        .collect()
}

/// Prints the times, and fits the model to those of all-to-all and all-gather.
fn report(measured: &[Measured], ranks: usize, out: &mut impl Write) -> io::Result<Network> {
    writeln!(out, "{ranks} ranks, {}\n", Mpi::library().chars().take(60).collect::<String>())?;
    writeln!(out, "  bytes to each rank   all-to-all   all-gather   all-reduce   (medians, µs)")?;
    for m in measured {
        let [a, b, c] = [m.all_to_all, m.all_gather, m.all_reduce].map(|t| t * 1e6);
        writeln!(out, "  {:>18} {a:>12.1} {b:>12.1} {c:>12.1}", m.bytes)?;
    }
    let messages = (ranks - 1) as f64;
    let points = measured.iter().flat_map(|m| [(m.bytes, m.all_to_all), (m.bytes, m.all_gather)]);
    let points = points.map(|(bytes, time)| (messages, messages * bytes as f64, time));
    let (latency, per_byte) = fit(&points.collect::<Vec<_>>());
    let bandwidth = 1.0 / per_byte;
    let network = Network { name: "these processes".into(), latency, bandwidth, is_copied: false };
    writeln!(
        out,
        "\nFit: a latency of {:.1} µs and {:.2} GB/s per rank.\n",
        network.latency * 1e6,
        network.bandwidth / 1e9
    )?;
    Ok(network)
}

/// The `x, y >= 0` with the least squares of `(a x + b y - t) / t`.
fn fit(points: &[(f64, f64, f64)]) -> (f64, f64) {
    let sum =
        |f: &dyn Fn(f64, f64) -> f64| points.iter().map(|(a, b, t)| f(a / t, b / t)).sum::<f64>();
    let (aa, ab, bb) = (sum(&|a, _| a * a), sum(&|a, b| a * b), sum(&|_, b| b * b));
    let (a1, b1) = (sum(&|a, _| a), sum(&|_, b| b));
    let det = aa * bb - ab * ab;
    let (x, y) = ((a1 * bb - b1 * ab) / det, (b1 * aa - a1 * ab) / det);
    if x < 0.0 {
        (0.0, b1 / bb)
    } else if y < 0.0 {
        (a1 / aa, 0.0)
    } else {
        (x, y)
    }
}

/// A recorded training step of one process with one thread.
struct Step {
    /// In seconds.
    time: f64,
    /// Of the parameters.
    bytes: f64,
    shards: usize,
}

/// The part of a step that is the backward pass: two of three matrix multiplications.
const BACKWARD: f64 = 2.0 / 3.0;
/// Of `DataParallel`.
const BUCKET: f64 = 1048576.0;

impl Step {
    fn read(folder: &Path) -> Result<Step, Box<dyn Error>> {
        let log = folder.join("log.jsonl");
        let text = read(&log, 1 << 32).map_err(|e| format!("{}: {e}", log.display()))?;
        let lines = serde_json::Deserializer::from_slice(&text).into_iter::<serde_json::Value>();
        let lines = lines.collect::<Result<Vec<_>, _>>()?;
        let mut ms: Vec<f64> = lines.iter().filter_map(|line| line["ms"].as_f64()).collect();
        let params = lines.iter().find_map(|line| line["params"].as_u64());
        let params = params.ok_or(format!("{}: the run is not finished", log.display()))?;
        ms.sort_by(f64::total_cmp);
        let median = *ms.get(ms.len() / 2).ok_or("the run has no steps")?;
        let file = Checkpoint::load_filtered(folder.join("checkpoint.safetensors"), |_| false)?;
        let recipe: serde_json::Value = file.read_note("recipe")?;
        let size = |name: &str| recipe[name].as_u64().map(|n| n as usize);
        let (batch, context) = (size("batch").unwrap_or(1), size("context").unwrap_or(1));
        let shards = size("shards").unwrap_or_else(|| default_shards(batch, batch * context));
        Ok(Step { time: median / 1e3, bytes: 4.0 * params as f64, shards })
    }

    /// The time of a step, of which `compute` is the time of the passes.
    fn on(&self, network: &Network, ranks: f64, compute: f64) -> f64 {
        let part = (ranks - 1.0) / ranks;
        let buckets = (self.bytes / BUCKET).ceil();
        let exchange =
            buckets * (ranks - 1.0) * network.latency + self.bytes * part / network.bandwidth;
        // The last bucket is complete at the end of the backward pass, the others are exchanged during it,
        // unless the cores that compute copy them.
        let others = if network.is_copied { 0.0 } else { 1.0 - 1.0 / buckets };
        let window = BACKWARD * compute * others;
        let exposed = (exchange - window).max(exchange / buckets);
        let parameters = network.time(ranks - 1.0, self.bytes * part);
        let control = 4.0 * network.time(ranks.log2().ceil(), 0.0);
        compute + exposed + parameters + control
    }

    fn predict(&self, networks: &[Network], out: &mut impl Write) -> io::Result<()> {
        writeln!(
            out,
            "A step of {:.2} ms on one thread, {} shards, {:.2} MB of parameters.\n",
            self.time * 1e3,
            self.shards,
            self.bytes / 1e6
        )?;
        writeln!(
            out,
            "Predicted time of a step in ms, and efficiency: the batch divided among ranks (up to its shards),"
        )?;
        writeln!(out, "and a batch that grows with the ranks.\n")?;
        for network in networks {
            writeln!(
                out,
                "{} ({:.1} µs, {:.2} GB/s)",
                network.name,
                network.latency * 1e6,
                network.bandwidth / 1e9
            )?;
            writeln!(out, "   ranks   divided             growing")?;
            for ranks in (1..=10).map(|power| 1usize << power) {
                let n = ranks as f64;
                let divided = if ranks <= self.shards {
                    let compute =
                        self.time * self.shards.div_ceil(ranks) as f64 / self.shards as f64;
                    let time = self.on(network, n, compute);
                    format!("{:>8.2} {:>5.0} %", time * 1e3, 100.0 * self.time / n / time)
                } else {
                    format!("{:>16}", "-")
                };
                let time = self.on(network, n, self.time);
                writeln!(
                    out,
                    "  {ranks:>6} {divided}    {:>8.2} {:>5.0} %",
                    time * 1e3,
                    100.0 * self.time / time
                )?;
            }
            writeln!(out)?;
        }
        Ok(())
    }
}
