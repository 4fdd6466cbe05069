//! Tests that cross crates, one module per subject. They are one program because each program would
//! compile the generic kernels again.

mod conformance;
mod doc_examples;
mod element_types;
mod exports;
mod failures;
mod from_pytorch;
mod learns;
mod models;
mod numpy_files;
mod parity;
mod pretrained;
mod programs;
mod unsafe_code;
