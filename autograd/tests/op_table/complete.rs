//! No operation is missing from the table: every public function in the sources of operations is named by a
//! row, or by an exception with a reason.

use crate::table::ROWS;
use std::collections::BTreeSet;
use std::fs;

/// Public functions that are not differentiable operations, with reasons.
const EXCEPTIONS: &[(&str, &str)] = &[
    ("apply", "map, of an operation as a value"),
    ("name", "the name of such an operation"),
    ("new", "the vectors of a recurrence"),
    ("over_root", "a step of normalisations"),
];

/// The sources of all operations.
fn sources() -> String {
    let files = fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/src/ops")).unwrap();
    files.map(|file| fs::read_to_string(file.unwrap().path()).unwrap()).collect()
}

/// The number of fused operations in the sources.
pub fn fused_operations() -> usize {
    let sources = sources();
    let is_fused = |line: &&str| line.starts_with("impl<") && line.contains("> Fused<T");
    sources.lines().filter(is_fused).count()
}

#[test]
fn every_operation_has_a_row() {
    let sources = sources();
    let functions = sources.lines().filter_map(|line| line.trim_start().strip_prefix("pub fn "));
    let is_of_name = |c: char| c.is_alphanumeric() || c == '_';
    let names = functions.map(|rest| &rest[..rest.find(|c| !is_of_name(c)).unwrap_or(rest.len())]);
    let defined: BTreeSet<&str> = names.filter(|name| !name.is_empty()).collect();
    assert!(defined.len() > 80, "the sources were not read");
    let known = ROWS.iter().map(|row| row.name).chain(EXCEPTIONS.iter().map(|(name, _)| *name));
    assert_eq!(known.collect::<BTreeSet<_>>(), defined, "the table, and the sources");
}
