//! How fast the page of a recorded step is. `cargo bench -p retrograd-benches --bench page_speed`.

use retrograd::prelude::*;
use retrograd::study::XRay;
use retrograd_support::browser::{Browser, File, VIEWS, written};
use retrograd_support::document::numbers;
use serde_json::Value;

/// Loads and changes of the event that are measured.
const LOADS: usize = 7;
const CHANGES: usize = 200;

/// Moves the slider to `CHANGES` events, and returns for each the milliseconds of the script with the layout, and those
/// until the changed frame was painted.
const SCRUB: &str = "(async () => {
    const input = document.querySelector('.player input'), last = Number(input.max), times = [];
    const painted = () => new Promise(done => requestAnimationFrame(() => {
        const { port1, port2 } = new MessageChannel();
        port1.onmessage = done;
        port2.postMessage(0);
    }));
    for (let i = 0; i < COUNT; i++) {
        await painted();
        input.value = Math.round((i * 37 % COUNT) / COUNT * last);
        const began = performance.now();
        input.dispatchEvent(new Event('input'));
        document.body.getBoundingClientRect();
        const script = performance.now() - began;
        await painted();
        times.push([script, performance.now() - began]);
    }
    return times;
})()";

/// The median and the largest.
fn summary(times: &mut [f64]) -> String {
    times.sort_by(f64::total_cmp);
    format!("median {:6.1} ms, largest {:6.1} ms", times[times.len() / 2], times[times.len() - 1])
}

fn main() {
    println!("{}", retrograd::study::conditions::sentence());
    retrograd::study::load::warn_if_busy();
    let Some(mut browser) = Browser::start() else { return };
    let config =
        GptConfig { layers: 12, heads: 12, width: 768, context: 64, ..GptConfig::default() };
    let model = Gpt::<f32>::new(config, &mut Rng::new(1)).unwrap();
    let tokens = Tensor::from_vec((0..64i64).map(|i| i % 60).collect(), [1, 64]);
    let step =
        XRay::of(&model).record(|| model.loss(&tokens, &tokens, &mut Pass::train(1)).backward());
    let html = step.page().html();
    println!("GPT of 12 layers, width 768: a page of {:.2} MB", html.len() as f64 / 1e6);
    let data: Value = serde_json::from_str(&step.json()).unwrap();
    let modules = data["modules"].as_array().unwrap().len();
    let open = (0..modules).map(|m| m.to_string()).collect::<Vec<String>>().join(",");
    let File(_folder, path) = &written("speed", &html);
    for (view, name) in [(VIEWS[0], "1440 wide"), (VIEWS[4], " 400 wide")] {
        browser.view(view);
        let mut paints = Vec::new();
        for _ in 0..LOADS {
            browser.open(path, "");
            browser.until(
                "a paint",
                "performance.getEntriesByName('first-contentful-paint').length === 1",
            );
            let paint = browser
                .evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime");
            paints.push(paint.as_f64().expect("a number"));
        }
        println!("{name}, first paint:                {}", summary(&mut paints));
        let states = [("folded", String::new()), ("unfolded", open.clone())];
        for (state, open) in states {
            browser.open(path, &format!("open={open}"));
            let times = browser.evaluate(&SCRUB.replace("COUNT", &CHANGES.to_string()));
            let times: Vec<Vec<f64>> =
                times.as_array().expect("a list").iter().map(numbers).collect();
            let of = |i: usize| times.iter().map(|t| t[i]).collect::<Vec<f64>>();
            let boxes =
                browser.evaluate("document.querySelectorAll('#graph .node[data-box]').length");
            println!("{name}, {state} ({boxes} boxes), script: {}", summary(&mut of(0)));
            println!("{name}, {state} ({boxes} boxes), frame:  {}", summary(&mut of(1)));
        }
        let heap = browser.evaluate("performance.memory?.usedJSHeapSize / 1e6");
        println!("{name}, heap: {heap} MB");
    }
}
