//! What is computed for the page of a run: baselines, verdicts, averages of heads, and series of any length.

use retrograd_study::{Baselines, HeadLook, RunLook, RunPage, RunStep};
use retrograd_support::document::data;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// The data of the page.
fn shown(page: &RunPage) -> Value {
    data(&page.page().html())
}

fn step(step: u64, loss: f64) -> RunStep {
    RunStep { step, loss, lr: 0.1, grad_norm: 1.0, seconds: 0.5 }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().unwrap()
}

/// Numbers; NaN where there is none.
fn numbers(values: &Value) -> Vec<f64> {
    list(values).iter().map(|x| x.as_f64().unwrap_or(f64::NAN)).collect()
}

/// The formulas, word by word.
fn direct(train: &[i64], held_out: &[i64], vocab: usize) -> [f64; 3] {
    let n = |b: i64| train.iter().filter(|&&t| t == b).count() as f64;
    let p = |b: i64| (n(b) + 1.0) / (train.len() as f64 + vocab as f64);
    let pairs: Vec<(i64, i64)> = train.windows(2).map(|w| (w[0], w[1])).collect();
    let of_pair = |a: i64, b: i64| {
        let followers: Vec<i64> = pairs.iter().filter(|x| x.0 == a).map(|x| x.1).collect();
        if followers.is_empty() {
            return p(b);
        }
        let different = followers.iter().collect::<BTreeSet<_>>().len() as f64;
        let both = followers.iter().filter(|&&f| f == b).count() as f64;
        (both + different * p(b)) / (followers.len() as f64 + different)
    };
    let mean = |f: &dyn Fn(i64, i64) -> f64| {
        let all = held_out.windows(2).map(|w| -f(w[0], w[1]).ln());
        all.sum::<f64>() / (held_out.len() - 1) as f64
    };
    [(vocab as f64).ln(), mean(&|_, b| p(b)), mean(&|a, b| of_pair(a, b))]
}

#[test]
fn baselines_are_the_formulas() {
    let mut state = 7u64;
    let mut next = |vocab: i64| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        // Small tokens are frequent, and the largest do not occur.
        let x = (state >> 33) as f64 / 2f64.powi(31);
        (x * x * (vocab - 2) as f64) as i64
    };
    // A table, and a map.
    for vocab in [5, 40, 2049] {
        let train: Vec<i64> = (0..700).map(|_| next(vocab as i64)).collect();
        let held_out: Vec<i64> =
            (0..150).map(|_| next(vocab as i64)).chain([vocab as i64 - 1, 0, 1]).collect();
        let found = Baselines::of(&train, &held_out, vocab);
        for (found, wanted) in [found.uniform, found.unigram, found.bigram]
            .into_iter()
            .zip(direct(&train, &held_out, vocab))
        {
            assert!((found - wanted).abs() < 1e-12, "{vocab}: {found}, not {wanted}");
        }
    }
}

#[test]
fn probabilities_sum_to_one() {
    let train = [0, 1, 2, 0, 1, 1, 0, 2, 2, 2, 0];
    for a in 0..4i64 {
        // The loss of a held-out pair is -ln p(b | a).
        let p = |b: i64| (-Baselines::of(&train, &[a, b], 4).bigram).exp();
        assert!(((0..4).map(p).sum::<f64>() - 1.0).abs() < 1e-12, "after {a}");
    }
}

/// Steps from one evaluation to the next one.
const EVERY: usize = 60;

/// The first verdict on a run with these held-out losses, and these losses of batches before each evaluation.
fn verdict(held_out: &[f64], batch: &[f64]) -> [String; 2] {
    let mut page = RunPage::new("A run");
    for i in 0..held_out.len().max(batch.len()) {
        if let (Some(&loss), 1..) = (batch.get(i), i) {
            let before = EVERY * (i - 1);
            (before + 1..=before + EVERY).for_each(|s| page.step(step(s as u64, loss)));
        }
        if let Some(&loss) = held_out.get(i) {
            page.evaluation((EVERY * i) as u64, loss);
        }
    }
    ["text", "rule"].map(|part| shown(&page)["verdicts"][0][part].as_str().unwrap().to_string())
}

