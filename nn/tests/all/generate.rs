//! Sampling and generation: distributions, batches, and sequences longer than the context.

use crate::common::*;
use retrograd_nn::{
    AttentionKind, BeyondContext, Gpt, GptConfig, Pass, Positions, RopeConfig, Sampler, until,
};
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
fn draws_follow_the_softmax() {
    fn check<T: Real>(logits: [f64; 6], temperature: f64, top_k: Option<usize>) {
        let n = 20_000;
        let t = Tensor::from(logits.map(T::from_f64));
        let counts = draws(Sampler { temperature, top_k, ..Sampler::default() }, &t, n);
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
fn tokens_of_probability_0_are_never_drawn() {
    // Many draws close to 1, where the sum of the weights may be smaller by rounding.
    let mut logits = vec![0.1f32; 999];
    logits.push(f32::NEG_INFINITY);
    let counts = draws(
        Sampler { temperature: 1.0, top_k: None, ..Sampler::default() },
        &Tensor::from_vec(logits, [1000]),
        5000,
    );
    assert_eq!(counts[999], 0);
}

#[test]
fn invalid_samplers_are_rejected() {
    let good = Tensor::from([1.0f32, 2.0]);
    let text = |temperature, top_k, logits: &Tensor<f32>| {
        panic_text(|| {
            Sampler { temperature, top_k, ..Sampler::default() }.draw(logits, &mut Rng::new(0))
        })
    };
    for (t, shown) in [(f64::NAN, "NaN"), (-0.5, "-0.5")] {
        let want = format!("sampler: the temperature must be at least 0, got {shown}");
        assert_eq!(text(t, None, &good), want);
    }
    assert_eq!(text(1.0, Some(0), &good), "sampler: top_k must be at least 1, got 0");
    let default = Sampler::default();
    for (sampler, want) in [
        (Sampler { top_p: Some(0.0), ..default }, "top_p must be in (0, 1], got 0"),
        (Sampler { top_p: Some(f64::NAN), ..default }, "top_p must be in (0, 1], got NaN"),
        (Sampler { min_p: Some(1.5), ..default }, "min_p must be in (0, 1], got 1.5"),
        (
            Sampler { repetition_penalty: 0.0, ..default },
            "the repetition penalty must be finite and above 0, got 0",
        ),
    ] {
        let text = panic_text(|| sampler.draw(&good, &mut Rng::new(0)));
        assert_eq!(text, format!("sampler: {want}"));
    }
    let penalty = Sampler { repetition_penalty: 2.0, ..default };
    let shown = panic_text(|| penalty.draw_after(&[2], &good, &mut Rng::new(0)));
    assert_eq!(shown, "sampler: token 2 is outside 0..2");
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
    let text = panic_text(|| drop(model.generate(&[], Sampler::default(), &mut Rng::new(0))));
    assert_eq!(text, "generate: the prompt is empty");
}

fn generate(prompt: &[i64], count: usize, sampler: Sampler, seed: u64) -> Vec<i64> {
    // Generation does not apply dropout.
    let model = gpt::<f32>(GptConfig { dropout: 0.5, ..config() }, 1);
    model.generate(prompt, sampler, &mut Rng::new(seed)).take(count).collect()
}

#[test]
fn text_is_a_function_of_prompt_and_seed() {
    let sampler = Sampler { temperature: 1.0, top_k: Some(5), ..Sampler::default() };
    let once = generate(&[1, 2], 40, sampler, 1);
    assert_eq!(once.len(), 40);
    assert!(once.iter().all(|t| (0..7).contains(t)));
    assert_eq!(once, generate(&[1, 2], 40, sampler, 1));
    assert_ne!(once, generate(&[1, 2], 40, sampler, 2));
    assert_eq!(once[..10], generate(&[1, 2], 10, sampler, 1));
    assert!(generate(&[1, 2], 0, sampler, 1).is_empty());
    let greedy = Sampler::greedy();
    assert_eq!(generate(&[1, 2], 20, greedy, 1), generate(&[1, 2], 20, greedy, 2));
}

#[test]
fn only_the_last_tokens_of_a_long_prompt_are_used() {
    let sampler = Sampler { temperature: 1.0, top_k: None, ..Sampler::default() };
    let long: Vec<i64> = (0..50).map(|i| i * i % 7).collect();
    let last = &long[long.len() - 6..];
    assert_eq!(generate(&long, 20, sampler, 3), generate(last, 20, sampler, 3));
    let shifted = &long[long.len() - 5..];
    assert_ne!(generate(&long, 20, sampler, 3), generate(shifted, 20, sampler, 3));
}

/// The distribution of a sampler, by token, where the logits are those of `p`.
fn distribution(sampler: Sampler, p: &[f64], earlier: &[i64]) -> Vec<(i64, f64)> {
    sampler.distribution(&Tensor::from_vec(p.to_vec(), [p.len()]).ln(), earlier)
}

#[test]
fn options_remove_tokens_in_the_documented_order() {
    let p = [0.05, 0.4, 0.2, 0.25, 0.1];
    let all = Sampler { temperature: 1.0, ..Sampler::default() };
    let close = |sampler: Sampler, want: &[(i64, f64)]| {
        let got = distribution(sampler, &p, &[]);
        assert_eq!(got.len(), want.len(), "{sampler:?}: {got:?}");
        for (x, y) in got.iter().zip(want) {
            assert!(x.0 == y.0 && (x.1 - y.1).abs() < 1e-12, "{sampler:?}: {got:?}");
        }
    };
    close(all, &[(1, 0.4), (3, 0.25), (2, 0.2), (4, 0.1), (0, 0.05)]);
    // 0.4 + 0.25 is below 0.7, so that a third token is needed; 0.65 needs two.
    let three = [(1, 0.4 / 0.85), (3, 0.25 / 0.85), (2, 0.2 / 0.85)];
    close(Sampler { top_p: Some(0.7), ..all }, &three);
    close(Sampler { top_p: Some(0.649), ..all }, &[(1, 0.4 / 0.65), (3, 0.25 / 0.65)]);
    close(Sampler { top_p: Some(1e-9), ..all }, &[(1, 1.0)]);
    close(Sampler { min_p: Some(0.45), ..all }, &three);
    close(Sampler { min_p: Some(1.0), ..all }, &[(1, 1.0)]);
    // Of the three tokens of top_k, two have 0.4 / 0.85 + 0.25 / 0.85 > 0.7.
    close(
        Sampler { top_k: Some(3), top_p: Some(0.7), ..all },
        &[(1, 0.4 / 0.65), (3, 0.25 / 0.65)],
    );
    // At temperature 0.5, probabilities are squared.
    let sum = 0.4f64.powi(2) + 0.25f64.powi(2);
    close(
        Sampler { temperature: 0.5, top_k: Some(2), ..all },
        &[(1, 0.16 / sum), (3, 0.0625 / sum)],
    );
}

#[test]
fn options_at_their_limits() {
    const INF: f64 = f64::INFINITY;
    let all = Sampler { temperature: 1.0, ..Sampler::default() };
    let top_p = |p| Sampler { top_p: Some(p), ..all };
    let top_k = |k| Sampler { top_k: Some(k), ..all };
    let min_p = |p| Sampler { min_p: Some(p), ..all };
    let at = |temperature, sampler| Sampler { temperature, ..sampler };
    let masked = [1e308, -1e308, -INF, 0.0];
    let [half, third, quarter, e] = [0.5, 1.0 / 3.0, 0.25, (-2f64).exp()];
    // Of equal tokens, whose probabilities have exact sums; of masked ones, which have no probability at
    // any temperature; and of logits whose difference overflows.
    type Case<'a> = (Sampler, &'a [f64], &'a [i64], &'a [f64]);
    let cases: [Case; 21] = [
        (top_p(0.25), &[0.0; 4], &[0], &[1.0]),
        (top_p(0.5), &[0.0; 4], &[0, 1], &[half; 2]),
        (top_p(0.75), &[0.0; 4], &[0, 1, 2], &[third; 3]),
        (top_p(0.75 + 1e-9), &[0.0; 4], &[0, 1, 2, 3], &[quarter; 4]),
        (top_p(1.0), &[0.0; 4], &[0, 1, 2, 3], &[quarter; 4]),
        (top_k(3), &[0.0; 4], &[0, 1, 2], &[third; 3]),
        (top_k(9), &[0.0; 2], &[0, 1], &[half; 2]),
        (min_p(1.0), &[0.0, -1.0, 0.0], &[0, 2], &[half; 2]),
        (at(INF, all), &masked, &[0, 3, 1, 2], &[third, third, third, 0.0]),
        (at(1e300, all), &[1.0, 3.0, 2.0], &[1, 2, 0], &[third; 3]),
        (at(INF, top_k(1)), &masked, &[0], &[1.0]),
        (at(INF, top_p(0.5)), &masked, &[0, 3], &[half; 2]),
        (at(INF, min_p(1.0)), &masked, &[0, 3, 1], &[third; 3]),
        (at(5e-324, all), &masked, &[0, 3, 1, 2], &[1.0, 0.0, 0.0, 0.0]),
        (at(0.0, all), &[-INF, -1e300, -INF], &[1], &[1.0]),
        // Greedy, whatever the other options; of equal logits the first.
        (Sampler::greedy(), &[1.0, 2.0, 2.0], &[1], &[1.0]),
        (at(0.0, top_k(1)), &[0.1, 7.0, -3.0, 6.999], &[1], &[1.0]),
        (at(0.0, top_k(3)), &[0.1, 7.0, -3.0, 6.999], &[1], &[1.0]),
        (at(0.0, top_k(100)), &[0.1, 7.0, -3.0, 6.999], &[1], &[1.0]),
        (all, &[-INF, -1e300, -INF], &[1, 0, 2], &[1.0, 0.0, 0.0]),
        (at(1e308, all), &[-1e308, 1e308], &[1, 0], &[1.0 / (1.0 + e), e / (1.0 + e)]),
    ];
    for (sampler, logits, tokens, p) in cases {
        let logits = Tensor::from_vec(logits.to_vec(), [logits.len()]);
        let (got, q): (Vec<i64>, Vec<f64>) = sampler.distribution(&logits, &[]).into_iter().unzip();
        let close = q.iter().zip(p).all(|(p, q)| (p - q).abs() < 1e-12);
        assert!(got == tokens && close, "{sampler:?} of {logits}: {got:?} {q:?}");
        let counts = draws(sampler, &logits, 60);
        assert!(got.iter().zip(p).all(|(&i, &p)| p > 0.0 || counts[i as usize] == 0));
    }
}

#[test]
fn the_repetition_penalty_changes_logits_once() {
    let sampler = Sampler { repetition_penalty: 2.0, temperature: 1.0, ..Sampler::default() };
    let logits = Tensor::from([2.0f64, -1.0, 0.5]);
    let got = sampler.distribution(&logits, &[0, 1, 0]);
    let e = [1f64, -2.0, 0.5].map(f64::exp);
    let sum: f64 = e.iter().sum();
    for (token, p) in got {
        assert!((p - e[token as usize] / sum).abs() < 1e-12, "{token}: {p}");
    }
    // Greedy generation with a penalty does not repeat a token while there is a positive logit left.
    let model = gpt::<f32>(config(), 1);
    let greedy = Sampler { repetition_penalty: 1e6, ..Sampler::greedy() };
    let mut rng = Rng::new(0);
    let made: Vec<i64> = model.generate(&[1], greedy, &mut rng).take(3).collect();
    assert!(!made.contains(&1) && made[0] != made[1], "{made:?}");
}

#[test]
fn rows_of_a_batch_equal_single_sequences() {
    let model = gpt::<f64>(GptConfig { context: 32, ..config() }, 4);
    let prompts: [&[i64]; 4] = [&[1, 2, 3, 4, 5], &[6], &[0, 0], &[5, 4, 3, 2, 1]];
    let batch = model.generate_batch(&prompts, 9, Sampler::greedy(), &mut Rng::new(1));
    for (prompt, tokens) in prompts.iter().zip(&batch) {
        let mut rng = Rng::new(7);
        let alone: Vec<i64> = model.generate(prompt, Sampler::greedy(), &mut rng).take(9).collect();
        assert_eq!(&alone, tokens, "{prompt:?}");
    }
    // Rows are drawn independently, and reproducibly.
    let sampler = Sampler { temperature: 1.0, ..Sampler::default() };
    let run = |seed| model.generate_batch(&[&[1], &[1], &[1]], 20, sampler, &mut Rng::new(seed));
    let rows = run(3);
    assert!(rows[0] != rows[1] && rows[1] != rows[2]);
    assert_eq!(rows, run(3));
    assert_ne!(rows, run(4));
    assert!(model.generate_batch(&[], 3, sampler, &mut Rng::new(1)).is_empty());
    let none = model.generate_batch(&[&[1]], 0, sampler, &mut Rng::new(1));
    assert!(none.len() == 1 && none[0].is_empty());
    let text = panic_text(|| model.generate_batch(&[&[1], &[]], 3, sampler, &mut Rng::new(1)));
    assert_eq!(text, "generate: the prompt is empty");
    let text = panic_text(|| drop(model.generate(&[9], sampler, &mut Rng::new(1))));
    assert_eq!(text, "gpt: token 9 at position 0 is outside 0..7");
}

/// The logits after each token of a sequence, computed from the last `context` tokens.
fn recomputed(model: &Gpt<f64>, tokens: &[i64]) -> Vec<Tensor<f64>> {
    let context = model.config().context;
    let of = |end: usize| {
        let window = &tokens[end.saturating_sub(context)..end];
        let input = Tensor::from_vec(window.to_vec(), [window.len()]);
        model.forward(&input, &mut Pass::eval()).value().select(0, window.len() - 1)
    };
    (1..=tokens.len()).map(of).collect()
}

fn relative(positions: Positions, layers: usize, context: usize) -> Gpt<f64> {
    let config = GptConfig { context, layers, positions, ..config() };
    Gpt::new(config, &mut Rng::new(8)).unwrap()
}

/// In one layer, keys and values do not depend on earlier tokens, so a rolling cache is exact.
#[test]
fn a_rolling_cache_equals_recomputation_in_one_layer() {
    let tokens: Vec<i64> = (0..40).map(|i| i * i % 7).collect();
    let rope = Positions::Rope(RopeConfig::default());
    for positions in [rope, Positions::Alibi, Positions::T5, Positions::None] {
        for context in [1, 2, 5, 6] {
            let model = relative(positions, 1, context);
            let want = recomputed(&model, &tokens);
            let mut cache = model.rolling_cache();
            let first = Tensor::from_vec(tokens[..context].to_vec(), [1, context]);
            let mut got =
                vec![model.forward_cached(&first, &mut cache).value().select(1, context - 1)];
            for &token in &tokens[context..] {
                let x = Tensor::from([[token]]);
                got.push(model.forward_cached(&x, &mut cache).value().select(1, 0));
            }
            for (i, (x, y)) in got.iter().zip(&want[context - 1..]).enumerate() {
                let difference = (&x.select(0, 0) - y).abs().max(..).item();
                assert!(difference < 1e-12, "{positions:?}, {context}, {i}: {difference}");
            }
            let text = panic_text(|| {
                model.forward_cached(&Tensor::<i64>::zeros([1, context + 1]), &mut cache)
            });
            assert!(text.contains("longer than the context"), "{text}");
        }
    }
}

#[test]
fn generation_continues_beyond_the_context() {
    let greedy = |model: &Gpt<f64>, beyond| {
        let mut rng = Rng::new(0);
        let tokens = model.generate(&[1, 2, 3], Sampler::greedy(), &mut rng);
        tokens.beyond_context(beyond).take(40).collect::<Vec<i64>>()
    };
    let by_hand = |model: &Gpt<f64>, kept: usize| {
        let (mut tokens, mut start) = (vec![1i64, 2, 3], 0);
        for _ in 0..40 {
            if tokens.len() - start > 6 {
                start = tokens.len() - kept;
            }
            let input = Tensor::from_vec(tokens[start..].to_vec(), [tokens.len() - start]);
            let logits = model.forward(&input, &mut Pass::eval()).into_value();
            tokens.push(logits.select(0, input.numel() - 1).argmax(0).item());
        }
        tokens.split_off(3)
    };
    let rope = relative(Positions::Rope(RopeConfig::default()), 2, 6);
    let learned = relative(Positions::Learned, 2, 6);
    for model in [&rope, &learned] {
        assert_eq!(greedy(model, BeyondContext::Half), by_hand(model, 3));
        assert_eq!(greedy(model, BeyondContext::Recompute), by_hand(model, 6));
    }
    assert_eq!(greedy(&learned, BeyondContext::Auto), greedy(&learned, BeyondContext::Half));
    assert_eq!(greedy(&rope, BeyondContext::Auto), greedy(&rope, BeyondContext::Rolling));
    let text = panic_text(|| greedy(&learned, BeyondContext::Rolling));
    assert!(text.contains("cannot roll") && text.contains("BeyondContext::Half"), "{text}");
    let text = panic_text(|| learned.rolling_cache());
    assert!(text.contains("cannot roll"), "{text}");
}

/// Every variant, with every encoding of positions that it supports.
#[test]
fn every_variant_generates_beyond_the_context() {
    let mut rolling = 0;
    for &kind in AttentionKind::ALL {
        for positions in
            [Positions::Learned, Positions::Rope(RopeConfig::default()), Positions::None]
        {
            let config = GptConfig { positions, ..config().with_attention(kind) };
            if config.check().is_err() {
                continue;
            }
            let model = Gpt::<f64>::new(config, &mut Rng::new(8)).unwrap();
            rolling += usize::from(model.can_roll());
            let (sampler, mut rng) = (Sampler::default(), Rng::new(0));
            let tokens = model.generate(&[1, 2], sampler, &mut rng).take(30);
            assert!(tokens.into_iter().all(|t| (0..7).contains(&t)), "{kind}");
            let rows = model.generate_batch(&[&[1, 2], &[3]], 15, sampler, &mut Rng::new(1));
            assert!(rows.iter().all(|row| row.len() == 15), "{kind}");
        }
    }
    assert!(rolling > 30, "{rolling}");
}

#[test]
fn log_probabilities_are_those_of_the_loss() {
    let model = gpt::<f64>(config(), 3);
    let tokens = Tensor::from([[1i64, 2, 6, 0], [5, 5, 4, 1]]);
    let log_p = model.log_probs(&tokens);
    assert_eq!(*log_p.shape(), [2, 3]);
    let loss = model.loss(&tokens.narrow(1, 0, 3), &tokens.narrow(1, 1, 3), &mut Pass::eval());
    assert!((log_p.mean(..).item() + loss.item()).abs() < 1e-12);
    assert_eq!(*model.log_probs(&Tensor::from([1i64])).shape(), [0]);
    let text = panic_text(|| model.log_probs(&Tensor::<i64>::zeros([2, 0])));
    assert_eq!(text, "log_probs: there is no token");
}

#[test]
fn text_ends_at_the_first_stop_string() {
    let text = |pieces: &[&str], stops: &[&str]| -> Vec<String> {
        until(pieces, stops.iter().copied()).collect()
    };
    assert_eq!(text(&["a", "b", "c"], &["x"]).concat(), "abc");
    assert_eq!(text(&["ab\n", "\nc"], &["\n\n"]).concat(), "ab");
    assert_eq!(text(&["ab\n", "c\n"], &["\n\n"]).concat(), "ab\nc\n"); // held until the end
    assert_eq!(text(&["abcab", "d"], &["abd", "zz"]).concat(), "abc");
    assert_eq!(text(&["aab", "x"], &["b", "aa"]).concat(), "");
    assert_eq!(text(&["é", "è", "à"], &["èà"]).concat(), "é");
    assert_eq!(text(&["abc"], &[""]).concat(), "");
    assert_eq!(text(&["abc"], &[]).concat(), "abc");
    // What cannot be the beginning of a stop string is returned at once.
    let mut pieces = until(["ab", "ax", "ay"], ["axe"]);
    assert_eq!(pieces.next().as_deref(), Some("ab"));
    assert_eq!(pieces.next().as_deref(), Some(""));
    assert_eq!(pieces.next().as_deref(), Some("axay"));
    assert_eq!(pieces.next(), None);
}
