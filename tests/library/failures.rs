//! The table of failures (`docs/RELIABILITY.md`): it is complete, and its tests exist.

use std::fs;
use std::path::Path;

/// The sections with their numbers of rows.
const SECTIONS: [(char, usize); 7] =
    [('A', 21), ('B', 8), ('C', 24), ('D', 17), ('E', 10), ('F', 23), ('G', 13)];

#[test]
fn every_row_has_tests_that_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let table = fs::read_to_string(root.join("docs/RELIABILITY.md")).unwrap();
    let rows: Vec<Vec<&str>> = table
        .lines()
        .filter(|line| matches!(line.as_bytes(), [b'|', b' ', b'A'..=b'Z', b'0'..=b'9', ..]))
        .map(|line| line.trim_matches('|').split(" | ").map(str::trim).collect())
        .collect();
    let expected: Vec<String> = SECTIONS
        .iter()
        .flat_map(|(section, n)| (1..=*n).map(move |row| format!("{section}{row}")))
        .collect();
    assert_eq!(rows.iter().map(|row| row[0].to_owned()).collect::<Vec<_>>(), expected);
    for row in rows {
        let [id, what, tests] = row[..] else { panic!("{row:?} has not three columns") };
        assert!(what.ends_with('.') || what.ends_with('*'), "{id}: {what}");
        let tests: Vec<_> = tests.split('`').filter_map(|test| test.split_once("::")).collect();
        assert!(!tests.is_empty() || row[2].starts_with("Does not apply: "), "{id} has no test");
        for (file, name) in tests {
            let text = fs::read_to_string(root.join(file));
            let text = text.unwrap_or_else(|e| panic!("{id}: {file}: {e}"));
            assert!(text.contains(&format!("fn {name}(")), "{id}: {file} has no test {name}");
        }
    }
}
