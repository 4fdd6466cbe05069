//! Tests of what watches a computation, one module per subject. They are one program because each program
//! would compile the generic kernels again; tests that require a separate process are outside of this folder.

mod explorer;
mod model_kernels;
mod models;
mod record;
mod regions;
mod summary;
mod trace;
mod xray;
mod xray_elements;
