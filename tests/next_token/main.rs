//! Tests that run the example `next_token` as a program, and tests of properties of all examples.

#[path = "../../study/tests/browser/mod.rs"]
mod browser;
mod complete_run;
mod continued;
mod folder_gone;
mod grid;
mod invalid_usage;
mod observe;
mod page;
mod parts;
mod printing;
mod program;
mod resume;
mod scaling;
mod signals;
mod special_files;
mod tokenizers;
mod trace;

// Files of the example, included so that the unit tests in them run.
#[path = "../../examples/common/output.rs"]
mod output;
#[allow(dead_code)]
#[path = "../../examples/next_token/stop.rs"]
mod stop;
#[path = "../../examples/next_token/tales.rs"]
mod tales;
#[allow(dead_code)]
#[path = "../../examples/next_token/text.rs"]
mod text;
#[allow(dead_code)]
#[path = "../../examples/next_token/watch.rs"]
mod watch;
