//! The limits of this machine. `cargo bench --bench machine`.

use retrograd::machine::Machine;

fn main() {
    print!("{}", Machine::measure());
}
