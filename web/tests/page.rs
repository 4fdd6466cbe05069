//! The page in a browser, and the engine in it beside the same code on this machine.
//!
//! `RETROGRAD_WEB_PAGE` is the page, which `cargo run -p retrograd-web -- PAGE` makes; without it, what needs it is left out.

use retrograd::nn::AttentionKind;
use retrograd::tensor::settings::with_level;
use retrograd::tensor::simd::Level;
use retrograd_support::browser::{Browser, VIEWS, check_page, low_contrasts};
use retrograd_web::{Change, Program, Recipe, Session, xray};
use serde_json::json;
use std::path::PathBuf;

const TEXT: &str = "to be or not to be, that is the question. ";

fn recipe() -> Recipe {
    Recipe {
        text: TEXT.repeat(40),
        attention: AttentionKind::Causal,
        positions: "learned".into(),
        mlp: "gelu".into(),
        layers: 2,
        heads: 2,
        width: 32,
        context: 16,
        batch: 4,
        lr: 0.003,
        seed: 1,
    }
}

fn page() -> Option<PathBuf> {
    let page = std::env::var_os("RETROGRAD_WEB_PAGE").map(PathBuf::from);
    if page.is_none() {
        println!("SKIPPED: RETROGRAD_WEB_PAGE names no page");
    }
    page
}

#[test]
fn a_model_learns_writes_and_is_compared() {
    let mut session = Session::new(recipe()).unwrap();
    let first = session.train().unwrap();
    for _ in 0..150 {
        session.train().unwrap();
    }
    let last = session.train().unwrap();
    assert!(last < 0.5 * first, "{first} {last}");
    assert!(session.held_out() < session.uniform_loss());
    assert_eq!(session.sample("to", 9, 0.0).unwrap().chars().count(), 9);
    assert!(session.sample("ß", 9, 0.0).is_err());
    let (labels, heads) = session.heads();
    assert_eq!((labels.len(), heads.len(), heads[0].len(), heads[0][0].len()), (16, 2, 2, 256));
    // A change is undone, and one that changes nothing moves nothing.
    let (parameter, shape) = &session.parameters()[3];
    let (parameter, at) = (parameter.clone(), shape.iter().product::<usize>() - 1);
    let value = session.weight(&parameter, at).unwrap();
    let weight = |value| Change::Weight { parameter: parameter.clone(), at, value };
    let (before, after, moved) = session.compare(&weight(value)).unwrap();
    assert!(before == after && moved.iter().all(|m| m.difference == 0.0 && m.before == m.after));
    let (before, after, moved) = session.compare(&weight(value + 0.5)).unwrap();
    assert!(before != after && moved.iter().any(|m| m.difference > 1e-3 * m.before));
    assert_eq!(session.weight(&parameter, at).unwrap(), value);
    let token = Change::Token { at: 3, text: "q".into() };
    let (again, after, _) = session.compare(&token).unwrap();
    assert!(again == before && after != before);
    for change in [
        Change::Token { at: 99, text: "q".into() },
        Change::Token { at: 0, text: "to".into() },
        Change::Weight { parameter: "none".into(), at: 0, value: 0.0 },
        weight(f32::INFINITY),
        Change::Weight { parameter: parameter.clone(), at: at + 1, value: 0.0 },
    ] {
        assert!(session.compare(&change).is_err(), "{change:?}");
    }
    let weights = session.weights().unwrap();
    assert!(weights.len() > 4 * session.parameters().len() && weights[8] == b'{');
}

#[test]
fn wrong_recipes_are_refused() {
    for (recipe, said) in [
        (Recipe { text: String::new(), ..recipe() }, ""),
        (Recipe { text: "ab".into(), ..recipe() }, ""),
        (Recipe { positions: "none of them".into(), ..recipe() }, "encoding of positions"),
        (Recipe { width: 33, ..recipe() }, "33"),
        (Recipe { width: 1 << 20, ..recipe() }, "too many for a page"),
        (Recipe { layers: usize::MAX, ..recipe() }, "heads in all its blocks"),
        (Recipe { heads: 0, ..recipe() }, ""),
        (
            Recipe { text: ('\u{4e00}'..'\u{9e00}').collect(), batch: 512, ..recipe() },
            "too many for a page",
        ),
        (Recipe { text: "ab".repeat(2_000_001), ..recipe() }, "the text has more than"),
        (Recipe { batch: 0, ..recipe() }, "a step has 1 to"),
        (Recipe { batch: usize::MAX, ..recipe() }, "a step has 1 to"),
        (Recipe { width: 1024, layers: 8, batch: 512, ..recipe() }, "multiply-adds"),
        (Recipe { lr: f64::NAN, ..recipe() }, "learning rate"),
    ] {
        let text = format!("{:?}", Recipe { text: String::new(), ..recipe.clone() });
        let Err(why) = Session::new(recipe) else { panic!("{text}") };
        assert!(why.contains(said), "{why}");
    }
}

