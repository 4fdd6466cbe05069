//! Tests of the nn crate, one module per subject. They are one program because each program would
//! compile the generic kernels again.

mod common;

mod atomic;
mod attention;
mod attention_maps;
mod attention_random;
mod bias_correction;
mod cache_contents;
mod checkpoint;
mod checkpoint_foreign;
mod checkpoint_memory;
mod clipping;
mod corpus;
mod empty_inputs;
mod equivalences;
mod errors;
mod formulas;
mod generate;
mod gpt_loss;
mod gpt_parts;
mod init;
mod larger_than_memory;
mod masked_elements;
mod modules;
mod muon;
mod optim;
mod param;
mod positions_and_axes;
mod recompute;
mod schedule;
mod score_rules;
mod state;
mod state_map;
mod text;
mod trainer;
mod training_tools;
mod variants;
mod whole_scores;
