//! Three kernels, each in several versions of increasing speed.
//!
//! `cargo run --release --example kernel_ladder` runs three ladders: a matrix multiplication, whose
//! limit is arithmetic, and softmax and layer normalisation, whose limit is memory. Every rung
//! changes one thing, is checked against the first rung, and is then timed; the last rungs are this
//! library's kernel and, for matrix multiplication, its portable code. Rates are compared with
//! the limits of the machine.
//!
//! Read [`matmul`], [`softmax`] and [`layer_norm`] from top to bottom. There is no `unsafe` in
//! them: vectors come from [`Lanes`](retrograd::tensor::simd::Lanes), whose methods are safe on a
//! token that proves that the CPU has the instructions.

mod ladder;
mod layer_norm;
mod matmul;
mod softmax;

use retrograd::machine::Machine;
use retrograd::prelude::with_threads;
use retrograd::tensor::threads;
use std::process::ExitCode;
use std::time::Duration;

const LADDERS: [&str; 3] = ["matmul", "softmax", "layer_norm"];

fn main() -> ExitCode {
    retrograd::study::from_env();
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (quick, only) = match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => (false, None),
        // Small sizes and short measurements, as a test.
        ["--quick"] => (true, None),
        ["--only", name] if LADDERS.contains(&name) => (false, Some(name)),
        _ => {
            eprintln!("usage: kernel_ladder [--quick | --only {}]", LADDERS.join("|"));
            return ExitCode::from(2);
        }
    };
    // Threads are taken from a pool that is entered once, as a training loop should do.
    with_threads(threads(), || measure_all(quick, only));
    ExitCode::SUCCESS
}

fn measure_all(quick: bool, only: Option<&str>) {
    println!("{}", retrograd::study::conditions::sentence());
    retrograd::study::load::warn_if_busy();
    eprintln!("measuring the machine");
    let machine = Machine::measure();
    println!("{}\n", machine.summary());
    let (n, rows, time) = match quick {
        true => (96, 64, Duration::from_millis(5)),
        false => (768, 8192, Duration::from_millis(400)),
    };
    for name in LADDERS {
        if only.is_some_and(|only| only != name) {
            continue;
        }
        let ladder = match name {
            "matmul" => matmul::ladder(n),
            "softmax" => softmax::ladder(rows),
            _ => layer_norm::ladder(rows),
        };
        println!("{}", ladder.measure(&machine, time));
    }
}
