//! The conditions of a measurement, and the load of other processes.

use retrograd_study::conditions::{governor, sentence, turbo};
use retrograd_study::load::{Others, Reading};
use std::fs::{read_to_string, write};
use std::time::{Duration, Instant};

#[test]
fn the_sentence_has_date_cpu_and_threads() {
    let sentence = sentence();
    let parts: Vec<&str> = sentence.split(", ").collect();
    let shape = |c: char| if c.is_ascii_digit() { '0' } else { c };
    let date: String = parts[0].chars().map(shape).collect();
    assert_eq!(date, "0000-00-00T00:00:00Z", "{sentence}");
    assert!(sentence.contains(" threads, ") && sentence.contains("turbo"), "{sentence}");
    let cpus = "/sys/devices/system/cpu";
    let first = cores()[0];
    let governed = read_to_string(format!("{cpus}/cpu{first}/cpufreq/scaling_governor")).ok();
    assert_eq!(governor().is_some(), governed.is_some());
    assert!(governed.is_none_or(|name| governor().unwrap().contains(name.trim())));
    let files = [("intel_pstate/no_turbo", "0\n"), ("cpufreq/boost", "1\n")];
    let wanted = files.iter().find_map(|(file, on)| {
        read_to_string(format!("{cpus}/{file}")).ok().map(|text| text == *on)
    });
    assert_eq!(turbo(), wanted);
    // The first of these lines that is there: the second and the third one are those of ARM.
    let text = read_to_string("/proc/cpuinfo").unwrap_or_default();
    let named = ["model name", "Model", "CPU part"].iter().find_map(|key| {
        let line = text.lines().find(|line| line.split(':').next().unwrap().trim() == *key)?;
        Some(line.split_once(':')?.1.split_whitespace().collect::<Vec<_>>().join(" "))
    });
    assert_eq!(parts[2], named.as_deref().unwrap_or("unknown CPU"), "{sentence}");
}

#[test]
fn a_twentieth_of_the_time_disturbs() {
    let others = |seconds| Others { seconds, took: 1.0 };
    assert!(!others(0.07).disturb() && others(0.09).disturb());
    assert!(others(0.07).to_string().starts_with("other processes used 0.1 of "));
}

/// The cores that this process may run on, by the mask of the kernel.
fn cores() -> Vec<usize> {
    let status = read_to_string("/proc/self/status").unwrap();
    let mask = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed:")).unwrap();
    let digits = mask.trim().chars().rev().filter_map(|c| c.to_digit(16));
    let bits =
        digits.enumerate().flat_map(|(i, digit)| (0..4).map(move |b| (4 * i + b, digit >> b & 1)));
    bits.filter(|(_, bit)| *bit == 1).map(|(core, _)| core).collect()
}

/// Ticks in which the cores were busy, and those of this process: neither idle, nor waiting for a disk, nor those of
/// guests, which are also ticks of users.
fn ticks() -> [i64; 2] {
    let numbers = |text: &str| -> Vec<i64> {
        text.split_whitespace().map(|word| word.parse().unwrap_or(0)).collect()
    };
    let stat = read_to_string("/proc/stat").unwrap();
    let busy = cores().into_iter().map(|core| {
        let line = stat.lines().find_map(|line| line.strip_prefix(&format!("cpu{core} "))).unwrap();
        let fields = numbers(line);
        fields[..8].iter().sum::<i64>() - fields[3] - fields[4]
    });
    let busy = busy.sum();
    let own = read_to_string("/proc/self/stat").unwrap();
    let own = numbers(own.rsplit_once(')').unwrap().1);
    [busy, own[11] + own[12]]
}

/// The load of others is the busy time without the time of this process, on the cores that it may use: within what
/// the counters say right before and right after.
#[cfg(target_os = "linux")]
#[test]
fn the_load_of_others_is_what_the_kernel_counts() {
    // The name of a process, in brackets before the counters, may contain anything.
    write("/proc/self/comm", "(a) b (c))").unwrap();
    let (before, reading, begun) = (ticks(), Reading::now(), ticks());
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(300) {
        std::hint::spin_loop();
    }
    let (end, others, after) = (ticks(), reading.since(), ticks());
    assert!(end[1] > begun[1], "a busy loop uses CPU time");
    let least = (end[0] - begun[0]) - (after[1] - before[1]);
    let most = (after[0] - before[0]) - (end[1] - begun[1]);
    let found = others.seconds * 100.0;
    assert!((least as f64 - 1e-6..=most as f64 + 1e-6).contains(&found), "{least} {found} {most}");
    assert!(others.took >= 0.3);
    assert!(others.to_string().ends_with(&format!(" of {} cores", cores().len())), "{others}");
}
