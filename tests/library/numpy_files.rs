//! Files of NumPy: every element type, byte order and layout, and what is refused. And files of
//! torch.save, which are.

use crate::pretrained::exports;
use retrograd::nn::checkpoint::{AnyTensor, Checkpoint, CheckpointError};
use retrograd::nn::{npy, npz};
use retrograd::prelude::*;
use std::fs;
use std::path::PathBuf;
use tempfile::TempDir;

/// The files of the fixture, and a folder to write them to.
struct Files {
    fixture: Checkpoint,
    folder: TempDir,
}

impl Files {
    fn new() -> Files {
        let fixture = Checkpoint::load(retrograd_support::fixture("foreign.safetensors")).unwrap();
        Files { fixture, folder: TempDir::new().unwrap() }
    }

    fn bytes(&self, name: &str) -> Vec<u8> {
        let bytes = self.fixture.tensors[&format!("file.{name}")].to_i64().unwrap();
        bytes.to_vec().into_iter().map(|byte| u8::try_from(byte).unwrap()).collect()
    }

    /// A file with this contents.
    fn write(&self, bytes: &[u8]) -> PathBuf {
        let path = self.folder.path().join("file");
        // Some file systems wait for the disk where a file is truncated.
        let _ = fs::remove_file(&path);
        fs::write(&path, bytes).unwrap();
        path
    }

    fn npy(&self, name: &str) -> Result<AnyTensor, CheckpointError> {
        npy::load(self.write(&self.bytes(name)))
    }

    /// What is said of an array that is read from these bytes.
    #[track_caller]
    fn refused(&self, bytes: &[u8]) -> String {
        let path = self.write(bytes);
        let said = npy::load(&path).unwrap_err().to_string();
        let start = format!("{} cannot be read: ", path.display());
        said.strip_prefix(&start).unwrap_or_else(|| panic!("{said}")).to_string()
    }
}

/// Every element as bits or as an integer.
fn exact(t: &AnyTensor) -> Vec<i64> {
    match t.to_i64() {
        Ok(t) => t.to_vec(),
        Err(_) => {
            t.to_float::<f64>().unwrap().to_vec().into_iter().map(|x| x.to_bits() as i64).collect()
        }
    }
}

#[test]
fn every_type_order_and_layout_of_numpy_is_read() {
    let files = Files::new();
    let types = ["f2", "f4", "f8", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "b1"];
    for name in types {
        let want = &files.fixture.tensors[&format!("want.{name}")];
        for order in ["<", ">"] {
            for layout in ["C", "F"] {
                let file = format!("{order}{name}.{layout}");
                let got = files.npy(&file).unwrap();
                assert_eq!(got.shape(), want.shape(), "{file}");
                assert_eq!(exact(&got), exact(want), "{file}");
            }
        }
    }
}

#[test]
fn every_shape_and_version_of_numpy_is_read() {
    let files = Files::new();
    let read = |name: &str| files.npy(name).unwrap();
    let scalar = read("scalar");
    assert_eq!((scalar.shape().rank(), scalar.to_float::<f32>().unwrap().item()), (0, 2.5));
    assert_eq!(read("vector").to_i64().unwrap(), Tensor::from([0i64, 1, 2, 3, 4]));
    assert_eq!(*read("empty").shape(), [3, 0, 2]);
    // In Fortran order the first axis varies fastest.
    let eight = read("eight").to_i64().unwrap();
    assert_eq!(
        (eight.at(&[1, 0, 0, 0, 0, 0, 0, 0]), eight.at(&[0, 0, 0, 0, 0, 0, 0, 1])),
        (1, 128)
    );
    let column: Tensor<f64> = read("column").to_float().unwrap();
    assert_eq!(column, Tensor::from([[0.0, 3.0], [1.0, 4.0], [2.0, 5.0]]));
    for version in 1..=3 {
        let got = read(&format!("version.{version}"));
        assert_eq!(got.to_i64().unwrap().to_vec(), [0, 1, 2, 3], "version {version}");
    }
}

