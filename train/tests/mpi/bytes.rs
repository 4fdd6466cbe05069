//! Any number of ranks writes the same checkpoint, byte for byte.

use crate::launch::run;
use crate::program::{Place, setting};

#[test]
fn any_number_of_ranks_writes_the_same_checkpoint() {
    let steps = setting("RETROGRAD_MPI_STEPS", 20);
    // Grouped queries are a part of `modern`.
    for (name, flags) in
        [("nanogpt-cpu", ""), ("modern", "--optimizer muon --lr 0.02 --dropout 0.2")]
    {
        let place = Place::new();
        let common = format!("train --preset {name} {flags} --shards 8 --steps {steps} --quiet");
        place.ok(&format!("{common} --out alone"));
        let alone = place.checkpoint("alone");
        for ranks in [1, 2, 3, 4, 8] {
            run(&place, ranks, &format!("{common} --out {ranks}")).ok();
            assert!(place.checkpoint(&ranks.to_string()) == alone, "{name}: {ranks} ranks");
            println!(
                "{name}, {steps} steps: {ranks} ranks wrote the {} bytes of one process",
                alone.len()
            );
        }
    }
}

/// The lines of `looks.jsonl` about the model, and the steps of those about starts.
fn looks(place: &Place, folder: &str) -> Vec<String> {
    let text = place.read(&format!("{folder}/looks.jsonl"));
    let kept = text.lines().filter_map(|line| match line.strip_prefix("{\"start\":{\"step\":") {
        Some(start) => start.split(',').next().map(|step| format!("start at {step}")),
        None => line.starts_with("{\"look\"").then(|| line.to_string()),
    });
    kept.collect()
}

#[test]
fn another_number_of_ranks_resumes_a_run() {
    let place = Place::new();
    let recipe = "train --preset tiny --dropout 0.1 --shards 4 --quiet";
    run(&place, 3, &format!("{recipe} --steps 10 --out parts")).ok();
    // The schedule is that of the whole run from here on, as it is in one process.
    place.ok(&format!("{recipe} --steps 10 --out alone"));
    for (ranks, out) in [(2, "parts"), (1, "alone")] {
        run(&place, ranks, &format!("resume --steps 20 --quiet --out {out}")).ok();
    }
    run(&place, 4, "resume --steps 30 --quiet --out parts").ok();
    place.ok("resume --steps 30 --quiet --out alone");
    assert!(place.checkpoint("parts") == place.checkpoint("alone"));
    // Rank 0 alone writes the page, which has the same gradients and updates.
    let [parts, alone] = ["parts", "alone"].map(|folder| looks(&place, folder));
    assert_eq!(parts, alone);
    let starts: Vec<&String> = parts.iter().filter(|line| line.starts_with("start")).collect();
    assert_eq!(starts, ["start at 0", "start at 10", "start at 20"]);
    assert!(parts.len() > starts.len() + 10, "{} lines", parts.len());
    assert!(place.exists("parts/run.html"));
    let evaluate = "evaluate --out parts";
    assert_eq!(run(&place, 3, evaluate).ok(), place.ok(evaluate));
}
