//! `RETROGRAD_TRACE`: a line per kernel, of any program.

use crate::program::{Ended, Place, TINY};

/// Runs a training step with a value of the variable, and writes to a folder.
fn run(place: &Place, value: &str, folder: &str) -> Ended {
    let line = format!("{TINY} --no-page --tokens 1 --steps 1 --out {folder}");
    place.run_with("RETROGRAD_TRACE", value, &line)
}

/// The columns of a line: two or more spaces separate them.
fn columns(line: &str) -> Vec<&str> {
    line.split("  ").map(str::trim).filter(|column| !column.is_empty()).collect()
}

/// Checks the lines of a trace, and returns the operations.
fn check(text: &str) -> Vec<String> {
    let mut lines = text.lines().filter(|line| line.starts_with("trace: "));
    let limits = lines.next().expect("the limits");
    assert!(limits.contains("GFLOP/s") && limits.contains("DRAM"), "{limits}");
    let header = columns(lines.next().expect("the header"));
    let named =
        ["us", "share", "limit", "operation", "size", "type", "level", "threads", "lane", "kernel"];
    assert_eq!(header[1..], named);
    let mut operations = Vec::new();
    for line in lines {
        let row = columns(line);
        assert_eq!(row.len(), header.len(), "{line:?}");
        let [us, share, limit, operation, size, dtype, level, threads, lane, kernel] = row[1..]
        else {
            panic!("{line:?}")
        };
        assert!(us.parse::<f64>().is_ok_and(|us| us >= 0.0), "{line:?}");
        let part = share.strip_suffix('%').map(str::parse::<f64>);
        assert!(share == "-" || part.is_some_and(|part| part.is_ok()), "{line:?}");
        assert!(["-", "FMA", "L1", "L2", "L3", "DRAM"].contains(&limit), "{line:?}");
        assert!(!size.contains(' ') && !kernel.is_empty() && !lane.is_empty(), "{line:?}");
        assert!(["f32", "f64", "i64", "u32", "bool"].contains(&dtype), "{line:?}");
        assert!(["-", "scalar", "neon", "avx2", "avx512"].contains(&level), "{line:?}");
        assert!(threads.parse::<usize>().is_ok_and(|n| n > 0), "{line:?}");
        operations.push(operation.to_string());
    }
    operations
}

#[test]
fn a_trace_has_a_line_per_kernel_and_changes_nothing() {
    let place = Place::new();
    let plain = run(&place, "", "plain");
    assert!(!plain.err.contains("trace: "), "{plain:?}");
    plain.ok();

    let traced = run(&place, "1", "traced");
    let operations = check(&traced.err);
    for name in ["matmul", "linear_add", "attention", "attention_vjp", "layer_norm", "adam"] {
        assert!(operations.iter().any(|operation| operation == name), "{name}: {operations:?}");
    }
    traced.ok();
    // The program ends by `exit`, which drops what the main thread has.
    let summary = run(&place, "summary", "summary").err;
    let named = |line: &str| columns(line).get(6) == Some(&"linear_add");
    assert!(summary.lines().any(named), "{summary}");
    let weights = |folder| {
        let file = place.checkpoint(folder);
        // After the header, which has the time.
        let header = u64::from_le_bytes(file[..8].try_into().unwrap()) as usize;
        file[8 + header..].to_vec()
    };
    assert!(weights("plain") == weights("traced"));
}
