//! Running the program.

use retrograd::nn::StateDict;
use retrograd::nn::checkpoint::Checkpoint;
use retrograd::prelude::*;
use serde_json::Value;
use std::fs;
use std::io::Read;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The exit code of a failure.
pub const FAILED: i32 = 1;
/// The exit code of invalid usage.
pub const USAGE: i32 = 2;

/// The beginning of most runs: a small model, and a text that is read and evaluated in no time.
pub const TINY: &str =
    concat!("train --preset tiny --data '", env!("CARGO_MANIFEST_DIR"), "/../LICENSE-APACHE'");

/// The arguments of a line: words, and texts in single quotes.
fn arguments(line: &str) -> Vec<&str> {
    let parts = line.split('\'').enumerate();
    let words = parts.flat_map(|(i, part)| match i % 2 {
        0 => part.split_whitespace().collect(),
        _ => vec![part],
    });
    words.collect()
}

/// A temporary folder to run in.
pub struct Place(TempDir);

impl Place {
    pub fn new() -> Place {
        Place(TempDir::new().unwrap())
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub fn exists(&self, name: &str) -> bool {
        self.path(name).exists()
    }

    pub fn write(&self, name: &str, bytes: impl AsRef<[u8]>) {
        fs::write(self.path(name), bytes).unwrap();
    }

    pub fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
    }

    /// The program with the arguments of this line, to be run here.
    pub fn command(&self, line: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_retrograd"));
        command.current_dir(self.0.path()).args(arguments(line)).stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Starts the program, and does not wait for its end.
    pub fn start(&self, line: &str) -> Child {
        self.command(line).spawn().unwrap()
    }

    #[track_caller]
    pub fn run(&self, line: &str) -> Ended {
        Ended::of(self.start(line))
    }

    /// Runs the program with an environment variable.
    #[track_caller]
    pub fn run_with(&self, name: &str, value: &str, line: &str) -> Ended {
        Ended::of(self.command(line).env(name, value).spawn().unwrap())
    }

    /// Runs the program, which ends well, and returns standard output.
    #[track_caller]
    pub fn ok(&self, line: &str) -> String {
        self.run(line).ok()
    }

    /// Runs the program, and checks its exit code and what it says.
    #[track_caller]
    pub fn fails(&self, line: &str, code: i32, said: &[&str]) {
        self.run(line).failed(code, said);
    }

    /// Trains the small model for some steps, in a folder, without a page.
    #[track_caller]
    pub fn train(&self, folder: &str, steps: u64, more: &str) {
        self.ok(&format!("{TINY} --quiet --no-page --out {folder} --steps {steps} {more}"));
    }

    /// The bytes of the last checkpoint in a folder.
    pub fn checkpoint(&self, folder: &str) -> Vec<u8> {
        fs::read(self.path(folder).join("checkpoint.safetensors")).unwrap()
    }

    /// The last checkpoint in a folder.
    pub fn loaded(&self, folder: &str) -> Checkpoint {
        Checkpoint::load(self.path(folder).join("checkpoint.safetensors")).unwrap()
    }

    /// The weights in a checkpoint.
    pub fn weights(&self, file: &str) -> StateDict {
        Checkpoint::load(self.path(file)).unwrap().get("model").unwrap()
    }

    /// Flips the last bit of a weight in a checkpoint.
    pub fn flip_bit(&self, file: &str) {
        let (path, weights) = (self.path(file), self.weights(file));
        let mut file = Checkpoint::load(&path).unwrap();
        let name = "transformer.h.0.mlp.c_fc.weight";
        let mut values = weights[name].to_vec();
        values[3] = f32::from_bits(values[3].to_bits() ^ 1);
        let flipped = Tensor::from_vec(values, *weights[name].shape());
        file.tensors.insert(format!("model.{name}"), flipped.into());
        file.save(&path).unwrap();
    }

    /// The lines of the log in a folder, as far as it is written.
    pub fn lines(&self, folder: &str) -> Vec<String> {
        let text = fs::read_to_string(self.path(folder).join("log.jsonl")).unwrap_or_default();
        text.lines().map(str::to_string).collect()
    }

    pub fn log(&self, folder: &str) -> Vec<Value> {
        self.lines(folder).iter().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// The last line of a log, of a run that has ended.
    pub fn done(&self, folder: &str) -> Value {
        self.log(folder).pop().unwrap()
    }
}

/// A number from the environment.
pub fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

/// The flags of `TINY`, for other commands than `train`.
pub fn flags_of_tiny() -> &'static str {
    TINY.trim_start_matches("train")
}

/// Checks that what was printed contains all of `said`.
#[track_caller]
pub fn contains(printed: &str, said: &[&str]) {
    for text in said {
        assert!(printed.contains(text), "{text:?} is not in {printed}");
    }
}

/// Sends a signal to a program.
pub fn kill(signal: &str, process: u32) {
    // It may have ended already.
    let _ = Command::new("kill").args([&format!("-{signal}"), &process.to_string()]).status();
}

/// The time limit of a test.
const TOO_LONG: Duration = Duration::from_secs(300);

/// Waits until something holds.
///
/// # Panics
/// If the program ends before, or it takes minutes.
pub fn wait_until(child: &mut Child, holds: impl Fn() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(child.try_wait().unwrap().is_none(), "it ended too early");
        assert!(start.elapsed() < TOO_LONG, "it takes too long");
        thread::sleep(Duration::from_millis(2));
    }
}

/// The exit code and the output of a program.
#[derive(Debug)]
pub struct Ended {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl Ended {
    pub fn new(output: Output) -> Ended {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        Ended { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
    }

    /// Waits for the end of a program.
    ///
    /// # Panics
    /// If it takes minutes. It is killed then.
    #[track_caller]
    pub fn of(mut child: Child) -> Ended {
        fn reader(pipe: Option<impl Read + Send + 'static>) -> thread::JoinHandle<Vec<u8>> {
            thread::spawn(move || {
                let mut bytes = Vec::new();
                pipe.map(|mut pipe| pipe.read_to_end(&mut bytes).unwrap());
                bytes
            })
        }
        let (out, err) = (reader(child.stdout.take()), reader(child.stderr.take()));
        let start = Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break status;
            }
            if start.elapsed() > TOO_LONG {
                child.kill().unwrap();
                panic!("it takes too long");
            }
            thread::sleep(Duration::from_millis(2));
        };
        let [stdout, stderr] = [out, err].map(|reader| reader.join().unwrap());
        Ended::new(Output { status, stdout, stderr })
    }

    /// Checks that standard error contains a text.
    #[track_caller]
    pub fn says(self, text: &str) -> Ended {
        assert!(self.err.contains(text), "{text:?} is not in {self:?}");
        self
    }

    /// Checks that the exit code is 0, and returns standard output.
    #[track_caller]
    pub fn ok(self) -> String {
        assert_eq!(self.code, Some(0), "{self:?}");
        self.out
    }

    /// Checks the exit code, that standard error contains all of `said`, and that nothing panicked.
    #[track_caller]
    pub fn failed(self, code: i32, said: &[&str]) {
        assert_eq!(self.code, Some(code), "{self:?}");
        contains(&self.err, said);
        assert!(!self.err.contains("panicked"), "{self:?}");
    }
}
