//! A whole training step of nanoGPT's CPU size: batch 12 of 64 tokens, 4 layers, 4 heads, 128
//! wide. `cargo bench --bench train_step`.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use retrograd::prelude::*;

fn train_step(c: &mut Criterion) {
    let config = GptConfig {
        vocab: 65,
        context: 64,
        layers: 4,
        heads: 4,
        width: 128,
        dropout: 0.0,
        bias: false,
        tied: true,
    };
    let mut rng = Rng::new(1);
    let model = Gpt::<f32>::new(config, &mut rng).expect("a valid model");
    let adam = AdamConfig { betas: (0.9, 0.99), weight_decay: 0.1, ..Default::default() };
    let mut optimizer = AdamW::new(&model, adam).expect("valid hyperparameters");
    let tokens = Tensor::<i64>::randint(0, 65, [12, 64], &mut rng);
    let targets = Tensor::<i64>::randint(0, 65, [12, 64], &mut rng);

    let mut group = c.benchmark_group("nanogpt-cpu");
    group.throughput(Throughput::Elements(tokens.numel() as u64));
    group.sample_size(20);
    group.bench_function("forward", |b| {
        b.iter(|| no_grad(|| model.loss(&tokens, &targets, &mut Pass::eval()).item()));
    });
    group.bench_function("step", |b| {
        b.iter(|| {
            let loss = model.loss(&tokens, &targets, &mut Pass::train(1));
            let mut grads = loss.backward();
            grads.clip_norm(1.0);
            optimizer.step(&grads).expect("every parameter has a gradient");
            loss.item()
        });
    });
}

criterion_group!(benches, train_step);
criterion_main!(benches);
