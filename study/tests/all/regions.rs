//! Records of parallel regions: a training step that is recorded has the bits of one that is not.

use retrograd_nn::optim::{Muon, MuonConfig, Optimizer};
use retrograd_nn::{Gpt, GptConfig, Module, Pass};
use retrograd_study::regions::{Part, RegionTree, Task, record};
use retrograd_study::scaling::{Rules, predict};
use retrograd_tensor::observe::Division;
use retrograd_tensor::random::Rng;
use retrograd_tensor::{Tensor, with_threads};

/// Takes a step of training, and returns the loss, the norm and all weights.
fn step() -> (f32, f64, Vec<Vec<f32>>) {
    let (layers, heads, width) = (1, 2, 64);
    let config = GptConfig { vocab: 40, context: 64, layers, heads, width, ..GptConfig::modern() };
    let model = Gpt::<f32>::new(config, &mut Rng::new(1)).unwrap();
    let token = |i: usize| (i * 7919 % 40) as i64;
    let [tokens, targets] = [0, 1].map(|next| {
        let data = (0..24 * 64).map(|i| token(i + next)).collect();
        Tensor::from_vec(data, [24, 64])
    });
    let (loss, mut grads) = model.loss_and_gradients(&tokens, &targets, &mut Pass::train(1));
    let norm = grads.clip_norm(0.1);
    let mut muon = Muon::new(&model, MuonConfig::default()).unwrap();
    muon.step(&grads).unwrap();
    let weights = model.named_parameters().into_iter().map(|(_, p)| p.value().to_vec());
    (loss, norm, weights.collect())
}

/// The spans of a tree by name, and regions as their rule and the number of tasks, to a depth.
fn outline(task: &Task, depth: usize, out: &mut Vec<String>) {
    for part in &task.parts {
        match part {
            Part::Serial(_) => {}
            Part::Span(name, inner) => {
                out.push(name.to_string());
                if depth > 0 {
                    outline(inner, depth - 1, out);
                }
            }
            Part::Region(region) => {
                if let Division::Shards = region.division {
                    out.push(format!("{} shards", region.tasks.len()));
                    outline(&region.tasks[0], 0, out);
                }
            }
        }
    }
}

#[test]
fn a_recorded_step_has_the_bits_of_another() {
    let plain = with_threads(1, step);
    for threads in [1, 2, 3, 5] {
        let (recorded, recording) = with_threads(threads, || record(step));
        assert!(recorded == plain, "{threads} threads");
        let mut found = Vec::new();
        outline(&recording.task, 1, &mut found);
        // Gradients of four shards, and updates of the six matrices of a block.
        let gradients = [
            "cut into shards",
            "loss and gradients",
            "4 shards",
            "forward",
            "backward",
            "sum of gradients",
        ];
        let update = ["clip_norm", "muon", "adam", "6 shards", "weights"];
        assert_eq!(found, [&gradients[..], &update].concat(), "{threads} threads");
    }
}

#[test]
fn a_step_is_predicted_to_be_faster_on_more_cores() {
    let ((), recording): ((), RegionTree) = with_threads(1, || record(|| drop(step())));
    let on = |cores| predict(&recording, Rules::new(cores, &recording, 0.0));
    let [one, four] = [on(1), on(4)];
    assert!((one.seconds / recording.seconds() - 1.0).abs() < 1e-9);
    assert!(four.seconds < one.seconds && four.seconds >= four.least);
}
