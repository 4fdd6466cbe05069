//! The conditions of a measurement in a line: date, commit, CPU, SIMD level, threads, load average and clock
//! settings. What cannot be read is said to be so. `benches/compare/conditions.py` does the same.

use retrograd_tensor::settings::level;
use retrograd_tensor::threads;
use std::fs::read_to_string;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

/// The conditions now.
///
/// ```
/// assert!(retrograd::study::conditions::sentence().contains(" threads, "));
/// ```
pub fn sentence() -> String {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let cpu = cpu_model(&read_to_string("/proc/cpuinfo").unwrap_or_default());
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
        date(seconds),
        commit().unwrap_or_else(|| "unknown commit".into()),
        cpu.unwrap_or_else(|| "unknown CPU".into()),
        level().to_string(),
        format!("{} threads", threads()),
        average.map_or("unknown load".into(), |load| format!("load average {load}")),
        read("cpu0/cpufreq/scaling_governor")
            .map_or("governor not readable".into(), |name| format!("governor {name}")),
        turbo.into(),
    ]
    .join(", ")
}

/// The commit of the working tree, and whether files differ from it.
fn commit() -> Option<String> {
    let git = |arguments: &[&str]| {
        let folder = env!("CARGO_MANIFEST_DIR");
        let done = Command::new("git").arg("-C").arg(folder).args(arguments).output().ok()?;
        done.status.success().then(|| String::from_utf8_lossy(&done.stdout).trim().to_string())
    };
    let short = git(&["rev-parse", "--short=9", "HEAD"])?;
    let changed = !git(&["status", "--porcelain"])?.is_empty();
    Some(format!("commit {short}{}", if changed { " with changes" } else { "" }))
}

/// The name of the CPU in the text of `/proc/cpuinfo`.
fn cpu_model(text: &str) -> Option<String> {
    ["model name", "Model", "CPU part"].iter().find_map(|key| {
        text.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            let value = value.split_whitespace().collect::<Vec<_>>().join(" ");
            (name.trim() == *key && !value.is_empty()).then_some(value)
        })
    })
}

/// The date and time in UTC of seconds since 1970, as `2026-11-23T17:05:35Z`. The date is computed by the
/// method of Howard Hinnant's `civil_from_days`, with years that begin in March.
fn date(seconds: u64) -> String {
    let (days, of_day) = (seconds / 86_400, seconds % 86_400);
    let days = days + 719_468; // since 0000-03-01
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let sentence = sentence();
        assert!(sentence.starts_with("20"), "{sentence}");
        assert!(sentence.contains(" threads, ") && sentence.contains("turbo"), "{sentence}");
    }
}
