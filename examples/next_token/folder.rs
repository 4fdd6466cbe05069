//! The folder of a run, and which one it is when none is named.

use crate::stop::{OrFailed, Result, failed, usage};
use std::fs;
use std::path::{Path, PathBuf};

/// The folder of the first run that names none; the next ones are `out/next_token-2` and so on.
const DEFAULT: &str = "out/next_token";

/// The folder of a run.
#[derive(Clone, Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// A folder for a new run: the one asked for, which must hold no run, or a new one.
    pub fn fresh(asked: Option<&Path>) -> Result<Folder> {
        let folder = match asked {
            Some(path) => Folder(path.into()),
            None => Folder(numbered().find(|path| is_free(path)).expect("there are many numbers")),
        };
        let name = folder.name();
        let is_log = fs::metadata(folder.log()).is_ok_and(|log| log.len() > 0);
        if folder.checkpoint().exists() || is_log {
            return usage(format!(
                "{name} holds a run already; add --resume to go on with it, or name another folder"
            ));
        }
        fs::create_dir_all(&folder.0).or_failed(format!("cannot make the folder {name}"))?;
        Ok(folder)
    }

    /// The folder of an earlier run: the one asked for, or the latest that was not named.
    pub fn earlier(asked: Option<&Path>) -> Result<Folder> {
        let runs = || numbered().take_while(|path| !is_free(path)).map(Folder);
        let folder = match asked {
            Some(path) => Folder(path.into()),
            None => runs()
                .filter(|folder| folder.checkpoint().exists())
                .last()
                .unwrap_or(Folder(DEFAULT.into())),
        };
        if folder.checkpoint().exists() {
            return Ok(folder);
        }
        failed(format!("there is no run in {}: it has no checkpoint.safetensors", folder.name()))
    }

    /// Removes what a process that was killed in the middle of writing has left.
    pub fn sweep(&self) {
        for entry in fs::read_dir(&self.0).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            let ours =
                name.starts_with("checkpoint.safetensors.") || name.starts_with("log.jsonl.");
            if ours && name.ends_with(".tmp") {
                let _ = fs::remove_file(entry.path());
            }
        }
    }

    /// For messages and commands.
    pub fn name(&self) -> String {
        self.0.display().to_string()
    }

    pub fn checkpoint(&self) -> PathBuf {
        self.0.join("checkpoint.safetensors")
    }

    pub fn log(&self) -> PathBuf {
        self.0.join("log.jsonl")
    }

    pub fn loss_curve(&self) -> PathBuf {
        self.0.join("loss.svg")
    }

    /// The picture of a layer's attention; layers are counted from 1.
    pub fn attention(&self, layer: usize) -> PathBuf {
        self.0.join(format!("attention-{layer}.svg"))
    }
}

fn numbered() -> impl Iterator<Item = PathBuf> {
    std::iter::once(DEFAULT.into()).chain((2..).map(|n| format!("{DEFAULT}-{n}").into()))
}

/// Whether nothing is there, or an empty folder.
fn is_free(path: &Path) -> bool {
    !path.exists() || fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none())
}
