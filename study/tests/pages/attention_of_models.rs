//! Pages of the attention explorer from models, in a browser.

use retrograd_nn::optim::{AdamConfig, AdamW, Optimizer};
use retrograd_nn::{AttentionKind, Gpt, GptConfig, Pass, Positions, RopeConfig};
use retrograd_study::{AttentionExplorer, ExplorerText};
use retrograd_support::browser::{Browser, check_page};
use retrograd_tensor::Tensor;
use retrograd_tensor::random::Rng;

const LENGTH: usize = 24;

fn config(layers: usize, kind: AttentionKind) -> GptConfig {
    let (heads, width) = (4, 32);
    let config =
        GptConfig { vocab: 12, context: LENGTH, layers, heads, width, ..GptConfig::default() };
    config.with_attention(kind)
}

/// A sequence whose second half repeats the first, as a batch.
fn repeated(batch: usize, rng: &mut Rng) -> Tensor<i64> {
    let half = Tensor::<i64>::randint(0, 12, [batch, LENGTH / 2], rng);
    Tensor::cat(&[&half, &half], 1)
}

/// Some steps of training to repeat.
fn train(model: &Gpt, adam: &mut AdamW, steps: u64, rng: &mut Rng) {
    for step in 0..steps {
        let tokens = repeated(16, rng);
        let (x, y) = (tokens.narrow(1, 0, LENGTH - 1), tokens.narrow(1, 1, LENGTH - 1));
        adam.step(&model.loss(&x, &y, &mut Pass::train(step)).backward()).unwrap();
    }
}

fn text(tokens: &Tensor<i64>) -> ExplorerText {
    let letters = tokens.to_vec();
    let labels = letters.iter().map(|&t| char::from(b'a' + t as u8).to_string());
    ExplorerText::new("twice the same", labels)
}

/// Snapshots of a training, and another variant on the same text.
#[test]
fn snapshots_and_variants_pass_the_test() {
    let mut rng = Rng::new(1);
    let rope = GptConfig {
        positions: Positions::Rope(RopeConfig::default()),
        key_heads: Some(2),
        ..config(2, AttentionKind::GroupedQuery)
    };
    let model = Gpt::<f32>::new(rope, &mut rng).unwrap();
    let mut adam = AdamW::new(&model, AdamConfig { lr: 3e-3, ..Default::default() }).unwrap();
    let tokens = repeated(1, &mut rng);
    let text = text(&tokens).generated_after(LENGTH / 2);
    let mut explorer = AttentionExplorer::new("To repeat").ablations(true);
    for step in 0..3 {
        explorer.record_gpt(&format!("step {}", 60 * step), &model, &text, &tokens);
        train(&model, &mut adam, 60, &mut rng);
    }
    let sinks = Gpt::<f32>::new(config(2, AttentionKind::Sink), &mut rng).unwrap();
    explorer.record_gpt("with sinks", &sinks, &text, &tokens);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("snapshots.html");
    explorer.page.write(&path).unwrap();
    check_page(&path);

    // Two snapshots are side by side.
    let Some(mut browser) = Browser::start() else { return };
    browser.open(&path, "snapshot=2&compare=3&layer=1&head=2");
    let figures = "document.querySelectorAll('#matrix figure canvas').length";
    browser.until("two matrices", &format!("{figures} === 2"));
    assert!(browser.text("#matrix").contains("with sinks: layer 2, head 3"));
    assert!(browser.text("#score").contains("before rotary positions"));
}

/// Variants of every kind: heads in several calls, learned keys, mixed heads, other normalisers, masks by
/// head, and none.
#[test]
#[ignore = "takes long: .ci/long pages"]
fn variants_of_all_kinds_pass_the_test() {
    let folder = tempfile::tempdir().unwrap();
    let mut explorer = AttentionExplorer::new("Variants").ablations(true);
    explorer.page.limit(8_000_000);
    let tokens = repeated(1, &mut Rng::new(2));
    for &kind in AttentionKind::ALL {
        let model = Gpt::<f32>::new(config(1, kind), &mut Rng::new(3)).unwrap();
        explorer.record_gpt(kind.name(), &model, &text(&tokens), &tokens);
    }
    let path = folder.path().join("variants.html");
    explorer.page.write(&path).unwrap();
    check_page(&path);
}
