//! The limits of this machine. `cargo bench -p retrograd-benches --bench machine`.

use retrograd::machine::Machine;

fn main() {
    print!("{}", Machine::measure());
}
