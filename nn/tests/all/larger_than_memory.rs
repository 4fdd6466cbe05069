//! Modules that are larger than memory: a panic at the caller's line.

use crate::common::*;
use retrograd_nn::attention::*;
use retrograd_nn::*;
use retrograd_tensor::random::Rng;

/// Asserts that `f` panics with a message that starts with `want`, at the line of this call.
#[track_caller]
fn panics_here<R>(want: &str, f: impl FnOnce() -> R) {
    let text = panic_here(f);
    assert!(text.starts_with(want), "{text:?} does not begin with {want:?}");
}

#[test]
fn layers_larger_than_memory_panic() {
    let r = &mut Rng::new(1);
    let (wide, overflow) = (1 << 25, usize::MAX);
    let no_memory = "uniform: no memory for 4503599627370496 bytes";
    panics_here(no_memory, || Linear::<f32>::new(wide, wide, r));
    panics_here(no_memory, || Linear::<f32>::without_bias(wide, wide, r));
    let text = "linear: shape [2, 18446744073709551615] has more than 9223372036854775807 elements";
    panics_here(text, || Linear::<f32>::new(overflow, 2, r));
    panics_here(text, || Linear::<f32>::without_bias(overflow, 2, r));
    panics_here("randn: no memory for ", || Embedding::<f32>::new(wide, wide, r));
    panics_here("full: no memory for ", || LayerNorm::<f32>::new(1 << 50));
    panics_here("full: no memory for ", || LayerNorm::<f32>::without_bias(1 << 50));
    panics_here("full: no memory for ", || RmsNorm::<f32>::new(1 << 50));
}

#[test]
fn models_larger_than_memory_are_errors() {
    let r = &mut Rng::new(1);
    let mut said = |config: GptConfig| match Gpt::<f32>::new(config, r) {
        Ok(_) => String::new(),
        Err(e) => e.to_string().split(" (hint").next().unwrap().to_string(),
    };
    let of = |what: &str| format!("no memory for {what} bytes");
    let many = GptConfig { vocab: 1 << 45, ..config() };
    assert_eq!(said(many), of("the token embedding [35184372088832, 8], which takes 3.4e15"));
    let context = GptConfig { context: 1 << 45, ..config() };
    assert_eq!(said(context), of("the positions [35184372088832, 8], which takes 3.4e15"));
    let wide = GptConfig { width: 1 << 22, vocab: 1, context: 1, ..config() };
    assert!(said(wide.clone()).starts_with("no memory for block 0, which takes "));
    assert!(said(GptConfig { layers: 1 << 40, ..config() }).starts_with("layers must be"));
    // Whatever is large, in every variant.
    let one = GptConfig { vocab: 1, context: 1, layers: 1, heads: 1, width: 2, ..config() };
    let one = |attention| GptConfig {
        positions: Positions::None,
        ..one.clone().with_attention(attention)
    };
    let variants = AttentionKind::ALL.iter().flat_map(|&attention| {
        let c = one(attention);
        [
            GptConfig { width: 1 << 23, ..c.clone() },
            GptConfig { hidden: Some(1 << 46), ..c.clone() },
            GptConfig { head_width: Some(1 << 45), ..c.clone() },
            GptConfig { heads: 1 << 22, width: 1 << 23, ..c },
        ]
    });
    let talking = one(AttentionKind::TalkingHeads);
    let talking = GptConfig { head_width: Some(1), heads: 1 << 23, ..talking };
    let big_bird = GptConfig { context: 1 << 24, ..one(AttentionKind::BigBird) };
    for config in variants.chain([talking, big_bird]) {
        let unsupported = config.check().is_err();
        let said = said(config.clone());
        assert!(unsupported || said.starts_with("no memory for block 0"), "{said:?}: {config:?}");
    }
    let r = &mut Rng::new(1);
    let no_memory = "uniform: no memory for 211106232532992 bytes";
    panics_here(no_memory, || Block::<f32>::new(&wide, r));
    panics_here(no_memory, || CausalSelfAttention::<f32>::new(&wide, r));
    panics_here("uniform: no memory for ", || Mlp::<f32>::new(&wide, r));
}

#[test]
fn attention_larger_than_memory_panics() {
    let r = &mut Rng::new(1);
    let n = 1 << 24;
    let no_memory = "uniform: no memory for ";
    panics_here(no_memory, || Projections::<f32>::new(HeadSizes::new(n, 1), r));
    panics_here(no_memory, || CrossAttention::<f32>::new(n, 4, n, 4, r));
    panics_here(no_memory, || CrossAttention::<f32>::with_bias(n, 4, n, 4, r));
    panics_here(no_memory, || SelfAttention::<f32>::new(n, n, 4, r));
    panics_here(no_memory, || LuongGeneral::<f32>::new(n, n, r));
    panics_here(no_memory, || LuongLocation::<f32>::new(n, n, r));
    panics_here("randn: no memory for ", || LearnedPositions::<f32>::new(n, n, r));
    panics_here("", || MultiHeadAttention::<f32>::new(&MultiHeadConfig::new(n, 1), r));
}
