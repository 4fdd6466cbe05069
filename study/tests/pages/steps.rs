//! Pages in a browser: their self-tests, keys and drags, damaged data and names.

use retrograd_autograd::{InputGrads, Op, Var, no_grad};
use retrograd_study::{RecordedStep, XRay};
use retrograd_support::browser::{
    Browser, File, VIEWS, check_html, check_page, low_contrasts, written,
};
use retrograd_support::document::around_data;
use retrograd_tensor::Tensor;
use retrograd_tensor::machine::{Memory, Peak, Rate, Roofline};
use retrograd_tensor::random::Rng;
use retrograd_tensor::simd::Level;
use serde_json::{Value, json};
use std::path::PathBuf;

fn diamond() -> RecordedStep {
    let a = Var::leaf(Tensor::scalar(3.0f32));
    XRay::new("A diamond").leaf("a", &a).record(|| {
        let b = a.square();
        (&b + &(&b * &a)).backward()
    })
}

/// A network with a detached branch, a frozen leaf and an operation of its own.
fn network() -> RecordedStep {
    let mut rng = Rng::new(1);
    let mut leaf = |shape: [usize; 2]| Var::leaf(Tensor::<f32>::randn(shape, &mut rng));
    let [w, v, u] = [leaf([40, 20]), leaf([40, 40]), leaf([10, 40])];
    let x = Var::constant(Tensor::randn([30, 20], &mut Rng::new(2)));
    let cube = |x: &Var| {
        let value = &x.value().square() * x.value();
        Var::from_op(const { &Op::new("cube", &["x"]) }, value, [x], |[x]| {
            let x = x.save();
            move |cx, g| InputGrads::of(&x, || g * &cx.input(&x).square() * 3.0)
        })
    };
    XRay::new("A network").leaf("w", &w).leaf("v", &v).leaf("u", &u).record(|| {
        let h = x.linear(&w, None).tanh();
        let gate = h.linear(&v, None).sigmoid().detach();
        let noise = no_grad(|| h.exp().sin());
        let y = (&(&h * &gate) + &noise).linear(&u, None);
        cube(&y).log_softmax(-1).mean(..).backward()
    })
}

/// Modules in modules with long names, updates, and the limits of a machine.
fn model() -> RecordedStep {
    let (gflops, name) = (Rate { one: 50.0, all: 100.0 }, "transformer.layers");
    let level = |name, bytes, rate| {
        let read = Rate { one: rate, all: 2.0 * rate };
        Memory { name, bytes, per_core: true, read, copy: read }
    };
    let memory = vec![level("L1", 1 << 15, 200.0), level("DRAM", usize::MAX, 8.0)];
    let peak = Peak { level: Level::Scalar, gflops };
    let mut xray = XRay::new("A model")
        .limits(Roofline { threads: 2, peak, memory })
        .module("", "Model")
        .module("transformer", "Transformer");
    let mut rng = Rng::new(1);
    let mut leaves = Vec::new();
    for layer in 0..2 {
        xray = xray.module(&format!("{name}.{layer}"), "Block");
        for part in ["attention.output_projection", "feed_forward.output_projection"] {
            let leaf = Var::leaf(Tensor::<f32>::randn([16, 16], &mut rng));
            let path = format!("{name}.{layer}.{part}");
            xray = xray.module(&path, "Linear").leaf(&format!("{path}.weight"), &leaf);
            xray = xray.update(leaf.id().unwrap(), 0.001234);
            leaves.push(leaf);
        }
    }
    let x = Var::constant(Tensor::randn([8, 16], &mut rng));
    xray.record(|| {
        let y = leaves.iter().fold(x.clone(), |x, w| x.linear(w, None).tanh());
        (y.square().mean(..) * 0.5).backward()
    })
}

#[test]
fn pages_of_steps_pass_their_tests() {
    for (name, step) in [("diamond", diamond()), ("network", network()), ("model", model())] {
        check_html(name, &step.page().html());
    }
}

/// The pages of docs/gallery.
fn gallery() -> Vec<PathBuf> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/gallery");
    let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    files.filter(|path| path.extension().is_some_and(|e| e == "html")).collect()
}

