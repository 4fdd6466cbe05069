//! The figures are what is drawn, and the book shows all of them.

use retrograd_support::{is_writing, path, read};
use std::fs;

/// A text without its numbers, and its numbers.
fn numbers(text: &str) -> (String, Vec<f64>) {
    let (mut rest, mut values) = (String::new(), vec![]);
    for part in text.split_inclusive(|c: char| !(c.is_ascii_digit() || c == '.')) {
        let digits = part.trim_end_matches(|c: char| !(c.is_ascii_digit() || c == '.'));
        match digits.parse() {
            Ok(value) => values.push(value),
            Err(_) => rest.push_str(digits),
        }
        rest.push_str(&part[digits.len()..]);
    }
    (rest, values)
}

/// Equal but for rounding: instruction sets without FMA round otherwise, and coordinates have one decimal.
fn same(a: &str, b: &str) -> bool {
    let ((a, x), (b, y)) = (numbers(a), numbers(b));
    a == b && x.len() == y.len() && x.iter().zip(y).all(|(x, y)| (x - y).abs() < 0.15)
}

#[test]
fn committed_figures_are_what_is_drawn() {
    let folder = path("docs/figures");
    let drawn = crate::drawings::all();
    for (name, svg) in &drawn {
        let file = format!("docs/figures/{name}.svg");
        if is_writing() {
            fs::write(path(&file), svg).unwrap();
        }
        assert!(same(&read(&file), svg), "{file} is old: RETROGRAD_WRITE_DOCS=1 writes it");
        assert!(!svg.contains("\n\n"), "{name}.svg: an empty line ends a figure in Markdown");
    }
    let files = fs::read_dir(folder).unwrap().filter(|entry| {
        entry.as_ref().unwrap().path().extension().is_some_and(|extension| extension == "svg")
    });
    assert_eq!(files.count(), drawn.len(), "a file in docs/figures is not drawn");
}

#[test]
fn every_figure_is_in_the_book() {
    let book = path("src/book");
    let chapters: String = fs::read_dir(book)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
        .map(|path| fs::read_to_string(path).unwrap())
        .collect();
    for (name, _) in crate::drawings::all() {
        assert!(chapters.contains(&format!("figures/{name}.svg\")]")), "{name} is not shown");
    }
}

#[test]
fn figures_that_differ_are_told_apart() {
    assert!(same(r#"x="1.5" y="2""#, r#"x="1.6" y="2""#));
    assert!(!same(r#"x="1.5" y="2""#, r#"x="2.5" y="2""#));
    assert!(!same("<a/>", "<b/>"));
}

/// Every exercise names its solution, and it is a test.
#[test]
fn every_exercise_has_a_solution() {
    let mut chapters = 0;
    for entry in fs::read_dir(path("src/book")).unwrap() {
        let path = entry.unwrap().path();
        let Some(name) = path.file_name().and_then(|n| n.to_str()).filter(|n| n.ends_with(".rs"))
        else {
            continue;
        };
        if name == "mod.rs" {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        let (_, exercises) = text.split_once("//! # Exercises").unwrap_or_else(|| panic!("{name}"));
        let solutions = read(&format!("tests/book/{name}"));
        let names: Vec<&str> =
            exercises.split("(`").skip(1).map(|rest| rest.split('`').next().unwrap()).collect();
        let count = exercises
            .lines()
            .filter(|l| l[4.min(l.len())..].starts_with(|c: char| c.is_ascii_digit()))
            .count();
        assert!(
            (3..=5).contains(&count) && names.len() == count,
            "{name}: {count} exercises, {names:?}"
        );
        for solution in names {
            assert!(solutions.contains(&format!("#[test]\nfn {solution}()")), "{name}: {solution}");
        }
        chapters += 1;
    }
    assert_eq!(chapters, 12);
}
