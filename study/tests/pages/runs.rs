//! Pages of training runs: what is in them, and that they pass their tests in a browser.

use retrograd_study::{Baselines, HeadLook, RunLook, RunPage, RunStatus, RunStep, compare_runs};
use retrograd_support::browser::{Browser, check_html};
use retrograd_support::document::{around_data, data, numbers};
use serde_json::json;
use std::fs;

/// The least that a page has to be smaller than.
const BYTES: usize = 3_000_000;

/// A causal head of `n` tokens, that looks at a token some places before.
fn head(n: usize, distance: usize) -> HeadLook {
    let weight = |i: usize, j: usize| match j {
        j if j > i => 0.0,
        j if j == i.saturating_sub(distance) => 0.7,
        _ => 0.3 / i.max(1) as f32,
    };
    let weights: Vec<f32> = (0..n * n).map(|k| weight(k / n, k % n)).collect();
    HeadLook::new(&weights, n)
}

/// A run of so many steps with an evaluation and a look every `every` steps, on `layers` layers.
fn run(title: &str, steps: u64, every: u64, layers: Vec<usize>) -> RunPage {
    let pair = |name: &str, value: &str| (name.to_string(), value.to_string());
    let tokens = ["Once", " upon", " a", " <time>", "\n", "שלום", "🦀", " end"];
    let parts: Vec<String> = (0..12).map(|i| format!("h.{}.attn.c_attn_{i}", i / 4)).collect();
    let heads: usize = layers.iter().sum();
    let mut page = RunPage::new(title)
        .planned(steps, 1024)
        .recipe(
            vec![pair("lr", "0.02"), pair("steps", "9")],
            Some(("tales", vec![pair("lr", "0.01"), pair("steps", "9")])),
        )
        .baselines(Baselines { uniform: 4.2, unigram: 3.3, bigram: 2.5 })
        .clip(1.0)
        .flops(3e9)
        .looks_at(tokens.map(String::from).to_vec(), "Once </script>", parts, layers.clone());
    page.fact("text", "words");
    page.peak(1e11);
    page.event(0, "start", "The program started.");
    let look = |step: u64| {
        // Before the first step there is no gradient, and the learning rate of the last one is 0.
        let observed = if step == 0 { 0..0 } else { 0..12 };
        let rate = if step < steps { 1e-5 } else { 0.0 };
        let update = |i| Some(rate * 10f64.powf(f64::from(i) / 3.0)).filter(|_| i != 5);
        RunLook {
            step,
            sample: format!(" upon a time, {step}\n\"<b>Good</b>\" 🦊"),
            heads: (0..heads).map(|i| head(tokens.len(), i)).collect(),
            grad_norms: observed.clone().map(|i| Some(0.1 * f64::from(i))).collect(),
            updates: observed.map(update).collect(),
            scales: (0..layers.len()).map(|i| Some(1.0 + i as f64).filter(|_| i != 7)).collect(),
        }
    };
    page.evaluation(0, 4.2);
    page.look(look(0));
    for step in 1..=steps {
        let x = step as f64 / steps as f64;
        let noise = (step as f64 * 12.9898).sin() * 0.1;
        let loss = 1.5 + 2.7 * (-8.0 * x).exp() + noise;
        let spike = if step == steps / 3 + 1 { 50.0 } else { 0.0 };
        page.step(RunStep {
            step,
            loss: loss + spike,
            lr: 0.02 * (1.0 - x),
            grad_norm: 0.5 + x,
            seconds: 0.05 * (1.0 + noise),
        });
        if step % every == 0 {
            page.evaluation(step, loss - noise + 0.05);
            page.look(look(step));
            page.memory(step, 2_200_000, 40_000_000 + step as usize);
        }
    }
    page
}

