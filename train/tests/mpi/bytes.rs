//! Any number of ranks writes the same checkpoint, byte for byte.

use crate::launch::{checkpoint, run, setting};
use crate::program::Place;
use std::fs;

#[test]
fn any_number_of_ranks_writes_the_same_checkpoint() {
    let steps = setting("RETROGRAD_MPI_STEPS", 20).to_string();
    let nanogpt: &[&str] = &["train", "--preset", "nanogpt-cpu"];
    // Grouped queries are a part of `modern`.
    let modern: &[&str] =
        &["train", "--preset", "modern", "--optimizer", "muon", "--lr", "0.02", "--dropout", "0.2"];
    for (name, recipe) in [("nanogpt", nanogpt), ("modern", modern)] {
        let place = Place::new();
        let common = [recipe, &["--shards", "8", "--steps", &steps, "--quiet", "--out"]].concat();
        place.run(&[&common[..], &["alone"]].concat()).ok();
        let alone = checkpoint(&place, "alone");
        for ranks in [1, 2, 3, 4, 8] {
            let out = format!("{ranks}");
            run(&place, ranks, &[&common[..], &[&out]].concat()).ok();
            assert!(checkpoint(&place, &out) == alone, "{name}: {ranks} ranks");
            println!(
                "{name}, {steps} steps: {ranks} ranks wrote the {} bytes of one process",
                alone.len()
            );
        }
    }
}

/// The lines of `looks.jsonl` about the model, and the steps of those about starts.
fn looks(place: &Place, folder: &str) -> Vec<String> {
    let text = fs::read_to_string(place.path(folder).join("looks.jsonl")).unwrap();
    let kept = text.lines().filter_map(|line| match line.strip_prefix("{\"start\":{\"step\":") {
        Some(start) => start.split(',').next().map(|step| format!("start at {step}")),
        None => line.starts_with("{\"look\"").then(|| line.to_string()),
    });
    kept.collect()
}

#[test]
fn another_number_of_ranks_resumes_a_run() {
    let place = Place::new();
    let recipe = ["train", "--preset", "tiny", "--dropout", "0.1", "--shards", "4", "--quiet"];
    let args = |more: &[&'static str]| [&recipe[..], more].concat();
    place.run(&args(&["--steps", "30", "--eval-every", "10", "--out", "whole"])).ok();
    run(&place, 3, &args(&["--steps", "10", "--out", "parts"])).ok();
    // The schedule is that of the whole run from here on, as it is in one process.
    place.run(&args(&["--steps", "10", "--out", "alone"])).ok();
    for (ranks, out) in [(2, "parts"), (1, "alone")] {
        run(&place, ranks, &["resume", "--steps", "20", "--quiet", "--out", out]).ok();
    }
    run(&place, 4, &["resume", "--steps", "30", "--quiet", "--out", "parts"]).ok();
    place.run(&["resume", "--steps", "30", "--quiet", "--out", "alone"]).ok();
    assert!(checkpoint(&place, "parts") == checkpoint(&place, "alone"));
    // Rank 0 alone writes the page, which has the same gradients and updates.
    let [parts, alone] = ["parts", "alone"].map(|folder| looks(&place, folder));
    assert_eq!(parts, alone);
    let starts: Vec<&String> = parts.iter().filter(|line| line.starts_with("start")).collect();
    assert_eq!(starts, ["start at 0", "start at 10", "start at 20"]);
    assert!(parts.len() > starts.len() + 10, "{} lines", parts.len());
    assert!(place.path("parts/run.html").exists());
    let evaluated = run(&place, 3, &["evaluate", "--out", "parts"]).ok();
    assert_eq!(evaluated, place.run(&["evaluate", "--out", "parts"]).ok());
}
