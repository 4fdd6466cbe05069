//! Temporary files that replace another file when they are complete.

use std::fs::{self, File, OpenOptions};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Bytes of a name that a temporary name begins with. File systems limit names to 255 bytes, some to 143.
const BEGINNING: usize = 100;

/// The path of a temporary file in the folder of `path`: `before`, the name of the file, a part that no other
/// call has, `after`. A long name is cut, so that the temporary name is valid if the name is.
pub fn temporary_path(path: impl AsRef<Path>, before: &str, after: &str) -> PathBuf {
    static COUNTER: AtomicU32 = AtomicU32::new(0);
    /// Containers that share a folder may have processes of one number.
    static PROCESS: LazyLock<u64> = LazyLock::new(|| RandomState::new().hash_one(process::id()));
    let path = path.as_ref();
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let fits = |&(at, c): &(usize, char)| at + c.len_utf8() <= BEGINNING;
    let beginning: String = name.char_indices().take_while(fits).map(|(_, c)| c).collect();
    let unique = format!("{:016x}-{}", *PROCESS, COUNTER.fetch_add(1, Relaxed));
    path.with_file_name(format!("{before}{beginning}.{unique}{after}"))
}

/// A new file at `temporary` with the mode of the file at `path` and, where the system permits it, its
/// owner and group, so that replacing a private file does not publish it. If the group cannot be kept, the
/// new group has no rights. Without a file at `path` it is a file as any other.
///
/// # Errors
/// If there is something else than a regular file or a link at `path`, a device, say, which a rename would
/// replace; if there is anything at `temporary`; or if the operating system reports an error.
///
/// ```
/// use retrograd::nn::replacing::{create_like, temporary_path};
/// let path = std::env::temp_dir().join(format!("doc-replacing-{}", std::process::id()));
/// let temporary = temporary_path(&path, ".", ".tmp");
/// std::io::Write::write_all(&mut create_like(&temporary, &path)?, b"complete")?;
/// std::fs::rename(&temporary, &path)?;
/// std::fs::remove_file(&path)?;
/// Ok::<(), std::io::Error>(())
/// ```
pub fn create_like(temporary: impl AsRef<Path>, path: impl AsRef<Path>) -> io::Result<File> {
    let (temporary, path) = (temporary.as_ref(), path.as_ref());
    match fs::symlink_metadata(path) {
        Ok(old) if !old.is_file() && !old.is_symlink() => return Err(not_a_file()),
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    if let Ok(old) = fs::metadata(path) {
        use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
        // Private until it has its owner.
        let file = options.mode(0o600).open(temporary)?;
        let new = file.metadata()?;
        let (group, mut mode) = (Some(old.gid()), old.mode() & 0o777);
        let same = (old.uid(), old.gid()) == (new.uid(), new.gid());
        if !same
            && fchown(&file, Some(old.uid()), group).is_err()
            && fchown(&file, None, group).is_err()
        {
            mode &= !0o070;
        }
        if new.mode() & 0o777 != mode {
            file.set_permissions(fs::Permissions::from_mode(mode))?;
        }
        return Ok(file);
    }
    options.open(temporary)
}

/// The error where there is something else than a regular file.
pub fn not_a_file() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file")
}
