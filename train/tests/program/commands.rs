//! What the program says of itself, and the commands that look at a model.

use crate::program::{FAILED, Place, TINY, USAGE, contains};

#[test]
fn alone_it_says_what_it_can_do_and_help_fits_one_screen() {
    let place = Place::new();
    let text = place.ok("");
    assert!(text.lines().count() <= 12 && text.contains(" train --data FILE"), "{text}");
    let help = place.ok("--help");
    let commands = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let commands: Vec<(&str, &str)> =
        commands.map_while(|line| line.trim_start().split_once(' ')).collect();
    assert_eq!(commands.len(), 17, "{help}");
    for (command, does) in &commands[..16] {
        let short = place.ok(&format!("{command} -h"));
        assert!(short.lines().count() <= 24, "{short}");
        assert!(short.starts_with(does.trim_start()), "{short}");
        let usual: &[&str] = match *command {
            "sample" => &["--temperature", "--top-k", "--stop"],
            "train" => &["--seed", "--steps"],
            _ => &[],
        };
        assert!(usual.iter().all(|flag| short.contains(flag)), "{short}");
        let long = place.ok(&format!("{command} --help"));
        assert!(long.contains("--threads") && long.contains("--quiet"), "{long}");
    }
    let all = place.ok("train --help");
    let flags = "--weight-decay --key-heads --xray-check --min-p --keep-every --all-reduce";
    contains(&all, &flags.split(' ').collect::<Vec<_>>());
}

#[test]
fn variables_for_threads_have_no_influence() {
    let place = Place::new();
    for (folder, threads) in [("a", "1"), ("b", "0"), ("c", "abc"), ("d", "1000")] {
        let line = format!("{TINY} --quiet --no-page --out {folder} --steps 2");
        place.run_with("RAYON_NUM_THREADS", threads, &line).ok();
        assert!(place.checkpoint(folder) == place.checkpoint("a"), "{threads}");
    }
}

#[test]
fn pages_of_a_step_and_of_the_attention_of_a_saved_run() {
    let place = Place::new();
    place.ok(&format!("{TINY} --quiet --steps 4 --eval-every 2 --xray 2"));
    let out = place.ok("xray");
    assert!(out.contains("The page of step 5 is out/run/xray-4.html"), "{out}");
    place.ok("xray --checkpoint 2 --page new/2.html");
    // The step of the run, which was recorded when it was trained.
    let loss = |page: &str| {
        let page = place.read(page);
        let (_, rest) = page.split_once("\"loss\":").expect("a loss");
        rest.split(',').next().unwrap().to_string()
    };
    assert_eq!(loss("new/2.html"), loss("out/run/xray-2.html"));
    assert_ne!(loss("new/2.html"), loss("out/run/xray-4.html"));
    place.fails("xray --out none", FAILED, &["there is no run in none"]);

    let text = "The copyright owner or entity";
    let attention = format!("attention '{text} authorized by' --checkpoint best");
    let cut = "the page shows the first 32 of 43 tokens: the context of the model, which train --context sets";
    place.run(&attention).says(cut).ok();
    assert!(!place.run(&format!("attention '{text}'")).err.contains("first"));
    assert!(place.read("out/attention.html").contains("\"snapshots\":[\"step "));
    place.fails("attention 語", USAGE, &["does not contain '語'"]);
}
