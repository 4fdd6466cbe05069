//! Models written for other programs, and read again.

use crate::pretrained::{shaken, sized};
use retrograd::nn::attention::{Llama3Scaling, Pairing, Scaling};
use retrograd::nn::pretrained::{Export, WeightType};
use retrograd::nn::text::SEPARATOR;
use retrograd::nn::{AttentionKind, MlpKind, Names, NormKind, Positions, RopeConfig};
use retrograd::prelude::*;
use serde_json::{Value, json};
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// The parts of a rotary position.
fn rope(pairing: Pairing, width: Option<usize>) -> Positions {
    Positions::Rope(RopeConfig { pairing, width, ..RopeConfig::default() })
}

/// Models with an architecture in GGUF.
fn of_gguf() -> Vec<(&'static str, GptConfig)> {
    let llama = || sized(GptConfig::llama());
    let linear = Scaling::Linear { factor: 4.0 };
    let linear = Positions::Rope(RopeConfig { scaling: linear, base: 500.0, ..Default::default() });
    let gpt2 = || sized(GptConfig { mlp: MlpKind::GeluTanh, ..GptConfig::default() });
    let woven = rope(Pairing::Interleaved, None);
    vec![
        ("gpt2", gpt2()),
        ("gpt2", GptConfig { bias: false, tied: false, ..gpt2() }),
        ("llama", llama()),
        ("llama", GptConfig { positions: woven, tied: true, key_heads: Some(2), ..llama() }),
        (
            "llama",
            GptConfig { positions: linear, names: Names::Gpt2, head_width: Some(12), ..llama() },
        ),
        ("qwen3", GptConfig { qk_norm: true, key_heads: Some(1), hidden: Some(40), ..llama() }),
        ("qwen3", GptConfig { qk_norm: true, positions: woven, ..llama() }),
        ("arcee", GptConfig { mlp: MlpKind::ReluSquared, windows: vec![None], ..llama() }),
        ("apertus", sized(GptConfig::modern())),
    ]
}

/// Models that only a graph expresses.
fn of_onnx() -> Vec<GptConfig> {
    let gpt2 = || sized(GptConfig::default());
    let grouped = AttentionKind::MultiQuery;
    vec![
        GptConfig { positions: Positions::Alibi, windows: vec![Some(3), None], ..gpt2() },
        GptConfig {
            positions: Positions::Sinusoidal,
            norm: NormKind::None,
            mlp: MlpKind::Relu,
            ..gpt2()
        },
        GptConfig {
            positions: Positions::None,
            logit_softcap: Some(5.0),
            mlp: MlpKind::GeGlu,
            ..gpt2()
        },
        GptConfig { positions: rope(Pairing::Half, Some(4)), attention: grouped, ..gpt2() },
        GptConfig { positions: rope(Pairing::Interleaved, Some(6)), mlp: MlpKind::ReGlu, ..gpt2() },
    ]
}

/// The logits of some tokens.
fn logits(model: &Gpt) -> Tensor<f32> {
    let token = |i: &[usize]| ((7 * i[0] + 5 * i[1] * i[1]) % 65) as i64;
    model.forward(&Tensor::from_fn([2, 16], token), &mut Pass::eval()).into_value()
}

fn bits(model: &Gpt) -> Vec<u32> {
    logits(model).to_vec().into_iter().map(f32::to_bits).collect()
}

