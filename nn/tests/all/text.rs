//! Texts: vocabularies, documents, corpora, packed rows and metrics.

use proptest::prelude::*;
use retrograd_autograd::Var;
use retrograd_nn::attention::{Spec, attend};
use retrograd_nn::checkpoint::Checkpoint;
use retrograd_nn::text::{
    Batch, Corpus, Documents, PackedDocuments, TextError, TextMetrics, Tokenizer,
};
use retrograd_nn::{Gpt, Linear, Module, StateDict};
use retrograd_support::panics_with;
use retrograd_support::random_tests;
use retrograd_tensor::random::Rng;
use retrograd_tensor::{Tensor, ops::loss::CrossEntropy};
use std::fs;
use std::path::Path;
use tempfile::TempDir;

fn write(folder: &TempDir, name: &str, bytes: impl AsRef<[u8]>) {
    let path = folder.path().join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
}

fn names(documents: &Documents) -> Vec<&str> {
    documents.list().iter().map(|document| document.name.as_str()).collect()
}

#[test]
fn a_folder_is_read_in_the_order_of_its_paths() {
    let folder = TempDir::new().unwrap();
    for (name, text) in [("b.txt", "2"), ("a/z.txt", "1"), ("c", "3"), (".hidden", "x"), ("d", "")]
    {
        write(&folder, name, text);
    }
    write(&folder, ".git/config", b"\xff");
    let documents = Documents::read(folder.path()).unwrap();
    assert_eq!(documents.texts().collect::<String>(), "123");
    assert_eq!(names(&documents), ["a/z.txt", "b.txt", "c", "d"]);
}

#[test]
fn line_ends_are_read_as_lf_and_counted() {
    let folder = TempDir::new().unwrap();
    write(&folder, "unix", "one\ntwo\n");
    write(&folder, "windows", "\r\none\r\r\ntwo\r");
    let texts = |documents: &Documents| documents.texts().map(String::from).collect::<Vec<_>>();
    let documents = Documents::read(folder.path()).unwrap();
    assert_eq!(texts(&documents), ["one\ntwo\n", "\none\r\ntwo\r"]); // no `\r` of its own is lost
    assert_eq!((documents.crlf(), documents.split("\n").crlf()), (2, 0));
    let unchanged = Documents::read_unchanged(folder.path()).unwrap();
    assert_eq!(texts(&unchanged)[1], "\r\none\r\r\ntwo\r");
    assert_ne!(unchanged.fingerprint(), documents.fingerprint());
}

#[test]
fn errors_of_files_name_the_file() {
    let folder = TempDir::new().unwrap();
    let error = |path: &Path| Documents::read(path).unwrap_err().to_string();
    let starts = |text: String, start: &str| assert!(text.contains(start), "{text}");
    let missing = folder.path().join("missing");
    starts(error(&missing), &format!("cannot read {}: ", missing.display()));
    assert!(std::error::Error::source(&Documents::read(&missing).unwrap_err()).is_some());
    assert!(error(folder.path()).ends_with("the folder has no files"));
    write(&folder, "one", "");
    assert!(error(folder.path()).ends_with("the file is empty"));
    assert!(error(&folder.path().join("one")).ends_with("one: the file is empty"));
    write(&folder, "sub/two", b"caf\xc3\xa9 caf\xe9!");
    starts(error(folder.path()), "sub/two: not UTF-8: byte 9 (0xe9) begins no character");
    assert!(matches!(
        Documents::read(folder.path()).unwrap_err(),
        TextError::NotUtf8 { at: 9, byte: 0xe9, .. }
    ));
}