#[test]
fn curves_have_their_verdicts() {
    let falling = [4.0, 3.0, 2.5, 2.2, 2.0, 1.9, 1.8, 1.7];
    let [text, rule] = verdict(&falling, &falling);
    assert!(text.contains("still falls") && rule.starts_with("With at least four"), "{text}");
    let flat = [4.0, 3.0, 2.0, 1.801, 1.80, 1.802, 1.801, 1.80, 1.80];
    let [plateau, _] = verdict(&flat, &flat);
    assert!(plateau.starts_with("Plateau since step 180"), "{plateau}");
    let risen = [4.0, 3.0, 2.0, 1.8, 1.9, 2.1, 2.3];
    let [overfits, _] = verdict(&risen, &[4.0, 3.0, 2.0, 1.5, 1.2, 1.0, 0.8]);
    assert!(overfits.contains("overfits since step 180"), "{overfits}");
    // The batch loss rises, too.
    let rising = [3.0, 2.0, 2.5, 3.0, 3.5, 3.6, 3.7];
    let [text, rule] = verdict(&rising, &rising);
    assert!(rule.starts_with("The learning rate counts as too high"), "{text}");
    assert!(verdict(&[4.0, 3.0], &[4.0])[0].starts_with("Too early"));
    assert!(verdict(&[], &[])[0].starts_with("Too early"));
}

#[test]
fn the_nearest_line_below_which_the_loss_stays_is_named() {
    let of = |losses: &[f64]| {
        let baselines = Baselines { uniform: 4.0, unigram: 3.0, bigram: 2.0 };
        let mut page = RunPage::new("A run").baselines(baselines).clip(1.0);
        // Of the last ten steps, six are clipped.
        for s in 1..=40 {
            let grad_norm = if s % 5 < 3 { 2.0 } else { 0.5 };
            page.step(RunStep { grad_norm, ..step(s, f64::NAN) });
        }
        (0..).zip(losses).for_each(|(step, loss)| page.evaluation(step, *loss));
        let verdicts = &shown(&page)["verdicts"];
        assert!(verdicts[2]["text"].as_str().unwrap().starts_with("60 %"));
        verdicts[1]["text"].as_str().unwrap().to_string()
    };
    let cases: [(&[f64], &str); 3] = [
        (&[4.1, 2.9, 3.1, 2.8, 2.1], "Better than frequencies of tokens (unigrams) since step 3"),
        (&[4.1, 1.9, 1.8], "Better than counts of pairs (bigrams) since step 1"),
        (&[4.1, 4.2], "The held-out loss of 4.200 is not below that of blind guessing, 4.000"),
    ];
    for (losses, text) in cases {
        assert!(of(losses).starts_with(text), "{text}: {}", of(losses));
    }
}

#[test]
fn entropies_are_relative_to_equal_weights() {
    let equal = |n: usize| -> Vec<f32> {
        let weight = |i, j| if j <= i { 1.0 / (i + 1) as f32 } else { 0.0 };
        (0..n * n).map(|k| weight(k / n, k % n)).collect()
    };
    assert!((HeadLook::new(&equal(7), 7).entropy - 1.0).abs() < 1e-4);
    // Weights of a head with a sink sum to less.
    let half: Vec<f32> = equal(7).iter().map(|w| w / 2.0).collect();
    assert!((HeadLook::new(&half, 7).entropy - 1.0).abs() < 1e-4);
    let own: Vec<f32> = (0..49).map(|k| f32::from(u8::from(k / 7 == k % 7))).collect();
    assert_eq!(HeadLook::new(&own, 7).entropy, 0.0);
    assert_eq!(HeadLook::new(&own, 7).distance, Some(0.0));
    // Of i + 1 equal weights the mean distance is i / 2; over i = 1 to 6 that is 1.75, also beside a sink.
    assert_eq!(HeadLook::new(&equal(7), 7).distance, Some(1.75));
    assert_eq!(HeadLook::new(&half, 7).distance, Some(1.75));
    assert_eq!(HeadLook::new(&[f32::NAN; 4], 2).distance, None);
    // One token, none at all, and rows without weights.
    assert_eq!(HeadLook::new(&[1.0], 1).entropy, 0.0);
    assert_eq!(HeadLook::new(&[], 0).weights, "");
    assert_eq!(HeadLook::new(&[0.0; 9], 3).entropy, 0.0);
    assert_eq!(HeadLook::new(&[0.0; 9], 3).distance, Some(0.0));
}