#[test]
fn models_come_back_with_the_same_bits() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("model");
    // Of fewer tokens than rows.
    let tokenizer = Tokenizer::chars(["to be or not to be"]).with_separator();
    let to = Export { tokenizer: Some(&tokenizer), ..Export::default() };
    for (i, (name, config)) in of_gguf().into_iter().enumerate() {
        let model = shaken::<f32>(&config, i as u64);
        to.gguf(&model, &path).unwrap();
        let (again, found) = Gpt::<f32>::from_pretrained_with_tokenizer(&path).unwrap();
        assert_eq!(found.as_ref(), Some(&tokenizer));
        // Biases of 0 are added to GPT-2, and adjacent elements of heads become halves: sums in another order.
        let is_interleaved = [3, 6].contains(&i);
        let other_order = name == "gpt2" && !config.bias || is_interleaved;
        assert!(bits(&again) == bits(&model) || other_order, "{i}: {name}");
        let off = (logits(&again) - logits(&model)).abs().max(..).item();
        assert!(off < 1e-4, "{i}: {name}: {off:e}");
        to.verify(&model, &path).unwrap();
        // What is read is written as the same file.
        let other = folder.path().join("again");
        Export { name: "retrograd", ..to }.gguf(&again, &other).unwrap();
        assert!(fs::read(&path).unwrap() == fs::read(other).unwrap(), "{i}: {name}, again");
        to.hugging_face(&model, folder.path().join(i.to_string())).unwrap();
        let again = Gpt::<f32>::from_pretrained(folder.path().join(i.to_string())).unwrap();
        assert!(bits(&again) == bits(&model) || other_order, "{i}: {name} of transformers");
    }
    for (i, config) in of_gguf().into_iter().map(|row| row.1).chain(of_onnx()).enumerate() {
        let model = shaken::<f32>(&config, i as u64);
        to.onnx(&model, &path).unwrap();
        let (again, found) = Gpt::<f32>::from_pretrained_with_tokenizer(&path).unwrap();
        assert_eq!((again.config(), found.as_ref()), (model.config(), Some(&tokenizer)));
        assert!(bits(&again) == bits(&model), "{i}");
    }
}

#[test]
fn rounded_weights_are_read_as_they_were_written() {
    let folder = TempDir::new().unwrap();
    for (i, (_, config)) in of_gguf().into_iter().enumerate() {
        let model = shaken::<f32>(&GptConfig { width: 64, ..config }, i as u64);
        for &weights in WeightType::ALL {
            let to = Export { weights, ..Export::default() };
            let path = folder.path().join(format!("{weights}"));
            to.gguf(&model, &path).and_then(|()| to.verify(&model, &path)).unwrap();
            let sizes = fs::metadata(&path).unwrap().len() as f64 / model.num_parameters() as f64;
            let is_rounded = weights != WeightType::F32;
            assert!(!is_rounded || sizes < 3.5, "{sizes} bytes a weight in {weights}");
            to.onnx(&model, &path).and_then(|()| to.verify(&model, &path)).unwrap();
            let path = folder.path().join(format!("{i}.{weights}"));
            match to.hugging_face(&model, &path) {
                Ok(()) => to.verify(&model, &path).unwrap(),
                Err(e) => assert!(weights == WeightType::Q8_0 && !path.exists(), "{e}"),
            }
        }
    }
    // A model that is another one than the file.
    let (to, path) = (Export::default(), folder.path().join("other"));
    let [a, b] = [1, 2].map(|seed| shaken::<f32>(&sized(GptConfig::modern()), seed));
    to.gguf(&a, &path).unwrap();
    let norm_eps = 1e-3;
    let config = GptConfig { norm_eps, ..a.config().clone() };
    let c = Gpt::<f32>::new(config, &mut Rng::new(1)).unwrap();
    c.load_state_dict(&a.state_dict()).unwrap();
    let tokenizer = Tokenizer::chars(["ab"]);
    let other = Export { tokenizer: Some(&tokenizer), ..to };
    for (to, model, part) in
        [(to, &b, ".weight"), (to, &c, "configuration"), (other, &a, "tokenizer")]
    {
        let error = to.verify(model, &path).unwrap_err().to_string();
        assert!(error.ends_with(&format!("{part} was not written as it is")), "{error}");
    }
}

