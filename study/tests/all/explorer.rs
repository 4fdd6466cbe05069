//! The attention explorer: what is on the page equals what the model computes.

use crate::attention::bytes;
use retrograd_autograd::Var;
use retrograd_nn::attention::{
    Mask, MultiHeadAttention, MultiHeadConfig, Sink, Spec, attend, attend_all,
};
use retrograd_nn::{
    AttentionKind, CrossEntropy, Gpt, GptConfig, Layer, Linear, Module, Pass, Positions,
    RopeConfig, Visitor,
};
use retrograd_study::{AttentionExplorer, ExplorerText};
use retrograd_support::document;
use retrograd_tensor::observe::shard;
use retrograd_tensor::random::Rng;
use retrograd_tensor::{Tensor, par, with_threads};
use serde_json::Value;

const LENGTH: usize = 11;
const VOCAB: usize = 5;

/// Normal numbers, the same for the same seed.
fn randn(shape: [usize; 2], seed: u64) -> Tensor<f64> {
    Tensor::randn(shape, &mut Rng::new(seed))
}

/// The data of a page.
fn data(explorer: &AttentionExplorer) -> Value {
    document::data(&explorer.page.html())
}

fn floats(text: &Value) -> Vec<f64> {
    let all = bytes(text);
    all.chunks_exact(4).map(|b| f64::from(f32::from_le_bytes(b.try_into().unwrap()))).collect()
}

fn doubles(text: &Value) -> Vec<f64> {
    bytes(text).chunks_exact(8).map(|b| f64::from_le_bytes(b.try_into().unwrap())).collect()
}

fn list(value: &Value) -> &Vec<Value> {
    value.as_array().unwrap_or_else(|| panic!("{value} is no list"))
}

/// The keys that each query attends to.
fn visible(mask: &Value) -> Vec<Vec<usize>> {
    let mut runs = list(&mask["runs"]).iter().map(|x| x.as_u64().unwrap() as usize);
    let mut rows = Vec::new();
    while let Some(n) = runs.next() {
        let mut next = || runs.next().expect("a complete range");
        rows.push((0..n).flat_map(|_| next()..next()).collect());
    }
    assert_eq!(rows.len() as u64, mask["queries"].as_u64().unwrap());
    rows
}

/// The pairs of a head that are kept, by query.
fn kept(page: &Value, head: &Value) -> Vec<Vec<usize>> {
    let rows = visible(&page["masks"][head["mask"].as_u64().unwrap() as usize]);
    let Some(links) = head.get("links") else { return rows };
    let keys = bytes(&links["keys"]);
    let mut keys = keys.chunks_exact(2).map(|b| u16::from_le_bytes([b[0], b[1]]) as usize);
    let most = links["most"].as_u64().unwrap() as usize;
    rows.iter().map(|row| keys.by_ref().take(row.len().min(most)).collect()).collect()
}

/// The weights of a head that are kept: query, key, weight.
fn weights(page: &Value, head: &Value) -> Vec<(usize, usize, f64)> {
    let scale = head.get("scale").and_then(Value::as_f64);
    let value = |b: u8| match scale {
        None => (f64::from(b) / 255.0).powi(2),
        Some(scale) => {
            let x = (f64::from(b) - 128.0) / 127.0;
            scale * x * x.abs()
        }
    };
    let values = bytes(&head["weights"]).into_iter().map(value);
    let rows = kept(page, head).into_iter().enumerate();
    let pairs: Vec<(usize, usize)> =
        rows.flat_map(|(i, row)| row.into_iter().map(move |j| (i, j))).collect();
    assert_eq!(pairs.len(), values.len());
    pairs.into_iter().zip(values).map(|((i, j), w)| (i, j, w)).collect()
}

fn config(attention: AttentionKind) -> GptConfig {
    let (layers, heads, width) = (2, 4, 16);
    let config =
        GptConfig { vocab: VOCAB, context: 16, layers, heads, width, ..GptConfig::default() };
    config.with_attention(attention)
}

/// A model whose weights are not nearly uniform.
fn sharp<T: retrograd_tensor::Real>(config: GptConfig) -> Gpt<T> {
    let mut rng = Rng::new(3);
    let model = Gpt::new(config, &mut rng).unwrap();
    for (_, param) in model.named_parameters() {
        let noise = Tensor::<T>::randn(param.shape(), &mut rng);
        param.set(&param.value() + &noise.mul_scalar(T::from_f64(0.25)));
    }
    model
}

