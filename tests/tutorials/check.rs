//! The output of the tutorials, and the comparison of every number.

use retrograd::tensor::{Element, Tensor};
use std::fmt::{Display, Write};

/// Columns of the text.
const WIDTH: usize = 80;
/// Two tables stand side by side if they fit in this many columns.
const PAIR: usize = 90;
/// Largest difference from a number printed with four digits.
const TOLERANCE: f64 = 1e-4;
/// The same for numbers printed with all their digits.
const EXACT: f64 = 5e-7;

/// One table compared.
pub struct Row {
    /// Its name in `published.txt` or `extras.txt`.
    pub name: &'static str,
    /// Its content.
    pub title: &'static str,
    /// The number of values compared.
    pub values: usize,
    /// Largest difference.
    pub worst: f64,
    /// Whether every difference is within the tolerance.
    pub passed: bool,
    /// Whether our printed text is the published one, character by character.
    pub same_text: bool,
    /// Whether it is an exercise that the tutorials leave to the reader.
    pub extra: bool,
}

/// The text and the comparisons so far.
#[derive(Default)]
pub struct Lesson {
    /// The text of the lesson.
    pub text: String,
    /// The tables compared.
    pub rows: Vec<Row>,
    /// Other statements, and whether they are true.
    pub facts: Vec<(String, bool)>,
    source: &'static str,
    after_fact: bool,
}

/// A table of `published.txt` or `extras.txt`.
struct Published {
    name: &'static str,
    title: &'static str,
    text: &'static str,
    extra: bool,
}

/// All tables of both files.
fn published() -> impl Iterator<Item = Published> {
    let files = [(include_str!("published.txt"), false), (include_str!("extras.txt"), true)];
    files.into_iter().flat_map(|(file, extra)| {
        file.split("\n==== ").skip(1).map(move |block| {
            let (head, text) = block.split_once('\n').expect("a table below its name");
            let (name, title) = head.split_once(" | ").expect("`name | title`");
            Published { name, title, text: text.trim_end(), extra }
        })
    })
}

impl Published {
    fn find(name: &str) -> Published {
        published().find(|table| table.name == name).unwrap_or_else(|| panic!("no table {name}"))
    }

    /// The number of digits after the point.
    fn digits(&self) -> usize {
        let of = |word: &&str| word.split_once('.').map_or(0, |(_, digits)| digits.len());
        numbers(self.text).iter().map(of).max().unwrap_or(0)
    }
}

/// The numbers of a printed tensor, as they are written.
fn numbers(text: &str) -> Vec<&str> {
    let other = |c: char| !(c.is_ascii_digit() || "+-.einfa".contains(c));
    text.trim_start_matches("tensor").split(other).filter(|word| !word.is_empty()).collect()
}

impl Lesson {
    /// Begins a tutorial; `source` is the file that its code is quoted from.
    pub fn chapter(&mut self, title: &str, source: &'static str) {
        self.source = source;
        let line = "=".repeat(WIDTH);
        self.put(&format!("{line}\n{title}\n{line}"));
    }

    /// Begins a part of a tutorial.
    pub fn section(&mut self, title: &str) {
        self.put(&format!("{title}\n{}", "-".repeat(title.chars().count())));
    }

    /// Prints a paragraph.
    pub fn say(&mut self, words: &str) {
        self.put(&wrap(words, "", ""));
    }

    /// Prints a formula, or another text that keeps its lines.
    pub fn formula(&mut self, lines: &str) {
        let indented: Vec<String> = lines.lines().map(|line| format!("    {line}")).collect();
        self.put(&indented.join("\n"));
    }

    /// Prints a remark on an error in the tutorial.
    pub fn wrong(&mut self, words: &str) {
        self.put(&wrap(words, "(!) ", "    "));
    }

    /// Quotes the code that runs: from `//> name` to this call, or to `//<`.
    pub fn code(&mut self, name: &str) {
        let begin = format!("//> {name}\n");
        let from = self.source.find(&begin).unwrap_or_else(|| panic!("no code {name}"));
        let from = from + begin.len();
        let ends = ["//<", "    l.code("].into_iter();
        let len = ends.filter_map(|end| self.source[from..].find(end)).min().expect("an end");
        let lines: Vec<&str> = self.source[from..from + len].trim_end().lines().collect();
        let indent = |line: &&str| line.len() - line.trim_start().len();
        let margin = lines.iter().filter(|line| !line.is_empty()).map(indent).min().unwrap_or(0);
        let quote = |line: &&str| match line.get(margin..) {
            None | Some("") => "  |".to_string(),
            Some(line) => format!("  | {line}"),
        };
        self.put(&lines.iter().map(quote).collect::<Vec<_>>().join("\n"));
    }

