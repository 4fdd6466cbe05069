//! Which checkpoints of a run are kept, and which one is loaded.

use crate::folder::Folder;
use crate::output::note;
use crate::stop::{OrFailed, Result, usage};
use retrograd::nn::checkpoint::Checkpoint;
use retrograd::nn::replacing::{create_like, temporary_path};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::{fs, io};

/// The evaluation during training with the lowest held-out loss.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Best {
    pub step: u64,
    pub val_loss: f64,
}

/// A checkpoint, as `--checkpoint` names it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Which {
    #[default]
    Last,
    Best,
    /// After this step.
    Step(u64),
}

impl FromStr for Which {
    type Err = &'static str;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        match name {
            "last" => Ok(Which::Last),
            "best" => Ok(Which::Best),
            step => step.parse().map(Which::Step).map_err(|_| "one of last, best and a step"),
        }
    }
}

impl Folder {
    /// The path of a checkpoint that is there.
    pub fn checkpoint_of(&self, which: Which) -> Result<PathBuf> {
        let (path, what) = match which {
            Which::Last => return Ok(self.checkpoint()),
            Which::Best => (self.best(), "an evaluation during training writes it"),
            Which::Step(step) => {
                (self.kept(step), "--keep-every and --keep-size say which are kept")
            }
        };
        if path.exists() {
            return Ok(path);
        }
        let steps: Vec<String> = self.kept_steps().iter().map(u64::to_string).collect();
        let there = if self.best().exists() { ["last", "best"].join(", ") } else { "last".into() };
        let there = [&[there], &steps[..]].concat().join(", ");
        usage(format!("there is no {} ({what}); there are: {there}", path.display()))
    }

    /// The steps of the checkpoints that were kept, ascending.
    pub fn kept_steps(&self) -> Vec<u64> {
        let folder = self.checkpoint();
        let entries = folder.parent().and_then(|folder| fs::read_dir(folder).ok());
        let step = |entry: fs::DirEntry| {
            let name = entry.file_name();
            let name = name.to_str()?.strip_prefix("checkpoint-")?.strip_suffix(".safetensors")?;
            name.parse().ok()
        };
        let mut steps: Vec<u64> =
            entries.into_iter().flatten().flatten().filter_map(step).collect();
        steps.sort_unstable();
        steps
    }

    /// Prints which of the checkpoints that were kept is the last one that loads, after another one did not.
    pub fn note_whole(&self) {
        let whole = |&step: &u64| Checkpoint::load(self.kept(step)).is_ok();
        if let Some(step) = self.kept_steps().into_iter().rev().find(whole) {
            let kept = self.kept(step);
            note!(
                "note: {} is whole: --checkpoint {step} names it, and resume goes on from it if it is copied to {}",
                kept.display(),
                self.checkpoint().display()
            );
        }
    }

    /// Copies the checkpoint as the best one.
    pub fn copy_as_best(&self) -> Result<()> {
        self.check()?;
        copy(&self.checkpoint(), &self.best())
    }

    /// Keeps the checkpoint as that of a step. If they do not all fit into `bytes`, the ones between which the steps
    /// are least apart are removed, but never the first one.
    ///
    /// It is a second name of the file: the next checkpoint is a new file. A file system without such links has a
    /// copy.
    pub fn keep(&self, step: u64, bytes: u64) -> Result<()> {
        self.check()?;
        let (from, to) = (self.checkpoint(), self.kept(step));
        let size = fs::metadata(&from).or_failed("cannot read the checkpoint")?.len();
        let mut steps = self.kept_steps();
        steps.retain(|&other| other != step);
        steps.push(step);
        steps.sort_unstable();
        let remove = |step| {
            let path = self.kept(step);
            fs::remove_file(&path).or_failed(format!("cannot remove {}", path.display()))
        };
        if to.exists() {
            remove(step)?;
        }
        while steps.len() as u64 * size > bytes {
            let inner = 1..steps.len().saturating_sub(1);
            let nearest = inner.min_by_key(|&i| steps[i + 1] - steps[i - 1]);
            let old = steps.remove(nearest.unwrap_or(steps.len() - 1));
            if old == step {
                return Ok(());
            }
            remove(old)?;
        }
        if fs::hard_link(&from, &to).is_ok() { Ok(()) } else { copy(&from, &to) }
    }
}

/// Copies a file; the copy is complete or is not there, with the mode of the file that it replaces, or of
/// its original. It is not forced to the disk, as its original was.
fn copy(from: &Path, to: &Path) -> Result<()> {
    let temporary = temporary_path(to, "", ".tmp");
    let copied = || -> io::Result<()> {
        let mut file = create_like(&temporary, if to.exists() { to } else { from })?;
        io::copy(&mut fs::File::open(from)?, &mut file)?;
        fs::rename(&temporary, to)
    };
    copied().or_failed(format!("cannot write {}", to.display())).inspect_err(|_| {
        let _ = fs::remove_file(&temporary);
    })
}
