//! Benchmarks of attention at the sizes of two models and with one long sequence.
//!
//! `cargo bench -p retrograd-benches --bench attention`.

mod common;

use common::group;

fn main() {
    common::main(|c| {
        // Batch, heads, tokens, width of a head.
        for sizes in ["12 4 64 32", "64 6 256 64", "1 12 4096 64"] {
            let mut cases = Vec::new();
            for mask in ["full", "causal", "window256"] {
                for dropout in ["0", "0.2"] {
                    for pass in ["fwd", "fwd+bwd"] {
                        cases.push(format!("attention {pass} {sizes} {mask} {dropout}"));
                    }
                }
            }
            group(c, sizes, cases);
        }
    });
}