    /// Prints a value after its name, as the tutorials do.
    pub fn show(&mut self, what: &str, value: impl Display) {
        let value = value.to_string();
        let gap = if value.contains('\n') { "\n" } else { " " };
        self.put(&format!("{what}:{gap}{value}"));
    }

    /// Prints a tensor next to the published table, and compares them.
    pub fn table(&mut self, name: &'static str, ours: &Tensor) {
        let theirs = Published::find(name);
        let (values, numbers) = (ours.to_vec(), numbers(theirs.text));
        assert_eq!(values.len(), numbers.len(), "{name} has another size");
        let digits = theirs.digits();
        let tolerance = if digits > 8 { EXACT } else { TOLERANCE };
        let mut worst = 0f64;
        for (&x, &word) in values.iter().zip(&numbers) {
            let y: f64 = word.parse().unwrap_or_else(|_| panic!("{word} is not a number"));
            // If only two digits are printed, only these are compared.
            let x = match digits {
                0..4 => format!("{x:.digits$}").parse().expect("a number"),
                _ => f64::from(x),
            };
            let distance = if x == y { 0.0 } else { (x - y).abs() };
            if distance.is_nan() || distance > worst {
                worst = distance;
            }
        }
        let text = if digits > 8 { all_digits(ours) } else { ours.to_string() };
        let same_text = text == theirs.text;
        self.show_pair(&text, &theirs, ours.shape());
        let passed = worst <= tolerance;
        if !passed {
            self.put(&format!("DIFFERENT: by {worst:e}, more than {tolerance:e}"));
        }
        let Published { title, extra, .. } = theirs;
        let values = values.len();
        self.rows.push(Row { name, title, values, worst, passed, same_text, extra });
    }

    /// Prints two tables side by side or, if they are too wide, ours and the differences.
    fn show_pair(&mut self, ours: &str, theirs: &Published, shape: &[usize]) {
        let source = if theirs.extra { "PyTorch" } else { "published" };
        let width = |text: &str| text.lines().map(|line| line.chars().count()).max().unwrap_or(0);
        let left = width(ours).max(8);
        if left + 3 + width(theirs.text) <= PAIR {
            let mut pair = format!("{:left$}   {source}", "ours");
            let mut right = theirs.text.lines();
            for line in ours.lines() {
                let line = format!("\n{line:left$}   {}", right.next().unwrap_or(""));
                pair += line.trim_end();
            }
            return self.put(&pair);
        }
        let pairs = numbers(ours).into_iter().zip(numbers(theirs.text)).enumerate();
        let differing = pairs.filter(|(_, (a, b))| a != b);
        let differing: Vec<String> = differing
            .map(|(i, (a, b))| format!("{b} instead of {a} at {}", position(i, shape)))
            .collect();
        let verdict = match &differing[..] {
            [] => "the same, character by character",
            _ => &format!("the same, but for {}", differing.join(", ")),
        };
        self.put(&format!("{ours}\n{source}: {verdict}"));
    }

    /// Prints a text, and compares it with the published one.
    pub fn same(&mut self, what: &str, ours: impl Display, theirs: &str) {
        let ours = ours.to_string();
        let equal = ours == theirs;
        let verdict = if equal { "as published".into() } else { format!("published: {theirs}") };
        self.put_fact(&format!("{what} {ours}   ({verdict})"));
        self.facts.push((format!("{what} {theirs}"), equal));
    }

    /// Prints a statement, and whether it is true.
    pub fn holds(&mut self, what: &str, truth: bool) {
        self.put_fact(&wrap(what, if truth { "[x] " } else { "[ ] FALSE: " }, "    "));
        self.facts.push((what.split_whitespace().collect::<Vec<_>>().join(" "), truth));
    }

    /// Prints a bar per word: the attention weights of one query.
    pub fn bars(&mut self, words: &[&str], weights: &[f32]) {
        let most = weights.iter().fold(0f32, |a, &b| a.max(b));
        let width = words.iter().map(|word| word.len()).max().unwrap_or(0);
        let bar = |w: f32| "#".repeat((30.0 * w / most).round() as usize);
        let lines: Vec<String> = words
            .iter()
            .zip(weights)
            .map(|(word, &w)| format!("    {word:width$}  {w:.4}  {}", bar(w)).trim_end().into())
            .collect();
        self.put(&lines.join("\n"));
    }

