//! Random tensors: independent of the number of threads, with the documented distributions.

use rand::{Rng as _, RngExt, SeedableRng};
use retrograd_tensor::internals::box_muller;
use retrograd_tensor::random::{Key, Rng};
use retrograd_tensor::settings::with_level;
use retrograd_tensor::simd::Level;
use retrograd_tensor::torch_random::TorchRng;
use retrograd_tensor::{Tensor, with_threads};

fn mean(x: impl IntoIterator<Item = f64>) -> f64 {
    let (n, sum) = x.into_iter().fold((0.0, 0.0), |(n, sum), x| (n + 1.0, sum + x));
    sum / n
}

/// Philox4x32-10 by its definition.
fn philox(mut c: [u32; 4], mut k: [u32; 2]) -> [u32; 4] {
    for _ in 0..10 {
        let product = |x: u32, y: u64| u64::from(x) * y;
        let (a, b) = (product(c[0], 0xD251_1F53), product(c[2], 0xCD9E_8D57));
        c = [(b >> 32) as u32 ^ c[1] ^ k[0], b as u32, (a >> 32) as u32 ^ c[3] ^ k[1], a as u32];
        k = [k[0].wrapping_add(0x9E37_79B9), k[1].wrapping_add(0xBB67_AE85)];
    }
    c
}

/// The known answers published with the Random123 library.
#[test]
fn philox_has_the_known_answers() {
    for (counter, key, answer) in [
        ([0; 4], [0; 2], [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]),
        ([u32::MAX; 4], [u32::MAX; 2], [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]),
        (
            [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344],
            [0xa409_3822, 0x299f_31d0],
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1],
        ),
    ] {
        assert_eq!(philox(counter, key), answer);
    }
}

/// The counter of a block is its number and the stream; the key is the seed.
#[test]
fn bits_and_words_are_those_of_philox() {
    let halves = |x: u64| [x as u32, (x >> 32) as u32];
    for (seed, stream) in [(0, 0), (3, 4), (u64::MAX, u64::MAX), (1 << 40 | 7, 9 << 33 | 2)] {
        let block = |number: u64| {
            let ([a, b], [c, d]) = (halves(number), halves(stream));
            philox([a, b, c, d], halves(seed))
        };
        let key = Key::new(seed, stream);
        for number in (0..100).chain([1 << 32, 0x4567_89ab_cdef_0123, (1 << 63) - 1]) {
            let [a, b] = [0, 1].map(|i| halves(key.bits(2 * number + i)));
            assert_eq!([a, b].concat(), block(number));
        }
        for index in 0..300 {
            let number = index / 64 * 16 + index % 16;
            assert_eq!(key.word(index), block(number)[(index / 16 % 4) as usize]);
        }
    }
}

/// Without rejection of biased draws, half of the numbers would be multiples of 3.
#[test]
fn numbers_below_a_bound_are_without_bias() {
    let (mut rng, quarter) = (Rng::new(17), 1 << (usize::BITS - 2));
    let all: Vec<usize> = (0..10_000).map(|_| rng.below(3 * quarter)).collect();
    let multiples = all.iter().filter(|x| x.is_multiple_of(3)).count();
    assert!((3100..3570).contains(&multiples), "{multiples}");
    assert!(all.iter().any(|&x| x > 2 * quarter) && all.iter().all(|&x| x < 3 * quarter));
    assert_eq!(rng.below(1), 0);
}

/// The 10 000th number of the default seed, 5489, which the C++ standard specifies for `mt19937`.
#[test]
fn the_generator_of_pytorch_has_the_known_answer() {
    let mut rng = TorchRng::manual_seed(5489);
    let last = (0..10_000).map(|_| rng.next_u32()).last();
    assert_eq!(last, Some(4_123_659_995));
    let mut a = TorchRng::seed_from_u64(3);
    let mut b = TorchRng::from_seed(3u64.to_le_bytes());
    let (high, low) = (a.next_u32(), a.next_u32());
    assert_eq!(b.next_u64(), u64::from(high) << 32 | u64::from(low));
    assert_eq!(a, b);
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

/// The bits of the transform by `libm`, on every level, for random bits and for angles and radii at the edges.
#[test]
fn normal_numbers_are_those_of_libm() {
    let key = Key::new(1, 2);
    let mut bits: Vec<u64> = (0..200_000).map(|i| key.bits(i)).collect();
    for eighth in 0..=8u64 {
        let at = eighth.wrapping_shl(61);
        for distance in (11..64).map(|shift| 1u64 << shift) {
            for near in [at.wrapping_sub(distance), at, at.wrapping_add(distance)] {
                bits.extend([near, near, near.wrapping_neg(), near]);
            }
        }
    }
    let unit = |bits: u64| (bits >> 11) as f64 / (1u64 << 53) as f64;
    let by_libm = |pair: &[u64]| {
        let radius = (-2.0 * libm::log(1.0 - unit(pair[0]))).sqrt();
        let (sin, cos) = libm::sincos(std::f64::consts::TAU * unit(pair[1]));
        [radius * cos, radius * sin].map(f64::to_bits)
    };
    let expected: Vec<u64> = bits.chunks_exact(2).flat_map(by_libm).collect();
    for level in Level::available() {
        let mut out = vec![0.0; bits.len()];
        box_muller(level, &bits, &mut out);
        assert!(out.iter().map(|x| x.to_bits()).eq(expected.iter().copied()), "{level}");
    }
    let drawn = Tensor::<f64>::randn([301], &mut Rng::from_state((1, 2)));
    assert!(drawn.to_vec().iter().map(|x| x.to_bits()).eq(expected[..301].iter().copied()));
}

/// Fisher and Yates, with one draw for each position.
#[test]
fn permutations_are_those_of_their_draws() {
    for n in [0usize, 1, 2, 63, 64, 65, 66, 1000] {
        let (key, mut order) = (Key::new(5, 6), (0..n as i64).collect::<Vec<_>>());
        for (draw, left) in (2..=n).rev().enumerate() {
            let below = (u128::from(key.bits(draw as u64)) * left as u128) >> 64;
            order.swap(left - 1, below as usize);
        }
        let drawn = Tensor::<i64>::randperm(n, &mut Rng::from_state((5, 6)));
        assert_eq!(drawn.to_vec(), order);
    }
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

    let n = 10_000_000;
    let sigma = |variance: f64| 5.0 * (variance / n as f64).sqrt();
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
