//! The kit of the pages: each part once, and proofs that the self-test finds what it searches for.

use retrograd_study::Page;
use retrograd_support::browser::{Browser, File, VIEWS, check_html, low_contrasts, written};
use serde_json::{Value, json};
use std::collections::BTreeMap;

const STYLE: &str = include_str!("../../assets/kit.css");
const XRAY_STYLE: &str = include_str!("../../assets/xray/style.css");

fn gallery() -> Page {
    let numbers: Vec<f64> = (0..20).map(|i| 4.0 / (1.0 + f64::from(i))).collect();
    let data = json!({ "numbers": numbers, "name": "</script><b>&amp;" });
    Page::new("The kit", &data).script(include_str!("gallery.js"))
}

#[test]
fn each_part_passes_the_self_test() {
    check_html("gallery", &gallery().html());
}

/// The result of the self-test of a page that contains what `body` returns.
fn self_test(browser: &mut Browser, style: &'static str, body: &'static str) -> String {
    let File(_folder, path) =
        &written("broken", &Page::new("Broken", body).style(style).script(body).html());
    browser.view(VIEWS[4]);
    browser.self_test(path)
}

#[test]
fn broken_layouts_are_found() {
    let Some(mut browser) = Browser::start() else { return };
    // A style, a script, and a part of the sentence; without one, the page is right.
    let cases = [
        (
            "",
            "kit.start(() => kit.page('T', '', [kit.panel('a', 'A', 'h', b => b.append('right'))]));",
            None,
        ),
        (
            "",
            "kit.start(() => kit.s('svg', { width: 200, height: 40 }, kit.s('text', { x: 5, y: 20 }, 'one text'), \
             kit.s('text', { x: 20, y: 24 }, 'another')));",
            Some("text “one text” overlaps text “another”"),
        ),
        (
            "p { margin: 0; line-height: .4; }",
            "kit.start(() => kit.page('T', '', [kit.h('p', {}, 'the upper line'), kit.h('p', {}, 'the lower line')]));",
            Some("overlaps p “the lower line”"),
        ),
        (
            "",
            "kit.start(() => kit.s('svg', { width: 60, height: 40 }, kit.s('text', { x: 30, y: 20 }, 'longer than that')));",
            Some("text “longer than that” is cut off"),
        ),
        (
            ".c { width: 60px; overflow: hidden; white-space: nowrap; }",
            "kit.start(() => kit.h('p', { class: 'c' }, 'a text of one line'));",
            Some("p “a text of one line” is cut off"),
        ),
        (
            "button { width: 40px; white-space: nowrap; padding: 0; }",
            "kit.start(() => kit.h('div', {}, kit.h('button', {}, 'wider than the button')));",
            Some("button “wider than the button” leaves its box"),
        ),
        (
            ".box { height: 10px; width: 100px; }",
            "kit.start(() => kit.h('div', { class: 'box' }, 'several lines of text in a box of one line'));",
            Some("“several lines of text in a box” leaves its box"),
        ),
        (
            "",
            "kit.start(() => kit.s('svg', { width: 90, height: 40 }, [0, 30].map(x => kit.s('g', { 'data-box': 1 }, \
             kit.s('rect', { x, width: 40, height: 20 })))));",
            Some("g “” overlaps g “”"),
        ),
        (
            ".w { width: 700px; }",
            "kit.start(() => kit.h('div', { class: 'w' }, 'wide'));",
            Some("the page is 700 wide in a window of 400"),
        ),
        (
            ".w { width: 700px; }",
            "kit.start(() => kit.h('div', { class: 'scroll' }, kit.h('div', { class: 'w' }, 'wide')));",
            None,
        ),
        (
            ".help { width: 900px; }",
            "kit.start(() => kit.page('T', '', [kit.panel('a', 'A', 'h', b => b.append('right'))]));",
            Some("layout with every explanation: the page is"),
        ),
        (
            "",
            "kit.start(() => kit.page('T', '', [kit.panel('a', 'A', 'h', () => { throw new Error('no such node'); })]));",
            Some("a: no such node"),
        ),
        (
            "",
            "kit.start(() => { kit.test('two', ({ assert }) => assert(false, 'it is not two')); return kit.h('p'); });",
            Some("two: it is not two"),
        ),
        (
            "",
            "kit.start(() => { setTimeout(() => { throw new Error('later'); }, 0); return kit.h('p'); });",
            Some("later"),
        ),
        ("", "kit.start(() => { throw new Error('no layers'); });", Some("no layers")),
    ];
    for (style, body, wanted) in cases {
        let result = self_test(&mut browser, style, body);
        let is_said = match wanted {
            Some(wanted) => result.contains(" failed") && result.contains(wanted),
            None => result.ends_with(" ok"),
        };
        assert!(is_said, "{body}\n{wanted:?}: {result}");
    }
}

