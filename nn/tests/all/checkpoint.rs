//! Checkpoints: round trips, errors for damaged files, and crashes, which leave the
//! old file or the new one.

use crate::common::*;
use retrograd_nn::checkpoint::{AnyTensor, Checkpoint, CheckpointError, write_atomically};
use retrograd_nn::{GptConfig, Module, StateDict, npy};
use retrograd_tensor::random::Rng;
use retrograd_tensor::{DType, Tensor};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

fn folder() -> TempDir {
    tempfile::tempdir().unwrap()
}

/// The path of a file in a folder.
pub fn file() -> (TempDir, PathBuf) {
    let folder = folder();
    let path = folder.path().join("file");
    (folder, path)
}

/// A checkpoint with every element type, special values and unusual shapes.
pub fn everything() -> Checkpoint {
    let mut file = Checkpoint::new();
    let f32s = [0.0f32, -0.0, f32::NAN, f32::INFINITY, f32::MIN_POSITIVE / 4.0, f32::MAX];
    let tensors = [
        ("f32", AnyTensor::F32(Tensor::from_vec(f32s.to_vec(), [2, 3]))),
        ("f64", AnyTensor::F64(Tensor::from([0.1, -1e300, 5e-324]))),
        ("i64", AnyTensor::I64(Tensor::from([i64::MIN, -1, i64::MAX]))),
        ("u32", AnyTensor::U32(Tensor::from([0u32, u32::MAX]))),
        ("bool", AnyTensor::Bool(Tensor::from([true, false, true]))),
        ("scalar", AnyTensor::F32(Tensor::scalar(2.5))),
        ("empty", AnyTensor::F64(Tensor::zeros([3, 0, 2]))),
        ("view", AnyTensor::F32(Tensor::<f32>::arange(0.0, 6.0, 1.0).reshape([2, 3]).t())),
        ("", AnyTensor::U32(Tensor::from([7u32]))),
        ("naïve \"tensor\"\n\u{1F980}", AnyTensor::U32(Tensor::from([8u32]))),
    ];
    file.tensors.extend(tensors.map(|(name, t)| (name.to_string(), t)));
    file.note("step", &u64::MAX);
    file.note("rng", &Rng::new(7).state());
    file.note("config", &config());
    file.note("text", &"naïve \"text\" \\ \n \u{1F980}");
    file.note("floats", &[0.1, 1e-308, 5e-324, 1.0 / 3.0, 123456789.12345679]);
    file
}

fn contents(file: &Checkpoint) -> BTreeMap<String, (DType, Vec<usize>, Vec<u64>)> {
    let entry = |t: &AnyTensor| {
        let bits = match t {
            AnyTensor::F32(t) => t.to_vec().iter().map(|x| x.to_bits().into()).collect(),
            AnyTensor::F64(t) => t.to_vec().iter().map(|x| x.to_bits()).collect(),
            AnyTensor::I64(t) => t.to_vec().iter().map(|&x| x as u64).collect(),
            AnyTensor::U32(t) => t.to_vec().iter().map(|&x| x.into()).collect(),
            AnyTensor::Bool(t) => t.to_vec().iter().map(|&x| x.into()).collect(),
        };
        (t.dtype(), t.shape().to_vec(), bits)
    };
    file.tensors.iter().map(|(name, t)| (name.clone(), entry(t))).collect()
}

#[test]
fn saved_checkpoints_are_loaded_unchanged() {
    let dir = folder();
    let (a, b) = (dir.path().join("a"), dir.path().join("b"));
    for file in [everything(), Checkpoint::new()] {
        file.save(&a).unwrap();
        let back = Checkpoint::load(&a).unwrap();
        assert_eq!(contents(&back), contents(&file));
        assert_eq!(back.notes, file.notes);
        // Equal contents are written as equal files.
        back.save(&b).unwrap();
        assert_eq!(fs::read(&a).unwrap(), fs::read(&b).unwrap());
    }
    everything().save(&a).unwrap();
    let back = Checkpoint::load(&a).unwrap();
    assert_eq!(back.read_note::<u64>("step").unwrap(), u64::MAX);
    assert_eq!(back.read_note::<GptConfig>("config").unwrap(), config());
    assert_eq!(Rng::from_state(back.read_note("rng").unwrap()), Rng::new(7));
}

