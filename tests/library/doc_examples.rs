//! Each concept has an example that checks something: every group of public methods, and the public
//! functions of every file. It works when it is pasted into a program that depends on `retrograd`.

use std::fs;
use std::path::{Path, PathBuf};

/// Files whose functions are not called by users: kernels, memory, and building blocks of other
/// modules.
const INTERNAL: &[&str] = &[
    "/kernels/",
    "/simd/",
    "/observe/",
    "/compiled.rs",
    "/cost.rs",
    "/formula/",
    "/loop_nest.rs",
    "/machine",
    "/matrix.rs",
    "/storage.rs",
    "/box_muller.rs",
    "/transpose.rs",
    "/check/",
    "/attention/engine/",
    "/attention/parts/heads.rs",
    "/attention/parts/scores.rs",
    "/checkpoint/",
    "distributed/src/",
    "/replacing.rs",
    "/testing.rs",
    "study/src/attention/",
    "study/src/xray/elements.rs",
    "study/src/environment.rs",
    "study/src/run/",
];

/// The files of Rust below a folder, apart from what cargo built.
pub fn rust_files(dir: &Path, files: &mut Vec<PathBuf>) {
    let entries = fs::read_dir(dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display()));
    for path in entries.map(|entry| entry.unwrap().path()) {
        if path.is_dir() && !path.ends_with("target") {
            rust_files(&path, files);
        } else if path.extension().is_some_and(|e| e == "rs") {
            files.push(path);
        }
    }
}

/// The groups of public functions that have no example: each `impl` block with a heading, each
/// table of functions with a title, and the rest of the file under the name "".
fn without_example(source: &str) -> Vec<&str> {
    // The heading, and whether there is a public function and an example.
    let mut groups = vec![("", false, false)];
    let (mut heading, mut example, mut hidden, mut group) = (None, false, false, 0);
    for line in source.lines().take_while(|line| *line != "#[cfg(test)]") {
        let code = line.trim();
        if code.starts_with("//") {
            heading = line.strip_prefix("/// # ").or(heading);
            example |= code.contains(" assert");
            continue;
        } else if code.starts_with("#[") {
            hidden |= code.contains("doc(hidden)");
            continue;
        }
        let title = code.strip_prefix("\"# ").and_then(|title| title.strip_suffix('"'));
        if let Some(heading) = heading.filter(|_| line.starts_with("impl")).or(title) {
            group = groups.len();
            groups.push((heading, false, false));
        } else if line == "}" {
            group = 0;
        }
        let starts = ["pub fn ", "pub const fn "].iter().any(|start| code.starts_with(start));
        let function = starts || code.contains(", pub fn ");
        groups[group].1 |= function && !hidden && !code.contains('$');
        groups[group].2 |= example;
        (heading, example, hidden) = (None, false, false);
    }
    groups.retain(|&(_, function, example)| function && !example);
    groups.iter().map(|group| group.0).collect()
}

/// The lines of examples that do not work in such a program: hidden ones, which readers cannot copy,
/// and names of other crates. As `cargo test --doc` compiles the rest with `retrograd`, it works.
fn not_portable(source: &str) -> Vec<&str> {
    let mut inside = false;
    let lines = source.lines().map(str::trim).filter_map(|line| {
        let text = line.strip_prefix("///").or(line.strip_prefix("//!"))?.trim_start();
        inside ^= text.starts_with("```");
        Some((inside, text))
    });
    let wrong = |text: &str| text.starts_with("# ") || text.contains("retrograd_");
    lines.filter(|&(inside, text)| inside && wrong(text)).map(|(_, text)| text).collect()
}

#[test]
fn every_group_of_public_functions_has_an_example() {
    let root = &retrograd_support::path("");
    let mut files = Vec::new();
    for name in ["tensor", "autograd", "nn", "distributed", "study"] {
        rust_files(&root.join(name).join("src"), &mut files);
    }
    assert!(files.len() > 100);
    let (mut missing, mut wrong) = (Vec::new(), Vec::new());
    for file in files {
        let path = file.strip_prefix(root).unwrap().to_string_lossy().replace('\\', "/");
        let source = fs::read_to_string(&file).unwrap();
        wrong.extend(not_portable(&source).iter().map(|line| format!("{path}: {line}")));
        if !INTERNAL.iter().any(|part| path.contains(part)) {
            missing.extend(without_example(&source).iter().map(|group| format!("{path} {group}")));
        }
    }
    missing.sort();
    assert!(missing.is_empty(), "without an example that asserts:\n{}", missing.join("\n"));
    assert!(wrong.is_empty(), "examples do not work in a program:\n{}", wrong.join("\n"));
}

#[test]
fn an_example_that_cannot_be_copied_is_found() {
    let source = "
/// # Two
/// ```
/// # let x = X::two();
/// use retrograd::prelude::*;
/// use retrograd_nn::X;
/// ```
/// see [`retrograd_nn::X`]
fn retrograd_x() {}";
    assert_eq!(not_portable(source), ["# let x = X::two();", "use retrograd_nn::X;"]);
}

#[test]
fn a_group_without_an_example_is_found() {
    let source = "
/// # Numbers
impl X {
    /// Two.
    /// ```
    /// assert_eq!(X::two(), 2);
    /// ```
    pub fn two() -> i32 {}
}
/// # Letters
impl X {
    pub fn a() {}
}
/// # Hidden
impl X {
    #[doc(hidden)]
    pub fn b() {}
}
pub fn one() -> i32 {}
pointwise! {
    \"# Table\"
    Neg, pub fn neg, saves Nothing;
}
pointwise! {
    \"# Table with an example\"
    /// assert_eq!(X::abs(), 2);
    Abs { p = 1 }, pub fn abs, saves Nothing;
}
/// # Table of methods
impl X {
    pointwise! {
        pub fn neg = Neg;
    }
}";
    assert_eq!(without_example(source), ["", "Letters", "Table", "Table of methods"]);
}
