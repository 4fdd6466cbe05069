//! Atomic replacement of a file: a crash at any time leaves the old contents or the new.

use crate::replacing::{create_like, temporary_path};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

/// Writes a file so that a crash leaves the old contents or the new. A file that is replaced gives
/// the new one its mode and, where the system permits it, its owner and group. A symbolic link is
/// replaced by the file, which has the mode of the link's target.
///
/// # Errors
/// If the operating system reports an error, or there is no file at the path but a folder or a
/// device, say. The old file then remains, and no temporary file. If only the final synchronisation
/// of the folder fails, the new file has replaced the old one, but a power failure might undo it.
pub fn write_atomically(path: impl AsRef<Path>, bytes: &[u8]) -> io::Result<()> {
    replace(&System, path.as_ref(), |file| file.write_all(bytes))
}

/// The operations of a file system that [`replace`] uses. Tests implement it with a disk that loses
/// power.
pub trait Disk {
    /// An open file.
    type File: Write;
    /// A new file that is as accessible as the file at `path`, if there is one; see [`create_like`].
    fn create(&self, temporary: &Path, path: &Path) -> io::Result<Self::File>;
    /// Returns when the contents of a file are on disk.
    fn sync(&self, file: &Self::File) -> io::Result<()>;
    /// Renames a file, replacing the file of the new name if there is one.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Returns when the names of the files in a folder are on disk.
    fn sync_folder(&self, folder: &Path) -> io::Result<()>;
    /// Removes a file.
    fn remove(&self, path: &Path) -> io::Result<()>;
}

/// The file system of the operating system.
pub struct System;

impl Disk for System {
    type File = File;

    fn create(&self, temporary: &Path, path: &Path) -> io::Result<File> {
        create_like(temporary, path)
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        file.sync_all()
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    #[cfg(unix)]
    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        File::open(folder)?.sync_all()
    }

    /// Folders cannot be opened as files.
    #[cfg(not(unix))]
    fn sync_folder(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }
}

/// Atomically replaces a file by the output of `write`, on any disk.
pub fn replace<D: Disk>(
    disk: &D,
    path: &Path,
    write: impl FnOnce(&mut D::File) -> io::Result<()>,
) -> io::Result<()> {
    if path.file_name().is_none() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a path to a file"));
    }
    let temporary = temporary_path(path, "", ".tmp");
    let result = (|| {
        let mut file = disk.create(&temporary, path)?;
        write(&mut file)?;
        disk.sync(&file)?;
        disk.rename(&temporary, path)?;
        // The rename itself must survive a crash too.
        let folder = path.parent().filter(|p| !p.as_os_str().is_empty());
        disk.sync_folder(folder.unwrap_or(Path::new(".")))
    })();
    if result.is_err() {
        let _ = disk.remove(&temporary);
    }
    result
}
