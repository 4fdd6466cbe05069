//! Whole training steps: nanoGPT's CPU recipe and its "baby GPT". The share of the peak is the
//! model FLOP utilisation: what the model needs, with causal attention counted as such, by what
//! all threads' multiply-adds could do. `cargo bench -p retrograd-benches --bench train_step`.

mod common;

use common::group;

fn main() {
    common::main(|c| {
        let small = ["12 0", "12 0.2", "8 0"].map(|x| format!("train nanogpt-cpu {x}"));
        group(c, "nanogpt-cpu", small);
        // Seconds each: ten are what the harness takes at least.
        let baby = ["8 0", "8 0.2", "64 0", "64 0.2"].map(|x| format!("train baby {x}"));
        group(c, "baby", baby);
    });
}