fn tokens(length: usize) -> Tensor<i64> {
    Tensor::randint(0, VOCAB as i64, [1, length], &mut Rng::new(4))
}

fn letters(tokens: &Tensor<i64>) -> ExplorerText {
    ExplorerText::new("letters", tokens.to_vec().iter().map(|t| format!("letter {t}")))
}

fn explored(model: &Gpt<f64>, length: usize) -> Value {
    let tokens = tokens(length);
    let mut explorer = AttentionExplorer::new("Test");
    explorer.page.limit(100_000_000);
    explorer.record_gpt("now", model, &letters(&tokens), &tokens);
    data(&explorer)
}

/// The weight that the score parts of a layer give for a pair, as the page computes it.
fn weight_of_score(layer: &Value, head: usize, i: usize, j: usize) -> Option<f64> {
    let parts = &layer["scores"];
    let place = |name: &str, at: usize| list(&parts[name]).iter().position(|x| *x == at);
    let (row, column) = (place("queries", i)?, place("keys", j)?);
    let width = parts["width"].as_u64().unwrap() as usize;
    let (heads, key_heads) = (list(&parts["q"]).len(), list(&parts["k"]).len());
    let q = floats(&parts["q"][head]);
    let k = floats(&parts["k"][head * key_heads / heads]);
    let columns = list(&parts["keys"]).len();
    let added = |to: &str| -> f64 {
        let parts = list(&parts["added"]).iter().filter(|part| part["to"] == to);
        parts.map(|part| floats(&part["values"][head])[row * columns + column]).sum()
    };
    let dot: f64 = (0..width).map(|d| q[row * width + d] * k[column * width + d]).sum();
    let mut s = (dot + added("product")) * parts["scale"].as_f64().unwrap();
    if let Some(c) = parts.get("softcap").and_then(Value::as_f64) {
        s = c * (s / c).tanh();
    }
    s += added("score");
    let c = doubles(&parts["constants"][head])[row];
    let normalizer = &parts["normalizer"];
    Some(match normalizer["name"].as_str().unwrap() {
        "softmax" => (s - c).exp(),
        "top_k" if s < doubles(&parts["thresholds"][head])[row] => 0.0,
        "top_k" => (s - c).exp(),
        "sigmoid" => 1.0 / (1.0 + (-(s + normalizer["bias"].as_f64().unwrap())).exp()),
        "sparsemax" => (s - c).max(0.0),
        "entmax15" => (s / 2.0 - c).max(0.0).powi(2),
        "linear" => s / c,
        other => panic!("{other}"),
    })
}

#[test]
fn the_first_pair_is_in_the_row_that_made_the_last_token() {
    let model = sharp::<f64>(config(AttentionKind::Causal));
    let tokens = tokens(LENGTH);
    let query = |text: ExplorerText| {
        let mut explorer = AttentionExplorer::new("Test");
        explorer.record_gpt("now", &model, &text, &tokens);
        data(&explorer)["texts"][0]["pair"][0].as_u64().unwrap() as usize
    };
    assert_eq!(query(letters(&tokens)), LENGTH - 1);
    assert_eq!(query(letters(&tokens).generated_after(3)), LENGTH - 2);
    assert_eq!(query(letters(&tokens).generated_after(LENGTH)), LENGTH - 1); // nothing was generated
}

