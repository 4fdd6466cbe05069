//! The conditions of a measurement in a line: date, commit, CPU, SIMD level, threads, load average and clock
//! settings. What cannot be read is said to be so.

use crate::load::used_cores;
use retrograd_tensor::settings::level;
use retrograd_tensor::threads;
use std::collections::BTreeSet;
use std::fs::read_to_string;
use std::process::Command;

/// The conditions now.
///
/// ```
/// assert!(retrograd::study::conditions::sentence().contains(" threads, "));
/// ```
pub fn sentence() -> String {
    let average = read_to_string("/proc/loadavg").ok();
    let average = average.as_deref().and_then(|text| text.split_whitespace().next());
    [
        output(Command::new("date").args(["-u", "+%Y-%m-%dT%H:%M:%SZ"]))
            .unwrap_or("unknown date".into()),
        commit().unwrap_or_else(|| "unknown commit".into()),
        cpu_model().unwrap_or_else(|| "unknown CPU".into()),
        level().to_string(),
        format!("{} threads", threads()),
        average.map_or("unknown load".into(), |load| format!("load average {load}")),
        governor().map_or("governor not readable".into(), |name| format!("governor {name}")),
        turbo().map_or("turbo not readable", |on| if on { "turbo on" } else { "turbo off" }).into(),
    ]
    .join(", ")
}

/// A file about the CPUs, if it is readable: on virtual machines, some are not there.
fn about_cpus(name: &str) -> Option<String> {
    let text = read_to_string(format!("/sys/devices/system/cpu/{name}")).ok()?;
    Some(text.trim().to_string())
}

/// The frequency governors of the cores that this program may use, if they are readable.
pub fn governor() -> Option<String> {
    let of = |core| about_cpus(&format!("cpu{core}/cpufreq/scaling_governor"));
    let found: BTreeSet<String> = used_cores().into_iter().filter_map(of).collect();
    (!found.is_empty()).then(|| Vec::from_iter(found).join(", "))
}

/// Whether the CPU may exceed its nominal clock rate, if that is readable.
pub fn turbo() -> Option<bool> {
    let off = about_cpus("intel_pstate/no_turbo").map(|off| off == "0");
    off.or_else(|| about_cpus("cpufreq/boost").map(|on| on == "1"))
}

/// What a command prints, if it succeeds.
fn output(command: &mut Command) -> Option<String> {
    let done = command.output().ok()?;
    done.status.success().then(|| String::from_utf8_lossy(&done.stdout).trim().to_string())
}

/// The commit of the working tree, and whether files differ from it.
fn commit() -> Option<String> {
    let folder = env!("CARGO_MANIFEST_DIR");
    let git =
        |arguments: &[&str]| output(Command::new("git").arg("-C").arg(folder).args(arguments));
    let short = git(&["rev-parse", "--short=9", "HEAD"])?;
    let changed = !git(&["status", "--porcelain"])?.is_empty();
    Some(format!("commit {short}{}", if changed { " with changes" } else { "" }))
}

/// The name of the CPU, as `/proc/cpuinfo` has it.
pub fn cpu_model() -> Option<String> {
    let text = read_to_string("/proc/cpuinfo").ok()?;
    ["model name", "Model", "CPU part"].iter().find_map(|key| {
        text.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            let value = value.split_whitespace().collect::<Vec<_>>().join(" ");
            (name.trim() == *key && !value.is_empty()).then_some(value)
        })
    })
}