#[test]
fn the_files_written_are_those_of_numpy() {
    let files = Files::new();
    let path = files.folder.path().join("written.npy");
    for name in ["<f4.C", "<f8.C", "<u4.C", "<i8.C", "<b1.C", "scalar", "vector", "empty"] {
        let tensor = files.npy(name).unwrap();
        npy::save(&path, &tensor).unwrap();
        assert!(fs::read(&path).unwrap() == files.bytes(name), "{name}: the bytes differ");
    }
    // A view is written in C order.
    let x = Tensor::<f32>::arange(0.0, 60_000.0, 1.0).reshape([100, 3, 200]).transpose(0, 2);
    npy::save(&path, &x).unwrap();
    assert_eq!(npy::load(&path).unwrap().to_float::<f32>().unwrap(), x);
    // A long shape needs a longer header.
    let x = Tensor::<f32>::zeros([1, 10_000, 1, 1, 1, 1, 1, 0]);
    npy::save(&path, &x).unwrap();
    assert_eq!(npy::load(&path).unwrap().shape(), x.shape());
}

#[test]
fn what_is_no_tensor_is_refused_with_its_type() {
    let files = Files::new();
    let said = |name: &str| files.refused(&files.bytes(&format!("refused.{name}")));
    assert_eq!(said("complex"), "it is <c8 [2], whose elements are complex numbers");
    assert_eq!(said("strings"), "it is <U2 [2], whose elements are strings");
    assert_eq!(said("bytes"), "it is |S2 [2], whose elements are strings");
    assert_eq!(said("dates"), "it is <M8[D] [1], whose elements are dates");
    assert_eq!(said("objects"), "it is |O [1], whose elements are Python objects, in a pickle");
    assert_eq!(
        said("raw"),
        "it is |V2 [3], whose elements are raw bytes, as NumPy writes bfloat16 (hint: save it as \
         float32)"
    );
    assert_eq!(said("fields"), "it is structured [2], whose elements have fields");
    assert_eq!(said("fields.3"), "it is structured [2], whose elements have fields");
    assert_eq!(said("long"), "it is <f16 [2], which is not supported");
    assert_eq!(said("nine"), "it is <f4 [1, 1, 1, 1, 1, 1, 1, 1, 1], which has more than 8 axes");
    assert_eq!(said("range"), "it is <u8 [3], whose element 9223372036854775808 exceeds i64");
}

#[test]
fn damaged_arrays_are_refused() {
    let files = Files::new();
    let whole = files.bytes("<f4.C");
    for length in 0..whole.len() {
        files.refused(&whole[..length]);
    }
    let said = |bytes: &[u8]| files.refused(bytes);
    assert_eq!(said(b""), "it is no .npy file, which begins with \\x93NUMPY");
    assert_eq!(said(&whole[..8]), "it ends too early");
    let (shape, n) = ("[2, 3, 2]", whole.len());
    assert_eq!(said(&whole[..n - 1]), format!("<f4 {shape} takes 48 bytes, it has 47"));
    // numpy.save can append a second array; it would be lost.
    assert_eq!(
        said(&[&whole[..], &whole].concat()),
        format!("<f4 {shape} takes 48 bytes, it has {}", 48 + n)
    );
    let text = String::from_utf8_lossy(&whole[10..128]).into_owned();
    let with = |from: &str, to: &str| {
        let header = text.replacen(from, to, 1);
        assert_ne!(header, text);
        let length = (header.len() as u16).to_le_bytes();
        said(&[&whole[..8], &length, header.as_bytes(), &whole[128..]].concat())
    };
    assert_eq!(with("(2, 3, 2)", "(2, 3, 3)"), "<f4 [2, 3, 3] takes 72 bytes, it has 48");
    assert_eq!(with("(2, 3, 2)", "(2, 3, -2)"), "its header is no dictionary in Python's syntax");
    assert_eq!(with("(2, 3, 2)", "(2, 'x')"), "its header has a `shape` that is no tuple of sizes");
    let huge = "(4294967296, 4294967296, 0, 4294967296)";
    assert!(with("(2, 3, 2)", huge).ends_with("4294967296] is too large"));
    assert_eq!(with("'shape'", "'form'"), "its header has no `shape`");
    for key in ["'descr': '<f4', ", "'fortran_order': False, ", "'shape': (2, 3, 2), "] {
        let name = key.split('\'').nth(1).unwrap();
        assert_eq!(with(key, &key.repeat(2)), format!("its header has `{name}` twice"));
    }
    assert_eq!(with("'<f4'", "4"), "its header has a `descr` that is no text");
    assert_eq!(with("'<f4'", "'x'"), "it is x [2, 3, 2], which is not supported");
    assert_eq!(with("'<f4'", "''"), "it is  [2, 3, 2], which is not supported");
    assert_eq!(with("'<f4'", "'é'"), "it is é [2, 3, 2], which is not supported");
    assert_eq!(with("'<f4'", "'|f4'"), "it is |f4 [2, 3, 2], which is not supported");
    let neither = "its header has a `fortran_order` that is neither True nor False";
    assert_eq!(with("False", "0"), neither);
    let mut version = whole.clone();
    version[6] = 4;
    assert_eq!(said(&version), "it has version 4.0 of the format, not 1 to 3");
    let header = [&b"\x93NUMPY\x02\x00"[..], &u32::MAX.to_le_bytes()].concat();
    assert_eq!(said(&header), "a header of 4294967295 bytes exceeds 65536");
    // Memory for a file that is not there is not asked for.
    let header = "{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000,), }";
    let length = (header.len() as u16).to_le_bytes();
    let bytes = [&b"\x93NUMPY\x01\x00"[..], &length, header.as_bytes()].concat();
    assert_eq!(said(&bytes), "<f4 [1000000000000] takes 4000000000000 bytes, it has 0");
    let missing = files.folder.path().join("missing.npy");
    assert!(matches!(npy::load(&missing).unwrap_err(), CheckpointError::Io(..)));
    assert!(matches!(npy::load(files.folder.path()).unwrap_err(), CheckpointError::Io(..)));
}

