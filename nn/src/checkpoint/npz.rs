//! Archives of tensors in NumPy's format `.npz`, as `numpy.savez` writes and `numpy.load` reads
//! them. Needs the feature `npz`.
//!
//! An archive is a zip file with an entry `<name>.npy` for every tensor, in the format of
//! [`npy`].

use super::any_tensor::AnyTensor;
use super::error::CheckpointError;
use super::npy::{self, Problem};
use super::open::open_file;
use super::reader::TORCH_HINT;
use super::{Checkpoint, atomic};
use std::collections::BTreeMap;
use std::io::{self, BufReader, Read};
use std::path::Path;
use zip::result::ZipError;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipArchive, ZipWriter};

/// More than deflate can compress by, 1032 times, with a margin for its own bytes.
const LARGEST_RATIO: u64 = 1100;

/// Reads all tensors of an archive, compressed (`numpy.savez_compressed`) or not.
///
/// Arrays that are no tensors, of strings or complex numbers, say, are in
/// [`Checkpoint::unsupported`]. There are no notes. Folders and other files than `.npy` files, as
/// `zip -r` adds them, are left out.
///
/// # Errors
/// If the file cannot be read, is no zip file, is damaged, or has files but no `.npy` file; if two
/// entries or arrays have one name, or entries share bytes of the file; if there is no memory for an array; or if a
/// `.npy` file contains no array, as for [`npy::load`].
///
/// ```
/// use retrograd::nn::npz;
/// use retrograd::prelude::*;
///
/// let path = std::env::temp_dir().join(format!("doc-{}.npz", std::process::id()));
/// let mut file = Checkpoint::new();
/// file.tensors.insert("x".into(), Tensor::from([1.0f32, 2.0]).into());
/// file.tensors.insert("labels".into(), Tensor::from([0i64, 1]).into());
/// npz::save(&path, &file.tensors).unwrap();
///
/// let file = npz::load(&path).unwrap();
/// assert_eq!(file.tensors["x"].to_float::<f32>().unwrap().to_vec(), [1.0, 2.0]);
/// assert_eq!(file.tensors["labels"].to_i64().unwrap().to_vec(), [0, 1]);
/// std::fs::remove_file(&path).unwrap();
/// ```
pub fn load(path: impl AsRef<Path>) -> Result<Checkpoint, CheckpointError> {
    let path = path.as_ref();
    let failed = |e: ZipError| match e {
        ZipError::Io(e) => CheckpointError::Io(path.into(), e),
        other => CheckpointError::Unreadable(path.into(), format!("it is no .npz file: {other}")),
    };
    let (file, _) = open_file(path).map_err(|e| CheckpointError::Io(path.into(), e))?;
    let mut archive = ZipArchive::new(BufReader::new(file)).map_err(failed)?;
    let unreadable = |why: String| CheckpointError::Unreadable(path.into(), why);
    if archive.has_duplicate_names() {
        return Err(unreadable("two of its entries have the same name".into()));
    }
    // Without overlaps, the bound of each ratio is a bound of all sizes together.
    if archive.has_overlapping_entries().map_err(failed)? {
        return Err(unreadable("two of its entries share bytes of the file".into()));
    }
    let (mut out, mut others) = (Checkpoint::new(), Vec::new());
    for i in 0..archive.len() {
        let mut entry = archive.by_index(i).map_err(failed)?;
        let (file_name, size) = (entry.name().map_err(failed)?.into_owned(), entry.size());
        if file_name.ends_with('/') {
            continue;
        }
        // As in NumPy, contents decide: with the name alone, a damaged one would hide an array.
        let mut start = Vec::new();
        let _ = entry.by_ref().take(npy::MAGIC.len() as u64).read_to_end(&mut start);
        // What Finder adds to a file has its name, too.
        let is_named = file_name.ends_with(".npy") && !file_name.starts_with("__MACOSX/");
        if start != npy::MAGIC && !is_named {
            others.push(file_name);
            continue;
        }
        let name = file_name.strip_suffix(".npy").unwrap_or(&file_name);
        if out.tensors.contains_key(name) || out.unsupported.contains_key(name) {
            return Err(unreadable(format!("two of its arrays have the name {name:?}")));
        }
        let compressed = entry.compressed_size();
        if size / LARGEST_RATIO > compressed {
            let why = format!("{size} bytes cannot be compressed to {compressed}");
            return Err(Problem::Malformed(why).at(path, Some(name)));
        }
        match whole(&mut start.as_slice().chain(entry), size) {
            Ok(tensor) => drop(out.tensors.insert(name.to_string(), tensor)),
            Err(Problem::Unsupported(tensor)) => {
                out.unsupported.insert(name.to_string(), tensor);
            }
            Err(problem) => return Err(problem.at(path, Some(name))),
        }
    }
    match others.first() {
        Some(name) if out.tensors.is_empty() && out.unsupported.is_empty() => {
            let hint = match others.iter().any(|name| name.ends_with("data.pkl")) {
                true => format!(": torch.save has written the archive {TORCH_HINT}"),
                false => String::new(),
            };
            Err(unreadable(format!("its entry {name:?} is no .npy file{hint}")))
        }
        _ => Ok(out),
    }
}

/// Reads the array of an entry to the end, where its checksum is compared.
fn whole(entry: &mut impl Read, size: u64) -> Result<AnyTensor, Problem> {
    let checked = |e: io::Error| match e.kind() {
        io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput => {
            Problem::Malformed(e.to_string())
        }
        _ => e.into(),
    };
    let read = npy::read(entry, size);
    if let Err(Problem::Io(e)) = read {
        return Err(checked(e));
    }
    // A damaged header may seem to be that of an array that is not supported.
    let rest = io::copy(entry, &mut io::sink()).map_err(checked)?;
    match read {
        Ok(_) if rest > 0 => {
            Err(Problem::Malformed(format!("{rest} bytes follow the {size} that it has")))
        }
        result => result,
    }
}

/// Writes tensors to an archive, not compressed, atomically. Equal tensors become equal files.
///
/// # Errors
/// If the operating system reports an error, or a name is too long for a zip file.
pub fn save(
    path: impl AsRef<Path>,
    tensors: &BTreeMap<String, AnyTensor>,
) -> Result<(), CheckpointError> {
    let path = path.as_ref();
    atomic::replace(&atomic::System, path, |file| {
        let mut archive = ZipWriter::new(file);
        for (name, tensor) in tensors {
            // Entries of 4 GB and more need another form of header.
            let large = npy::byte_len(tensor) >= u64::from(u32::MAX);
            let options = SimpleFileOptions::default()
                .compression_method(CompressionMethod::Stored)
                .large_file(large);
            archive.start_file(format!("{name}.npy"), options)?;
            npy::write(tensor, &mut archive)?;
        }
        archive.finish()?;
        Ok(())
    })
    .map_err(|e| CheckpointError::Io(path.into(), e))
}
