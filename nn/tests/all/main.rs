//! Tests of the nn crate, a module a subject. They are one program because each would compile
//! the generic kernels anew.

mod common;

mod attention;
mod attention_maps;
mod attention_random;
mod checkpoint;
mod generate;
mod modules;
mod optim;
mod state;
mod variants;
mod variants_classic;
mod variants_modern;
mod variants_multi_head;
