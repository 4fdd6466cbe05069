//! Prints the SIMD levels that this CPU can run, lowest first, one a line.

fn main() {
    for level in retrograd_tensor::simd::Level::available() {
        println!("{level}");
    }
}