#[test]
fn floats_in_notes_keep_every_bit() {
    let (_dir, path) = file();
    let mut rng = Rng::new(1);
    let floats: Vec<f64> = (0..5000)
        .map(|_| f64::from_bits(rng.key().bits(0)))
        .filter(|x| x.is_finite())
        .chain((0..5000).map(|i| i as f64 / 7.0))
        .collect();
    let mut file = Checkpoint::new();
    file.note("x", &floats);
    file.save(&path).unwrap();
    let back: Vec<f64> = Checkpoint::load(&path).unwrap().read_note("x").unwrap();
    assert!(floats.iter().zip(&back).all(|(a, b)| a.to_bits() == b.to_bits()));
    assert_eq!(floats.len(), back.len());
    // JSON has no infinity: as documented, it becomes null.
    file.note("best", &f64::INFINITY);
    assert!(file.read_note::<f64>("best").is_err());
    assert_eq!(file.read_note::<Option<f64>>("best").unwrap(), None);
}

#[test]
fn a_saved_model_is_restored() {
    let (_dir, path) = file();
    let model = gpt::<f32>(config(), 1);
    let mut file = Checkpoint::new();
    file.put("model", &model.state_dict());
    file.put("model2", &StateDict::from([("x".to_string(), Tensor::<f64>::ones([1]))]));
    file.save(&path).unwrap();
    let other = gpt::<f32>(config(), 2);
    let file = Checkpoint::load(&path).unwrap();
    other.load_state_dict(&file.get("model").unwrap()).unwrap();
    assert_eq!(state_bits(&model), state_bits(&other));
    assert!(file.get::<f32>("nothing").unwrap().is_empty());
    // Into a model of another width it is converted.
    let wide = gpt::<f64>(config(), 3);
    wide.load_state_dict(&file.get("model").unwrap()).unwrap();
    for (name, w) in model.state_dict() {
        assert_eq!(wide.state_dict()[&name], w.cast::<f64>(), "{name}");
    }
    assert_eq!(
        file.read_note::<u64>("step").unwrap_err().to_string(),
        "the checkpoint has no note step"
    );
    let mut file = Checkpoint::new();
    file.note("step", &"seven");
    let error = file.read_note::<u64>("step").unwrap_err().to_string();
    assert!(
        error.starts_with("the checkpoint has no note step of this form: invalid type"),
        "{error}"
    );
}

/// A small checkpoint with tensors and notes.
fn small(dir: &Path) -> Vec<u8> {
    let mut file = Checkpoint::new();
    file.tensors.insert("w".into(), AnyTensor::F32(Tensor::from([1.0f32, -2.0, 0.0])));
    file.tensors.insert("k".into(), AnyTensor::I64(Tensor::from([[5i64], [-6]])));
    file.tensors.insert("e".into(), AnyTensor::Bool(Tensor::from_vec(vec![], [0, 2])));
    file.note("step", &171u64);
    file.note("lr", &0.001);
    let path = dir.join("small");
    file.save(&path).unwrap();
    fs::read(path).unwrap()
}

#[test]
fn every_flipped_bit_is_detected() {
    let dir = folder();
    let good = small(dir.path());
    // Read from memory, because there is a load for every bit.
    let path = dir.path().join("flipped");
    fs::write(&path, &good).unwrap();
    Checkpoint::load(&path).unwrap();
    let mut kinds = BTreeMap::<&str, usize>::new();
    for bit in 0..good.len() * 8 {
        let mut bad = good.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        fs::write(&path, &bad).unwrap();
        let kind = match Checkpoint::load(&path) {
            Ok(_) => panic!("bit {} of byte {} ({:?})", bit % 8, bit / 8, good[bit / 8] as char),
            Err(CheckpointError::Malformed(..)) => "malformed",
            Err(CheckpointError::Damaged(..)) => "damaged",
            Err(CheckpointError::Newer(..)) => "newer",
            Err(e) => panic!("bit {bit}: {e}"),
        };
        *kinds.entry(kind).or_default() += 1;
    }
    println!("{} bits: {kinds:?}", good.len() * 8);
}

