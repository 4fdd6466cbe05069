//! Tests of the nn crate, one module per subject. They are one program because each program would
//! compile the generic kernels again.

mod common;

mod attention;
mod attention_maps;
mod attention_random;
mod checkpoint;
mod checkpoint_foreign;
mod checkpoint_memory;
mod distributed;
mod equivalences;
mod explicit;
mod explorer;
mod formulas;
mod generate;
mod gpt_loss;
mod gpt_parts;
mod invalid_inputs;
mod masked;
mod modules;
mod observe;
mod optim;
mod param;
mod recording;
mod state;
mod state_map;
mod summary;
mod text;
mod too_large;
mod trace;
mod training_tools;
mod unfrozen;
mod variants;
