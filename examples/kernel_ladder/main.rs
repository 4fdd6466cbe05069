//! Three kernels, each in several versions of increasing speed.
//!
//! `cargo run --release --example kernel_ladder` runs three ladders: a matrix multiplication, whose
//! limit is arithmetic, and softmax and layer normalisation, whose limit is memory. Every rung
//! changes one thing, is checked against the first rung, and is then timed; the last rungs are this
//! library's kernel and, for matrix multiplication, the crate matrixmultiply. Rates are compared with
//! the limits of the machine.
//!
//! Read [`matmul`], [`softmax`] and [`layer_norm`] from top to bottom. There is no `unsafe` in
//! them: vectors come from [`Lanes`](retrograd::tensor::simd::Lanes), whose methods are safe on a
//! token that proves that the CPU has the instructions.

#[path = "../common/environment.rs"]
mod environment;
#[path = "../common/output.rs"]
mod output;

mod ladder;
mod layer_norm;
mod matmul;
mod softmax;

use clap::Parser;
use output::{note, say};
use retrograd::machine::Machine;
use retrograd::prelude::with_threads;
use retrograd::tensor::threads;
use std::process::ExitCode;
use std::time::Duration;

const LADDERS: [&str; 3] = ["matmul", "softmax", "layer_norm"];

/// Times kernels from naive to fast, and compares each with the limits of the machine.
#[derive(Parser)]
#[command(version)]
struct Args {
    /// Only one ladder
    #[arg(long, value_parser = LADDERS)]
    only: Option<String>,
    /// Small sizes and short measurements, as a test
    #[arg(long)]
    quick: bool,
}

fn main() -> ExitCode {
    retrograd::study::from_env();
    let args = Args::parse();
    environment::check("close other programs");
    // Threads are taken from a pool that is entered once, as a training loop should do.
    with_threads(threads(), || measure_all(&args));
    output::end(ExitCode::SUCCESS)
}

fn measure_all(args: &Args) {
    say!("{}", retrograd::study::conditions::sentence());
    retrograd::study::load::warn_if_busy();
    note!("measuring the machine");
    let machine = Machine::measure();
    say!("{}\n", machine.summary());
    let (n, rows, time) = match args.quick {
        true => (96, 64, Duration::from_millis(5)),
        false => (768, 8192, Duration::from_millis(400)),
    };
    for name in LADDERS {
        if args.only.as_deref().is_some_and(|only| only != name) {
            continue;
        }
        let ladder = match name {
            "matmul" => matmul::ladder(n),
            "softmax" => softmax::ladder(rows),
            _ => layer_norm::ladder(rows),
        };
        say!("{}", ladder.measure(&machine, time));
    }
}
