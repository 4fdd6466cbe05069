//! Models as graphs of ONNX, with a cache of keys and values as inputs and outputs.

mod graph;
mod model;
mod wire;

use super::PretrainedError;
use super::parts::{attention_parts, check_parts};
use super::shapes::{HEAD, shapes};
use super::weight_type::{BLOCK, WeightType, kind};
use crate::checkpoint::{self, Checkpoint, CheckpointError, atomic};
use crate::config_error::ConfigError;
use crate::gpt::{GptConfig, Positions};
use crate::state::StateDict;
use crate::text::Tokenizer;
use graph::{Graph, Initializer, OPSET, field};
use model::Builder;
use retrograd_tensor::Tensor;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use wire::{Field, Message, fields};

/// The version of the format that has the opset.
const IR_VERSION: i64 = 11;
/// The largest message of protocol buffers.
const LIMIT: usize = i32::MAX as usize;
/// The entries of the metadata with what an importer needs.
const CONFIG: &str = "retrograd.config";
const TOKENIZER: &str = "retrograd.tokenizer";
const WEIGHTS: &str = "retrograd.weights";

/// An error unless the opset has all parts.
pub(super) fn check(c: &GptConfig) -> Result<(), ConfigError> {
    let mut parts = attention_parts(c);
    parts.push((c.positions != Positions::T5, "positions \"t5\"".into(), "with --positions rope"));
    check_parts("the opset of ONNX", &parts)
}

/// The graph, and the initializers of the weights: for the same configuration, the same bytes.
fn build(c: &GptConfig, dict: &StateDict<f32>, weights: WeightType) -> (Graph, Vec<Initializer>) {
    let mut builder = Builder { config: c, graph: Graph::default() };
    builder.graph.scope = "weights".into();
    let dict = dict.iter().filter(|(name, _)| !(c.tied && *name == HEAD));
    let all = dict.flat_map(|(name, value)| builder.graph.weight(name, value, weights)).collect();
    builder.build();
    (builder.graph, all)
}

/// Writes a model.
pub(super) fn write(
    c: &GptConfig,
    dict: StateDict<f32>,
    path: &Path,
    weights: WeightType,
    tokenizer: Option<&Tokenizer>,
    name: &str,
) -> Result<(), PretrainedError> {
    let invalid = |why| PretrainedError::Config(path.into(), why);
    let (graph, all) = build(c, &dict, weights);
    let fields = graph.fields();
    let all: Vec<Initializer> = graph.constants.into_iter().chain(all).collect();
    let heads: Vec<Message> = all.iter().map(Initializer::head).collect();
    let bytes = |(head, part): (&Message, &Initializer)| head.0.len() + part.bytes.len();
    let length = fields.0.len() + heads.iter().zip(&all).map(bytes).sum::<usize>();
    let mut entries = vec![
        (CONFIG, serde_json::to_string(c).expect("a configuration has a JSON form")),
        (WEIGHTS, weights.to_string()),
    ];
    entries.extend(tokenizer.map(|tokenizer| (TOKENIZER, tokenizer.to_json())));
    let mut model = Message::new()
        .integer(1, IR_VERSION)
        .bytes(2, "retrograd")
        .bytes(3, env!("CARGO_PKG_VERSION"))
        .bytes(6, name)
        .bytes(8, Message::new().bytes(1, "").integer(2, OPSET));
    for (key, value) in entries {
        model = model.bytes(14, Message::new().bytes(1, key).bytes(2, value));
    }
    let model = model.begin(7, length);
    if model.0.len() + length > LIMIT {
        let why = format!("a file of ONNX has at most 2 GiB, and this model takes {length} bytes");
        return Err(invalid(ConfigError(why)));
    }
    atomic::replace(&atomic::System, path, |file| {
        file.write_all(&model.0)?;
        file.write_all(&fields.0)?;
        for (head, part) in heads.iter().zip(&all) {
            file.write_all(&head.0)?;
            file.write_all(&part.bytes)?;
        }
        Ok(())
    })
    .map_err(|e| PretrainedError::Io(path.into(), e))
}

/// A file of [`write`]: its configuration, its tokenizer, and its tensors.
pub(super) fn read(
    path: &Path,
) -> Result<(GptConfig, Option<Tokenizer>, Checkpoint), PretrainedError> {
    let bytes =
        checkpoint::read(path, LIMIT as u64).map_err(|e| PretrainedError::Io(path.into(), e))?;
    let why = |why: String| PretrainedError::Weights(CheckpointError::Unreadable(path.into(), why));
    parse(&bytes).map_err(why)
}

