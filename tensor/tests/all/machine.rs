//! Limits of the CPU, by the formulas and as measured, and the selection of a SIMD level.

use retrograd_tensor::internals::{CHUNK, choose, following};
use retrograd_tensor::machine::{Limit, Machine, Memory, Peak, Rate, RegionCost, Roofline};
use retrograd_tensor::simd::Level;
use retrograd_tensor::{DType, with_threads};

fn rate(all: f64) -> Rate {
    Rate { one: all / 2.0, all }
}

fn example() -> Machine {
    let memory = |name, bytes, per_core, gb| Memory {
        name,
        bytes,
        per_core,
        read: rate(gb),
        copy: rate(gb * 0.8),
    };
    let region = RegionCost { busy: 1.0, rested: 5.0 };
    Machine {
        cores: 2,
        threads: 2,
        clock: 2.0,
        peaks: vec![
            Peak { level: Level::Scalar, gflops: rate(20.0) },
            Peak { level: Level::Avx2, gflops: rate(100.0) },
        ],
        memory: vec![
            memory("L1", 1 << 15, true, 200.0),
            memory("L3", 1 << 23, false, 50.0),
            memory("DRAM", usize::MAX, false, 10.0),
        ],
        page_fault: 600.0,
        region_outside: region,
        region_inside: region,
    }
}

#[test]
fn the_roofline_is_the_larger_bound() {
    let m = example();
    assert_eq!(m.peak().level, Level::Avx2);
    // The L1 caches of both cores hold 64 KiB; the last-level cache is shared.
    assert_eq!(m.holding(65_536.0).name, "L1");
    assert_eq!(m.holding(65_537.0).name, "L3");
    assert_eq!(m.holding(1e9).name, "DRAM");
    assert_eq!(m.least_seconds(1e9, 1e3), 1e9 / 100e9);
    assert_eq!(m.least_seconds(1e3, 1e9), 1e9 / 10e9);
    // A cache that is slower than the next level is not a bound.
    let mut slow = example();
    slow.memory[1].read = rate(5.0);
    slow.memory[1].copy = rate(5.0);
    assert_eq!(slow.bandwidth(1e6), 10.0);
    assert_eq!(slow.bandwidth(1e3), 200.0);
}

#[test]
fn the_report_has_all_limits() {
    let text = example().to_string();
    for part in ["2 cores", "avx2", "100.0", "L1", "32 KiB per core", "8 MiB", "DRAM", "600 ns"] {
        assert!(text.contains(part), "{part} is missing from:\n{text}");
    }
    assert_eq!(example().summary().lines().count(), 2);
}

#[test]
#[cfg_attr(target_family = "wasm", ignore = "there are no threads")]
fn measurements_are_plausible() {
    let m = with_threads(2, Machine::measure);
    assert_eq!(m.threads, 2);
    assert!((0.1..20.0).contains(&m.clock), "{m}");
    let rates = m.memory.iter().flat_map(|m| [m.read, m.copy]);
    for r in m.peaks.iter().map(|p| p.gflops).chain(rates) {
        assert!(r.one > 0.0 && r.all > 0.0, "{m}");
    }
    assert_eq!(m.peaks.len(), Level::available().len());
    assert_eq!(m.memory.last().map(|m| m.name), Some("DRAM"));
    assert!(m.page_fault > 0.0, "{m}");
}

#[test]
fn the_bound_is_that_of_the_threads_used() {
    let rate = |one, all| Rate { one, all };
    let memory = |name, bytes, per_core, gb: Rate| Memory {
        name,
        bytes,
        per_core,
        read: gb,
        copy: rate(gb.one / 2.0, gb.all / 2.0),
    };
    let roofline = Roofline {
        threads: 4,
        peak: Peak { level: Level::Scalar, gflops: rate(30.0, 100.0) },
        memory: vec![
            memory("L1", 1000, true, rate(50.0, 200.0)),
            memory("DRAM", usize::MAX, false, rate(8.0, 10.0)),
        ],
    };
    let of = |threads, flops, bytes| roofline.bound(threads, DType::F32, flops, bytes).seconds;
    assert_eq!(
        [1, 2, 3, 4, 9].map(|t| of(t, 1e9, 0.0)),
        [30.0, 60.0, 90.0, 100.0, 100.0].map(|r| 1.0 / r)
    );
    // One private cache does not hold what four hold.
    assert_eq!(of(4, 0.0, 4000.0), 4000.0 / 200e9);
    assert_eq!(of(1, 0.0, 4000.0), 4000.0 / 8e9);
    assert_eq!(of(2, 0.0, 1e6), 1e6 / 10e9);
    assert_eq!(roofline.bound(1, DType::F64, 1e9, 0.0).seconds, 1.0 / 15.0);
    let integers = roofline.bound(1, DType::I64, 1e9, 8.0);
    assert_eq!((integers.seconds, integers.limit), (8.0 / 50e9, Limit::Memory("L1")));
}

#[test]
#[cfg_attr(target_family = "wasm", ignore = "there are no threads")]
fn the_brief_measurement_is_plausible() {
    let roofline = Roofline::measure();
    assert!(roofline.threads >= 1 && roofline.memory.len() == 4, "{roofline}");
    for rate in roofline.memory.iter().flat_map(|m| [m.read, m.copy]) {
        assert!(rate.one > 0.0 && rate.all > 0.0, "{roofline}");
    }
    assert_eq!(roofline.peak.level, Level::available()[Level::available().len() - 1]);
}

#[test]
fn a_repetition_is_small_and_all_are_the_whole_block() {
    for len in [128, CHUNK, 3 * CHUNK + 128, 1 << 28] {
        let (mut chunk, mut walked) = (0..0, 0);
        while walked + len.min(CHUNK) <= len {
            chunk = following(&chunk, len);
            assert!(chunk.start == walked && chunk.len() == len.min(CHUNK));
            walked = chunk.end;
        }
        assert_eq!(following(&chunk, len).start, 0);
    }
}

#[test]
fn names_round_trip() {
    for l in [Level::Scalar, Level::Wasm128, Level::Neon, Level::Avx2, Level::Avx512] {
        assert_eq!(l.name().parse(), Ok(l));
        assert_eq!(l.to_string(), l.name());
    }
    assert!("sse9".parse::<Level>().is_err());
}

#[test]
fn the_environment_selects_among_the_supported_levels() {
    let has = [Level::Scalar, Level::Avx2];
    assert_eq!(choose(None, &has), Ok(Level::Avx2));
    assert_eq!(choose(Some(" "), &has), Ok(Level::Avx2));
    assert_eq!(choose(Some("scalar"), &has), Ok(Level::Scalar));
    let text = |r: &str| choose(Some(r), &has).unwrap_err().to_string();
    assert_eq!(
        text("avx512"),
        "RETROGRAD_SIMD=avx512 is not supported by this CPU (has: scalar, avx2)"
    );
    assert_eq!(
        text("fast"),
        "RETROGRAD_SIMD=fast is not a SIMD level (one of: scalar, wasm128, neon, avx2, avx512)"
    );
}
