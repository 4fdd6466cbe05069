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
mod tutorials;

// The modules of the example `tutorials`, without changes.
#[path = "../../examples/tutorials/check.rs"]
mod check;
#[path = "../../examples/tutorials/s0.rs"]
mod s0;
#[path = "../../examples/tutorials/s1.rs"]
mod s1;
#[path = "../../examples/tutorials/s2.rs"]
mod s2;
#[path = "../../examples/tutorials/s3.rs"]
mod s3;
#[path = "../../examples/tutorials/s4.rs"]
mod s4;
