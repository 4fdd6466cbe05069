//! The solutions of the exercises in `src/book`, one module per chapter, and the figures.

mod attention;
mod broadcasting;
mod chain_rule;
mod engine;
mod extending;
mod figures;
mod gemm;
mod measuring;
mod order;
mod scalar_engine;
mod softmax;
mod strides;
mod tensors;
mod training;

// Files of the examples, without changes.
#[allow(dead_code, reason = "its main program")]
#[path = "../../examples/figures/drawings/mod.rs"]
mod drawings;
#[allow(dead_code, unused_imports, reason = "its main program")]
#[path = "../../examples/scalar.rs"]
mod scalar;
use scalar::output;