/// Every variant: the weights are those of `attention_maps`, no pair is drawn that is masked, and scores
/// give the weights.
#[test]
fn weights_and_scores_are_those_of_the_model() {
    let mut silent = Vec::new();
    for &kind in AttentionKind::ALL {
        let model = sharp::<f64>(config(kind));
        let page = explored(&model, LENGTH);
        let maps = model.attention_maps(&tokens(LENGTH));
        let layers = list(&page["looks"][0]["layers"]);
        assert_eq!(layers.len(), maps.len(), "{kind}");
        let is_rule = kind.has_state();
        for (layer, map) in layers.iter().zip(&maps) {
            let heads = list(&layer["heads"]);
            assert_eq!(heads.len(), map.size(1), "{kind}");
            // Words, and the name of a variant: no text of a Rust value or of a part of a layer.
            let type_name = layer["kind"].as_str().unwrap();
            let is_attention = type_name.contains("Attention") || type_name == "MultiHeadWrapper";
            assert!(is_rule || is_attention, "{kind}: {type_name}");
            let parts = layer["parts"].as_str().unwrap();
            let debug = ["{", "Some(", "None", "BottomRight", "Softmax", "TopK"];
            assert!(debug.iter().all(|text| !parts.contains(text)), "{kind}: {parts}");
            if heads.is_empty() {
                silent.extend(Some(kind.name()).filter(|_| !is_rule));
                assert!(layer["notes"][0].as_str().unwrap().contains("no matrix of weights"));
                continue;
            }
            for (h, head) in heads.iter().enumerate() {
                let mut left = map.select(0, 0).select(0, h).to_vec();
                let mut sums = [0.0; LENGTH];
                for (i, j, w) in weights(&page, head) {
                    sums[i] += w;
                    if j >= LENGTH {
                        continue; // a learned key, which the maps do not have
                    }
                    let exact = left[i * LENGTH + j];
                    let scale = head.get("scale").map_or(1.0, |scale| scale.as_f64().unwrap());
                    let most = if is_rule { scale / 100.0 } else { 1.0 / 255.0 };
                    assert!((w - exact).abs() <= most, "{kind}: {w}, not {exact}");
                    left[i * LENGTH + j] = 0.0;
                    if is_rule {
                        continue;
                    }
                    let computed = weight_of_score(layer, h, i, j).expect("all pairs have scores");
                    let difference = (computed - exact).abs();
                    assert!(difference < 1e-6, "{kind}: {computed} by scores, not {exact}");
                }
                assert!(left.iter().all(|&w| w == 0.0), "{kind}: a weight is not on the page");
                let sum = head["patterns"]["sum"].as_f64().unwrap();
                match kind {
                    AttentionKind::Sink | AttentionKind::Quiet => assert!(sum < 0.99, "{kind}"),
                    AttentionKind::Sigmoid => {}
                    _ => assert!((sum - 1.0).abs() < 1e-9, "{kind}: rows sum to {sum}"),
                }
                let is_any_sum = is_rule || kind == AttentionKind::Sigmoid;
                assert!(is_any_sum || sums.iter().all(|&s| s < 1.2), "{kind}");
            }
        }
    }
    silent.dedup();
    assert_eq!(silent, ["renormalized", "linear"]);
}

/// The norms of a state and its decays, and weights with signs.
#[test]
fn states_are_those_of_the_recurrence() {
    let model = sharp::<f64>(config(AttentionKind::GatedDeltaNet));
    let page = explored(&model, LENGTH);
    let layer = &page["looks"][0]["layers"][1];
    let state = &layer["state"];
    assert_eq!(state["rows"], 4);
    for h in 0..4 {
        let head = &layer["heads"][h];
        let all = weights(&page, head);
        assert!(all.iter().any(|(.., w)| *w < 0.0), "no weight is negative");
        let [norms, decays] = ["norms", "decays"].map(|name| bytes(&state[name][h]));
        assert_eq!([norms.len(), decays.len()], [4 * LENGTH; 2]);
        assert_eq!(*norms.iter().max().unwrap(), 255);
        // A decay of a head is that of all its rows.
        assert!(decays.chunks(4).all(|rows| rows.iter().all(|d| *d == rows[0] && *d > 0)));
    }
    assert!(page["looks"][0]["layers"][0]["notes"][0].as_str().unwrap().contains("no weights"));
    let plain = explored(&sharp(config(AttentionKind::DeltaNet)), LENGTH);
    assert!(list(&plain["looks"][0]["layers"][0]["state"]["decays"]).is_empty());
}

/// With rotary positions, products before the rotation are on the page, too: those of the projections.
#[test]
fn rotary_positions_have_products_before_and_after() {
    let rope = GptConfig {
        positions: Positions::Rope(RopeConfig::default()),
        key_heads: Some(2),
        ..config(AttentionKind::GroupedQuery)
    };
    let page = explored(&sharp(rope), LENGTH);
    let layer = &page["looks"][0]["layers"][1];
    let [after, before] = [&layer["scores"]["q"][1], &layer["scores"]["before"][0][1]].map(floats);
    let norms = |x: &[f64]| x.chunks(4).map(|r| r.iter().map(|x| x * x).sum::<f64>()).collect();
    let [a, b]: [Vec<f64>; 2] = [norms(&after), norms(&before)];
    // A rotation keeps norms, and does nothing at position 0.
    assert!(a.iter().zip(&b).all(|(a, b)| (a - b).abs() < 1e-5));
    assert_eq!(after[..4], before[..4]);
    assert!(after[4..].iter().zip(&before[4..]).any(|(a, b)| (a - b).abs() > 1e-3));
    assert_eq!(list(&layer["scores"]["k"]).len(), 2);
}