#[test]
fn a_million_steps_fit_into_three_megabytes() {
    // An evaluation every 250 steps, with a look at 12 layers of 12 heads.
    let page = run("a million", 1_000_000, 250, vec![12; 12]);
    let html = page.page().html();
    assert!(html.len() < BYTES, "{} bytes", html.len());
    let data = data(&html);
    let series = &data["series"];
    let steps = numbers(&series["step"]);
    assert!((1000..=2000).contains(&steps.len()), "{} points", steps.len());
    assert!(steps.is_sorted() && *steps.last().unwrap() > 999_000.0);
    // The only step with a large loss, and the extremes of the others.
    let high = numbers(&series["loss"]["high"]);
    assert_eq!(high.iter().filter(|&&x| x > 40.0).count(), 1);
    assert!(high.iter().copied().fold(0.0, f64::max) > 51.4);
    let (low, mean) = (numbers(&series["loss"]["low"]), numbers(&series["loss"]["mean"]));
    for i in 0..steps.len() {
        assert!(low[i] <= mean[i] && mean[i] <= high[i], "point {i}");
    }
    assert!((1000..=2000).contains(&numbers(&data["evaluations"]["step"]).len()));
    let peak = numbers(&data["memory"]["peak"]);
    assert!((1000..=2000).contains(&peak.len()) && peak.last() == Some(&41_000_000.0), "{peak:?}");
    let looks = data["looks"]["at"].as_array().unwrap();
    assert!((50..=200).contains(&looks.len()), "{} looks", looks.len());
    let at: Vec<u64> = looks.iter().map(|look| look["step"].as_u64().unwrap()).collect();
    assert_eq!((at[0], at.last()), (0, Some(&1_000_000)));
    // They are spread evenly.
    let gaps: Vec<u64> = at.windows(2).map(|w| w[1] - w[0]).collect();
    assert!(gaps.iter().max().unwrap() <= &(2 * gaps.iter().min().unwrap() + 250), "{gaps:?}");
    // What is left out is said.
    assert!(data["left_out"].as_array().unwrap().len() >= 2, "{}", data["left_out"]);
}

/// A process that writes the page again and again is killed at different moments.
#[cfg(unix)]
#[test]
fn a_killed_writer_leaves_a_whole_page() {
    use std::process::{Command, Stdio};
    use std::time::{Duration, Instant};
    const PATH: &str = "RETROGRAD_TEST_WRITES_PAGES";
    if let Some(path) = std::env::var_os(PATH) {
        let pages = [400, 40].map(|steps| run("killed", steps, 10, vec![6; 6]).page());
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(60) {
            pages.iter().for_each(|page| page.write(&path).unwrap());
        }
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.html");
    let mut lengths = Vec::new();
    for round in 0..12 {
        let _ = fs::remove_file(&path);
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "runs::a_killed_writer_leaves_a_whole_page"])
            .env(PATH, &path)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let start = Instant::now();
        while !path.exists() {
            assert!(start.elapsed() < Duration::from_secs(60), "no page was written");
            assert!(child.try_wait().unwrap().is_none(), "the writer has ended");
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_micros(3700 * round));
        child.kill().unwrap();
        child.wait().unwrap();
        let html = fs::read_to_string(&path).unwrap();
        assert!(html.starts_with("<!doctype html>") && html.ends_with("</html>\n"));
        let step = data(&html)["step"].as_u64().unwrap();
        assert!(step == 400 || step == 40, "{step}");
        lengths.push(html.len());
    }
    assert!(lengths.iter().all(|&n| n > 100_000), "{lengths:?}");
}

#[test]
fn short_runs_have_every_step() {
    let page = run("short", 60, 10, vec![2, 2]);
    let data = data(&page.page().html());
    assert_eq!(numbers(&data["series"]["step"]), (1..=60).map(f64::from).collect::<Vec<_>>());
    assert!(data["series"]["loss"].get("low").is_none());
    assert_eq!(numbers(&data["evaluations"]["step"]), [0., 10., 20., 30., 40., 50., 60.]);
    // A twentieth of a second for 3 GFLOP, of 100 GFLOP/s.
    let mean = |name: &str| numbers(&data["series"][name]["mean"]);
    for (used, seconds) in mean("utilisation").iter().zip(mean("step_seconds")) {
        assert!((used - 3e9 / seconds / 1e11).abs() < 1e-4, "{used} in {seconds} s");
    }
    assert_eq!(data["recipe"]["rows"][0], json!(["lr", "0.02", "0.01"]));
    assert_eq!(data["levels"]["unigram"], 3.3);
    assert_eq!(data["events"][1], json!([60, "best", "Lowest held-out loss so far: 1.5509."]));
    let clipped = numbers(&data["clipped"]);
    assert_eq!(clipped.iter().sum::<f64>(), 30.0); // 0.5 + x > 1
}

