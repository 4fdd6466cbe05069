//! Models in files of GGUF, which llama.cpp and programs built on it read.

mod file;
mod tokens;

use super::parts::{ModelType, check_parts, decoder_parts, gpt2_parts};
use super::shapes::HEAD;
use super::weight_type::{WeightType, kind};
use super::{PretrainedError, gpt2, llama};
use crate::attention::{Pairing, Scaling};
use crate::checkpoint::open::open_file;
use crate::checkpoint::{AnyTensor, Checkpoint, CheckpointError};
use crate::config_error::ConfigError;
use crate::gpt::{GptConfig, MlpKind, NormKind, Positions, RopeConfig};
use crate::state::StateDict;
use crate::state_map::StateMap;
use crate::text::Tokenizer;
use file::{Gguf, MAGIC, Value};
use retrograd_tensor::Tensor;
use std::io::{self, Read};
use std::path::Path;

/// The parameters of xIELU that make it the square of ReLU. Two are those before softplus: ln(e - 1) becomes 1, and
/// -100 becomes 0.
const XIELU: [(&str, f64); 4] =
    [("alpha_p", 0.541_324_854_612_918), ("alpha_n", -100.0), ("beta", 0.0), ("eps", -1e-6)];

/// An error unless llama.cpp has an architecture with all parts.
///
/// Its Apertus has the activation xIELU, `α_p x² + β x` for `x > 0` and `α_n (eˣ - 1 - x) + β x` else: the
/// square of ReLU if `α_p = 1`, and `β` and `α_n` are 0.
pub(super) fn check(c: &GptConfig) -> Result<(), ConfigError> {
    let model = ModelType::of(c);
    let rope = c.rope_config().unwrap_or_default();
    let scaling = matches!(rope.scaling, Scaling::None | Scaling::Linear { .. });
    let (mut parts, mlp, instead) = match model {
        ModelType::Gpt2 => (gpt2_parts(c), MlpKind::GeluTanh, "with --mlp gelu-tanh"),
        _ if model.is_gated() => (decoder_parts(c), MlpKind::SwiGlu, "with --mlp swiglu"),
        _ => (decoder_parts(c), MlpKind::ReluSquared, "with --mlp relu-squared, or swiglu"),
    };
    let sizes = [c.vocab, c.context, c.width, c.hidden(), c.heads];
    let is_short = sizes.into_iter().all(|n| u32::try_from(n).is_ok());
    parts.extend([
        (c.mlp == mlp, format!("mlp {:?}", c.mlp.name()), instead),
        (model == ModelType::Gpt2 || !c.bias, "biases".into(), ""),
        (scaling, format!("scaling {:?}", rope.scaling), ""),
        (c.head_width().is_multiple_of(2), "heads of odd width".into(), "with another --width"),
        (is_short, "sizes of 2^32 and more".into(), ""),
    ]);
    check_parts(&format!("{} of llama.cpp", model.name()), &parts)
}

/// The map between state dicts with the names of GGUF and of a model.
pub(super) fn map(c: &GptConfig) -> StateMap {
    let model = ModelType::of(c);
    let mut map = StateMap::new();
    let names: &[(&str, &str)] = match model {
        ModelType::Gpt2 => &[
            ("token_embd.weight", "transformer.wte.weight"),
            ("position_embd.weight", "transformer.wpe.weight"),
            ("output_norm.*", "transformer.ln_f.*"),
            ("output.weight", HEAD),
            ("blk.*.attn_norm.*", "transformer.h.*.ln_1.*"),
            ("blk.*.ffn_norm.*", "transformer.h.*.ln_2.*"),
            ("blk.*.attn_qkv.*", "transformer.h.*.attn.c_attn.*"),
            ("blk.*.attn_output.*", "transformer.h.*.attn.c_proj.*"),
            ("blk.*.ffn_up.*", "transformer.h.*.mlp.c_fc.*"),
            ("blk.*.ffn_down.*", "transformer.h.*.mlp.c_proj.*"),
        ],
        _ => &[
            ("token_embd.weight", "model.embed_tokens.weight"),
            ("output_norm.weight", "model.norm.weight"),
            ("output.weight", HEAD),
            ("blk.*.attn_norm.weight", "model.layers.*.input_layernorm.weight"),
            ("blk.*.ffn_norm.weight", "model.layers.*.post_attention_layernorm.weight"),
            ("blk.*.attn_q.weight", "model.layers.*.self_attn.q_proj.weight"),
            ("blk.*.attn_k.weight", "model.layers.*.self_attn.k_proj.weight"),
            ("blk.*.attn_v.weight", "model.layers.*.self_attn.v_proj.weight"),
            ("blk.*.attn_output.weight", "model.layers.*.self_attn.o_proj.weight"),
            ("blk.*.attn_q_norm.weight", "model.layers.*.self_attn.q_norm.weight"),
            ("blk.*.attn_k_norm.weight", "model.layers.*.self_attn.k_norm.weight"),
            ("blk.*.ffn_gate.weight", "model.layers.*.mlp.gate_proj.weight"),
            ("blk.*.ffn_up.weight", "model.layers.*.mlp.up_proj.weight"),
            ("blk.*.ffn_down.weight", "model.layers.*.mlp.down_proj.weight"),
        ],
    };
    for (theirs, ours) in names {
        map = map.rename(theirs, ours);
    }
    // llama.cpp rotates adjacent elements in its Llama and Arcee, halves in the others.
    match model {
        ModelType::Gpt2 => map,
        ModelType::Qwen3 | ModelType::Apertus => {
            llama::from_llama(llama::permuted(map, c, Pairing::Half), c)
        }
        _ => llama::from_llama(llama::permuted(map, c, Pairing::Interleaved), c),
    }
}