#[test]
fn floats_are_rounded_to_the_nearest() {
    let rounded = |weights: WeightType, x: f32| weights.rounded(&Tensor::from([x])).item();
    // Every f16 is its own rounding, and so is the middle of two the even one.
    for bits in 0..0x7c00u32 {
        let value = |bits: u32| match bits >> 10 {
            0 => bits as f32 / (1 << 24) as f32,
            e => (1024 + (bits & 1023)) as f32 * 2f32.powi(e as i32 - 25),
        };
        let (x, next) = (value(bits), value(bits + 1));
        let even = if bits % 2 == 0 { x } else { next };
        for (given, want) in
            [(x, x), (-x, -x), ((x + next) / 2.0, even), ((x + next) / 2.0 + x * 1e-6, next)]
        {
            // The number above the largest one, and the sum that is not above the middle.
            if next < 65536.0 && (given != (x + next) / 2.0 || want == even) {
                assert_eq!(rounded(WeightType::F16, given), want, "{given}");
            }
        }
    }
    assert_eq!(rounded(WeightType::F16, 65519.996), 65504.0);
    assert_eq!(rounded(WeightType::F16, 65520.0), f32::INFINITY);
    let nans = [WeightType::F16, WeightType::Bf16].map(|weights| rounded(weights, f32::NAN));
    assert!(nans.iter().all(|x| x.is_nan()));
    assert_eq!(rounded(WeightType::Bf16, 1.0 + 2f32.powi(-8)), 1.0);
    assert_eq!(rounded(WeightType::Bf16, 1.0 + 3.0 * 2f32.powi(-8)), 1.0 + 2f32.powi(-6));
    // Blocks of 8-bit integers: at most half a step away, and the largest is kept.
    let x = Tensor::<f32>::randn([3, 96], &mut Rng::new(1));
    let y = WeightType::Q8_0.rounded(&x);
    for (x, y) in x.to_vec().chunks(32).zip(y.to_vec().chunks(32)) {
        let most = x.iter().fold(0f32, |most, x| most.max(x.abs()));
        let off = x.iter().zip(y).fold(0f32, |off, (x, y)| off.max((x - y).abs()));
        assert!(off <= most / 127.0 * 0.501, "{off} and {most}");
        assert!(off > 0.0);
    }
    assert_eq!(WeightType::Q8_0.rounded(&Tensor::zeros([1, 32])), Tensor::zeros([1, 32]));
    let nan = WeightType::Q8_0.rounded(&Tensor::full([1, 32], f32::NAN));
    assert!(nan.to_vec().iter().all(|x| x.is_nan()));
}

#[test]
fn what_a_target_does_not_have_is_refused_with_the_flag_that_avoids_it() {
    let path = Path::new("/nowhere/model");
    let gguf = |config: GptConfig| {
        let model = Gpt::<f32>::new(sized(config), &mut Rng::new(0)).unwrap();
        Export::default().gguf(&model, path).unwrap_err().to_string()
    };
    let modern = GptConfig::modern;
    let llama3 = Llama3Scaling { factor: 8.0, context: 16, low: 0.1, high: 1.0 };
    let scaling = Scaling::Llama3(llama3);
    let scaled = Positions::Rope(RopeConfig { scaling, ..Default::default() });
    for (config, said) in [
        (
            GptConfig::default(),
            "gpt2 of llama.cpp has no mlp \"gelu\" (hint: train with --mlp gelu-tanh)",
        ),
        (
            GptConfig { mlp: MlpKind::Relu, ..modern() },
            "(hint: train with --mlp relu-squared, or swiglu)",
        ),
        (modern().with_attention(AttentionKind::Sigmoid), "(hint: train with --attention causal)"),
        (GptConfig { norm: NormKind::LayerNorm, ..modern() }, "(hint: train with --norm rms-norm)"),
        (GptConfig { positions: scaled, ..modern() }, "has no scaling Llama3"),
        (GptConfig { windows: vec![Some(4)], ..modern() }, "has no windows [Some(4)]"),
        (GptConfig { bias: true, ..GptConfig::llama() }, "has no biases"),
    ] {
        let error = gguf(config);
        assert!(error.contains(said), "{error}");
    }
    let hybrid = vec![AttentionKind::GatedDeltaNet, AttentionKind::Causal];
    let model = sized(GptConfig { pattern: hybrid, ..GptConfig::default() });
    let model = Gpt::<f32>::new(model, &mut Rng::new(0)).unwrap();
    let error = Export::default().onnx(&model, path).unwrap_err().to_string();
    assert!(error.contains("the opset of ONNX has no pattern of attention variants"), "{error}");
    let model = shaken::<f32>(&sized(modern()), 1);
    let weight = &model.named_parameters()[0].1;
    weight.set(weight.value() * 1e7);
    let to = Export { weights: WeightType::F16, ..Export::default() };
    let error = to.gguf(&model, path).unwrap_err().to_string();
    assert!(error.contains("has a weight ") && error.contains("beyond f16"), "{error}");
}

