//! Opening of files.

use crate::replacing::not_a_file;
use std::fs::{self, File};
use std::io;
use std::path::Path;

/// A regular file, and its length.
pub(crate) fn open_file(path: &Path) -> io::Result<(File, u64)> {
    // Devices and pipes may be endless, and opening a pipe may block. Reading a folder fails with a
    // clear error.
    let kind = fs::metadata(path)?.file_type();
    if !kind.is_file() && !kind.is_dir() {
        return Err(not_a_file());
    }
    let file = File::open(path)?;
    let length = file.metadata()?.len();
    Ok((file, length))
}
