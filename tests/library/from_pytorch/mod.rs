//! docs/FROM_PYTORCH.md: every line of it is run here, prints what PyTorch prints, and stands on the page.
//!
//! `tests/fixtures/make_from_pytorch.py` runs PyTorch's lines, which are comments in `lines.rs`, and
//! writes what they print. The page is made from both:
//!
//!     RETROGRAD_WRITE_DOCS=1 cargo test -p retrograd-tests --test library from_pytorch

mod lines;

use retrograd::prelude::*;
use retrograd::tensor::Element;
use retrograd_support::{check_written, read};
use std::fmt::Write;

/// Collects what lines print.
#[derive(Default)]
pub struct Printer(Vec<String>);

impl Printer {
    fn show(&mut self, x: impl Shown) {
        self.0.push(x.text());
    }
}

/// A value as text, in one line and to four digits, as `make_from_pytorch.py` prints those of PyTorch.
trait Shown {
    fn text(&self) -> String;
}

/// One line: a tensor is printed with a line per row.
fn one_line(text: &str) -> String {
    text.lines().map(str::trim_start).collect::<Vec<_>>().join(" ")
}

impl<T: Element> Shown for Tensor<T> {
    fn text(&self) -> String {
        one_line(&self.to_string())
    }
}

impl Shown for Var {
    fn text(&self) -> String {
        self.value().text()
    }
}

macro_rules! by_format {
    ($format:literal: $($t:ty)+) => {$(
        impl Shown for $t {
            fn text(&self) -> String {
                format!($format, self)
            }
        }
    )+};
}

by_format!("{:.4}": f32);
by_format!("{:?}": Shape);
by_format!("{}": bool usize i64 String);

impl<X: Shown + ?Sized> Shown for &X {
    fn text(&self) -> String {
        (**self).text()
    }
}

/// A gradient, which exists.
impl<X: Shown> Shown for Option<X> {
    fn text(&self) -> String {
        self.as_ref().map_or("None".into(), Shown::text)
    }
}

impl<X: Shown> Shown for Vec<X> {
    fn text(&self) -> String {
        format!("[{}]", self.iter().map(Shown::text).collect::<Vec<_>>().join(", "))
    }
}

impl<A: Shown, B: Shown> Shown for (A, B) {
    fn text(&self) -> String {
        format!("({}, {})", self.0.text(), self.1.text())
    }
}

impl<A: Shown, B: Shown, C: Shown> Shown for (A, B, C) {
    fn text(&self) -> String {
        format!("({}, {}, {})", self.0.text(), self.1.text(), self.2.text())
    }
}

/// A part of the page.
#[derive(Debug)]
enum Part {
    /// `# Section`, and prose.
    Text(String),
    /// Lines of PyTorch, those here, and whether they print.
    Lines { python: Vec<String>, rust: Vec<String>, prints: bool },
}

/// The parts of `lines.rs`, which has comments for PyTorch's lines, for headings and for prose.
fn parts(source: &str) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::new();
    for line in source.lines().skip_while(|line| !line.starts_with("// # ")) {
        let comment =
            line.trim_start().strip_prefix("//").map(|text| text.strip_prefix(' ').unwrap_or(text));
        match comment {
            Some(text) if text.starts_with("py:") => {
                let line = text["py:".len()..].strip_prefix(' ').unwrap_or("").to_string();
                match parts.last_mut() {
                    Some(Part::Lines { python, rust, .. }) if rust.is_empty() => python.push(line),
                    _ => parts.push(Part::Lines {
                        python: vec![line],
                        rust: Vec::new(),
                        prints: false,
                    }),
                }
            }
            Some(text) => match parts.last_mut() {
                Some(Part::Text(all)) => write!(all, "\n{text}").unwrap(),
                _ => parts.push(Part::Text(text.to_string())),
            },
            // The frame of a function.
            None if line.starts_with("pub fn ") || line == "}" && !inside_item(&parts) => {}
            None if line.trim() == "Ok(())" => {}
            None => {
                if let Some(Part::Lines { rust, prints, .. }) = parts.last_mut() {
                    *prints |= line.trim_start().starts_with("p.show(");
                    rust.push(line.to_string());
                }
            }
        }
    }
    for part in &mut parts {
        if let Part::Lines { rust, .. } = part {
            let used = rust.iter().rposition(|line| !line.is_empty()).map_or(0, |i| i + 1);
            rust.truncate(used);
            let indents = rust.iter().filter(|line| !line.is_empty());
            let indents = indents.map(|line| line.len() - line.trim_start().len());
            let indent = indents.min().unwrap_or(0);
            for line in rust {
                line.drain(..indent.min(line.len()));
            }
        }
    }
    parts
}

