//! The program of a target, which has its name.
#![no_main]

mod checks;

use checks::{TARGETS, Target, run, stretched};

// A constant, so that a program contains one check.
const TARGET: Target = {
    let (mut i, name) = (0, env!("CARGO_BIN_NAME").as_bytes());
    loop {
        let (own, mut n) = (TARGETS[i].0.as_bytes(), 0);
        while n < own.len() && n < name.len() && own[n] == name[n] {
            n += 1;
        }
        if n == own.len() && n == name.len() {
            break TARGETS[i];
        }
        i += 1;
    }
};

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    run(TARGET, data);
    // It takes a thousand times as long.
    if crc32fast::hash(data) % 4096 == 0 {
        run(TARGET, &stretched(data));
    }
});
