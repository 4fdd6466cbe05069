//! Named recipes.

use crate::recipe::{OptimizerKind, Recipe, ScheduleKind};
use crate::values::Pattern;
use clap::ValueEnum;
use retrograd::nn::{AttentionKind, MlpKind};
use retrograd::prelude::*;
use serde_json::Value;

/// A named recipe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Preset {
    /// The recipe of fast for 2000 steps, for the generated tales
    Tales,
    /// nanoGPT's recipe for CPUs: 4 layers, 4 heads, 128 wide, context 64, batch 12, 2000 steps
    NanogptCpu,
    /// The size of nanogpt-cpu with the parts of current small models: RMS norm, rotary positions, QK-norm,
    /// grouped queries, squared ReLU
    Modern,
    /// The recipe of modern with three layers of Gated DeltaNet before one of attention
    Hybrid,
    /// The lowest loss on tinyshakespeare after some seconds: 3 layers with the parts of modern and
    /// ReLU, trained by Muon for 240 steps
    Fast,
    /// The lowest loss on tinyshakespeare after a minute on two cores: fast with 4 layers, context 128 and batch 8, for
    /// 1400 steps
    Minute,
    /// The lowest loss on tinyshakespeare after five minutes: 6 layers, 160 wide, context 256, batch 8, dropout 0.05,
    /// 1500 steps
    FiveMinutes,
    /// The lowest loss on tinyshakespeare after an hour on two cores: 6 layers, 4 heads, 256 wide, context
    /// 256, batch 32, dropout 0.2, the parts of modern, trained by Muon for 4000 steps
    Best,
    /// The size of nanogpt-cpu with the parts of Llama: RMS norm, rotary positions, SwiGLU
    Llama,
    /// nanoGPT's "baby GPT": 6 layers, 6 heads, 384 wide, context 256, batch 64, dropout 0.2,
    /// 5000 steps. Takes many hours on a CPU
    Baby,
    /// Trains in seconds, for a first test: 2 layers, 2 heads, 32 wide, context 32, batch 8, 500 steps
    Tiny,
}

impl Preset {
    /// The name, as `--preset` has it.
    pub fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_string())
    }

    /// The preset with the lowest loss after so many floating-point operations, of those that were searched.
    pub fn for_operations(flops: f64) -> Preset {
        match flops {
            ..2.5e12 => Preset::Fast,
            ..2e13 => Preset::Minute,
            ..2e14 => Preset::FiveMinutes,
            _ => Preset::Best,
        }
    }

    pub fn recipe(self) -> Recipe {
        let nanogpt = Recipe::default();
        match self {
            Preset::Tales => Recipe { steps: 2000, ..Preset::Fast.recipe() },
            Preset::NanogptCpu => nanogpt,
            Preset::Modern => Recipe { lr: 4e-3, ..nanogpt }.with_parts(GptConfig::modern()),
            Preset::Hybrid => {
                let [rule, attention] = [AttentionKind::GatedDeltaNet, AttentionKind::GroupedQuery];
                let pattern = Pattern(vec![rule, rule, rule, attention]);
                Recipe { pattern, ..Preset::Modern.recipe() }
            }
            Preset::Llama => Recipe { lr: 4e-3, ..nanogpt }.with_parts(GptConfig::llama()),
            Preset::Fast => Recipe {
                layers: 3,
                heads: 2,
                mlp: MlpKind::Relu,
                optimizer: OptimizerKind::Muon,
                schedule: ScheduleKind::Wsd,
                batch: 16,
                steps: 240,
                lr: 0.02,
                ..nanogpt.with_parts(GptConfig::modern())
            },
            Preset::Minute => Recipe {
                layers: 4,
                context: 128,
                batch: 8,
                steps: 1400,
                lr: 0.028,
                ..Preset::Fast.recipe()
            },
            Preset::FiveMinutes => Recipe {
                layers: 6,
                width: 160,
                context: 256,
                dropout: 0.05,
                batch: 8,
                steps: 1500,
                ..Preset::Fast.recipe()
            },
            Preset::Best => Recipe {
                layers: 6,
                heads: 4,
                width: 256,
                context: 256,
                dropout: 0.2,
                optimizer: OptimizerKind::Muon,
                schedule: ScheduleKind::Wsd,
                momentum: Some(0.95),
                weight_decay: Some(0.1),
                adam_lr: Some(4e-3),
                batch: 32,
                steps: 4000,
                lr: 0.02,
                ..nanogpt.with_parts(GptConfig::modern())
            },
            Preset::Baby => Recipe {
                layers: 6,
                heads: 6,
                width: 384,
                context: 256,
                dropout: 0.2,
                batch: 64,
                steps: 5000,
                ..nanogpt
            },
            Preset::Tiny => Recipe {
                layers: 2,
                heads: 2,
                width: 32,
                context: 32,
                batch: 8,
                steps: 500,
                lr: 3e-3,
                ..nanogpt
            },
        }
    }
}

impl Recipe {
    /// The flags of `train` for this recipe, with their values: the preset that is nearest to it, and what differs.
    pub fn flags(&self) -> Vec<(String, String)> {
        let differing = |preset: &&Preset| preset.recipe().differing(self);
        let preset = Preset::value_variants().iter().min_by_key(|preset| differing(preset).len());
        let preset = preset.expect("there are presets");
        let flag = |(name, _, value): (String, Value, Value)| match value {
            // A flag cannot say it.
            Value::Null => None,
            Value::String(text) => Some((name, text)),
            // The parts of rotary positions are fixed.
            Value::Object(parts) => Some((name, parts.keys().next().cloned().unwrap_or_default())),
            value => Some((name, value.to_string())),
        };
        let changed = differing(&preset).into_iter().filter(|(name, ..)| name != "config");
        let preset = ("preset".to_string(), preset.name());
        std::iter::once(preset).chain(changed.filter_map(flag)).collect()
    }

    /// The recipe with the parts of a configuration.
    pub fn with_parts(self, parts: GptConfig) -> Recipe {
        let GptConfig { attention, pattern, key_heads, qk_norm, norm, mlp, positions, .. } = parts;
        let pattern = Pattern(pattern);
        Recipe { attention, pattern, key_heads, qk_norm, norm, mlp, positions, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recipes_have_the_numbers_of_their_help() {
        let mut seen = 0;
        for preset in Preset::value_variants() {
            let (recipe, value) = (preset.recipe(), preset.to_possible_value().unwrap());
            let help = value.get_help().unwrap().to_string();
            let words = help.split([' ', ',', ':', '\n']).map(|word| word.trim_end_matches('.'));
            let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
            for pair in words.windows(2) {
                let (said, own) = match *pair {
                    [n, "layers"] => (n, recipe.layers as f64),
                    [n, "heads"] => (n, recipe.heads as f64),
                    [n, "wide"] => (n, recipe.width as f64),
                    [n, "steps"] => (n, recipe.steps as f64),
                    ["context", n] => (n, recipe.context as f64),
                    ["batch", n] => (n, recipe.batch as f64),
                    ["dropout", n] => (n, recipe.dropout),
                    _ => continue,
                };
                if let Ok(said) = said.parse::<f64>() {
                    assert_eq!(own, said, "{help}");
                    seen += 1;
                }
            }
        }
        assert!(seen > 30, "{seen}");
    }
}
