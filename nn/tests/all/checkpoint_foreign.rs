//! Compatibility of checkpoints: files equal those of the reference implementation of safetensors,
//! and files of other programs can be read.

use crate::checkpoint::{everything, folder, one, raw};
use crate::common::*;
use retrograd_nn::checkpoint::{AnyTensor, Checkpoint, CheckpointError, Unsupported};
use retrograd_nn::{Module, StateDict};
use retrograd_tensor::Tensor;
use safetensors::SafeTensors;
use std::fs;

#[test]
fn files_are_those_of_the_reference_implementation() {
    let dir = folder();
    let path = dir.path().join("a");
    let mut model = Checkpoint::new();
    model.put("model", &gpt::<f32>(config(), 1).state_dict());
    for file in [everything(), model, Checkpoint::new()] {
        file.save(&path).unwrap();
        let bytes = fs::read(&path).unwrap();
        let (_, header) = SafeTensors::read_metadata(&bytes).unwrap();
        let read = SafeTensors::deserialize(&bytes).unwrap();
        assert_eq!(read.len(), file.tensors.len());
        let again = safetensors::serialize(read.iter(), header.metadata().clone()).unwrap();
        assert!(bytes == again, "the bytes differ");
    }
}

#[test]
fn a_long_non_contiguous_tensor_is_written_in_row_major_order() {
    let dir = folder();
    let path = dir.path().join("a");
    let x = Tensor::<f32>::arange(0.0, 60_000.0, 1.0).reshape([100, 3, 200]);
    let mut file = Checkpoint::new();
    let views = [x.t(), x.transpose(0, 2), x.slice(1, 1..2), x.select(2, 7), x.narrow(0, 3, 90)];
    for (i, view) in views.iter().enumerate() {
        file.tensors.insert(format!("{i}"), AnyTensor::F32(view.clone()));
    }
    let strided = x.flatten().slice_step(0, .., 7);
    file.tensors.insert("5".into(), AnyTensor::F32(strided.clone()));
    file.save(&path).unwrap();
    let read: StateDict<f32> = Checkpoint::load(&path).unwrap().get("").unwrap();
    for (i, view) in views.iter().chain([&strided]).enumerate() {
        assert!(read[&i.to_string()] == *view, "view {i}");
    }
}

#[test]
fn an_empty_prefix_adds_nothing_to_names() {
    let model = gpt::<f32>(config(), 1);
    let mut file = Checkpoint::new();
    file.put("", &model.state_dict());
    assert!(file.tensors.contains_key("lm_head.weight"), "{:?}", file.tensors.keys());
    let other = gpt::<f32>(config(), 2);
    other.load_state_dict(&file.get("").unwrap()).unwrap();
    assert_eq!(state_bits(&model), state_bits(&other));
}

#[test]
fn an_unknown_type_is_an_error_only_when_read() {
    let dir = folder();
    let path = dir.path().join("mixed");
    let entries = [
        one("a.half", "F16", "[3]", 0, 6),
        one("a.new", "F7_E3M3", "[5]", 6, 8),
        one("b.bytes", "I8", "[2,4]", 8, 16),
        one("b.deep", "F32", "[1,1,1,1,1,1,1,1,2]", 16, 24),
        one("c.w", "F32", "[2]", 24, 32),
    ];
    fs::write(&path, raw(&format!("{{{}}}", entries.join(",")), 32)).unwrap();
    let file = Checkpoint::load(&path).unwrap();
    assert_eq!(file.tensors.keys().collect::<Vec<_>>(), ["c.w"]);
    let listed: Vec<String> = file.unsupported.iter().map(|(n, t)| format!("{n} {t}")).collect();
    let want = ["a.half F16 [3]", "a.new F7_E3M3 [5]", "b.bytes I8 [2, 4]"];
    assert_eq!(listed[..3], want);
    assert_eq!(listed[3], "b.deep F32 [1, 1, 1, 1, 1, 1, 1, 1, 2]");
    // Supported tensors can be read...
    assert_eq!(file.get::<f32>("c").unwrap()["w"].to_vec(), [0.0, 0.0]);
    assert!(file.get::<f32>("nothing").unwrap().is_empty());
    // ... and unsupported ones are errors with a reason.
    let said = |prefix| file.get::<f32>(prefix).unwrap_err().to_string();
    assert_eq!(
        said("a"),
        "the checkpoint has no f32 tensor a.half: it is F16 [3], which is not supported; \
         a.new: it is F7_E3M3 [5], which is not supported"
    );
    assert!(said("").contains("b.bytes: it is I8 [2, 4], which is not supported"));
    // Writing the file again would lose them.
    let again = dir.path().join("again");
    let error = file.save(&again).unwrap_err().to_string();
    assert_eq!(
        error,
        format!(
            "{}: the contents of tensor a.half were not read, because F16 [3] is not supported \
             (hint: remove entries that need not be saved from `unsupported`)",
            again.display()
        )
    );
    assert!(!again.exists());
    let mut kept = file.clone();
    kept.unsupported.clear();
    kept.save(&again).unwrap();
    // A size that contradicts a type that is known is still an error.
    fs::write(&path, raw(&format!("{{{}}}", one("w", "BF16", "[3]", 0, 8)), 8)).unwrap();
    let error = Checkpoint::load(&path).unwrap_err().to_string();
    assert!(error.ends_with("BF16 [3] takes 6 bytes, the offsets give 8"), "{error}");
}

