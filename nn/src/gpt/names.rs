//! The names of parameters, by the program whose checkpoints a model shares.

use serde::{Deserialize, Serialize};

/// The names of the parts of a model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Names {
    /// Those of GPT-2 and nanoGPT: `transformer.h.0.attn..`.
    #[default]
    Gpt2,
    /// Those of `LlamaForCausalLM` in Hugging Face's `transformers`: `model.layers.0.self_attn..`.
    Llama,
}

/// The names of the parts of a [`Gpt`](crate::Gpt), around its blocks.
pub(crate) struct ModelNames {
    /// The scope of all but the head.
    pub scope: &'static str,
    pub tokens: &'static str,
    pub positions: &'static str,
    pub blocks: &'static str,
    pub norm: &'static str,
    pub head: &'static str,
}

/// The names of the parts of a [`Block`](crate::Block).
pub(crate) struct BlockNames {
    pub norm_1: &'static str,
    pub attention: &'static str,
    pub norm_2: &'static str,
    pub mlp: &'static str,
}

impl Names {
    pub(crate) fn model(self) -> ModelNames {
        match self {
            Names::Gpt2 => ModelNames {
                scope: "transformer",
                tokens: "wte",
                positions: "wpe",
                blocks: "h",
                norm: "ln_f",
                head: "lm_head",
            },
            Names::Llama => ModelNames {
                scope: "model",
                tokens: "embed_tokens",
                positions: "embed_positions",
                blocks: "layers",
                norm: "norm",
                head: "lm_head",
            },
        }
    }

    pub(crate) fn block(self) -> BlockNames {
        match self {
            Names::Gpt2 => {
                BlockNames { norm_1: "ln_1", attention: "attn", norm_2: "ln_2", mlp: "mlp" }
            }
            Names::Llama => BlockNames {
                norm_1: "input_layernorm",
                attention: "self_attn",
                norm_2: "post_attention_layernorm",
                mlp: "mlp",
            },
        }
    }
}
