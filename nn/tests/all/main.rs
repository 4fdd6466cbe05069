//! Tests of the nn crate, one module per subject. They are one program because each program would
//! compile the generic kernels again.

mod common;

mod attention;
mod attention_maps;
mod attention_random;
mod checkpoint;
mod checkpoint_foreign;
mod checkpoint_memory;
mod equivalences;
mod explicit;
mod formulas;
mod generate;
mod gpt_loss;
mod gpt_parts;
mod invalid_inputs;
mod masked;
mod modules;
mod optim;
mod param;
mod state;
mod state_map;
mod text;
mod too_large;
mod training_tools;
mod unfrozen;
mod variants;
