//! Memory-bound operations: softmax, norms and losses by row, elementwise operations, embeddings.
//! `cargo bench -p retrograd-benches --bench rows`.

mod common;

use common::group;

fn main() {
    common::main(|c| {
        let passes = |name: &'static str| ["fwd", "fwd+bwd"].map(|pass| format!("{name} {pass}"));
        for (name, sizes) in [
            ("softmax", ["16384 65", "16384 256"]),
            ("log_softmax", ["16384 65", "16384 256"]),
            ("layer_norm", ["768 128", "16384 384"]),
            ("rms_norm", ["768 128", "16384 384"]),
            ("gelu", ["768 512", "16384 1536"]),
            ("gelu_tanh", ["768 512", "16384 1536"]),
            ("silu", ["768 512", "16384 1536"]),
            ("exp", ["1 4096", "1 1048576"]),
            ("add", ["1 4096", "1 1048576"]),
            ("sum", ["1 4096", "1 1048576"]),
            ("embedding", ["65 384 16384", "50257 384 16384"]),
            ("linear_gelu", ["768 128 512", "16384 384 1536"]),
        ] {
            let all = sizes.iter().flat_map(|s| passes(name).map(|pass| format!("{pass} {s}")));
            group(c, name, all);
        }
        let losses = [
            "cross_entropy fwd+bwd 16384 65",
            "cross_entropy fwd+bwd 4096 50257",
            "head_loss fwd+bwd 16384 384 65",
            "head_loss fwd+bwd 4096 128 50257",
        ];
        group(c, "loss", losses.map(String::from));
    });
}
