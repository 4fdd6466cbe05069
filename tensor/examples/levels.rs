//! Prints the SIMD levels that this CPU supports, the lowest first, one per line.

fn main() {
    for level in retrograd_tensor::simd::Level::available() {
        println!("{level}");
    }
}
