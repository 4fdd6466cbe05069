//! The attention explorer on long texts: its memory and the size of the page. In a process of its own,
//! because the pool is counted per process.

use retrograd_nn::{Gpt, GptConfig};
use retrograd_study::{AttentionExplorer, ExplorerText};
use retrograd_tensor::Tensor;
use retrograd_tensor::random::Rng;
use retrograd_tensor::storage::pool_stats;

fn page(layers: usize, heads: usize, length: usize) -> String {
    let (vocab, width) = (60, 16 * heads);
    let config = GptConfig { vocab, context: length, layers, heads, width, ..GptConfig::default() };
    let mut rng = Rng::new(1);
    let model = Gpt::<f32>::new(config, &mut rng).unwrap();
    let tokens = Tensor::<i64>::randint(0, vocab as i64, [1, length], &mut rng);
    let text = ExplorerText::new("random", tokens.to_vec().iter().map(|t| format!("word {t}")));
    let mut explorer = AttentionExplorer::new("Long");
    explorer.record_gpt("untrained", &model, &text, &tokens);
    explorer.page.html()
}

#[test]
#[ignore = "takes long: .ci/long pages"]
fn long_texts_need_no_matrix_of_all_weights() {
    let length = 4096;
    let matrix = length * length * size_of::<f32>();
    let before = pool_stats();
    let html = page(1, 2, length);
    let peak = pool_stats().peak - before.live;
    println!("peak {} MB; a matrix has {} MB", peak >> 20, matrix >> 20);
    assert!(peak < matrix, "{peak} bytes");
    assert!(html.contains("Gradients were left out"));

    // The size that is documented, of 6 layers of 6 heads.
    let html = page(6, 6, 512);
    println!("512 tokens: {:.2} MB", html.len() as f64 / 1e6);
    assert!(html.len() <= 2_000_000, "{}", html.len());
    assert!(html.contains("\"left_out\":[\"queries and keys"), "what is left out is said");
    let html = page(6, 6, length);
    println!("4096 tokens: {:.2} MB", html.len() as f64 / 1e6);
    assert!(html.len() <= 6_000_000, "{}", html.len());
}
