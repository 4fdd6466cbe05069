//! Llama, and the model types of `transformers` that differ from it in a part.

use super::gpt2::ACTIVATIONS as PLAIN;
use super::json::{self, entries};
use super::parts::{ModelType, check_parts, decoder_parts};
use crate::attention::{Llama3Scaling, Pairing, Scaling, Yarn};
use crate::config_error::ConfigError;
use crate::gpt::{GptConfig, MlpKind, Names, Positions, RopeConfig};
use crate::state_map::StateMap;
use serde::Deserialize;
use serde_json::{Value, json};

/// The map between state dicts of Llama as Hugging Face publishes them and state dicts of a
/// [`Gpt`](crate::Gpt) of this configuration; also of Qwen 3 with QK-norm, of Arcee with a feed-forward layer that
/// is not gated, and of Apertus with both.
///
/// The rows of the projections to queries and keys are permuted if the configuration has another
/// pairing of rotary positions than theirs, [`Pairing::Half`]. Frequencies (`rotary_emb.inv_freq`) are
/// left out.
pub fn llama(config: &GptConfig) -> StateMap {
    let map = StateMap::new()
        .strip_prefix("module")
        .strip_prefix("_orig_mod")
        .ignore("model.layers.*.self_attn.rotary_emb.inv_freq");
    let map = permuted(map, config, Pairing::Half);
    // Apertus has other names of norms.
    let map = match ModelType::of(config) {
        ModelType::Apertus => map
            .rename("model.layers.*.attention_layernorm.*", "model.layers.*.input_layernorm.*")
            .rename(
                "model.layers.*.feedforward_layernorm.*",
                "model.layers.*.post_attention_layernorm.*",
            ),
        _ => map,
    };
    from_llama(map, config)
}

/// Adds the renaming from the names of Llama to those of a model with this configuration.
pub(super) fn from_llama(mut map: StateMap, config: &GptConfig) -> StateMap {
    if !config.mlp.is_gated() {
        map = map
            .rename("model.layers.*.mlp.up_proj.*", "model.layers.*.mlp.c_fc.*")
            .rename("model.layers.*.mlp.down_proj.*", "model.layers.*.mlp.c_proj.*");
    }
    if config.names == Names::Gpt2 {
        for (theirs, ours) in [
            ("model.embed_tokens.*", "transformer.wte.*"),
            ("model.norm.*", "transformer.ln_f.*"),
            ("model.layers.*.input_layernorm.*", "transformer.h.*.ln_1.*"),
            ("model.layers.*.post_attention_layernorm.*", "transformer.h.*.ln_2.*"),
            ("model.layers.*.self_attn.**", "transformer.h.*.attn.**"),
            ("model.layers.*.mlp.**", "transformer.h.*.mlp.**"),
        ] {
            map = map.rename(theirs, ours);
        }
    }
    map
}

/// The map between state dicts of Llama as Meta and llama2.c publish them and state dicts of a
/// [`Gpt`](crate::Gpt) with [`Names::Llama`](crate::Names::Llama).
///
/// Names differ, and the rows of the projections to queries and keys are permuted if the configuration
/// has another pairing of rotary positions than theirs, [`Pairing::Interleaved`].
///
/// ```
/// use retrograd::nn::pretrained;
/// use retrograd::prelude::*;
///
/// let config = GptConfig { vocab: 65, context: 8, layers: 1, heads: 2, width: 8, ..GptConfig::llama() };
/// let map = pretrained::llama_meta(&config);
/// let model = Gpt::<f32>::new(config, &mut Rng::new(1)).unwrap();
/// let theirs = map.export(&model.state_dict()).unwrap();
/// assert!(theirs.contains_key("layers.0.attention.wq.weight"));
/// ```
pub fn llama_meta(config: &GptConfig) -> StateMap {
    let mut map = StateMap::new().strip_prefix("module").strip_prefix("_orig_mod");
    map = map.ignore("rope.freqs").ignore("freqs_cos").ignore("freqs_sin");
    for (theirs, ours) in [
        ("tok_embeddings", "model.embed_tokens"),
        ("norm", "model.norm"),
        ("output", "lm_head"),
        ("layers.*.attention_norm", "model.layers.*.input_layernorm"),
        ("layers.*.attention.wq", "model.layers.*.self_attn.q_proj"),
        ("layers.*.attention.wk", "model.layers.*.self_attn.k_proj"),
        ("layers.*.attention.wv", "model.layers.*.self_attn.v_proj"),
        ("layers.*.attention.wo", "model.layers.*.self_attn.o_proj"),
        ("layers.*.ffn_norm", "model.layers.*.post_attention_layernorm"),
        ("layers.*.feed_forward.w1", "model.layers.*.mlp.gate_proj"),
        ("layers.*.feed_forward.w2", "model.layers.*.mlp.down_proj"),
        ("layers.*.feed_forward.w3", "model.layers.*.mlp.up_proj"),
    ] {
        map = map.rename(&format!("{theirs}.*"), &format!("{ours}.*"));
    }
    permuted(map, config, Pairing::Interleaved)
}

