//! What environment variables request.

use crate::record::search_process;
use crate::trace::{summarize_process, trace_process};
use crate::xray::record_process;
use std::path::PathBuf;
use std::sync::Once;

/// An environment variable, what 1 stands for beside the names of files, what it requests, given a file, and what does
/// not happen if it is wrong.
type Variable =
    (&'static str, Option<&'static str>, fn(Option<PathBuf>) -> Result<(), String>, &'static str);

const VARIABLES: [Variable; 3] = [
    ("RETROGRAD_TRACE", Some("standard error, nor summary"), trace_process, "nothing is traced"),
    ("RETROGRAD_XRAY", Some("xray.html"), record_process, "nothing is recorded"),
    ("RETROGRAD_NONFINITE", None, search_process, "nothing is searched"),
];

/// Watches the process as environment variables request. It is called at the start of `main`; later calls do
/// nothing. Several variables may be set:
///
/// - `RETROGRAD_TRACE`: a line per kernel, or the totals of each operation, see [`trace`](mod@crate::trace).
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
        for (name, one, watch, otherwise) in VARIABLES {
            let value = std::env::var_os(name).unwrap_or_default();
            let done = match (value.to_string_lossy().trim(), one) {
                ("" | "0", _) => Ok(()),
                ("1", _) => watch(None),
                ("summary", _) if name == "RETROGRAD_TRACE" => summarize_process(),
                (path, Some(_)) if path.contains(['/', '.', '\\']) => watch(Some((&value).into())),
                (other, None) => Err(format!("{other:?} is neither 0 nor 1")),
                (other, Some(one)) => Err(format!(
                    "{other:?} is neither 0, nor 1 for {one}, nor a file (a path with a / or a .)"
                )),
            };
            if let Err(why) = done {
                eprintln!("{name}: {why}; {otherwise}");
            }
        }
    });
}