#[cfg(unix)]
#[test]
fn devices_are_refused_and_links_to_folders_not_followed() {
    use std::os::unix::fs::symlink;
    let folder = TempDir::new().unwrap();
    write(&folder, "text", "words");
    symlink(folder.path(), folder.path().join("loop")).unwrap();
    assert_eq!(names(&Documents::read(folder.path()).unwrap()), ["text"]);
    let pretrained = retrograd_support::fixture("gpt2");
    symlink("/dev/zero", folder.path().join("zero")).unwrap();
    let error = Documents::read(folder.path()).unwrap_err().to_string();
    assert!(error.contains("zero: it is not a regular file"), "{error}");
    let error = Documents::read("/dev/zero").unwrap_err().to_string();
    assert_eq!(error, "cannot read /dev/zero: it is not a regular file");
    // Nor are they a tokenizer, a configuration or a list of files of weights; and none is without end.
    fs::File::create(folder.path().join("large")).unwrap().set_len(1 << 40).unwrap();
    for (to, why) in [("/dev/zero", "not a regular file"), ("large", "more than 100000000 bytes")] {
        for name in ["config.json", "model.safetensors.index.json", "tokenizer.json"] {
            let path = folder.path().join(name);
            symlink(to, &path).unwrap();
            let error = match name {
                "tokenizer.json" => Tokenizer::load(&path).unwrap_err().to_string(),
                _ => Gpt::<f32>::from_pretrained(folder.path()).unwrap_err().to_string(),
            };
            assert!(error.contains(name) && error.contains(why), "{error}");
            fs::remove_file(&path).unwrap();
            fs::copy(pretrained.join("config.json"), folder.path().join("config.json")).unwrap();
        }
        fs::remove_file(folder.path().join("config.json")).unwrap();
    }
}

#[test]
fn the_held_out_part_begins_where_nanogpt_divides() {
    for n in (0..2000).chain([99_999, 1_115_394]) {
        let (train, held_out) = Documents::of("é".repeat(n)).hold_out(0.1);
        let chars = |documents: &Documents| documents.texts().flat_map(str::chars).count();
        assert_eq!((chars(&train), chars(&held_out)), (n * 9 / 10, n - n * 9 / 10));
    }
}

