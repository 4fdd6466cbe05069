//! Errors of checkpoints.

use super::header::FORMAT;
use crate::text::Printable;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::{fmt, io};

/// An error of saving or loading a file of tensors.
#[derive(Debug)]
#[non_exhaustive]
pub enum CheckpointError {
    /// An error of the operating system.
    Io(PathBuf, io::Error),
    /// The file is not a complete safetensors file.
    Malformed(PathBuf, String),
    /// The file is no NumPy file, or none that is supported.
    Unreadable(PathBuf, String),
    /// The contents differ from what was written.
    Damaged(PathBuf),
    /// Written by a later version.
    Newer(PathBuf, u32),
    /// An expected tensor, note or type is missing.
    Absent(String),
    /// Tensors that a [`StateMap`](crate::StateMap) cannot be applied to.
    Unmapped(String),
    /// There is no memory for a part of the file.
    OutOfMemory {
        /// The file.
        path: PathBuf,
        /// The size of the failed allocation.
        bytes: usize,
        /// The part of the file that it was for.
        part: String,
    },
}

impl fmt::Display for CheckpointError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let f = &mut Printable(f);
        match self {
            CheckpointError::Io(path, e) => write!(f, "{}: {e}", path.display()),
            CheckpointError::Malformed(path, why) => {
                write!(f, "{} is no checkpoint: {why}", path.display())
            }
            CheckpointError::Unreadable(path, why) => {
                write!(f, "{} cannot be read: {why}", path.display())
            }
            CheckpointError::Damaged(path) => {
                write!(f, "{} is damaged: its contents do not match its checksum", path.display())
            }
            CheckpointError::Newer(path, version) => write!(
                f,
                "{} has format version {version}, this build reads up to {FORMAT}",
                path.display()
            ),
            CheckpointError::Absent(what) => write!(f, "the checkpoint has no {what}"),
            CheckpointError::Unmapped(why) => write!(f, "the state dict cannot be mapped: {why}"),
            CheckpointError::OutOfMemory { path, bytes, part } => {
                write!(f, "{}: no memory for {bytes} bytes of {part}", path.display())
            }
        }
    }
}

impl std::error::Error for CheckpointError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            CheckpointError::Io(_, e) => Some(e),
            _ => None,
        }
    }
}

/// The header entry of a tensor that is not supported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsupported {
    /// The element type as the format names it, such as `F8_E4M3`.
    pub dtype: String,
    /// The sizes of the axes.
    pub shape: Vec<usize>,
    /// Why it is not supported, as a relative clause.
    pub reason: String,
}

impl fmt::Display for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(Printable(f), "{} {:?}, {}", self.dtype, self.shape, self.reason)
    }
}