    /// A line per table, then the totals.
    pub fn report(&self) -> String {
        let mut out = String::new();
        for row in &self.rows {
            let verdict = match (row.passed, row.same_text) {
                (false, _) => "DIFFERENT",
                (true, true) => "same text",
                (true, false) => "",
            };
            let line = format!(
                "{:20} {:4} values, worst {:7.1e}  {verdict:9}  {}",
                row.name, row.values, row.worst, row.title
            );
            let _ = writeln!(out, "{line}");
        }
        for (what, _) in self.facts.iter().filter(|(_, truth)| !truth) {
            let _ = writeln!(out, "DIFFERENT            {what}");
        }
        let values = |extra| {
            let rows = self.rows.iter().filter(move |row| row.extra == extra);
            rows.map(|row| row.values).sum::<usize>()
        };
        let same = self.rows.iter().filter(|row| row.same_text).count();
        let _ = writeln!(
            out,
            "{} values published, {} of exercises; {same} of {} tables print the same text; {} \
             other statements",
            values(false),
            values(true),
            self.rows.len(),
            self.facts.len(),
        );
        let worst = self.rows.iter().map(|row| row.worst);
        let worst = worst.fold(0.0, |a, b| if b.is_nan() || b > a { b } else { a });
        let all = values(false) + values(true);
        let _ = writeln!(out, "{all} values compared, worst difference {worst:.1e}");
        out
    }

    /// The names of tables that were not compared.
    pub fn not_compared(&self) -> Vec<&'static str> {
        let used = |table: &Published| self.rows.iter().any(|row| row.name == table.name);
        published().filter(|table| !used(table)).map(|table| table.name).collect()
    }

    /// Whether all comparisons were within their tolerance and all statements true.
    pub fn passed(&self) -> bool {
        self.rows.iter().all(|row| row.passed) && self.facts.iter().all(|(_, truth)| *truth)
    }

    fn put(&mut self, block: &str) {
        self.text += block;
        self.text += "\n\n";
        self.after_fact = false;
    }

    /// Adds a statement; consecutive ones are on consecutive lines.
    fn put_fact(&mut self, line: &str) {
        if self.after_fact {
            self.text.pop();
        }
        self.put(line);
        self.after_fact = true;
    }
}

/// The index of an element as the tutorials would write it.
fn position(mut flat: usize, shape: &[usize]) -> String {
    let mut index = Vec::new();
    for &size in shape.iter().rev() {
        index.push(format!("[{}]", flat % size));
        flat /= size;
    }
    index.reverse();
    index.concat()
}

/// A matrix as Python prints a list of lists: every digit of the numbers, as `f64`.
fn all_digits(x: &Tensor) -> String {
    let row = |row: &[f32]| format!("{:?}", row.iter().map(|&x| f64::from(x)).collect::<Vec<_>>());
    let rows: Vec<String> = x.to_vec().chunks(x.size(-1)).map(row).collect();
    format!("[{}]", rows.join(",\n "))
}

/// Breaks words into lines of at most [`WIDTH`] characters, with a prefix of the first and the others.
fn wrap(words: &str, first: &str, other: &str) -> String {
    let mut lines = vec![first.to_string()];
    let mut empty = true;
    for word in words.split_whitespace() {
        let line = lines.last_mut().expect("a line");
        if !empty && line.chars().count() + 1 + word.chars().count() > WIDTH {
            lines.push(format!("{other}{word}"));
        } else {
            if !empty {
                line.push(' ');
            }
            line.push_str(word);
            empty = false;
        }
    }
    lines.join("\n")
}

/// A shape as PyTorch prints it.
pub fn size(shape: &[usize]) -> String {
    format!("torch.Size({shape:?})")
}

/// Largest difference between two tensors of one shape.
pub fn distance(a: &Tensor, b: &Tensor) -> f32 {
    a.sub(b).abs().max(..).item()
}

/// The words of a sentence, without commas and full stops.
pub fn words(sentence: &str) -> Vec<&str> {
    sentence.split_whitespace().map(|word| word.trim_matches([',', '.'])).collect()
}

/// The distinct words in byte order, capitals first; a word's id is its index.
pub fn vocabulary<'a>(words: &[&'a str]) -> Vec<&'a str> {
    let mut sorted = words.to_vec();
    sorted.sort();
    sorted.dedup();
    sorted
}

/// The ids of words.
pub fn ids(words: &[&str], vocabulary: &[&str]) -> Tensor<i64> {
    let id = |word: &&str| vocabulary.iter().position(|v| v == word).expect("a known word") as i64;
    Tensor::from_vec(words.iter().map(id).collect(), [words.len()])
}

/// A vocabulary as a Python dictionary prints it.
pub fn dictionary(vocabulary: &[&str]) -> String {
    let entries: Vec<String> =
        vocabulary.iter().enumerate().map(|(id, word)| format!("'{word}': {id}")).collect();
    format!("{{{}}}", entries.join(", "))
}

/// Whether all elements pass the test.
pub fn all<T: Element>(x: &Tensor<T>, test: impl Fn(T) -> bool) -> bool {
    x.to_vec().into_iter().all(test)
}
