//! Atomic replacement of a file: a crash at any time leaves the old contents or the new.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Writes a file so that a crash leaves the old contents or the new. A symbolic link is
/// replaced by the file.
///
/// # Errors
/// If the operating system reports an error, or the path is not that of a file but of a folder or a
/// device, say. The old file then remains, and no temporary file. If only the final synchronisation
/// of the folder fails, the new file has replaced the old one, but a power failure might undo it.
pub fn write_atomically(path: &Path, bytes: &[u8]) -> io::Result<()> {
    replace(&System, path, |file| file.write_all(bytes))
}

/// The operations of a file system that [`replace`] uses. Tests implement it with a disk that loses
/// power.
pub(super) trait Disk {
    /// An open file.
    type File: Write;
    /// A new file, or an old one emptied.
    fn create(&self, path: &Path) -> io::Result<Self::File>;
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
pub(super) struct System;

impl Disk for System {
    type File = File;

    fn create(&self, path: &Path) -> io::Result<File> {
        File::create(path)
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
pub(super) fn replace<D: Disk>(
    disk: &D,
    path: &Path,
    write: impl FnOnce(&mut D::File) -> io::Result<()>,
) -> io::Result<()> {
    static COUNTER: AtomicU32 = AtomicU32::new(0);
    let name = path
        .file_name()
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "not a path to a file"))?;
    // A rename would replace even a device such as /dev/null, given the rights.
    if fs::symlink_metadata(path).is_ok_and(|m| !m.is_file() && !m.is_symlink()) {
        return Err(not_a_file());
    }
    let count = COUNTER.fetch_add(1, Relaxed);
    let mut temporary = name.to_os_string();
    temporary.push(format!(".{}-{count}.tmp", std::process::id()));
    let temporary = path.with_file_name(temporary);
    let result = (|| {
        let mut file = disk.create(&temporary)?;
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

pub(super) fn not_a_file() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::{Cell, RefCell};
    use std::collections::BTreeMap;
    use std::path::PathBuf;
    use std::rc::Rc;

    /// A file: what has been written, and what of it is on disk.
    #[derive(Default)]
    struct Contents {
        written: RefCell<Vec<u8>>,
        on_disk: RefCell<Vec<u8>>,
    }

    type Names = BTreeMap<PathBuf, Rc<Contents>>;

    /// A disk whose power fails after a number of operations. What has not been synced by then
    /// may be lost.
    #[derive(Default)]
    struct Failing {
        names: RefCell<Names>,
        names_on_disk: RefCell<Names>,
        operations_left: Rc<Cell<usize>>,
    }

    struct OpenFile {
        contents: Rc<Contents>,
        operations_left: Rc<Cell<usize>>,
    }

    fn operate(left: &Cell<usize>) -> io::Result<()> {
        let now = left.get().checked_sub(1).ok_or_else(|| io::Error::other("no power"))?;
        left.set(now);
        Ok(())
    }

    impl Write for OpenFile {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            operate(&self.operations_left)?;
            self.contents.written.borrow_mut().extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Disk for Failing {
        type File = OpenFile;

        fn create(&self, path: &Path) -> io::Result<OpenFile> {
            operate(&self.operations_left)?;
            let contents = Rc::new(Contents::default());
            self.names.borrow_mut().insert(path.into(), contents.clone());
            Ok(OpenFile { contents, operations_left: self.operations_left.clone() })
        }

        fn sync(&self, file: &OpenFile) -> io::Result<()> {
            operate(&self.operations_left)?;
            file.contents.on_disk.replace(file.contents.written.borrow().clone());
            Ok(())
        }

        fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
            operate(&self.operations_left)?;
            let mut names = self.names.borrow_mut();
            let contents = names.remove(from).ok_or(io::ErrorKind::NotFound)?;
            names.insert(to.into(), contents);
            Ok(())
        }

        fn sync_folder(&self, folder: &Path) -> io::Result<()> {
            operate(&self.operations_left)?;
            let names = self.names.borrow();
            let inside = names.iter().filter(|(path, _)| path.parent() == Some(folder));
            let mut on_disk = self.names_on_disk.borrow_mut();
            on_disk.retain(|path, _| path.parent() != Some(folder));
            on_disk.extend(inside.map(|(path, contents)| (path.clone(), contents.clone())));
            Ok(())
        }

        fn remove(&self, path: &Path) -> io::Result<()> {
            operate(&self.operations_left)?;
            self.names.borrow_mut().remove(path);
            Ok(())
        }
    }

    impl Failing {
        /// What may be found under a path when power is back: a file system may or may not have
        /// brought the names to disk by itself, and need not have brought the contents.
        fn afterwards(&self, path: &Path) -> [Vec<u8>; 2] {
            [&self.names_on_disk, &self.names].map(|names| match names.borrow().get(path) {
                Some(contents) => contents.on_disk.borrow().clone(),
                None => b"no file".to_vec(),
            })
        }
    }

    #[test]
    fn whenever_power_fails_the_old_contents_or_the_new_are_on_disk() {
        let path = Path::new("/a folder that is not there/file");
        let save = |disk: &Failing, parts: [&[u8]; 2]| {
            replace(disk, path, |file| parts.iter().try_for_each(|part| file.write_all(part)))
        };
        let (mut old, mut new) = (0, 0);
        for operations in 0.. {
            let disk = Failing::default();
            disk.operations_left.set(usize::MAX);
            save(&disk, [b"old ", b"contents"]).unwrap();
            assert_eq!(disk.afterwards(path), [b"old contents"; 2]);

            disk.operations_left.set(operations);
            let saved = save(&disk, [b"new ", b"contents"]);
            for found in disk.afterwards(path) {
                match &found[..] {
                    b"old contents" => {
                        assert!(saved.is_err(), "said to be saved, and lost after {operations}");
                        old += 1;
                    }
                    b"new contents" => new += 1,
                    other => panic!("{:?} after {operations}", String::from_utf8_lossy(other)),
                }
            }
            if saved.is_ok() {
                // Create, two writes, sync, rename and sync of the folder, and no more.
                assert_eq!((operations, disk.operations_left.get()), (6, 0));
                break;
            }
        }
        assert!(old >= 5 && new >= 3, "{old} {new}");
    }

    #[test]
    fn what_cannot_be_written_leaves_nothing_behind() {
        let disk = Failing::default();
        disk.operations_left.set(usize::MAX);
        let error = replace(&disk, Path::new("/x/file"), |_| Err(io::Error::other("full")));
        assert_eq!(error.unwrap_err().to_string(), "full");
        assert!(disk.names.borrow().is_empty());
    }
}
