//! `looks.jsonl`: what the page of a run shows beside the log. A line of JSON for each start of the program, each
//! look at the model and each event.

use crate::files;
use crate::folder::Folder;
use crate::json_lines::lines_of;
use retrograd::study::{RunLook, grouped};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::io;

/// A line of the file.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Line {
    Start(Start),
    Look(RunLook),
    Event(Event),
    Memory(Memory),
}

/// A start of the program: what the page says about the run and the machine. Older and later versions may have
/// other fields.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Start {
    pub step: u64,
    /// The recipe as JSON: a recipe of another version has other fields.
    pub recipe: Value,
    /// The preset that the recipe is compared with.
    pub preset: String,
    pub preset_recipe: Value,
    pub facts: Vec<(String, String)>,
    /// Losses of the uniform distribution, of unigrams and of bigrams.
    pub baselines: Option<[f64; 3]>,
    /// Floating-point operations of a step.
    pub flops: Option<f64>,
    /// Floating-point operations per second of the machine, on all threads of all ranks.
    pub peak: Option<f64>,
    pub sentence: Vec<String>,
    pub prompt: String,
    /// The names of the parts of the model.
    pub parts: Vec<String>,
    /// The heads of each layer that has attention weights.
    pub layers: Vec<usize>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Event {
    pub step: u64,
    pub kind: String,
    pub text: String,
}

/// Bytes of the tensors of rank 0 after a step, and the most since its process started.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Memory {
    pub step: u64,
    pub live: usize,
    pub peak: usize,
}

impl Line {
    /// A line from its JSON, or what is invalid in it.
    pub fn read(json: &str) -> Result<Line, String> {
        serde_json::from_str(json).map_err(|e| e.to_string())
    }

    pub fn step(&self) -> u64 {
        match self {
            Line::Start(start) => start.step,
            Line::Look(look) => look.step,
            Line::Event(event) => event.step,
            Line::Memory(memory) => memory.step,
        }
    }
}

/// The lines of the file up to a step, and how many are unreadable; none if there is no file. The last line may
/// have been cut off with the process that wrote it.
pub fn read(folder: &Folder, step: u64) -> io::Result<(Vec<Line>, usize)> {
    let path = folder.looks();
    let bytes = if path.exists() { files::read(&path)? } else { Vec::new() };
    let text = String::from_utf8_lossy(&bytes);
    let (lines, unreadable) = lines_of(&text, Line::read);
    let lines = lines.into_iter().map(|(line, _)| line).filter(|line| line.step() <= step);
    Ok((lines.collect(), unreadable.len()))
}

/// The fields of a recipe as names of flags and texts of values. A seed is a name, not a quantity.
pub fn fields(recipe: &Value) -> Vec<(String, String)> {
    let fields = recipe.as_object().into_iter().flatten();
    let text = |name: &str, value: &Value| match name {
        "seed" => value.to_string(),
        _ => words(value),
    };
    fields.map(|(name, value)| (name.replace('_', "-"), text(name, value))).collect()
}

/// A value in words; one with parts as `rope (base 10,000, pairing half)`, without parts that are not set.
fn words(value: &Value) -> String {
    let lower = |name: &str| name.to_ascii_lowercase().replace('_', " ");
    match value {
        Value::String(text) => text.clone(),
        Value::Null => "default".into(),
        Value::Number(n) => match n.as_f64() {
            Some(x) if x >= 0.0 && x.fract() == 0.0 && x < 1e15 => grouped(x as u64),
            _ => n.to_string(),
        },
        Value::Object(fields) => {
            let is_set = |value: &Value| !value.is_null() && value.as_str() != Some("None");
            let part = |(name, value): (&String, &Value)| match value {
                Value::Object(_) => format!("{} ({})", lower(name), words(value)),
                Value::String(text) => format!("{} {}", lower(name), lower(text)),
                other => format!("{} {}", lower(name), words(other)),
            };
            let set = fields.iter().filter(|(_, value)| is_set(value));
            set.map(part).collect::<Vec<_>>().join(", ")
        }
        other => other.to_string(),
    }
}