#[test]
fn archives_of_numpy_are_read() {
    let files = Files::new();
    for name in ["npz", "npz.compressed"] {
        let file = npz::load(files.write(&files.bytes(name))).unwrap();
        assert_eq!(file.tensors.len(), 4, "{name}");
        let float = |key: &str| file.tensors[key].to_float::<f64>().unwrap();
        assert_eq!(float("x"), Tensor::from([[0.0, 3.0], [1.0, 4.0], [2.0, 5.0]]));
        assert_eq!(file.tensors["deep/labels"].to_i64().unwrap().to_vec(), [3, -1]);
        assert!(matches!(&file.tensors["mask"], AnyTensor::Bool(t) if t.item()));
        assert_eq!(float("zeros"), Tensor::zeros([30, 30]));
    }
    let file = npz::load(files.write(&files.bytes("npz.mixed"))).unwrap();
    assert_eq!(
        file.get::<f32>("").unwrap_err().to_string(),
        "the checkpoint has no f32 tensor \
         words: it is <U1 [2], whose elements are strings"
    );
    assert_eq!(file.tensors["x"].to_float::<f64>().unwrap().to_vec(), [1.0, 1.0]);
    assert!(npz::load(files.write(&files.bytes("npz.none"))).unwrap().tensors.is_empty());
}

/// A zip archive of files that are not compressed, with a directory of names and numbers of files.
fn archive(files: &[(&str, &[u8])], directory: &[(&str, usize)]) -> Vec<u8> {
    let (mut out, mut starts, mut central) = (Vec::new(), Vec::new(), Vec::new());
    let fields = |name: &str, bytes: &[u8]| {
        let bit = |sum: u32| if sum & 1 == 1 { 0xedb8_8320 ^ (sum >> 1) } else { sum >> 1 };
        let byte = |sum: u32, &byte: &u8| (0..8).fold(sum ^ u32::from(byte), |sum, _| bit(sum));
        let sum = !bytes.iter().fold(!0, byte);
        let [size, name] = [bytes.len(), name.len()].map(|n| (n as u32).to_le_bytes());
        // Version, flags, method, time, date; then the checksum, both sizes, and no extra field.
        let start = [20, 0, 0, 0, 0, 0, 0, 0, 0x21, 0];
        [&start[..], &sum.to_le_bytes(), &size, &size, &name[..2], &[0, 0]].concat()
    };
    for (name, bytes) in files {
        starts.push((out.len() as u32).to_le_bytes());
        out.extend([b"PK\x03\x04", &fields(name, bytes)[..], name.as_bytes(), bytes].concat());
    }
    for &(name, file) in directory {
        let fields = fields(name, files[file].1);
        let start = [&b"PK\x01\x02\x14\0"[..], &fields, &[0; 10], &starts[file]].concat();
        central.extend([&start[..], name.as_bytes()].concat());
    }
    let count = &(directory.len() as u32).to_le_bytes()[..2];
    let [size, start] = [central.len(), out.len()].map(|n| (n as u32).to_le_bytes());
    let end = [b"PK\x05\x06\0\0\0\0", count, count, &size, &start, &[0, 0]].concat();
    [out, central, end].concat()
}

