//! The attention explorer in a browser: its self-test, labels that look like code, damaged data, keys.

use retrograd_study::attention::*;
use retrograd_support::browser::{Browser, check_html};
use retrograd_support::document::around_data;
use std::cmp::Ordering;

fn sequence(name: &str, labels: &[&str]) -> Sequence {
    Sequence { name: name.into(), labels: labels.iter().map(|l| l.to_string()).collect() }
}

/// Adds a text, whose first sequence has these labels.
fn add_text(
    page: &mut AttentionPage,
    (name, labels): (&str, &[&str]),
    source: Option<Sequence>,
    (prompt, pair): (Option<usize>, Option<(usize, usize)>),
) -> usize {
    let sequences = [sequence("text", labels)].into_iter().chain(source).collect();
    page.text(AttentionText { name: name.into(), sequences, prompt, pair })
}

fn look(snapshot: &str, text: usize, layers: Vec<AttentionLayer>) -> AttentionLook {
    AttentionLook { snapshot: snapshot.into(), text, loss: Some(2.0), layers, notes: vec![] }
}

/// A number from -1 to 1 that looks random.
fn number(seed: usize) -> f64 {
    let x = (seed as u64).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ x >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (x >> 11) as f64 / (1u64 << 52) as f64 - 1.0
}

/// A layer of heads with rotary positions, a bias and a sink, whose weights are those of its scores.
fn layer(
    name: &str,
    sequences: [usize; 2],
    size: [usize; 2],
    causal: bool,
    heads: usize,
) -> AttentionLayer {
    let ([lq, lk], width) = (size, 4);
    let keep = |i: usize, j: usize| !causal || j <= i;
    let [rows, columns] = size.map(|n| n.div_ceil(64));
    let tile = |i: usize, j: usize| match i.cmp(&j) {
        Ordering::Less if causal => '.',
        Ordering::Equal if causal => '+',
        _ => '#',
    };
    let row = |i| (0..columns).map(|j| tile(i, j)).chain(['\n']).collect::<String>();
    let tiles: String = (0..rows).map(row).collect();
    let random = |n: usize, seed: usize| -> Vec<f32> {
        (0..n).map(|i| 2.0 * number(7919 * seed + i) as f32).collect()
    };
    let seed = name.len();
    let (mut maps, mut constants) = (Vec::new(), Vec::new());
    let q: Vec<Vec<f32>> = (0..heads).map(|h| random(lq * width, seed + 3 * h)).collect();
    let k: Vec<Vec<f32>> = (0..heads).map(|h| random(lk * width, seed + 3 * h + 1)).collect();
    let bias: Vec<Vec<f32>> = (0..heads).map(|h| random(lq * lk, seed + 3 * h + 2)).collect();
    let sinks = vec![0.5f64; heads];
    let identities: Vec<i64> = (0..lq as i64).map(|i| i % 3).collect();
    for h in 0..heads {
        let mask = PairMask::new([lq, lk], keep, &tiles, 64);
        let is_self = sequences[0] == sequences[1];
        let mut map = HeadMap::new(mask, is_self.then_some(&identities[..]));
        let mut of_rows = Vec::new();
        for i in 0..lq {
            let score = |j: usize| -> f64 {
                let dot = (0..width)
                    .map(|d| f64::from(q[h][i * width + d] * k[h][j * width + d]))
                    .sum::<f64>();
                let s = 3.0 * (0.5 * dot / 3.0).tanh();
                if keep(i, j) { s + f64::from(bias[h][i * lk + j]) } else { f64::NEG_INFINITY }
            };
            let scores: Vec<f64> = (0..lk).map(score).collect();
            let sum: f64 = scores.iter().map(|s| s.exp()).sum::<f64>() + sinks[h].exp();
            let row: Vec<f64> = scores.iter().map(|s| s.exp() / sum).collect();
            let gradient: Vec<f64> = (0..lk).map(|j| number(seed + i * lk + j)).collect();
            map.push(&row, Some(&gradient));
            of_rows.push(sum.ln());
        }
        map.set_loss_without(2.0 + number(seed + h));
        maps.push(map);
        constants.push(of_rows);
    }
    AttentionLayer {
        name: name.into(),
        kind: "CausalSelfAttention".into(),
        sequences,
        parts: "scores      q·k / √Dk\nsoftcap     3 tanh(s / 3)\nbias        a tensor\nmask        keys up to the query".into(),
        heads: maps,
        scores: Some(ScoreParts {
            queries: (0..lq).collect(),
            keys: (0..lk).collect(),
            width,
            before: Some([q.clone(), k.clone()]),
            q,
            k,
            scale: 0.5,
            softcap: Some(3.0),
            added: vec![AddedPart { name: "a tensor [2, 3]".into(), to: AddedTo::Score, values: bias }],
            normalizer: ScoreNormalizer::Softmax,
            constants,
            thresholds: None,
            sinks: Some(sinks),
        }),
        state: None,
        notes: vec![],
    }
}

fn silent() -> AttentionLayer {
    AttentionLayer {
        heads: vec![],
        scores: None,
        notes: vec!["It computes no matrix of weights.".into()],
        ..layer("transformer.h.9.attn", [0, 0], [0, 0], true, 0)
    }
}

