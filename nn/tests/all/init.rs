//! Distributions of initial values.

use retrograd_nn::attention::T5Attention;
use retrograd_nn::init::{Init, gpt2_residual};
use retrograd_tensor::Tensor;
use retrograd_tensor::random::Rng;

#[test]
fn truncated_normals_have_the_moments_of_their_distribution() {
    // The deviation of a standard normal distribution within ±a: √(1 - 2aφ(a) / (2Φ(a) - 1)).
    for (std, a, want) in
        [(0.5, 2.0, 0.879626), (0.5, 1.0, 0.539560), (2.0, 0.5, 0.284041), (1.0, 9.0, 1.0)]
    {
        let bound = a * std;
        let x: Tensor<f64> =
            Init::TruncatedNormal { std, bound }.sample([200, 300], &mut Rng::new(3));
        assert!(x.abs().max(..).item() <= bound, "{a}");
        let ratio = x.std(.., 0).item() / std / want;
        assert!((ratio - 1.0).abs() < 0.02, "within {a} deviations: {ratio}");
        assert!(x.mean(..).item().abs() < 0.02 * std, "{a}");
    }
    let sample = |std, bound, shape: &[usize]| -> Tensor<f32> {
        Init::TruncatedNormal { std, bound }.sample(shape, &mut Rng::new(1))
    };
    assert_eq!([(1.0, 0.0), (0.0, 1.0)].map(|(s, b)| sample(s, b, &[5]).to_vec()), [[0.0; 5]; 2]);
    assert_eq!(sample(1.0, 1.0, &[0, 3]).numel(), 0);
}

#[test]
fn orthogonal_matrices_are_orthogonal() {
    for shape in
        [vec![7, 7], vec![5, 30], vec![30, 5], vec![4, 3, 2], vec![1, 1], vec![0, 3], vec![3, 0]]
    {
        let x: Tensor<f64> = Init::Orthogonal { gain: 3.0 }.sample(&shape[..], &mut Rng::new(3));
        let matrix = x.reshape([shape[0], shape[1..].iter().product()]);
        let few = matrix.size(0) <= matrix.size(1);
        let gram = if few { matrix.matmul(&matrix.t()) } else { matrix.t().matmul(&matrix) };
        let difference = &gram - &(Tensor::eye(gram.size(0)) * 9.0);
        let worst = difference.abs().to_vec().into_iter().fold(0.0, f64::max);
        assert!(worst < 1e-13, "{shape:?}: {worst}");
    }
    let x: Tensor<f32> = Init::Orthogonal { gain: 1.0 }.sample([64, 64], &mut Rng::new(1));
    let worst = (x.matmul(&x.t()) - &Tensor::eye(64)).abs().max(..).item();
    assert!(worst < 1e-6, "{worst}");
    let first = |seed| -> f32 {
        let x: Tensor<f32> = Init::Orthogonal { gain: 1.0 }.sample([1, 1], &mut Rng::new(seed));
        x.item()
    };
    let signs: Vec<f32> = (0..20).map(first).collect();
    assert!(signs.contains(&1.0) && signs.contains(&-1.0), "{signs:?}");
}

fn spread(init: Init) -> (f64, f64) {
    let x: Tensor<f64> = init.sample([200, 300], &mut Rng::new(3));
    (x.std(.., 0).item(), x.abs().max(..).item())
}

#[test]
fn deviations_and_bounds() {
    let close = |a: f64, b: f64| assert!((a / b - 1.0).abs() < 0.02, "{a} is not {b}");
    close(spread(Init::Normal { std: 0.02 }).0, 0.02);
    close(spread(Init::TorchLinear).1, 1.0 / 300f64.sqrt());
    close(spread(Init::XavierUniform { gain: 2.0 }).1, 2.0 * (6.0 / 500f64).sqrt());
    close(spread(Init::XavierNormal { gain: 1.0 }).0, (2.0 / 500f64).sqrt());
    close(spread(Init::KaimingUniform).1, (6.0 / 300f64).sqrt());
    close(spread(Init::KaimingNormal).0, (2.0 / 300f64).sqrt());
    close(spread(gpt2_residual(8)).0, 0.005);
    assert_eq!(spread(Init::Constant(3.0)), (0.0, 3.0));
    // Queries of T5 have the factor that its scores lack.
    let t5 = T5Attention::<f64>::encoder(256, 64, &mut Rng::new(1));
    close(t5.q.weight.value().square().mean(..).sqrt().item(), 1.0 / (256f64 * 4.0).sqrt());
}
