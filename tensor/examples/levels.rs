//! Prints the SIMD levels that this CPU supports, the lowest first, one per line.

use retrograd_tensor::{compiled, simd::Level};
use std::hint::black_box;

fn main() {
    // This program contains all kernels: `.ci/disassembly` reads them.
    black_box(compiled::operations as fn());
    for level in Level::available() {
        println!("{level}");
    }
}
