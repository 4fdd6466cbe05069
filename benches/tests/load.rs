//! What the benchmarks say of the load and of the conditions of a measurement.

#[path = "../common/conditions.rs"]
mod conditions;

use conditions::{cpu_model, date};
use retrograd::study::load::{Others, Reading, busy_seconds, core_list, process_seconds};
use std::time::{Duration, Instant};

const STAT: &str = "cpu  99 99 99 99 99 99 99 99 0 0\n\
                    cpu0 100 20 3 1000 50 4 5 6 70 80\n\
                    cpu1 7 0 0 1000 0 0 0 0 0 0\n\
                    cpu10 5000 0 0 0 0 0 0 0 0 0\n\
                    intr 12 0\n";

#[test]
fn busy_time_is_that_of_the_chosen_cores() {
    // Neither idle, nor waiting for a disk, nor guests, whose time is in that of users.
    assert!((busy_seconds(STAT, &[0]).unwrap() - 1.38).abs() < 1e-12);
    assert!((busy_seconds(STAT, &[0, 1]).unwrap() - 1.45).abs() < 1e-12);
    assert_eq!(busy_seconds("cpu0 1 2 x", &[0]), None);
}

#[test]
fn cpu_time_of_a_process_with_any_name() {
    let stat = "17 (a) b (c)) R 1 17 17 0 -1 4194304 100 0 0 0 250 31 0 0 20 0 1 0";
    assert!((process_seconds(stat).unwrap() - 2.81).abs() < 1e-12);
    assert_eq!(process_seconds("17 (a) R 1"), None);
}

#[test]
fn lists_of_cores() {
    assert_eq!(core_list("\t0-2,5\n"), Some(vec![0, 1, 2, 5]));
    assert_eq!(core_list("3"), Some(vec![3]));
    assert_eq!(core_list("a-b"), None);
}

#[test]
fn a_twentieth_of_the_time_disturbs() {
    let others = |seconds| Others { seconds, took: 1.0 };
    assert!(!others(0.07).disturb() && others(0.09).disturb());
    let mut sum = others(0.07);
    sum += others(0.07);
    assert_eq!(sum, Others { seconds: 0.14, took: 2.0 });
    assert!(sum.to_string().starts_with("other processes used 0.1 of "), "{sum}");
}

/// The time that this process uses is not that of others: with a busy thread per core, others could use
/// next to nothing. Other programs may use the machine meanwhile, so only the part of this process is
/// certain: what is left is less than all cores by at least half of what this process used.
#[cfg(target_os = "linux")]
#[test]
fn own_time_does_not_count() {
    let own = || process_seconds(&std::fs::read_to_string("/proc/self/stat").unwrap()).unwrap();
    let (before, own_before, start) = (Reading::now(), own(), Instant::now());
    while start.elapsed() < Duration::from_millis(500) {
        std::hint::spin_loop();
    }
    let (others, used) = (before.since(), own() - own_before);
    let cores = std::thread::available_parallelism().unwrap().get() as f64;
    assert!(used > 0.0, "a busy loop uses CPU time");
    assert!(others.seconds <= cores * others.took - 0.5 * used + 0.1, "{others:?}, own {used}");
}

#[test]
fn dates_of_seconds_since_1970() {
    assert_eq!(date(0), "1970-01-01T00:00:00Z");
    assert_eq!(date(951_782_399), "2000-02-28T23:59:59Z");
    assert_eq!(date(951_782_400), "2000-02-29T00:00:00Z");
    assert_eq!(date(1_795_453_535), "2026-11-23T17:05:35Z");
    assert_eq!(date(4_107_542_400), "2100-03-01T00:00:00Z");
}

#[test]
fn names_of_cpus() {
    let x86 = "processor\t: 0\nmodel\t\t: 2\nmodel name\t: AMD EPYC  9575F\n";
    assert_eq!(cpu_model(x86).as_deref(), Some("AMD EPYC 9575F"));
    let arm = "processor\t: 0\nCPU part\t: 0xd0c\n";
    assert_eq!(cpu_model(arm).as_deref(), Some("0xd0c"));
    assert_eq!(cpu_model(""), None);
}

#[test]
fn the_sentence_names_level_and_threads() {
    let sentence = conditions::sentence();
    assert!(sentence.starts_with("20"), "{sentence}");
    assert!(sentence.contains(" threads, ") && sentence.contains("turbo"), "{sentence}");
}
