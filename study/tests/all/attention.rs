//! Pages of attention weights from plain numbers: bytes, links, averages, and the sequences of a layer.

use retrograd_autograd::Var;
use retrograd_nn::attention::{Mask, MultiHeadAttention, MultiHeadConfig};
use retrograd_nn::{Module, Pass, Visitor};
use retrograd_study::attention::{
    AttentionLayer, AttentionLook, AttentionPage, AttentionText, HeadMap, PairMask, Sequence,
};
use retrograd_study::{AttentionExplorer, ExplorerText};
use retrograd_support::document::{base64, data};
use retrograd_tensor::Tensor;
use retrograd_tensor::random::Rng;
use serde_json::{Value, json};

/// A head with these rows of weights, which are also its gradients.
fn head(mask: PairMask, rows: &[Vec<f64>]) -> HeadMap {
    let mut head = HeadMap::new(mask, None);
    rows.iter().for_each(|row| head.push(row, Some(row)));
    head
}

/// The head in the data of a page, which has at most so many bytes if less can be left out.
fn on_page(head: HeadMap, limit: usize) -> Value {
    let mut page = AttentionPage::new("One head");
    page.limit(limit);
    let sequences = vec![Sequence { name: "text".into(), labels: vec![] }];
    let text = AttentionText { name: "".into(), sequences, prompt: None, pair: None };
    let layer = AttentionLayer {
        name: "attn".into(),
        kind: "Attention".into(),
        sequences: [0, 0],
        parts: "".into(),
        heads: vec![head],
        scores: None,
        state: None,
        notes: vec![],
    };
    let text = page.text(text);
    let (snapshot, layers) = ("now".into(), vec![layer]);
    page.look(AttentionLook { snapshot, text, loss: None, layers, notes: vec![] });
    data(&page.html())["looks"][0]["layers"][0]["heads"][0].clone()
}

pub fn bytes(text: &Value) -> Vec<u8> {
    base64(text.as_str().expect("text"))
}

/// The weight of a byte.
fn weight(byte: u8) -> f64 {
    (f64::from(byte) / 255.0).powi(2)
}

/// The keys of all links.
fn keys(head: &Value) -> Vec<u16> {
    let bytes = bytes(&head["links"]["keys"]);
    bytes.chunks_exact(2).map(|b| u16::from_le_bytes([b[0], b[1]])).collect()
}

fn all(queries: usize, keys: usize) -> PairMask {
    PairMask::new([queries, keys], |_, _| true, "#", 64)
}

const MUCH: usize = 100_000_000;

#[test]
fn bytes_are_within_a_255th() {
    let rows: Vec<Vec<f64>> =
        (0..40).map(|i| (0..256).map(|j| f64::from(256 * i + j) / 10_239.0).collect()).collect();
    let found = bytes(&on_page(head(all(40, 256), &rows), MUCH)["weights"]);
    for (w, byte) in rows.iter().flatten().zip(found) {
        assert!((weight(byte) - w).abs() <= 1.0 / 255.0, "{w}");
    }
    let odd = on_page(head(all(1, 3), &[vec![f64::NAN, -1.0, 2.0]]), MUCH);
    assert_eq!(bytes(&odd["weights"]), [0, 0, 255]);
}

/// Examples of RFC 4648.
#[test]
fn bytes_are_in_base64() {
    let of = |bytes: &[u8]| {
        let row = bytes.iter().map(|&byte| weight(byte)).collect();
        on_page(head(all(1, bytes.len()), &[row]), MUCH)["weights"].clone()
    };
    let texts = ["", "f", "fo", "foo", "foob"].map(|text| of(text.as_bytes()));
    assert_eq!(texts, ["", "Zg==", "Zm8=", "Zm9v", "Zm9vYg=="]);
    assert_eq!(of(&[0xfb, 0xff]), "+/8=");
}

/// Beyond 256 keys: the largest links, and the rest; fewer links where the page would be too large.
#[test]
fn long_rows_are_links() {
    let mask = PairMask::new([2, 300], |i, j| i == 1 || j < 6, "+", 64);
    let first: Vec<f64> = (0..300).map(|j| if j < 6 { 1.0 / 6.0 } else { 0.0 }).collect();
    let total: f64 = (0..300).map(f64::from).sum();
    let second: Vec<f64> = (0..300).map(|j| f64::from(j) / total).collect();
    let head = head(mask, &[first, second.clone()]);
    let many = on_page(head.clone(), MUCH);
    assert_eq!(keys(&many), Vec::from_iter((0..6).chain(284..300)));
    let rest = bytes(&many["links"]["rest"]);
    let largest: f64 = second[284..].iter().sum();
    assert!((weight(rest[1]) - (1.0 - largest)).abs() <= 1.0 / 255.0 && rest[0] == 0);
    assert_eq!(bytes(&many["gradient"]["bytes"]).len(), 22);

    let fewer = on_page(head, 10);
    assert_eq!(keys(&fewer), [0, 1, 2, 3, 290, 291, 292, 293]); // of equal bytes the first ones
    assert_eq!((bytes(&fewer["weights"]).len(), &fewer["gradient"]), (8, &Value::Null));
    let rest = bytes(&fewer["links"]["rest"]);
    assert!((weight(rest[0]) - 1.0 / 3.0).abs() < 2.0 / 255.0);
}

