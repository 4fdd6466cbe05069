//! Errors of the environment: an invalid `RETROGRAD_SIMD`, and too little memory.

use crate::output::note;
use retrograd::tensor::simd::Level;
use std::panic::{set_hook, take_hook};
use std::process::exit;

/// Exits with an error if there is no memory for what a program has besides large tensors: its texts,
/// the stacks of its threads, and what the allocator reserves for each. Small allocations that fail later
/// would abort the process.
pub fn check_memory(threads: usize) {
    let megabytes = 128 + 3 * threads;
    let mut memory = Vec::<u8>::new();
    if std::hint::black_box(&mut memory).try_reserve_exact(megabytes * 1_000_000).is_err() {
        note!(
            "error: no memory for the {megabytes} MB that a program with {threads} threads needs (hint: \
             `ulimit -v` shows the limit in kB)"
        );
        exit(1);
    }
}

/// Exits with an error if `RETROGRAD_SIMD` is invalid. Installs a panic hook that also does so if
/// there is no memory for a tensor; `smaller` is a hint how to use less.
pub fn check(smaller: &'static str) {
    if let Err(error) = Level::from_environment() {
        note!("error: {error}");
        exit(2);
    }
    let usual = take_hook();
    set_hook(Box::new(move |panic| match panic.payload().downcast_ref::<String>() {
        Some(text) if text.contains(": no memory for ") => {
            note!("error: {text}; {smaller}");
            exit(1);
        }
        _ => usual(panic),
    }));
}