#[test]
fn the_file_is_small_whatever_is_in_it() {
    let long = "<".repeat(100_000);
    let (tokens, parts) = (vec![long.clone(); 9], vec![long.clone(); 48]);
    let mut page = RunPage::new(&long).looks_at(tokens, &long, parts, vec![100; 100]);
    for i in 0..500 {
        page.event(i, &long, &long);
        page.fact(&format!("{i}"), &long);
        let heads = vec![head(36, 1); 1000];
        page.look(RunLook { step: i, sample: long.clone(), heads, ..RunLook::default() });
    }
    let html = page.page().html();
    // Beside the title, which is there as it was given.
    assert!(html.len() < BYTES + 4 * long.len(), "{} bytes", html.len());
    let runs: Vec<RunPage> = (0..30).map(|i| run(&i.to_string(), 5000, 10, vec![3; 3])).collect();
    let html = compare_runs("thirty", &runs, &[], None).html();
    assert!(html.len() < BYTES, "{} bytes", html.len());
}

#[test]
fn pages_of_runs_pass_their_tests() {
    let mut running = run("running", 40, 10, vec![1]);
    running.status(RunStatus::Running { every: 30.0 });
    let mut stopped =
        run("a/long/path/to/the/folder/of/a/run/with/a/name/that/does/not/end", 40, 5, vec![6; 6]);
    let how = "Stopped after step 40. To resume: retrograd resume";
    stopped.status(RunStatus::Interrupted(how.into()));
    let mut failed = RunPage::new("failed");
    failed.evaluation(0, 4.0);
    failed.event(3, "diverged", "the loss is NaN");
    failed.status(RunStatus::Failed("the loss is NaN".into()));
    let mut odd = RunPage::new("odd");
    for step in 1..=3 {
        odd.step(RunStep { step, loss: f64::NAN, lr: 0.0, grad_norm: f64::INFINITY, seconds: 0.0 });
    }
    let notes = ["x is left out: it is not a folder.".into()];
    let pages = [
        ("empty", RunPage::new("</script><b>empty").page()),
        ("million", run("a million", 1_000_000, 1000, vec![12; 12]).page()),
        ("running", running.page()),
        ("stopped", stopped.page()),
        ("failed", failed.page()),
        ("odd", odd.page()),
        ("compared", compare_runs("Three", &[running, stopped, failed], &notes, None)),
    ];
    for (name, page) in pages {
        check_html(name, &page.html());
    }
}

#[test]
fn a_page_loads_itself_again_and_keeps_its_state() {
    let Some(mut browser) = Browser::start() else { return };
    // Its timers do something when they are told to, and not before.
    let timers = "{ globalThis.timers = []; globalThis.setInterval = (f, time) => timers.push([f, time]); \
                  globalThis.later = 0; const now = Date.now; Date.now = () => now() + later; }";
    browser.call("Page.addScriptToEvaluateOnNewDocument", json!({ "source": timers }));
    let mut page = run("running", 60, 10, vec![2, 2]);
    page.status(RunStatus::Running { every: 1.0 });
    let path = &browser.show(&page.page().html(), "x=tokens&look=20&help=loss&theme=dark");
    browser.evaluate("window.isOld = true");
    let look = "document.querySelector('#looks input[type=range]').value";
    assert_eq!(browser.evaluate(look), "2");
    // A slider moves by keys, and the address has its place.
    browser.evaluate("document.querySelector('#looks input[type=range]').focus()");
    browser.press("ArrowRight");
    browser.until("a new address", "location.hash.includes('look=30')");
    // Meanwhile the run goes on.
    let mut later = run("running", 90, 10, vec![2, 2]);
    later.status(RunStatus::Running { every: 1.0 });
    later.write(path).unwrap();
    browser.evaluate("later = 2000; timers.filter(t => t[1] === 3000).forEach(t => t[0]())");
    let is_new = "window.isOld === undefined && document.readyState === 'complete' && \
                  document.querySelector('.status') !== null";
    browser.until("a reload", is_new);
    assert!(browser.text(".status").contains("Running: step 90 of 90"));
    assert_eq!(browser.evaluate(look), "3");
    let hash = browser.evaluate("location.hash");
    for part in ["x=tokens", "look=30", "help=loss", "theme=dark"] {
        assert!(hash.as_str().unwrap().contains(part), "{part} is not in {hash}");
    }
    assert_eq!(browser.evaluate("document.querySelector('#help-loss').hidden"), false);
    assert_eq!(browser.evaluate("document.documentElement.dataset.theme"), "dark");
    // At the end it stays.
    later.status(RunStatus::Finished);
    later.write(path).unwrap();
    browser.evaluate("later = 2000; timers.filter(t => t[1] === 3000).forEach(t => t[0]())");
    browser.until("the end", "document.querySelector('.status')?.dataset.state === 'finished'");
    assert_eq!(browser.evaluate("timers.length"), 0);
    assert!(browser.console.is_empty(), "{:?}", browser.console);
}

