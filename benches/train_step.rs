//! Whole training steps: nanoGPT's CPU recipe and its "baby GPT". The percentage of the peak is the
//! model FLOP utilisation (MFU): the operations that the model requires, with causal attention
//! counted as such, divided by the time and the FMA peak of all threads. `cargo bench -p retrograd-benches --bench train_step`.

mod common;

use common::group;

fn main() {
    common::main(|c| {
        let small = ["12 0", "12 0.2", "8 0"].map(|x| format!("train nanogpt-cpu {x}"));
        group(c, "nanogpt-cpu", small);
        // Each step takes seconds; the harness takes at least ten samples.
        let baby = ["8 0", "8 0.2", "64 0", "64 0.2"].map(|x| format!("train baby {x}"));
        group(c, "baby", baby);
    });
}
