//! The figures, by chapter.

mod attention;
pub(crate) mod gemm;
mod graphs;
pub(crate) mod measuring;
mod memory;
mod softmax;
pub(crate) mod svg;
pub(crate) mod training;

/// The name and the text of every figure.
pub(crate) fn all() -> Vec<(&'static str, String)> {
    vec![
        ("storage", memory::storage()),
        ("strides", memory::strides()),
        ("chain", graphs::chain()),
        ("diamond", graphs::diamond()),
        ("broadcasting", memory::broadcasting()),
        ("softmax", softmax::overflow()),
        ("tiles", attention::tiles()),
        ("online", attention::online()),
        ("variance", training::variance()),
        ("optimisers", training::optimisers()),
        ("ladder", gemm::ladder()),
        ("blocks", gemm::blocks()),
        ("turns", measuring::turns()),
    ]
}