/// Tokens a b a b under a causal mask: each formula by hand.
#[test]
fn averages_are_those_of_the_formulas() {
    let mask = PairMask::new([4, 4], |i, j| j <= i, "+", 64);
    let mut head = HeadMap::new(mask, Some(&[7, 8, 7, 8]));
    let rows = [
        [1.0, 0.0, 0.0, 0.0],
        [0.75, 0.25, 0.0, 0.0],
        [0.5, 0.25, 0.25, 0.0],
        [0.125, 0.25, 0.5, 0.125],
    ];
    rows.iter().for_each(|row| head.push(row, None));
    let p = head.patterns();
    let near = |a: Option<f64>, b: f64| assert!((a.unwrap() - b).abs() < 1e-12, "{a:?}, not {b}");
    near(p.previous, (0.75 + 0.25 + 0.5) / 3.0);
    near(p.own, (1.0 + 0.25 + 0.25 + 0.125) / 4.0);
    near(p.same, (0.5 + 0.25) / 2.0);
    near(p.first, (0.75 + 0.5 + 0.125) / 3.0);
    // The second a attends behind the first a, the second b behind the first b.
    near(p.induction, (0.25 + 0.5) / 2.0);
    near(p.distance, (0.0 + 0.75 + (1.0 + 0.25) + (0.375 + 0.5 + 0.5)) / 4.0);
    let entropy = |row: &[f64]| row.iter().filter(|w| **w > 0.0).map(|w| -w * w.ln()).sum::<f64>();
    near(p.entropy, rows.iter().map(|row| entropy(row)).sum::<f64>() / 4.0);
    near(p.most, (1.0 + 0.75 + 0.5 + 0.5) / 4.0);
    near(p.sum, 1.0);
}

/// Between two texts there is neither a previous nor the same token; a row without keys is no row.
#[test]
fn what_is_not_defined_is_none() {
    let mask = PairMask::new([2, 3], |i, _| i == 1, "+", 64);
    let mut head = HeadMap::new(mask, None);
    head.push(&[0.0; 3], None);
    head.push(&[0.5, 0.25, 0.0], None);
    let p = head.patterns();
    assert_eq!([p.previous, p.own, p.same, p.induction, p.distance], [None; 5]);
    assert_eq!((p.first, p.most, p.sum), (Some(0.5), Some(0.5), Some(0.75)));
}

/// Attention at a path of a model.
struct At<'a>(&'a str, MultiHeadAttention<f32>);

impl Module<f32> for At<'_> {
    fn visit(&self, v: &mut Visitor<'_, f32>) {
        v.module(self.0, &self.1);
    }
}

/// The layer on the page of attention at a path, with so many queries and keys, of which one is learned if `bias_kv`. The
/// output is no loss.
fn explored(path: &str, text: &ExplorerText, [queries, keys]: [usize; 2], bias_kv: bool) -> Value {
    let config = MultiHeadConfig { bias_kv, ..MultiHeadConfig::new(4, 1) };
    let model = At(path, MultiHeadAttention::new(&config, &mut Rng::new(1)));
    let x = |n: usize| Var::constant(Tensor::<f32>::randn([1, n, 4], &mut Rng::new(n as u64)));
    let (q, k) = (x(queries), x(keys - usize::from(bias_kv)));
    let mut explorer = AttentionExplorer::new("Sequences");
    explorer.record("now", &model, text, || {
        model.1.forward(&q, &k, &k, Mask::full(), &mut Pass::eval())
    });
    let look = &data(&explorer.page.html())["looks"][0];
    assert_eq!(look["loss"], Value::Null);
    look["layers"][0].clone()
}

#[test]
fn sequences_are_known_by_length_then_by_path() {
    let text = ExplorerText::new("t", ["a", "b"]).source(["x", "y", "z"]);
    let same = ExplorerText::new("t", ["a", "b"]).source(["x", "y"]);
    let cases = [
        (&text, "decoder.0.self_attn", [2, 2], false, [0, 0]),
        (&text, "encoder.0.self_attn", [3, 3], false, [1, 1]),
        (&text, "decoder.0.multihead_attn", [2, 3], false, [0, 1]),
        (&text, "with_a_learned_key", [3, 4], true, [1, 1]),
        (&same, "decoder.0.self_attn", [2, 2], false, [0, 0]),
        (&same, "encoder.0.self_attn", [2, 2], false, [1, 1]),
        (&same, "decoder.0.multihead_attn", [2, 2], false, [0, 1]),
    ];
    for (text, path, size, has_learned, sequences) in cases {
        let layer = explored(path, text, size, has_learned);
        assert_eq!((&layer["name"], &layer["sequences"]), (&json!(path), &json!(sequences)));
        let notes = layer["notes"].to_string();
        assert!(!notes.contains("No sequence"), "{path}: {notes}");
        let has_note = notes.contains("The last 1 keys are not tokens");
        assert_eq!(has_note, has_learned, "{path}: {notes}");
        let head = &layer["heads"][0];
        assert_eq!(bytes(&head["weights"]).len(), size[0] * size[1], "{path}");
        assert_eq!(head["patterns"]["previous"].is_null(), sequences[0] != sequences[1], "{path}");
        assert!(head.get("gradient").is_none(), "{path}");
    }
    let other = explored("another_text", &text, [7, 1], false);
    assert!(other["notes"][0].as_str().unwrap().contains("7 queries and 1 keys"), "{other}");
}

/// Tokens are equal if their numbers are, or their labels if there are no numbers.
#[test]
fn tokens_are_equal_by_number_or_label() {
    let text = ExplorerText::new("t", ["a", "b", "a"]);
    let same = |text: &ExplorerText| {
        explored("attn", text, [3, 3], false)["heads"][0]["patterns"]["same"].clone()
    };
    assert!(same(&text).is_f64() && same(&text.clone().tokens([5, 6, 5])) == same(&text));
    assert!(same(&text.clone().tokens([5, 5, 6])) != same(&text));
    assert_eq!(same(&text.tokens([5, 6, 7])), Value::Null);
}
