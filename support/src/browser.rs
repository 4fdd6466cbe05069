//! Pages in a headless Chromium that is driven by the DevTools protocol
//! (<https://chromedevtools.github.io/devtools-protocol>).
//!
//! It is found by the variable `CHROMIUM`, or in `PATH`. Where there is none, tests say so and pass, unless
//! `RETROGRAD_NEEDS_BROWSER=1` demands it. `RETROGRAD_SCREENSHOTS` is a folder for pictures of tested pages, in all views.

use crate::document::base64;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long to wait for anything. The machine may be busy.
const PATIENCE: Duration = Duration::from_secs(120);

/// Runs a program with a profile that is removed, and with the protocol at standard input and output. The program
/// ends when its input is closed, which happens at the latest when the process of the tests ends.
const SCRIPT: &str = r#"
    profile=$(mktemp -d)
    "$@" --user-data-dir="$profile" 3<&0 4>&1 < /dev/null > /dev/null 2>&1
    rm -rf "$profile"
"#;

const OPTIONS: [&str; 12] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--in-process-gpu",
    "--hide-scrollbars",
    "--no-first-run",
    "--disable-background-networking",
    "--host-resolver-rules=MAP * ~NOTFOUND",
    // Several pages are shown at the same time.
    "--disable-background-timer-throttling",
    "--disable-backgrounding-occluded-windows",
    "--disable-renderer-backgrounding",
    "--remote-debugging-pipe",
];

/// A lock, also after a test has failed that held it.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A browser that all tests of a process share, each with pages of its own.
struct Chromium {
    input: Mutex<ChildStdin>,
    /// Who receives the messages of a session; the browser itself has an empty name.
    receivers: Mutex<HashMap<String, Sender<Value>>>,
}

impl Chromium {
    fn start(executable: &Path) -> Arc<Chromium> {
        let mut process = Command::new("sh")
            .args(["-c", SCRIPT, "sh"])
            .arg(executable)
            .args(OPTIONS)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|e| panic!("{}: {e}", executable.display()));
        let (input, output) = (process.stdin.take(), process.stdout.take().expect("piped"));
        let input = Mutex::new(input.expect("piped"));
        let chromium = Arc::new(Chromium { input, receivers: Mutex::default() });
        let reader = chromium.clone();
        std::thread::spawn(move || {
            reader.read(output);
            process.wait()
        });
        chromium
    }

    /// Passes each message to its session. At the end of the browser, nobody receives any more.
    fn read(&self, output: ChildStdout) {
        for message in BufReader::new(output).split(0).map_while(Result::ok) {
            let message: Value = serde_json::from_slice(&message).expect("JSON");
            let session = message["sessionId"].as_str().unwrap_or_default();
            if let Some(receiver) = locked(&self.receivers).get(session) {
                // The session may have ended.
                let _ = receiver.send(message);
            }
        }
        locked(&self.receivers).clear();
    }
}

/// A connection with a page, or with the browser itself.
struct Session {
    chromium: Arc<Chromium>,
    name: String,
    last: u64,
    messages: Receiver<Value>,
}

impl Session {
    fn new(chromium: &Arc<Chromium>, name: &str) -> Session {
        let (sender, messages) = channel();
        locked(&chromium.receivers).insert(name.into(), sender);
        Session { chromium: chromium.clone(), name: name.into(), last: 0, messages }
    }

