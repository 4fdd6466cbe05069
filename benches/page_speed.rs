//! How fast the page of a recorded step is, or, if `RETROGRAD_WEB_PAGE` names it, the page that contains the engine.
//! `cargo bench -p retrograd-benches --features pages --bench page_speed`.

use retrograd::prelude::*;
use retrograd::study::XRay;
use retrograd_support::browser::{Browser, File, VIEWS, written};
use retrograd_support::document::numbers;
use serde_json::{Value, json};
use std::path::Path;

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

/// Trains through the page for a thousand steps, and returns how late each frame was, in milliseconds, and the bytes of the
/// engine's memory and of the page's.
const TRAIN: &str = "(async () => {
    const status = document.getElementById('status'), late = [];
    const step = () => Number(status.textContent.match(/Step ([0-9,]+)/)[1].replaceAll(',', ''));
    const end = step() + 1000;
    let last = performance.now();
    while (step() < end) {
        const now = await new Promise(requestAnimationFrame);
        late.push(now - last - 1000 / 60);
        last = now;
    }
    return [late, [Number(status.dataset.bytes), performance.memory.usedJSHeapSize]];
})()";

/// The page that contains the engine.
fn engine(browser: &mut Browser, page: &Path) {
    browser.view(VIEWS[0]);
    let (mut paints, mut starts) = (Vec::new(), Vec::new());
    for _ in 0..LOADS {
        browser.open(page, "");
        paints.push(paint(browser));
        let start = browser.evaluate(
            "(async () => { const began = performance.now(); document.getElementById('train').click(); \
             while (!/Step [1-9]/.test(document.getElementById('status').textContent)) \
             await new Promise(requestAnimationFrame); return performance.now() - began; })()",
        );
        starts.push(start.as_f64().expect("a number"));
    }
    println!("engine, first paint:                   {}", summary(&mut paints));
    println!("engine, click until a step is shown:   {}", summary(&mut starts));
    let found: Vec<Value> = (0..10).map(|_| browser.evaluate(TRAIN)).collect();
    let mut late: Vec<f64> = found.iter().flat_map(|part| numbers(&part[0])).collect();
    late.sort_by(f64::total_cmp);
    let share = |part: f64| late[(part * (late.len() - 1) as f64) as usize];
    println!(
        "engine, lateness of a frame: median {:.1}, of one in a hundred {:.1}, largest {:.1} ms",
        share(0.5),
        share(0.99),
        share(1.0)
    );
    let bytes = [&found[0][1], &found[9][1]];
    println!("engine, bytes of engine and page after 1,000 and 10,000 steps: {bytes:?}");
    browser.open(page, "");
    let ask =
        |browser: &mut Browser, request: Value| browser.evaluate(&format!("kit.engine({request})"));
    let start = json!({ "start": {
        "text": "the quick brown fox jumps over the lazy dog, and so on. ".repeat(400), "attention": "causal",
        "positions": "learned", "mlp": "gelu", "layers": 2, "heads": 4, "width": 120, "context": 64, "batch": 8,
        "lr": 0.001, "seed": 1,
    }});
    let parameters = ask(browser, start)["parameters"].clone();
    let mut times = Vec::new();
    for _ in 0..40 {
        let time = browser.evaluate(
            "(async () => { const began = performance.now(); await kit.engine({ train: { steps: 5 } }); \
             return (performance.now() - began) / 5; })()",
        );
        times.push(time.as_f64().expect("a number"));
    }
    println!("engine, step of {parameters} parameters on 512 tokens: {}", summary(&mut times[3..]));
    let speed = ask(browser, json!({ "speed": {} }));
    let [mut product, mut peak] = ["product", "peak"].map(|name| numbers(&speed[name]));
    let [product, peak] = [&mut product, &mut peak].map(|list| {
        list.sort_by(f64::total_cmp);
        list[list.len() / 2]
    });
    println!(
        "engine, product of 384 by 384: {product:.1} GFLOP/s, {:.0} % of the {peak:.1} of a loop of multiply-adds",
        100.0 * product / peak
    );
}

/// The time of the first paint of a page that was opened, in milliseconds.
fn paint(browser: &mut Browser) -> f64 {
    let entries = "performance.getEntriesByName('first-contentful-paint')";
    browser.until("a paint", &format!("{entries}.length === 1"));
    browser.evaluate(&format!("{entries}[0].startTime")).as_f64().expect("a number")
}

/// The median and the largest.
fn summary(times: &mut [f64]) -> String {
    times.sort_by(f64::total_cmp);
    format!("median {:6.1} ms, largest {:6.1} ms", times[times.len() / 2], times[times.len() - 1])
}

fn main() {
    println!("{}", retrograd::study::conditions::sentence());
    retrograd::study::load::warn_if_busy();
    let Some(mut browser) = Browser::start() else { return };
    if let Some(page) = std::env::var_os("RETROGRAD_WEB_PAGE") {
        return engine(&mut browser, Path::new(&page));
    }
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
            paints.push(paint(&mut browser));
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
