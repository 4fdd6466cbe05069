//! What the program says of itself, and the commands that look at a model.

use crate::invalid_usage::USAGE;
use crate::program::Place;
use std::fs;

#[test]
fn alone_it_says_what_it_can_do_and_help_fits_one_screen() {
    let place = Place::new();
    let text = place.run(&[]).ok();
    assert!(text.lines().count() <= 12 && text.contains(" train --data FILE"), "{text}");
    let help = place.run(&["--help"]).ok();
    let commands: Vec<&str> = help
        .lines()
        .skip_while(|line| *line != "Commands:")
        .skip(1)
        .map_while(|line| line.split_whitespace().next())
        .collect();
    assert_eq!(commands.len(), 11, "{help}");
    for command in &commands[..10] {
        let (short, long) =
            (place.run(&[command, "-h"]).ok(), place.run(&[command, "--help"]).ok());
        assert!(short.lines().count() <= 24, "{short}");
        assert!(short.starts_with(help_of(&help, command)), "{short}");
        for flag in ["--threads", "--quiet"] {
            assert!(long.contains(flag), "{long}");
        }
    }
    let all = place.run(&["train", "--help"]).ok();
    for flag in
        ["--weight-decay", "--key-heads", "--xray-check", "--min-p", "--keep", "--all-reduce"]
    {
        assert!(all.contains(flag), "{flag} is not in {all}");
    }
}

/// What the list of commands says of a command.
fn help_of<'a>(help: &'a str, command: &str) -> &'a str {
    let line = help.lines().find(|line| line.trim_start().starts_with(command)).unwrap();
    line.trim_start()[command.len()..].trim_start()
}

#[test]
fn pages_of_a_step_and_of_the_attention_of_a_saved_run() {
    let place = Place::new();
    let steps = ["--steps", "4", "--eval-every", "2", "--keep", "2", "--xray", "2"];
    place.run(&[&["train", "--preset", "tiny", "--quiet"], &steps[..]].concat()).ok();
    let out = place.run(&["xray"]).ok();
    assert!(out.contains("The page of step 5 is out/run/xray-4.html"), "{out}");
    place.run(&["xray", "--checkpoint", "2", "--page", "2.html"]).ok();
    let page = |name: &str| fs::read_to_string(place.path(name)).unwrap();
    // The step of the run, which was recorded when it was trained.
    let loss = |page: &str| {
        let (_, rest) = page.split_once("\"loss\":").expect("a loss");
        rest.split(',').next().unwrap().to_string()
    };
    assert_eq!(loss(&page("2.html")), loss(&page("out/run/xray-2.html")));
    assert_ne!(loss(&page("2.html")), loss(&page("out/run/xray-4.html")));
    place.run(&["xray", "--out", "none"]).failed(1, &["there is no run in none"]);

    place.run(&["attention", "The fox said", "--checkpoint", "best"]).ok();
    assert!(page("out/attention.html").contains("\"snapshots\":[\"step "));
    place.run(&["attention", "語"]).failed(USAGE, &["does not contain '語'"]);
}