/// The error of reading a file with these bytes.
fn error_of(path: &Path, bytes: &[u8]) -> Option<String> {
    fs::write(path, bytes).unwrap();
    Gpt::<f32>::from_pretrained(path).err().map(|e| e.to_string())
}

#[test]
fn damaged_files_are_refused() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("model");
    let small =
        GptConfig { vocab: 7, context: 4, layers: 1, heads: 2, width: 8, ..GptConfig::modern() };
    let model = Gpt::<f32>::new(small, &mut Rng::new(1)).unwrap();
    let tokenizer = Tokenizer::chars(["abcdefg"]);
    let to = Export { tokenizer: Some(&tokenizer), ..Export::default() };
    for is_gguf in [true, false] {
        if is_gguf { to.gguf(&model, &path) } else { to.onnx(&model, &path) }.unwrap();
        let bytes = fs::read(&path).unwrap();
        let tensors = bytes.len() - 4 * model.num_parameters();
        // Files that end too early, more often where the structure is.
        for end in (0..tensors).step_by(23).chain((tensors..bytes.len()).step_by(997)) {
            assert!(error_of(&path, &bytes[..end]).is_some(), "{end} of {} bytes", bytes.len());
        }
        // Numbers that are huge, and other bytes: an error, or a model as the file says, never a panic.
        for at in (0..tensors).step_by(5) {
            let mut changed = bytes.clone();
            changed[at] ^= 0xff;
            let error = error_of(&path, &changed);
            let same = || Gpt::<f32>::from_pretrained(&path).unwrap().config() == model.config();
            // Names have no meaning in a graph, and bytes of weights may be any.
            assert!(is_gguf || error.is_some() || same(), "byte {at} of the graph");
        }
    }
    // A table that is longer than the file, and many fields.
    let huge = GptConfig { context: 1 << 40, ..model.config().clone() };
    let config = serde_json::to_string(&huge).unwrap();
    let table = b"\x2a\x0e\x08\x80\x80\x80\x80\x80\x20\x08\x01\x42\x03cos".to_vec();
    let field = |n: u8, bytes: &[u8]| {
        [&[n, 0x80 | bytes.len() as u8, (bytes.len() >> 7) as u8], bytes].concat()
    };
    let entry = |key: &str, value: &str| {
        field(0x72, &[field(0x0a, key.as_bytes()), field(0x12, value.as_bytes())].concat())
    };
    let entries = [entry("retrograd.config", &config), entry("retrograd.weights", "f32")].concat();
    let refused = |bytes: &[u8], said: &str| {
        let error = error_of(&path, bytes).unwrap();
        assert!(error.contains(said), "{error}");
    };
    refused(&[field(0x3a, &table), entries].concat(), "there is no tensor");
    refused(&b"\x08\x00".repeat(1 << 20), "neither");
    refused(b"\x08\x0a\x12\x07pytorch\x3a\x00", "another program wrote it");
    refused(b"{}", "it is neither a file of GGUF nor a model of ONNX");
}

