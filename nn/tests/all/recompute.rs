//! Recomputed blocks of a model: equal bits, in all combinations.

use retrograd_autograd::{Var, grad, sharded, with_threads};
use retrograd_nn::{Gpt, GptConfig, Module, Pass};
use retrograd_tensor::random::Rng;
use retrograd_tensor::{Real, Tensor};

/// The losses and all gradients of a batch in shards, and second derivatives of a part of it.
fn computed<T: Real>(dropout: f64, shards: usize, recompute: usize) -> Vec<u64> {
    let (layers, heads, width) = (3, 2, 16);
    let config = GptConfig { vocab: 9, context: 12, layers, heads, width, ..GptConfig::default() };
    let config = GptConfig { dropout, recompute, ..config };
    let model = Gpt::<T>::new(config, &mut Rng::new(5)).unwrap();
    let [x, y] = [1, 2].map(|seed| Tensor::<i64>::randint(0, 9, [4, 12], &mut Rng::new(seed)));
    let parts = model.shards(&x, &y, Some(shards), &mut Pass::train(3));
    let (loss, gradients) = sharded(parts.counts(), |i| parts.loss(i));
    let mut all: Vec<Tensor<T>> = gradients.iter().map(|(_, g)| g.clone()).collect();
    all.push(Tensor::scalar(loss));

    let mut w = Vec::new();
    model.for_each_parameter(&mut |_, param| w.push(param.to_var()));
    let w: Vec<&Var<T>> = w.iter().collect();
    let first = grad(&[(&parts.loss(0), None)], &w);
    let norm = first.iter().flatten().map(|g| g.square().sum(..)).reduce(|a, b| a + b).unwrap();
    all.extend(norm.backward().iter().map(|(_, g)| g.clone()));
    assert!(all.len() > w.len() + 30, "second derivatives");
    all.iter().flat_map(|x| x.to_vec()).map(|x| x.to_f64().to_bits()).collect()
}

fn combinations<T: Real>() {
    for (dropout, shards) in [(0.0, 1), (0.0, 3), (0.2, 1), (0.2, 3)] {
        let usual = computed::<T>(dropout, shards, 0);
        for (threads, blocks) in [(1, 3), (2, 2), (5, 3)] {
            let found = with_threads(threads, || computed::<T>(dropout, shards, blocks));
            let case =
                format!("{}: dropout {dropout}, {shards} shards, {threads} threads", T::DTYPE);
            assert!(found == usual, "{case}, {blocks} blocks");
        }
    }
}

#[test]
fn recomputed_blocks_have_the_bits_of_others() {
    combinations::<f32>();
    combinations::<f64>();
}
