//! Which sequences of a batch moved the weights.

use crate::program::{FAILED, Place, USAGE};
use retrograd::nn::text::{Corpus, Documents};
use retrograd::nn::training::Purpose;
use retrograd::prelude::*;
use retrograd_support::browser::check_page;

/// A number of each row of the table.
fn column(out: &str, at: usize) -> Vec<f64> {
    let rows = out.lines().filter(|line| line.starts_with("  "));
    rows.map(|line| line.split_whitespace().nth(at).unwrap().parse().unwrap()).collect()
}

#[test]
fn a_line_of_noise_is_named_first() {
    let noise = (0..60).map(|i| ('α'..='π').nth(i * i * 7 % 61 % 16).unwrap()).collect::<String>();
    let line = "the cat sat on the mat. ".repeat(1500);
    let text = format!("{line}\n{noise}\n{line}");
    let (documents, tokenizer) = (Documents::of(text.clone()), Tokenizer::chars([text.as_str()]));
    let corpus = Corpus::new(&documents, 0.1, &tokenizer).unwrap();
    let last_letter = tokenizer.encode("t").unwrap()[0];
    let noise = |seed: u64, step: u64| -> Vec<usize> {
        let tokens = corpus.batch(Purpose::Batches.seed(seed), step - 1, 8, 32).tokens.to_vec();
        tokens.chunks(32).map(|row| row.iter().filter(|&&t| t > last_letter).count()).collect()
    };
    // A run that meets noise first in a late step.
    let late = |seed: u64| {
        let step = (1..=120).find(|&step| noise(seed, step).iter().any(|&n| n > 0))?;
        let sequence = noise(seed, step).iter().position(|&n| n > 24)? + 1;
        (step > 80).then_some((seed, step, sequence))
    };
    let (seed, step, sequence) = (1..1000).find_map(late).unwrap();
    let place = Place::new();
    place.write("text", &text);
    let flags = format!("--steps 120 --keep-every 20 --dropout 0.1 --shards 2 --seed {seed}");
    place.ok(&format!("train --preset tiny --quiet --no-page --data text --out run {flags}"));

    let out = place.ok(&format!("blame run {step}"));
    let says = format!("\nSequence {sequence} has ");
    assert!(out.contains(&says) && column(&out, 5)[0] > 30.0, "{out}");
    // Shares of the loss of the step: with its dropout.
    assert!((column(&out, 3).iter().sum::<f64>() - 100.0).abs() < 0.4, "{out}");
    let page = format!("run/blame-{}.html", step - 1);
    assert!(place.read(&page).contains(&format!("retrograd replay run {step} --xray")));
    check_page(&place.path(&page));

    // Each step without a sequence begins at the same state.
    place.ok(&format!("replay run {step} --xray"));
    let all = place.ok(&format!("blame run {step} --without 99"));
    assert!(all.lines().take(4).eq(out.lines().take(4)), "{all}");
    assert!(place.read(&page).contains(&format!("\"xray\":\"xray-{}.html\"", step - 1)));
    let none = place.ok(&format!("blame run {step} --without 0 --page new/page --threads 1"));
    assert!(none.contains(&says) && !none.contains("without it") && place.exists("new/page"));
}

#[test]
fn equal_sequences_have_equal_shares_and_other_steps_are_refused() {
    let place = Place::new();
    place.write("text", "ab".repeat(2000));
    place.ok("train --preset tiny --no-page --data text --steps 3 --keep-every 1 --out run");
    let out = place.ok("blame run 2 --no-page");
    assert!(column(&out, 5).iter().all(|share| (share - 12.5).abs() < 3.0), "{out}");

    // Nor does the mean of the gradients change much without one.
    let out = place.ok("blame run 3 --no-page --without 3");
    let effects = out.lines().filter_map(|line| line.split_whitespace().nth(8)?.parse().ok());
    let effects: Vec<f64> = effects.collect();
    assert!(effects.len() == 3 && effects.iter().all(|effect| effect.abs() < 0.0015), "{out}");

    place.fails("blame run 5", USAGE, &["has no step 5; its log has steps 1 to 3"]);
    place.fails("blame run 4", USAGE, &["the run in run has ended before step 4, or failed in it"]);
    place.fails("blame run 1 --data run/log.jsonl", FAILED, &["on a text that differs"]);
    place.train("one", 4, "--batch 1 --keep-size 1KB");
    place.fails("blame one 1 --without 1", USAGE, &["the batch is a single sequence"]);
    place.fails("blame one 3", FAILED, &["no checkpoint of step 2 or before"]);
}
