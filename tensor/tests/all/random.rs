//! Random tensors: independent of the number of threads, with the documented distributions.

use rand::{RngExt, SeedableRng};
use retrograd_tensor::random::{Key, Rng};
use retrograd_tensor::settings::with_level;
use retrograd_tensor::simd::Level;
use retrograd_tensor::{Tensor, with_threads};

fn mean(x: impl IntoIterator<Item = f64>) -> f64 {
    let (n, sum) = x.into_iter().fold((0.0, 0.0), |(n, sum), x| (n + 1.0, sum + x));
    sum / n
}

#[test]
fn random_words_do_not_depend_on_the_request_sizes() {
    let key = Key::new(u64::MAX - 5, 1 << 40);
    let mut all = [0; 300];
    key.words(0, &mut all);
    for (i, &word) in all.iter().enumerate() {
        assert_eq!(key.word(i as u64), word);
    }
    for first in [0, 1, 63, 64, 65, 130] {
        for len in [0, 1, 5, 64, 130] {
            let mut part = vec![0; len];
            key.words(first as u64, &mut part);
            assert_eq!(part, all[first..first + len]);
        }
    }
    for level in Level::available() {
        let mut same = [0; 300];
        with_level(level, || key.words(0, &mut same));
        assert_eq!(same, all, "{level}");
    }
}

#[test]
fn numbers_are_functions_of_key_and_index() {
    let key = Key::new(9, 3);
    for i in 0..100 {
        assert_eq!(key.uniform(i), (key.bits(i) >> 11) as f64 / (1u64 << 53) as f64);
        assert!(f64::from(key.uniform_f32(i)) <= key.uniform(i));
        assert!(key.uniform(i) - f64::from(key.uniform_f32(i)) < 1.0 / (1 << 24) as f64);
    }
    let mut rng = Rng::new(9);
    assert_eq!(rng.key(), Key::new(9, 0));
    let mut again = Rng::from_state(rng.state());
    assert_eq!(rng.key(), again.key());
    assert_eq!(again.state(), (9, 2));
    let x = Tensor::<f64>::rand([7], &mut Rng::from_state((9, 3)));
    assert_eq!(x.to_vec(), (0..7).map(|i| key.uniform(i)).collect::<Vec<_>>());
    let y = Tensor::<f32>::rand([7], &mut Rng::from_state((9, 3)));
    assert_eq!(y.to_vec(), (0..7).map(|i| key.uniform_f32(i)).collect::<Vec<_>>());
}

#[test]
fn tensors_do_not_depend_on_threads_or_lanes() {
    let x = Tensor::<f32>::randn([300, 301], &mut Rng::new(0));
    let run = || {
        let mut rng = Rng::new(7);
        let floats = [
            Tensor::<f32>::rand([100_001], &mut rng),
            Tensor::uniform([100_001], -2.0, 3.0, &mut rng),
            Tensor::randn([100_001], &mut rng),
            x.dropout(0.3, rng.key()),
        ];
        let order = Tensor::<i64>::randperm(100_001, &mut rng);
        let numbers = Tensor::randint(-3i64, 4, [100_001], &mut rng);
        (floats, order, numbers, Tensor::bernoulli([100_001], 0.3, &mut rng))
    };
    let one = with_threads(1, run);
    assert!(one == with_threads(3, run));
    for level in Level::available() {
        assert!(one == with_level(level, run), "{level}");
    }
}