#[test]
fn expressions_are_computed_and_differentiated() {
    for (text, value, gradient) in [
        ("a = 2\nb = 3\nc = -1\n(a * b + c)^2", 25.0, 30.0),
        ("x = 3; 2 * x^2 - x / 2 + 1", 17.5, 11.5),
        ("x = 2 # a number\ny = x * x\ny + y * x", 12.0, 16.0),
        ("x = 2\n-x^2", -4.0, -4.0),
        ("x = 2\n2^-1 * x", 1.0, 0.5),
        ("x = [[1, 2], [3, -4e0]]\nsum(x @ t(x))", 20.0, 8.0),
        ("x = 1\nexp(ln(x)) + abs(0 - x)", 2.0, 2.0),
        ("x = 8\ny = 1/3\nx ^ y", 2.0, 1.0 / 12.0),
    ] {
        let program = Program::parse(text).unwrap();
        let y = program.run().unwrap();
        assert!((y.item() - value).abs() < 1e-12, "{text}: {}", y.item());
        let (_, leaf) = &program.leaves()[0];
        let g = y.backward().get(leaf).unwrap().to_vec()[0];
        assert!((g - gradient).abs() < 1e-12, "{text}: {g}");
        assert!(xray(text, false).unwrap().contains("</html>"), "{text}");
        match xray(text, true) {
            Ok(page) => assert!(page.contains("</html>"), "{text}"),
            Err(why) => assert!(text.contains("2^-1") && why.contains("constant"), "{text}: {why}"),
        }
    }
}

#[test]
fn expressions_that_cannot_be_read_are_refused() {
    let deep = format!("x = 1\n{}x{}", "(".repeat(1000), ")".repeat(1000));
    let minus = format!("x = 1\n{}x", "-".repeat(1000));
    let lists = format!("x = {}", "[".repeat(1000));
    let long = format!("x = 1\n{}", "x + ".repeat(3000));
    let wide = format!("x = 1\n{}x", "x + ".repeat(1000));
    let tower = format!("x = 1\n{}x{}", "(x + x + ".repeat(500), ")".repeat(500));
    for (text, said) in [
        ("", "there is no result"),
        ("1 + 1", "no variable"),
        ("x = 1\ny", "`y` has no value"),
        ("x = 1\nx +", "is missing at its end"),
        ("x = 1\nx x", "unexpected at `x`"),
        ("x = 1\nfoo(x)", "there is no function `foo`, but abs"),
        ("x = 1\n(x", "`)` is missing"),
        ("x = 1\nx\nx", "follows the result"),
        ("x = 1\nx = 2\nx", "no name of a new variable"),
        ("1 = 2\n3", "no name of a new variable"),
        ("x = [[1, 2], [3]]\nsum(x)", "differ in length"),
        ("x = [1, [2]]\nsum(x)", "differ in length"),
        ("x = []\nsum(x)", "cannot be read"),
        ("x = randn(99999, 99999)\nsum(x)", "elements"),
        ("x = randn(0)\nsum(x)", "elements"),
        ("x = 1.2.3\nx", "cannot be read"),
        ("x = randn(2)\nx", "shape [2]"),
        (&deep, "more than 200 operands"),
        (&minus, "more than 200 operands"),
        (&wide, "more than 200 operands"),
        (&tower, "more than 200 operands"),
        ("x = ones(8192, 1)\nsum(x @ t(x))", "a result of `@` would have more than"),
        ("x = ones(65536, 1)\ny = ones(65536)\nsum(x + y)", "a result of `+`"),
        ("x = 1 # a; b = 2\nb", "`b` has no value"),
        (&lists, "more than four axes"),
        (&long, "more than 10000 bytes"),
    ] {
        let why = xray(text, false).expect_err(text);
        assert!(why.contains(said), "{text}: {why}");
    }
}

#[test]
fn the_page_tests_itself() {
    let Some(page) = page() else { return };
    check_page(&page);
}

