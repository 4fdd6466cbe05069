//! Every attention variant as a trainable module: one row each.
//!
//! From a row come gradients by inputs and parameters against finite differences to second
//! order, walking and loading of parameters, and equal bits on any number of threads. Run with
//! `--nocapture` for the table.

use retrograd_nn::attention::CausalSelfAttention;
use retrograd_nn::testing::{VariantReport, check_variant};
use retrograd_nn::{GptConfig, Layer, Pass};
use retrograd_tensor::Tensor;
use retrograd_tensor::random::Rng;

fn input(shape: &[usize], seed: u64) -> Tensor<f64> {
    Tensor::randn(shape, &mut Rng::new(seed))
}

fn show(name: &str, r: &VariantReport) {
    let worst =
        |report: &retrograd_autograd::check::Report| report.worst.as_ref().map_or(0.0, |w| w.error);
    println!(
        "{name:32} {:3} parameters {:6} first {:.1e} {:6} second {:.1e}",
        r.parameters,
        r.first.compared,
        worst(&r.first),
        r.second.compared,
        worst(&r.second)
    );
}

#[test]
fn causal_self_attention() {
    let config = GptConfig {
        vocab: 1,
        context: 8,
        layers: 1,
        heads: 2,
        width: 4,
        dropout: 0.0,
        bias: true,
        tied: true,
    };
    let report = check_variant(
        "CausalSelfAttention",
        |rng| CausalSelfAttention::new(&config, rng),
        &[input(&[2, 3, 4], 5)],
        |m, x| m.forward(&x[0], &mut Pass::eval()),
    );
    show("CausalSelfAttention", &report);
}