/// Adds the permutation of queries, keys and their norms, by the names of Llama.
pub(super) fn permuted(mut map: StateMap, config: &GptConfig, theirs: Pairing) -> StateMap {
    let Positions::Rope(rope) = config.positions else { return map };
    if rope.pairing == theirs {
        return map;
    }
    let width = rope.width.unwrap_or(config.head_width());
    let layers =
        [("q_proj", config.heads), ("k_proj", config.key_heads()), ("q_norm", 1), ("k_norm", 1)];
    for (layer, heads) in layers {
        let name = format!("model.layers.*.self_attn.{layer}.*");
        map = map.rope(&name, heads, width, theirs, rope.pairing);
    }
    map
}

entries! {
    /// `config.json`, with the defaults of `LlamaConfig`.
    struct LlamaJson {
        vocab_size: usize = 32000,
        hidden_size: usize = 4096,
        intermediate_size: usize = 11008,
        num_hidden_layers: usize = 32,
        num_attention_heads: usize = 32,
        num_key_value_heads: Option<usize> = None,
        head_dim: Option<usize> = None,
        hidden_act: String = "silu".into(),
        max_position_embeddings: usize = 2048,
        rms_norm_eps: f64 = 1e-6,
        tie_word_embeddings: bool = false,
        /// From version 5 of `transformers` on.
        rope_parameters: Option<RopeJson> = None,
        /// Before; this one also takes the place of the new parameters.
        rope_scaling: Option<RopeJson> = None,
        /// Before; for parameters without a value of their own.
        rope_theta: Option<f64> = None,
        partial_rotary_factor: Option<f64> = None,
        attention_bias: bool = false,
        mlp_bias: bool = false,
        use_sliding_window: bool = false,
        attention_dropout: f64 = 0.0,
    }
}

/// The parameters of rotary positions.
#[derive(Default, PartialEq, Deserialize)]
#[serde(default)]
struct RopeJson {
    rope_theta: Option<f64>,
    rope_type: Option<String>,
    /// The old name of `rope_type`, which some versions write beside it.
    r#type: Option<String>,
    factor: Option<f64>,
    original_max_position_embeddings: Option<usize>,
    attention_factor: Option<f64>,
    beta_fast: Option<f64>,
    beta_slow: Option<f64>,
    low_freq_factor: Option<f64>,
    high_freq_factor: Option<f64>,
    truncate: Option<bool>,
    mscale: Option<f64>,
    mscale_all_dim: Option<f64>,
    partial_rotary_factor: Option<f64>,
}

