//! Ranks that are killed, interrupted or differ: a clear end, and nothing lost.

use crate::launch::{mpiexec, ranks_of, run, start};
use crate::program::{Ended, FAILED, Place, USAGE, kill, setting, wait_until};
use retrograd::prelude::Rng;
use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant};

const RECIPE: &str = "train --preset tiny --shards 4 --steps 600 --eval-every 40 --quiet";

fn steps_logged(place: &Place, folder: &str) -> usize {
    place.lines(folder).iter().filter(|line| line.contains("\"ms\"")).count()
}

#[test]
fn runs_survive_killed_ranks() {
    let kills = setting("RETROGRAD_MPI_KILLS", 4);
    let place = Place::new();
    place.ok(&format!("{RECIPE} --out undisturbed"));
    let expected = place.checkpoint("undisturbed");
    let mut random = Rng::new(17);
    let (mut done, mut run_number) = (0, 0);
    while done < kills {
        run_number += 1;
        let out = format!("run{run_number}");
        let mut line = format!("{RECIPE} --out {out}");
        loop {
            let ranks = 1 + random.below(4);
            let mut child = start(&place, ranks, &line);
            let begun = || place.exists(&format!("{out}/checkpoint.safetensors"));
            let begin = Instant::now();
            let wait = Duration::from_millis(random.below(1500) as u64);
            while child.try_wait().unwrap().is_none() && (!begun() || begin.elapsed() < wait) {
                sleep(Duration::from_millis(1));
            }
            let victims = ranks_of(&place);
            if done < kills && child.try_wait().unwrap().is_none() && !victims.is_empty() {
                kill("KILL", victims[random.below(victims.len())]);
                done += 1;
            }
            let killed = Instant::now();
            let ended = Ended::of(child);
            if ended.code == Some(0) {
                break;
            }
            assert!(killed.elapsed() < Duration::from_secs(60), "the job ends within seconds");
            let left = || ranks_of(&place).is_empty();
            let end = Instant::now();
            while !left() {
                assert!(end.elapsed() < Duration::from_secs(60), "no rank is left");
                sleep(Duration::from_millis(5));
            }
            place.loaded(&out);
            line = format!("resume --eval-every 40 --quiet --out {out}");
        }
        assert!(place.checkpoint(&out) == expected, "{out}");
    }
    println!(
        "{done} ranks were killed in {run_number} runs, each of which ended with the same bytes"
    );
}

#[test]
fn an_interrupt_saves_the_run() {
    let place = Place::new();
    place.ok(&format!("{RECIPE} --out undisturbed"));
    // A run that ends before the signal arrives shows nothing.
    let interrupted = (1..10).find_map(|attempt| {
        let out = format!("run{attempt}");
        let mut child = start(&place, 2, &format!("{RECIPE} --out {out}"));
        while child.try_wait().unwrap().is_none() && steps_logged(&place, &out) < 20 {
            sleep(Duration::from_millis(1));
        }
        kill("INT", child.id());
        let ended = Ended::of(child);
        // The exit code is a matter of mpiexec, which may also end ranks before they have.
        ended.err.contains("Stopped after step").then_some(out)
    });
    let out = interrupted.expect("one of the runs was saved by an interrupt");
    run(&place, 3, &format!("resume --eval-every 40 --quiet --out {out}")).ok();
    assert!(place.checkpoint(&out) == place.checkpoint("undisturbed"));
}

#[test]
fn the_others_wait_for_a_stopped_rank() {
    let place = Place::new();
    place.ok(&format!("{RECIPE} --out undisturbed"));
    let mut child = start(&place, 3, &format!("{RECIPE} --out run"));
    wait_until(&mut child, || steps_logged(&place, "run") > 20);
    let stopped = ranks_of(&place)[1];
    kill("STOP", stopped);
    sleep(Duration::from_millis(300));
    let logged = steps_logged(&place, "run");
    sleep(Duration::from_secs(1));
    assert_eq!(steps_logged(&place, "run"), logged);
    kill("CONT", stopped);
    Ended::of(child).ok();
    assert!(place.checkpoint("run") == place.checkpoint("undisturbed"));
}

#[test]
fn a_folder_that_is_removed_ends_all_ranks() {
    let place = Place::new();
    let mut child = start(&place, 3, &format!("{RECIPE} --out run"));
    wait_until(&mut child, || steps_logged(&place, "run") > 20);
    fs::rename(place.path("run"), place.path("moved")).unwrap();
    let said = ["the folder of the run, run, was deleted, emptied or renamed", "run-2"];
    Ended::of(child).failed(FAILED, &said);
    place.loaded("run-2");
}

#[test]
fn ranks_that_differ_are_refused() {
    let place = Place::new();
    let command = place.command("");
    let program = command.get_program();
    let two = |options: [&str; 2], flags: [&str; 2]| {
        let mut command = mpiexec(&place, &[]);
        for i in 0..2 {
            let rank = command.args(&[":"][..i]).args(options[i].split(' '));
            rank.arg(program).args(flags[i].split(' '));
        }
        Ended::of(command.spawn().unwrap())
    };
    let same = "train --preset tiny --steps 3 --shards 2 --out run";
    let other = same.replace("--steps 3", "--steps 4");
    let said = ["rank 1 differs from rank 0 in flags", "\"4\""];
    two(["-n 1"; 2], [same, &other]).failed(USAGE, &said);
    assert!(!place.exists("run"));

    // Other bits: multiply-adds that are not fused.
    let said = ["rank 1 differs from rank 0 in arithmetic", "rank 1: separate multiplications"];
    two(["-n 1", "-n 1 env RETROGRAD_SIMD=scalar"], [same; 2]).failed(USAGE, &said);
    assert!(!place.exists("run"));

    // Another text under the same name.
    for (folder, text) in [("a", "one text ".repeat(100)), ("b", "another text ".repeat(100))] {
        fs::create_dir(place.path(folder)).unwrap();
        place.write(&format!("{folder}/text"), text);
    }
    let flags = "train --preset tiny --steps 3 --shards 2 --data text";
    let said = ["rank 1 differs from rank 0 in text"];
    two(["-n 1 -wdir a", "-n 1 -wdir b"], [flags; 2]).failed(USAGE, &said);
}

#[test]
fn invalid_usage_is_reported_once() {
    let place = Place::new();
    let ended = run(&place, 3, "train --preset tiny --shards 2");
    assert_eq!(ended.err.matches("error:").count(), 1, "{ended:?}");
    ended.failed(USAGE, &["3 ranks cannot share a batch of 2 shards", "--shards 4"]);
    let ended = run(&place, 2, "train --bogus");
    assert_eq!(ended.err.matches("error:").count(), 1, "{ended:?}");
    let ended = run(&place, 2, "train --data missing");
    assert_eq!(ended.err.matches("cannot read missing").count(), 1, "{ended:?}");
    assert_eq!(ended.code, Some(FAILED));
}
