//! A GPT on names, twice: on scalars and on tensors, with the same numbers.
//!
//! This is the model of Karpathy's
//! [microgpt](https://gist.github.com/karpathy/8627fe009c40f57531cb18360106ce95): names as characters,
//! one layer, four heads, embeddings of 16 numbers, RMS norms, squared ReLU, Adam, and one name for each
//! training step. [`scalar_gpt`] computes it number by number with the `Value` of `examples/scalar.rs`,
//! position by position. [`tensor_gpt`] computes all positions of a name at once with the library. Both
//! start with the same weights and read the same names in the same order, in `f64`. After every step
//! their losses must agree to 1e-9, or the program fails.
//!
//! Run with `cargo run --release --example microgpt`. At the end it prints new names, and how much faster
//! the tensors were.

mod names;
#[allow(dead_code, reason = "its main program")]
#[path = "../scalar.rs"]
mod scalar;
mod scalar_gpt;
mod sizes;
mod tensor_gpt;
mod text;

use lexopt::prelude::*;
use retrograd::prelude::*;
use retrograd::tensor::par::single_threaded;
use retrograd::tensor::random::Key;
use scalar_gpt::ScalarGpt;
use sizes::ADAM;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;
use tensor_gpt::TensorGpt;
use text::Names;

/// The largest difference of the losses of a step.
const TOLERANCE: f64 = 1e-9;

const HELP: &str = "\
usage: microgpt [options]

Trains the same small GPT with a scalar and with a tensor engine, and compares losses and times.

  --steps N      training steps, each on one name [default: 1000]
  --samples N    new names to print at the end [default: 20]
  --temperature X  temperature of the samples [default: 0.5]
  --seed N       seed of weights, order of names and samples [default: 42]
  --data FILE    a text with one name per line [default: 357 given names in the program]
  --tensor-only  only the tensor engine: nothing is compared";

struct Args {
    steps: u64,
    samples: usize,
    temperature: f64,
    seed: u64,
    data: Option<PathBuf>,
    tensor_only: bool,
}

fn parse() -> Result<Args, lexopt::Error> {
    let mut args = Args {
        steps: 1000,
        samples: 20,
        temperature: 0.5,
        seed: 42,
        data: None,
        tensor_only: false,
    };
    let mut parser = lexopt::Parser::from_env();
    while let Some(arg) = parser.next()? {
        match arg {
            Long("steps") => args.steps = parser.value()?.parse::<u64>()?.max(1),
            Long("samples") => args.samples = parser.value()?.parse()?,
            Long("temperature") => args.temperature = parser.value()?.parse_with(positive)?,
            Long("seed") => args.seed = parser.value()?.parse()?,
            Long("data") => args.data = Some(parser.value()?.into()),
            Long("tensor-only") => args.tensor_only = true,
            Short('h') | Long("help") => {
                println!("{HELP}");
                std::process::exit(0);
            }
            other => return Err(other.unexpected()),
        }
    }
    Ok(args)
}

fn positive(text: &str) -> Result<f64, String> {
    let x: f64 = text.parse().map_err(|_| "not a number".to_string())?;
    if x > 0.0 && x.is_finite() { Ok(x) } else { Err("must be a finite number above 0".into()) }
}

fn main() -> ExitCode {
    retrograd::study::from_env();
    let args = match parse() {
        Ok(args) => args,
        Err(e) => {
            eprintln!("error: {e}\n\n{HELP}");
            return ExitCode::from(2);
        }
    };
    retrograd::study::load::warn_if_busy();
    if let Err(e) = run(&args) {
        eprintln!("error: {e}");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

/// What a step of each engine costs.
#[derive(Default)]
struct Times {
    scalar: Vec<f64>,
    tensor: Vec<f64>,
}

fn run(args: &Args) -> Result<(), String> {
    let names = match &args.data {
        Some(path) => Names::read(path)?,
        None => Names::default(),
    };
    let steps = args.steps;
    let tensor = TensorGpt::new(names.vocab(), args.seed);
    let scalar = ScalarGpt::new(&tensor.weights());
    println!(
        "{} names, {} characters and the end of a name; {} parameters",
        names.len(),
        names.vocab() - 1,
        scalar.parameters()
    );
    // Operations this small gain nothing from a second thread.
    let times = single_threaded(|| train(args, &names, scalar, &tensor, steps))?;
    if !args.tensor_only {
        report(times, steps);
    }
    println!("new names:");
    let key = Key::new(args.seed, 1);
    for i in 0..args.samples as u64 {
        // A stream of random numbers for each name.
        let mut position = i * sizes::CONTEXT as u64;
        let name = tensor.sample(&names, args.temperature, || {
            position += 1;
            key.uniform(position - 1)
        });
        println!("  {name}");
    }
    Ok(())
}

/// Trains both models step by step, in turns.
fn train(
    args: &Args,
    names: &Names,
    mut scalar: ScalarGpt,
    tensor: &TensorGpt,
    steps: u64,
) -> Result<Times, String> {
    let mut adam = Adam::new(tensor, ADAM).map_err(|e| e.to_string())?;
    let mut times = Times::default();
    let mut recent = Vec::new();
    for step in 0..steps {
        let tokens = names.tokens(args.seed, step);
        let lr = ADAM.lr * (1.0 - step as f64 / steps as f64);
        let start = Instant::now();
        let loss = tensor.step(&tokens, &mut adam, lr)?;
        times.tensor.push(start.elapsed().as_secs_f64());
        recent.push(loss);
        if !args.tensor_only {
            let start = Instant::now();
            let on_scalars = scalar.step(&tokens, lr);
            times.scalar.push(start.elapsed().as_secs_f64());
            let difference = (loss - on_scalars).abs();
            if difference.is_nan() || difference > TOLERANCE {
                return Err(format!(
                    "step {step}: the loss is {loss} on tensors and {on_scalars} on scalars"
                ));
            }
        }
        if (step + 1) % (steps / 10).max(1) == 0 {
            let mean = recent.iter().sum::<f64>() / recent.len() as f64;
            println!(
                "step {:>5} of {steps}: mean loss of {} names {mean:.6}",
                step + 1,
                recent.len()
            );
            recent.clear();
        }
    }
    Ok(times)
}

fn report(mut times: Times, steps: u64) {
    let median = |times: &mut Vec<f64>| {
        times.sort_by(f64::total_cmp);
        1e3 * times[times.len() / 2]
    };
    let (scalar, tensor) = (median(&mut times.scalar), median(&mut times.tensor));
    println!("losses of all {steps} steps agree to {TOLERANCE:e}");
    println!(
        "median time of a step on one thread: scalars {scalar:.2} ms, tensors {tensor:.2} ms, \
         {:.0} times faster",
        scalar / tensor
    );
}
