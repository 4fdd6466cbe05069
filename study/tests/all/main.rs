//! Tests of what watches a computation, one module per subject. They are one program because each program
//! would compile the generic kernels again; tests that require a separate process are outside of this folder.

mod attention;
mod conditions;
mod explorer;
mod model_kernels;
mod models;
mod page;
mod record;
mod regions;
mod run;
mod scaling;
mod summary;
mod trace;
mod xray;
mod xray_elements;
mod xray_values;