random_tests! {
    ProptestConfig::default();

    #[test]
    fn a_division_keeps_every_character(
        texts in prop::collection::vec("[aé語]{0,6}", 0..8),
        fraction in 0.0f64..=1.0,
    ) {
        let documents = Documents::of(texts.join("|")).split("|");
        let (train, held_out) = documents.hold_out(fraction);
        let all: String = train.texts().chain(held_out.texts()).collect();
        prop_assert_eq!(&all, &texts.concat());
        let count = train.texts().flat_map(str::chars).count();
        prop_assert_eq!(count, (all.chars().count() as f64 * (1.0 - fraction)) as usize);
        // One document may be divided, and none is lost.
        prop_assert!(train.len() + held_out.len() <= documents.len() + 1);
        prop_assert!(train.len() + held_out.len() >= documents.len());
    }

    #[test]
    fn bytes_and_characters_round_trip(text in any::<String>()) {
        for tokenizer in [Tokenizer::chars([text.as_str()]), Tokenizer::bytes()] {
            let encoding = tokenizer.encode_with_bytes(&text).unwrap();
            prop_assert_eq!(&tokenizer.decode(&encoding.tokens), &text);
            prop_assert_eq!(encoding.bytes.iter().sum::<u32>() as usize, text.len());
            let mut stream = tokenizer.decode_stream();
            let parts: String = encoding.tokens.iter().map(|&token| stream.step(token)).collect();
            prop_assert_eq!(&(parts + &stream.finish()), &text);
            prop_assert_eq!(&Tokenizer::from_json(&tokenizer.to_json()).unwrap(), &tokenizer);
        }
    }

    #[test]
    fn windows_have_the_bytes_of_their_targets(
        texts in prop::collection::vec("[aé語🦊]{0,6}", 1..6),
        context in 1usize..9,
    ) {
        let documents = Documents::of(texts.join("|")).split("|");
        let all: Vec<&str> = documents.texts().collect();
        for tokenizer in [Tokenizer::chars(all.iter().copied()), Tokenizer::bytes()] {
            let tokenizer = tokenizer.with_separator();
            let corpus = Corpus::new(&documents, 1.0, &tokenizer).unwrap();
            let separator = tokenizer.separator().unwrap();
            prop_assert_eq!(separator as usize, tokenizer.vocab_size() - 1);
            let wanted: Vec<_> = all.iter().map(|text| tokenizer.encode(text).unwrap()).collect();
            prop_assert_eq!(corpus.held_out(), wanted.join(&separator));
            // Windows follow one another; only the last may be shorter.
            let mut targets: Vec<i64> = Vec::new();
            for window in corpus.windows(context) {
                prop_assert_eq!(targets.len() % context, 0);
                prop_assert_eq!(window.tokens[0], corpus.held_out()[targets.len()]);
                let own = &window.tokens[1..];
                let bytes = |t: &i64| match tokenizer {
                    _ if *t == separator => 0,
                    Tokenizer::Byte { .. } => 1,
                    _ => tokenizer.decode(&[*t]).len() as u64,
                };
                prop_assert_eq!(window.bytes, own.iter().map(bytes).sum::<u64>());
                targets.extend(own);
            }
            prop_assert_eq!(corpus.lost_share(), 0.0);
            prop_assert_eq!(&targets[..], corpus.held_out().get(1..).unwrap_or_default());
            // The longest context has one window, from the first token to the last.
            let corpus = Corpus::new(&documents, 0.0, &tokenizer).unwrap();
            if let [inputs @ .., _] = corpus.train() && !inputs.is_empty() {
                let batch = corpus.batch(1, 2, 2, inputs.len());
                prop_assert_eq!(batch.tokens.to_vec(), [inputs, inputs].concat());
            }
        }
    }

    #[test]
    fn any_bytes_decode_as_they_come(bytes in prop::collection::vec(any::<u8>(), 0..90)) {
        let tokenizer = Tokenizer::bytes();
        let tokens: Vec<i64> = bytes.iter().map(|&byte| byte.into()).collect();
        let mut stream = tokenizer.decode_stream();
        let parts: String = tokens.iter().map(|&token| stream.step(token)).collect();
        let text = parts + &stream.finish();
        prop_assert_eq!(text, String::from_utf8_lossy(&bytes));
    }

    #[test]
    fn packed_rows_have_every_target_once(
        lengths in prop::collection::vec(0usize..20, 1..12),
        length in 1usize..9,
    ) {
        prop_assume!(lengths.iter().any(|&n| n > 1));
        // Different tokens everywhere.
        let mut next = 0..;
        let documents: Vec<Vec<i64>> =
            lengths.iter().map(|&n| next.by_ref().take(n).collect()).collect();
        let packed = PackedDocuments::new(documents.clone(), length);
        let rows = packed.get(&(0..packed.rows()).collect::<Vec<_>>());
        let (tokens, targets) = (rows.tokens.to_vec(), rows.targets.to_vec());
        let (numbers, positions) = (rows.documents.to_vec(), rows.positions.to_vec());
        let mut pairs: Vec<(i64, i64)> = Vec::new();
        for i in 0..tokens.len() {
            let starts = i % length == 0 || numbers[i] != numbers[i - 1];
            // Pieces are numbered from 0 on in each row, their positions too, and their tokens follow.
            let number = if i % length == 0 { 0 } else { numbers[i - 1] + i64::from(starts) };
            prop_assert_eq!((numbers[i], positions[i] == 0), (number, starts));
            prop_assert!(starts || positions[i] == positions[i - 1] + 1);
            let next = if targets[i] < 0 { -100 } else { tokens[i] };
            prop_assert!(starts || targets[i - 1] == next);
            match targets[i] {
                -100 => prop_assert_eq!(tokens[i], 0),
                target => pairs.push((tokens[i], target)),
            }
        }
        let used = pairs.len();
        pairs.sort_unstable();
        let wanted: Vec<(i64, i64)> =
            documents.iter().flat_map(|d| d.windows(2).map(|w| (w[0], w[1]))).collect();
        prop_assert_eq!(pairs, wanted);
        let all = packed.rows() * length;
        prop_assert!((packed.padding() - (all - used) as f64 / all as f64).abs() < 1e-12);
        // No two rows are less than half full.
        prop_assert!(packed.rows() == 1 || 2 * used > (packed.rows() - 1) * length);
    }
}