#[test]
#[ignore = "takes long: .ci/long pages"]
fn the_gallery_passes_its_tests() {
    gallery().iter().for_each(|page| check_page(page));
}

#[test]
fn the_gallery_has_the_kit() {
    let pages = gallery();
    let bytes: u64 = pages.iter().map(|page| page.metadata().unwrap().len()).sum();
    assert!(pages.len() >= 7 && bytes < 1_500_000, "{} pages, {bytes} bytes", pages.len());
    let kit = concat!(include_str!("../../assets/kit.js"), include_str!("../../assets/search.js"));
    for page in pages {
        // docs/pictures.py makes them again.
        let html = std::fs::read_to_string(&page).unwrap();
        let mut lines = kit.lines().filter(|line| !line.trim_start().starts_with("//"));
        assert!(lines.all(|line| html.contains(line)), "{} has an old kit", page.display());
    }
}

#[test]
fn texts_of_steps_have_contrast() {
    let Some(mut browser) = Browser::start() else { return };
    let html = network().page().html();
    for view in [VIEWS[0], VIEWS[1]] {
        browser.view(view);
        for state in ["event=0", "event=999&node=7&help=tape,graph", "event=20"] {
            browser.show(&html, state);
            assert_eq!(low_contrasts(&mut browser), [""; 0], "{state} in {view:?}");
        }
    }
}

/// The number of the event that a page shows.
fn event(browser: &mut Browser) -> u64 {
    browser.evaluate("Number(document.querySelector('.player input').value)").as_u64().unwrap()
}

#[test]
fn keys_and_drags_move_through_the_step() {
    let Some(mut browser) = Browser::start() else { return };
    browser.show(&network().page().html(), "event=0");
    assert_eq!(event(&mut browser), 0);
    browser.press("ArrowRight");
    browser.press("ArrowRight");
    assert_eq!(event(&mut browser), 2);
    browser.press("ArrowLeft");
    assert_eq!(event(&mut browser), 1);
    browser.press("End");
    let last = browser.evaluate("Number(document.querySelector('.player input').max)");
    assert_eq!(Some(event(&mut browser)), last.as_u64());
    browser.press("ArrowRight");
    assert_eq!(Some(event(&mut browser)), last.as_u64());
    browser.press("Home");
    assert_eq!(event(&mut browser), 0);
    browser.press(" ");
    browser.until("it plays", "Number(document.querySelector('.player input').value) > 1");
    browser.press(" ");
    let stopped = event(&mut browser);
    std::thread::sleep(std::time::Duration::from_millis(300));
    assert_eq!(event(&mut browser), stopped);
    // The slider stays in the window.
    for y in [0, 500, 100_000] {
        browser.evaluate(&format!("scrollTo(0, {y})"));
        let place = browser.evaluate(
            "(r => r.top > innerHeight / 2 && r.bottom <= innerHeight)(document.querySelector('.player').getBoundingClientRect())",
        );
        assert_eq!(place, true, "{y}");
    }
    let [left, top, width, height] = browser.place(".player input");
    let y = top + height / 2.0;
    let at = |part: f64| (left + 8.0 + part * (width - 16.0), y);
    let part = stopped as f64 / last.as_f64().unwrap();
    browser.drag(at(part), at(0.5));
    let middle = last.as_u64().unwrap() / 2;
    assert!(event(&mut browser).abs_diff(middle) <= 1 + middle / 20);
    // The choice is in the address, and the back button undoes it.
    let [left, top, _, height] = browser.place("#tape canvas");
    browser.drag((left + 3.0, top + height / 4.0), (left + 3.0, top + height / 4.0));
    browser.until("a choice", "location.hash.includes('node=')");
    browser.evaluate("history.back()");
    browser.until("the previous state", "!location.hash.includes('node=')");
    assert!(browser.console.is_empty(), "{:?}", browser.console);
}

