//! The flags of hyperparameters.

use crate::presets::Preset;
use crate::recipe::{OptimizerKind, Recipe, ScheduleKind};
use crate::tokenizer::TokenizerKind;
use crate::values::{Attention, above_0, at_least_0, count, probability};
use clap::Args;
use retrograd::nn::{MlpKind, NormKind, Positions};
use retrograd::prelude::MatmulPrecision;
use serde::{Serialize, Serializer};
use serde_json::Value;

/// Flags of hyperparameters, with the names of the fields of [`Recipe`].
#[derive(Args, Clone, Debug, Serialize)]
#[command(next_help_heading = "Hyperparameters (override the preset)")]
pub struct RecipeFlags {
    /// Named set of hyperparameters [default: tales]
    ///
    /// The other flags override parts of it.
    #[arg(long, value_enum, value_name = "NAME", help_heading = None::<&str>)]
    #[serde(skip)]
    pub preset: Option<Preset>,

    /// Tokens: char, byte, bpe:N, or a file such as tokenizer.json [default: char]
    ///
    /// bpe:N is byte-level BPE of N tokens, trained on the text. bpe:N and tokenizer.json of Hugging Face's library
    /// need a build with --features tokenizers.
    #[arg(long, value_name = "NAME", help_heading = None::<&str>)]
    pub tokenizer: Option<TokenizerKind>,

    /// Training steps
    #[arg(long, value_name = "N", value_parser = count(100_000_000))]
    pub steps: Option<u64>,

    /// Batch size: windows of text per step
    #[arg(long, value_name = "N", value_parser = count(65536))]
    batch: Option<u64>,

    /// Shards of a batch, which are computed at the same time [default: 1, 2 or 4]
    ///
    /// The default depends on the tokens of a batch. Shards are divided among threads, and among ranks of MPI. Other
    /// shards have other roundings and other patterns of dropout.
    #[arg(long, value_name = "N", value_parser = count(65536))]
    shards: Option<u64>,

    /// Context length in tokens
    #[arg(long, value_name = "N", value_parser = count(65536))]
    context: Option<u64>,

    /// Transformer blocks
    #[arg(long, value_name = "N", value_parser = count(1024))]
    layers: Option<u64>,

    /// Attention heads in each block; must divide the width
    #[arg(long, value_name = "N", value_parser = count(1024))]
    heads: Option<u64>,

    /// Embedding width
    #[arg(long, value_name = "N", value_parser = count(16384))]
    width: Option<u64>,

    /// Fraction of activations dropped in training, at least 0 and below 1
    #[arg(long, value_name = "P", value_parser = probability)]
    dropout: Option<f64>,

    /// Peak learning rate
    #[arg(long, value_name = "RATE", value_parser = above_0)]
    lr: Option<f64>,

    /// Optimiser
    #[arg(long, value_enum, value_name = "NAME")]
    optimizer: Option<OptimizerKind>,

    /// Learning rate after the warm-up
    #[arg(long, value_enum, value_name = "NAME")]
    schedule: Option<ScheduleKind>,

    /// Momentum of Muon [default: 0.85]
    #[arg(long, value_name = "M", value_parser = probability)]
    momentum: Option<f64>,

    /// Weight decay of matrices [default: 0.1 with AdamW, 0 with Muon]
    #[arg(long, value_name = "X", value_parser = at_least_0)]
    weight_decay: Option<f64>,

    /// Learning rate of AdamW beside Muon, for embeddings and norms [default: half of Muon's]
    #[arg(long, value_name = "RATE", value_parser = above_0)]
    adam_lr: Option<f64>,

    /// Seed of initial weights, batches, dropout and samples
    #[arg(long, value_name = "N")]
    seed: Option<u64>,

    /// Precision of matrix multiplication: f32, bf16x6, bf16x3 or bf16, from exact to fast
    ///
    /// The others than f32 need a CPU with AMX; results then depend on whether the CPU has AMX.
    #[arg(long, value_name = "NAME")]
    #[serde(serialize_with = "name")]
    precision: Option<MatmulPrecision>,

    /// Attention variant; "list" prints all of them
    #[arg(long, value_name = "NAME")]
    pub attention: Option<Attention>,

    /// Key and value heads, which divide the heads
    #[arg(long, value_name = "N", value_parser = count(1024))]
    key_heads: Option<u64>,

    /// Normalise queries and keys
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    qk_norm: Option<bool>,

    /// Norm: layer-norm, rms-norm or none
    #[arg(long, value_name = "NAME")]
    norm: Option<NormKind>,

    /// Feed-forward layer: gelu, gelu-tanh, relu, relu-squared, swiglu, geglu or reglu
    #[arg(long, value_name = "NAME")]
    mlp: Option<MlpKind>,

    /// Positions: learned, sinusoidal, rope, alibi, t5 or none [default: learned]
    ///
    /// The default is none if the attention variant encodes positions itself.
    #[arg(long, value_name = "NAME")]
    positions: Option<Positions>,
}

fn name<S: Serializer>(p: &Option<MatmulPrecision>, s: S) -> Result<S::Ok, S::Error> {
    p.map(MatmulPrecision::name).serialize(s)
}

impl RecipeFlags {
    /// The requested recipe: that of the preset, else `base`, with the flags applied.
    pub fn recipe(&self, base: &Recipe) -> Recipe {
        let mut recipe = self.preset.map_or_else(|| base.clone(), Preset::recipe);
        // No parts of a preset: resuming with `--preset` alone is not a change.
        (recipe.seed, recipe.precision) = (base.seed, base.precision);
        // The positions of the preset, unless the attention variant encodes positions itself.
        if self.attention.and_then(|attention| attention.0).is_some_and(|kind| kind.has_positions())
        {
            recipe.positions = Positions::None;
        }
        let mut fields = recipe.to_json();
        if let Ok(Value::Object(flags)) = serde_json::to_value(self) {
            let given = flags.into_iter().filter(|(_, flag)| !flag.is_null());
            given.for_each(|(name, flag)| fields[name] = flag);
        }
        serde_json::from_value(fields).expect("flags have the types of their fields")
    }
}