/// The loss without a head equals that of a model whose output projection ignores the head, for each variant
/// whose output projection has a block of columns for each head.
#[test]
fn ablations_equal_a_direct_run() {
    let others = AttentionKind::ALL.iter().filter(|k| !k.has_state() && !ablations_are_direct(**k));
    let others: Vec<&str> = others.map(|k| k.name()).collect();
    let expected =
        "single-head plain renormalized additive luong longformer differential mla linear";
    assert_eq!(others.join(" "), expected);
}

/// Whether there is such a projection; panics if a loss differs.
fn ablations_are_direct(kind: AttentionKind) -> bool {
    let model = sharp::<f64>(config(kind));
    let tokens = tokens(LENGTH);
    let loss = || {
        let targets = tokens.narrow(1, 1, LENGTH - 1);
        let logits = model.forward(&tokens, &mut Pass::eval()).narrow(1, 0, LENGTH - 1);
        logits.cross_entropy(&targets, CrossEntropy::default()).item()
    };
    let mut explorer = AttentionExplorer::new("Test").ablations(true);
    explorer.record_gpt("now", &model, &letters(&tokens), &tokens);
    let page = data(&explorer);
    let look = &page["looks"][0];
    assert!((look["loss"].as_f64().unwrap() - loss()).abs() < 1e-12);
    for layer in 0..2 {
        let inside = format!("transformer.h.{layer}.attn.");
        let is_projection = |name: &str| {
            ["c_proj", "o_proj", "out_proj", "o"]
                .iter()
                .any(|last| name.strip_prefix(&inside) == Some(&format!("{last}.weight")))
        };
        let params = model.named_parameters();
        let projection = params.iter().find(|(n, p)| is_projection(n) && p.shape() == [16, 16]);
        let Some((_, weight)) = projection else { return false };
        if list(&look["layers"][layer]["heads"]).len() != 4 {
            return false;
        }
        let whole = weight.value();
        for head in 0..4 {
            let inside = |column: usize| (4 * head..4 * head + 4).contains(&column);
            let without = |i: &[usize]| if inside(i[1]) { 0.0 } else { whole.at(i) };
            weight.set(Tensor::from_fn(whole.shape(), without));
            let found = look["layers"][layer]["heads"][head]["without"].as_f64().unwrap();
            assert!((found - loss()).abs() < 1e-12, "{kind}: layer {layer}, head {head}");
            assert!((found - look["loss"].as_f64().unwrap()).abs() > 1e-6, "{kind}");
            weight.set(whole.clone());
        }
    }
    true
}

/// Two layers of attention with two heads each, which share their keys and have a sink, in which a weight can be
/// changed.
struct TwoLayers([Linear<f64>; 6]);

impl Module<f64> for TwoLayers {
    fn visit(&self, v: &mut Visitor<'_, f64>) {
        v.list("linear", &self.0);
    }
}

impl TwoLayers {
    fn new() -> Self {
        let mut rng = Rng::new(6);
        TwoLayers(std::array::from_fn(|_| Linear::new(4, 4, &mut rng)))
    }

    /// The loss, by the engine or with weights that are changed by a matrix.
    fn loss(&self, x: &Var<f64>, changes: Option<&[Tensor<f64>; 2]>) -> Var<f64> {
        let mut x = x.clone();
        let n = x.size(0);
        for layer in 0..2 {
            let [q, k, v] = [0, 1, 2].map(|i| self.0[3 * layer + i].forward(&x, &mut Pass::eval()));
            let q = q.reshape([n, 2, 2]).transpose(0, 1);
            let [k, v] = [k, v].map(|x| x.narrow(1, 0, 2).reshape([1, n, 2]));
            let spec = Spec::new().causal().sink(Sink::Zero);
            let y = match changes {
                None => attend(&q, &k, &v, &spec),
                Some(changes) => {
                    let weights = attend_all(&q, &k, &v, &spec).weights;
                    (weights + &Var::constant(changes[layer].clone())).matmul(&v)
                }
            };
            x = (&x + &y.transpose(0, 1).reshape([n, 4])).tanh();
        }
        x.square().mean(..)
    }
}

