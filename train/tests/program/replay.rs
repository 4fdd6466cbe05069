//! Steps of runs that are computed again.

use crate::program::{FAILED, Place, TINY, USAGE};

#[test]
fn any_step_has_the_bits_of_the_log_on_any_number_of_threads() {
    let place = Place::new();
    let recipe = "--dropout 0.1 --shards 2 --optimizer muon --schedule wsd";
    place.train("run", 60, &format!("--keep-every 10 --threads 2 {recipe}"));
    for i in 0..20 {
        let (step, threads) = (1 + i * 37 % 60, [1, 2, 4][i % 3]);
        let out = place.ok(&format!("replay run {step} --threads {threads}"));
        let from = (step - 1) / 10 * 10;
        let said = format!(
            "the bits of the log. Computed {} steps from the checkpoint of step {from}.",
            step - from
        );
        assert!(out.starts_with(&format!("Step {step}: ")) && out.contains(&said), "{out}");
    }
    // With the learning rates of a clock.
    place.ok(&format!("{TINY} --quiet --no-page --minutes 0.01 --out clock"));
    let steps = place.done("clock")["steps"].as_u64().unwrap();
    place.ok(&format!("replay clock {steps}"));
}

#[test]
fn a_step_is_observed() {
    let place = Place::new();
    place.train("run", 5, "--xray 3 --keep-every 2");
    let before = place.read("run/xray-3.html");
    let out = place.ok("replay run 4 --xray --attention --gradients --nonfinite");
    let loss = |page: &str| page.split("\"loss\":").nth(1).unwrap()[..12].to_string();
    assert_eq!(loss(&place.read("run/xray-3.html")), loss(&before));
    assert!(place.read("run/attention-3.html").contains("\"snapshots\":[\"step 3\""));
    assert!(out.contains("All values and gradients of step 4 are finite"), "{out}");
    assert!(out.contains("h.1.mlp.c_proj ") && out.contains("update / weights"), "{out}");
    // The step at which a run has ended.
    let diverged = format!("{TINY} --quiet --no-page --out diverged --steps 20 --lr 1e30");
    assert_eq!(place.run(&diverged).code, Some(FAILED));
    let failed = 1 + place.log("diverged").iter().filter(|line| line.get("lr").is_some()).count();
    let replayed = place.run(&format!("replay diverged {failed} --nonfinite"));
    assert!(replayed.out.contains("first"), "{replayed:?}");
    replayed.failed(FAILED, &[&format!("step {failed} fails")]);
}

#[test]
fn steps_that_cannot_be_computed_again_are_refused() {
    let place = Place::new();
    place.train("run", 8, "--keep-every 4");
    let said = ["no step 10; its log has steps 1 to 8"];
    place.fails("replay run 10", USAGE, &said);
    place.fails("replay nothing 1", FAILED, &["there is no run in nothing"]);
    place.write("other", "another text ".repeat(500));
    place.fails("replay run 1 --data other", FAILED, &["was trained on a text that differs"]);
    place.train("none", 8, "--keep-size 1KB");
    let said = ["none has no checkpoint of step 2 or before", "--keep-size"];
    place.fails("replay none 3", FAILED, &said);
    place.flip_bit("run/checkpoint-4.safetensors");
    let said = ["the weights after step 4 are not those of the log", "files that were changed"];
    place.fails("replay run 5", FAILED, &said);
    place.ok("replay run 4");
}