#[test]
fn archives_with_other_entries_are_read_and_shared_bytes_refused() {
    let files = Files::new();
    let (array, other) = (&files.bytes("vector")[..], &files.bytes("scalar")[..]);
    let load = |entries: &[(&str, &[u8])], directory: &[(&str, usize)]| {
        let path = files.write(&archive(entries, directory));
        npz::load(&path)
            .map_err(|e| e.to_string().split_once("cannot be read: ").unwrap().1.to_string())
    };
    let all = |entries: &[(&str, &[u8])]| {
        let directory: Vec<_> = entries.iter().enumerate().map(|(i, e)| (e.0, i)).collect();
        load(entries, &directory)
    };
    // As `zip -r` and Finder write a folder.
    let (folder, text) = (("a/", &b""[..]), ("a/README", &b"text"[..]));
    let file = all(&[folder, ("a/x.npy", array), text, ("__MACOSX/a/._x.npy", b"x")]).unwrap();
    assert_eq!(file.tensors.keys().collect::<Vec<_>>(), ["a/x"]);
    assert_eq!(exact(&file.tensors["a/x"]), [0, 1, 2, 3, 4]);
    assert!(all(&[folder]).unwrap().tensors.is_empty());
    assert_eq!(all(&[folder, text]).unwrap_err(), "its entry \"a/README\" is no .npy file");
    // Names that differ by the suffix only are not the same.
    let file = all(&[("x.npy", array), ("x", b"text"), ("x.npy.npy", other)]).unwrap();
    assert_eq!(file.tensors.keys().collect::<Vec<_>>(), ["x", "x.npy"]);
    let both = all(&[("x.npy", array), ("x", other)]);
    assert_eq!(both.unwrap_err(), "two of its arrays have the name \"x\"");
    let twice = all(&[("x.npy", array), ("y.npy", other), ("x.npy", other)]);
    assert_eq!(twice.unwrap_err(), "two of its entries have the same name");
    // Many names of one array would take many times the memory; part of an array is no file, either.
    let shared = "two of its entries share bytes of the file";
    let names: Vec<String> = (0..2000).map(|i| format!("{i}.npy")).collect();
    let directory: Vec<_> = names.iter().map(|name| (&name[..], 0)).collect();
    assert_eq!(load(&[("0.npy", array)], &directory).unwrap_err(), shared);
    let inner = archive(&[("y.npy", array)], &[]);
    let mut bytes = archive(&[("x.npy", &inner), ("y.npy", array)], &[("x.npy", 0), ("y.npy", 1)]);
    // The second entry begins inside the first, after a header of 30 bytes and a name.
    let at = bytes.len() - 22 - 5 - 4;
    bytes[at..at + 4].copy_from_slice(&35u32.to_le_bytes());
    let said = npz::load(files.write(&bytes)).unwrap_err().to_string();
    assert!(said.ends_with(shared), "{said}");
}