/// The gradient of the loss by a weight, as its definition says, in a layer whose weights influence those
/// of the next one.
#[test]
fn gradients_by_weights_are_those_of_finite_differences() {
    const N: usize = 5;
    let model = TwoLayers::new();
    let x = Var::constant(randn([N, 4], 7));
    let text = ExplorerText::new("five", ["a", "b", "c", "d", "e"]);
    let mut explorer = AttentionExplorer::new("Test");
    explorer.record("now", &model, &text, || model.loss(&x, None));
    let page = data(&explorer);
    let layers = list(&page["looks"][0]["layers"]);
    assert_eq!(layers.len(), 2);
    for (l, layer) in layers.iter().enumerate() {
        for (h, head) in list(&layer["heads"]).iter().enumerate() {
            let scale = head["gradient"]["scale"].as_f64().unwrap();
            let slopes = bytes(&head["gradient"]["bytes"]);
            let mut largest = 0.0f64;
            for ((i, j, _), byte) in weights(&page, head).into_iter().zip(slopes) {
                let at = |e: f64| {
                    let one = |r: &[usize]| if r == [h, i, j] { e } else { 0.0 };
                    let mut changes = [(); 2].map(|()| Tensor::zeros([2, N, N]));
                    changes[l] = Tensor::from_fn([2, N, N], one);
                    model.loss(&x, Some(&changes)).item()
                };
                let e = 1e-5;
                let exact = (at(e) - at(-e)) / (2.0 * e);
                let part = (f64::from(byte) - 128.0) / 127.0;
                let found = scale * part.signum() * part * part;
                // One byte of the square root.
                let is_near = (found - exact).abs() <= scale / 127.0;
                assert!(is_near, "layer {l}, {h}, {i}, {j}: {found}, {exact}");
                largest = largest.max(exact.abs());
            }
            assert!((largest - scale).abs() < 1e-8 * scale.max(1.0), "{largest}, {scale}");
        }
    }
}

/// A page without attention, and one that is larger than its limit, say so.
#[test]
fn what_is_missing_is_said() {
    let model = Linear::<f64>::new(4, 4, &mut Rng::new(1));
    let mut explorer = AttentionExplorer::new("Test");
    explorer.page.limit(10);
    let x = Var::constant(randn([3, 4], 2));
    let text = ExplorerText::new("t", ["a", "b", "c"]);
    explorer.record("now", &model, &text, || model.forward(&x, &mut Pass::eval()));
    let page = data(&explorer);
    let note = page["looks"][0]["notes"][0].as_str().unwrap();
    assert!(note.starts_with("No call of attention was observed"), "{note}");
    assert_eq!(page["exceeded"], 10);
    // Calls in shards are never those of this thread.
    let model = MultiHeadAttention::<f64>::new(&MultiHeadConfig::new(4, 2), &mut Rng::new(1));
    let shard = |number| {
        let _shard = shard(number);
        model.forward(&x, &x, &x, Mask::causal(), &mut Pass::eval())
    };
    let mut sharded = AttentionExplorer::new("Test");
    let run = || par::shards(2, shard).remove(0);
    with_threads(1, || sharded.record("now", &model, &text, run)); // which computes all shards
    sharded.page.start(3, 1);
    let page = data(&sharded);
    assert_eq!(page["looks"][0]["notes"][0].as_str().unwrap(), note);
    assert!(page["start"].is_null() && page["note"].to_string().contains("no head 1 of layer 3"));
    explorer.page.limit(1_000_000);
    assert!(data(&explorer).get("exceeded").is_none());
}

/// Observing changes no bit of the output, and ends with the recording.
#[test]
fn observing_changes_nothing() {
    let model = sharp::<f32>(config(AttentionKind::Causal));
    let tokens = tokens(LENGTH);
    let plain = model.forward(&tokens, &mut Pass::eval()).into_value().to_vec();
    let mut seen = Vec::new();
    let mut explorer = AttentionExplorer::new("Test").gradients(false);
    explorer.record("now", &model, &letters(&tokens), || {
        let y = model.forward(&tokens, &mut Pass::eval());
        seen = y.value().to_vec();
        y
    });
    assert_eq!(plain, seen);
    assert_eq!(plain, model.forward(&tokens, &mut Pass::eval()).into_value().to_vec());
    // A forward pass that panics ends the observation, too.
    let failed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        explorer.record("failed", &model, &letters(&tokens), || panic!("in the forward pass"));
    }));
    assert!(failed.is_err());
    assert_eq!(plain, model.forward(&tokens, &mut Pass::eval()).into_value().to_vec());
}
