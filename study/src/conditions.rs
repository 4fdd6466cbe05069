//! The conditions of a measurement in a line: date, commit, CPU, SIMD level, threads, load average and clock
//! settings. What cannot be read is said to be so. `benches/compare/conditions.py` does the same.

use retrograd_tensor::settings::level;
use retrograd_tensor::threads;
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
    let cpus = "/sys/devices/system/cpu";
    let read = |name: &str| {
        let text = read_to_string(format!("{cpus}/{name}")).ok()?;
        Some(text.trim().to_string())
    };
    let turbo = match (read("intel_pstate/no_turbo").as_deref(), read("cpufreq/boost").as_deref()) {
        (Some("0"), _) | (None, Some("1")) => "turbo on",
        (Some("1"), _) | (None, Some("0")) => "turbo off",
        _ => "turbo not readable",
    };
    [
        output(Command::new("date").args(["-u", "+%Y-%m-%dT%H:%M:%SZ"]))
            .unwrap_or("unknown date".into()),
        commit().unwrap_or_else(|| "unknown commit".into()),
        cpu_model().unwrap_or_else(|| "unknown CPU".into()),
        level().to_string(),
        format!("{} threads", threads()),
        average.map_or("unknown load".into(), |load| format!("load average {load}")),
        read("cpu0/cpufreq/scaling_governor")
            .map_or("governor not readable".into(), |name| format!("governor {name}")),
        turbo.into(),
    ]
    .join(", ")
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
pub(crate) fn cpu_model() -> Option<String> {
    let text = read_to_string("/proc/cpuinfo").ok()?;
    ["model name", "Model", "CPU part"].iter().find_map(|key| {
        text.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            let value = value.split_whitespace().collect::<Vec<_>>().join(" ");
            (name.trim() == *key && !value.is_empty()).then_some(value)
        })
    })
}
