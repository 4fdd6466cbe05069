//! Which sequences of a batch moved the weights.

use crate::program::{FAILED, Place, TINY, USAGE};
use retrograd::nn::text::{Corpus, Documents};
use retrograd::nn::training::Purpose;
use retrograd::prelude::*;
use retrograd_support::browser::check_page;

/// The rows of the table: numbers of sequences, losses, shares of the gradient norms, and the rest.
fn rows(out: &str) -> Vec<(usize, f64, f64, String)> {
    let rows = out.lines().skip(1).map_while(|line| {
        let mut words = line.split_whitespace();
        let mut next = || words.next().unwrap_or_default();
        next().parse::<usize>().ok()?;
        let (number, loss, _, _, share, _) = (next(), next(), next(), next(), next(), next());
        let rest = words.collect::<Vec<_>>().join(" ");
        Some((number.parse().unwrap(), loss.parse().unwrap(), share.parse().unwrap(), rest))
    });
    rows.collect()
}

#[test]
fn a_line_of_noise_is_named_first() {
    const NOISE: &str = "QZ7#KX4@VJ9%WY2&";
    let noise: String = (0..100).map(|i| NOISE.as_bytes()[i * i * 7 % 61 % 16] as char).collect();
    let line = "the cat sat on the mat. ".repeat(1500);
    let text = format!("{line}\n{noise}\n{line}");
    let place = Place::new();
    place.write("text", &text);

    // A run that sees noise first in one window of a late step.
    let (documents, tokenizer) = (Documents::of(text.clone()), Tokenizer::chars([text.as_str()]));
    let corpus = Corpus::new(&documents, 0.1, &tokenizer).unwrap();
    let noise = |seed: u64, step: u64| {
        let tokens = corpus.batch(Purpose::Batches.seed(seed), step - 1, 8, 32).tokens;
        let row = |i| tokenizer.decode(&tokens.select(0, i).to_vec());
        let count = |i| row(i).chars().filter(|&c| NOISE.contains(c)).count();
        (0..8).map(count).collect::<Vec<_>>()
    };
    let first = |seed: u64| {
        let (step, counts) = (1..=120)
            .map(|step| (step, noise(seed, step)))
            .find(|(_, counts)| counts.iter().any(|&n| n > 0))?;
        let noisy = counts.iter().position(|&n| n > 24)?;
        (step > 80).then_some((seed, step, noisy + 1))
    };
    let (seed, step, sequence) = (1..).find_map(first).unwrap();
    let flags = "--data text --steps 120 --keep-every 20 --dropout 0.1 --shards 2";
    place.ok(&format!("train --preset tiny --quiet --no-page --out run {flags} --seed {seed}"));

    let out = place.ok(&format!("blame run {step}"));
    let rows = rows(&out);
    assert!(rows.len() == 8 && rows[0].0 == sequence && rows[0].2 > 30.0, "{seed}: {out}");
    assert!(out.contains(&format!("\nSequence {sequence} has ")), "{out}");
    assert!(rows[2].3.contains(" +0.") || rows[2].3.contains(" -0."), "{out}");
    assert!(rows[3].3.contains(" – \""), "{out}");
    // The loss of the step is the mean, with the dropout of the step.
    let is_step = |line: &&serde_json::Value| line["step"] == step && line.get("lr").is_some();
    let logged = place.log("run").iter().find(is_step).unwrap()["loss"].as_f64().unwrap();
    let mean = rows.iter().map(|row| row.1).sum::<f64>() / 8.0;
    assert!((mean - logged).abs() < 1e-4, "{mean}, not {logged}");

    let page = format!("run/blame-{}.html", step - 1);
    assert!(place.read(&page).contains(&format!("retrograd replay run {step} --xray")));
    check_page(&place.path(&page));
    place.ok(&format!("replay run {step} --xray"));
    let again = place.ok(&format!("blame run {step} --without 0 --page new/page.html --threads 1"));
    assert!(again.contains(&format!("Sequence {sequence} has ")) && !again.contains("without it"));
    // Each step without a sequence begins at the same state.
    let all = place.ok(&format!("blame run {step} --without 99"));
    assert!(all.lines().take(4).eq(out.lines().take(4)) && !all.contains(" – "), "{all}");
    assert!(place.read(&page).contains(&format!("\"xray\":\"xray-{}.html\"", step - 1)));
    assert!(place.read("new/page.html").contains("\"xray\":null"));
}

#[test]
fn equal_sequences_have_equal_shares() {
    let place = Place::new();
    place.write("text", "ab".repeat(2000));
    place
        .ok("train --preset tiny --quiet --no-page --data text --steps 3 --keep-every 1 --out run");
    let out = place.ok("blame run 2 --no-page");
    assert!(!place.exists("run/blame-1.html"));
    assert!(rows(&out).iter().all(|row| (row.2 - 12.5).abs() < 3.0), "{out}");
}

#[test]
fn steps_without_an_answer_are_refused() {
    let place = Place::new();
    place.train("run", 4, "--keep-every 2");
    place.fails("blame run 6", USAGE, &["has no step 6; its log has steps 1 to 4"]);
    place.fails("blame run 5", USAGE, &["the run in run has ended before step 5, or failed in it"]);
    place.fails("blame run 3 --page p --no-page", USAGE, &["cannot be used with"]);
    place.write("other", "another text ".repeat(500));
    place.fails("blame run 1 --data other", FAILED, &["was trained on a text that differs"]);
    place.train("none", 4, "--keep-size 1KB");
    place.fails("blame none 3", FAILED, &["none has no checkpoint of step 2 or before"]);
    place.run(&format!("{TINY} --quiet --no-page --out one --steps 2 --batch 1")).ok();
    place.fails("blame one 1 --without 1", USAGE, &["a batch of one sequence"]);
    assert!(place.ok("blame one 1").contains("Sequence 1 has 100 % of the gradient norms."));
}