#[test]
fn packed_batches_are_a_function_of_seed_and_step() {
    let documents: Vec<Vec<i64>> = (0..10).map(|i| vec![2 * i, 2 * i + 1]).collect();
    let packed = PackedDocuments::new(documents, 1);
    let batch = |seed, step| packed.batch(seed, step, 4).tokens.to_vec();
    assert_eq!(batch(1, 3), batch(1, 3));
    assert_ne!(batch(1, 3), batch(2, 3));
    // Five batches of four are two passes over ten rows.
    let two: Vec<i64> = (0..5).flat_map(|step| batch(1, step)).collect();
    let (mut first, mut second) = (two[..10].to_vec(), two[10..].to_vec());
    assert_ne!(first, second);
    first.sort_unstable();
    second.sort_unstable();
    assert_eq!(first, second);
    assert_eq!(first, (0..10).map(|i| 2 * i).collect::<Vec<i64>>());
}

#[test]
fn documents_in_a_row_are_computed_as_alone() {
    let mut rng = Rng::new(5);
    let table = Tensor::<f64>::randn([9, 8], &mut rng);
    let head = Tensor::<f64>::randn([8, 9], &mut rng);
    let documents = vec![vec![1, 2, 3, 4], vec![5, 6, 7], vec![8, 0, 1], vec![3, 2]];
    let loss = |tokens: &Tensor<i64>, targets: &Tensor<i64>, spec: &Spec<f64>| {
        let [b, l] = tokens.shape()[..] else { unreachable!("rank 2") };
        let x = Var::constant(table.embedding(tokens).reshape([b, 1, l, 8]));
        let y = attend(&x, &x, &x, spec).reshape([b, l, 8]);
        let logits = y.value().matmul(&head);
        let count = targets.to_vec().iter().filter(|&&t| t != -100).count();
        logits.cross_entropy(targets, CrossEntropy::default()).item() * count as f64
    };
    let packed = PackedDocuments::new(documents.clone(), 5);
    assert_eq!(packed.rows(), 2);
    let rows = packed.get(&[0, 1]);
    let together = loss(&rows.tokens, &rows.targets, &Spec::new().mask(rows.mask()));
    let alone: f64 = documents
        .iter()
        .map(|document| {
            let Batch { tokens, targets } = Batch::new([&document[..]]);
            loss(&tokens, &targets, &Spec::new().causal())
        })
        .sum();
    assert!((together - alone).abs() < 1e-9 * alone, "{together} and {alone}");
    // Without the mask of documents it differs.
    assert!((loss(&rows.tokens, &rows.targets, &Spec::new().causal()) - alone).abs() > 1e-3);
}

#[test]
fn metrics_of_parts_add_up_to_those_of_the_whole() {
    let mut rng = Rng::new(3);
    let logits = Tensor::<f64>::randn([6, 5], &mut rng);
    let targets = Tensor::from([0i64, 4, -100, 2, 2, 1]);
    let mut whole = TextMetrics::default();
    whole.add(&logits, &targets, 11);
    let mut parts = TextMetrics::default();
    parts.add(&logits.narrow(0, 0, 2), &targets.narrow(0, 0, 2), 4);
    parts.add(&logits.narrow(0, 2, 4), &targets.narrow(0, 2, 4), 7);
    // A part where nothing counts has no loss.
    parts.add(&logits.narrow(0, 2, 1), &targets.narrow(0, 2, 1), 0);
    assert_eq!((whole.tokens, whole.bytes, whole.correct), (5, 11, parts.correct));
    assert!((whole.nats - parts.nats).abs() < 1e-12);
    let by_hand: f64 = logits
        .log_softmax(-1)
        .to_vec()
        .chunks(5)
        .zip(targets.to_vec())
        .filter(|(_, target)| *target >= 0)
        .map(|(row, target)| -row[target as usize])
        .sum();
    assert!((whole.nats - by_hand).abs() < 1e-12);
    assert!((whole.bits_per_byte() - by_hand / 2f64.ln() / 11.0).abs() < 1e-12);
    assert!((whole.perplexity() - (by_hand / 5.0).exp()).abs() < 1e-12);
    let (mut first, mut rest) = (TextMetrics::default(), parts);
    first.add(&logits, &targets, 11);
    rest = rest + first;
    assert_eq!((rest.tokens, rest.bytes, rest.correct), (10, 22, 2 * parts.correct));
    assert!((rest.nats - 2.0 * by_hand).abs() < 1e-12);
    let best = logits.argmax(-1).to_vec();
    let right = best.iter().zip(targets.to_vec()).filter(|&(&b, t)| b == t).count();
    assert_eq!(whole.accuracy(), right as f64 / 5.0);
}

