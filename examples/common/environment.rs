//! Errors of the environment: an invalid `RETROGRAD_SIMD`, and too little memory.

use crate::output::note;
use retrograd::tensor::simd::Level;
use std::panic::{set_hook, take_hook};
use std::process::exit;

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