#[test]
fn saved_archives_are_loaded_unchanged() {
    let files = Files::new();
    let model = Gpt::<f32>::new(
        GptConfig { vocab: 7, context: 4, layers: 1, heads: 2, width: 8, ..GptConfig::default() },
        &mut Rng::new(1),
    )
    .unwrap();
    let mut file = Checkpoint::new();
    file.put("model", &model.state_dict());
    file.tensors.insert("step".into(), Tensor::scalar(3i64).into());
    file.tensors.insert("größe/\u{1F980}".into(), Tensor::from([true]).into());
    file.tensors.insert("view".into(), Tensor::from([[1.0f64, 2.0], [3.0, 4.0]]).t().into());
    let paths = ["a.npz", "b.npz"].map(|name| files.folder.path().join(name));
    for path in &paths {
        npz::save(path, &file.tensors).unwrap();
    }
    assert_eq!(fs::read(&paths[0]).unwrap(), fs::read(&paths[1]).unwrap());
    let back = npz::load(&paths[0]).unwrap();
    assert!(back.tensors.keys().eq(file.tensors.keys()));
    for (name, tensor) in &file.tensors {
        let got = &back.tensors[name];
        assert_eq!((got.dtype(), got.shape()), (tensor.dtype(), tensor.shape()), "{name}");
        assert_eq!(exact(got), exact(tensor), "{name}");
    }
    model.load_state_dict(&back.get("model").unwrap()).unwrap();
    if let Some(folder) = exports() {
        fs::create_dir_all(&folder).unwrap();
        npz::save(folder.join("arrays.npz"), &file.tensors).unwrap();
        file.save_plain(folder.join("arrays.safetensors")).unwrap();
    }
}

#[test]
fn damaged_archives_are_refused() {
    let files = Files::new();
    let load = |bytes: &[u8]| npz::load(files.write(bytes));
    for name in ["npz", "npz.compressed"] {
        let whole = files.bytes(name);
        let sound = load(&whole).unwrap();
        for length in (0..whole.len()).step_by(7) {
            load(&whole[..length]).unwrap_err();
        }
        // A flipped bit is an error, or changes nothing that is read.
        for i in (0..whole.len()).step_by(3) {
            let mut bytes = whole.clone();
            bytes[i] ^= 4;
            let Ok(file) = load(&bytes) else { continue };
            assert!(file.unsupported.is_empty(), "{name}, byte {i}");
            for (tensor, sound) in file.tensors.values().zip(sound.tensors.values()) {
                assert_eq!(exact(tensor), exact(sound), "{name}, byte {i}");
            }
        }
    }
    let said = load(b"PK\x03\x04 and no more").unwrap_err().to_string();
    assert!(said.contains("cannot be read: it is no .npz file: "), "{said}");
    let said = load(&files.bytes("torch.zip")).unwrap_err().to_string();
    assert!(said.contains("data.pkl\" is no .npy file: torch.save has written"), "{said}");
    assert!(said.contains("safetensors.torch.save_file"), "{said}");
}

#[test]
fn other_formats_are_named_where_a_checkpoint_is_expected() {
    let files = Files::new();
    let said = |name: &str| {
        let path = files.write(&files.bytes(name));
        let said = Checkpoint::load(&path).unwrap_err().to_string();
        let start = format!("{} is no checkpoint: ", path.display());
        said.strip_prefix(&start).unwrap_or_else(|| panic!("{said}")).to_string()
    };
    let npy = "it is a NumPy array (hint: `npy::load` reads it)";
    assert_eq!((said("<f4.C"), said("scalar")), (npy.into(), npy.into()));
    let npz = "it is an archive of NumPy arrays (hint: `npz::load` reads it; it needs the feature \
               `npz`)";
    assert_eq!((said("npz"), said("npz.compressed")), (npz.into(), npz.into()));
    let hint = "(hint: in Python, `safetensors.torch.save_file({k: v.contiguous().clone() for k, v \
                in state.items()}, \"model.safetensors\")` writes what can be read here, where \
                `state` is `torch.load(path, map_location=\"cpu\")`, or the entry of it with the \
                weights: `[\"model\"]` in nanoGPT's ckpt.pt)";
    assert_eq!(said("torch.zip"), format!("it is a zip archive, as torch.save writes {hint}"));
    let pickle = "it is a pickle, as torch.save writes with _use_new_zipfile_serialization=False";
    assert_eq!(said("torch.pickle"), format!("{pickle} {hint}"));
}
