//! Makes the page: `cargo run -p retrograd-web -- out/page.html`.
//!
//! It compiles the module for the target `wasm32-wasip1`, which `rustup target add wasm32-wasip1` installs, and embeds it.

#[cfg(not(target_family = "wasm"))]
fn main() -> Result<(), String> {
    let path = std::env::args().nth(1).unwrap_or("out/page.html".into());
    let page = page::with_module(&page::module()?).map_err(|e| e.to_string())?;
    page.write(&path).map_err(|e| e.to_string())?;
    println!("{path}: {} bytes", page.html().len());
    Ok(())
}

#[cfg(target_family = "wasm")]
fn main() {}

#[cfg(not(target_family = "wasm"))]
mod page {
    use flate2::{Compression, write::GzEncoder};
    use retrograd::nn::{AttentionKind, MlpKind, Positions};
    use retrograd::study::Page;
    use serde_json::json;
    use std::io::{self, Write};
    use std::path::PathBuf;
    use std::process::Command;
    use std::{env, fs};

    const TARGET: &str = "wasm32-wasip1";
    const TEXT: &str = include_str!("../../examples/tales.txt");
    /// Characters of the text that the page begins with.
    const LENGTH: usize = 60_000;
    /// Expressions that show something: their names and texts.
    const PROGRAMS: [(&str, &str); 5] = [
        ("a layer", "x = randn(4, 3)\nw = randn(3, 2)\nb = zeros(2)\nsum(tanh(x @ w + b)^2)"),
        ("y = (a·b + c)²", "a = 2\nb = 3\nc = -1\n(a * b + c)^2"),
        ("a variable that is used twice", "x = 1.5\ny = x * x\nz = y + y * x\nexp(-z) + z"),
        (
            "cross-entropy by hand",
            "x = [[0.5, -1, 2], [1, 0.2, 0]]\np = log_softmax(x)\n0 - mean(p * [[0, 0, 1], [1, 0, 0]])",
        ),
        (
            "attention",
            "q = randn(4, 3)\nk = randn(4, 3)\nv = randn(4, 2)\nsum((softmax(q @ t(k) / 1.732) @ v)^2)",
        ),
    ];

    /// The bytes of the compiled module.
    pub fn module() -> Result<Vec<u8>, String> {
        let cargo = env::var("CARGO").unwrap_or("cargo".into());
        let mut build = Command::new(cargo);
        build.args(["build", "--package", "retrograd-web", "--lib"]);
        build.args(["--profile", "web", "--target", TARGET]);
        // Flags of the machine are none of the module.
        build.env_remove("RUSTFLAGS").env_remove("CARGO_ENCODED_RUSTFLAGS");
        let usual = concat!(env!("CARGO_MANIFEST_DIR"), "/../target");
        let target =
            env::var_os("CARGO_TARGET_DIR").map_or_else(|| PathBuf::from(usual), PathBuf::from);
        let target =
            std::path::absolute(&target).map_err(|e| format!("{}: {e}", target.display()))?;
        build.env("CARGO_TARGET_DIR", &target).current_dir(env!("CARGO_MANIFEST_DIR"));
        if !build.status().map_err(|e| format!("cannot run cargo: {e}"))?.success() {
            return Err(format!("the module was not compiled (hint: rustup target add {TARGET})"));
        }
        let path = target.join(TARGET).join("web/retrograd_web.wasm");
        fs::read(&path).map_err(|e| format!("{}: {e}", path.display()))
    }

    /// The page with a module.
    pub fn with_module(module: &[u8]) -> io::Result<Page> {
        let mut packed = GzEncoder::new(Vec::new(), Compression::best());
        packed.write_all(module)?;
        let end = (LENGTH..).find(|&end| TEXT.is_char_boundary(end)).expect("the text is longer");
        let programs = PROGRAMS.map(|(name, text)| json!({ "name": name, "text": text }));
        let all = AttentionKind::ALL.iter();
        let own: Vec<_> =
            all.clone().filter(|kind| kind.has_positions()).map(|kind| kind.name()).collect();
        let attention = all.map(|kind| kind.name());
        let data = json!({
            "text": &TEXT[..end],
            "programs": programs,
            "parts": {
                "own_positions": own,
                "attention": attention.collect::<Vec<_>>(),
                "positions": Positions::ALL.iter().map(Positions::name).collect::<Vec<_>>(),
                "mlp": MlpKind::ALL.iter().map(MlpKind::name).collect::<Vec<_>>(),
            },
            "recipe": {
                "attention": "causal", "positions": "learned", "mlp": "gelu", "layers": 2, "heads": 2, "width": 64,
                "context": 32, "batch": 8, "lr": 0.003, "seed": 1,
            },
        });
        let page =
            Page::new("retrograd in a page", &data).style(include_str!("../assets/style.css"));
        let page = page
            .script(include_str!("../assets/engine.js"))
            .script(include_str!("../assets/page.js"));
        Ok(page.module(base64::encode(packed.finish()?)))
    }
}