#[test]
fn replaced_charts_are_freed() {
    let Some(mut browser) = Browser::start() else { return };
    browser.show(&gallery().html(), "");
    browser.evaluate(
        "(async () => { globalThis.refs = []; \
         const place = document.body.appendChild(kit.h('div')); \
         const frame = () => new Promise(requestAnimationFrame); \
         for (let i = 0; i < 50; i++) { \
           const chart = kit.lineChart({ series: [{ name: 'a', x: [0, 1], y: [0, 1] }], legend: true }).element; \
           const map = kit.heatMap({ rows: 2, columns: 2, value: () => 0 }).element, scale = kit.scale('diverging', '0', '1'); \
           place.replaceChildren(chart, map, scale); refs.push(...[chart, map, scale].map(e => new WeakRef(e))); \
           await frame(); } \
         place.replaceChildren(); await frame(); await frame(); })()",
    );
    assert_eq!(browser.evaluate("refs.length"), 150);
    browser.call("HeapProfiler.collectGarbage", json!({}));
    // The last ones may still be on a stack of the browser.
    let alive = browser.evaluate("refs.filter(r => r.deref()).length").as_u64().unwrap();
    assert!(alive <= 9, "{alive} of 150 replaced elements are still alive");
}

#[test]
fn numbers_are_legible() {
    let Some(mut browser) = Browser::start() else { return };
    browser.show(&gallery().html(), "");
    let cases = [
        ("kit.number(1/3)", json!("0.3333")),
        ("kit.number(-0.000123456)", json!("−1.23e−4")),
        ("kit.number(1234567)", json!("1.23e+6")),
        ("kit.number(123456)", json!("123,500")),
        ("kit.number(null)", json!("–")),
        ("kit.number(NaN)", json!("NaN")),
        ("kit.number(-Infinity)", json!("−∞")),
        ("kit.number(0)", json!("0")),
        ("kit.bytes(0)", json!("0 B")),
        ("kit.bytes(999)", json!("999 B")),
        ("kit.bytes(1000)", json!("1 kB")),
        ("kit.bytes(0.25)", json!("0.25 B")),
        ("kit.seconds(2.5e-6)", json!("2.5 µs")),
        ("kit.quantity(1.5e9, 'FLOP/s')", json!("1.5 GFLOP/s")),
        ("kit.quantity(undefined, 'B')", json!("–")),
        ("kit.percent(0.1234)", json!("12.3 %")),
        ("kit.count(1234567)", json!("1,234,567")),
        ("kit.ticks(0, 10, 5)", json!([0, 2, 4, 6, 8, 10])),
        ("kit.ticks(0.1, 0.3, 2)", json!([0.1, 0.2, 0.3])),
        ("kit.ticks(3, 3)", json!([3])),
    ];
    for (expression, wanted) in cases {
        assert_eq!(browser.evaluate(expression), wanted, "{expression}");
    }
}

/// The relative luminance of a colour in sRGB, by WCAG 2.2.
fn luminance(rgb: [f64; 3]) -> f64 {
    let linear = |x: f64| {
        let x = x / 255.0;
        if x <= 0.04045 { x / 12.92 } else { ((x + 0.055) / 1.055).powf(2.4) }
    };
    let [r, g, b] = rgb.map(linear);
    0.2126 * r + 0.7152 * g + 0.0722 * b
}

fn contrast(a: [f64; 3], b: [f64; 3]) -> f64 {
    let (a, b) = (luminance(a), luminance(b));
    (a.max(b) + 0.05) / (a.min(b) + 0.05)
}

