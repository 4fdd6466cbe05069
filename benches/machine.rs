//! The limits of this machine. `cargo bench -p retrograd-benches --bench machine`.

use retrograd::machine::Machine;

fn main() {
    retrograd::study::from_env();
    println!("{}", retrograd::study::conditions::sentence());
    retrograd::study::load::warn_if_busy();
    print!("{}", Machine::measure());
}