#[test]
fn the_stage_fits_a_projector() {
    let Some(mut browser) = Browser::start() else { return };
    let size = json!({ "width": 1280, "height": 720, "deviceScaleFactor": 1, "mobile": false });
    browser.call("Emulation.setDeviceMetricsOverride", size);
    // The self-test says so if a part of the stage is not seen together with the others.
    let html = model().page().html();
    let path = browser.show(&html, "");
    let result = browser.self_test(&path);
    assert!(result.ends_with(" ok"), "{result}");
    browser.show(&html, "event=3");
    let number = |browser: &mut Browser, what: &str| {
        let found = browser.evaluate(&format!("document.querySelector('#graph .drawing').{what}"));
        found.as_f64().unwrap()
    };
    // A drag moves the graph and chooses nothing; a click chooses.
    for _ in 0..4 {
        browser.evaluate("document.querySelector('[aria-label=\"Larger\"]').click()");
    }
    let [left, top, width, height] = browser.place("#graph .drawing");
    let (x, y) = (left + width / 2.0, top + height / 2.0);
    let before = number(&mut browser, "scrollTop");
    browser.drag((x, y), (x, y - 60.0));
    assert_eq!(number(&mut browser, "scrollTop") - before, 60.0);
    assert_eq!(browser.evaluate("location.hash"), "#event=3");
    // The point under the pointer stays where it is.
    let at = |browser: &mut Browser| {
        let [scroll, size] = ["scrollTop", "firstChild.clientHeight"].map(|w| number(browser, w));
        (scroll + height / 2.0) / size
    };
    let before = at(&mut browser);
    let wheel =
        json!({ "type": "mouseWheel", "x": x, "y": y, "deltaX": 0, "deltaY": -80, "modifiers": 2 });
    browser.call("Input.dispatchMouseEvent", wheel);
    assert!((at(&mut browser) - before).abs() < 0.01);
    // The graph fills the window above the player, and Escape ends that.
    browser.click("[aria-label=\"Fill the window\"]");
    let place =
        "(r => [r.left, r.top, r.width])(document.getElementById('graph').getBoundingClientRect())";
    browser.until("it fills", &format!("{place}.join() === '0,0,1280'"));
    browser.press("ArrowRight");
    assert_eq!(event(&mut browser), 4);
    browser.press("Escape");
    browser.until("it is in its place", &format!("{place}[1] > 100"));
    // What is found is unfolded, chosen and named in the address.
    browser.evaluate("document.getElementById('search').focus()");
    for text in ["linear", " layers.1.feed"] {
        browser.call("Input.insertText", json!({ "text": text }));
    }
    browser.press("Enter");
    let found = "document.querySelector('#graph .node.chosen')?.textContent ?? ''";
    browser.until("it is found", &format!("({found}).includes('linear')"));
    let hash = browser.evaluate("location.hash");
    assert!(hash.as_str().unwrap().contains("at=graph"), "{hash}");
    browser.show(&html, &hash.as_str().unwrap()[1..]);
    browser.until("the link leads to it", &format!("({found}).includes('linear')"));
    // Also a parameter, whose box is scrolled into view, and Back undoes that.
    browser.evaluate("document.getElementById('search').focus()");
    browser.call("Input.insertText", json!({ "text": "layers.0.attention weight" }));
    browser.press("Enter");
    browser.until(
        "it is in view",
        "(([a, b]) => a.top >= b.top - 1 && a.bottom <= b.bottom + 1 && a.left >= b.left - 1)(['.node.chosen', '.drawing']\
         .map(e => document.querySelector(`#graph ${e}`).getBoundingClientRect())) && \
         document.querySelector('#graph .node.chosen').textContent.includes('weight')",
    );
    browser.evaluate("history.back()");
    browser.until("it is undone", &format!("({found}).includes('linear')"));
    // Damaged states are none, and a graph without a height of its own keeps its size.
    browser.view(VIEWS[2]);
    browser.show(&html, "open=x,-1,999,&fill=other&at=none&node=99999&event=x");
    let width = "document.querySelector('#graph .drawing svg').getAttribute('width')";
    browser.place("#graph .drawing");
    let before = browser.evaluate(width);
    browser.evaluate("new Promise(done => setTimeout(done, 700))");
    assert_eq!(browser.evaluate(width), before);
    assert!(browser.console.is_empty(), "{:?}", browser.console);
}

