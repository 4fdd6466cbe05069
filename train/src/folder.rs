//! The folder of a run, and the choice of one if none is named.

use crate::files::{check_regular, is_same};
use crate::output::note;
use crate::stop::{OrFailed, Result, failed, usage};
use std::fs::{self, File, TryLockError};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// The default folder of the first run; further ones are `out/run-2` and so on.
const DEFAULT: &str = "out/run";
/// Locked while a process trains in the folder. It is not removed afterwards, because another process
/// may have locked it meanwhile.
const LOCK: &str = "run.lock";

/// The folder of a run.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    /// The absolute path, if the folder is locked: the working folder may be removed later.
    absolute: PathBuf,
    /// Held for the lifetime of the folder, once [`Folder::lock`] has taken it.
    lock: Option<File>,
}

impl From<PathBuf> for Folder {
    fn from(path: PathBuf) -> Self {
        Folder { path, absolute: PathBuf::new(), lock: None }
    }
}

impl Folder {
    /// A folder for a new run, locked: the requested one, which must not contain a run, or a new one.
    pub fn fresh(asked: Option<&Path>) -> Result<Folder> {
        let made = |path: PathBuf| {
            let folder = Folder::from(path);
            let making = format!("cannot make the folder {}", folder.name());
            fs::create_dir_all(&folder.path).or_failed(making).map(|()| folder)
        };
        let Some(asked) = asked else {
            for path in numbered(DEFAULT.into()).filter(|path| is_free(path)) {
                let mut folder = made(path)?;
                // Another process may have chosen it meanwhile.
                if folder.try_lock()? && is_free(&folder.path) {
                    return Ok(folder);
                }
            }
            unreachable!("there are many numbers");
        };
        let mut folder = made(asked.into())?;
        folder.lock()?;
        if folder.checkpoint().exists() {
            return usage(format!(
                "{} contains a run already; resume it, or name another folder",
                folder.name()
            ));
        }
        if folder.has_log() {
            return usage(folder.log_alone());
        }
        Ok(folder)
    }

    /// The folder of an earlier run: the requested one, or the latest that was not named.
    pub fn earlier(asked: Option<&Path>) -> Result<Folder> {
        let runs = || numbered(DEFAULT.into()).take_while(|path| !is_free(path)).map(Folder::from);
        let folder = match asked {
            Some(path) => Folder::from(PathBuf::from(path)),
            None => runs()
                .filter(|folder| folder.checkpoint().exists())
                .last()
                .unwrap_or(Folder::from(PathBuf::from(DEFAULT))),
        };
        if folder.checkpoint().exists() {
            if asked.is_none() {
                note!("Run {}", folder.name());
            }
            return Ok(folder);
        }
        if folder.is_in_use() {
            return failed(format!("{}, and has not saved a checkpoint yet", folder.in_use()));
        }
        if folder.has_log() {
            return failed(folder.log_alone());
        }
        if folder.path.exists() && !folder.path.is_dir() {
            let kind = if folder.path.is_file() { "a file" } else { "no folder" };
            return failed(format!("there is no run in {}: it is {kind}", folder.name()));
        }
        failed(format!(
            "there is no run in {}: it has no checkpoint.safetensors. The command train makes a run, --out names its folder",
            folder.name()
        ))
    }

    /// The folder of a new run for a rank that does not write: it has no path.
    pub fn of_rank_0() -> Folder {
        Folder::from(PathBuf::new())
    }

    /// Prevents other processes from training here. The operating system releases the lock when the
    /// process ends.
    pub fn lock(&mut self) -> Result<()> {
        if self.try_lock()? {
            return Ok(());
        }
        failed(self.in_use())
    }

    /// The error for a folder that another process has locked.
    fn in_use(&self) -> String {
        format!("another process is training in {}", self.name())
    }

    /// Whether another process has locked this folder.
    fn is_in_use(&self) -> bool {
        let path = self.path.join(LOCK);
        let lock = check_regular(&path).and_then(|()| File::open(&path));
        lock.is_ok_and(|lock| matches!(lock.try_lock(), Err(TryLockError::WouldBlock)))
    }

