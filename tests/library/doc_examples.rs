//! Every concept has a runnable example: a file of public functions that a user calls, or one of its functions. An
//! example that only repeats a signature is none that is needed.

use std::fs;
use std::path::{Path, PathBuf};

/// Files whose functions are not called by users: kernels, memory, and building blocks of other
/// modules.
const INTERNAL: &[&str] = &[
    "/kernels/",
    "/simd/",
    "/compiled.rs",
    "/cost.rs",
    "/formula/",
    "/loop_nest.rs",
    "/machine",
    "/matrix.rs",
    "/par.rs",
    "/storage.rs",
    "/transpose.rs",
    "/check/",
    "/checkpoint/",
    "/distributed/communicator.rs",
    "/distributed/exchange.rs",
    "/distributed/plan.rs",
    "/distributed/tree.rs",
    "/engine/call.rs",
    "/engine/composed.rs",
    "/engine/normalizers.rs",
    "/engine/observe.rs",
    "/mask/align.rs",
    "/mask/resolved.rs",
    "/optim/step_count.rs",
    "/attention/patterns.rs",
    "/parts/heads.rs",
    "/run/envelope.rs",
    "/run/verdict.rs",
    "/testing.rs",
];

fn rust_files(dir: &Path, files: &mut Vec<PathBuf>) {
    let entries = fs::read_dir(dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display()));
    for path in entries.map(|entry| entry.unwrap().path()) {
        if path.is_dir() {
            rust_files(&path, files);
        } else if path.extension().is_some_and(|e| e == "rs") {
            files.push(path);
        }
    }
}

/// The names of the public functions of a source, and whether each has an example that is run.
fn functions(source: &str) -> Vec<(String, bool)> {
    let mut found = Vec::new();
    let (mut has_example, mut hidden, mut in_block) = (false, false, false);
    for line in source.lines().map(str::trim).take_while(|line| *line != "#[cfg(test)]") {
        if let Some(doc) = line.strip_prefix("///") {
            if let Some(language) = doc.trim().strip_prefix("```") {
                has_example |= !in_block && ["", "rust", "should_panic"].contains(&language);
                in_block = !in_block;
            }
        } else if line.starts_with("#[") {
            hidden |= line.contains("doc(hidden)");
        } else {
            let name = line.strip_prefix("pub fn ").or_else(|| line.strip_prefix("pub const fn "));
            if let Some(name) = name.filter(|_| !hidden) {
                let end = name.find(|c: char| !c.is_alphanumeric() && c != '_');
                found.push((name[..end.unwrap_or(name.len())].to_string(), has_example));
            }
            (has_example, hidden) = (false, false);
        }
    }
    found
}

#[test]
fn every_concept_has_an_example() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for name in ["tensor", "autograd", "nn", "study"] {
        let mut files = Vec::new();
        rust_files(&root.join(name).join("src"), &mut files);
        let (mut all, mut missing) = (0, Vec::new());
        for file in files {
            let path = file.strip_prefix(root).unwrap().to_string_lossy().replace('\\', "/");
            let source = fs::read_to_string(&file).unwrap();
            let functions = functions(&source);
            if functions.is_empty() || INTERNAL.iter().any(|part| path.contains(part)) {
                continue;
            }
            all += 1;
            let of_file = ["//! ```\n", "/// ```\n"].iter().any(|fence| source.contains(fence));
            if !of_file && functions.iter().all(|(_, has_example)| !has_example) {
                missing.push(path);
            }
        }
        assert!(all > 10 && missing.is_empty(), "{name}: no example in\n{}", missing.join("\n"));
    }
}

#[test]
fn examples_are_found() {
    let source = "
        /// Documented.
        ///
        /// ```
        /// f();
        /// ```
        #[inline]
        pub fn f() {}
        /// ```text
        /// a drawing
        /// ```
        pub fn g<T>() {}
        #[doc(hidden)]
        pub fn h() {}
        fn private() {}";
    assert_eq!(functions(source), [("f".to_string(), true), ("g".to_string(), false)]);
}