#[test]
fn everything_is_reached_by_keys() {
    let Some(mut browser) = Browser::start() else { return };
    browser.show(&network().page().html(), "event=0");
    let all = "[...document.querySelectorAll('a[href], button:not([disabled]), input, select, [tabindex=\"0\"]')]\
               .filter(e => e.checkVisibility())";
    let n = browser.evaluate(&format!("{all}.length")).as_u64().unwrap();
    assert!(n > 40, "{n}");
    for _ in 0..n + 20 {
        browser.press("Tab");
        browser.evaluate("document.activeElement.setAttribute('data-reached', '1')");
    }
    let rest = browser.evaluate(&format!(
        "{all}.filter(e => !e.dataset.reached).map(e => e.outerHTML.slice(0, 200)).join(' ')"
    ));
    assert_eq!(rest, "");
    // Enter acts on what is no button: a box of the graph, and a row of a table.
    for (selector, node) in
        [("#graph .node[aria-label^=\"cube\"]", "cube #"), ("#health tbody tr", "w")]
    {
        browser.evaluate(&format!("document.querySelector({selector:?}).focus()"));
        browser.press("Enter");
        let title = browser.text("#inspector strong");
        assert!(title.starts_with(node), "{title}");
    }
    // Arrows move in charts and pictures, not in the step; Escape ends it.
    for selector in ["#memory svg[tabindex]", "#inspector .chart canvas"] {
        browser.evaluate(&format!("document.querySelector({selector:?}).focus()"));
        browser.press("ArrowRight");
        browser.press("ArrowRight");
        assert!(!browser.text("#tip").is_empty(), "{selector}");
        assert_eq!(browser.evaluate("document.querySelector('#tip').hidden"), false, "{selector}");
        browser.press("Escape");
        assert_eq!(browser.evaluate("document.querySelector('#tip').hidden"), true, "{selector}");
        assert_eq!(event(&mut browser), 0, "{selector}");
    }
    assert!(browser.console.is_empty(), "{:?}", browser.console);
}

#[test]
fn the_inspector_puts_numbers_into_formulas() {
    let Some(mut browser) = Browser::start() else { return };
    let a = Var::leaf(Tensor::from([3.0f64, -0.5]));
    let step = XRay::new("").leaf("a", &a).checked(1).record_at(&[a], |v| {
        let b = v[0].square();
        (&b + &(&b * &v[0])).sum(..).backward()
    });
    let File(_folder, path) = &written("numbers", &step.page().html());
    browser.view(VIEWS[0]);
    // Nodes: a, square, mul, add, sum.
    let wanted = [
        (1, "y[0] = 3² = 9"),
        (1, "g = 1 (from add #2) + 3 (from mul #1) = 4"),
        (1, "dx = g · 2 · x = 4 · 2 · 3 = 24, to a"),
        (2, "y[0] = 9 · 3 = 27"),
        (2, "dx = g · z = 1 · 3 = 3, to square #0"),
        (2, "dz = g · x = 1 · 9 = 9, to a"),
        (3, "dx = g = 1, to square #0"),
        (0, "g = 9 (from mul #1) + 24 (from square #0) = 33"),
        (0, "central difference: (L(w + h) − L(w − h)) / 2h = 33 ±"),
        (0, "It agrees with g."),
    ];
    for (node, line) in wanted {
        browser.open(path, &format!("event=999&node={node}"));
        browser.says("#inspector", &[line]);
    }
    // The numbers of a formula, and a gradient that the caller gave.
    let a = Var::leaf(Tensor::scalar(2.384f64));
    let step = XRay::new("").leaf("a", &a).record(|| (&a * 0.5).backward());
    browser.show(&step.page().html(), "event=999&node=1");
    let wanted =
        ["c0.5", "y = 2.384 · 0.5 = 1.192", "g = 1 (given)", "dx = g · c = 1 · 0.5 = 0.5, to a"];
    browser.says("#inspector", &wanted);
    // The gradient of a weight is a sum over the rows.
    let w = Var::leaf(Tensor::from([[3.0f64, -1.0]]));
    let x = Var::constant(Tensor::from([[2.0f64, 5.0], [-4.0, 1.0]]));
    let step =
        XRay::new("").leaf("w", &w).record(|| x.linear(&w, None).square().sum(..).backward());
    browser.show(&step.page().html(), "event=999&node=0");
    browser.says("#inspector", &["from linear #0: 2 · 2 + (−26) · (−4) = 108"]);
    // Another element, whose numbers are negative.
    browser.open(path, "event=999&node=1");
    browser.evaluate(
        "(s => { s.value = 1; s.dispatchEvent(new Event('change')); })(document.querySelector('#inspector select'))",
    );
    browser.says("#inspector", &["dx = g · 2 · x = 0.5 · 2 · (−0.5) = −0.5, to a"]);
    // Before the gradient arrives, it is not shown.
    browser.open(path, "event=3&node=1");
    let text = browser.text("#inspector");
    assert!(text.contains("y[0] = 3² = 9") && !text.contains("g = 1"), "{text}");
    assert!(browser.console.is_empty(), "{:?}", browser.console);
}

