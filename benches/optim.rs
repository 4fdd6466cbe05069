//! The optimiser's step and the norm of all gradients, for 0.8 and 10.7 million parameters.
//! `cargo bench -p retrograd-benches --bench optim`.

mod common;

use common::group;

fn main() {
    common::main(|c| {
        for op in ["adamw", "grad_norm"] {
            group(c, op, ["nanogpt-cpu", "baby"].map(|model| format!("{op} {model}")));
        }
    });
}
