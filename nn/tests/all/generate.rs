//! Sampling: greedy, top-k, and from the whole distribution.

use crate::common::*;
use retrograd_nn::{GptConfig, Pass, Sampler};
use retrograd_tensor::random::Rng;
use retrograd_tensor::{Real, Tensor};

fn draws<T: Real>(sampler: Sampler, logits: &Tensor<T>, n: usize) -> Vec<usize> {
    let mut rng = Rng::new(12);
    let mut counts = vec![0; logits.numel()];
    for _ in 0..n {
        counts[sampler.draw(logits, &mut rng) as usize] += 1;
    }
    counts
}

#[test]
fn temperature_0_is_greedy() {
    let logits = Tensor::from([0.1f32, 7.0, -3.0, 6.999]);
    for top_k in [None, Some(1), Some(3), Some(100)] {
        let counts = draws(Sampler { temperature: 0.0, top_k }, &logits, 50);
        assert_eq!(counts, [0, 50, 0, 0]);
    }
    // Ties: the first token.
    let counts =
        draws(Sampler { temperature: 0.0, top_k: None }, &Tensor::from([1.0f32, 2.0, 2.0]), 9);
    assert_eq!(counts, [0, 9, 0]);
}

#[test]
fn draws_follow_the_softmax() {
    fn check<T: Real>(logits: [f64; 6], temperature: f64, top_k: Option<usize>) {
        let n = 20_000;
        let t = Tensor::from(logits.map(T::from_f64));
        let counts = draws(Sampler { temperature, top_k }, &t, n);
        let mut order: Vec<usize> = (0..6).collect();
        order.sort_by(|&a, &b| logits[b].total_cmp(&logits[a]));
        let allowed = &order[..top_k.unwrap_or(6)];
        let weight = |i: usize| match allowed.contains(&i) {
            true => ((logits[i] - logits[order[0]]) / temperature).exp(),
            false => 0.0,
        };
        let total: f64 = (0..6).map(weight).sum();
        let mut chi = 0.0;
        for (i, &count) in counts.iter().enumerate() {
            let expected = n as f64 * weight(i) / total;
            if expected == 0.0 {
                assert_eq!(count, 0, "token {i} has no probability");
            } else if expected > 5.0 {
                chi += (count as f64 - expected).powi(2) / expected;
            }
        }
        // At most 5 degrees of freedom: the probability beyond 25 is below 1/5000.
        assert!(chi < 25.0, "chi-square {chi}: {counts:?}");
    }
    let logits = [0.3, -1.0, 2.0, 0.0, 1.2, -0.4];
    for temperature in [0.5, 0.8, 1.0, 3.0] {
        for top_k in [None, Some(1), Some(2), Some(5)] {
            check::<f32>(logits, temperature, top_k);
            check::<f64>(logits, temperature, top_k);
        }
    }
    check::<f32>([1e30, 1e30, -1e30, 0.0, 1e30, 5.0], 1.0, None);
    check::<f64>([f64::NEG_INFINITY, 1.0, 1.0, f64::NEG_INFINITY, 0.0, 0.0], 1.0, None);
}

#[test]
fn tiny_temperatures_are_greedy_and_huge_ones_uniform() {
    let logits = Tensor::from([1.0f32, 3.0, 2.0]);
    for temperature in [1e-3, 1e-50, 5e-324] {
        assert_eq!(draws(Sampler { temperature, top_k: None }, &logits, 20), [0, 20, 0]);
    }
    let counts = draws(Sampler { temperature: 1e300, top_k: None }, &logits, 3000);
    assert!(counts.iter().all(|&n| (850..1150).contains(&n)), "{counts:?}");
}

#[test]
fn tokens_of_probability_0_are_never_drawn() {
    // Many draws close to 1, where the sum of the weights may be smaller by rounding.
    let mut logits = vec![0.1f32; 999];
    logits.push(f32::NEG_INFINITY);
    let counts =
        draws(Sampler { temperature: 1.0, top_k: None }, &Tensor::from_vec(logits, [1000]), 5000);
    assert_eq!(counts[999], 0);
}