#[test]
fn extremes_survive_any_reduction() {
    let n = 123_457;
    let value = |step: u64| if step == 77_777 { 1e6 } else { (step as f64 * 0.1).sin() };
    let mut page = RunPage::new("Long");
    (1..=n).for_each(|s| page.step(step(s, value(s))));
    let found = shown(&page);
    let all = &found["series"]["loss"];
    let [low, high, mean] = ["low", "high", "mean"].map(|name| numbers(&all[name]));
    assert!((1000..=2000).contains(&low.len()), "{}", low.len());
    // Every step is in one point, whose extremes and mean are those of its steps.
    let each = n.div_ceil(2000).next_power_of_two();
    assert!(found["left_out"][0].as_str().unwrap().contains(&format!("stands for {each} steps")));
    assert_eq!(low.len() as u64, n.div_ceil(each));
    let steps = numbers(&found["series"]["step"]);
    for i in 0..low.len() {
        let (first, last) = (i as u64 * each + 1, n.min((i as u64 + 1) * each));
        let values: Vec<f64> = (first..=last).map(value).collect();
        let wanted = [
            values.iter().copied().fold(f64::INFINITY, f64::min),
            values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            values.iter().sum::<f64>() / values.len() as f64,
        ];
        for (x, wanted) in [low[i], high[i], mean[i]].into_iter().zip(wanted) {
            assert!((x - wanted).abs() <= 1e-4 * wanted.abs(), "point {i}: {x}, not {wanted}");
        }
        assert_eq!(steps[i], first.midpoint(last) as f64);
    }
    assert_eq!(high.into_iter().fold(0.0, f64::max), 1e6);
    // Beside texts that need nearly all of the page.
    let rows = (0..200).map(|i| (i.to_string(), "<".repeat(1000))).collect::<Vec<_>>();
    rows.iter().for_each(|(_, text)| page.event(n, "note", text));
    let series = &shown(&page.recipe(rows.clone(), Some(("base", rows))))["series"];
    let high = numbers(&series["loss"]["high"]);
    assert!(high.len() <= 100 && high.into_iter().fold(0.0, f64::max) == 1e6);
    assert!(numbers(&series["step"]).last().unwrap() > &(n as f64 - 1300.0));
}

#[test]
fn short_series_are_kept_as_they_are() {
    let mut page = RunPage::new("Short");
    let odd = |s: u64| RunStep { grad_norm: f64::NAN, ..step(s, s as f64) };
    (1..=2000).for_each(|s| page.step(odd(s)));
    let series = &shown(&page)["series"];
    let at = |name: &str| (&series[name][6], &series[name]["mean"][6]);
    assert_eq!((at("step").0, at("seconds").0, at("loss").1), (&json!(7), &json!(3.5), &json!(7)));
    assert!(at("grad_norm").1.is_null() && series["loss"]["low"].is_null());
    page.step(odd(2001));
    let series = &shown(&page)["series"];
    assert_eq!(list(&series["loss"]["low"]).len(), 1001);
}

#[test]
fn looks_are_thinned_evenly() {
    let mut page = RunPage::new("Looks");
    for i in 0..10_001usize {
        page.look(RunLook { step: i as u64, ..RunLook::default() });
        if ![0, 1, 150, 199, 200, 201, 399, 400, 401, 402, 999, 10_000].contains(&i) {
            continue;
        }
        let looks = &shown(&page)["looks"]["at"];
        let at: Vec<u64> = list(looks).iter().map(|look| look["step"].as_u64().unwrap()).collect();
        assert_eq!((at[0], at.last()), (0, Some(&(i as u64))));
        assert_eq!(at.len(), 200.min(i + 1));
        let gaps: BTreeSet<u64> = at.windows(2).map(|w| w[1] - w[0]).collect();
        assert!(gaps.last() <= gaps.first().map(|gap| gap * 2).as_ref(), "{i}: {gaps:?}");
    }
}

/// The numbers of the looks whose weights are shown.
fn with_weights(looks: u64, bytes: usize) -> Vec<usize> {
    let mut page = RunPage::new("Weights");
    let head = HeadLook { weights: "A".repeat(bytes), ..HeadLook::default() };
    for step in 0..looks {
        page.look(RunLook { step, heads: vec![head.clone()], ..RunLook::default() });
    }
    let looks = &shown(&page)["looks"]["at"];
    let all = list(looks).iter().enumerate();
    all.filter(|(_, look)| !look["weights"].is_null()).map(|(i, _)| i).collect()
}

/// There are at most 1.3 MB of weights.
#[test]
fn weights_are_those_of_looks_with_both_ends() {
    assert_eq!(with_weights(3, 260_000), [0, 1, 2]);
    assert_eq!(with_weights(101, 260_000), [0, 25, 50, 75, 100]);
    assert_eq!(with_weights(9, 1_300_000), [8]);
    assert!(with_weights(0, 1).is_empty() && with_weights(4, 1_300_001).is_empty());
}

#[test]
fn a_smoothed_constant_is_the_constant() {
    let mut page = RunPage::new("Constant");
    let losses = [f64::NAN].into_iter().chain([2.5; 1000]).chain([f64::INFINITY]);
    (1..).zip(losses).for_each(|(s, loss)| page.step(step(s, loss)));
    let smoothed = numbers(&shown(&page)["series"]["smoothed"]);
    assert!(smoothed.len() == 1002 && smoothed[0].is_nan());
    assert!(smoothed[1..].iter().all(|x| (x - 2.5).abs() < 1e-12));
}
