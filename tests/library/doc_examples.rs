//! Public functions have runnable examples: at least nine in ten of those that a user calls.

use std::fs;
use std::path::{Path, PathBuf};

/// The smallest allowed fraction of functions with an example, in each crate.
const LEAST: f64 = 0.9;

/// Files whose functions are not called by users: kernels, memory, and building blocks of other
/// modules.
const INTERNAL: &[&str] = &[
    "/kernels/",
    "/simd/",
    "/compiled.rs",
    "/cost.rs",
    "/formula.rs",
    "/loop_nest.rs",
    "/machine",
    "/matrix.rs",
    "/par.rs",
    "/storage.rs",
    "/transpose.rs",
    "/check/",
    "/checkpoint/",
    "/distributed/exchange.rs",
    "/distributed/plan.rs",
    "/distributed/tree.rs",
    "/engine/call.rs",
    "/engine/composed.rs",
    "/engine/normalizers.rs",
    "/mask/align.rs",
    "/mask/resolved.rs",
    "/optim/step_count.rs",
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
fn nine_in_ten_public_functions_have_an_example() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for name in ["tensor", "autograd", "nn", "study"] {
        let mut files = Vec::new();
        rust_files(&root.join(name).join("src"), &mut files);
        files.sort();
        let (mut all, mut missing) = (0, Vec::new());
        for file in files {
            let path = file.strip_prefix(root).unwrap().to_string_lossy().replace('\\', "/");
            if INTERNAL.iter().any(|part| path.contains(part)) {
                continue;
            }
            for (function, has_example) in functions(&fs::read_to_string(&file).unwrap()) {
                all += 1;
                if !has_example {
                    missing.push(format!("{path} {function}"));
                }
            }
        }
        let share = 1.0 - missing.len() as f64 / f64::from(all);
        println!("{name}: {all} functions, {:.1} % with an example", 100.0 * share);
        let list = missing.join("\n");
        assert!(all > 100 && share >= LEAST, "{name}: {share:.3} have an example; not:\n{list}");
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
