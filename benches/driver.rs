//! retrograd's program in the comparison with other libraries: executes the requests of
//! benches/compare (see protocol.rs there). `--precision NAME` sets the precision of matrix
//! multiplication. At its start it warns if other processes use the cores; `--no-warning` omits this, for a
//! caller that watches the load itself.

#[path = "compare/protocol.rs"]
mod protocol;
#[path = "tasks/mod.rs"]
mod tasks;

use protocol::Opened;
use retrograd::machine::Machine;
use retrograd::prelude::{MatmulPrecision, with_matmul_precision, with_threads};
use retrograd::tensor::settings::level;
use retrograd::tensor::{matmul_precision, threads};
use serde_json::json;

fn main() {
    retrograd::study::from_env();
    let precision = std::env::args().skip_while(|arg| arg != "--precision").nth(1);
    let precision = precision
        .map_or(MatmulPrecision::F32, |name| name.parse().unwrap_or_else(|e| panic!("{e}")));
    assert!(
        precision.is_supported(),
        "this CPU does not support matrix multiplication in {precision}"
    );
    if !std::env::args().any(|arg| arg == "--no-warning") {
        retrograd::study::load::warn_if_busy();
    }
    // As in training, everything happens within a pool that is entered once.
    with_threads(threads(), || with_matmul_precision(precision, serve));
}

fn serve() {
    protocol::serve(about, |name| {
        let work = tasks::work(name)?;
        Some(Opened { flops: work.flops, bytes: work.bytes, run: (work.start)() })
    });
}

/// The limits of the machine, all threads together.
fn about() -> String {
    let machine = Machine::measure();
    let memory = machine.memory.iter().map(|m| {
        let cores = if m.per_core { machine.threads as f64 } else { 1.0 };
        let bytes = m.bytes as f64 * cores;
        json!({ "name": m.name, "bytes": bytes, "gb": machine.bandwidth(bytes) })
    });
    let about = json!({
        "version": env!("CARGO_PKG_VERSION"),
        "threads": machine.threads,
        "level": level().name(),
        "precision": matmul_precision().name(),
        "gflops": machine.peak().gflops.all,
        "memory": memory.collect::<Vec<_>>(),
        "report": machine.to_string(),
    });
    about.to_string()
}