/// The contents of a file. One whose graph is not that of its configuration is refused, because another graph is
/// another model.
fn parse(bytes: &[u8]) -> Result<(GptConfig, Option<Tokenizer>, Checkpoint), String> {
    let none = || "it is neither a file of GGUF nor a model of ONNX".to_string();
    let (mut graph, mut entries) = (None, BTreeMap::new());
    for field in fields(bytes) {
        let (number, value, _) = field.ok_or_else(none)?;
        match (number, value) {
            (7, Field::Bytes(bytes)) => graph = Some(bytes),
            (14, Field::Bytes(entry)) => {
                let text = |n| fields(entry).flatten().find(|row| row.0 == n)?.1.text();
                entries.insert(text(1).ok_or_else(none)?, text(2).unwrap_or_default());
            }
            _ => {}
        }
    }
    let graph = graph.ok_or_else(none)?;
    let foreign = || {
        "another program wrote it: this library reads the graphs that it writes (hint: the weights of \
         other models are read from safetensors and GGUF)"
            .to_string()
    };
    let config: GptConfig = serde_json::from_str(entries.get(CONFIG).ok_or_else(foreign)?)
        .map_err(|e| format!("{CONFIG}: {e}"))?;
    config.check().and_then(|()| check(&config)).map_err(|e| e.to_string())?;
    let weights = entries.get(WEIGHTS).and_then(|text| text.parse().ok()).ok_or_else(foreign)?;
    // One of Hugging Face's needs a feature.
    let tokenizer = entries.get(TOKENIZER).and_then(|json| Tokenizer::from_json(json).ok());
    let mut others = Message::new();
    let mut initializers = BTreeMap::new();
    for field in fields(graph) {
        let (number, value, whole) = field.ok_or_else(none)?;
        match (number, value) {
            (field::INITIALIZER, Field::Bytes(tensor)) => {
                let part = initializer(tensor).ok_or_else(none)?;
                initializers.insert(part.name.clone(), part);
            }
            _ => others.0.extend(whole),
        }
    }
    let dict = decode(&config, weights, &initializers)?;
    // Before tables are computed, whose length is the context.
    let tables = ["cos", "positions"].into_iter().filter_map(|name| initializers.get(name));
    let is_long = |table: &Initializer| {
        let columns = table.bytes.len() / config.context / 4;
        columns > 0 && table.dims == [config.context, columns]
    };
    let needs = matches!(config.positions, Positions::Rope(_) | Positions::Sinusoidal);
    if needs && !tables.map(is_long).eq([true]) {
        return Err("its tables of positions are not those of its configuration".into());
    }
    // The same configuration has the same graph.
    let (expected, all) = build(&config, &dict, weights);
    let same = |part: &Initializer| {
        initializers.get(&part.name).is_some_and(|found| {
            (&found.dims, found.element) == (&part.dims, part.element) && found.bytes == part.bytes
        })
    };
    let count = expected.constants.len() + all.len();
    let is_same = expected.fields() == others
        && initializers.len() == count
        && expected.constants.iter().chain(&all).all(same);
    if !is_same {
        let why = "its graph is not the one that this version writes for its configuration";
        return Err(why.into());
    }
    let mut file = Checkpoint::new();
    file.put("", &dict);
    Ok((config, tokenizer, file))
}

/// A tensor of a file.
fn initializer(tensor: &[u8]) -> Option<Initializer> {
    let (name, dims, bytes) = (String::new(), Vec::new(), Vec::new());
    let mut part = Initializer { name, dims, element: 0, bytes };
    for field in fields(tensor) {
        let (number, value, _) = field?;
        match (number, value) {
            (field::DIMS, Field::Integer(n)) => part.dims.push(n.try_into().ok()?),
            (field::TYPE, Field::Integer(n)) => part.element = n,
            (field::NAME, value) => part.name = value.text()?.into(),
            (field::RAW, Field::Bytes(bytes)) => part.bytes = bytes.to_vec(),
            _ => return None,
        }
    }
    Some(part)
}

/// The weights of the initializers.
fn decode(
    config: &GptConfig,
    weights: WeightType,
    initializers: &BTreeMap<String, Initializer>,
) -> Result<StateDict<f32>, String> {
    let mut dict = StateDict::new();
    let is_there = |(name, _): &(String, _)| !(config.tied && name == HEAD);
    for (name, shape) in shapes(config).into_iter().filter(is_there) {
        let kind = kind(&name, &shape, weights);
        let find =
            |name: &str| initializers.get(name).ok_or_else(|| format!("there is no tensor {name}"));
        let part = match kind {
            WeightType::F32 => find(&name)?,
            _ => find(&format!("{name}.{kind}"))?,
        };
        let mut bytes = Cow::Borrowed(&part.bytes[..]);
        if kind == WeightType::Q8_0 {
            let factors = &find(&format!("{name}.{kind}.scale"))?.bytes;
            let pairs = factors.chunks(2).zip(part.bytes.chunks(BLOCK));
            bytes = pairs.flat_map(|(d, q)| [d, q].concat()).collect();
        }
        let numel = shape.iter().product();
        if bytes.len() != kind.bytes(numel) {
            return Err(format!("tensor {name} has {} bytes", bytes.len()));
        }
        let mut out = Tensor::try_full(&shape[..], 0.0f32).map_err(|e| e.to_string())?;
        kind.decode(&bytes, out.make_mut());
        dict.insert(name, out);
    }
    Ok(dict)
}
