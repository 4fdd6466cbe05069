//! Atomic replacement of a file on a disk that loses power.

use retrograd_nn::internals::{Disk, System, replace};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
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
    power: Rc<Power>,
}

#[derive(Default)]
struct Power {
    operations_left: Cell<usize>,
    /// Whether it is back after one operation that failed.
    returns: Cell<bool>,
    /// The operations so far.
    log: RefCell<Vec<String>>,
}

impl Power {
    fn operate(&self, operation: String) -> io::Result<()> {
        self.log.borrow_mut().push(operation);
        let left = self.operations_left.get();
        let restored = if self.returns.get() { usize::MAX } else { 0 };
        self.operations_left.set(left.checked_sub(1).unwrap_or(restored));
        if left > 0 { Ok(()) } else { Err(io::Error::other("no power")) }
    }
}

struct OpenFile {
    contents: Rc<Contents>,
    power: Rc<Power>,
}

impl Write for OpenFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.power.operate(format!("write {}", bytes.len()))?;
        self.contents.written.borrow_mut().extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Disk for Failing {
    type File = OpenFile;

    fn create(&self, temporary: &Path, path: &Path) -> io::Result<OpenFile> {
        self.power.operate(format!("create {temporary:?} like {path:?}"))?;
        let contents = Rc::new(Contents::default());
        self.names.borrow_mut().insert(temporary.into(), contents.clone());
        Ok(OpenFile { contents, power: self.power.clone() })
    }

    fn sync(&self, file: &OpenFile) -> io::Result<()> {
        self.power.operate("sync".into())?;
        file.contents.on_disk.replace(file.contents.written.borrow().clone());
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.power.operate(format!("rename {from:?} to {to:?}"))?;
        let mut names = self.names.borrow_mut();
        let contents = names.remove(from).ok_or(io::ErrorKind::NotFound)?;
        names.insert(to.into(), contents);
        Ok(())
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        self.power.operate(format!("sync folder {folder:?}"))?;
        let names = self.names.borrow();
        let inside = names.iter().filter(|(path, _)| path.parent() == Some(folder));
        let mut on_disk = self.names_on_disk.borrow_mut();
        on_disk.retain(|path, _| path.parent() != Some(folder));
        on_disk.extend(inside.map(|(path, contents)| (path.clone(), contents.clone())));
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.power.operate(format!("remove {path:?}"))?;
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
        disk.power.operations_left.set(usize::MAX);
        save(&disk, [b"old ", b"contents"]).unwrap();
        assert_eq!(disk.afterwards(path), [b"old contents"; 2]);

        disk.power.operations_left.set(operations);
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
            assert_eq!((operations, disk.power.operations_left.get()), (6, 0));
            break;
        }
    }
    assert!(old >= 5 && new >= 3, "{old} {new}");
}

#[test]
fn the_operations_are_those_of_a_safe_replacement_and_any_may_fail() {
    for (path, folder) in [("/a/file", "/a"), ("file", "."), ("a/file", "a")] {
        for failing in (0..=6).rev() {
            let disk = Failing::default();
            disk.names.borrow_mut().insert(path.into(), Rc::default());
            disk.power.operations_left.set(failing);
            disk.power.returns.set(true);
            let saved = replace(&disk, Path::new(path), |file| {
                file.write_all(b"new ").and_then(|()| file.write_all(b"contents"))
            });
            let log = disk.power.log.borrow();
            let temporary = log[0].split('"').nth(1).unwrap();
            assert_eq!(Path::new(temporary).parent(), Path::new(path).parent());
            let mut want = vec![
                format!("create {temporary:?} like {path:?}"),
                "write 4".into(),
                "write 8".into(),
                "sync".into(),
                format!("rename {temporary:?} to {path:?}"),
                format!("sync folder {folder:?}"),
            ];
            if failing < 6 {
                want.truncate(failing + 1);
                want.push(format!("remove {temporary:?}"));
            }
            assert_eq!(*log, want);
            assert_eq!(saved.is_ok(), failing == 6);
            let names = disk.names.borrow();
            assert_eq!(names.keys().collect::<Vec<_>>(), [Path::new(path)], "{failing}");
            let new = names[Path::new(path)].written.borrow().len() == 12;
            assert_eq!(new, failing >= 5, "{failing}");
        }
    }
}

/// What cannot be synced is an error, so that a sync that is left out is found.
#[test]
#[cfg(target_os = "linux")]
fn the_file_system_is_asked_to_sync() {
    let device = Path::new("/dev/null");
    let kind = |result: io::Result<()>| result.map_err(|e| e.kind());
    assert_eq!(kind(System.sync_folder(device)), Err(io::ErrorKind::InvalidInput));
    assert_eq!(kind(System.sync(&File::open(device).unwrap())), Err(io::ErrorKind::InvalidInput));
    assert_eq!(kind(System.sync_folder(Path::new("."))), Ok(()));
}

#[test]
fn what_cannot_be_written_leaves_nothing_behind() {
    let disk = Failing::default();
    disk.power.operations_left.set(usize::MAX);
    let error = replace(&disk, Path::new("/x/file"), |_| Err(io::Error::other("full")));
    assert_eq!(error.unwrap_err().to_string(), "full");
    assert!(disk.names.borrow().is_empty());
}
