//! Memory use of checkpoints: no memory but that of the tensors, and a failed allocation is an
//! error.
//!
//! Each test runs itself again in a process whose memory the system limits, with one task.
#![cfg(target_os = "linux")]

use crate::checkpoint::{file, one, raw};
use retrograd_nn::StateDict;
use retrograd_nn::checkpoint::{Checkpoint, CheckpointError};
use retrograd_tensor::Tensor;
use std::fs::{self, File};
use std::path::Path;
use std::process::Command;

/// Bytes of a million f32.
const MILLION: usize = 4_000_000;

/// Runs a job in a process with this many megabytes of memory, and returns its output.
#[track_caller]
fn with_memory(megabytes: usize, job: &str, path: &Path) -> String {
    let run = format!(
        r#"ulimit -v {}; exec "$0" --exact checkpoint_memory::child --nocapture"#,
        megabytes * 1000
    );
    let mut command = Command::new("sh");
    command.arg("-c").arg(run).arg(std::env::current_exe().unwrap());
    // Each thread may reserve the address space of an arena of the allocator.
    command.env("MALLOC_ARENA_MAX", "1").env("RAYON_NUM_THREADS", "1");
    command.env("CHECKPOINT_JOB", job).env("CHECKPOINT_TEST_PATH", path);
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{job}: {:?}\n{said}\n{errors}", output.status);
    let line = said.lines().find_map(|line| line.split_once("says: "));
    line.unwrap_or_else(|| panic!("{job} said nothing:\n{said}\n{errors}")).1.to_string()
}

fn weights(millions: usize) -> Checkpoint {
    let mut file = Checkpoint::new();
    let dict =
        StateDict::from([("w".to_string(), Tensor::<f32>::full([millions, 1_000_000], 0.5))]);
    file.put("model", &dict);
    file
}

/// Executes the job of a child process; without one it does nothing.
#[test]
fn child() {
    let Ok(job) = std::env::var("CHECKPOINT_JOB") else { return };
    let path = std::env::var_os("CHECKPOINT_TEST_PATH").unwrap();
    let path = Path::new(&path);
    let loaded = |file: Result<Checkpoint, CheckpointError>| match file {
        Ok(file) => format!("{:?} of {:?}", file.tensors.keys(), file.notes.keys()),
        Err(e @ CheckpointError::OutOfMemory { .. }) => format!("out of memory: {e}"),
        Err(e) => e.to_string(),
    };
    let said = match job.as_str() {
        "save" => format!("{:?}", weights(50).save(path)),
        "load" => loaded(Checkpoint::load(path)),
        "load model" => loaded(Checkpoint::load_filtered(path, |name| name.starts_with("model"))),
        "read a note" => {
            let file = Checkpoint::load(path).unwrap();
            format!("{}", file.read_note::<Vec<u8>>("list").unwrap().len())
        }
        other => panic!("{other}"),
    };
    println!("says: {said}");
}

#[test]
fn saving_allocates_no_memory_for_tensors() {
    let (_dir, path) = file();
    // 200 MB of weights, and memory for one more copy, but not for two.
    assert_eq!(with_memory(450, "save", &path), "Ok(())");
    assert!(fs::metadata(&path).unwrap().len() > 50 * MILLION as u64);
    // Loading, too.
    assert_eq!(with_memory(450, "load", &path), r#"["model.w"] of []"#);
}

/// A sparse file of tensors of given lengths, all 0, which takes no space on disk.
fn zeros(path: &Path, tensors: &[(&str, usize)]) {
    let (mut end, mut entries) = (0, Vec::new());
    for (name, len) in tensors {
        let begin = end;
        end += 4 * *len as u64;
        entries.push(one(name, "F32", &format!("[{len}]"), begin, end));
    }
    let bytes = raw(&format!("{{{}}}", entries.join(",")), 0);
    fs::write(path, &bytes).unwrap();
    File::options().write(true).open(path).unwrap().set_len(bytes.len() as u64 + end).unwrap();
}

#[test]
fn out_of_memory_is_an_error() {
    let (_dir, path) = file();
    zeros(&path, &[("a", 1000), ("b", 200_000_000)]);
    let want =
        format!("out of memory: {}: no memory for 800000000 bytes of tensor `b`", path.display());
    assert_eq!(with_memory(450, "load", &path), want);
}

#[test]
fn filtered_tensors_take_no_memory() {
    let (_dir, path) = file();
    zeros(&path, &[("model.w", 1_000_000), ("optimizer.m", 100_000_000)]);
    assert!(with_memory(300, "load", &path).starts_with("out of memory: "));
    assert_eq!(with_memory(300, "load model", &path), r#"["model.w"] of []"#);
    // The same for a file with a checksum, which is read to the end.
    let mut file = weights(50);
    file.put("model", &StateDict::from([("b".to_string(), Tensor::<f32>::ones([3]))]));
    file.save(&path).unwrap();
    assert!(with_memory(200, "load", &path).starts_with("out of memory: "));
    assert!(Checkpoint::load_filtered(&path, |name| name == "model.b").is_ok());
}

#[test]
fn long_lists_in_a_header_take_a_few_times_their_length() {
    let (_dir, path) = file();
    // 10 MB of text. With a JSON value per number it would take 160 MB.
    let list = format!("[{}0]", "0,".repeat(5_000_000));
    let text = |header: String| {
        fs::write(&path, raw(&header, 0)).unwrap();
        let said = with_memory(190, "load", &path);
        said.split_once(" is no checkpoint: ").map_or(said.clone(), |(_, why)| why.to_string())
    };
    let many_axes = text(format!("{{{}}}", one("w", "F32", &list, 0, 0)));
    assert_eq!(many_axes, "tensor `w`: its shape has more than 64 axes");
    let no_string = text(format!(r#"{{"__metadata__":{{"a":{list}}}}}"#));
    assert_eq!(no_string, "`a` in `__metadata__` is no string");
    let no_object = text(format!(r#"{{"__metadata__":{list}}}"#));
    assert_eq!(no_object, "`__metadata__` is no JSON object");
    let no_tensor = text(format!(r#"{{"w":{list}}}"#));
    assert!(no_tensor.starts_with("tensor `w`: "), "{no_tensor}");
    let more = r#""dtype":"F32","shape":[0],"data_offsets":[0,0]"#;
    let passed_over = text(format!(r#"{{"w":{{{more},"more":{list}}}}}"#));
    assert_eq!(passed_over, r#"["w"] of []"#);
    // A long note, which is a list in a string in the header.
    let mut file = Checkpoint::new();
    file.note("list", &vec![0u8; 5_000_000]);
    file.save(&path).unwrap();
    drop(file);
    assert_eq!(with_memory(190, "read a note", &path), "5000000");
}

#[test]
fn a_header_for_which_there_is_no_memory_is_an_error() {
    let (_dir, path) = file();
    let spaces = " ".repeat(90_000_000);
    fs::write(&path, raw(&format!("{{}}{spaces}"), 0)).unwrap();
    let said = with_memory(120, "load", &path);
    assert!(
        said.starts_with("out of memory: ") && said.ends_with(" bytes of its header"),
        "{said}"
    );
}
