//! Draws the figures of the book, `src/book`.
//!
//! `cargo run --example figures` writes them to `docs/figures`. Every number in them is computed, except
//! for the rates of the matrix multiplications: these are read from `docs/figures/kernel_ladder.txt`, which
//! is what `cargo run --release --example kernel_ladder -- --only matmul` printed. A test compares the
//! files with what is drawn.

mod drawings;
#[path = "../common/environment.rs"]
mod environment;
#[allow(dead_code, reason = "its main program")]
#[path = "../scalar.rs"]
mod scalar;

use clap::Parser;
use scalar::output::{self, note, say};
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

/// Draws the figures of the book.
#[derive(Parser)]
#[command(version)]
struct Args {
    /// Folder for the figures
    #[arg(long, default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/figures"))]
    out: PathBuf,
}

fn main() -> ExitCode {
    retrograd::study::from_env();
    let args = Args::parse();
    environment::check("close other programs");
    for (name, svg) in drawings::all() {
        let path = args.out.join(format!("{name}.svg"));
        if let Err(e) = fs::create_dir_all(&args.out).and_then(|()| fs::write(&path, svg)) {
            note!("error: cannot write {}: {e}", path.display());
            return output::end(ExitCode::FAILURE);
        }
        say!("written to {}", path.display());
    }
    output::end(ExitCode::SUCCESS)
}
