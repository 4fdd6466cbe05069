//! Five tutorials on attention, reproduced with every number that they print.
//!
//! ```sh
//! cargo run --release --example tutorials                # with explanations
//! cargo run --release --example tutorials -- --only s3   # one of the five
//! cargo run --release --example tutorials -- --check     # only the comparison
//! ```
//!
//! The tutorials are written for PyTorch. `TorchRng` reproduces its random numbers, so the weights
//! are equal and the results must be. The printed numbers are in `published.txt`; `extras.txt` has
//! the results of their exercises.

mod check;
#[path = "../common/environment.rs"]
mod environment;
#[path = "../common/output.rs"]
mod output;
mod s0;
mod s1;
mod s2;
mod s3;
mod s4;

use check::Lesson;
use clap::{Parser, ValueEnum};
use std::process::ExitCode;

/// Five tutorials on attention, walked through with every number they print.
#[derive(Parser)]
struct Args {
    /// Print one line per table only: its number of values and their largest difference
    #[arg(long)]
    check: bool,
    /// Only one of the tutorials
    #[arg(long, value_name = "TUTORIAL")]
    only: Option<Tutorial>,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Tutorial {
    /// Twelve words: without weights, with weights, causal, multi-head, cross.
    S0,
    /// Six words, and why scores are divided by √d.
    S1,
    /// Two words on paper; masks; many heads.
    S2,
    /// From a sentence to causal attention in two ways.
    S3,
    /// Weights on the left, and two exercises.
    S4,
}

impl Tutorial {
    fn run(self) -> fn(&mut Lesson) {
        match self {
            Tutorial::S0 => s0::run,
            Tutorial::S1 => s1::run,
            Tutorial::S2 => s2::run,
            Tutorial::S3 => s3::run,
            Tutorial::S4 => s4::run,
        }
    }
}

fn preface(l: &mut Lesson) {
    l.say(
        "Five tutorials on attention, in Rust. They were written for PyTorch and begin with \
         random weights, so their results depend on PyTorch's random numbers. TorchRng makes \
         the same ones, so what is computed here must be what was printed there.",
    );
    l.say(
        "Published tables are shown without grad_fn and without faults of their typesetting, \
         such as wrong brackets and indentation; the numbers are as they were printed. Two tables \
         that do not fit side by side are shown as ours, followed by the numbers in which the \
         published one differs.",
    );
    l.formula(
        "|      code, as it has just been run\n\
         ours   its result, beside or above the published one\n\
         (!)    an error or a misleading statement of the tutorial\n\
         [x]    a statement that was computed and is true",
    );
}

fn main() -> ExitCode {
    retrograd::study::from_env();
    let args = Args::parse();
    environment::check("close other programs");
    let mut lesson = Lesson::default();
    preface(&mut lesson);
    for tutorial in Tutorial::value_variants() {
        if args.only.is_none_or(|only| only == *tutorial) {
            (tutorial.run())(&mut lesson);
        }
    }
    let complete = args.only.is_some() || lesson.not_compared().is_empty();
    let mut text = String::new();
    if !args.check {
        let line = "=".repeat(80);
        text = format!("{}{line}\nAll comparisons\n{line}\n\n", lesson.text);
    }
    output::print(format_args!("{text}{}", lesson.report()));
    let good = lesson.passed() && complete;
    output::end(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