#[test]
fn invalid_samplers_are_rejected() {
    let good = Tensor::from([1.0f32, 2.0]);
    let text = |temperature, top_k, logits: &Tensor<f32>| {
        panic_text(|| Sampler { temperature, top_k }.draw(logits, &mut Rng::new(0)))
    };
    for (t, shown) in [(f64::NAN, "NaN"), (-0.5, "-0.5")] {
        let want = format!("sampler: the temperature must be at least 0, got {shown}");
        assert_eq!(text(t, None, &good), want);
    }
    assert_eq!(text(1.0, Some(0), &good), "sampler: top_k must be at least 1, got 0");
    let cases = [
        (vec![1.0, f32::NAN], "NaN"),
        (vec![f32::INFINITY, 0.0], "inf"),
        (vec![f32::NEG_INFINITY; 2], "-inf"),
        (vec![], "NaN"),
    ];
    for (logits, shown) in cases {
        let n = logits.len();
        let logits = Tensor::from_vec(logits, [n]);
        for temperature in [0.0, 1.0] {
            let want = format!("sampler: no token can be drawn, the largest logit is {shown}");
            assert_eq!(text(temperature, None, &logits), want);
        }
    }
    let model = gpt::<f32>(config(), 1);
    let text = panic_text(|| model.generate(&[], 1, Sampler::default(), &mut Rng::new(0), |_| ()));
    assert_eq!(text, "generate: the prompt is empty");
}

fn generate(prompt: &[i64], count: usize, sampler: Sampler, seed: u64) -> Vec<i64> {
    // Generation does not apply dropout.
    let model = gpt::<f32>(GptConfig { dropout: 0.5, ..config() }, 1);
    let mut made = Vec::new();
    model.generate(prompt, count, sampler, &mut Rng::new(seed), |token| made.push(token));
    made
}

#[test]
fn text_is_a_function_of_prompt_and_seed() {
    let sampler = Sampler { temperature: 1.0, top_k: Some(5) };
    let once = generate(&[1, 2], 40, sampler, 1);
    assert_eq!(once.len(), 40);
    assert!(once.iter().all(|t| (0..7).contains(t)));
    assert_eq!(once, generate(&[1, 2], 40, sampler, 1));
    assert_ne!(once, generate(&[1, 2], 40, sampler, 2));
    assert_eq!(once[..10], generate(&[1, 2], 10, sampler, 1));
    assert!(generate(&[1, 2], 0, sampler, 1).is_empty());
    let greedy = Sampler { temperature: 0.0, top_k: None };
    assert_eq!(generate(&[1, 2], 20, greedy, 1), generate(&[1, 2], 20, greedy, 2));
}

#[test]
fn only_the_last_tokens_of_a_long_prompt_are_used() {
    let sampler = Sampler { temperature: 1.0, top_k: None };
    let long: Vec<i64> = (0..50).map(|i| i * i % 7).collect();
    let last = &long[long.len() - 6..];
    assert_eq!(generate(&long, 20, sampler, 3), generate(last, 20, sampler, 3));
    let shifted = &long[long.len() - 5..];
    assert_ne!(generate(&long, 20, sampler, 3), generate(shifted, 20, sampler, 3));
}

#[test]
fn greedy_text_is_the_argmax_of_the_logits() {
    let model = gpt::<f32>(config(), 1);
    let mut tokens = vec![1i64, 2];
    for _ in 0..12 {
        let seen = &tokens[tokens.len().saturating_sub(6)..];
        let input = Tensor::from_vec(seen.to_vec(), [seen.len()]);
        let logits = model.forward(&input, &mut Pass::eval()).into_value();
        tokens.push(logits.select(0, seen.len() - 1).argmax(0).item());
    }
    let greedy = Sampler { temperature: 0.0, top_k: None };
    let mut made = vec![1, 2];
    model.generate(&[1, 2], 12, greedy, &mut Rng::new(0), |t| made.push(t));
    assert_eq!(made, tokens);
}

#[test]
fn cached_logits_equal_those_of_the_sequence_for_any_partition() {
    for bias in [true, false] {
        let model = gpt::<f64>(GptConfig { dropout: 0.5, bias, ..config() }, 2);
        let tokens = Tensor::from([[1i64, 2, 6, 0, 3, 3], [5, 5, 4, 1, 0, 2]]);
        let whole = model.forward(&tokens, &mut Pass::eval()).into_value();
        for division in [&[6][..], &[1; 6], &[2, 1, 3], &[5, 1], &[0, 4, 0, 2]] {
            let (mut cache, mut at) = (model.cache(), 0);
            for &n in division {
                let logits = model.forward_cached(&tokens.narrow(1, at, n), &mut cache);
                assert!(!logits.is_tracked());
                let want = whole.narrow(1, at, n);
                assert_eq!(logits.shape(), want.shape());
                for (x, y) in logits.value().to_vec().into_iter().zip(want.to_vec()) {
                    assert!((x - y).abs() < 1e-13, "{division:?} at {at}: {x} and {y}");
                }
                at += n;
                assert_eq!(cache.position(), at);
            }
            let text = panic_text(|| model.forward_cached(&tokens.narrow(1, 0, 1), &mut cache));
            assert_eq!(text, "gpt: a sequence of 7 tokens is longer than the context of 6");
        }
    }
}