/// Two texts, three snapshots, cross-attention, generated tokens, a layer without weights.
fn full(title: &str, labels: &[&str]) -> AttentionPage {
    let mut page = AttentionPage::new(title);
    page.note("What heads attend to.");
    let source = ["d", "é", "f", "日", "🦀", " ", "\n"];
    let source = Some(sequence("source", &source));
    let first = add_text(&mut page, (title, labels), source, (Some(2), Some((3, 1))));
    let many: Vec<String> = (0..90).map(|i| format!("word {}", i % 7)).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let second = add_text(&mut page, ("many words", &many), None, (None, None));
    let n = labels.len();
    for (step, snapshot) in ["step 0", "step 500", "step 1000"].into_iter().enumerate() {
        let layers = vec![
            layer("encoder.layers.0.self_attn", [1, 1], [7, 7], false, 2),
            layer("decoder.layers.0.self_attn", [0, 0], [n, n], true, 2 + step),
            layer("decoder.layers.0.multihead_attn", [0, 1], [n, 7], false, 2),
            silent(),
        ];
        page.look(look(snapshot, first, layers));
    }
    let layers = vec![layer("transformer.h.0.attn", [0, 0], [90, 90], true, 6)];
    page.look(look("step 1000", second, layers));
    page
}

/// A look without a layer.
fn without_layers() -> AttentionPage {
    let mut page = AttentionPage::new("Nothing");
    let text = add_text(&mut page, ("a", &["a"]), None, (None, None));
    page.look(AttentionLook { loss: None, ..look("now", text, vec![]) });
    page
}

const LABELS: [&str; 6] = ["the", " chef", " prepared", " a", " delicious", " meal"];

#[test]
fn the_explorer_passes_its_test() {
    check_html("attention", &full("Heads", &LABELS).html());
}

#[test]
fn labels_do_no_harm() {
    let labels = [
        "</script><b>",
        "&amp;",
        "\u{202e}שלום",
        "مرحبا",
        "👩\u{200d}👩\u{200d}👧",
        "",
        "\u{0}\u{7}",
        "a̐é",
        "<!--",
    ];
    check_html("labels", &full("</script><b onclick=alert(1)>", &labels).html());
}

/// Links instead of all weights, and what was left out.
#[test]
#[ignore = "takes long: .ci/long pages"]
fn long_texts_pass_the_test() {
    let mut page = AttentionPage::new("Long");
    let words: Vec<String> = (0..700).map(|i| format!("w{}", i % 11)).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let text = add_text(&mut page, ("long", &words), None, (None, Some((699, 3))));
    let layers = vec![layer("transformer.h.0.attn", [0, 0], [700, 700], true, 3)];
    page.look(look("now", text, layers));
    page.limit(700_000);
    let html = page.html();
    assert!(html.len() <= 700_000, "{}", html.len());
    assert!(html.contains("\"left_out\":[\"queries and keys, but those of the first pair\""));
    check_html("long", &html);
}

#[test]
fn keys_and_clicks_choose_pairs() {
    let Some(mut browser) = Browser::start() else { return };
    let path = &browser.show(&full("Heads", &LABELS).html(), "layer=1&head=1&query=3&key=1");
    assert!(browser.text("#score").contains("Query “␣a” (3), key “␣chef” (1)"));
    browser.evaluate("document.querySelector('#matrix canvas').focus()");
    browser.press("ArrowDown");
    browser.press("ArrowLeft");
    let next = "location.hash.includes('query=4') && location.hash.includes('key=0')";
    browser.until("the next pair", next);
    browser.evaluate("document.querySelector('#text .tokens').focus()");
    browser.press("ArrowRight");
    browser.until("the next token", "location.hash.includes('query=5')");
    // A head is remembered by the back button.
    browser.click("#heads .layer:nth-child(2) button");
    browser.until("another head", "location.hash.includes('head=0')");
    browser.evaluate("history.back()");
    browser.until("the head before", "location.hash.includes('head=1')");
    // A masked pair says so, and its weight is not drawn.
    browser.open(path, "layer=1&head=0&query=0&key=5");
    assert!(browser.text("#score").contains("masked"));
    let alpha = "(c => c.getContext('2d').getImageData(5, 0, 1, 1).data[3])(document.querySelector('#matrix canvas'))";
    browser.until("a masked pair is not drawn", &format!("{alpha} === 0"));
    // Generated tokens.
    browser.open(path, "layer=1&upto=4");
    let hidden = "document.querySelectorAll('#text .token.outside').length";
    browser.until("later tokens are faint", &format!("{hidden} === 2"));
    assert!(browser.console.is_empty(), "{:?}", browser.console);
}

#[test]
fn damaged_pages_say_so() {
    let Some(mut browser) = Browser::start() else { return };
    let html = full("Heads", &LABELS).html();
    let (before, data, after) = around_data(&html);
    let with_data = |data: &str| format!("{before}{data}{after}");
    let weights = data.find("\"weights\":\"").unwrap() + 11;
    let shorter = format!("{}{}", &data[..weights], &data[weights + 4..]);
    let cases = [
        (with_data(&data[..data.len() / 2]), "damaged or incomplete"),
        (with_data(&data.replacen("\"attention\":1", "\"attention\":7", 1)), "not of version 1"),
        (with_data("null"), "not of version 1"),
        (with_data("{\"attention\":1}"), "cannot be shown"),
        (with_data(&data.replacen("\"runs\":[", "\"runs\":[9,", 1)), "a mask does not fit"),
        (with_data(&shorter), "another number of weights"),
        (AttentionPage::new("Nothing").html(), "Nothing was recorded"),
        (without_layers().html(), "This layer has no attention weights"),
    ];
    for (html, wanted) in cases {
        browser.show(&html, "");
        browser.until(wanted, &format!("document.body.textContent.includes({wanted:?})"));
    }
}
