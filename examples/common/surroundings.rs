//! What the library panics about, but who runs an example can mend: told as an error.

use crate::output::note;
use std::panic::{set_hook, take_hook};
use std::process::exit;

/// Makes errors of these panics, and checks `RETROGRAD_SIMD` before anything is done. `smaller`
/// says what takes less memory.
pub fn check(smaller: &'static str) {
    let usual = take_hook();
    set_hook(Box::new(move |panic| match panic.payload().downcast_ref::<String>() {
        Some(text) if text.starts_with("RETROGRAD_SIMD=") => {
            note!("error: {text}");
            exit(2);
        }
        Some(text) if text.contains(": no memory for ") => {
            note!("error: {text}; {smaller}");
            exit(1);
        }
        _ => usual(panic),
    }));
    retrograd::tensor::simd::level();
}