#[test]
fn a_user_trains_pauses_looks_and_derives() {
    let (Some(page), Some(mut browser)) = (page(), Browser::start()) else { return };
    // No bit differs from the level without vectors on this machine.
    let same = recipe();
    let mut native = Session::new(same.clone()).unwrap();
    let losses: Vec<f32> =
        with_level(Level::Scalar, || (0..200).map(|_| native.train().unwrap()).collect());
    browser.open(&page, "");
    browser.until("the engine answers", "document.getElementById('train') !== null");
    let start = json!({
        "text": same.text, "attention": "causal", "positions": "learned", "mlp": "gelu", "layers": 2, "heads": 2, "width": 32,
        "context": 16, "batch": 4, "lr": 0.003, "seed": 1,
    });
    let script = format!(
        "(async () => {{ const ask = kit.engine; await ask({{ start: {start} }}); return (await ask({{ train: {{ steps: 200 }} }})).losses; }})()"
    );
    let found = browser.evaluate(&script);
    let found: Vec<f32> = serde_json::from_value(found).unwrap();
    let bits = |list: &[f32]| list.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
    assert_eq!(bits(&found), bits(&losses));

    // A click trains, another one pauses.
    browser.evaluate("document.getElementById('train').click()");
    browser.until("it trains", "/Step [1-9]/.test(document.getElementById('status').textContent)");
    browser.until("it writes", "document.querySelectorAll('.sample').length > 1");
    browser.screenshot("web-training");
    browser.evaluate("document.getElementById('train').click()");
    let paused = "document.getElementById('train').textContent === 'Go on' && !document.getElementById('xray').disabled";
    browser.until("it pauses", paused);
    let step = browser.text("#status");
    for (button, title) in [("xray", "X-ray of this step"), ("explorer", "attention explorer")] {
        browser.evaluate(&format!("document.getElementById('{button}').click()"));
        browser.until(title, &format!("document.querySelector('iframe[title=\"{title}\"]')?.contentDocument?.querySelector('.panel') != null"));
        browser.evaluate("document.querySelector('iframe').scrollIntoView()");
        browser.screenshot(&format!("web-{button}"));
    }
    assert_eq!(browser.text("#status"), step, "it has not stopped");
    browser.evaluate("document.getElementById('change').click()");
    browser.until("changes", "document.getElementById('token') !== null");
    for view in VIEWS {
        browser.view(view);
        browser.evaluate("document.getElementById('change').scrollIntoView()");
        browser.screenshot(&format!("web-changes-{}-{}", view.width, view.is_dark));
        let low = low_contrasts(&mut browser);
        assert!(low.is_empty(), "{low:?}");
    }
    browser.evaluate("document.getElementById('tab-derive').click()");
    let frame = "document.querySelector('#expression iframe')?.contentDocument";
    let is_shown = format!(
        "{frame}?.getElementById('order') != null || {frame}?.querySelector('.panel') != null"
    );
    browser.until("a page of an expression", &is_shown);
    browser.view(VIEWS[0]);
    browser.screenshot("web-expression");
    // What cannot be multiplied says so, and the engine begins again.
    browser.evaluate("document.getElementById('program').value = 'x = randn(2, 3)\\nsum(x @ x)'; document.getElementById('run').click()");
    let said = "/matmul/.test(document.querySelector('#expression .message').textContent)";
    browser.until("a sentence", said);
    assert!(browser.console.is_empty(), "{:?}", browser.console);
}

#[test]
fn what_is_damaged_is_refused_in_a_sentence() {
    let (Some(page), Some(mut browser)) = (page(), Browser::start()) else { return };
    let message = "(e => !e.hidden && e.textContent)(document.querySelector('#model .message'))";
    // An address: what is no name or number is not taken, and what is too large is refused when a model is made.
    browser
        .open(&page, "layers=abc&attention=nonsense&%E0%A4%A&heads=99999999&view=other&program=%");
    assert_eq!(browser.evaluate("document.getElementById('set-layers').value"), "2");
    assert_eq!(browser.evaluate("document.getElementById('set-attention').value"), "causal");
    browser.click("#train");
    browser.until("why", &format!("({message} || '').includes('heads')"));
    // Files that are dropped: one without text, and one of any bytes, which trains.
    browser.open(&page, "");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("text.txt");
    std::fs::write(&file, "").unwrap();
    browser.drop_file("#text", &file);
    browser.until("the file", "document.getElementById('text').value === ''");
    browser.click("#train");
    browser.until("why", &format!("!!{message}"));
    let bytes: Vec<u8> =
        (0..4000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    std::fs::write(&file, bytes).unwrap();
    browser.drop_file("#text", &file);
    browser.until("the file", "document.getElementById('text').value.length > 1000");
    // A setting is in the address when the page is opened again, whose engine is another one.
    let layers = "document.getElementById('set-layers')";
    browser.evaluate(&format!("{layers}.select()"));
    browser.call("Input.insertText", json!({ "text": "1" }));
    browser.evaluate(&format!("{layers}.blur()"));
    let trained = "/Step [1-9]/.test(document.getElementById('status').textContent)";
    browser.click("#train");
    browser.until("it trains", trained);
    let hash = browser.evaluate("location.hash.slice(1)");
    browser.open(&page, hash.as_str().unwrap());
    assert_eq!(browser.evaluate(&format!("{layers}.value")), "1");
    assert!(browser.text("#status").starts_with("No model yet"));
    browser.click("#train");
    browser.until("it trains again", trained);
    assert!(browser.console.is_empty(), "{:?}", browser.console);
}