/// A file of GGUF with one entry and one tensor, in bytes of the specification.
fn gguf(key: &str, kind: u32, value: &[u8], tensors: &[(&str, &[u64], u32, u64)]) -> Vec<u8> {
    let text = |text: &str| [&(text.len() as u64).to_le_bytes()[..], text.as_bytes()].concat();
    let mut bytes = b"GGUF\x03\x00\x00\x00".to_vec();
    bytes.extend((tensors.len() as u64).to_le_bytes());
    bytes.extend(1u64.to_le_bytes());
    bytes.extend([text(key), kind.to_le_bytes().to_vec(), value.to_vec()].concat());
    for (name, sizes, kind, offset) in tensors {
        bytes.extend([text(name), (sizes.len() as u32).to_le_bytes().to_vec()].concat());
        sizes.iter().for_each(|n| bytes.extend(n.to_le_bytes()));
        bytes.extend([&kind.to_le_bytes()[..], &offset.to_le_bytes()].concat());
    }
    bytes.resize(bytes.len().next_multiple_of(32) + 128, 0);
    bytes
}

#[test]
fn hostile_files_of_gguf_are_refused_with_the_reason() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("model");
    let list = |kind: u32, n: u64| [&kind.to_le_bytes()[..], &n.to_le_bytes()].concat();
    let huge = u64::MAX / 2;
    let (key, u32) = ("general.alignment", 4);
    let none = &32u32.to_le_bytes()[..];
    for (bytes, said) in [
        (gguf(key, 9, &list(8, huge), &[]), "it ends too early"),
        (gguf(key, 9, &list(6, huge), &[]), "it ends too early"),
        (gguf(key, 9, &list(9, 1), &[]), "a list of type 9"),
        (gguf(key, 77, &[], &[]), "an entry of type 77"),
        (gguf(key, u32, &3u32.to_le_bytes(), &[]), "an alignment of 3 bytes"),
        (gguf(key, u32, &0u32.to_le_bytes(), &[]), "an alignment of 0 bytes"),
        (gguf(key, u32, none, &[("a", &[huge, huge], 0, 0)]), "is too large"),
        (gguf(key, u32, none, &[("a", &[1; 5], 0, 0)]), "has 5 axes"),
        (gguf(key, u32, none, &[("a", &[4], 0, huge)]), "ends after the file"),
        (gguf(key, u32, none, &[("a", &[64], 0, 0)]), "ends after the file"),
        (gguf(key, u32, none, &[("a", &[8], 0, 0), ("b", &[8], 0, 16)]), "overlap"),
        (gguf(key, u32, none, &[("a", &[8], 0, 0), ("a", &[8], 0, 32)]), "duplicate tensor"),
        (gguf(key, u32, none, &[("a", &[31], 8, 0)]), "has no whole blocks"),
        (gguf(key, u32, none, &[]), "there is no general.architecture"),
        (gguf("general.architecture", 8, b"\x03\0\0\0\0\0\0\0bee", &[]), "is \"bee\", not one of"),
    ] {
        let error = error_of(&path, &bytes).unwrap();
        assert!(error.contains(said), "{said} is not in {error}");
    }
    // Values of a model that fit the format.
    let model = Gpt::<f32>::new(sized(GptConfig::llama()), &mut Rng::new(1)).unwrap();
    Export::default().gguf(&model, &path).unwrap();
    let bytes = fs::read(&path).unwrap();
    for (key, said) in [
        ("llama.block_count", "more parameters than memory can hold"),
        ("llama.attention.head_count", "do not divide"),
        ("llama.feed_forward_length", "parameters"),
        ("llama.context_length", ""),
    ] {
        let at = bytes.windows(key.len()).position(|part| part == key.as_bytes()).unwrap();
        let mut changed = bytes.clone();
        changed[at + key.len() + 4..][..4].copy_from_slice(&0x7fff_fff0u32.to_le_bytes());
        match error_of(&path, &changed) {
            Some(error) => assert!(!said.is_empty(), "{error}"),
            None => assert_eq!(said, ""),
        }
    }
}

