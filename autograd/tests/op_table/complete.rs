//! The build fails if an operation is not in the table.
//!
//! The sources of all operations are read while this file is compiled: every public function
//! in them must be named by a row, or by an exception with a reason, and every module of
//! operations must be read.

use crate::table::ROWS;

/// Public functions that are not differentiable operations, with reasons.
const EXCEPTIONS: &[(&str, &str)] = &[
    ("apply", "map, of an operation as a value"),
    ("name", "the name of such an operation"),
    ("over_root", "a step of normalisations"),
];

macro_rules! sources {
    ($($module:literal)+) => {
        &[$(($module, include_str!(concat!("../../src/ops/", $module, ".rs")))),+]
    };
}

const SOURCES: &[(&str, &str)] = sources![
    "activation" "arrange" "binary" "dropout" "einsum" "elementwise_loss" "index" "join" "linear" "loss" "mask"
    "matmul" "norm" "pointwise" "quantile" "reduce" "scatter" "softmax" "unary" "vector_norm" "view"
];

const MODULES: &str = include_str!("../../src/ops/mod.rs");

const fn equal(a: &str, b: &str) -> bool {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    if a.len() != b.len() {
        return false;
    }
    let mut i = 0;
    while i < a.len() {
        if a[i] != b[i] {
            return false;
        }
        i += 1;
    }
    true
}

/// Whether `pattern` occurs at byte `at`.
const fn occurs(text: &[u8], at: usize, pattern: &str) -> bool {
    let pattern = pattern.as_bytes();
    if text.len() - at < pattern.len() {
        return false;
    }
    let mut i = 0;
    while i < pattern.len() {
        if text[at + i] != pattern[i] {
            return false;
        }
        i += 1;
    }
    true
}

/// The first byte of the next line.
const fn next_line(text: &[u8], mut at: usize) -> usize {
    while at < text.len() && text[at] != b'\n' {
        at += 1;
    }
    if at < text.len() { at + 1 } else { at }
}

/// The word that starts at a byte.
const fn word(text: &str, from: usize) -> &str {
    let bytes = text.as_bytes();
    let mut end = from;
    while end < bytes.len() && (bytes[end].is_ascii_alphanumeric() || bytes[end] == b'_') {
        end += 1;
    }
    text.split_at(end).0.split_at(from).1
}

const fn is_known(name: &str) -> bool {
    let mut i = 0;
    while i < ROWS.len() {
        if equal(ROWS[i].name, name) {
            return true;
        }
        i += 1;
    }
    let mut i = 0;
    while i < EXCEPTIONS.len() {
        if equal(EXCEPTIONS[i].0, name) {
            return true;
        }
        i += 1;
    }
    false
}

/// The number of public functions of a source; all must be known.
const fn all_known(source: &str) -> usize {
    let text = source.as_bytes();
    let (mut at, mut found) = (0, 0);
    while at < text.len() {
        let name = if occurs(text, at, "        pub fn ") {
            word(source, at + 15) // an entry of a macro
        } else if occurs(text, at, "    pub fn ") {
            word(source, at + 11)
        } else if occurs(text, at, "pub fn ") {
            word(source, at + 7)
        } else {
            ""
        };
        if !name.is_empty() {
            found += 1;
            if !is_known(name) {
                // This name has no row in the table.
                panic!("{}", name);
            }
        }
        at = next_line(text, at);
    }
    found
}

/// Whether a name is defined in some source.
fn is_defined(name: &str) -> bool {
    let mut i = 0;
    while i < SOURCES.len() {
        let source = SOURCES[i].1;
        let text = source.as_bytes();
        let mut at = 0;
        while at < text.len() {
            if occurs(text, at, "        pub fn ") && equal(word(source, at + 15), name)
                || occurs(text, at, "    pub fn ") && equal(word(source, at + 11), name)
                || occurs(text, at, "pub fn ") && equal(word(source, at + 7), name)
            {
                return true;
            }
            at = next_line(text, at);
        }
        i += 1;
    }
    false
}

/// The number of fused operations in the sources.
pub fn fused_operations() -> usize {
    let lines = SOURCES.iter().flat_map(|(_, source)| source.lines());
    lines.filter(|line| line.starts_with("impl<") && line.contains("> Fused<T> for")).count()
}

/// If this line does not compile, the operation named in the message has no row in the table.
#[allow(long_running_const_eval)]
pub const EVERY_OPERATION_HAS_A_ROW: usize = {
    let (mut i, mut found) = (0, 0);
    while i < SOURCES.len() {
        found += all_known(SOURCES[i].1);
        i += 1;
    }
    found
};

/// If this line does not compile, the module named in the message is not among [`SOURCES`].
#[allow(long_running_const_eval)]
const EVERY_MODULE_IS_READ: () = {
    let text = MODULES.as_bytes();
    let mut at = 0;
    while at < text.len() {
        if occurs(text, at, "pub mod ") {
            let name = word(MODULES, at + 8);
            let mut i = 0;
            while i < SOURCES.len() && !equal(SOURCES[i].0, name) {
                i += 1;
            }
            if i == SOURCES.len() {
                panic!("{}", name);
            }
        }
        at = next_line(text, at);
    }
};

#[test]
fn every_operation_has_a_row() {
    let () = EVERY_MODULE_IS_READ;
    const { assert!(EVERY_OPERATION_HAS_A_ROW > 80, "the sources were not read") };
    for (name, why) in EXCEPTIONS {
        assert!(is_defined(name) && !why.is_empty(), "{name}");
    }
    for row in ROWS {
        assert!(is_defined(row.name), "there is no {}", row.name);
    }
}
