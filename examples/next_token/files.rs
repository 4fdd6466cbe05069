//! Files that are read as they are found: something else may stand in their place.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;

/// Refuses devices, pipes and sockets, without opening them: to open a pipe waits for its other
/// end, and what devices have to say may have no end.
///
/// # Errors
/// If it is one of them, or nothing is there.
pub fn check_regular(path: &Path) -> io::Result<()> {
    let kind = fs::metadata(path)?.file_type();
    // What is wrong with a folder, the operating system says when it is opened.
    if kind.is_file() || kind.is_dir() {
        return Ok(());
    }
    Err(io::Error::new(ErrorKind::InvalidInput, "it is not a regular file"))
}

/// The contents of a regular file.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    check_regular(path)?;
    fs::read(path)
}