#[test]
fn a_drag_enlarges_a_range_and_escape_shows_all() {
    let Some(mut browser) = Browser::start() else { return };
    let path = &browser.show(&run("zoom", 100, 10, vec![2]).page().html(), "");
    browser.until("a chart", "document.querySelector('#loss svg') !== null");
    let texts = "[...document.querySelectorAll('#loss svg text')].map(t => Number(t.textContent))";
    let ticks = |browser: &mut Browser| {
        numbers(&browser.evaluate(&format!("{texts}.filter(x => x >= 20)")))
    };
    let all = ticks(&mut browser);
    assert_eq!((all[0], all.last()), (20.0, Some(&100.0)), "{all:?}");
    let [left, top, width, height] = browser.place("#loss svg");
    let at = |part: f64| (left + part * width, top + height / 2.0);
    browser.drag(at(0.5), at(0.75));
    browser.until("a range in the address", "location.hash.includes('zoom=')");
    let shown = ticks(&mut browser);
    assert!(shown.len() > 2 && shown.iter().all(|x| (40.0..80.0).contains(x)), "{shown:?}");
    // It is there when the page is opened again, and Escape shows all.
    let hash = browser.evaluate("location.hash.slice(1)").as_str().unwrap().to_string();
    browser.open(path, &hash);
    browser.until("a chart", "document.querySelector('#loss svg') !== null");
    assert_eq!(ticks(&mut browser), shown);
    browser.evaluate("document.querySelector('#loss svg').focus()");
    browser.press("Escape");
    browser.until("no range in the address", "!location.hash.includes('zoom=')");
    assert_eq!(ticks(&mut browser), all);
    assert!(browser.console.is_empty(), "{:?}", browser.console);
}

#[test]
fn a_killed_run_says_so() {
    let Some(mut browser) = Browser::start() else { return };
    let mut page = run("killed", 60, 10, vec![2]);
    page.status(RunStatus::Running { every: 30.0 });
    let html = page.page().html();
    let (before, rest) = html.split_once("\"written\":").unwrap();
    let (written_at, after) = rest.split_once(|c: char| !c.is_ascii_digit() && c != '.').unwrap();
    let hour_ago = written_at.parse::<f64>().unwrap() - 3_600_000.0;
    let separator = &rest[written_at.len()..=written_at.len()];
    let html = format!("{before}\"written\":{hour_ago}{separator}{after}");
    browser.show(&html, "");
    let ended = "This run ended without a last word, at or after step 60";
    browser.says(".status", &[ended, "1 h 00 min ago"]);
    browser.says("#events", &["The program started."]);
}

#[test]
fn damaged_pages_of_runs_say_so() {
    let Some(mut browser) = Browser::start() else { return };
    let html = run("damaged", 20, 10, vec![2]).page().html();
    let (before, data, after) = around_data(&html);
    let with_data = |data: &str| format!("{before}{data}{after}");
    let without_recipe = data.replacen("\"recipe\":{", "\"recipe\":null,\"other\":{", 1);
    let cases = [
        (with_data(&data[..data.len() / 2]), "damaged or incomplete"),
        (with_data(&data.replacen("\"run\":1", "\"run\":9", 1)), "newer version"),
        (with_data("null"), "not that of a training run"),
        (with_data("{\"compare\":1}"), "not that of training runs"),
        // A part that is missing leaves the others.
        (with_data(&without_recipe), "This part cannot be shown"),
    ];
    for (html, wanted) in cases {
        browser.show(&html, "");
        browser.says("body", &[wanted, "cannot be shown"]);
    }
}
