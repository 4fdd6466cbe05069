//! Pages in a browser: their self-tests, keys and drags, damaged data and names.

mod browser;

use browser::{Browser, VIEWS, check_page};
use retrograd_autograd::{InputGrads, Var, no_grad};
use retrograd_study::{RecordedStep, XRay};
use retrograd_tensor::Tensor;
use retrograd_tensor::random::Rng;
use std::fs;
use std::path::PathBuf;

/// A file that is removed with its folder.
struct File(tempfile::TempDir, PathBuf);

fn written(name: &str, html: &str) -> File {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(format!("{name}.html"));
    fs::write(&path, html).unwrap();
    File(folder, path)
}

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
        Var::from_op("cube", value, [x], |[x]| {
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

#[test]
fn pages_of_steps_pass_their_tests() {
    for (name, step) in [("diamond", diamond()), ("network", network())] {
        let File(_folder, path) = &written(name, &step.page().html());
        check_page(path);
    }
}

#[test]
fn keys_and_drags_move_through_the_step() {
    let Some(mut browser) = Browser::start() else { return };
    let File(_folder, path) = &written("keys", &network().page().html());
    browser.view(VIEWS[0]);
    browser.open(path, "event=0");
    let event = |browser: &mut Browser| {
        browser.evaluate("Number(document.querySelector('.player input').value)").as_u64().unwrap()
    };
    assert_eq!(event(&mut browser), 0);
    browser.press("ArrowRight");
    browser.press("ArrowRight");
    assert_eq!(event(&mut browser), 2);
    browser.press("ArrowLeft");
    assert_eq!(event(&mut browser), 1);
    browser.press("End");
    let last = browser.evaluate("Number(document.querySelector('.player input').max)");
    assert_eq!(Some(event(&mut browser)), last.as_u64());
    let [left, top, width, height] = browser.place(".player input");
    let y = top + height / 2.0;
    browser.drag((left + width - 8.0, y), (left + width / 2.0, y));
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
fn another_recording_is_compared() {
    let Some(mut browser) = Browser::start() else { return };
    let (here, same, other) = (network(), network(), diamond());
    let File(_folder, path) = &written("here", &here.page().html());
    browser.view(VIEWS[0]);
    for (page, wanted) in [(&same, "have equal bits"), (&other, "different operations")] {
        let File(_folder, file) = &written("there", &page.page().html());
        browser.open(path, "");
        browser.choose_file("#compare input", file);
        browser.until("a comparison", "document.querySelector('#difference').textContent !== ''");
        let text = browser.text("#difference");
        assert!(text.contains(wanted), "{text}");
    }
    let File(_folder, file) = &written("text", "no page");
    browser.open(path, "");
    browser.choose_file("#compare input", file);
    browser.until(
        "a message",
        "document.querySelector('#difference').textContent.includes('damaged')",
    );
}

#[test]
fn damaged_pages_say_so() {
    let Some(mut browser) = Browser::start() else { return };
    browser.view(VIEWS[0]);
    let html = diamond().page().html();
    let newer = html.replacen("{\"xray\":1,", "{\"xray\":99,", 1);
    let start = html.find("{\"xray\"").unwrap();
    let end = start + html[start..].find("</script>").unwrap();
    let with_data = |data: &str| format!("{}{data}{}", &html[..start], &html[end..]);
    let truncated = with_data(&html[start..(start + end) / 2]);
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
        let File(_folder, path) = &written("damaged", &html);
        browser.open(path, "");
        let text = browser.text("body");
        assert!(text.contains(wanted) && text.contains("cannot be shown"), "{wanted}: {text}");
    }
}

#[test]
fn names_do_no_harm() {
    let name = "</script><b onclick=alert(1)>&amp;\u{202e}שלום 🦀";
    let a = Var::leaf(Tensor::scalar(3.0f32));
    let step = XRay::new(name).leaf(name, &a).record(|| a.square().backward());
    let File(_folder, path) = &written("names", &step.page().html());
    check_page(path);
    let Some(mut browser) = Browser::start() else { return };
    browser.open(path, "");
    assert_eq!(browser.text("h1"), name);
    assert_eq!(browser.evaluate("document.querySelectorAll('b').length"), 0);
}