#[test]
fn bits_per_byte_of_uniform_bytes_are_eight() {
    let text = Documents::of("naïve 語 and so on");
    let corpus = Corpus::new(&text, 1.0, &Tokenizer::bytes()).unwrap();
    let mut metrics = TextMetrics::default();
    for window in corpus.windows(4) {
        let Batch { targets, .. } = window.batch();
        let logits = Tensor::<f32>::zeros([1, targets.size(1), 256]);
        metrics.add(&logits, &targets, window.bytes);
    }
    assert!((metrics.bits_per_byte() - 8.0).abs() < 1e-6);
}

#[test]
fn a_tokenizer_that_is_none_or_unsupported_is_an_error() {
    for json in ["", "[]", "{}", r#"{"type":"char"}"#, r#"{"type":"bit"}"#, "no JSON"] {
        let error = Tokenizer::from_json(json).unwrap_err();
        assert!(matches!(error, TextError::NotATokenizer(_)), "{json}: {error}");
    }
    if cfg!(not(feature = "tokenizers")) {
        let error =
            Tokenizer::from_json(r#"{"version":"1.0","model":{"type":"BPE"}}"#).unwrap_err();
        assert!(error.to_string().contains("needs the cargo feature `tokenizers`"), "{error}");
        let error = Tokenizer::train_bpe(["text"], 300, &[]).unwrap_err();
        assert!(error.to_string().contains("needs the cargo feature `tokenizers`"), "{error}");
    }
}

#[test]
fn names_in_errors_are_escaped() {
    let red = "\u{1b}[31m\u{9b}red\r";
    let shown = r"\u{1b}[31m\u{9b}red\r";
    let mut file = Checkpoint::new();
    file.put("", &StateDict::from([(red.to_string(), Tensor::<f32>::zeros([2]))]));
    let folder = TempDir::new().unwrap();
    let path = folder.path().join(red);
    file.save(&path).unwrap();
    let linear = Linear::<f32>::new(2, 2, &mut Rng::new(1));
    let file = Checkpoint::load(&path).unwrap();
    fs::write(&path, "no checkpoint").unwrap();
    for error in [
        linear.load_state_dict(&file.get("").unwrap()).unwrap_err().to_string(),
        Checkpoint::load(&path).unwrap_err().to_string(),
        Documents::read(folder.path().join(format!("no{red}"))).unwrap_err().to_string(),
        Gpt::<f32>::from_pretrained(&path).unwrap_err().to_string(),
        Tokenizer::load(&path).unwrap_err().to_string(),
    ] {
        assert!(error.contains(shown) && !error.contains('\u{1b}'), "{error:?}");
    }
}

#[test]
fn invalid_arguments_panic_at_the_callers_line() {
    panics_with! {
        Tokenizer::bytes().decode(&[3, 256]) => "token 256 is outside 0..256";
        Tokenizer::bytes().decode(&[-1]) => "token -1 is outside 0..256";
        Documents::of("a").hold_out(1.5) => "must be in [0, 1], got 1.5";
        PackedDocuments::new(vec![vec![1]], 4) => "none of the 1 documents has two";
        PackedDocuments::new(vec![vec![1, 2]], 0) => "at least 1, got 0";
        Batch::new([&[1, 2][..], &[1][..]]) => "one length, got 2 and 1";
        Corpus::default().batch(1, 1, 1, 4) => "0 tokens have no window of 4";
    }
}