/// Writes a model.
pub(super) fn write(
    c: &GptConfig,
    mut dict: StateDict<f32>,
    path: &Path,
    weights: WeightType,
    tokenizer: Option<&Tokenizer>,
    name: &str,
) -> Result<(), PretrainedError> {
    let invalid = |e| PretrainedError::Config(path.into(), e);
    let model = ModelType::of(c);
    let arch = model.name();
    let integer = |n: usize| Value::Integer(n as i64);
    // The numbers of llama.cpp for "mostly" this type.
    let number = [(WeightType::F16, 1), (WeightType::Q8_0, 7), (WeightType::Bf16, 32)];
    let number = number.iter().find(|row| row.0 == weights).map_or(0, |row| row.1);
    let mut to = vec![
        ("general.architecture".to_string(), Value::Text(arch.into())),
        ("general.name".into(), Value::Text(name.into())),
        ("general.file_type".into(), Value::Integer(number)),
        ("general.quantization_version".into(), Value::Integer(2)),
    ];
    let (eps, head) = (Value::Float(c.norm_eps), integer(c.head_width()));
    let mut of_model = vec![
        ("vocab_size", integer(c.vocab)),
        ("context_length", integer(c.context)),
        ("embedding_length", integer(c.width)),
        ("block_count", integer(c.layers)),
        ("feed_forward_length", integer(c.hidden())),
        ("attention.head_count", integer(c.heads)),
        ("attention.head_count_kv", integer(c.key_heads())),
    ];
    match c.rope_config() {
        None => of_model.push(("attention.layer_norm_epsilon", eps)),
        Some(rope) => {
            of_model.extend([
                ("attention.layer_norm_rms_epsilon", eps),
                ("attention.key_length", head.clone()),
                ("attention.value_length", head.clone()),
                ("rope.dimension_count", head),
                ("rope.freq_base", Value::Float(rope.base)),
            ]);
            if let Scaling::Linear { factor } = rope.scaling {
                of_model.push(("rope.scaling.type", Value::Text("linear".into())));
                of_model.push(("rope.scaling.factor", Value::Float(factor)));
            }
        }
    }
    to.extend(of_model.into_iter().map(|(name, value)| (format!("{arch}.{name}"), value)));
    if model == ModelType::Apertus {
        let lists =
            XIELU.map(|(name, x)| (format!("xielu.{name}"), Value::Floats(vec![x; c.layers])));
        to.extend(lists);
    }
    match tokenizer {
        Some(tokenizer) => to.extend(tokens::write(tokenizer, c.vocab).map_err(invalid)?),
        None => to.push(("tokenizer.ggml.model".into(), Value::Text("none".into()))),
    }
    if model == ModelType::Gpt2 {
        gpt2::add_biases(&mut dict, c);
    }
    if c.tied && model != ModelType::Apertus {
        dict.remove(HEAD);
    }
    let tensors = map(c).export(&dict)?.into_iter().map(|(name, tensor)| {
        let kind = kind(&name, tensor.shape(), weights);
        (name, tensor, kind)
    });
    let tensors: Vec<(String, Tensor<f32>, WeightType)> = tensors.collect();
    file::write(path, &to, &tensors).map_err(|e| PretrainedError::Io(path.into(), e))
}

/// Whether a file begins as one of GGUF.
pub(super) fn is_gguf(path: &Path) -> io::Result<bool> {
    let (file, _) = open_file(path)?;
    let mut start = Vec::new();
    file.take(MAGIC.len() as u64).read_to_end(&mut start)?;
    Ok(start == MAGIC)
}

/// The configuration of a file, its tokenizer, and its tensors.
pub(super) fn read(
    path: &Path,
) -> Result<(GptConfig, Option<Tokenizer>, Checkpoint), PretrainedError> {
    let failed = |e: io::Error| match e.kind() {
        io::ErrorKind::InvalidData => {
            PretrainedError::Weights(CheckpointError::Unreadable(path.into(), e.to_string()))
        }
        _ => PretrainedError::Io(path.into(), e),
    };
    let mut file = Gguf::open(path).map_err(failed)?;
    let mut config = config(&file).map_err(|e| PretrainedError::Config(path.into(), e))?;
    let mut weights = Checkpoint::new();
    weights.tensors = file.tensors().map_err(failed)?;
    // Apertus of llama.cpp needs a head, also a tied one.
    let part = |name| weights.tensors.get(name).and_then(|x: &AnyTensor| x.to_float::<f32>().ok());
    if ModelType::of(&config) == ModelType::Apertus
        && part("output.weight") == part("token_embd.weight")
    {
        config.tied = true;
        weights.tensors.remove("output.weight");
    }
    Ok((config, tokens::read(&file.entries), weights))
}

