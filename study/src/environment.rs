//! What environment variables request.

use crate::record::search_process;
use crate::trace::trace_process;
use crate::xray::record_process;
use std::ffi::OsStr;
use std::sync::Once;

/// An environment variable, what it requests, and what does not happen if it is wrong.
type Variable = (&'static str, fn(&OsStr) -> Result<(), String>, &'static str);

const VARIABLES: [Variable; 3] = [
    ("RETROGRAD_TRACE", trace_process, "nothing is traced"),
    ("RETROGRAD_XRAY", record_process, "nothing is recorded"),
    ("RETROGRAD_NONFINITE", search_process, "nothing is searched"),
];

/// Watches the process as environment variables request. It is called at the start of `main`; later calls do
/// nothing. Several variables may be set:
///
/// - `RETROGRAD_TRACE`: a line per kernel, see [`trace`](mod@crate::trace).
/// - `RETROGRAD_XRAY`: a page of the first backward pass, with all that was computed before it. The value is the
///   name of a file (a path with a `/` or a `.`), or 1 for `xray.html`. What is recorded, and where the page is,
///   is said on standard error.
/// - `RETROGRAD_NONFINITE=1`: the first operation whose result has a NaN or an infinity panics, see
///   [`find_nonfinite`](crate::record::find_nonfinite).
///
/// Unset, empty and 0 request nothing. What is wrong with a value is said on standard error.
///
/// ```
/// retrograd::study::from_env();
/// ```
pub fn from_env() {
    static READ: Once = Once::new();
    READ.call_once(|| {
        for (name, watch, otherwise) in VARIABLES {
            if let Err(why) = watch(&std::env::var_os(name).unwrap_or_default()) {
                eprintln!("{name}: {why}; {otherwise}");
            }
        }
    });
}
