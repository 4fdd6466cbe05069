//! GPT-2, and nanoGPT.

use super::json::{self, entries};
use super::parts::{check_parts, gpt2_parts};
use super::shapes::shapes;
use crate::checkpoint::Storable;
use crate::config_error::ConfigError;
use crate::gpt::{GptConfig, MlpKind};
use crate::state::StateDict;
use crate::state_map::StateMap;
use retrograd_tensor::Tensor;
use serde_json::{Value, json};

/// The linear layers of a block.
const LINEAR: [&str; 4] = ["attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj"];

/// The map between state dicts of GPT-2 as its authors and Hugging Face publish them and state dicts of
/// [`Gpt`](crate::Gpt).
///
/// The weights of the linear layers are transposed, because `Conv1D` stores `[inputs, outputs]`.
/// `transformer.` at the beginning of names may be missing, as in files of `GPT2Model`. Causal masks
/// (`attn.bias`, `attn.masked_bias`) are left out.
pub fn gpt2() -> StateMap {
    let mut map = StateMap::new().strip_prefix("module").strip_prefix("_orig_mod");
    for part in ["wte.weight", "wpe.weight", "h.**", "ln_f.**"] {
        map = map.alias(part, &format!("transformer.{part}"));
    }
    map = map.ignore("transformer.h.*.attn.bias").ignore("transformer.h.*.attn.masked_bias");
    for layer in LINEAR {
        map = map.transpose(&format!("transformer.h.*.{layer}.weight"));
    }
    map
}

/// The map between state dicts of nanoGPT and of [`Gpt`](crate::Gpt): the same names and
/// layouts, but for the prefixes of `torch.compile` (`_orig_mod.`) and of `DistributedDataParallel`
/// (`module.`), and for causal masks (`attn.bias`), which are left out.
///
/// ```
/// use retrograd::nn::pretrained;
/// use retrograd::prelude::*;
///
/// let mut file = Checkpoint::new();
/// for name in ["transformer.wte.weight", "transformer.h.0.attn.bias"] {
///     file.tensors.insert(format!("_orig_mod.{name}"), Tensor::from([[1.0f32]]).into());
/// }
/// let dict = pretrained::nanogpt().import::<f32>(&file).unwrap();
/// assert_eq!(dict.keys().collect::<Vec<_>>(), ["transformer.wte.weight"]);
/// ```
pub fn nanogpt() -> StateMap {
    StateMap::new()
        .strip_prefix("module")
        .strip_prefix("_orig_mod")
        .ignore("transformer.h.*.attn.bias")
}

entries! {
    /// `config.json`, with the defaults of `GPT2Config`.
    struct Gpt2Json {
        vocab_size: usize = 50257,
        n_positions: usize = 1024,
        n_embd: usize = 768,
        n_layer: usize = 12,
        n_head: usize = 12,
        n_inner: Option<usize> = None,
        activation_function: String = "gelu_new".into(),
        resid_pdrop: f64 = 0.1,
        embd_pdrop: f64 = 0.1,
        attn_pdrop: f64 = 0.1,
        layer_norm_epsilon: f64 = 1e-5,
        scale_attn_weights: bool = true,
        scale_attn_by_inverse_layer_idx: bool = false,
        add_cross_attention: bool = false,
        tie_word_embeddings: bool = true,
    }
}

/// The activations of `transformers` that are feed-forward layers here; the first of several names is
/// written.
pub(super) const ACTIVATIONS: [(&str, MlpKind); 6] = [
    ("gelu_new", MlpKind::GeluTanh),
    ("gelu_pytorch_tanh", MlpKind::GeluTanh),
    ("gelu_fast", MlpKind::GeluTanh),
    ("gelu", MlpKind::Gelu),
    ("relu", MlpKind::Relu),
    ("relu2", MlpKind::ReluSquared),
];

pub(super) fn config(text: &str) -> Result<GptConfig, ConfigError> {
    let c: Gpt2Json = json::parse(text)?;
    json::supported(&[
        ("scale_attn_weights", c.scale_attn_weights, "false".into()),
        ("scale_attn_by_inverse_layer_idx", !c.scale_attn_by_inverse_layer_idx, "true".into()),
        ("add_cross_attention", !c.add_cross_attention, "true".into()),
    ])?;
    if c.resid_pdrop != c.embd_pdrop || c.resid_pdrop != c.attn_pdrop {
        let Gpt2Json { resid_pdrop, embd_pdrop, attn_pdrop, .. } = c;
        return Err(ConfigError(format!(
            "resid_pdrop = {resid_pdrop}, embd_pdrop = {embd_pdrop} and attn_pdrop = {attn_pdrop} \
             differ, but there is one rate of dropout here (hint: it has no effect on inference; \
             change the file)"
        )));
    }
    let named = |(name, _): &&(&str, MlpKind)| *name == c.activation_function;
    let Some(&(_, mlp)) = ACTIVATIONS.iter().find(named) else {
        let name = &c.activation_function;
        return Err(ConfigError(format!("activation_function = {name:?} is not supported")));
    };
    Ok(GptConfig {
        vocab: c.vocab_size,
        context: c.n_positions,
        layers: c.n_layer,
        heads: c.n_head,
        width: c.n_embd,
        dropout: c.resid_pdrop,
        tied: c.tie_word_embeddings,
        norm_eps: c.layer_norm_epsilon,
        mlp,
        // The default is written in one way, so that equal models have equal configurations.
        hidden: c.n_inner.filter(|&n| Some(n) != c.n_embd.checked_mul(4)),
        ..GptConfig::default()
    })
}

pub(super) fn to_json(config: &GptConfig) -> Result<Value, ConfigError> {
    let c = config;
    let activation = ACTIVATIONS.iter().find(|(_, mlp)| *mlp == c.mlp);
    let mut parts = gpt2_parts(c);
    parts.push((activation.is_some(), format!("mlp {:?}", c.mlp.name()), "with --mlp gelu"));
    check_parts("gpt2 of transformers", &parts)?;
    Ok(json!({
        "model_type": "gpt2",
        "architectures": ["GPT2LMHeadModel"],
        "vocab_size": c.vocab,
        "n_positions": c.context,
        "n_embd": c.width,
        "n_layer": c.layers,
        "n_head": c.heads,
        "n_inner": c.hidden,
        "activation_function": activation.map(|(name, _)| *name),
        "resid_pdrop": c.dropout,
        "embd_pdrop": c.dropout,
        "attn_pdrop": c.dropout,
        "layer_norm_epsilon": c.norm_eps,
        "tie_word_embeddings": c.tied,
        // The defaults are tokens of GPT-2's vocabulary.
        "bos_token_id": null,
        "eos_token_id": null,
    }))
}

/// Adds biases of 0 where there is none.
pub(super) fn add_biases<T: Storable>(dict: &mut StateDict<T>, config: &GptConfig) {
    let shapes = shapes(&GptConfig { bias: true, ..config.clone() });
    for (name, sizes) in shapes.iter().filter(|(name, _)| name.ends_with(".bias")) {
        dict.entry(name.clone()).or_insert_with(|| Tensor::zeros(&sizes[..]));
    }
}
