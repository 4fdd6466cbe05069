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

const RECIPE: &str = "Hyperparameters (override the preset)";
const MODEL: &str = "Parts of the model (override the preset)";

/// Flags of hyperparameters, with the names of the fields of [`Recipe`].
#[derive(Args, Clone, Debug, Serialize)]
pub struct RecipeFlags {
    /// Tokens: char, byte, bpe:N, or a file such as tokenizer.json [default: char]
    ///
    /// bpe:N is byte-level BPE of N tokens, trained on the text. bpe:N and tokenizer.json of Hugging Face's library
    /// need a build with --features tokenizers.
    #[arg(long, value_name = "NAME")]
    pub tokenizer: Option<TokenizerKind>,

    /// Named set of hyperparameters; other flags override parts of it [default: tales]
    #[arg(long, value_enum, value_name = "NAME", hide_possible_values = false)]
    #[serde(skip)]
    pub preset: Option<Preset>,

    /// Training steps
    #[arg(long, value_name = "N", value_parser = count(100_000_000), help_heading = RECIPE)]
    pub steps: Option<u64>,

    /// Batch size: windows of text per step
    #[arg(long, value_name = "N", value_parser = count(65536), help_heading = RECIPE)]
    batch: Option<u64>,

    /// Shards of a batch, which are computed at the same time [default: 1, 2 or 4]
    ///
    /// The default depends on the tokens of a batch. Shards are divided among threads, and among ranks of MPI. Other
    /// shards have other roundings and other patterns of dropout.
    #[arg(long, value_name = "N", value_parser = count(65536), help_heading = RECIPE)]
    #[arg(hide_short_help = true)]
    shards: Option<u64>,

    /// Context length in tokens
    #[arg(long, value_name = "N", value_parser = count(65536), help_heading = RECIPE)]
    context: Option<u64>,

    /// Transformer blocks
    #[arg(long, value_name = "N", value_parser = count(1024), help_heading = RECIPE)]
    layers: Option<u64>,

    /// Attention heads in each block; must divide the width
    #[arg(long, value_name = "N", value_parser = count(1024), help_heading = RECIPE)]
    heads: Option<u64>,

    /// Embedding width
    #[arg(long, value_name = "N", value_parser = count(16384), help_heading = RECIPE)]
    width: Option<u64>,

    /// Fraction of activations dropped in training, at least 0 and below 1
    #[arg(long, value_name = "P", value_parser = probability, help_heading = RECIPE)]
    #[arg(hide_short_help = true)]
    dropout: Option<f64>,

    /// Peak learning rate
    #[arg(long, value_name = "RATE", value_parser = above_0, help_heading = RECIPE)]
    lr: Option<f64>,

    /// Optimiser
    #[arg(long, value_enum, value_name = "NAME", help_heading = RECIPE, hide_short_help = true)]
    optimizer: Option<OptimizerKind>,

    /// Learning rate after the warm-up
    #[arg(long, value_enum, value_name = "NAME", help_heading = RECIPE, hide_short_help = true)]
    schedule: Option<ScheduleKind>,

    /// Momentum of Muon [default: 0.85]
    #[arg(long, value_name = "M", value_parser = probability, help_heading = RECIPE)]
    #[arg(hide_short_help = true)]
    momentum: Option<f64>,

    /// Weight decay of matrices [default: 0.1 with AdamW, 0 with Muon]
    #[arg(long, value_name = "X", value_parser = at_least_0, help_heading = RECIPE)]
    #[arg(hide_short_help = true)]
    weight_decay: Option<f64>,

    /// Learning rate of AdamW beside Muon, for embeddings and norms [default: half of Muon's]
    #[arg(long, value_name = "RATE", value_parser = above_0, help_heading = RECIPE)]
    #[arg(hide_short_help = true)]
    adam_lr: Option<f64>,

    /// Seed of initial weights, batches, dropout and samples
    #[arg(long, value_name = "N", help_heading = RECIPE)]
    seed: Option<u64>,

    /// Precision of matrix multiplication: f32, bf16x6, bf16x3 or bf16, from exact to fast
    ///
    /// The others than f32 need a CPU with AMX; results then depend on whether the CPU has AMX.
    #[arg(long, value_name = "NAME", help_heading = RECIPE, hide_short_help = true)]
    #[serde(serialize_with = "name")]
    precision: Option<MatmulPrecision>,

    /// Attention variant; "list" prints all of them
    #[arg(long, value_name = "NAME", help_heading = MODEL)]
    pub attention: Option<Attention>,

    /// Key and value heads, which divide the heads
    #[arg(long, value_name = "N", value_parser = count(1024), help_heading = MODEL)]
    #[arg(hide_short_help = true)]
    key_heads: Option<u64>,

    /// Normalise queries and keys
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    #[arg(help_heading = MODEL, hide_short_help = true)]
    qk_norm: Option<bool>,

    /// Norm: layer-norm, rms-norm or none
    #[arg(long, value_name = "NAME", help_heading = MODEL, hide_short_help = true)]
    norm: Option<NormKind>,

    /// Feed-forward layer: gelu, gelu-tanh, relu, relu-squared, swiglu, geglu or reglu
    #[arg(long, value_name = "NAME", help_heading = MODEL, hide_short_help = true)]
    mlp: Option<MlpKind>,

    /// Positions: learned, sinusoidal, rope, alibi, t5 or none [default: learned]
    ///
    /// The default is none if the attention variant encodes positions itself.
    #[arg(long, value_name = "NAME", help_heading = MODEL, hide_short_help = true)]
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
