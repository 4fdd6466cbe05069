//! A page: its data, and the script that draws it, in one file.

use retrograd_nn::replacing::{create_like, temporary_path};
use serde::Serialize;
use std::fs;
use std::io::{self, Write};
use std::path::Path;

const KIT_STYLE: &str = include_str!("../assets/kit.css");
const KIT_SCRIPT: &str = include_str!("../assets/kit.js");
const SEARCH_SCRIPT: &str = include_str!("../assets/search.js");

/// An HTML file that contains data and the script that draws it.
///
/// The script calls `kit.start(draw)`, where `draw(data)` returns the elements of the page. The address
/// `page.html#selftest` makes the page test itself and append the result to the document.
///
/// ```
/// use retrograd::study::Page;
///
/// let page = Page::new("Two numbers", &[1.0, f64::NAN])
///     .script("kit.start(data => kit.page('Two numbers', '', [kit.h('p', {}, data.join(' and '))]));");
/// assert!(page.html().contains("[1.0,null]")); // JSON has no NaN
/// ```
#[derive(Clone, Debug)]
pub struct Page {
    title: String,
    data: Result<String, String>,
    styles: Vec<&'static str>,
    scripts: Vec<&'static str>,
    module: Option<String>,
}

impl Page {
    /// A page with a title and data, which its script gets as `data`. Numbers that are not finite become
    /// `null`.
    pub fn new<D: Serialize + ?Sized>(title: &str, data: &D) -> Page {
        let data = serde_json::to_string(data).map_err(|e| e.to_string());
        let (styles, scripts) = (vec![KIT_STYLE], vec![KIT_SCRIPT, SEARCH_SCRIPT]);
        Page { title: title.to_string(), data, styles, scripts, module: None }
    }

    /// Adds a style sheet.
    pub fn style(mut self, css: &'static str) -> Page {
        self.styles.push(css);
        self
    }

    /// Adds a script, without its lines that are comments; no other line may begin with `//`. Scripts run in the order in
    /// which they were added.
    pub fn script(mut self, js: &'static str) -> Page {
        self.scripts.push(js);
        self
    }

    /// Embeds a module of WebAssembly, whose text (base64, say) is that of the element `module`. The page may run it, in
    /// workers, too, and show pages that it makes in frames.
    pub fn module(mut self, text: String) -> Page {
        self.module = Some(text);
        self
    }

    /// The document.
    ///
    /// # Panics
    /// If the data cannot be represented in JSON: a map whose keys are not strings.
    pub fn html(&self) -> String {
        let data = self.data.as_ref().unwrap_or_else(|why| panic!("Page::html: {why}"));
        let mut html = String::with_capacity(data.len() + 100_000);
        html += "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n";
        html += "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n";
        // Nothing is loaded, from anywhere.
        let (modules, workers) = match self.module {
            Some(_) => (" 'wasm-unsafe-eval' blob:", "; worker-src blob:"),
            None => ("", ""),
        };
        html += &format!(
            "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; script-src \
             'unsafe-inline'{modules}; style-src 'unsafe-inline'; img-src data: blob:{workers}\">\n"
        );
        html += &format!("<title>{}</title>\n", escaped_text(&self.title));
        for style in &self.styles {
            html += &format!("<style>\n{style}</style>\n");
        }
        html += "</head>\n<body>\n<noscript>This page is drawn by its script. Scripts are disabled in this \
                 browser.</noscript>\n";
        html += "<script type=\"application/json\" id=\"data\">";
        html += &escaped_json(data);
        html += "</script>\n";
        if let Some(module) = &self.module {
            html += &format!("<script type=\"text/plain\" id=\"module\">{module}</script>\n");
        }
        for script in &self.scripts {
            html += "<script>\n";
            // Comments are for readers of the repository.
            for line in script.lines().filter(|line| !line.trim_start().starts_with("//")) {
                html += line;
                html += "\n";
            }
            html += "</script>\n";
        }
        html += "</body>\n</html>\n";
        html
    }

    /// Writes the document to a file, which at every moment contains either its old or its new content.
    ///
    /// # Errors
    /// If the file cannot be written; the message names it.
    pub fn write(&self, path: impl AsRef<Path>) -> io::Result<()> {
        replace(path.as_ref(), self.html().as_bytes())
    }
}

/// Writes a file by renaming a complete one, so that readers never see a part of it. A loss of power may
/// lose the file, which is no loss: a program can make the page again.
fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let partial = temporary_path(path, ".", ".partial");
    let written = create_like(&partial, path)
        .and_then(|mut file| file.write_all(content))
        .and_then(|()| fs::rename(&partial, path));
    written.map_err(|e| {
        // What is left of a failed attempt is of no use; that it cannot be removed, neither.
        let _ = fs::remove_file(&partial);
        io::Error::new(e.kind(), format!("{}: {e}", path.display()))
    })
}

/// Text between tags.
fn escaped_text(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// JSON that contains neither a tag nor the beginning of a comment.
fn escaped_json(json: &str) -> String {
    json.replace('<', "\\u003c")
}