    /// Calls a method of the protocol, and returns its result or error; `see` is called with what is reported before.
    fn call(&mut self, method: &str, params: &Value, mut see: impl FnMut(&Value)) -> Value {
        self.last += 1;
        let mut call = json!({ "id": self.last, "method": method, "params": params });
        if !self.name.is_empty() {
            call["sessionId"] = json!(self.name);
        }
        let mut text = call.to_string().into_bytes();
        text.push(0);
        locked(&self.chromium.input).write_all(&text).expect("the browser listens");
        loop {
            let message = self.messages.recv_timeout(PATIENCE);
            let message = message.unwrap_or_else(|e| panic!("no answer of the browser: {e}"));
            if message["id"] == self.last {
                return message;
            }
            see(&message);
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        locked(&self.chromium.receivers).remove(&self.name);
    }
}

/// The session of the browser itself, if there is a browser.
static CHROMIUM: LazyLock<Option<Mutex<Session>>> = LazyLock::new(|| {
    let executable = executable()?;
    Some(Mutex::new(Session::new(&Chromium::start(&executable), "")))
});

/// Calls a method of the browser itself.
fn call_browser(browser: &Mutex<Session>, method: &str, params: Value) -> Value {
    let answer = locked(browser).call(method, &params, |_| ());
    assert!(answer["error"].is_null(), "{method}: {}", answer["error"]);
    answer["result"].clone()
}

/// A page in a browser. All pages of a process are in one browser, and share nothing else.
pub struct Browser {
    session: Session,
    /// The name of its part of the browser, with own storage and processes.
    context: Value,
    /// For files of pages.
    folder: tempfile::TempDir,
    /// What the page has written to the console since it was opened, and requests that were blocked.
    pub console: Vec<String>,
}

/// How a page is shown.
#[derive(Clone, Copy, Debug)]
pub struct View {
    /// In pixels.
    pub width: u32,
    /// Whether the colours are dark.
    pub is_dark: bool,
}

/// All views of pages.
pub const VIEWS: [View; 6] = [
    View { width: 1440, is_dark: false },
    View { width: 1440, is_dark: true },
    View { width: 900, is_dark: false },
    View { width: 900, is_dark: true },
    View { width: 400, is_dark: false },
    View { width: 400, is_dark: true },
];

fn executable() -> Option<PathBuf> {
    if let Some(path) = std::env::var_os("CHROMIUM") {
        return Some(path.into());
    }
    let folders = std::env::var_os("PATH")?;
    // The first one has no windows, and takes half of the time of the others.
    let shell = "chromium-headless-shell";
    let names = [shell, "chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];
    let paths = std::env::split_paths(&folders).flat_map(|f| names.map(|name| f.join(name)));
    paths.into_iter().find(|path| path.is_file())
}

impl Browser {
    /// An empty page in the first one of [`VIEWS`]; `None` if there is no browser and none is demanded.
    pub fn start() -> Option<Browser> {
        let Some(browser) = &*CHROMIUM else {
            let needed = std::env::var("RETROGRAD_NEEDS_BROWSER").is_ok_and(|v| v == "1");
            assert!(
                !needed,
                "RETROGRAD_NEEDS_BROWSER=1, but there is no chromium in PATH (hint: CHROMIUM)"
            );
            println!("SKIPPED: there is no chromium in PATH");
            return None;
        };
        let context = call_browser(browser, "Target.createBrowserContext", json!({}));
        let context = context["browserContextId"].clone();
        let page = json!({ "url": "about:blank", "browserContextId": context, "newWindow": true });
        let page = call_browser(browser, "Target.createTarget", page)["targetId"].clone();
        let page = json!({ "targetId": page, "flatten": true });
        let session = call_browser(browser, "Target.attachToTarget", page)["sessionId"].clone();
        let session = Session::new(&locked(browser).chromium, session.as_str().expect("a name"));
        let folder = tempfile::tempdir().expect("a folder");
        let mut browser = Browser { session, context, folder, console: Vec::new() };
        for domain in ["Page", "Runtime", "Log", "Network", "DOM"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        browser.call("Emulation.setFocusEmulationEnabled", json!({ "enabled": true }));
        browser.view(VIEWS[0]);
        Some(browser)
    }

    /// Calls a method of the protocol and returns its result.
    pub fn call(&mut self, method: &str, params: Value) -> Value {
        loop {
            let console = &mut self.console;
            let answer =
                self.session.call(method, &params, |event| console.extend(reported(event)));
            // A page that loads itself again: what was asked concerns the new one.
            let error = answer["error"]["message"].as_str().unwrap_or_default();
            if !error.contains("target navigated") && !error.contains("Cannot find context") {
                assert!(answer["error"].is_null(), "{method}: {}", answer["error"]);
                return answer["result"].clone();
            }
        }
    }

    /// Shows the page in another width and in light or dark colours.
    pub fn view(&mut self, View { width, is_dark }: View) {
        let metrics =
            json!({ "width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false });
        self.call("Emulation.setDeviceMetricsOverride", metrics);
        let scheme = if is_dark { "dark" } else { "light" };
        let features = json!([
            { "name": "prefers-color-scheme", "value": scheme },
            { "name": "prefers-reduced-motion", "value": "reduce" },
        ]);
        self.call("Emulation.setEmulatedMedia", json!({ "features": features }));
    }

    /// Opens a file, with the part of the address after `#`.
    pub fn open(&mut self, path: &Path, hash: &str) {
        self.console.clear();
        self.call("Page.navigate", json!({ "url": "about:blank" }));
        let path = path.canonicalize().expect("the page exists");
        let url = format!("file://{}#{hash}", path.display());
        self.call("Page.navigate", json!({ "url": url }));
        let is_loaded = "document.readyState === 'complete' && location.protocol === 'file:'";
        self.until("the page is loaded", is_loaded);
    }

    /// Writes a page to a file, and opens it with the part of the address after `#`; returns the file, which is removed
    /// with the browser.
    pub fn show(&mut self, html: &str, hash: &str) -> PathBuf {
        let path = self.folder.path().join("page.html");
        fs::write(&path, html).expect("a file");
        self.open(&path, hash);
        path
    }

    /// Lets a page test itself, and returns the result.
    pub fn self_test(&mut self, path: &Path) -> String {
        self.open(path, "selftest");
        self.until("the self-test", "document.querySelector('output#selftest') !== null");
        self.text("output#selftest")
    }

    /// The value of an expression in the page.
    pub fn evaluate(&mut self, expression: &str) -> Value {
        let params =
            json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
        let result = self.call("Runtime.evaluate", params);
        let thrown = &result["exceptionDetails"];
        assert!(thrown.is_null(), "{expression}: {thrown}");
        result["result"]["value"].clone()
    }

    /// Waits until an expression is true.
    pub fn until(&mut self, what: &str, expression: &str) {
        let start = Instant::now();
        let mut pause = 1;
        while self.evaluate(expression) != json!(true) {
            assert!(
                start.elapsed() < PATIENCE,
                "{what}: not within {PATIENCE:?}; console: {:?}",
                self.console
            );
            std::thread::sleep(Duration::from_millis(pause));
            pause = (2 * pause).min(20);
        }
    }

    /// The text of an element.
    pub fn text(&mut self, selector: &str) -> String {
        let text =
            self.evaluate(&format!("document.querySelector({selector:?})?.textContent ?? null"));
        text.as_str().unwrap_or_else(|| panic!("the page has no {selector}")).to_string()
    }

    /// Checks that the text of an element contains all these.
    #[track_caller]
    pub fn says(&mut self, selector: &str, wanted: &[&str]) {
        let text = self.text(selector);
        for wanted in wanted {
            assert!(text.contains(wanted), "{wanted:?} is not in {text:?}");
        }
    }

    /// Presses a key: `ArrowRight`, `Enter`, `Tab`.
    pub fn press(&mut self, key: &str) {
        for kind in ["rawKeyDown", "keyUp"] {
            let code = match key {
                "ArrowLeft" => 37,
                "ArrowUp" => 38,
                "ArrowRight" => 39,
                "ArrowDown" => 40,
                "End" => 35,
                "Home" => 36,
                "Enter" => 13,
                "Tab" => 9,
                "Escape" => 27,
                " " => 32,
                _ => 0,
            };
            let params =
                json!({ "type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code });
            self.call("Input.dispatchKeyEvent", params);
        }
    }

    /// Presses the mouse at a place, moves it to another one, and releases it there.
    pub fn drag(&mut self, from: (f64, f64), to: (f64, f64)) {
        let mut at = |kind: &str, (x, y): (f64, f64)| {
            let params = json!({ "type": kind, "x": x, "y": y, "button": "left", "clickCount": 1 });
            self.call("Input.dispatchMouseEvent", params);
        };
        at("mouseMoved", from);
        at("mousePressed", from);
        for i in 1..=4 {
            let part = |a: f64, b: f64| a + (b - a) * f64::from(i) / 4.0;
            at("mouseMoved", (part(from.0, to.0), part(from.1, to.1)));
        }
        at("mouseReleased", to);
    }

    /// The left, top, width and height of an element in the window.
    pub fn place(&mut self, selector: &str) -> [f64; 4] {
        // Charts are drawn before the next frame, and move what is below them.
        self.evaluate(
            "(async () => { for (let i = 0; i < 3; i++) \
             await new Promise(done => { requestAnimationFrame(done); setTimeout(done, 60); }); })()",
        );
        let rect = self.evaluate(&format!(
            "(e => {{ e.scrollIntoView({{ block: 'center' }}); const r = e.getBoundingClientRect(); \
             return [r.left, r.top, r.width, r.height]; }})(document.querySelector({selector:?}))"
        ));
        std::array::from_fn(|i| {
            rect[i].as_f64().unwrap_or_else(|| panic!("no place of {selector}"))
        })
    }

    /// Clicks the middle of an element.
    pub fn click(&mut self, selector: &str) {
        let [left, top, width, height] = self.place(selector);
        let middle = (left + width / 2.0, top + height / 2.0);
        self.drag(middle, middle);
    }

    /// Gives files to an input element.
    pub fn choose_file(&mut self, selector: &str, path: &Path) {
        let root = self.call("DOM.getDocument", json!({}))["root"]["nodeId"].clone();
        let found = self.call("DOM.querySelector", json!({ "nodeId": root, "selector": selector }));
        let params = json!({ "nodeId": found["nodeId"], "files": [path] });
        self.call("DOM.setFileInputFiles", params);
    }

    /// Drags a file from another program to an element, and drops it there.
    pub fn drop_file(&mut self, selector: &str, path: &Path) {
        let [left, top, width, height] = self.place(selector);
        let data = json!({ "items": [], "files": [path], "dragOperationsMask": 1 });
        for kind in ["dragEnter", "dragOver", "drop"] {
            let (x, y) = (left + width / 2.0, top + height / 2.0);
            let params = json!({ "type": kind, "x": x, "y": y, "data": data });
            self.call("Input.dispatchDragEvent", params);
        }
    }

    /// Writes a picture of the window, if `RETROGRAD_SCREENSHOTS` is set.
    pub fn screenshot(&mut self, name: &str) {
        let Some(folder) = std::env::var_os("RETROGRAD_SCREENSHOTS") else { return };
        // What stays at an edge of the window would be in the middle of the picture.
        self.evaluate(
            "for (const e of document.querySelectorAll('*')) \
             if (getComputedStyle(e).position === 'sticky') e.style.position = 'static'",
        );
        let params = json!({ "format": "png", "captureBeyondViewport": true });
        let picture = self.call("Page.captureScreenshot", params);
        let picture = base64(picture["data"].as_str().expect("a picture"));
        fs::create_dir_all(&folder).expect("a folder for pictures");
        fs::write(Path::new(&folder).join(format!("{name}.png")), picture).expect("a picture");
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        if let Some(browser) = &*CHROMIUM {
            let context = json!({ "browserContextId": self.context });
            call_browser(browser, "Target.disposeBrowserContext", context);
        }
    }
}

/// What an event says of the console or of a request that was blocked.
fn reported(event: &Value) -> Option<String> {
    let params = &event["params"];
    match event["method"].as_str()? {
        "Runtime.consoleAPICalled" => Some(params["args"].to_string()),
        "Runtime.exceptionThrown" => Some(params["exceptionDetails"].to_string()),
        "Log.entryAdded" => Some(params["entry"]["text"].to_string()),
        "Network.requestWillBeSent" => {
            let url = params["request"]["url"].as_str().unwrap_or_default();
            let is_local = ["file:", "about:", "data:", "blob:"].iter().any(|s| url.starts_with(s));
            (!is_local).then(|| format!("a request of {url}"))
        }
        _ => None,
    }
}

/// A file that is removed with its folder.
pub struct File(pub tempfile::TempDir, pub PathBuf);

/// A page in a file of its own.
pub fn written(name: &str, html: &str) -> File {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join(format!("{name}.html"));
    fs::write(&path, html).expect("a file");
    File(folder, path)
}

/// The texts that have a contrast of less than 4.5 to 1 to the background behind them (WCAG 2.2), as they are
/// drawn. Texts of pictures are not among them.
pub fn low_contrasts(browser: &mut Browser) -> Vec<String> {
    const SCRIPT: &str = "(() => {
        const numbers = color => (color.match(/[\\d.]+/g) ?? []).map(Number);
        const luminance = c => c.slice(0, 3).map(x => x / 255).map(x => x <= .04045 ? x / 12.92 : ((x + .055) / 1.055) ** 2.4)
            .reduce((sum, x, i) => sum + x * [.2126, .7152, .0722][i], 0);
        const isOpaque = c => c.length === 3 || c[3] === 1;
        function behind(e) {
            for (; e; e = e.parentElement) {
                const c = numbers(getComputedStyle(e).backgroundColor);
                if (isOpaque(c)) return c;
            }
            return [255, 255, 255];
        }
        const found = new Map(), walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
        let texts = 0;
        for (let node; (node = walker.nextNode());) {
            const e = node.parentElement;
            if (!node.data.trim() || e.closest('svg, script, style, noscript') || !e.checkVisibility()) continue;
            texts++;
            const text = numbers(getComputedStyle(e).color), [a, b] = [text, behind(e)].map(luminance);
            const ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
            if (!(ratio >= 4.5)) found.set(`${ratio.toFixed(2)} to 1: ${text} on ${behind(e)}`, node.data.trim().slice(0, 40));
        }
        if (texts < 20) found.set('there are only few texts', String(texts));
        return [...found].map(([why, text]) => `${why}, as in “${text}”`);
    })()";
    serde_json::from_value(browser.evaluate(SCRIPT)).expect("a list of texts")
}

/// Lets a page test itself in one of the views, which depends on its name, or in all views if pictures are asked for; its
/// console must stay empty.
pub fn check_page(path: &Path) {
    let Some(mut browser) = Browser::start() else { return };
    let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let pictures = std::env::var_os("RETROGRAD_SCREENSHOTS").is_some();
    // FNV-1a.
    let hash =
        stem.bytes().fold(0u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    let view = (hash >> 8) as usize % VIEWS.len();
    for &view in if pictures { &VIEWS[..] } else { &VIEWS[view..=view] } {
        browser.view(view);
        let result = browser.self_test(path);
        let shade = if view.is_dark { "dark" } else { "light" };
        browser.screenshot(&format!("{stem}-{}-{shade}", view.width));
        let (page, console) = (path.display(), &browser.console);
        assert!(result.ends_with(" ok"), "{page} in {view:?}: {result}");
        assert!(console.is_empty(), "{page} in {view:?}: {console:?}");
    }
}

/// [`check_page`] of a page that is not in a file, and has this name.
pub fn check_html(name: &str, html: &str) {
    let File(_folder, path) = &written(name, html);
    check_page(path);
}
