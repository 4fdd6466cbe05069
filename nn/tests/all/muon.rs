//! Muon, its states and its orthogonalized matrices.

use crate::common::*;
use crate::optim::*;
use retrograd_autograd::{Var, with_threads};
use retrograd_nn::optim::*;
use retrograd_nn::{Layer, Linear, Module, Pass};
use retrograd_tensor::Tensor;
use retrograd_tensor::random::Rng;

/// Muon by the formulas of its documentation, and AdamW for the bias.
#[test]
fn muon_by_hand() {
    use MuonScale::{MatchAdam, Spectral};
    for (rows, columns, scale, nesterov) in
        [(3, 5, Spectral, true), (8, 2, Spectral, true), (8, 2, MatchAdam, false)]
    {
        let layer = || Linear::<f64>::new(columns, rows, &mut Rng::new(1));
        let (layer, alone) = (layer(), layer());
        let adam = AdamConfig { lr: 3e-3, weight_decay: 0.4, ..AdamConfig::default() };
        let config =
            MuonConfig { weight_decay: 0.1, scale, nesterov, adam, ..MuonConfig::default() };
        let mut muon = Muon::new(&layer, config).unwrap();
        let params = vec![("bias".into(), alone.bias.clone().unwrap())];
        let mut adam =
            AdamW::with_groups(vec![Group { params, ..Group::default() }], adam).unwrap();
        let (mut w, mut m) = (layer.weight.value(), Tensor::zeros([rows, columns]));
        for step in 0..4 {
            // The learning rate of AdamW keeps its ratio to that of the matrices.
            let lr = if step < 2 { 0.02 } else { 0.5 };
            if step == 2 {
                muon.set_lr(lr);
                adam.set_lr(3e-3 * (lr / 0.02));
            }
            let g = Tensor::<f64>::randn([rows, columns], &mut Rng::new(step));
            let loss = |l: &Linear<f64>| {
                let bias = l.bias.as_ref().unwrap().to_var();
                (l.weight.to_var().mul(&Var::constant(g.clone()))).sum(..) + bias.square().sum(..)
            };
            muon.step(&loss(&layer).backward()).unwrap();
            adam.step(&loss(&alone).backward()).unwrap();
            m = &m * 0.95 + &g * 0.05;
            let u = if nesterov { &m * 0.95 + &g * 0.05 } else { m.clone() };
            let mut x = &u * (1.0 / (u.square().sum(..).item().sqrt() + 1e-7));
            for _ in 0..5 {
                let a = x.matmul(&x.t());
                x = &x * 3.4445 + (&a * -4.775 + a.matmul(&a) * 2.0315).matmul(&x);
            }
            let scale = match scale {
                Spectral => (rows as f64 / columns as f64).max(1.0).sqrt(),
                MatchAdam => 0.2 * (rows.max(columns) as f64).sqrt(),
            };
            w = &w * (1.0 - lr * 0.1) - x * (lr * scale);
            let off = (layer.weight.value() - &w).abs().max(..).item();
            assert!(off < 1e-11, "{rows} x {columns}: {off}");
            let bias = |l: &Linear<f64>| l.bias.as_ref().unwrap().value();
            assert!((bias(&layer) - bias(&alone)).abs().max(..).item() < 1e-14);
        }
    }
    // Without matrices it is AdamW, with weight decay of what has rank 2.
    let (model, other) = (two::<f64>(), two::<f64>());
    let adam = AdamConfig { lr: 0.1, weight_decay: 0.3, ..AdamConfig::default() };
    let config = MuonConfig { weight_decay: 9.0, adam, ..MuonConfig::default() };
    Muon::with_rule(&model, config, |_, _| false).unwrap().step(&both(&model, 1)).unwrap();
    AdamW::new(&other, adam).unwrap().step(&both(&other, 1)).unwrap();
    assert_eq!(state_bits(&model), state_bits(&other));
}

#[test]
fn muon_rejects_invalid_arguments() {
    let layer = || Linear::<f32>::new(6, 4, &mut Rng::new(1));
    let loss = |l: &Linear<f32>, step: u64| {
        let x = Var::constant(Tensor::randn([2, 6], &mut Rng::new(step)));
        l.forward(&x, &mut Pass::eval()).square().sum(..).backward()
    };
    let whole = layer();
    let mut muon = Muon::new(&whole, MuonConfig::default()).unwrap();
    (0..2).for_each(|step| muon.step(&loss(&whole, step)).unwrap());
    assert_eq!(muon.lr(), MuonConfig::default().lr);
    // The learning rate of AdamW keeps its ratio.
    muon.set_lr(0.0);
    let before = whole.state_dict();
    muon.step(&loss(&whole, 9)).unwrap();
    assert_eq!(whole.state_dict(), before);
    assert_eq!(muon.lr(), 0.0);

    // All or nothing.
    let mut dict = muon.state_dict();
    dict.remove("m.bias");
    let kept = muon.state_dict();
    assert!(muon.load_state_dict(1, &dict).is_err());
    assert_eq!(muon.state_dict(), kept);
    whole.bias.as_ref().unwrap().set_trainable(false);
    let grads = loss(&whole, 1);
    whole.bias.as_ref().unwrap().set_trainable(true);
    let before = (whole.state_dict(), muon.state_dict());
    assert!(
        matches!(muon.step(&grads), Err(StepError::MissingGradient(names)) if names == ["bias"])
    );
    assert_eq!((whole.state_dict(), muon.state_dict()), before);

    for config in [
        MuonConfig { lr: -1.0, ..MuonConfig::default() },
        MuonConfig { momentum: 1.0, ..MuonConfig::default() },
        MuonConfig { weight_decay: f64::NAN, ..MuonConfig::default() },
    ] {
        assert!(Muon::new(&layer(), config).is_err());
    }
    let vector = Muon::with_rule(&layer(), MuonConfig::default(), |name, _| name == "bias");
    assert!(vector.unwrap_err().to_string().contains("bias [4] is not a matrix"));
}

#[test]
fn orthogonalized_matrices_have_singular_values_near_1() {
    for shape in [[4, 9], [9, 4], [7, 7], [1, 5], [5, 1]] {
        let x = orthogonalize(&Tensor::<f64>::randn(shape, &mut Rng::new(3)), 8);
        let gram = if shape[0] < shape[1] { x.matmul(&x.t()) } else { x.t().matmul(&x) };
        let off = (&gram - &Tensor::eye(gram.size(0))).abs().max(..).item();
        assert!(off < 0.5, "{shape:?}: {off}");
    }
    let zeros = orthogonalize(&Tensor::<f32>::zeros([3, 4]), 5);
    assert_eq!(zeros.to_vec(), [0.0; 12]);
    let bits = |threads| {
        with_threads(threads, || {
            orthogonalize(&Tensor::<f32>::randn([70, 130], &mut Rng::new(1)), 5)
        })
    };
    assert_eq!(bits(1), bits(3));
}