/// `#1b1f26`
fn rgb(hex: &str) -> [f64; 3] {
    let digits = hex.trim().strip_prefix('#').unwrap_or_else(|| panic!("{hex} is no colour"));
    std::array::from_fn(|i| {
        u8::from_str_radix(&digits[2 * i..2 * i + 2], 16).expect("two digits").into()
    })
}

/// The two colours in `light-dark(#1c2128, #e4e7ec)`.
fn light_dark(value: &str) -> [[f64; 3]; 2] {
    let (light, dark) = value.split_once(',').expect("two colours");
    [rgb(light), rgb(dark)]
}

/// The colours that a style sheet names.
fn colors(css: &str) -> BTreeMap<&str, [[f64; 3]; 2]> {
    let lines = css.lines().filter_map(|line| line.trim().strip_prefix("--")?.split_once(": "));
    let colors = lines.filter_map(|(name, value)| {
        Some((name, light_dark(value.strip_prefix("light-dark(")?.strip_suffix(");")?)))
    });
    colors.collect()
}

#[test]
fn texts_have_contrast_to_their_background() {
    let colors = colors(STYLE);
    assert_eq!(colors.len(), 18);
    let others = ["line"];
    let backgrounds = ["paper", "panel", "faint"];
    let check = |text: &str, background: &str, a: [[f64; 3]; 2], b: [[f64; 3]; 2]| {
        for (shade, a, b) in [("light", a[0], b[0]), ("dark", a[1], b[1])] {
            let ratio = contrast(a, b);
            assert!(ratio >= 4.5, "{text} on {background}, {shade}: {ratio:.2} to 1");
        }
    };
    for background in backgrounds {
        for (text, color) in &colors {
            if !backgrounds.contains(text) && !others.contains(text) {
                check(text, background, *color, colors[background]);
            }
        }
    }
    // Pressed buttons and tooltips.
    check("panel", "accent", colors["panel"], colors["accent"]);
    check("paper", "ink", colors["paper"], colors["ink"]);
    // Boxes of the graph whose gradient is complete.
    let fills: Vec<&str> = XRAY_STYLE.split("fill: light-dark(").skip(1).collect();
    assert_eq!(fills.len(), 1);
    let fill = light_dark(fills[0].split_once(')').expect("an end").0);
    check("ink", "a complete gradient", colors["ink"], fill);
    check("soft", "a complete gradient", colors["soft"], fill);
}

#[test]
fn texts_are_drawn_with_contrast() {
    let Some(mut browser) = Browser::start() else { return };
    for view in [VIEWS[0], VIEWS[1]] {
        browser.view(view);
        browser.show(&gallery().html(), "help=texts");
        assert_eq!(low_contrasts(&mut browser), [""; 0], "{view:?}");
        browser.evaluate("document.querySelector('p').style.color = '#777777'");
        let found = low_contrasts(&mut browser);
        assert!(found.len() == 1 && found[0].contains("“Each part once.”"), "{found:?}");
    }
}

#[test]
fn ink_has_contrast_to_every_colour_of_a_ramp() {
    let Some(mut browser) = Browser::start() else { return };
    for view in [VIEWS[0], VIEWS[1]] {
        browser.view(view);
        browser.show(&gallery().html(), "");
        let pairs = browser.evaluate(
            "['sequential', 'diverging'].flatMap(name => Array.from({ length: 201 }, (_, i) => kit.ramp(name, i / 200)))\
             .concat([kit.ramp('diverging', NaN)]).map(c => [c, kit.inkOn(c)])",
        );
        let pairs = pairs.as_array().unwrap();
        assert_eq!(pairs.len(), 403);
        let colors: Vec<&Value> = pairs.iter().map(|pair| &pair[0]).collect();
        assert_ne!(colors[0], colors[200]);
        for pair in pairs {
            let color = std::array::from_fn(|i| pair[0][i].as_f64().unwrap());
            let ratio = contrast(color, rgb(pair[1].as_str().unwrap()));
            assert!(ratio >= 4.5, "{pair} in {view:?}: {ratio:.2} to 1");
        }
    }
}