#[test]
fn every_truncation_and_every_addition_is_detected() {
    let dir = folder();
    let good = small(dir.path());
    let path = dir.path().join("short");
    for n in 0..good.len() {
        fs::write(&path, &good[..n]).unwrap();
        let error = Checkpoint::load(&path).unwrap_err();
        assert!(matches!(error, CheckpointError::Malformed(..)), "{n} bytes: {error}");
    }
    for more in [&b"\0"[..], b"abcdefgh"] {
        fs::write(&path, [&good, more].concat()).unwrap();
        let text = Checkpoint::load(&path).unwrap_err().to_string();
        assert!(text.ends_with(&format!("{} bytes at the end belong to no tensor", more.len())));
    }
    // Two tensors' bytes exchanged, tensors of the same type and shape.
    let mut file = Checkpoint::new();
    file.tensors.insert("a".into(), AnyTensor::F32(Tensor::scalar(1.0)));
    file.tensors.insert("b".into(), AnyTensor::F32(Tensor::scalar(2.0)));
    file.save(&path).unwrap();
    let mut bytes = fs::read(&path).unwrap();
    let n = bytes.len();
    bytes[n - 8..].rotate_left(4);
    fs::write(&path, &bytes).unwrap();
    let text = Checkpoint::load(&path).unwrap_err().to_string();
    let want = format!("{} is damaged: its contents do not match its checksum", path.display());
    assert_eq!(text, want);
}

/// A file of a header and `data` bytes of data.
pub fn raw(header: &str, data: usize) -> Vec<u8> {
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    bytes.resize(bytes.len() + data, 0);
    bytes
}