#[test]
fn a_wrong_rule_is_named() {
    let Some(mut browser) = Browser::start() else { return };
    let x = Var::leaf(Tensor::from([0.5f64, -1.0]));
    let step = XRay::new("").leaf("x", &x).checked(1).record_at(&[x], |v| {
        let value = v[0].value().powf(3.0);
        let y = Var::from_op(const { &Op::new("cube", &["x"]) }, value, [&v[0]], |[x]| {
            let x = x.save();
            move |cx, g| InputGrads::of(&x, || g * &cx.input(&x).square() * 2.0)
        });
        y.sum(..).backward()
    });
    check_html("wrong", &step.page().html());
    browser.show(&step.page().html(), "");
    let found = "x[1]: the rules give 2, the difference is 3 ±";
    browser.says("#checks", &["1 of 1 elements of gradients do not agree", found]);
    browser.evaluate("document.querySelector('#checks button').click()");
    browser.says("#inspector", &["It does not agree with g."]);
    // A closure whose runs differ.
    let mut run = 0.0;
    let step = XRay::new("").record(|| {
        run += 1.0;
        (&Var::leaf(Tensor::scalar(1.0f64)) * run).backward()
    });
    check_html("differs", &step.page().html());
    browser.show(&step.page().html(), "");
    browser.says("#runs", &["code differ (the loss was 2.0, then"]);
}

/// A NaN in the middle of a forward pass, a branch that is detached, and an update that is too large.
#[test]
fn broken_steps_are_diagnosed() {
    let Some(mut browser) = Browser::start() else { return };
    let leaf = |seed: u64| Var::leaf(Tensor::<f32>::randn([4, 4], &mut Rng::new(seed)));
    let [w, v] = [leaf(1), leaf(2)];
    let scale = Var::leaf(Tensor::scalar(-0.5f32));
    let x = Var::constant(Tensor::randn([3, 4], &mut Rng::new(3)));
    let step = XRay::new("Broken")
        .leaf("w", &w)
        .leaf("scale", &scale)
        .leaf("v", &v)
        .update(w.id().unwrap(), 0.75)
        .record(|| {
            let h = x.linear(&w, None).tanh();
            let branch = h.linear(&v, None).exp().detach();
            (&(&h * &scale.ln()) + &branch).sum(..).backward()
        });
    check_html("broken", &step.page().html());
    browser.show(&step.page().html(), "");
    let origin = [
        "1 NaN and 0 infinite of 1",
        "Forward: ln #4 computes scalar",
        "study/tests/pages/steps.rs:",
        "x, scale: from −0.5 to −0.5",
    ];
    browser.says("#origin", &origin);
    browser.evaluate("document.querySelector('#origin button').click()");
    browser.says(".player .what", &["ln #4"]);
    let subtitle = browser.text("header p");
    assert!(subtitle.ends_with("loss NaN"), "{subtitle}");
    let findings = [
        "1 NaN and 0 infinite",
        "1 parameter has no gradient:",
        "v: add (",
        "detached",
        "1 parameter was changed by more than a tenth of the norm in one update:w: 0.75",
    ];
    browser.says(".panel", &findings);
    assert_eq!(browser.text("#health td .bad"), "0.75");
    // The graph marks what is not finite, and where no gradient goes.
    browser.press("End");
    for (mark, least) in [(".node.bad", 3), ("path.cut", 1)] {
        let all = format!("document.querySelectorAll('#graph {mark}').length");
        let count = browser.evaluate(&all).as_u64().unwrap();
        assert!(count >= least, "{count} of {mark}");
    }
}

