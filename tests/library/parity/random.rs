//! Random numbers against PyTorch's. The contents of the file are listed in fixtures/README.md.

use super::Fixture;
use retrograd::nn::Module;
use retrograd::nn::checkpoint::{AnyTensor, Storable};
use retrograd::nn::torch_init::{torch_embedding, torch_linear};
use retrograd::tensor::torch_random::TorchRng;
use retrograd::tensor::{Element, Real, Tensor};

/// Calls `check` with a generator of every seed of a case, and the numbers from PyTorch.
fn case(name: &str, check: impl Fn(&mut TorchRng, &AnyTensor)) {
    let file = Fixture::load("torch_rng.safetensors");
    let prefix = format!("{name}.");
    let seeds =
        file.file.tensors.iter().filter_map(|(name, t)| Some((name.strip_prefix(&prefix)?, t)));
    assert!(seeds.clone().count() > 0, "no case {name}");
    for (seed, theirs) in seeds {
        check(&mut TorchRng::manual_seed(seed.parse().unwrap()), theirs);
    }
}

/// The numbers, which must be of this type.
fn list<T: Storable>(theirs: &AnyTensor) -> Vec<T> {
    T::unwrap(theirs).expect("another type").to_vec()
}

fn join<T: Element>(parts: impl IntoIterator<Item = Tensor<T>>) -> Vec<T> {
    parts.into_iter().flat_map(|part| part.to_vec()).collect()
}

/// At most so many units in the last place, and equal bits for two thirds.
fn close<T: Storable>(ours: Vec<T>, theirs: &AnyTensor, max: u64) {
    let (n, theirs) = (ours.len(), list::<T>(theirs));
    let equal = ours.iter().zip(&theirs).filter(|(a, b)| a == b).count();
    let [ours, theirs] = [ours, theirs].map(Tensor::from);
    let worst = ours.max_ulp_distance(&theirs);
    assert!(worst <= max, "{worst} ULP");
    assert!(3 * equal > 2 * n, "{equal} of {n} equal");
}

#[test]
fn uniform_numbers_have_equal_bits() {
    case("rand_f32", |rng, theirs| {
        assert_eq!(join([rng.rand::<f32>([1000])]), list::<f32>(theirs))
    });
    case("rand_f64", |rng, theirs| assert_eq!(join([rng.rand::<f64>([100])]), list::<f64>(theirs)));
    case("uniform_f32", |rng, theirs| {
        assert_eq!(join([rng.uniform::<f32>([200], -0.57735, 1.3)]), list::<f32>(theirs))
    });
    case("uniform_f64", |rng, theirs| {
        assert_eq!(join([rng.uniform::<f64>([100], -0.57735, 1.3)]), list::<f64>(theirs))
    });
}

#[test]
fn integers_are_equal() {
    const RANGES: [(i64, i64); 5] =
        [(0, 10), (-7, 1 << 20), (0, (1 << 28) - 1), (0, 1 << 28), (-(1 << 40), 1 << 40)];
    case("randint", |rng, theirs| {
        let ours = RANGES.map(|(lo, hi)| rng.randint(lo, hi, [20]));
        assert_eq!(join(ours), theirs.to_i64().unwrap().to_vec());
    });
    case("randperm", |rng, theirs| {
        let ours = [0, 1, 2, 10, 100].map(|n| rng.randperm::<i64>(n));
        assert_eq!(join(ours), theirs.to_i64().unwrap().to_vec());
    });
}

#[test]
fn normal_numbers_differ_by_rounding() {
    fn sizes<T: Real>(rng: &mut TorchRng) -> Vec<T> {
        join((0..=40).map(|n| rng.randn([n])))
    }
    case("randn_f32", |rng, theirs| close(sizes::<f32>(rng), theirs, 3));
    case("randn_f64", |rng, theirs| close(sizes::<f64>(rng), theirs, 3));
    case("normal_f32", |rng, theirs| {
        close::<f32>(join([5, 50].map(|n| rng.normal([n], 0.5, 0.02))), theirs, 1)
    });
    case("many_f32", |rng, theirs| {
        let x: Tensor = rng.randn([150_000]);
        let parts = [0..64, 75_000..75_064, 149_936..150_000].map(|range| x.slice(0, range));
        close::<f32>(join(parts.into_iter().chain([rng.rand([1])])), theirs, 3);
    });
    case("embedding", |rng, theirs| {
        let tables = [(6, 16), (2, 3), (50, 3)].map(|(n, d)| torch_embedding(n, d, rng));
        close::<f32>(join(tables.map(|table| table.weight.value())), theirs, 3);
    });
}

#[test]
fn initial_linear_layers_have_equal_bits() {
    for (name, bias) in [("linear", false), ("linear_bias", true)] {
        case(name, |rng, theirs| {
            let layers = [(3, 2), (7, 5), (96, 16)].map(|(i, o)| torch_linear(i, o, bias, rng));
            let values = |layer: &retrograd::nn::Linear| {
                layer.named_parameters().into_iter().map(|(_, param)| param.value())
            };
            assert_eq!(join(layers.iter().flat_map(values)), list::<f32>(theirs));
        });
    }
}
