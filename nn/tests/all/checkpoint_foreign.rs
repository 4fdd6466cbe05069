//! Compatibility of checkpoints: files equal those of the reference implementation of safetensors,
//! and files of other programs can be read.

use crate::checkpoint::{everything, file, one, raw};
use crate::common::*;
use retrograd_nn::checkpoint::{AnyTensor, Checkpoint, CheckpointError, ConvertError, Unsupported};
use retrograd_nn::internals::{Value, bf16, dictionary, f16};
use retrograd_nn::{Module, StateDict};
use retrograd_tensor::{DType, Tensor};
use safetensors::SafeTensors;
use std::collections::HashMap;
use std::fs;
use std::path::Path;

#[test]
fn files_are_those_of_the_reference_implementation() {
    let (_dir, path) = file();
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
fn plain_files_are_those_of_the_reference_implementation() {
    let (_dir, path) = file();
    let mut file = Checkpoint::new();
    file.put("", &gpt::<f32>(config(), 1).state_dict());
    let written = |file: &Checkpoint| {
        file.save_plain(&path).unwrap();
        let bytes = fs::read(&path).unwrap();
        let (_, header) = SafeTensors::read_metadata(&bytes).unwrap();
        let read = SafeTensors::deserialize(&bytes).unwrap();
        let again = safetensors::serialize(read.iter(), header.metadata().clone()).unwrap();
        (bytes == again, header.metadata().clone())
    };
    // Without notes there is no metadata.
    assert_eq!(written(&file), (true, None));
    assert_eq!(written(&Checkpoint::new()), (true, None));
    file.note("format", &"pt");
    let format = HashMap::from([("format".to_string(), "pt".to_string())]);
    assert_eq!(written(&file), (true, Some(format)));
    // Several notes are sorted; the reference implementation writes them in a random order. One that
    // is no string becomes its text.
    file.note("a \"quote\"", &"naïve \n\u{1F980}");
    file.note("step", &[1u64, 2]);
    file.save_plain(&path).unwrap();
    let bytes = fs::read(&path).unwrap();
    let (_, header) = SafeTensors::read_metadata(&bytes).unwrap();
    let want = [("a \"quote\"", "naïve \n\u{1F980}"), ("format", "pt"), ("step", "[1,2]")];
    let want: HashMap<String, String> = want.map(|(a, b)| (a.into(), b.into())).into();
    assert_eq!(header.metadata().as_ref(), Some(&want));
    let back = Checkpoint::load(&path).unwrap();
    assert_eq!(back.read_note::<String>("step").unwrap(), "[1,2]");
    assert_eq!(dict_bits::<f32>(&back.get("").unwrap()), dict_bits::<f32>(&file.get("").unwrap()));
    // A file that has been read is written as it was.
    back.save_plain(&path).unwrap();
    assert!(fs::read(&path).unwrap() == bytes, "the bytes differ");
    // The mark of a file with a checksum would be a lie.
    file.note("retrograd", &"1");
    let error = file.save_plain(&path).unwrap_err().to_string();
    assert!(error.ends_with("a note cannot be named retrograd, which marks files with a checksum"));
    let mut reserved = Checkpoint::new();
    reserved.tensors.insert("__metadata__".into(), Tensor::scalar(1.0f32).into());
    assert!(reserved.save_plain(&path).is_err());
    assert!(fs::read(&path).unwrap() == bytes, "the file has changed");
}

#[test]
fn a_long_non_contiguous_tensor_is_written_in_row_major_order() {
    let (_dir, path) = file();
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
    let (dir, path) = file();
    let entries = [
        one("a.eight", "F8_E4M3", "[3]", 0, 3),
        one("a.new", "F7_E3M3", "[5]", 3, 8),
        one("b.complex", "C64", "[1]", 8, 16),
        one("b.deep", "F32", "[1,1,1,1,1,1,1,1,2]", 16, 24),
        one("c.w", "F32", "[2]", 24, 32),
    ];
    fs::write(&path, raw(&format!("{{{}}}", entries.join(",")), 32)).unwrap();
    let file = Checkpoint::load(&path).unwrap();
    assert_eq!(file.tensors.keys().collect::<Vec<_>>(), ["c.w"]);
    let listed: Vec<String> = file.unsupported.iter().map(|(n, t)| format!("{n} {t}")).collect();
    let want = [
        "a.eight F8_E4M3 [3], which is not supported",
        "a.new F7_E3M3 [5], which is not supported",
        "b.complex C64 [1], which is not supported",
        "b.deep F32 [1, 1, 1, 1, 1, 1, 1, 1, 2], which has more than 8 axes",
    ];
    assert_eq!(listed, want);
    // Supported tensors can be read...
    assert_eq!(file.get::<f32>("c").unwrap()["w"].to_vec(), [0.0, 0.0]);
    assert!(file.get::<f32>("nothing").unwrap().is_empty());
    // ... and unsupported ones are errors with a reason.
    let said = |prefix| file.get::<f32>(prefix).unwrap_err().to_string();
    assert_eq!(
        said("a"),
        "the checkpoint has no f32 tensor a.eight: it is F8_E4M3 [3], which is not supported; \
         a.new: it is F7_E3M3 [5], which is not supported"
    );
    assert!(said("").contains("b.complex: it is C64 [1], which is not supported"));
    // Writing the file again would lose them.
    let again = dir.path().join("again");
    let error = file.save(&again).unwrap_err().to_string();
    assert_eq!(
        error,
        format!(
            "{}: there are no contents of tensor a.eight: it is F8_E4M3 [3], which is not supported \
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

/// A file of one tensor of a type and a number of axes.
fn file_of(path: &Path, dtype: &str, shape: &str, bytes: &[u8]) -> Checkpoint {
    let header = format!("{{{}}}", one("w", dtype, shape, 0, bytes.len() as u64));
    fs::write(path, [raw(&header, 0), bytes.to_vec()].concat()).unwrap();
    Checkpoint::load(path).unwrap()
}

#[test]
fn unsigned_64_bit_integers_that_exceed_i64_are_not_supported() {
    let (_dir, path) = file();
    let bytes = |xs: &[u64]| xs.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>();
    let most = i64::MAX as u64;
    let file = file_of(&path, "U64", "[3]", &bytes(&[0, 7, most]));
    assert_eq!(file.tensors["w"].to_i64().unwrap().to_vec(), [0, 7, i64::MAX]);
    assert!(file.unsupported.is_empty());
    let file = file_of(&path, "U64", "[4]", &bytes(&[1, most + 1, 2, u64::MAX]));
    assert!(file.tensors.is_empty());
    let error = file.get::<f32>("").unwrap_err().to_string();
    assert_eq!(
        error,
        "the checkpoint has no f32 tensor w: it is U64 [4], whose element 9223372036854775808 \
         exceeds i64"
    );
    // Tensors after it are read from the right place.
    let header = [one("a", "U64", "[2]", 0, 16), one("b", "U8", "[2]", 16, 18)].join(",");
    let data = [bytes(&[u64::MAX, 1]), vec![3, 4]].concat();
    fs::write(&path, [raw(&format!("{{{header}}}"), 0), data].concat()).unwrap();
    let file = Checkpoint::load(&path).unwrap();
    assert_eq!(file.tensors["b"].to_i64().unwrap().to_vec(), [3, 4]);
    assert_eq!(file.unsupported.keys().collect::<Vec<_>>(), ["a"]);
}

#[test]
fn tensors_of_narrow_types_are_read_in_pieces() {
    // More elements than fit into one buffer, of each width.
    let (_dir, path) = file();
    let n = 70_001;
    let value = |i: usize| (i % 251) as i64 - 100;
    let bytes: Vec<u8> = (0..n).flat_map(|i| (value(i) as i8).to_le_bytes()).collect();
    let file = file_of(&path, "I8", &format!("[{n}]"), &bytes);
    let got = file.tensors["w"].to_i64().unwrap().to_vec();
    assert!(got.iter().enumerate().all(|(i, &x)| x == i64::from(value(i) as i8)));
    let bytes: Vec<u8> =
        (0..n).flat_map(|i| (((value(i) as f32).to_bits() >> 16) as u16).to_le_bytes()).collect();
    let file = file_of(&path, "BF16", &format!("[1, {n}]"), &bytes);
    let got = file.get::<f32>("").unwrap()["w"].to_vec();
    assert!(got.iter().enumerate().all(|(i, &x)| x == value(i) as f32));
}

#[test]
fn floats_are_converted_to_the_type_of_the_model() {
    let (_dir, path) = file();
    let odd = [0.1f64, -0.0, 1e-50, f64::NAN, f64::NEG_INFINITY, 3.4e38];
    let mut file = Checkpoint::new();
    file.tensors.insert("wide".into(), Tensor::from(odd).into());
    file.tensors.insert("narrow".into(), Tensor::from(odd.map(|x| x as f32)).into());
    file.save(&path).unwrap();
    let file = Checkpoint::load(&path).unwrap();
    let bits64 = |t: &Tensor<f64>| t.to_vec().into_iter().map(f64::to_bits).collect::<Vec<_>>();
    let bits32 = |t: &Tensor<f32>| t.to_vec().into_iter().map(f32::to_bits).collect::<Vec<_>>();
    let wide = file.get::<f64>("").unwrap();
    assert_eq!(bits64(&wide["wide"]), odd.map(f64::to_bits));
    assert_eq!(bits64(&wide["narrow"]), odd.map(|x| f64::from(x as f32).to_bits()));
    let narrow = file.get::<f32>("").unwrap();
    assert_eq!(bits32(&narrow["wide"]), odd.map(|x| (x as f32).to_bits()));
    assert_eq!(bits32(&narrow["narrow"]), odd.map(|x| (x as f32).to_bits()));
    // A number that is too large would become infinite.
    let mut large = Checkpoint::new();
    let x = Tensor::from([[1.0, 2.0, 3.0], [4.0, 1e39, 1e40]]);
    large.tensors.insert("layer.w".into(), x.clone().into());
    large.tensors.insert("step".into(), Tensor::from([3i64]).into());
    assert_eq!(
        large.get::<f32>("").unwrap_err().to_string(),
        "the checkpoint has no f32 tensor layer.w: its element 1e39 at [1, 1] has no value in f32; step: it is i64"
    );
    assert_eq!(large.get::<f64>("layer").unwrap()["w"], x);
    // Views, too.
    let view = AnyTensor::from(x.t());
    assert_eq!(view.to_float::<f64>().unwrap(), x.t());
    let error = view.to_float::<f32>().unwrap_err();
    assert!(matches!(&error, ConvertError::Element { index, .. } if *index == [1, 1]), "{error}");
}

#[test]
fn integers_are_converted_only_if_nothing_is_lost() {
    let i64s = |x: &[i64]| AnyTensor::from(Tensor::from_vec(x.to_vec(), [x.len()]));
    let float = |t: &AnyTensor| t.to_float::<f32>().map(|t| t.to_vec());
    let edge = 1 << 24;
    assert_eq!(float(&i64s(&[-edge, edge, 0, edge + 2])).unwrap()[3], (edge + 2) as f32);
    assert_eq!(float(&i64s(&[i64::MIN])).unwrap(), [-(2f32.powi(63))]);
    for lost in [edge + 1, -edge - 1, i64::MAX, i64::MIN + 1] {
        let error = float(&i64s(&[0, lost])).unwrap_err().to_string();
        assert_eq!(error, format!("its element {lost} at [1] has no value in f32"));
    }
    assert_eq!(i64s(&[edge + 1]).to_float::<f64>().unwrap().to_vec(), [(edge + 1) as f64]);
    assert!(i64s(&[(1 << 53) + 1]).to_float::<f64>().is_err());
    let u32s = AnyTensor::from(Tensor::from([u32::MAX, 5]));
    assert_eq!(u32s.to_i64().unwrap().to_vec(), [u32::MAX.into(), 5]);
    assert_eq!(u32s.to_float::<f64>().unwrap().to_vec(), [u32::MAX.into(), 5.0]);
    assert!(u32s.to_float::<f32>().is_err());
    let bools = AnyTensor::from(Tensor::from([[true], [false]]));
    assert_eq!(bools.to_float::<f32>().unwrap().to_vec(), [1.0, 0.0]);
    assert_eq!(bools.to_i64().unwrap().to_vec(), [1, 0]);
    let error = AnyTensor::from(Tensor::from([1.0f64])).to_i64().unwrap_err();
    assert_eq!(error, ConvertError::Type(DType::F64, DType::I64));
    // Integers are no parameters.
    let mut file = Checkpoint::new();
    file.tensors.insert("w".into(), bools);
    let error = file.get::<f32>("").unwrap_err().to_string();
    assert_eq!(error, "the checkpoint has no f32 tensor w: it is bool");
}

#[test]
fn load_filtered_reads_only_selected_tensors() {
    let (_dir, path) = file();
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
    let entries = [one("eight", "F8_E5M2", "[8]", 0, 8), one("w", "F32", "[2]", 8, 16)];
    fs::write(&path, raw(&format!("{{{}}}", entries.join(",")), 16)).unwrap();
    let read = Checkpoint::load_filtered(&path, |name| name == "w").unwrap();
    assert!(read.unsupported.is_empty() && read.tensors.len() == 1);
    let read = Checkpoint::load_filtered(&path, |name| name == "eight").unwrap();
    let reason = "which is not supported".into();
    let eight = Unsupported { dtype: "F8_E5M2".into(), shape: vec![8], reason };
    assert_eq!(read.unsupported.get("eight"), Some(&eight));
}

#[test]
fn files_of_torch_save_are_identified() {
    let (_dir, path) = file();
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

/// `sign · 2^exponent · fraction`, by the definition of the format and in f64.
fn by_definition(bits: u16, exponent_bits: u32) -> f64 {
    let fraction_bits = 15 - exponent_bits;
    let bias = (1 << (exponent_bits - 1)) - 1;
    let fraction = f64::from(bits & ((1 << fraction_bits) - 1)) / f64::from(1 << fraction_bits);
    let exponent = i32::from(bits >> fraction_bits) & ((1 << exponent_bits) - 1);
    let sign = if bits >> 15 == 1 { -1.0 } else { 1.0 };
    sign * match exponent {
        0 => 2f64.powi(1 - bias) * fraction,
        e if e == (1 << exponent_bits) - 1 && fraction == 0.0 => f64::INFINITY,
        e if e == (1 << exponent_bits) - 1 => f64::NAN,
        e => 2f64.powi(e - bias) * (1.0 + fraction),
    }
}

#[test]
fn all_16_bit_floats_are_decoded() {
    for bits in 0..=u16::MAX {
        for (got, exponent_bits) in [(f16(bits), 5), (bf16(bits), 8)] {
            let (got, want) = (f64::from(got), by_definition(bits, exponent_bits));
            let same = got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan();
            assert!(same, "{bits:#06x} of {exponent_bits}: {got}, not {want}");
        }
    }
}

#[test]
fn dictionaries_are_read() {
    use Value::*;
    let text = r#"{'descr': '<f4', "fortran_order": False, 'shape': (3, 14L), }"#;
    let sizes = List(vec![Integer(3), Integer(14)]);
    let want = [
        ("descr".into(), Text("<f4".into())),
        ("fortran_order".into(), Bool(false)),
        ("shape".into(), sizes),
    ];
    assert_eq!(dictionary(text).unwrap(), want);
    let nested = dictionary(r"{'a': [('x\'', '<i4', (2,)), ()], 'b':True}").unwrap();
    let field = List(vec![Text(r"x\'".into()), Text("<i4".into()), List(vec![Integer(2)])]);
    let want = [("a".into(), List(vec![field, List(vec![])])), ("b".into(), Bool(true))];
    assert_eq!(nested, want);
    assert_eq!(dictionary(" { } "), Some(vec![]));
}

#[test]
fn anything_else_is_refused() {
    let deep = format!("{{'a': {}}}", "(".repeat(1000));
    let closed = format!("{{'a': {}{}}}", "(".repeat(1000), ")".repeat(1000));
    let huge = "{'a': 18446744073709551616}";
    let short = "|{|}|{'a'}|{'a':}|{'a': 1|{'a': 1 2}|{1: 2}|{'a': 1} x|{'a': (1|{'a': (1 2)}|\
                 {'a': 'b}|{'a': -1}|{'a': None}|{,}|{'a': (,)}";
    for text in short.split('|').chain([&deep[..], &closed, huge]) {
        assert_eq!(dictionary(text), None, "{text}");
    }
}
