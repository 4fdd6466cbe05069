//! The attention variants that a [`Gpt`](super::Gpt) can be built with, by name.

use crate::config_error::ConfigError;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// What a variant supports of the options of a configuration.
#[derive(Clone, Copy)]
pub(super) struct Support {
    /// The reason why key heads and head widths cannot be chosen.
    pub heads: Result<(), &'static str>,
    /// The reason why there is no QK-norm.
    pub qk_norm: Result<(), &'static str>,
    /// The reason why there are no rotary positions.
    pub rope: Result<(), &'static str>,
    /// The reason why there are no biases of positions (ALiBi, T5).
    pub bias: Result<(), &'static str>,
    /// The reason why there are no windows.
    pub window: Result<(), &'static str>,
    /// Whether there are attention weights, which dropout applies to.
    pub has_weights: bool,
    /// Whether the variant encodes positions itself.
    pub has_positions: bool,
    /// Whether it has a state in place of keys.
    pub has_state: bool,
}

const ALL: Support = Support {
    heads: Ok(()),
    qk_norm: Ok(()),
    rope: Ok(()),
    bias: Ok(()),
    window: Ok(()),
    has_weights: true,
    has_positions: false,
    has_state: false,
};

const POSITIONED: Support = Support { has_positions: true, ..ALL };

const OWN: &str = "it has projections of its own";
const OWN_PROJECTIONS: Support =
    Support { heads: Err(OWN), qk_norm: Err(OWN), rope: Err(OWN), ..ALL };

const ONE_HEAD: Support =
    Support { bias: Err("its scores have no axis of heads"), ..OWN_PROJECTIONS };

const RENORMALIZED: Support = Support { window: Err("its mask is causal"), ..ONE_HEAD };

const NORMED: Support = Support { qk_norm: Err("it has a QK-norm of its own"), ..ALL };

const RELATIVE: Support =
    Support { rope: Err("it has relative positions of its own"), ..POSITIONED };

const LINEAR: Support = Support {
    rope: Err("its state has no positions"),
    bias: Err("it has no scores"),
    window: Err("it has no scores"),
    has_weights: false,
    ..ALL
};

const NO_SCORES: &str = "it has a state and no scores";
const STATE: Support = Support {
    rope: Err("its state has no positions"),
    bias: Err(NO_SCORES),
    window: Err(NO_SCORES),
    has_weights: false,
    has_positions: true,
    has_state: true,
    ..OWN_PROJECTIONS
};

/// `Display` and `FromStr` of an enumeration with `ALL` and `name`.
macro_rules! by_name {
    ($type:ident, $what:literal) => {
        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.name())
            }
        }

        impl FromStr for $type {
            type Err = ConfigError;

            fn from_str(name: &str) -> Result<Self, ConfigError> {
                let found = $type::ALL.iter().find(|kind| kind.name() == name);
                found.cloned().ok_or_else(|| {
                    let names: Vec<&str> = $type::ALL.iter().map(|kind| kind.name()).collect();
                    ConfigError(format!("there is no {} {name:?}, but {}", $what, names.join(", ")))
                })
            }
        }
    };
}
pub(crate) use by_name;

macro_rules! kinds {
    ($($kind:ident $name:literal $paper:literal $support:expr, $summary:literal;)+) => {
        /// An attention variant in a [`Gpt`](super::Gpt). All are causal.
        ///
        /// ```
        /// use retrograd::nn::AttentionKind;
        /// let kind: AttentionKind = "talking-heads".parse().unwrap();
        /// assert_eq!(kind, AttentionKind::TalkingHeads);
        /// assert_eq!(kind.to_string(), "talking-heads");
        /// ```
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
        pub enum AttentionKind {
            $(#[doc = concat!("`", $name, "`: ", $summary)] #[serde(rename = $name)] $kind),+
        }

        impl AttentionKind {
            /// All variants.
            pub const ALL: &[AttentionKind] = &[$(AttentionKind::$kind),+];

            /// The name.
            pub fn name(self) -> &'static str {
                match self { $(AttentionKind::$kind => $name),+ }
            }

            /// What it computes, in a line.
            pub fn summary(self) -> &'static str {
                match self { $(AttentionKind::$kind => $summary),+ }
            }

            /// The number of its paper at arxiv.org; empty if it has none.
            pub fn arxiv(self) -> &'static str {
                match self { $(AttentionKind::$kind => $paper),+ }
            }

            /// Whether the variant encodes positions itself, so that a model needs no other
            /// [`Positions`](super::Positions).
            pub fn has_positions(self) -> bool {
                self.support().has_positions
            }

            /// Whether queries and keys can be [normalised](crate::GptConfig::qk_norm).
            pub fn has_qk_norm(self) -> bool {
                self.support().qk_norm.is_ok()
            }

            /// Whether it is a [`StateRule`](crate::attention::StateRule), which has no weights.
            pub fn has_state(self) -> bool {
                self.support().has_state
            }

            pub(super) fn support(self) -> Support {
                match self { $(AttentionKind::$kind => $support),+ }
            }
        }
    };
}

