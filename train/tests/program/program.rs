//! Running programs: `retrograd`, and examples of the workspace.

use std::collections::BTreeSet;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime};
use tempfile::TempDir;

/// A built example. It is beside this test, and built together with it by `cargo test`; when
/// this test is built alone it may be missing or old, and is built here.
fn program(name: &str) -> PathBuf {
    // One at a time, so that tests do not build the same example twice.
    static BUILT: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let mut built = BUILT.lock().unwrap_or_else(PoisonError::into_inner);
    let test = std::env::current_exe().unwrap();
    let profile = test.ancestors().nth(2).unwrap();
    let program = profile.join("examples").join(name).with_extension(exe());
    if !built.contains(name) && !is_current(&program) {
        built.insert(name.to_string());
        let mut build = Command::new(env!("CARGO"));
        build.args(["build", "--quiet", "-p", "retrograd", "--example", name]);
        build.current_dir(env!("CARGO_MANIFEST_DIR"));
        if !cfg!(debug_assertions) {
            build.arg("--release");
        }
        assert!(build.status().unwrap().success(), "the example does not build");
        assert!(program.exists(), "build it first: cargo build --example {name}");
    }
    program
}

fn exe() -> &'static str {
    std::env::consts::EXE_EXTENSION
}

/// Whether the program is newer than all its sources, which cargo lists beside it.
fn is_current(program: &Path) -> bool {
    let time = |path: &Path| fs::metadata(path).and_then(|m| m.modified());
    let Ok(built) = time(program) else { return false };
    let list = fs::read_to_string(program.with_extension("d")).unwrap_or_default();
    let Some((_, sources)) = list.split_once(": ") else { return false };
    let newest = sources.split_whitespace().filter_map(|path| time(Path::new(path)).ok()).max();
    newest.unwrap_or(SystemTime::now()) <= built
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

    pub fn write(&self, name: &str, bytes: impl AsRef<[u8]>) {
        fs::write(self.path(name), bytes).unwrap();
    }

    /// The program `retrograd`, to be run here.
    pub fn retrograd(&self, args: &[&str]) -> Command {
        self.command(env!("CARGO_BIN_EXE_retrograd").as_ref(), args)
    }

    /// An example, to be run here.
    pub fn example(&self, name: &str, args: &[&str]) -> Command {
        self.command(&program(name), args)
    }

    fn command(&self, program: &Path, args: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.current_dir(self.0.path()).args(args).stdin(Stdio::null());
        command
    }

    pub fn run(&self, args: &[&str]) -> Ended {
        Ended::of(self.start(args))
    }

    /// Starts the program, and does not wait for its end.
    pub fn start(&self, args: &[&str]) -> Child {
        let mut command = self.retrograd(args);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }
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
        for text in said {
            assert!(self.err.contains(text), "{text:?} is not in {self:?}");
        }
        assert!(!self.err.contains("panicked"), "{self:?}");
    }
}