/// The configuration of a file.
fn config(file: &Gguf) -> Result<GptConfig, ConfigError> {
    let error = |why: String| Err(ConfigError(why));
    let arch = match file.entries.get("general.architecture") {
        Some(Value::Text(arch)) => arch.as_str(),
        _ => return error("there is no general.architecture".into()),
    };
    let Some(model) = ModelType::of_name(arch) else {
        let names = ModelType::names();
        return error(format!("the architecture is {arch:?}, not one of {names}"));
    };
    let get = |name: &str| file.entries.get(&format!("{arch}.{name}"));
    let other = |name: &str| ConfigError(format!("{arch}.{name} is of another type"));
    let maybe = |name: &str| match get(name) {
        None => Ok(None),
        Some(&Value::Integer(n)) => usize::try_from(n).map(Some).map_err(|_| other(name)),
        Some(_) => Err(other(name)),
    };
    let size = |name: &str| {
        maybe(name)?.ok_or_else(|| ConfigError(format!("there is no size {arch}.{name}")))
    };
    let float = |name: &str| match get(name) {
        None => Ok(None),
        Some(&Value::Float(x)) => Ok(Some(shortest(x))),
        Some(_) => Err(other(name)),
    };
    let (heads, width) = (size("attention.head_count")?, size("embedding_length")?);
    let Some(&[vocab, _]) = file.shape("token_embd.weight") else {
        return error("there is no matrix token_embd.weight".into());
    };
    let (mlp, norm, eps) = match model {
        ModelType::Gpt2 => (MlpKind::GeluTanh, NormKind::LayerNorm, "layer_norm_epsilon"),
        _ if model.is_gated() => (MlpKind::SwiGlu, NormKind::RmsNorm, "layer_norm_rms_epsilon"),
        _ => (MlpKind::ReluSquared, NormKind::RmsNorm, "layer_norm_rms_epsilon"),
    };
    let positions = match model {
        ModelType::Gpt2 => Positions::Learned,
        _ => Positions::Rope(RopeConfig {
            base: float("rope.freq_base")?.unwrap_or(10000.0),
            scaling: match (get("rope.scaling.type"), float("rope.scaling.factor")?) {
                (Some(Value::Text(kind)), Some(factor)) if kind == "linear" => {
                    Scaling::Linear { factor }
                }
                (None, None) => Scaling::None,
                (Some(Value::Text(kind)), _) if kind == "none" => Scaling::None,
                _ => {
                    return error(format!("{arch}.rope.scaling.type is not supported, but linear"));
                }
            },
            ..RopeConfig::default()
        }),
    };
    if file.shape("rope_freqs.weight").is_some() || get("rope.scale_linear").is_some() {
        return error("rope_freqs.weight and rope.scale_linear are not supported".into());
    }
    for (name, value) in XIELU.into_iter().filter(|_| model == ModelType::Apertus) {
        let near = |x: &f64| (x - value).abs() < 1e-6;
        match file.entries.get(&format!("xielu.{name}")) {
            Some(Value::Floats(list)) if !list.is_empty() && list.iter().all(near) => {}
            _ => return error(format!("an xIELU that is not the square of ReLU: {name}")),
        }
    }
    let base = if model == ModelType::Gpt2 { GptConfig::default() } else { GptConfig::llama() };
    let Some(norm_eps) = float(&format!("attention.{eps}"))? else {
        return error(format!("there is no {arch}.attention.{eps}"));
    };
    let hidden = size("feed_forward_length")?;
    let config = GptConfig {
        vocab,
        context: size("context_length")?,
        layers: size("block_count")?,
        heads,
        width,
        tied: file.shape("output.weight").is_none(),
        key_heads: maybe("attention.head_count_kv")?.filter(|&n| n != heads),
        head_width: maybe("attention.key_length")?.filter(|n| n.checked_mul(heads) != Some(width)),
        qk_norm: model.has_qk_norm(),
        norm,
        norm_eps,
        mlp,
        positions,
        ..base
    };
    config.check()?;
    let usual = config.hidden() == hidden;
    let config = GptConfig { hidden: (!usual).then_some(hidden), ..config };
    config.check()?;
    let rotated = maybe("rope.dimension_count")?;
    match rotated.filter(|&width| model != ModelType::Gpt2 && width != config.head_width()) {
        Some(width) => {
            error(format!("heads of which {width} elements are rotated are not supported"))
        }
        None => Ok(config),
    }
}

/// The shortest decimal number of an `f32`: the epsilon 1e-5 is one in f64, too.
fn shortest(x: f64) -> f64 {
    (x as f32).to_string().parse().unwrap_or(x)
}