kinds! {
    Causal "causal" "1706.03762" ALL,
        "multi-head attention: one fused projection as in nanoGPT, or separate ones for options that need them";
    MultiHead "multi-head" "1706.03762" OWN_PROJECTIONS, "multi-head attention as PyTorch's nn.MultiheadAttention";
    GroupedQuery "grouped-query" "2305.13245" ALL, "groups of query heads share one key and value head";
    MultiQuery "multi-query" "1911.02150" ALL, "all query heads share one key and value head";
    SingleHead "single-head" "1706.03762" ONE_HEAD, "one head of the whole width";
    Wrapper "wrapper" "1706.03762" ONE_HEAD, "a list of separate heads, concatenated and projected";
    Plain "plain" "" ONE_HEAD, "no parameters: weights from the dot products of the inputs";
    Renormalized "renormalized" "" RENORMALIZED,
        "softmax over all keys, then masked and divided by the remaining sum";
    Additive "additive" "1409.0473" ONE_HEAD, "scores from a tanh network (Bahdanau)";
    Luong "luong" "1508.04025" ONE_HEAD, "bilinear scores, and a tanh of context and query (Luong)";
    SparseStrided "sparse-strided" "1904.10509" ALL, "a window, and every n-th earlier key (Sparse Transformer)";
    SparseFixed "sparse-fixed" "1904.10509" ALL, "a block, and the last keys of earlier blocks (Sparse Transformer)";
    Longformer "longformer" "2004.05150" NORMED, "sliding windows, dilated in half of the heads, and a global first token";
    BigBird "bigbird" "2007.14062" ALL, "neighbouring, global and random blocks of keys";
    ChunkedLocal "chunked-local" "" ALL, "attention within chunks of the sequence (Llama 4)";
    Alibi "alibi" "2108.12409" POSITIONED, "a penalty per head, linear in the distance";
    AlibiLearned "alibi-learned" "2108.12409" POSITIONED, "a learned penalty per head, linear in the distance";
    Forgetting "forgetting" "2503.02130" POSITIONED, "a forget gate per head and token takes from the scores of earlier keys";
    Cope "cope" "2405.18719" POSITIONED, "positions that count tokens with gates, as the query sees them";
    Gaussian "gaussian" "1810.10182" ALL, "a Gaussian window whose centre and width each query chooses";
    Temperature "temperature" "" ALL, "a learned factor of the scores of each head";
    T5 "t5" "1910.10683" Support { has_positions: true, ..OWN_PROJECTIONS },
        "a learned bias per head and distance bucket, unscaled scores";
    Shaw "shaw" "1803.02155" RELATIVE, "learned vectors of relative positions, added to keys and values";
    TransformerXl "transformer-xl" "1901.02860" RELATIVE, "relative positions as projected sines, without memory";
    Softcap "softcap" "2408.00118" ALL, "scores bounded by 50 · tanh(score / 50) (Gemma 2)";
    QkL2 "qk-l2" "2010.04245" NORMED, "cosine scores with a learned scale";
    QkRms "qk-rms" "2302.05442" NORMED, "RMS norms of queries and keys";
    Sink "sink" "2508.10925" ALL, "a learned logit per head in the softmax denominator (gpt-oss)";
    Quiet "quiet" "" ALL, "a 1 in the softmax denominator: weights may sum to less than 1";
    Streaming "streaming" "2309.17453" ALL, "the first tokens and a window";
    Memory "memory" "1907.01470" ALL, "16 learned keys and values that every query attends to";
    TalkingHeads "talking-heads" "2003.02436" ALL, "scores and weights mixed across heads";
    Differential "differential" "2410.05258" Support { qk_norm: Err("its heads are halves"), ..ALL },
        "one softmax minus λ times another, and a norm per head";
    Mla "mla" "2405.04434" Support { has_positions: true, ..OWN_PROJECTIONS },
        "keys and values from one low-rank latent vector, rotary positions (DeepSeek)";
    Linear "linear" "2006.16236" LINEAR, "dot products of feature maps instead of a softmax";
    Gated "gated" "2505.06708" ALL, "head outputs times a sigmoid of the input";
    HeadScale "head-scale" "2110.09456" ALL, "a learned scale per head";
    ValueResidual "value-residual" "2410.17897" ALL, "values mixed with the values of the first layer";
    Sigmoid "sigmoid" "2409.04431" ALL, "weights by sigmoid instead of softmax";
    Sparsemax "sparsemax" "1602.02068" ALL, "weights by sparsemax: most are exactly 0";
    Entmax15 "entmax-1.5" "1905.05702" ALL, "weights by 1.5-entmax: between softmax and sparsemax";
    TopK "top-k" "1912.11637" ALL, "softmax over the 8 largest scores";
    Retention "retention" "2307.08621" STATE, "a state with a fixed decay of each head (RetNet)";
    GatedLinear "gated-linear" "2312.06635" STATE, "a state with a decay of each channel by the input (GLA)";
    Mamba2 "mamba-2" "2405.21060" STATE, "a state with a decay of each head by the input (SSD)";
    DeltaNet "delta-net" "2406.06484" STATE, "a state in which a token replaces the value of its key";
    GatedDeltaNet "gated-delta-net" "2412.06464" STATE, "the same, with a decay of each head by the input";
    KimiDelta "kimi-delta" "2510.26692" STATE, "the same, with a decay of each channel by the input (KDA)";
    Rwkv7 "rwkv-7" "2503.14456" STATE, "decays and replacements of each channel by the input, and values of the first layer";
}

/// Causal multi-head attention, as in nanoGPT.
impl Default for AttentionKind {
    fn default() -> Self {
        AttentionKind::Causal
    }
}

by_name! { AttentionKind, "attention" }
