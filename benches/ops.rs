//! Single operations: elementwise, rows, reductions, products. `cargo bench --bench ops`.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use retrograd::prelude::*;
use std::hint::black_box;

fn random(shape: &[usize]) -> Tensor {
    Tensor::randn(shape, &mut Rng::new(1))
}

fn elementwise(c: &mut Criterion) {
    let mut group = c.benchmark_group("elementwise");
    for n in [1 << 12, 1 << 20] {
        let x = random(&[n]);
        group.throughput(Throughput::Elements(n as u64));
        group.bench_function(BenchmarkId::new("add", n), |b| b.iter(|| black_box(&x + &x)));
        group.bench_function(BenchmarkId::new("exp", n), |b| b.iter(|| black_box(x.exp())));
        group.bench_function(BenchmarkId::new("gelu", n), |b| b.iter(|| black_box(x.gelu())));
        group.bench_function(BenchmarkId::new("sum", n), |b| b.iter(|| black_box(x.sum(..))));
    }
}

fn rows(c: &mut Criterion) {
    let mut group = c.benchmark_group("rows");
    let x = random(&[2048, 384]);
    let (w, g) = (Tensor::ones([384]), random(&[2048, 384]));
    let y = x.softmax(-1);
    group.throughput(Throughput::Elements(x.numel() as u64));
    group.bench_function("softmax", |b| b.iter(|| black_box(x.softmax(-1))));
    group.bench_function("softmax_vjp", |b| b.iter(|| black_box(Tensor::softmax_vjp(&y, &g, -1))));
    group.bench_function("layer_norm", |b| {
        b.iter(|| black_box(x.layer_norm(Some(&w), None, 1e-5)));
    });
    group.bench_function("layer_norm_vjp", |b| {
        b.iter(|| black_box(x.layer_norm_vjp(Some(&w), 1e-5, &g)));
    });
}

fn matmul(c: &mut Criterion) {
    let mut group = c.benchmark_group("matmul");
    for [m, k, n] in [[64, 64, 64], [256, 256, 256], [768, 128, 512], [768, 512, 128]] {
        let (a, b) = (random(&[m, k]), random(&[n, k]));
        group.throughput(Throughput::Elements(2 * (m * k * n) as u64)); // FLOP
        group.bench_function(BenchmarkId::from_parameter(format!("{m}x{k}x{n}")), |bench| {
            bench.iter(|| black_box(a.matmul(&b.t())));
        });
    }
}

criterion_group!(benches, elementwise, rows, matmul);
criterion_main!(benches);
