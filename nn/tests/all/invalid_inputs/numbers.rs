//! NaN and numbers out of range: panics at the line of the caller.

use crate::common::*;
use retrograd_autograd::Var;
use retrograd_nn::attention::*;
use retrograd_nn::init::Init;
use retrograd_nn::{Dropout, Layer, LayerNorm, Pass, RmsNorm, Sampler};
use retrograd_tensor::Tensor;
use retrograd_tensor::random::Rng;

const NAN: f64 = f64::NAN;
const INF: f64 = f64::INFINITY;

#[test]
fn parameters_of_norms_are_checked() {
    let x = Var::constant(Tensor::<f32>::ones([2, 4]));
    let mut layer = LayerNorm::<f32>::new(4);
    let mut rms = RmsNorm::<f32>::new(4);
    let text = "eps must be finite and at least 0, got";
    for eps in [NAN, -1.0, -1e-5, INF] {
        assert_panics_here(text, || x.layer_norm(None, None, eps));
        assert_panics_here(text, || x.rms_norm(None, eps));
        (layer.eps, rms.eps) = (eps, eps);
        assert_panics_here(text, || layer.forward(&x, &mut eval()));
        assert_panics_here(text, || rms.forward(&x, &mut eval()));
        let sizes = MlaSizes {
            width: 8,
            heads: 2,
            query_latent: None,
            latent: 3,
            nope: 2,
            rope: 2,
            value: 3,
        };
        let mla = MlaAttention::<f32>::new(sizes, &mut Rng::new(1));
        assert_panics_here(text, || mla.with_eps(eps));
    }
    // 0 is valid.
    assert!(x.layer_norm(None, None, 0.0).value().to_vec()[0].is_nan());
    assert_eq!(x.rms_norm(None, 0.0).value().to_vec(), [1.0; 8]);
}

#[test]
fn parameters_of_attention_are_checked() {
    for scale in [NAN, INF, -INF] {
        assert_panics_here("attention: a scale must be finite in f64", || {
            Spec::<f64>::new().scale(scale)
        });
    }
    // Finite, but not in this type.
    assert_panics_here("attention: a scale must be finite in f32", || {
        Spec::<f32>::new().scale(1e300)
    });
    for scale in [0.0, -1.0, 1e300] {
        let _ = Spec::<f64>::new().scale(scale);
    }
    let cap = "attention: a softcap must be above 0, got";
    for c in [NAN, 0.0, -1.0] {
        assert_panics_here(cap, || Spec::<f32>::new().softcap(c));
        let projections = Projections::<f32>::new(HeadSizes::new(8, 2), &mut Rng::new(1));
        assert_panics_here(cap, || SoftcapAttention::new(projections, c));
    }
    let bias = Normalizer::Sigmoid { bias: Some(NAN) };
    let text = "attention: the bias of a sigmoid must be a number, got NaN";
    assert_panics_here(text, || Spec::<f32>::new().normalizer(bias));
    for p in [NAN, -0.1, 1.1, INF] {
        let text = "dropout: p must be in [0, 1], got";
        assert_panics_here(text, || Spec::<f32>::new().dropout(p, &mut Pass::train(1)));
        assert_panics_here(text, || Dropout::new(p));
        let r = &mut Rng::new(1);
        assert_panics_here(text, || SelfAttention::<f32>::new(4, 4, 4, r).dropout(p));
        let config = MultiHeadConfig { dropout: p, ..MultiHeadConfig::new(8, 2) };
        assert_panics(text, || MultiHeadAttention::<f32>::new(&config, &mut Rng::new(1)));
    }
}

#[test]
fn parameters_of_positions_are_checked() {
    for base in [NAN, 0.0, -2.0] {
        assert_panics_here("rope: a base must be above 1, got", || Rope::new(4).base(base));
        let text = "sinusoidal positions: a base must be finite and above 0, got";
        let positions = SinusoidalPositions { base };
        let x = Var::constant(Tensor::<f32>::ones([3, 4]));
        assert_panics_here(text, || positions.table::<f32>(0, 3, 4));
        assert_panics_here(text, || positions.forward(&x, 0));
        assert_panics_here(text, || positions.forward_at(&x, &Tensor::from([0i64, 1, 2])));
    }
    for factor in [NAN, -1.0] {
        let text = "rope: a factor must be above 0, got";
        assert_panics_here(text, || Rope::new(4).scaling(Scaling::Linear { factor }));
        assert_panics_here(text, || Rope::new(4).scaling(Scaling::Ntk { factor }));
        assert_panics_here("yarn: a factor of at least 1, got", || Yarn::new(factor, 8));
    }
}

#[test]
fn parameters_of_initialisation_and_sampling_are_checked() {
    let sample = |init: Init| init.sample::<f32>([2, 2], &mut Rng::new(1));
    let out_of_range = [NAN, -0.1, INF];
    for x in out_of_range {
        let text = |what: &str| format!("init: the {what} must be finite and at least 0, got {x}");
        let init = Init::Normal { std: x };
        assert_panics_here(&text("standard deviation"), || {
            init.sample::<f32>([2, 2], &mut Rng::new(1))
        });
        assert_panics(&text("bound"), || sample(Init::Uniform { bound: x }));
        assert_panics(&text("gain"), || sample(Init::XavierUniform { gain: x }));
        assert_panics(&text("gain"), || sample(Init::XavierNormal { gain: x }));
    }
    assert_panics("init: the constant must be a number, got NaN", || sample(Init::Constant(NAN)));
    assert_eq!(sample(Init::Constant(-INF)).to_vec(), [f32::NEG_INFINITY; 4]);
    assert_eq!(sample(Init::Normal { std: 0.0 }).abs().max(..).item(), 0.0);
    let logits = Tensor::from([1.0f32, 2.0]);
    for temperature in [NAN, -1.0] {
        let sampler = Sampler { temperature, ..Sampler::default() };
        let text = "sampler: the temperature must be at least 0, got";
        assert_panics_here(text, || sampler.draw(&logits, &mut Rng::new(1)));
    }
}
