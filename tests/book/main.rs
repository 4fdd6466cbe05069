//! The solutions of the exercises in `src/book`, one module per chapter, and the figures.

mod attention;
mod broadcasting;
mod chain_rule;
mod drawings;
mod engine;
mod extending;
mod figures;
mod gemm;
mod measuring;
mod order;
mod products;
mod rules;
mod scalar_engine;
mod softmax;
mod states;
mod strides;
mod tensors;
mod training;

// The example, without changes.
#[allow(dead_code, unused_imports, reason = "its main program")]
#[path = "../../examples/scalar.rs"]
mod scalar;
