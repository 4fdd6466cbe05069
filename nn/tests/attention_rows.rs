//! Completeness: every attention variant has a row in the tests of variants, and every file a line
//! in docs/ATTENTION.md.

use retrograd_nn::{AttentionKind, Gpt, GptConfig, Module};
use retrograd_support::{check_written, read};
use retrograd_tensor::random::Rng;
use std::fs;
use std::path::{Path, PathBuf};

/// Folders of attention modules, and the file of the projections, which every variant contains. The
/// attention that they are alone has the rows and the lines of [`ALONE`].
const FOLDERS: [&str; 2] = ["parts", "variants"];
const COMMON: &str = "parts/projections.rs";
/// The attention that they are alone: the names of some of its rows.
const ALONE: [&str; 3] = ["grouped_query", "rope_half", "qk_rms_norm"];
const PAGE: &str = "docs/ATTENTION.md";

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The files of a folder whose names start with `beginning`, sorted by name.
fn files(folder: &str, beginning: &str) -> Vec<(String, String)> {
    let entries = fs::read_dir(root().join(folder)).unwrap();
    let rust = |path: &PathBuf| path.extension().is_some_and(|e| e == "rs");
    let mut files: Vec<(String, String)> = entries
        .map(|entry| entry.unwrap().path())
        .filter(rust)
        .map(|path| {
            let name = path.file_name().unwrap().to_str().unwrap().to_string();
            (name, fs::read_to_string(path).unwrap())
        })
        .filter(|(name, _)| name.starts_with(beginning))
        .collect();
    files.sort();
    files
}

/// The types for which a file implements `Module`, and the structs in its table of presets.
fn modules(text: &str) -> Vec<String> {
    let names = text.lines().filter_map(|line| {
        let implemented =
            line.strip_prefix("impl<").and_then(|line| line.split_once(" Module<T> for "));
        let others = ["visits!(", "visits! { ", "    pub struct "];
        let other = || others.iter().find_map(|start| line.strip_prefix(start));
        let name = implemented.map(|(_, name)| name).or_else(other)?;
        Some(name.split(['<', ' ', ':']).next()?.to_string())
    });
    names.collect()
}

/// Files of the variants, and their modules.
fn variants() -> Vec<(String, Vec<String>)> {
    let files = FOLDERS.iter().flat_map(|folder| {
        let files = files(&format!("src/attention/{folder}"), "").into_iter();
        files.map(move |(name, text)| (format!("{folder}/{name}"), text))
    });
    let files = files.filter(|(path, _)| path != COMMON);
    let variants = files.map(|(path, text)| (path, modules(&text)));
    variants.filter(|(_, modules)| !modules.is_empty()).collect()
}

/// Whether a name occurs in a text as a whole word.
fn names(text: &str, name: &str) -> bool {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == name)
}

/// The statements of the files with rows.
fn rows() -> String {
    // An import or a comment is no row.
    let rows = files("tests/all/variants", "rows_").into_iter().map(|(_, text)| {
        let lines = text.lines().filter(|line| !line.trim_start().starts_with("//"));
        let code = lines.map(|line| format!("{line}\n")).collect::<String>();
        let statements = code.split_inclusive(';').filter(|s| !s.trim_start().starts_with("use "));
        statements.collect::<String>()
    });
    rows.collect()
}

#[test]
fn every_variant_has_a_row() {
    let rows = rows();
    let variants = variants();
    let all: Vec<&String> = variants.iter().flat_map(|(_, modules)| modules).collect();
    assert!(all.len() >= 40, "only {} modules found: is this test still right?", all.len());
    let without: Vec<_> = all.into_iter().filter(|module| !names(&rows, module)).collect();
    assert!(without.is_empty(), "no row in nn/tests/all/variants/rows_*.rs for {without:?}");
}

/// The table of all kinds in the docs: name, summary, paper, and the file of the module.
#[test]
fn the_table_in_the_docs_is_that_of_the_kinds() {
    let file = |module: &str| {
        let defined = |text: &str| text.contains(&format!("pub struct {module}"));
        let folders = ["attention/variants", "attention/parts", "gpt"].into_iter();
        let mut all = folders.flat_map(|folder| {
            let files = files(&format!("src/{folder}"), "").into_iter();
            files.map(move |(name, text)| (format!("{folder}/{name}"), text))
        });
        // Projections alone, with options.
        let found = all.find(|(_, text)| defined(text));
        found.map_or("attention/parts/projections.rs".into(), |(path, _)| path)
    };
    let mut table = "| name | what it computes | paper | module |\n|---|---|---|---|\n".to_string();
    for kind in AttentionKind::ALL {
        let (layers, heads, width) = (2, 2, 16);
        let sizes =
            GptConfig { vocab: 4, context: 16, layers, heads, width, ..GptConfig::default() };
        let model = Gpt::<f32>::new(sizes.with_attention(*kind), &mut Rng::new(1)).unwrap();
        let modules = model.named_modules();
        let module = modules.iter().find(|(path, _)| path.ends_with("h.1.attn"));
        let module = &module.unwrap_or_else(|| panic!("{kind}: {modules:?}")).1;
        let module = module.split('<').next().unwrap();
        let paper = match kind.arxiv() {
            "" => String::new(),
            number => format!("[{number}](https://arxiv.org/abs/{number})"),
        };
        let (name, summary, file) = (kind.name(), kind.summary(), file(module));
        table += &format!("| `{name}` | {summary} | {paper} | [{module}](../nn/src/{file}) |\n");
    }
    let page = read(PAGE);
    let (start, rest) = page.split_once("--test attention_rows -->\n\n").unwrap();
    let (_, end) = rest.split_once("\n<!-- The end of the table. -->").unwrap();
    check_written(
        PAGE,
        &format!(
            "{start}--test attention_rows -->\n\n{table}\n<!-- The end of the table. -->{end}"
        ),
    );
}

#[test]
fn every_variant_has_a_line_in_the_docs() {
    let page = read(PAGE);
    let without: Vec<String> = variants()
        .into_iter()
        .map(|(file, _)| file)
        .filter(|file| !page.contains(&format!("](../nn/src/attention/{file})")))
        .collect();
    assert!(without.is_empty(), "no line in {PAGE} for {without:?}");
}

#[test]
fn the_projections_alone_have_rows() {
    let rows = rows();
    for row in ALONE {
        assert!(names(&rows, row), "no row in nn/tests/all/variants for {row:?}");
    }
}