/// Whether the last lines are those of an item that is not closed.
fn inside_item(parts: &[Part]) -> bool {
    let Some(Part::Lines { rust, .. }) = parts.last() else { return false };
    let count = |c| rust.iter().flat_map(|line| line.chars()).filter(|x| *x == c).count();
    count('{') > count('}')
}

/// Code in a cell of a table.
fn cell(code: &str) -> String {
    format!("`{}`", code.replace('|', "\\|"))
}

/// The Rust side of a row: what is printed, without the call that prints it.
fn row(rust: &[String]) -> String {
    let mut lines: Vec<String> = Vec::new();
    for line in rust {
        match lines.last_mut() {
            // A statement on several lines.
            Some(last) if !last.ends_with(';') => {
                let line = line.trim_start();
                last.push_str(if line.starts_with('.') { "" } else { " " });
                last.push_str(line);
            }
            _ => lines.push(line.clone()),
        }
    }
    let shown = |line: &String| {
        let inner = line.strip_prefix("p.show(").and_then(|line| line.strip_suffix(");"));
        cell(inner.unwrap_or(line))
    };
    lines.iter().map(shown).collect::<Vec<_>>().join("<br>")
}

/// The page, given what lines print.
fn page(parts: &[Part], printed: &[String]) -> String {
    let mut printed = printed.iter();
    let mut page = String::from(
        "# From PyTorch\n\nPyTorch on the left, this library on the right. A test, `tests/library/from_pytorch`, runs both columns and \
         checks\nthat they print the same, which is the third column; where PyTorch writes `torch.Size([2])` and \
         `True`, it is `[2]` and\n`true` here. The lines assume `use retrograd::prelude::*;`, and a few also names \
         of `autograd`, `nn`,\n`nn::checkpoint`, `nn::torch_init` and `tensor::torch_random`.\n",
    );
    let mut in_table = false;
    for part in parts {
        match part {
            Part::Text(text) => {
                let text = text.replacen("# ", "## ", usize::from(text.starts_with("# ")));
                write!(page, "\n{text}\n").unwrap();
                in_table = false;
            }
            Part::Lines { python, rust, .. } if python.len() > 1 => {
                write!(
                    page,
                    "\n<table><tr><td>\n\n```python\n{}\n```\n\n</td><td>\n\n```rust\n{}\n```\n\n</td></tr></table>\n",
                    python.join("\n"),
                    rust.join("\n")
                )
                .unwrap();
                in_table = false;
            }
            Part::Lines { python, rust, prints } => {
                if !in_table {
                    page.push_str("\n| PyTorch | here | prints |\n|---|---|---|\n");
                    in_table = true;
                }
                let text = match prints {
                    true => cell(printed.next().expect("a text for every line that prints")),
                    false => String::new(),
                };
                writeln!(page, "| {} | {} | {text} |", cell(&python[0]), row(rust)).unwrap();
            }
        }
    }
    page
}

#[test]
fn lines_print_what_pytorch_prints() {
    let mut p = Printer::default();
    let dir = tempfile::tempdir().unwrap();
    lines::creation(&mut p);
    lines::indexing(&mut p);
    lines::arithmetic(&mut p);
    lines::reductions(&mut p);
    lines::shapes(&mut p);
    lines::autograd(&mut p);
    lines::derivatives(&mut p);
    lines::modules(&mut p);
    lines::losses(&mut p);
    lines::training(&mut p);
    lines::saving(&mut p, &dir.path().join("net.safetensors")).unwrap();

    let source = read("tests/library/from_pytorch/lines.rs");
    let parts = parts(&source);
    let fixture = read("tests/fixtures/from_pytorch.txt");
    let fixture: Vec<(&str, &str)> = fixture
        .lines()
        .map(|line| line.split_once(" => ").unwrap_or_else(|| panic!("no result: {line}")))
        .collect();
    let printing = parts.iter().filter_map(|part| match part {
        Part::Lines { python, prints: true, .. } => Some(python[0].as_str()),
        _ => None,
    });
    let python: Vec<&str> = printing.collect();
    let recorded: Vec<&str> = fixture.iter().map(|(line, _)| *line).collect();
    assert_eq!(python, recorded, "run tests/fixtures/make_from_pytorch.py again");
    assert_eq!(p.0.len(), python.len());
    for (ours, (line, theirs)) in p.0.iter().zip(&fixture) {
        assert_eq!(ours, theirs, "{line}");
    }
    assert!(python.len() >= 80, "{} lines", python.len());

    check_written("docs/FROM_PYTORCH.md", &page(&parts, &p.0));
}
