//! The program `retrograd`.

fn main() -> std::process::ExitCode {
    retrograd_train::main(std::env::args_os())
}