impl RopeJson {
    fn scaling(&self, context: usize) -> Result<Scaling, ConfigError> {
        let kind =
            self.rope_type.as_ref().or(self.r#type.as_ref()).map_or("default", String::as_str);
        let given = |name: &str, value: Option<f64>| {
            value.ok_or_else(|| ConfigError(format!("rope_type {kind:?} needs a {name}")))
        };
        let factor = || given("factor", self.factor);
        let context = self.original_max_position_embeddings.unwrap_or(context);
        match kind {
            "default" => Ok(Scaling::None),
            "linear" => Ok(Scaling::Linear { factor: factor()? }),
            "llama3" => Ok(Scaling::Llama3(Llama3Scaling {
                factor: factor()?,
                context,
                low: given("low_freq_factor", self.low_freq_factor)?,
                high: given("high_freq_factor", self.high_freq_factor)?,
            })),
            "yarn" => {
                let (mscale, all) = (self.mscale, self.mscale_all_dim);
                json::supported(&[
                    ("truncate", self.truncate != Some(false), "false".into()),
                    ("mscale", mscale.is_none(), format!("{}", mscale.unwrap_or_default())),
                    ("mscale_all_dim", all.is_none(), format!("{}", all.unwrap_or_default())),
                ])?;
                let factor = factor()?;
                Ok(Scaling::Yarn(Yarn {
                    factor,
                    context,
                    beta_fast: self.beta_fast.unwrap_or(32.0),
                    beta_slow: self.beta_slow.unwrap_or(1.0),
                    rounded: true,
                    attention: self.attention_factor.unwrap_or(0.1 * factor.max(1.0).ln() + 1.0),
                }))
            }
            other => Err(ConfigError(format!(
                "rope_type {other:?} is not supported, but default, linear, llama3 and yarn"
            ))),
        }
    }
}

/// The activations of feed-forward layers.
fn activations(gated: bool) -> &'static [(&'static str, MlpKind)] {
    if gated { &GATED } else { &PLAIN }
}

/// The activations of gated feed-forward layers; the first of several names is written.
const GATED: [(&str, MlpKind); 4] = [
    ("silu", MlpKind::SwiGlu),
    ("swish", MlpKind::SwiGlu),
    ("gelu", MlpKind::GeGlu),
    ("relu", MlpKind::ReGlu),
];

/// The entries of `config.json` whose defaults differ from those of `LlamaConfig`.
fn defaults(model: ModelType) -> Value {
    match model {
        ModelType::Qwen3 => json!({
            "vocab_size": 151936, "intermediate_size": 22016, "max_position_embeddings": 32768,
            "num_key_value_heads": 32, "head_dim": 128,
        }),
        ModelType::Apertus => json!({
            "vocab_size": 131072, "intermediate_size": 14336, "max_position_embeddings": 65536,
            "rms_norm_eps": 1e-5, "hidden_act": "xielu",
            "rope_parameters": {
                "rope_type": "llama3", "rope_theta": 12e6, "factor": 8.0, "low_freq_factor": 1.0,
                "high_freq_factor": 4.0, "original_max_position_embeddings": 8192,
            },
        }),
        ModelType::Arcee => json!({
            "hidden_size": 2560, "intermediate_size": 18432, "max_position_embeddings": 4096,
            "rms_norm_eps": 1e-5, "hidden_act": "relu2",
        }),
        _ => json!({}),
    }
}