#[test]
fn load_filtered_reads_only_selected_tensors() {
    let dir = folder();
    let path = dir.path().join("a");
    let mut file = everything();
    file.put("model", &gpt::<f32>(config(), 1).state_dict());
    file.save(&path).unwrap();
    let read = Checkpoint::load_filtered(&path, |name| name.starts_with("model.")).unwrap();
    assert_eq!(read.tensors.len(), 29);
    assert_eq!(read.notes, file.notes);
    let dict = |file: &Checkpoint| dict_bits::<f32>(&file.get("model").unwrap());
    assert_eq!(dict(&read), dict(&file));
    let none = Checkpoint::load_filtered(&path, |_| false).unwrap();
    assert!(none.tensors.is_empty() && none.notes == file.notes);
    // Damage in filtered tensors is detected, too.
    let mut bytes = fs::read(&path).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    fs::write(&path, &bytes).unwrap();
    let error = Checkpoint::load_filtered(&path, |name| name == "i64").unwrap_err();
    assert!(matches!(error, CheckpointError::Damaged(_)), "{error}");
    // Filtered tensors of a foreign file are not checked.
    let entries = [one("half", "F16", "[4]", 0, 8), one("w", "F32", "[2]", 8, 16)];
    fs::write(&path, raw(&format!("{{{}}}", entries.join(",")), 16)).unwrap();
    let read = Checkpoint::load_filtered(&path, |name| name == "w").unwrap();
    assert!(read.unsupported.is_empty() && read.tensors.len() == 1);
    let read = Checkpoint::load_filtered(&path, |name| name == "half").unwrap();
    let half = Unsupported { dtype: "F16".into(), shape: vec![4] };
    assert_eq!(read.unsupported.get("half"), Some(&half));
}

#[test]
fn files_of_torch_save_are_identified() {
    let dir = folder();
    let path = dir.path().join("model.pt");
    let text = |bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        Checkpoint::load(&path).unwrap_err().to_string()
    };
    // The beginning of what torch.save writes: a zip archive, its version and flags.
    let mut zip = b"PK\x03\x04\x00\x00\x08\x08\x00\x00\x00\x00\x00\x00".to_vec();
    zip.extend(b"\0".repeat(16));
    zip.extend(b"archive/data.pkl");
    // With other flags the first bytes are a length that there could be.
    let mut short = zip.clone();
    short[4..8].fill(0);
    for bytes in [zip, short] {
        let said = text(&bytes);
        assert!(said.contains("is no checkpoint: it is a zip archive, as torch.save"), "{said}");
        assert!(said.contains("safetensors.torch.save_file"), "{said}");
    }
    // Its older format: the magic number as a pickle. And a state dict by pickle.dump.
    for bytes in [
        &b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.\x80\x02M\xe9\x03."[..],
        b"\x80\x04\x95\x1a\x00\x00\x00\x00\x00\x00\x00}\x94\x8c\x01a",
    ] {
        let said = text(bytes);
        assert!(said.contains("is no checkpoint: it is a pickle, as torch.save"), "{said}");
        assert!(said.contains("safetensors.torch.save_file"), "{said}");
    }
    // Not everything that begins alike: headers of 640 and of 0x04034b50 bytes.
    for first in [b"\x80\x02\0\0", b"PK\x03\x04"] {
        let said = text(&[&first[..], b"\0\0\0\0", b"{\"a\""].concat());
        assert!(said.contains("bytes exceeds the 12 of the file"), "{said}");
    }
}