#[test]
fn tokenizers_come_back_from_every_format() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("model");
    let text = "\n\t\\x41 naïve 語 \u{2581}<é>\u{301}\u{1f600}\r";
    for tokenizer in [
        Tokenizer::chars([text]),
        Tokenizer::chars([text]).with_separator(),
        Tokenizer::bytes(),
        Tokenizer::bytes().with_separator(),
    ] {
        let vocab = tokenizer.vocab_size();
        let config =
            GptConfig { vocab, context: 4, layers: 1, heads: 2, width: 8, ..GptConfig::llama() };
        let model = Gpt::<f32>::new(config, &mut Rng::new(1)).unwrap();
        let to = Export { tokenizer: Some(&tokenizer), ..Export::default() };
        to.gguf(&model, &path).unwrap();
        let (_, found) = Gpt::<f32>::from_pretrained_with_tokenizer(&path).unwrap();
        assert_eq!(found.as_ref(), Some(&tokenizer));
        let json = tokenizer.to_hugging_face();
        assert_eq!(Tokenizer::from_json(&json).unwrap(), tokenizer);
        assert_eq!(json.contains(SEPARATOR), tokenizer.separator().is_some());
        // A file that differs is not taken for it.
        let other = json
            .replace("Isolated", "Removed")
            .replace("\"use_regex\": false", "\"use_regex\": true");
        assert!(Tokenizer::from_json(&other).ok() != Some(tokenizer));
    }
}

#[test]
fn onnx_runtime_computes_the_logits_of_every_graph() {
    let Some(python) = retrograd_support::python_with("onnxruntime") else { return };
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("model.onnx");
    let script = ["onnx.py", "main.py"]
        .map(|name| retrograd_support::read(&format!("train/src/export/{name}")));
    let llama3 = Scaling::Llama3(Llama3Scaling { factor: 8.0, context: 16, low: 0.1, high: 1.0 });
    let scaled = Positions::Rope(RopeConfig { scaling: llama3, ..Default::default() });
    let scaled = sized(GptConfig { positions: scaled, ..GptConfig::llama() });
    for (i, config) in of_onnx().into_iter().chain([scaled]).enumerate() {
        let model = shaken::<f32>(&config, i as u64);
        Export::default().onnx(&model, &path).unwrap();
        let prompt = json!({ "tokens": [1, 2, 3], "text": null, "count": 12 });
        let task = json!({ "path": path, "prompts": [prompt], "vocab": config.vocab }).to_string();
        let mut child = Command::new("python3")
            .args(["-c", &script.join("\n\n")])
            .env("PATH", &python)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(task.as_bytes()).unwrap();
        let reply: Value =
            serde_json::from_slice(&child.wait_with_output().unwrap().stdout).unwrap();
        let result = &reply["results"][0];
        let list = |x: &Value| -> Vec<f64> {
            x.as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect()
        };
        let tokens = [vec![1.0, 2.0, 3.0], list(&result["tokens"])].concat();
        let tokens: Vec<i64> = tokens[..14].iter().map(|&token| token as i64).collect();
        let ours = model.forward(&Tensor::from_vec(tokens, [1, 14]), &mut Pass::eval());
        for (step, row) in result["logits"].as_array().unwrap().iter().enumerate() {
            let ours = ours.value().select(0, 0).select(0, 2 + step).to_vec();
            for (a, b) in ours.into_iter().zip(list(row)) {
                assert!((f64::from(a) - b).abs() < 1e-3, "{i}: {a} and {b} after {step} tokens");
            }
        }
    }
}
