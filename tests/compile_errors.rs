//! docs/COMPILE_ERRORS.md: every wrong program fails with the message on the page, and every right one compiles.
//!
//! Messages differ between versions of the compiler. With another version than the one of the page, only
//! the error codes and the messages that are this library's are compared. The messages on the page are
//! written by
//!
//!     RETROGRAD_WRITE_DOCS=1 cargo test -p retrograd-tests --test compile_errors

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// What precedes a program.
const START: &str = "use retrograd::prelude::*;\n#[allow(unused)]\nfn main() {\n";

/// The lines of [`START`].
const LINES_BEFORE: usize = 3;

/// A section of the page.
struct Section<'a> {
    title: &'a str,
    wrong: &'a str,
    message: &'a str,
    right: &'a str,
}

/// The sections, which have three blocks of code each.
fn sections(page: &str) -> Vec<Section<'_>> {
    let mut sections = Vec::new();
    for text in page.split("\n## ").skip(1) {
        let block = |start: &str, from: usize| {
            let begin =
                from + text[from..].find(start).unwrap_or_else(|| panic!("{text}")) + start.len();
            let end = begin + text[begin..].find("```").unwrap_or_else(|| panic!("{text}"));
            (&text[begin..end], end + 3)
        };
        let (wrong, end) = block("```rust\n", 0);
        let (message, end) = block("```text\n", end);
        let (right, _) = block("```rust\n", end);
        let title = text.lines().next().unwrap_or_default();
        sections.push(Section { title, wrong, message, right });
    }
    sections
}

/// The folder of the compiled crates, in which this test is.
fn deps() -> PathBuf {
    let program = env::current_exe().expect("the path of this test");
    program.parent().expect("a folder").to_path_buf()
}

/// The library as compiled for this test: the latest, which is tried first, unless it is that of another
/// set of features.
fn libraries() -> Vec<PathBuf> {
    let is_library = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        name.starts_with("libretrograd-") && name.ends_with(".rlib")
    };
    let entries = fs::read_dir(deps()).expect("the compiled crates");
    let mut found: Vec<PathBuf> = entries.flatten().map(|e| e.path()).filter(is_library).collect();
    found.sort_by_key(|path| fs::metadata(path).and_then(|m| m.modified()).ok());
    found.reverse();
    found
}

/// Compiles a program. The text is what the compiler says.
fn compile(library: &Path, folder: &Path, body: &str) -> (bool, String) {
    fs::write(folder.join("main.rs"), format!("{START}{body}}}\n")).expect("a file");
    let output = Command::new(env::var("RUSTC").unwrap_or_else(|_| "rustc".into()))
        .current_dir(folder)
        .args([
            "--edition=2024",
            "--emit=metadata",
            "--cap-lints=allow",
            "--color=never",
            "main.rs",
        ])
        .arg("-L")
        .arg(format!("dependency={}", deps().display()))
        .arg("--extern")
        .arg(format!("retrograd={}", library.display()))
        .output()
        .expect("rustc");
    (output.status.success(), String::from_utf8_lossy(&output.stderr).replace("\r\n", "\n"))
}

/// A line with a number of a line of the program, counted without [`START`].
fn renumbered(line: &str) -> String {
    let less = |number: &str| {
        let n: usize = number.parse().expect("the number of a line");
        n.saturating_sub(LINES_BEFORE).to_string()
    };
    if let Some((before, place)) = line.split_once("--> main.rs:") {
        let (number, column) = place.split_once(':').expect("line and column");
        return format!("{before}--> main.rs:{}:{column}", less(number));
    }
    let digits = line.len() - line.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    match digits {
        0 => line.to_string(),
        _ => format!("{:digits$}{}", less(&line[..digits]), &line[digits..]),
    }
}

/// What the page shows of a message: the parts about the program, with the compiler's suggestions, but
/// without lists of types and without places in this library or in the standard library.
fn shown(message: &str) -> String {
    let mut shown: Vec<String> = Vec::new();
    let lines: Vec<&str> = message.lines().collect();
    // Whether the part is kept that the line belongs to, and the item of a part.
    let (mut part, mut item) = (false, false);
    for (i, line) in lines.iter().enumerate() {
        let next = lines.get(i + 1).unwrap_or(&"").trim_start();
        let of_library = next.starts_with("--> ") && !next.starts_with("--> main.rs");
        let left_out = |line: &str| {
            line.contains("the following") && line.contains("implement")
                || line.contains("note: required ")
                || line.contains("is defined in another crate")
                || line.starts_with("error: aborting")
        };
        if ["error", "note: ", "help: "].iter().any(|start| line.starts_with(start)) {
            part = !of_library && !left_out(line);
            item = part;
        } else if line.starts_with("  = ") {
            item = part && !left_out(line);
        } else if line.starts_with("For more information") || line.starts_with("Some errors have") {
            item = false;
        }
        if item && !line.is_empty() {
            shown.push(renumbered(line).trim_end().to_string());
        }
    }
    // The frame of what was left out.
    while shown.last().is_some_and(|line| line.trim() == "|") {
        shown.pop();
    }
    shown.join("\n") + "\n"
}

fn version() -> String {
    let output = Command::new(env::var("RUSTC").unwrap_or_else(|_| "rustc".into()))
        .arg("--version")
        .output();
    let text = String::from_utf8(output.expect("rustc").stdout).expect("text");
    text.split(' ').nth(1).expect("rustc and a version").to_string()
}

#[test]
fn wrong_programs_fail_as_the_page_says_and_right_ones_compile() {
    let path = retrograd_support::path("docs/COMPILE_ERRORS.md");
    let page = fs::read_to_string(&path).expect("the page");
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let sections = sections(&page);
    assert!(sections.len() >= 10, "{} sections", sections.len());

    let rights: String = sections.iter().map(|s| format!("{{\n{}}}\n", s.right)).collect();
    let mut messages = Vec::new();
    let compiles = |library: &PathBuf| {
        let (compiles, message) = compile(library, folder, &rights);
        messages.push(message);
        compiles
    };
    let library = libraries().into_iter().find(compiles);
    let library = library.unwrap_or_else(|| panic!("right programs do not compile: {messages:#?}"));

    let version = version();
    let is_same = page.contains(&format!("rustc {version},"));
    let is_written = env::var_os("RETROGRAD_WRITE_DOCS").is_some();
    let mut written = page.clone();
    for section in &sections {
        let title = section.title;
        let (compiles, message) = compile(&library, folder, section.wrong);
        assert!(!compiles, "{title}: compiles");
        let message = shown(&message);
        if is_written {
            let old = format!("{}```\n\n```text\n{}```", section.wrong, section.message);
            let new = format!("{}```\n\n```text\n{message}```", section.wrong);
            assert_eq!(written.matches(&old).count(), 1, "{title}");
            written = written.replace(&old, &new);
        } else if is_same {
            assert_eq!(message, section.message, "{title}");
        } else {
            let first = section.message.lines().next().unwrap_or_default();
            let code = &first[..first.find(':').unwrap_or(first.len())];
            // The words of `#[diagnostic::on_unimplemented]` are ours.
            let ours = code == "error[E0277]" && !first.contains("trait bound");
            let expected = if ours { first } else { code };
            assert!(message.starts_with(expected), "{title}: {expected}, got\n{message}");
        }
    }
    if is_written {
        let (before, after) = written.split_once("of rustc ").expect("the version on the page");
        let (_, after) = after.split_once(',').expect("the version on the page");
        fs::write(path, format!("{before}of rustc {version},{after}")).expect("the page");
    }
}
