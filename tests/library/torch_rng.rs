//! Random numbers against PyTorch's. The contents of the file are listed in fixtures/README.md.

use retrograd::nn::Module;
use retrograd::nn::torch_init::{torch_embedding, torch_linear};
use retrograd::tensor::torch_random::TorchRng;
use retrograd::tensor::{Element, Real, Tensor};
use safetensors::SafeTensors;

const FILE: &[u8] = include_bytes!("../fixtures/torch_rng.safetensors");

/// Calls `check` with every seed of a case, a generator, and the bytes from PyTorch.
fn case(name: &str, check: impl Fn(u64, &mut TorchRng, &[u8])) {
    let file = SafeTensors::deserialize(FILE).unwrap();
    let mut found = 0;
    for (full, view) in file.tensors() {
        if let Some((case, seed)) = full.rsplit_once('.')
            && case == name
        {
            let seed = seed.parse().unwrap();
            check(seed, &mut TorchRng::manual_seed(seed), view.data());
            found += 1;
        }
    }
    assert!(found > 0, "no case {name}");
}

fn f32s(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks().0.iter().map(|&b| f32::from_le_bytes(b)).collect()
}

fn f64s(bytes: &[u8]) -> Vec<f64> {
    bytes.as_chunks().0.iter().map(|&b| f64::from_le_bytes(b)).collect()
}

fn i64s(bytes: &[u8]) -> Vec<i64> {
    bytes.as_chunks().0.iter().map(|&b| i64::from_le_bytes(b)).collect()
}

fn join<T: Element>(parts: impl IntoIterator<Item = Tensor<T>>) -> Vec<T> {
    parts.into_iter().flat_map(|part| part.to_vec()).collect()
}

/// Distance in units in the last place.
fn ulps_f32(a: f32, b: f32) -> u64 {
    let line = |x: f32| i64::from(x.abs().to_bits()) * if x < 0.0 { -1 } else { 1 };
    line(a).abs_diff(line(b))
}

fn ulps_f64(a: f64, b: f64) -> u64 {
    let line = |x: f64| i128::from(x.abs().to_bits()) * if x < 0.0 { -1 } else { 1 };
    line(a).abs_diff(line(b)) as u64
}

#[test]
fn uniform_numbers_have_equal_bits() {
    case("rand_f32", |_, rng, theirs| assert_eq!(join([rng.rand::<f32>([1000])]), f32s(theirs)));
    case("rand_f64", |_, rng, theirs| assert_eq!(join([rng.rand::<f64>([100])]), f64s(theirs)));
    case("uniform_f32", |_, rng, theirs| {
        assert_eq!(join([rng.uniform::<f32>([200], -0.57735, 1.3)]), f32s(theirs))
    });
    case("uniform_f64", |_, rng, theirs| {
        assert_eq!(join([rng.uniform::<f64>([100], -0.57735, 1.3)]), f64s(theirs))
    });
}

#[test]
fn integers_are_equal() {
    const RANGES: [(i64, i64); 5] =
        [(0, 10), (-7, 1 << 20), (0, (1 << 28) - 1), (0, 1 << 28), (-(1 << 40), 1 << 40)];
    case("randint", |_, rng, theirs| {
        let ours = RANGES.map(|(lo, hi)| rng.randint(lo, hi, [20]));
        assert_eq!(join(ours), i64s(theirs));
    });
    case("randperm", |_, rng, theirs| {
        let ours = [0, 1, 2, 10, 100].map(|n| rng.randperm::<i64>(n));
        assert_eq!(join(ours), i64s(theirs));
    });
}

#[test]
fn normal_numbers_differ_by_rounding() {
    let close_f32 = |ours: Vec<f32>, theirs: &[u8], max: u64| {
        let theirs = f32s(theirs);
        assert_eq!(ours.len(), theirs.len());
        let far = ours.iter().zip(&theirs).map(|(&a, &b)| ulps_f32(a, b));
        let equal = far.clone().filter(|&ulps| ulps == 0).count();
        let worst = far.max().unwrap();
        assert!(worst <= max, "{worst} ULP");
        assert!(3 * equal > 2 * ours.len(), "{equal} of {} equal", ours.len());
    };
    fn sizes<T: Real>(rng: &mut TorchRng) -> Vec<T> {
        join((0..=40).map(|n| rng.randn([n])))
    }
    case("randn_f32", |_, rng, theirs| close_f32(sizes(rng), theirs, 3));
    case("randn_f64", |_, rng, theirs| {
        let (ours, theirs) = (sizes(rng), f64s(theirs));
        assert_eq!(ours.len(), theirs.len());
        let worst = ours.iter().zip(&theirs).map(|(&a, &b)| ulps_f64(a, b)).max();
        assert!(worst <= Some(3), "{worst:?} ULP");
    });
    case("normal_f32", |_, rng, theirs| {
        close_f32(join([5, 50].map(|n| rng.normal([n], 0.5, 0.02))), theirs, 1)
    });
    case("many_f32", |_, rng, theirs| {
        let x: Tensor = rng.randn([150_000]);
        let parts = [0..64, 75_000..75_064, 149_936..150_000].map(|range| x.slice(0, range));
        close_f32(join(parts.into_iter().chain([rng.rand([1])])), theirs, 3);
    });
    case("embedding", |_, rng, theirs| {
        let tables = [(6, 16), (2, 3), (50, 3)].map(|(n, d)| torch_embedding(n, d, rng));
        close_f32(join(tables.map(|table| table.weight.value())), theirs, 3);
    });
}

#[test]
fn initial_linear_layers_have_equal_bits() {
    for (name, bias) in [("linear", false), ("linear_bias", true)] {
        case(name, |_, rng, theirs| {
            let layers = [(3, 2), (7, 5), (96, 16)].map(|(i, o)| torch_linear(i, o, bias, rng));
            let values = |layer: &retrograd::nn::Linear| {
                layer.named_parameters().into_iter().map(|(_, param)| param.value())
            };
            assert_eq!(join(layers.iter().flat_map(values)), f32s(theirs));
        });
    }
}
