//! The limits of this machine. `cargo bench -p retrograd-benches --bench machine`.

#[path = "common/conditions.rs"]
mod conditions;

use retrograd::machine::Machine;

fn main() {
    retrograd::study::from_env();
    println!("{}", conditions::sentence());
    retrograd::study::load::warn_if_busy();
    print!("{}", Machine::measure());
}