/// `Σ factor · e^x` of a hundred numbers. The rule multiplies by `rule`.
fn exponential(factor: f32, rule: f32) -> RecordedStep {
    let x = Var::leaf(Tensor::from_fn([100], |i| i[0] as f32 / 50.0));
    XRay::new("").leaf("x", &x).record(|| {
        let e = x.exp();
        let value = e.value().mul_scalar(factor);
        let y = Var::from_op(const { &Op::new("scaled", &["e"]) }, value, [&e], |[e]| {
            let e = e.slot();
            move |_, g| InputGrads::of(&e, || g * rule)
        });
        y.sum(..).backward()
    })
}

#[test]
fn another_recording_is_compared() {
    let Some(mut browser) = Browser::start() else { return };
    let here = exponential(2.0, 2.0);
    let File(_folder, path) = &written("here", &here.page().html());
    browser.view(VIEWS[0]);
    let is_compared = "document.querySelector('#difference').textContent !== ''";
    // The number after 2.
    let next = 2.0 + 2.0 * f32::EPSILON;
    let cases = [
        (exponential(2.0, 2.0), "results have equal bits", None),
        (diamond(), "different operations from event 1 on: exp here, square there", Some(0)),
        (exponential(next, 2.0), "bits differ: Forward: scaled #1 computes [100]", Some(1)),
        (
            exponential(2.0, next),
            "bits differ: scaled #1 delivers its only gradient to exp #0",
            None,
        ),
    ];
    for (page, wanted, event_of) in cases {
        let File(_folder, file) = &written("there", &page.page().html());
        // By the button, and by a drop from another program.
        for is_drop in [false, true] {
            browser.open(path, "event=2");
            if is_drop {
                // A browser would show the file instead of the page.
                browser.evaluate(
                    "addEventListener('drop', e => { globalThis.wasLeft = !e.defaultPrevented; })",
                );
                browser.drop_file("#compare .drop", file);
                browser.until("a drop", "globalThis.wasLeft === false");
            } else {
                browser.choose_file("#compare input", file);
            }
            browser.until(&format!("a comparison, {wanted}, {is_drop}"), is_compared);
            browser.says("#difference", &[wanted]);
        }
        if let Some(wanted) = event_of {
            browser.evaluate("document.querySelector('#difference button').click()");
            assert_eq!(event(&mut browser), wanted);
        }
    }
    // The distances of the sample are counted: of 2 e^x and its neighbour, 1 or 2 units in the last place.
    let File(_folder, file) = &written("there", &exponential(next, 2.0).page().html());
    browser.open(path, "");
    browser.choose_file("#compare input", file);
    browser.until("a table", "document.querySelectorAll('#difference table').length === 2");
    let rows = browser.evaluate(
        "[...document.querySelectorAll('#difference table')[1].querySelectorAll('tbody tr')].map(r => [...r.cells].map(c => Number(c.textContent)))",
    );
    let rows: Vec<[u64; 2]> = serde_json::from_value(rows).unwrap();
    assert!(rows.iter().all(|[distance, _]| [1, 2].contains(distance)), "{rows:?}");
    assert_eq!(rows.iter().map(|[_, n]| n).sum::<u64>(), 64);
    for damaged in [
        "no page",
        "{\"xray\":1}",
        "null",
        "{\"xray\":1,\"nodes\":[{\"name\":\"exp\"}],\"events\":[{\"what\":\"forward\",\"node\":0,\"value\":7}],\"values\":[]}",
    ] {
        let File(_folder, file) = &written("damaged", damaged);
        browser.open(path, "");
        browser.choose_file("#compare input", file);
        browser.until("a message", is_compared);
        let text = browser.text("#difference");
        let wanted = ["damaged", "not the page of a recorded step", "different operations"];
        assert!(wanted.iter().any(|w| text.contains(w)), "{damaged}: {text}");
        assert!(browser.console.is_empty(), "{damaged}: {:?}", browser.console);
    }
}

