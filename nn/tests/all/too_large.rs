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
fn models_larger_than_memory_panic() {
    let r = &mut Rng::new(1);
    let tokens = GptConfig { vocab: 1 << 45, ..config() };
    panics_here("randn: no memory for ", || Gpt::<f32>::new(tokens, r).map(drop));
    let context = GptConfig { context: 1 << 45, ..config() };
    panics_here("randn: no memory for ", || Gpt::<f32>::new(context, r).map(drop));
    let wide = GptConfig { width: 1 << 22, vocab: 1, context: 1, ..config() };
    let no_memory = "uniform: no memory for 211106232532992 bytes";
    panics_here(no_memory, || Gpt::<f32>::new(wide.clone(), r).map(drop));
    panics_here(no_memory, || Block::<f32>::new(&wide, r));
    panics_here(no_memory, || CausalSelfAttention::<f32>::new(&wide, r));
    panics_here("uniform: no memory for ", || Mlp::<f32>::new(&wide, r));
    assert!(Gpt::<f32>::new(GptConfig { layers: 1 << 40, ..config() }, r).is_err());
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
    panics_here("", || GroupedQueryAttention::<f32>::new(n, 2, 1, r));
}