pub(super) fn config(text: &str, model: ModelType) -> Result<GptConfig, ConfigError> {
    // A field given twice is an error.
    let _: LlamaJson = json::parse(text)?;
    let mut entries = defaults(model);
    if let (Value::Object(entries), Value::Object(given)) = (&mut entries, json::parse(text)?) {
        entries.extend(given);
    }
    let c: LlamaJson = json::parse(&entries.to_string())?;
    let scaling = c.rope_scaling.filter(|scaling| *scaling != RopeJson::default());
    let rope = scaling.or(c.rope_parameters).unwrap_or_default();
    let partial = rope.partial_rotary_factor.or(c.partial_rotary_factor).unwrap_or(1.0);
    json::supported(&[
        // Dropout here also applies to embeddings and outputs.
        ("attention_dropout", c.attention_dropout == 0.0, c.attention_dropout.to_string()),
        ("partial_rotary_factor", partial == 1.0, partial.to_string()),
        ("use_sliding_window", !c.use_sliding_window, "true".into()),
        (
            "attention_bias, mlp_bias",
            c.attention_bias == c.mlp_bias,
            format!("{}, {}", c.attention_bias, c.mlp_bias),
        ),
    ])?;
    let named = |(name, _): &&(&str, MlpKind)| *name == c.hidden_act;
    let Some(&(_, mlp)) = activations(model.is_gated()).iter().find(named) else {
        return Err(ConfigError(format!("hidden_act = {:?} is not supported", c.hidden_act)));
    };
    let rope = RopeConfig {
        base: rope.rope_theta.or(c.rope_theta).unwrap_or(10000.0),
        scaling: rope.scaling(c.max_position_embeddings)?,
        ..RopeConfig::default()
    };
    let config = GptConfig {
        vocab: c.vocab_size,
        context: c.max_position_embeddings,
        layers: c.num_hidden_layers,
        heads: c.num_attention_heads,
        width: c.hidden_size,
        bias: c.mlp_bias,
        tied: c.tie_word_embeddings,
        key_heads: c.num_key_value_heads.filter(|&n| n != c.num_attention_heads),
        head_width: c
            .head_dim
            .filter(|n| n.checked_mul(c.num_attention_heads) != Some(c.hidden_size)),
        norm_eps: c.rms_norm_eps,
        qk_norm: model.has_qk_norm(),
        mlp,
        positions: Positions::Rope(rope),
        ..GptConfig::llama()
    };
    // The default is written in one way, so that equal models have equal configurations.
    let hidden = Some(c.intermediate_size);
    Ok(match config.width.checked_mul(8).is_some() && config.hidden() == c.intermediate_size {
        true => config,
        false => GptConfig { hidden, ..config },
    })
}

pub(super) fn to_json(c: &GptConfig, model: ModelType) -> Result<Value, ConfigError> {
    let activations = activations(model.is_gated());
    let activation = activations.iter().find(|(_, mlp)| *mlp == c.mlp);
    let biased = matches!(model, ModelType::Llama | ModelType::Arcee);
    let mut parts = decoder_parts(c);
    parts.push((biased || !c.bias, "biases".into(), ""));
    parts.push((activation.is_some(), format!("mlp {:?}", c.mlp.name()), "with --mlp swiglu"));
    check_parts(&format!("{} of transformers", model.name()), &parts)?;
    let rope = c.rope_config().unwrap_or_default();
    let mut parameters = match rope.scaling {
        Scaling::None => json!({ "rope_type": "default" }),
        Scaling::Linear { factor } => json!({ "rope_type": "linear", "factor": factor }),
        Scaling::Yarn(yarn) if yarn.rounded => json!({
            "rope_type": "yarn",
            "factor": yarn.factor,
            "original_max_position_embeddings": yarn.context,
            "beta_fast": yarn.beta_fast,
            "beta_slow": yarn.beta_slow,
            "attention_factor": yarn.attention,
        }),
        Scaling::Llama3(scaling) => json!({
            "rope_type": "llama3",
            "factor": scaling.factor,
            "original_max_position_embeddings": scaling.context,
            "low_freq_factor": scaling.low,
            "high_freq_factor": scaling.high,
        }),
        other => {
            let model = model.name();
            return Err(ConfigError(format!("{model} of transformers has no scaling {other:?}")));
        }
    };
    parameters["rope_theta"] = rope.base.into();
    let mut json = json!({
        "model_type": model.name(),
        "architectures": [model.class()],
        "vocab_size": c.vocab,
        "hidden_size": c.width,
        "intermediate_size": c.hidden(),
        "num_hidden_layers": c.layers,
        "num_attention_heads": c.heads,
        "num_key_value_heads": c.key_heads(),
        "head_dim": c.head_width(),
        "hidden_act": activation.map(|(name, _)| *name),
        "max_position_embeddings": c.context,
        "rms_norm_eps": c.norm_eps,
        "tie_word_embeddings": c.tied,
        "attention_bias": c.bias,
        "mlp_bias": c.bias,
        "use_sliding_window": false,
        // The defaults are tokens of Llama's vocabulary.
        "bos_token_id": null,
        "eos_token_id": null,
        // For versions before 5.
        "rope_theta": rope.base,
    });
    if rope.scaling != Scaling::None {
        json["rope_scaling"] = parameters.clone();
    }
    json["rope_parameters"] = parameters;
    Ok(json)
}
