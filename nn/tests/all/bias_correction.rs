//! Steps are counted per parameter: their numbers are saved, and a run resumes. The correction itself is compared with
//! PyTorch in `optim` (the cases that end in `unfrozen`).

use crate::common::*;
use crate::optim::{Two, both, every, every_and_muon, two};
use retrograd_nn::Module;
use retrograd_nn::checkpoint::Checkpoint;
use retrograd_nn::optim::{Adam, AdamConfig, Optimizer};
use retrograd_tensor::Tensor;

const PLAIN: AdamConfig =
    AdamConfig { lr: 0.1, betas: (0.9, 0.999), eps: 0.0, weight_decay: 0.0, amsgrad: false };

fn step(model: &Two<f32>, optimizer: &mut dyn Optimizer<f32>, step: u64) {
    model.vector.set_trainable(step >= 3 && step != 5);
    optimizer.step(&both(model, step)).unwrap();
}

#[test]
fn a_run_with_a_frozen_layer_resumes_bit_for_bit() {
    for i in 0..every_and_muon(&two::<f32>()).len() {
        let reference = two::<f32>();
        let (name, mut whole) = every_and_muon(&reference).remove(i);
        (0..10).for_each(|n| step(&reference, &mut *whole, n));
        for cut in [0, 1, 2, 4, 6, 9] {
            let first = two::<f32>();
            let (_, mut optimizer) = every_and_muon(&first).remove(i);
            (0..cut).for_each(|n| step(&first, &mut *optimizer, n));
            let mut file = Checkpoint::new();
            file.put("optimizer", &optimizer.state_dict());
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("checkpoint.safetensors");
            file.save(&path).unwrap();
            let dict = Checkpoint::load(&path).unwrap().get("optimizer").unwrap();

            let second = two::<f32>();
            second.load_state_dict(&first.state_dict()).unwrap();
            let (_, mut resumed) = every_and_muon(&second).remove(i);
            resumed.load_state_dict(optimizer.steps(), &dict).unwrap();
            (cut..10).for_each(|n| step(&second, &mut *resumed, n));
            assert_eq!(state_bits(&second), state_bits(&reference), "{name} cut at {cut}");
            assert_eq!(dict_bits(&resumed.state_dict()), dict_bits(&whole.state_dict()));
            assert_eq!(resumed.steps(), 10);
        }
    }
}

/// Names of the counts in a state.
fn counts(optimizer: &dyn Optimizer<f32>) -> Vec<(String, Vec<f32>)> {
    let dict = optimizer.state_dict().into_iter();
    let counts = dict.filter(|(name, _)| name.starts_with("step."));
    counts.map(|(name, count)| (name, count.to_vec())).collect()
}

#[test]
fn step_counts_that_differ_from_the_optimisers_are_saved() {
    let model = two::<f32>();
    let mut adam = Adam::new(&model, PLAIN).unwrap();
    adam.step(&both(&model, 1)).unwrap();
    assert_eq!(counts(&adam), []);
    model.vector.set_trainable(false);
    adam.step(&both(&model, 2)).unwrap();
    assert_eq!(counts(&adam), [("step.vector".to_string(), vec![1.0])]);
    // A state without counts, of an earlier version: all parameters were trained in all steps.
    let mut dict = adam.state_dict();
    dict.remove("step.vector");
    adam.load_state_dict(7, &dict).unwrap();
    assert_eq!(counts(&adam), []);
    // PyTorch has a count, of rank 0, for every parameter.
    dict.insert("step.vector".into(), Tensor::scalar(3.0));
    dict.insert("step.matrix".into(), Tensor::scalar(7.0));
    adam.load_state_dict(7, &dict).unwrap();
    assert_eq!(counts(&adam), [("step.vector".to_string(), vec![3.0])]);
}

#[test]
fn counts_are_exact_beyond_24_bits() {
    let model = two::<f32>();
    for count in [0, 1, (1 << 24) - 1, 1 << 24, (1 << 24) + 1, (1 << 48) + 12345, u64::MAX - 1] {
        let mut adam = Adam::new(&model, PLAIN).unwrap();
        adam.load_state_dict(count, &adam.state_dict()).unwrap();
        model.vector.set_trainable(false);
        adam.step(&both(&model, 1)).unwrap();
        let dict = adam.state_dict();
        let saved = &dict["step.vector"];
        let exact = |x: f32| x as u128;
        let sum = saved.to_vec().into_iter().rev().fold(0, |sum, x| (sum << 24) + exact(x));
        assert_eq!(sum, u128::from(count));
        let mut other = Adam::new(&model, PLAIN).unwrap();
        other.load_state_dict(adam.steps(), &dict).unwrap();
        assert_eq!(dict_bits(&other.state_dict()), dict_bits(&dict));
    }
}

#[test]
fn invalid_counts_are_rejected() {
    let model = two::<f32>();
    let mut adam = Adam::new(&model, PLAIN).unwrap();
    adam.step(&both(&model, 1)).unwrap();
    let before = dict_bits(&adam.state_dict());
    let bad = [
        Tensor::scalar(f32::NAN),
        Tensor::scalar(-1.0),
        Tensor::scalar(2.5),
        Tensor::scalar(f32::INFINITY),
        Tensor::scalar(1e20),
        Tensor::zeros([0]),
        Tensor::from([0.0, 16_777_216.0]),
        Tensor::from([0.0, 0.0, 65_536.0]),
    ];
    for count in bad {
        let mut dict = adam.state_dict();
        dict.insert("step.matrix".into(), count);
        let error = adam.load_state_dict(5, &dict).unwrap_err().to_string();
        let line = "value of step.matrix: expected a whole number of steps, at least 0";
        assert!(error.contains(line), "{error}");
        assert_eq!((adam.steps(), dict_bits(&adam.state_dict())), (1, before.clone()));
    }
    // A count of no parameter.
    for (name, mut optimizer) in every(&model) {
        let mut dict = optimizer.state_dict();
        dict.insert("step.other".into(), Tensor::scalar(1.0));
        let error = optimizer.load_state_dict(1, &dict).unwrap_err().to_string();
        assert!(error.contains("unexpected: step.other"), "{name}: {error}");
    }
}
