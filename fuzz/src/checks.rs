//! What must hold for any input: one check for each kind of input. None may panic, and none may take memory beyond a
//! multiple of the input. What is read from a valid input and written must be read as the same.

use peak_alloc::PeakAlloc;
use retrograd::nn::text::{Corpus, Documents, Encoding, Printable};
use retrograd::nn::{npy, npz, pretrained};
use retrograd::prelude::*;
use retrograd_support::panics;
use retrograd_train::outside;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::LazyLock;
use std::{fs, iter, str};
use tempfile::TempDir;

/// A kind of input: its name, its check, and the most memory in multiples of the input. The check itself takes some,
/// entries of JSON are larger than their text, integers of 8 bits become wider, and deflate shrinks 1100 times.
pub type Target = (&'static str, fn(&[u8]), usize);

pub const TARGETS: [Target; 14] = [
    ("checkpoint", checkpoint, 64),
    ("command_line", command_line, 32),
    ("config", config, 32),
    // A tensor of 65,536 elements is a few bytes of text.
    ("expression", expression, 1 << 16),
    ("gguf", model, 16),
    ("handshake", handshake, 16),
    ("index", index, 16),
    ("log", log, 64),
    ("npy", npy, 16),
    ("npz", npz, 8 * 1100),
    ("onnx", model, 16),
    ("safetensors", safetensors, 16),
    ("text", text, 32),
    ("tokenizer", tokenizer, 64),
];

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

/// Checks an input.
pub fn run((name, check, times): Target, data: &[u8]) {
    // Memory beside that: buffers, messages, the parser of the command line, caches of 800 KB of the library `tokenizers`.
    let constant = if ["gguf", "tokenizer"].contains(&name) { 4 << 20 } else { 1 << 20 };
    let most = times * data.len() + constant;
    let peak = || {
        let before = MEMORY.current_usage();
        MEMORY.reset_peak_usage();
        check(data);
        MEMORY.peak_usage().saturating_sub(before)
    };
    // In the first run tables are made that stay.
    let bytes = Some(peak()).filter(|&bytes| bytes <= most).unwrap_or_else(peak);
    assert!(bytes <= most, "{} bytes of input took {bytes}, more than {most}", data.len());
}

/// The input with a part of it repeated: what grows faster than the input shows.
pub fn stretched(data: &[u8]) -> Vec<u8> {
    let hash = crc32fast::hash(data) as usize;
    let [a, b] = [hash >> 16, hash & 0xffff].map(|x| x % (data.len() + 1));
    let (start, part, end) = (&data[..a.min(b)], &data[a.min(b)..a.max(b)], &data[a.max(b)..]);
    [start, &part.repeat((1 << 16) / part.len().max(1)), end].concat()
}

/// A path in a folder of this thread.
fn path(name: &str) -> PathBuf {
    thread_local! { static FOLDER: TempDir = tempfile::tempdir().expect("a folder") }
    FOLDER.with(|folder| folder.path().join(name))
}

/// The path of a file with these bytes.
fn file(data: &[u8]) -> PathBuf {
    let path = path("file");
    fs::write(&path, data).expect("a file");
    path
}

/// A file as another program would get it, unless it cannot be written so.
fn plain(mut file: Checkpoint) -> Option<Vec<u8>> {
    file.unsupported.clear();
    let mut bytes = Vec::new();
    file.write_plain(&mut bytes).ok().map(|()| bytes)
}

fn safetensors(data: &[u8]) {
    let Some(bytes) = Checkpoint::load(file(data)).ok().and_then(plain) else { return };
    let again = Checkpoint::load(file(&bytes)).expect("written here");
    assert_eq!(plain(again), Some(bytes));
}

/// Notes with their checksum, which a mutation would not hit; and a saved file with one bit flipped, which is an error or
/// the same.
fn checkpoint(data: &[u8]) {
    let notes = String::from_utf8_lossy(data);
    let summed = [&(notes.len() as u64).to_le_bytes(), notes.as_bytes()].concat();
    let stamp = format!("1 {:08x} {notes}", crc32fast::hash(&summed));
    let header = serde_json::json!({ "__metadata__": { "retrograd": stamp } }).to_string();
    let bytes = [&(header.len() as u64).to_le_bytes(), header.as_bytes()].concat();
    let mut saved = Checkpoint::load(file(&bytes)).unwrap_or_default();
    let numbers: Vec<i64> = data.iter().map(|&byte| byte.into()).collect();
    saved.tensors.insert(notes.to_string(), Tensor::from_vec(numbers, [data.len()]).into());
    let path = path("saved");
    if saved.save(&path).is_err() {
        return assert_eq!(notes, "__metadata__");
    }
    let loaded = Checkpoint::load(&path).expect("saved here");
    assert_eq!((loaded.notes, loaded.tensors.len()), (saved.notes, saved.tensors.len()));
    let good = fs::read(&path).expect("saved here");
    let (mut bytes, bit) = (good.clone(), crc32fast::hash(data) as usize % (8 * good.len()));
    bytes[bit / 8] ^= 1 << (bit % 8);
    // An escape may have capitals.
    if let Ok(same) = Checkpoint::load(file(&bytes)) {
        same.save(&path).expect("loaded");
        assert_eq!(fs::read(&path).expect("saved"), good, "bit {bit} of {data:?} was flipped");
    }
}

fn npy(data: &[u8]) {
    let Ok(tensor) = npy::load(file(data)) else { return };
    let save = |tensor| {
        npy::save(path("saved"), tensor).expect("saved");
        fs::read(path("saved")).expect("saved")
    };
    let bytes = save(tensor);
    assert_eq!(save(npy::load(file(&bytes)).expect("saved")), bytes);
}

fn npz(data: &[u8]) {
    let Ok(archive) = npz::load(file(data)) else { return };
    // A name of 64 KB has no room for the suffix.
    if npz::save(path("saved"), &archive.tensors).is_ok() {
        let again = npz::load(path("saved")).expect("saved");
        assert_eq!(plain(again), plain(archive));
    }
}

/// The index of a model whose tensors are in `1.safetensors`.
fn index(data: &[u8]) {
    let folder = path("model");
    if !folder.exists() {
        let size =
            GptConfig { vocab: 3, context: 2, layers: 1, heads: 1, width: 2, ..Default::default() };
        let model = Gpt::<f32>::new(size, &mut Rng::new(1)).expect("a model");
        model.save_pretrained(&folder).expect("saved");
        fs::rename(folder.join("model.safetensors"), folder.join("1.safetensors")).expect("saved");
    }
    fs::write(folder.join("model.safetensors.index.json"), data).expect("a file");
    let _ = Gpt::<f32>::from_pretrained(&folder);
}

/// A whole model in a file of GGUF or ONNX.
fn model(data: &[u8]) {
    let _ = Gpt::<f32>::from_pretrained_with_tokenizer(file(data));
}

fn config(data: &[u8]) {
    let Ok(config) = pretrained::config_from_json(&String::from_utf8_lossy(data)) else { return };
    if let Ok(json) = pretrained::config_to_json(&config) {
        // Only GPT-2's has dropout.
        let again = pretrained::config_from_json(&json).expect("written here");
        assert_eq!(again, GptConfig { dropout: again.dropout, ..config });
    }
}

/// Checks the tokens of a text.
fn encoded(tokenizer: &Tokenizer, text: &str, is_lossless: bool) {
    let Ok(Encoding { tokens, bytes }) = tokenizer.encode_with_bytes(text) else {
        return assert!(!is_lossless);
    };
    let length: usize = bytes.iter().map(|&n| n as usize).sum();
    assert!(length == text.len() || tokens.is_empty(), "{length} bytes of {text:?}");
    let decoded = tokenizer.decode(&tokens);
    let mut stream = tokenizer.decode_stream();
    let mut streamed: String = tokens.iter().map(|&token| stream.step(token)).collect();
    streamed += &stream.finish();
    if is_lossless {
        assert_eq!((&*decoded, &*streamed), (text, text));
    }
}

fn tokenizer(data: &[u8]) {
    let Ok(tokenizer) = Tokenizer::from_json(&String::from_utf8_lossy(data)) else { return };
    let again = Tokenizer::from_json(&tokenizer.to_json()).expect("written here");
    assert_eq!(tokenizer, again);
    encoded(&tokenizer, "The naïve 語\u{301} 12!\n", false);
}

fn text(data: &[u8]) {
    let printed = Printable(String::from_utf8_lossy(data)).to_string();
    assert!(printed.chars().all(|c| !c.is_control() || "\n\t".contains(c)));
    let read = Documents::read(file(data));
    assert_eq!(read.is_ok(), !data.is_empty() && str::from_utf8(data).is_ok());
    let bytes: Vec<i64> = data.iter().map(|&byte| byte.into()).collect();
    assert_eq!(Tokenizer::bytes().decode(&bytes), String::from_utf8_lossy(data));
    let Ok(documents) = read else { return };
    // Without the feature `tokenizers` there is none.
    static BPE: LazyLock<Option<Tokenizer>> = LazyLock::new(|| {
        let json = include_str!("../../tests/fixtures/tokenizers/byte_level.json");
        Tokenizer::from_json(json).ok()
    });
    let own = [Tokenizer::chars(documents.texts()), Tokenizer::bytes()];
    for tokenizer in own.iter().chain(&*BPE) {
        documents.texts().for_each(|text| encoded(tokenizer, text, true));
        let corpus = Corpus::new(&documents, 0.3, tokenizer).expect("all characters are known");
        assert_eq!(corpus.lost_share(), 0.0);
    }
}

/// `log.jsonl` and `looks.jsonl`, with a zero byte between them.
fn log(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let (log, looks) = text.split_once('\0').unwrap_or((&text, ""));
    let [log, looks] = outside::resumed(log, looks);
    assert_eq!(outside::resumed(&log, &looks), [log, looks]);
}

/// Arguments, a line for each.
fn command_line(data: &[u8]) {
    let arguments = data.split(|&byte| byte == b'\n').map(|part| OsString::from_vec(part.into()));
    let line: Vec<OsString> = iter::once("retrograd".into()).chain(arguments).collect();
    outside::command_line(&line);
}

/// What up to 64 ranks have sent, with a byte between them that UTF-8 lacks.
fn handshake(data: &[u8]) {
    let sent = data.splitn(64, |&byte| byte == 0xff);
    let sent: Vec<Vec<u8>> = sent.map(<[u8]>::to_vec).collect();
    assert_eq!(outside::difference(&sent).is_none(), sent.iter().all(|other| *other == sent[0]));
}

/// Shapes that do not fit are documented panics, which name the operation.
fn expression(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let compute = || {
        let Ok(result) = retrograd_web::Program::parse(&text).and_then(|program| program.run())
        else {
            return;
        };
        if result.is_tracked() && result.value().shape().numel() == 1 {
            drop(result.backward());
        }
    };
    if let Some((why, _)) = panics::caught(compute) {
        let operation = why.split_once(": ").map_or("", |(operation, _)| operation);
        let is_name = |c: char| c.is_ascii_lowercase() || c == '_';
        assert!(!operation.is_empty() && operation.chars().all(is_name), "{text:?}: {why}");
    }
}