    /// Whether the lock was acquired.
    fn try_lock(&mut self) -> Result<bool> {
        let path = self.path.join(LOCK);
        let locking = format!("cannot lock {}", path.display());
        let regular = check_regular(&path).or_else(|e| match e.kind() {
            ErrorKind::NotFound => Ok(()),
            _ => Err(e),
        });
        let open = || File::options().create(true).truncate(false).write(true).open(&path);
        let file = regular.and_then(|()| open()).or_failed(&locking)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(false),
            // File systems without locks: train without one.
            Err(TryLockError::Error(e)) if e.kind() == ErrorKind::Unsupported => {}
            Err(TryLockError::Error(e)) => return failed(format!("{locking}: {e}")),
        }
        self.absolute = std::path::absolute(&self.path).unwrap_or_default();
        self.lock = Some(file);
        Ok(true)
    }

    /// Checks that the path still names the folder that was locked: it may have been deleted, renamed
    /// or replaced.
    pub fn check(&self) -> Result<()> {
        let Some(lock) = &self.lock else { return Ok(()) };
        let what = match is_same(lock, &self.path.join(LOCK)) {
            Ok(true) => return Ok(()),
            Ok(false) => "was replaced by another".to_string(),
            Err(e) if e.kind() != ErrorKind::NotFound => format!("cannot be reached: {e}"),
            Err(_) => "was deleted, emptied or renamed".to_string(),
        };
        failed(format!("the folder of the run, {}, {what}", self.name()))
    }

    /// New locked folders, in case this one was removed: one beside it, then one among the temporary
    /// files.
    pub fn fallbacks(&self) -> impl Iterator<Item = Result<Folder>> {
        let name = self.absolute.file_name().unwrap_or("run".as_ref());
        let temporary = std::env::temp_dir().join(name);
        [self.absolute.clone(), temporary].into_iter().map(|path| {
            let free = numbered(path).skip(1).find(|path| is_free(path)).expect("many numbers");
            Folder::fresh(Some(&free))
        })
    }

    fn has_log(&self) -> bool {
        fs::metadata(self.log()).is_ok_and(|log| log.len() > 0)
    }

    /// The error for a folder with a log but no checkpoint.
    fn log_alone(&self) -> String {
        self.note_whole();
        format!(
            "{} has a log but no checkpoint, so its run cannot be resumed; name another folder, or \
             remove {}",
            self.name(),
            self.log().display()
        )
    }

    /// Removes temporary files of a process that was killed while writing.
    pub fn remove_temporary_files(&self) {
        for entry in fs::read_dir(&self.path).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            let files = ["checkpoint", "best.safetensors.", "log.jsonl.", "looks.jsonl."];
            let is_file = |start: &&str| name.starts_with(start);
            let ours =
                files.iter().chain(&["tokenizer.json."]).any(is_file) && name.ends_with(".tmp");
            let page = name.starts_with(".run.html.") && name.ends_with(".partial");
            if ours || page {
                let _ = fs::remove_file(entry.path());
            }
        }
    }

    /// The path as text.
    pub fn name(&self) -> String {
        self.path.display().to_string()
    }

    pub fn checkpoint(&self) -> PathBuf {
        self.path.join("checkpoint.safetensors")
    }

    /// A copy of the checkpoint with the lowest held-out loss of all evaluations during training.
    pub fn best(&self) -> PathBuf {
        self.path.join("best.safetensors")
    }

    /// The checkpoint of a step, if it was kept.
    pub fn kept(&self, step: u64) -> PathBuf {
        self.path.join(format!("checkpoint-{step}.safetensors"))
    }

    pub fn log(&self) -> PathBuf {
        self.path.join("log.jsonl")
    }

    /// What the page shows beside the log.
    pub fn looks(&self) -> PathBuf {
        self.path.join("looks.jsonl")
    }

    /// Another file.
    pub fn join(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }
}

/// A path, then the same path with `-2`, `-3` and so on appended.
fn numbered(path: PathBuf) -> impl Iterator<Item = PathBuf> {
    let name = path.file_name().unwrap_or_default().to_os_string();
    std::iter::once(path.clone()).chain((2..).map(move |n| {
        let mut name = name.clone();
        name.push(format!("-{n}"));
        path.with_file_name(name)
    }))
}

/// Whether nothing is there, or a folder without other files than a lock.
fn is_free(path: &Path) -> bool {
    let is_lock = |entry: std::io::Result<fs::DirEntry>| entry.is_ok_and(|e| e.file_name() == LOCK);
    !path.exists() || fs::read_dir(path).is_ok_and(|mut entries| entries.all(is_lock))
}
