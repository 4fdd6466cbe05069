//! Per-operation overhead, on tiny tensors. `cargo bench -p retrograd-benches --bench dispatch`.

mod common;

use common::group;

fn main() {
    common::main(|c| {
        let all = ["add fwd", "chain fwd", "chain fwd+bwd", "mlp fwd", "mlp fwd+bwd"];
        group(c, "tiny", all.map(|x| format!("tiny {x}")));
    });
}
