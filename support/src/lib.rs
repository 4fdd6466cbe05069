//! What tests of several packages share.
#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

#[cfg(feature = "browser")]
pub mod browser;
#[cfg(feature = "browser")]
pub mod document;
pub mod panics;
#[cfg(feature = "random")]
pub mod random;

/// A file of the repository, by its path from the root.
pub fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name)
}

/// A file of PyTorch's results or other programs' files, see `tests/fixtures/README.md`.
pub fn fixture(name: &str) -> PathBuf {
    path("tests/fixtures").join(name)
}

/// The text of a file of the repository.
#[track_caller]
pub fn read(name: &str) -> String {
    fs::read_to_string(path(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
}

/// The search path of a `python3` that has a module: that of the folder `RETROGRAD_PYTHON`, if it is given. `None` if
/// there is none, unless `RETROGRAD_NEEDS_PYTHON=1` demands it.
pub fn python_with(module: &str) -> Option<String> {
    let folders = [env::var("RETROGRAD_PYTHON"), env::var("PATH")];
    let path = folders.into_iter().flatten().collect::<Vec<_>>().join(":");
    let mut python = Command::new("python3");
    python.args(["-c", &format!("import {module}")]).env("PATH", &path);
    let found = python.output().is_ok_and(|output| output.status.success());
    let needed = env::var("RETROGRAD_NEEDS_PYTHON").is_ok_and(|v| v == "1");
    assert!(
        found || !needed,
        "RETROGRAD_NEEDS_PYTHON=1, but python3 has no {module} (hint: RETROGRAD_PYTHON)"
    );
    if !found {
        println!("SKIPPED: python3 has no {module}");
    }
    found.then_some(path)
}

/// Runs `work` on a thread with a stack of so many bytes; in WebAssembly on this thread, whose stack has 1 MiB.
pub fn with_stack(bytes: usize, work: impl FnOnce() + Send + 'static) {
    if cfg!(target_family = "wasm") {
        return work();
    }
    let thread = std::thread::Builder::new().stack_size(bytes).spawn(work);
    thread.expect("a thread").join().expect("no panic");
}

/// Whether documents are to be written.
pub fn is_writing() -> bool {
    env::var_os("RETROGRAD_WRITE_DOCS").is_some()
}

/// Asserts that a file of the repository is this text, or writes it if the environment has `RETROGRAD_WRITE_DOCS`.
#[track_caller]
pub fn check_written(name: &str, text: &str) {
    if is_writing() {
        fs::write(path(name), text).unwrap_or_else(|e| panic!("{name}: {e}"));
    }
    assert!(read(name) == text, "{name} is old: RETROGRAD_WRITE_DOCS=1 writes it");
}
