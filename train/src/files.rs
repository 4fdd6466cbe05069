//! Reading of regular files only: a path may lead to a pipe or a device.

use crate::stop::{OrFailed, Result};
use retrograd::nn::checkpoint;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::Path;

/// Rejects devices, pipes and sockets without opening them: opening a pipe blocks until its other
/// end is open, and reading a device may never end.
///
/// # Errors
/// If it is one of them, or nothing is there.
pub fn check_regular(path: &Path) -> io::Result<()> {
    let kind = fs::metadata(path)?.file_type();
    // A folder is an error of the operating system when it is opened.
    if kind.is_file() || kind.is_dir() {
        return Ok(());
    }
    Err(io::Error::new(ErrorKind::InvalidInput, "it is not a regular file"))
}

/// Makes the folder of a file that is to be written, and those above it.
pub fn make_folder_of(file: &Path) -> Result<()> {
    let Some(folder) = file.parent() else { return Ok(()) };
    let making = format!("cannot make the folder {}", folder.display());
    fs::create_dir_all(folder).or_failed(making)
}

/// The contents of a regular file of a run.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    checkpoint::read(path, 1 << 32)
}

/// Whether a path still names the file that was opened by it.
///
/// # Errors
/// If nothing is there, or its metadata cannot be read.
pub fn is_same(file: &File, path: &Path) -> io::Result<bool> {
    let (open, there) = (file.metadata()?, fs::metadata(path)?);
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        Ok((open.dev(), open.ino()) == (there.dev(), there.ino()))
    }
    // Elsewhere an open file cannot be replaced.
    #[cfg(not(unix))]
    Ok(open.is_file() && there.is_file())
}
