//! A guide from the first tensor to a fast kernel. Every listing is compiled and run as a test, and
//! every figure is drawn by a command of this library.
//!
//! Who should read it: students of automatic differentiation, and programmers who want to know what
//! happens inside such a library. Rust at the level of [the Rust book](https://doc.rust-lang.org/book/)
//! is enough; derivatives of functions of one number are assumed.
//!
//! | chapter | question |
//! |---|---|
//! | 1. [Tensors](tensors) | What is a tensor in memory? |
//! | 2. [Strides and views](strides) | How do many tensors share one storage, and what is the gradient of a view? |
//! | 3. [The chain rule on a graph](chain_rule) | How are derivatives of a million inputs computed in one pass? |
//! | 4. [The engine, line by line](engine) | How is reverse mode on tensors written, and what does a library add? |
//! | 5. [From closure to rule](rules) | What does an operation leave in the graph, and when is it freed? |
//! | 6. [Why topological order](order) | Why does naive recursion give a wrong gradient? |
//! | 7. [Products instead of matrices](products) | What can be learned of Jacobians and Hessians that do not fit into memory? |
//! | 8. [Broadcasting](broadcasting) | What is the gradient of a repeated element? |
//! | 9. [Safe softmax](softmax) | How is a quotient of exponentials computed without overflow? |
//! | 10. [Attention](attention) | From three matrix products to tiles and the online softmax |
//! | 11. [States](states) | How does attention with a state of constant size work, and what can it not do? |
//! | 12. [Training](training) | Dropout, initialisation, AdamW and Muon: what each does to numbers |
//! | 13. [A fast matrix product](gemm) | From three loops to the machine's peak |
//! | 14. [Measuring](measuring) | When is a measured difference real? |
//! | 15. [Extending](extending) | How are an operation, an attention and a kernel added? |
//!
//! Each chapter ends with exercises. The solutions are tests: `cargo test -p retrograd-tests --test book` runs all of
//! them, and they are in `tests/book`, one file for each chapter. The figures are files in
//! `docs/figures`, drawn by `tests/book/drawings`.
//!
//! Two programs accompany the book. `examples/scalar.rs` is reverse mode on single numbers, without a
//! library. `examples/microgpt` trains a small GPT with it and, for comparison, with tensors. In the pages of
//! `docs/gallery`, steps run event by event in a browser; the page that `cargo run -p retrograd-web` makes does so with any
//! expression, and with a model that trains in it.
//!
//! Rules of the listings: `assert_eq!` in place of printed output, so that a test fails if a number in
//! the book is wrong; `f64` where digits are compared; fixed seeds.

pub mod attention;
pub mod broadcasting;
pub mod chain_rule;
pub mod engine;
pub mod extending;
pub mod gemm;
pub mod measuring;
pub mod order;
pub mod products;
pub mod rules;
pub mod softmax;
pub mod states;
pub mod strides;
pub mod tensors;
pub mod training;
