//! Tests that cross crates, one module per subject. They are one program because each program would
//! compile the generic kernels again.

mod attention_parity;
mod doc_examples;
mod element_types;
mod from_pytorch;
mod learns;
mod losses_parity;
mod nanogpt_state;
mod norms_parity;
mod numpy_files;
mod pretrained;
mod pytorch_ops;
mod torch_rng;
mod training_parity;
mod transformer_parity;