/// A header's entry for a tensor.
pub fn one(name: &str, dtype: &str, shape: &str, from: u64, to: u64) -> String {
    format!(r#""{name}":{{"dtype":"{dtype}","shape":{shape},"data_offsets":[{from},{to}]}}"#)
}

#[test]
fn foreign_files_are_read_and_their_metadata_become_notes() {
    let (_dir, path) = file();
    let w = one("w", "F32", "[2]", 0, 8);
    // A header of any length, aligned or not, with spaces at its end.
    for spaces in 0..9 {
        let header = format!(r#"{{"__metadata__":{{"format":"pt"}},{w}}}{}"#, " ".repeat(spaces));
        fs::write(&path, raw(&header, 8)).unwrap();
        let file = Checkpoint::load(&path).unwrap();
        assert_eq!(file.read_note::<String>("format").unwrap(), "pt");
        assert_eq!(file.get::<f32>("").unwrap().into_keys().collect::<Vec<_>>(), ["w"]);
        assert!(file.get::<f32>("w").unwrap().is_empty(), "w is no prefix");
        assert_eq!(contents(&file)["w"], (DType::F32, vec![2], vec![0, 0]));
    }
    fs::write(&path, raw(&format!("{{{w}}}"), 8)).unwrap();
    assert!(Checkpoint::load(&path).unwrap().notes.is_empty());
    fs::write(&path, raw("{}", 0)).unwrap();
    assert!(Checkpoint::load(&path).unwrap().tensors.is_empty());
}

#[test]
fn malformed_files_are_errors_that_name_the_defect() {
    let (_dir, path) = file();
    let text = |bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        let error = Checkpoint::load(&path).unwrap_err();
        let text = error.to_string();
        let prefix = format!("{} is no checkpoint: ", path.display());
        text.strip_prefix(&prefix).unwrap_or_else(|| panic!("{text}")).to_string()
    };
    let f32s = |name: &str, from, to| one(name, "F32", &format!("[{}]", (to - from) / 4), from, to);
    // Too short
    for n in 0..8 {
        let want = format!("it has {n} bytes, a safetensors file has at least 8");
        assert_eq!(text(&vec![0; n]), want);
    }
    // A header longer than the limit, or than the file
    let with_length = |n: u64| [&n.to_le_bytes()[..], b"{}"].concat();
    for n in [u64::MAX, 1 << 63, 100_000_001] {
        let want = format!("a header of {n} bytes exceeds the limit of 100000000");
        assert_eq!(text(&with_length(n)), want);
    }
    for n in [3, 100_000_000] {
        let want = format!("a header of {n} bytes exceeds the 10 of the file");
        assert_eq!(text(&with_length(n)), want);
    }
    // No UTF-8, no JSON, or too deep
    let mut bytes = raw(r#"{"ab":1}"#, 0);
    bytes[8 + 3] = 0xff;
    assert_eq!(text(&bytes), "byte 3 of the header is not UTF-8");
    for (header, why) in [
        ("", "EOF while parsing a value at line 1 column 0"),
        ("{\"a\"", "EOF while parsing an object at line 1 column 4"),
        ("{}\0\0", "trailing characters at line 1 column 3"),
        ("[]", "invalid type: sequence, expected an object at line 1 column 0"),
        ("7", "invalid type: integer `7`, expected an object at line 1 column 1"),
    ] {
        assert_eq!(text(&raw(header, 0)), format!("the header is no JSON object: {why}"));
    }
    for (open, close, why) in [
        ("[", "]", "tensor `a`: invalid type: sequence, expected a string"),
        (r#"{"a":"#, "}", "tensor `a`: missing field `dtype`"),
        ("[", "", "the header is no JSON object: expected `,` or `]` at line 1 column 100007"),
    ] {
        let deep = format!(r#"{{"a":{}1{}}}"#, open.repeat(100_000), close.repeat(100_000));
        let text = text(&raw(&deep, 0));
        assert!(text.starts_with(why), "{text}");
    }
    // A name given twice, with other and with the same offsets
    for second in [f32s("w", 4, 8), f32s("w", 0, 4)] {
        let header = format!("{{{},{second}}}", f32s("w", 0, 4));
        assert_eq!(text(&raw(&header, 8)), "duplicate tensor name `w`");
    }
    let header = r#"{"__metadata__":{"format":"pt","a":"b","format":"np"}}"#;
    assert_eq!(text(&raw(header, 0)), "duplicate entry `format` in `__metadata__`");
    let header = r#"{"w":{"dtype":"F32","shape":[1],"shape":[2],"data_offsets":[0,8]}}"#;
    assert_eq!(text(&raw(header, 8)), "tensor `w`: duplicate field `shape`");
    // Tensors that overlap, leave gaps, or are out of range
    let pair = |a: String, b: String| text(&raw(&format!("{{{a},{b}}}"), 16));
    assert_eq!(pair(f32s("a", 0, 12), f32s("b", 8, 16)), "tensors `a` and `b` overlap");
    assert_eq!(pair(f32s("a", 0, 16), f32s("b", 0, 8)), "tensors `b` and `a` overlap");
    let gap = pair(f32s("a", 0, 4), f32s("b", 8, 16));
    assert_eq!(gap, "bytes 4..8 before tensor `b` belong to none");
    let late = text(&raw(&format!("{{{}}}", f32s("a", 4, 16)), 16));
    assert_eq!(late, "bytes 0..4 before tensor `a` belong to none");
    let rest = pair(f32s("a", 0, 4), f32s("b", 4, 8));
    assert_eq!(rest, "8 bytes at the end belong to no tensor");
    let single = |dtype, shape, from, to| {
        text(&raw(&format!("{{{}}}", one("w", dtype, shape, from, to)), 8))
    };
    assert_eq!(single("F32", "[2]", 8, 0), "tensor `w`: offsets [8, 0] are reversed");
    assert_eq!(
        single("F32", "[4]", 0, 16),
        "tensor `w`: offsets [0, 16] exceed the 8 bytes of data"
    );
    let far = single("F32", "[2]", u64::MAX - 8, u64::MAX);
    assert!(far.ends_with("exceed the 8 bytes of data"), "{far}");
    assert!(single("F32", "[-2]", 0, 8).starts_with("tensor `w`: invalid value: integer `-2`"));
    // Sizes that disagree or overflow
    let sizes = single("F32", "[3]", 0, 8);
    assert_eq!(sizes, "tensor `w`: F32 [3] takes 12 bytes, the offsets give 8");
    for shape in [
        "[4294967296, 4294967296]",
        "[4294967296, 4294967296, 0]",
        "[0, 9223372036854775807, 4]",
        "[18446744073709551615]",
        "[9223372036854775808, 2]",
    ] {
        let sizes: Vec<usize> = serde_json::from_str(shape).unwrap();
        assert_eq!(single("F32", shape, 0, 0), format!("tensor `w`: shape {sizes:?} is too large"));
    }
    // More axes than any library supports
    let deep = format!("[{}2]", "1,".repeat(64));
    assert_eq!(single("F32", &deep, 0, 8), "tensor `w`: its shape has more than 64 axes");
    // Notes that are not strings
    let header = r#"{"__metadata__":{"a":"x","step":7}}"#;
    assert_eq!(text(&raw(header, 0)), "`step` in `__metadata__` is no string");
    assert_eq!(text(&raw(r#"{"__metadata__":[]}"#, 0)), "`__metadata__` is no JSON object");
    // Entries that describe no tensor
    let w = r#"{"w":{"dtype":"F32","shape":[2]}}"#;
    assert_eq!(text(&raw(w, 8)), "tensor `w`: missing field `data_offsets`");
    assert!(text(&raw(r#"{"w":7}"#, 0)).starts_with("tensor `w`: invalid type: integer `7`"));
}

#[test]
fn later_formats_are_rejected() {
    let (dir, path) = file();
    let good = small(dir.path());
    let at = good.windows(14).position(|w| w == br#""retrograd":"1"#).unwrap() + 13;
    for (version, want) in [
        (b'2', "has format version 2, this build reads up to 1"),
        (b'9', "has format version 9, this build reads up to 1"),
        (b'0', "is damaged"),
    ] {
        let mut other = good.clone();
        other[at] = version;
        fs::write(&path, &other).unwrap();
        let text = Checkpoint::load(&path).unwrap_err().to_string();
        assert!(text.starts_with(&format!("{} {want}", path.display())), "{text}");
    }
}

#[test]
fn invalid_names_and_notes_are_rejected() {
    let (dir, path) = file();
    small(dir.path());
    everything().save(&path).unwrap();
    let before = fs::read(&path).unwrap();
    let mut file = everything();
    file.tensors.insert("__metadata__".into(), AnyTensor::F32(Tensor::scalar(1.0)));
    let text = file.save(&path).unwrap_err().to_string();
    assert_eq!(text, format!("{}: a tensor cannot be named __metadata__", path.display()));
    assert_eq!(fs::read(&path).unwrap(), before);
    let mut file = Checkpoint::new();
    let one = |name: &str| StateDict::from([(name.to_string(), Tensor::<f32>::ones([1]))]);
    file.put("a", &one("b.c"));
    let text = panic_text(|| file.put("a.b", &one("c")));
    assert_eq!(text, "checkpoint: there are two tensors named a.b.c");
    // A name of a megabyte is valid.
    let long = "x".repeat(1 << 20);
    let mut file = Checkpoint::new();
    file.tensors.insert(long.clone(), AnyTensor::F32(Tensor::scalar(1.0)));
    file.save(&path).unwrap();
    assert!(Checkpoint::load(&path).unwrap().tensors.contains_key(&long));
}

fn names(dir: &Path) -> Vec<PathBuf> {
    let mut names: Vec<_> = fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()).collect();
    names.sort();
    names
}

#[test]
fn paths_that_cannot_be_read_or_written() {
    let dir = folder();
    let (sub, old) = (dir.path().join("folder"), dir.path().join("old"));
    fs::create_dir(&sub).unwrap();
    everything().save(&old).unwrap();
    let before = fs::read(&old).unwrap();
    let said = |error: CheckpointError, path: &Path, what: &str| {
        let text = error.to_string();
        assert!(text.starts_with(&format!("{}: ", path.display())), "{text}");
        assert!(text.contains(what), "{text}");
        assert!(std::error::Error::source(&error).is_some());
    };
    let missing = dir.path().join("missing/a");
    let under_a_file = old.join("a");
    for (path, what) in [(&missing, "No such file"), (&under_a_file, "Not a directory")] {
        said(Checkpoint::load(path).unwrap_err(), path, what);
        said(everything().save(path).unwrap_err(), path, what);
    }
    said(Checkpoint::load(&sub).unwrap_err(), &sub, "Is a directory");
    said(everything().save(&sub).unwrap_err(), &sub, "it is not a regular file");
    said(everything().save(Path::new("/")).unwrap_err(), Path::new("/"), "not a path to a file");
    // Devices: the first would be read for ever, and both be replaced by a file.
    for device in ["/dev/zero", "/dev/full", "/dev/null"].map(Path::new) {
        if device.exists() {
            said(Checkpoint::load(device).unwrap_err(), device, "it is not a regular file");
            said(everything().save(device).unwrap_err(), device, "it is not a regular file");
            assert!(device.exists() && !device.is_file());
        }
    }
    // The longest names that a file system allows, and longer.
    for name in ["n".repeat(255), "n".repeat(248), "é".repeat(127)] {
        let long = dir.path().join(name);
        everything().save(&long).unwrap();
        fs::remove_file(&long).unwrap();
    }
    let long = dir.path().join("n".repeat(5000));
    said(everything().save(&long).unwrap_err(), &long, "File name too long");
    assert_eq!(names(dir.path()), [sub.clone(), old.clone()]);
    assert!(names(&sub).is_empty());
    assert_eq!(fs::read(&old).unwrap(), before);
    // A file name without a folder is one in the current folder.
    assert!(everything().save(Path::new("")).is_err());
    // A link is replaced, and its target is unchanged.
    #[cfg(unix)]
    {
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&old, &link).unwrap();
        Checkpoint::new().save(&link).unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_file());
        assert_eq!(fs::read(&old).unwrap(), before);
    }
}

#[test]
#[cfg(unix)]
fn a_file_that_is_replaced_keeps_its_mode_and_owner() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
    let dir = folder();
    let (path, link) = (dir.path().join("a"), dir.path().join("link"));
    let of = |path: &Path| {
        let data = fs::metadata(path).unwrap();
        (data.mode() & 0o7777, data.uid(), data.gid())
    };
    let writers: [fn(&Path); 3] = [
        |path| everything().save(path).unwrap(),
        |path| npy::save(path, Tensor::<f32>::ones([2])).unwrap(),
        |path| write_atomically(path, b"text").unwrap(),
    ];
    for write in writers {
        write(&path);
        let (_, uid, gid) = of(&path);
        for mode in [0o444, 0o640, 0o666, 0o600] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            write(&path);
            assert_eq!(of(&path), (mode, uid, gid), "{mode:o}");
        }
        // A link is replaced by a file with the mode of its target.
        symlink(&path, &link).unwrap();
        write(&link);
        assert_eq!(of(&link).0, 0o600);
        fs::remove_file(&link).unwrap();
        // Only root may give a file away.
        if chown(&path, Some(7), Some(8)).is_ok() {
            write(&path);
            assert_eq!(of(&path), (0o600, 7, 8));
            fs::remove_file(&path).unwrap();
        }
    }
}

#[test]
fn no_temporary_file_remains() {
    let (dir, path) = file();
    for _ in 0..20 {
        everything().save(&path).unwrap();
    }
    write_atomically(&path, b"other bytes").unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"other bytes");
    assert_eq!(names(dir.path()), [path]);
}

/// A checkpoint in which every tensor contains its number.
fn numbered(i: u32) -> Checkpoint {
    let mut file = Checkpoint::new();
    for (name, n) in [("a", 1), ("b", 3000), ("c", 700)] {
        file.tensors.insert(name.into(), AnyTensor::U32(Tensor::full([n], i)));
    }
    file.note("i", &i);
    file
}

/// The number of a checkpoint, which all of its tensors must contain.
fn number(path: &Path) -> u32 {
    let file = Checkpoint::load(path).unwrap();
    let i = file.read_note("i").unwrap();
    assert_eq!(contents(&file), contents(&numbered(i)));
    i
}

#[test]
fn concurrent_writers_of_one_path_do_not_mix() {
    let (dir, path) = file();
    numbered(0).save(&path).unwrap();
    std::thread::scope(|s| {
        for thread in 0..2u32 {
            let path = &path;
            s.spawn(move || (0..60).for_each(|i| numbered(thread * 1000 + i).save(path).unwrap()));
        }
        for _ in 0..200 {
            number(&path);
        }
    });
    assert!([59, 1059].contains(&number(&path)));
    assert_eq!(names(dir.path()), [path]);
}

/// The child process of the tests below: saves increasing numbers to the given path until it is killed,
/// and prints each number after saving. Without a path it does nothing.
#[test]
fn child_that_saves() {
    use std::io::Write;
    let Some(path) = std::env::var_os("CHECKPOINT_TEST_PATH") else { return };
    for i in 1.. {
        match numbered(i).save(Path::new(&path)) {
            Ok(()) => println!("saved {i}"),
            Err(e) => {
                println!("error {e}");
                std::process::exit(3);
            }
        }
        std::io::stdout().flush().unwrap();
    }
}

/// A command that runs [`child_that_saves`] after a shell command.
#[cfg(unix)]
fn child(path: &Path, before: &str) -> Command {
    let mut command = Command::new("sh");
    let run = format!(r#"{before} exec "$0" --exact checkpoint::child_that_saves --nocapture"#);
    command.arg("-c").arg(run).arg(std::env::current_exe().unwrap());
    command.env("CHECKPOINT_TEST_PATH", path);
    command
}

#[test]
#[cfg(unix)]
fn a_killed_process_leaves_a_complete_file() {
    use std::io::{BufRead, BufReader};
    let (_dir, path) = file();
    numbered(0).save(&path).unwrap();
    for round in 0..12u64 {
        let mut process = child(&path, "").stdout(std::process::Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let mut saved = None;
        // After some saves and a delay, so that the kill is at any point of a save.
        for line in lines.by_ref().take(3 + round as usize) {
            saved =
                line.unwrap().strip_prefix("saved ").map(|i| i.parse::<u32>().unwrap()).or(saved);
        }
        std::thread::sleep(std::time::Duration::from_micros(round * 137));
        process.kill().unwrap();
        process.wait().unwrap();
        for line in lines {
            saved = line.unwrap().strip_prefix("saved ").and_then(|i| i.parse().ok()).or(saved);
        }
        // The file has the last number that was printed, or a later one.
        let found = number(&path);
        assert!(found >= saved.unwrap_or(0), "{found} after {saved:?}");
    }
}

#[test]
#[cfg(unix)]
fn a_failed_write_keeps_the_old_file() {
    let (dir, path) = file();
    numbered(0).save(&path).unwrap();
    let whole = fs::metadata(&path).unwrap().len();
    // The system limits the size of files: with an error if the signal is ignored...
    for blocks in 0..8 {
        let output = child(&path, &format!("trap '' XFSZ; ulimit -f {blocks};")).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(output.status.code(), Some(3), "{said}");
        assert!(said.contains(&format!("error {}: File too large", path.display())), "{said}");
        assert_eq!(number(&path), 0);
        assert_eq!(names(dir.path()), std::slice::from_ref(&path), "the temporary file is gone");
    }
    // ... and by killing the process in the middle of the write if it is not.
    for blocks in [0, 1, 5] {
        let output = child(&path, &format!("ulimit -f {blocks};")).output().unwrap();
        assert_eq!(output.status.code(), None, "killed by a signal");
        assert_eq!(number(&path), 0);
    }
    assert_eq!(fs::metadata(&path).unwrap().len(), whole);
}