#[test]
fn samples_follow_their_distributions() {
    let n = 1_000_000;
    let mut rng = Rng::new(11);
    let sigma = |variance: f64| 5.0 * (variance / n as f64).sqrt();

    let u = Tensor::<f32>::uniform([n], -1.0, 3.0, &mut rng).to_vec();
    assert!(u.iter().all(|u| (-1.0..3.0).contains(u)));
    assert!((mean(u.iter().map(|&u| f64::from(u))) - 1.0).abs() < sigma(16.0 / 12.0));
    // An interval so narrow that rounding could give the upper bound.
    let narrow = Tensor::<f32>::uniform([1000], 1.0, 1.0 + f64::from(f32::EPSILON), &mut rng);
    assert!(narrow.to_vec().iter().all(|&u| u == 1.0));

    let z = Tensor::<f64>::randn([n], &mut rng).to_vec();
    assert!(mean(z.iter().copied()).abs() < sigma(1.0));
    assert!((mean(z.iter().map(|z| z * z)) - 1.0).abs() < sigma(2.0));
    assert!(mean(z.iter().map(|z| z.powi(3))).abs() < sigma(15.0));
    assert!((mean(z.iter().map(|z| z.powi(4))) - 3.0).abs() < sigma(96.0));
    assert!(mean(z.chunks(2).map(|z| z[0] * z[1])).abs() < sigma(2.0));
    let within = mean(z.iter().map(|z| f64::from(z.abs() < 1.0)));
    assert!((within - 0.682_689_492_137).abs() < sigma(0.25));

    for p in [0.1, 0.5, 0.999] {
        let b = Tensor::bernoulli([n], p, &mut rng).to_vec();
        assert!((mean(b.iter().map(|&b| f64::from(b))) - p).abs() < sigma(p * (1.0 - p)));
        let y = Tensor::<f32>::ones([n]).dropout(p, rng.key()).to_vec();
        let kept = 1.0 - p;
        assert!((mean(y.iter().map(|&y| f64::from(y != 0.0))) - kept).abs() < sigma(p * kept));
        assert!((mean(y.iter().map(|&y| f64::from(y))) - 1.0).abs() < sigma(p / kept));
    }

    let i = Tensor::<u32>::randint(5, 12, [n], &mut rng).to_vec();
    for value in 5..12 {
        let share = mean(i.iter().map(|&i| f64::from(i == value)));
        assert!((share - 1.0 / 7.0).abs() < sigma(6.0 / 49.0));
    }
    let whole = Tensor::<i64>::randint(i64::MIN, i64::MAX, [1000], &mut rng).to_vec();
    assert!(whole.iter().any(|&i| i < -1 << 62) && whole.iter().any(|&i| i > 1 << 62));
}

#[test]
fn permutations_are_all_equally_likely() {
    let mut rng = Rng::new(13);
    let mut counts = std::collections::HashMap::new();
    for _ in 0..24_000 {
        *counts.entry(Tensor::<i64>::randperm(4, &mut rng).to_vec()).or_insert(0) += 1;
    }
    assert_eq!(counts.len(), 24);
    assert!(counts.values().all(|n| (840..1160).contains(n)), "{counts:?}");
    assert_eq!(Tensor::<u32>::randperm(0, &mut rng).numel(), 0);
    assert_eq!(Tensor::<u32>::randperm(1, &mut rng).to_vec(), [0]);
    let mut seen: Vec<usize> = (0..200).map(|_| rng.below(3)).collect();
    seen.sort();
    seen.dedup();
    assert_eq!(seen, [0, 1, 2]);
}

#[test]
fn dropout_with_probability_0_and_1() {
    let key = Key::new(1, 2);
    let bits = |t: &Tensor<f32>| t.to_vec().iter().map(|x| x.to_bits()).collect::<Vec<_>>();
    let x = Tensor::from([f32::NAN, -0.0, 1e-45, f32::INFINITY, -1.0]);
    assert_eq!(bits(&x.dropout(0.0, key)), bits(&x));
    assert_eq!(bits(&x.dropout(1.0, key)), [0; 5]);
    assert_eq!(bits(&x.dropout(1.0 - f64::EPSILON / 2.0, key)), [0; 5]);
    let y = Tensor::<f32>::full([200], f32::NAN).dropout(0.5, key).to_vec();
    for (i, y) in y.into_iter().enumerate() {
        assert_eq!(key.happens(i as u64, 0.5), y.to_bits() == 0);
        assert_eq!(!key.happens(i as u64, 0.5), y.is_nan());
    }
    // The mask is a function of the logical index and the key.
    let x = Tensor::<f64>::randn([30, 40], &mut Rng::new(3));
    let turned = Tensor::from_vec(x.t().to_vec(), [40, 30]).t();
    assert_eq!(x.dropout(0.4, key), turned.dropout(0.4, key));
    assert_ne!(x.dropout(0.4, key), x.dropout(0.4, Key::new(1, 3)));
    let wide = Tensor::<f32>::ones([1, 1]).broadcast_to([30, 40]).dropout(0.4, key);
    assert_eq!(wide, Tensor::ones([30, 40]).dropout(0.4, key));
    assert_eq!(*Tensor::<f32>::zeros([0, 3]).dropout(0.5, key).shape(), [0, 3]);
    assert_eq!(Tensor::<f32>::scalar(3.0).dropout(0.0, key).item(), 3.0);
}

#[test]
fn the_generator_implements_the_traits_of_rand() {
    let mut rng = Rng::seed_from_u64(4);
    assert_eq!(rng, Rng::new(4));
    let dice: Vec<u32> = (0..1000).map(|_| rng.random_range(1..=6)).collect();
    assert!((1..=6).all(|side| (100..250).contains(&dice.iter().filter(|&&d| d == side).count())));
    let mut bytes = [0; 13];
    rng.fill(&mut bytes[..]);
    assert_ne!(bytes[8..], [0; 5]);
}
