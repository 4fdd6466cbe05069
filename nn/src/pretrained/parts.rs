//! The model types that other programs have, and the parts of a configuration that each can express.

use crate::config_error::ConfigError;
use crate::gpt::{AttentionKind, GptConfig, Names, NormKind, Positions, RopeConfig};

/// A model type of `transformers`, and the architecture of that name in GGUF.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ModelType {
    /// Layer norms, learned positions.
    Gpt2,
    /// RMS norms, rotary positions and a gated feed-forward layer.
    Llama,
    /// Llama with QK-norm.
    Qwen3,
    /// Llama with a feed-forward layer that is not gated.
    Arcee,
    /// Both.
    Apertus,
}

impl ModelType {
    const ALL: [(ModelType, &'static str, &'static str); 5] = [
        (ModelType::Gpt2, "gpt2", "GPT2LMHeadModel"),
        (ModelType::Llama, "llama", "LlamaForCausalLM"),
        (ModelType::Qwen3, "qwen3", "Qwen3ForCausalLM"),
        (ModelType::Arcee, "arcee", "ArceeForCausalLM"),
        (ModelType::Apertus, "apertus", "ApertusForCausalLM"),
    ];

    /// The type that is nearest to a configuration.
    pub(super) fn of(config: &GptConfig) -> ModelType {
        match (config.rope_config(), config.names) {
            (None, Names::Gpt2) => ModelType::Gpt2,
            (None, Names::Llama) => ModelType::Llama,
            _ => match (config.qk_norm, config.mlp.is_gated()) {
                (false, true) => ModelType::Llama,
                (true, true) => ModelType::Qwen3,
                (false, false) => ModelType::Arcee,
                (true, false) => ModelType::Apertus,
            },
        }
    }

    pub(super) fn of_name(name: &str) -> Option<ModelType> {
        ModelType::ALL.iter().find(|row| row.1 == name).map(|row| row.0)
    }

    /// All names, for messages.
    pub(super) fn names() -> String {
        ModelType::ALL.map(|row| row.1).join(", ")
    }

    fn row(self) -> (ModelType, &'static str, &'static str) {
        *ModelType::ALL.iter().find(|row| row.0 == self).expect("every type has a row")
    }

    pub(super) fn name(self) -> &'static str {
        self.row().1
    }

    /// The class in PyTorch.
    pub(super) fn class(self) -> &'static str {
        self.row().2
    }

    pub(super) fn has_qk_norm(self) -> bool {
        matches!(self, ModelType::Qwen3 | ModelType::Apertus)
    }

    pub(super) fn is_gated(self) -> bool {
        matches!(self, ModelType::Llama | ModelType::Qwen3)
    }
}

/// Whether a target has a part, the part, and what to train with instead; nothing if no flag of `retrograd train` makes
/// the part.
pub(super) type Part = (bool, String, &'static str);

/// An error unless a target has all parts.
pub(super) fn check_parts(target: &str, parts: &[Part]) -> Result<(), ConfigError> {
    match parts.iter().find(|(has, ..)| !has) {
        Some((_, part, "")) => Err(ConfigError(format!("{target} has no {part}"))),
        Some((_, part, instead)) => {
            Err(ConfigError(format!("{target} has no {part} (hint: train {instead})")))
        }
        None => Ok(()),
    }
}

/// The parts of attention that every target has.
pub(super) fn attention_parts(c: &GptConfig) -> Vec<Part> {
    // The same module, with other defaults of the number of key heads.
    let is_causal = matches!(
        c.attention,
        AttentionKind::Causal | AttentionKind::GroupedQuery | AttentionKind::MultiQuery
    );
    vec![
        (c.pattern.is_empty(), "pattern of attention variants".into(), "without --pattern"),
        (is_causal, format!("attention {:?}", c.attention.name()), "with --attention causal"),
    ]
}

/// Those that model types have: no windows, and logits as they are.
fn model_parts(c: &GptConfig) -> Vec<Part> {
    let mut parts = attention_parts(c);
    let windows = c.windows.iter().all(Option::is_none);
    parts.push((windows, format!("windows {:?}", c.windows), ""));
    parts.push((c.logit_softcap.is_none(), format!("logit_softcap {:?}", c.logit_softcap), ""));
    parts
}

/// The parts that Llama and its relatives have, besides the feed-forward layer and biases.
pub(super) fn decoder_parts(c: &GptConfig) -> Vec<Part> {
    let mut parts = model_parts(c);
    let rope = c.rope_config();
    let is_whole = rope.is_none_or(|rope| rope.width.is_none_or(|width| width == c.head_width()));
    parts.extend([
        (c.norm == NormKind::RmsNorm, format!("norm {:?}", c.norm.name()), "with --norm rms-norm"),
        (rope.is_some(), format!("positions {:?}", c.positions.name()), "with --positions rope"),
        (is_whole, "heads of which a part is rotated".into(), ""),
    ]);
    parts
}

/// The parts that GPT-2 has, besides the activation.
pub(super) fn gpt2_parts(c: &GptConfig) -> Vec<Part> {
    let mut parts = model_parts(c);
    let is_causal = c.attention == AttentionKind::Causal;
    let (norm, positions) = (c.norm.name(), c.positions.name());
    let learned = c.positions == Positions::Learned;
    parts.extend([
        (is_causal, format!("attention {:?}", c.attention.name()), "with --attention causal"),
        (c.key_heads.is_none(), format!("key_heads {:?}", c.key_heads), "without --key-heads"),
        (c.head_width.is_none(), format!("head_width {:?}", c.head_width), ""),
        (!c.qk_norm, "QK-norm".into(), "with --qk-norm false"),
        (c.norm == NormKind::LayerNorm, format!("norm {norm:?}"), "with --norm layer-norm"),
        (learned, format!("positions {positions:?}"), "with --positions learned, or rope"),
    ]);
    parts
}

impl GptConfig {
    /// Rotary positions, if there are any.
    pub(super) fn rope_config(&self) -> Option<RopeConfig> {
        match self.positions {
            Positions::Rope(rope) => Some(rope),
            _ => None,
        }
    }
}