#[test]
fn damaged_pages_say_so() {
    let Some(mut browser) = Browser::start() else { return };
    let html = diamond().page().html();
    let newer = html.replacen("{\"xray\":1,", "{\"xray\":99,", 1);
    let (before, data, after) = around_data(&html);
    let with_data = |data: &str| format!("{before}{data}{after}");
    let truncated = with_data(&data[..data.len() / 2]);
    let cases = [
        (newer, "newer version"),
        (truncated, "damaged or incomplete"),
        (with_data("null"), "not that of a recorded step"),
        (with_data("{\"xray\":1}"), "nothing was recorded"),
        (
            with_data("{\"xray\":1,\"nodes\":[{}],\"events\":[{\"what\":\"moved\",\"to\":7}]}"),
            "cannot be shown",
        ),
    ];
    for (html, wanted) in cases {
        browser.show(&html, "");
        browser.says("body", &[wanted, "cannot be shown"]);
    }
}

/// Each part of the data missing, or of another kind: the page says so, or shows the rest.
#[test]
#[ignore = "takes long: .ci/long pages"]
fn no_damage_leaves_a_blank_page() {
    let Some(mut browser) = Browser::start() else { return };
    let html = diamond().page().html();
    let (before, data, after) = around_data(&html);
    let whole: Value = serde_json::from_str(data).unwrap();
    let mut cases = Vec::new();
    for key in whole.as_object().unwrap().keys() {
        let mut data = whole.clone();
        data.as_object_mut().unwrap().remove(key);
        cases.push((format!("{key} is missing"), data));
        for other in [json!(null), json!(7), json!("x"), json!([null]), json!({})] {
            let mut data = whole.clone();
            data[key] = other.clone();
            cases.push((format!("{key} is {other}"), data));
        }
    }
    let places = "/modules/0/parent /nodes/1/inputs/0/node /nodes/1/shapes /nodes/1/name /nodes/1/value \
                  /nodes/1/module /nodes/1/elements/0/parts/0/0 /events/4/node /events/0/value \
                  /values/0/count /values/0/full /values/1/norm /made/version";
    for place in places.split(' ') {
        for other in [json!(0), json!(99), json!(null), json!("x")] {
            let mut data = whole.clone();
            *data.pointer_mut(place).unwrap_or_else(|| panic!("no {place}")) = other.clone();
            cases.push((format!("{place} is {other}"), data));
        }
    }
    let mut said = 0;
    for (what, data) in cases {
        let data = data.to_string().replace('<', "\\u003c");
        let html = format!("{before}{data}{after}");
        browser.show(&html, "event=6&node=1");
        let text = browser.evaluate("document.body.innerText");
        let text = text.as_str().unwrap();
        said += usize::from(text.contains("cannot be shown"));
        let tape =
            browser.evaluate("document.querySelector('#tape .body')?.textContent.length > 20");
        assert!(text.contains("cannot be shown") || tape == true, "{what}: {text}");
        assert!(text.len() > 100, "{what}: {text}");
        assert!(browser.console.is_empty(), "{what}: {:?}", browser.console);
    }
    assert!(said > 30, "{said}");
}

#[test]
fn names_do_no_harm() {
    const NAME: &str = "</script><b onclick=alert(1)>&amp;\u{202e}שלום 🦀";
    let a = Var::leaf(Tensor::scalar(3.0f32));
    let names = XRay::new(NAME).module("", NAME).module(NAME, NAME);
    let step = names.leaf(&format!("{NAME}.{NAME}"), &a).record(|| {
        let value = a.value().square();
        let y = Var::from_op(const { &Op::new(NAME, &["a"]) }, value, [&a], |[a]| {
            let a = a.save();
            move |cx, g| InputGrads::of(&a, || g * &cx.input(&a) * 2.0)
        });
        y.exp().backward()
    });
    check_html("names", &step.page().html());
    let Some(mut browser) = Browser::start() else { return };
    let path = &browser.show(&step.page().html(), "");
    browser.self_test(path);
    assert_eq!(browser.text("h1"), NAME);
    assert_eq!(browser.evaluate("document.querySelectorAll('b').length"), 0);
    browser.open(path, "node=1&event=0");
    assert_eq!(browser.text("#inspector strong"), format!("\u{2068}{NAME}\u{2069} #0"));
    assert_eq!(browser.evaluate("document.querySelectorAll('b').length"), 0);
}
