//! A headless Chromium that is driven by the DevTools protocol
//! (<https://chromedevtools.github.io/devtools-protocol>).
//!
//! It is found by the variable `CHROMIUM`, or in `PATH`. Where there is none, tests say so and pass, unless
//! `RETROGRAD_NEEDS_BROWSER=1` demands it. `RETROGRAD_SCREENSHOTS` is a folder for pictures of tested pages.

use crate::document::base64;
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tungstenite::{Message, WebSocket};

/// How long to wait for anything. The machine may be busy.
const PATIENCE: Duration = Duration::from_secs(120);

/// A browser with one page.
pub struct Browser {
    process: Child,
    socket: WebSocket<TcpStream>,
    last: u64,
    /// What the page has written to the console since it was opened, and requests that were blocked.
    pub console: Vec<String>,
    _profile: tempfile::TempDir,
}

/// How a page is shown.
#[derive(Clone, Copy, Debug)]
pub struct View {
    /// In pixels.
    pub width: u32,
    /// Whether the colours are dark.
    pub is_dark: bool,
}

/// All views in which pages are tested.
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
    let names = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];
    let paths = std::env::split_paths(&folders).flat_map(|f| names.map(|name| f.join(name)));
    paths.into_iter().find(|path| path.is_file())
}

impl Browser {
    /// Starts a browser; `None` if there is none and none is demanded.
    pub fn start() -> Option<Browser> {
        let Some(executable) = executable() else {
            let needed = std::env::var("RETROGRAD_NEEDS_BROWSER").is_ok_and(|v| v == "1");
            assert!(
                !needed,
                "RETROGRAD_NEEDS_BROWSER=1, but there is no chromium in PATH (hint: CHROMIUM)"
            );
            println!("SKIPPED: there is no chromium in PATH");
            return None;
        };
        let profile = tempfile::tempdir().expect("a folder for the profile");
        let mut process = Command::new(&executable)
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"])
            .args([
                "--no-first-run",
                "--disable-background-networking",
                "--remote-debugging-port=0",
            ])
            .arg("--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1")
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .arg("about:blank")
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|e| panic!("{}: {e}", executable.display()));
        let mut lines = BufReader::new(process.stderr.take().expect("piped")).lines();
        let address = lines
            .by_ref()
            .map_while(Result::ok)
            .find_map(|line| line.strip_prefix("DevTools listening on ws://").map(str::to_string));
        let address = address.expect("chromium names the address of its debugger");
        std::thread::spawn(move || lines.for_each(drop)); // so that its output is never blocked
        let host = address.split('/').next().expect("a host").to_string();
        let page = page_of(&host);
        let stream = TcpStream::connect(&host).expect("the debugger accepts a connection");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        let (socket, _) = tungstenite::client(page.as_str(), stream).expect("a web socket");
        let mut browser =
            Browser { process, socket, last: 0, console: Vec::new(), _profile: profile };
        for domain in ["Page", "Runtime", "Log", "Network", "DOM"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        Some(browser)
    }

    /// Calls a method of the protocol and returns its result.
    pub fn call(&mut self, method: &str, params: Value) -> Value {
        self.last += 1;
        let id = self.last;
        let text = json!({ "id": id, "method": method, "params": params }).to_string();
        self.socket.send(Message::text(text)).expect("the browser listens");
        loop {
            let message = self.read();
            if message["id"] == id {
                // A page that loads itself again: what was asked concerns the new one.
                let error = message["error"]["message"].as_str().unwrap_or_default();
                if error.contains("target navigated") || error.contains("Cannot find context") {
                    return self.call(method, params);
                }
                assert!(message["error"].is_null(), "{method}: {}", message["error"]);
                return message["result"].clone();
            }
        }
    }

    fn read(&mut self) -> Value {
        let message =
            self.socket.read().unwrap_or_else(|e| panic!("no answer of the browser: {e}"));
        let message: Value =
            serde_json::from_str(&message.into_text().expect("text")).expect("JSON");
        let params = &message["params"];
        let text = match message["method"].as_str() {
            Some("Runtime.consoleAPICalled") => Some(params["args"].to_string()),
            Some("Runtime.exceptionThrown") => Some(params["exceptionDetails"].to_string()),
            Some("Log.entryAdded") => Some(params["entry"]["text"].to_string()),
            Some("Network.requestWillBeSent") => {
                let url = params["request"]["url"].as_str().unwrap_or_default();
                let is_local =
                    ["file:", "about:", "data:", "blob:"].iter().any(|s| url.starts_with(s));
                (!is_local).then(|| format!("a request of {url}"))
            }
            _ => None,
        };
        self.console.extend(text);
        message
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
        self.until(
            "the page is loaded",
            "document.readyState === 'complete' && location.protocol === 'file:'",
        );
    }

    /// The value of an expression in the page.
    pub fn evaluate(&mut self, expression: &str) -> Value {
        let params =
            json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
        let result = self.call("Runtime.evaluate", params);
        assert!(
            result["exceptionDetails"].is_null(),
            "{expression}: {}",
            result["exceptionDetails"]
        );
        result["result"]["value"].clone()
    }

    /// Waits until an expression is true.
    pub fn until(&mut self, what: &str, expression: &str) {
        let start = Instant::now();
        while self.evaluate(expression) != json!(true) {
            assert!(
                start.elapsed() < PATIENCE,
                "{what}: not within {PATIENCE:?}; console: {:?}",
                self.console
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The text of an element.
    pub fn text(&mut self, selector: &str) -> String {
        let text =
            self.evaluate(&format!("document.querySelector({selector:?})?.textContent ?? null"));
        text.as_str().unwrap_or_else(|| panic!("the page has no {selector}")).to_string()
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
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The address of the page's debugger.
fn page_of(host: &str) -> String {
    let start = Instant::now();
    loop {
        let list = http_get(host, "/json/list").unwrap_or_default();
        let pages: Value = serde_json::from_str(&list).unwrap_or_default();
        let page = pages.as_array().into_iter().flatten().find(|page| page["type"] == "page");
        if let Some(address) = page.and_then(|page| page["webSocketDebuggerUrl"].as_str()) {
            return address.to_string();
        }
        assert!(start.elapsed() < PATIENCE, "chromium has opened no page: {list}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn http_get(host: &str, path: &str) -> std::io::Result<String> {
    use std::io::{Read, Write};
    let mut stream = TcpStream::connect(host)?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n")?;
    let mut reader = BufReader::new(stream);
    let mut length = 0;
    for line in reader.by_ref().lines() {
        let line = line?;
        if line.is_empty() {
            break;
        }
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().unwrap_or(0);
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    Ok(String::from_utf8_lossy(&body).into_owned())
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

/// Opens a page in all views, and lets it test itself; its console must stay empty.
pub fn check_page(path: &Path) {
    let Some(mut browser) = Browser::start() else { return };
    for view in VIEWS {
        browser.view(view);
        browser.open(path, "selftest");
        browser.until("the self-test", "document.querySelector('output#selftest') !== null");
        let result = browser.text("output#selftest");
        let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let shade = if view.is_dark { "dark" } else { "light" };
        browser.screenshot(&format!("{stem}-{}-{shade}", view.width));
        assert!(result.ends_with(" ok"), "{} in {view:?}: {result}", path.display());
        assert!(
            browser.console.is_empty(),
            "{} in {view:?}: {:?}",
            path.display(),
            browser.console
        );
    }
}
