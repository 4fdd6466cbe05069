//! Models with every attention variant, norm, feed-forward layer and encoding of positions: causality,
//! caches, gradients, names, and combinations that are rejected.

use crate::common::{nanogpt_cpu, panic_text};
use retrograd_nn::optim::{AdamConfig, AdamW, Optimizer};
use retrograd_nn::{
    AttentionKind, Gpt, GptConfig, MlpKind, Module, NormKind, Pass, Positions, RopeConfig,
};
use retrograd_tensor::Tensor;
use retrograd_tensor::random::Rng;

const VOCAB: usize = 7;
const CONTEXT: usize = 12;

fn small() -> GptConfig {
    let (layers, heads, width) = (2, 4, 16);
    GptConfig { vocab: VOCAB, context: CONTEXT, layers, heads, width, ..GptConfig::default() }
}

fn model(config: GptConfig) -> Gpt<f64> {
    let name = config.attention.name();
    Gpt::new(config, &mut Rng::new(5)).unwrap_or_else(|e| panic!("{name}: {e}"))
}

fn tokens(seed: u64, batch: usize, length: usize) -> Tensor<i64> {
    Tensor::randint(0, VOCAB as i64, [batch, length], &mut Rng::new(seed))
}

fn differs(a: &Tensor<f64>, b: &Tensor<f64>) -> f64 {
    assert_eq!(a.shape(), b.shape());
    if a.numel() == 0 { 0.0 } else { (a - b).abs().max(..).item() }
}

fn logits(model: &Gpt<f64>, tokens: &Tensor<i64>) -> Tensor<f64> {
    model.forward(tokens, &mut Pass::eval()).into_value()
}

/// Kinds that compute the whole sequence again for each token.
const NOT_CACHED: [AttentionKind; 11] = [
    AttentionKind::MultiHead,
    AttentionKind::SingleHead,
    AttentionKind::Wrapper,
    AttentionKind::Plain,
    AttentionKind::Renormalized,
    AttentionKind::Additive,
    AttentionKind::Luong,
    AttentionKind::Longformer,
    AttentionKind::Shaw,
    AttentionKind::TransformerXl,
    AttentionKind::Linear,
];

/// All checks of one configuration.
fn check(name: &str, config: GptConfig) {
    let single = Gpt::<f32>::new(config.clone(), &mut Rng::new(5)).unwrap();
    let model = model(config);
    let is_cached = !NOT_CACHED.contains(&model.config().attention);
    assert_eq!(model.is_cached(), is_cached, "{name}");
    let x = tokens(1, 2, CONTEXT);
    let whole = logits(&model, &x);
    assert_eq!(*whole.shape(), [2, CONTEXT, VOCAB], "{name}");
    assert!(whole.to_vec().iter().all(|y| y.is_finite()), "{name}");

    // Later tokens have no influence. Some masks depend on the length, but not on later tokens.
    let changed = Tensor::cat(&[&x.narrow(1, 0, 7), &tokens(2, 2, CONTEXT - 7)], 1);
    let part = |y: &Tensor<f64>| y.narrow(1, 0, 7);
    let difference = differs(&part(&whole), &part(&logits(&model, &changed)));
    // The renormalised softmax is computed with the later tokens.
    let is_renormalized = model.config().attention == AttentionKind::Renormalized;
    let bound = if is_renormalized { 1e-15 } else { 0.0 };
    assert!(difference <= bound, "{name} depends on later tokens: {difference}");
    assert!(differs(&whole, &logits(&model, &changed)) > 1e-6, "{name} ignores its input");
    let [a, b] = [&x, &changed].map(|x| single.forward(x, &mut Pass::eval()).into_value().cast());
    let difference = differs(&part(&a), &part(&b));
    assert!(difference <= 1e9 * bound, "{name} depends on later tokens in f32: {difference}");

    // Any steps with a cache.
    for division in [&[CONTEXT][..], &[1; CONTEXT], &[5, 1, 4, 2], &[0, 4, 0, 8]] {
        let (mut cache, mut at) = (model.cache(), 0);
        for &n in division {
            let logits = model.forward_cached(&x.narrow(1, at, n), &mut cache);
            assert!(!logits.is_tracked(), "{name}");
            let difference = differs(&whole.narrow(1, at, n), &logits.into_value());
            assert!(difference < 1e-13, "{name}: {difference} with a cache, {division:?} at {at}");
            at += n;
            assert_eq!(cache.position(), at, "{name}");
        }
        let text = panic_text(|| model.forward_cached(&x.narrow(1, 0, 1), &mut cache));
        assert_eq!(text, "gpt: a sequence of 13 tokens is longer than the context of 12", "{name}");
    }

    // Leading axes: beginnings of a sequence alone, no sequence, no token, and a batch of batches.
    for row in 0..2 {
        for n in 0..=CONTEXT {
            let alone = logits(&model, &x.select(0, row).narrow(0, 0, n));
            let difference = differs(&alone, &whole.select(0, row).narrow(0, 0, n));
            assert!(difference < 1e-13, "{name}: {difference} for the first {n} tokens alone");
        }
    }
    for empty in [[0, CONTEXT], [2, 0]] {
        let [batch, n] = empty;
        assert_eq!(*logits(&model, &Tensor::zeros(empty)).shape(), [batch, n, VOCAB], "{name}");
    }
    let nested = logits(&model, &x.reshape([1, 2, CONTEXT]));
    assert!(differs(&nested, &whole.unsqueeze(0)) < 1e-13, "{name}");

    let maps = model.attention_maps(&x);
    assert_eq!(maps.len(), model.config().layers, "{name}");
    for map in &maps {
        assert_eq!((map.size(0), map.size(-1)), (2, CONTEXT), "{name}");
        let above = map.triu(1).abs();
        assert!(map.numel() == 0 || above.max(..).item() == 0.0, "{name}");
    }

    // Every parameter gets a gradient, and training lowers the loss.
    let names: Vec<String> = model.named_parameters().into_iter().map(|(name, _)| name).collect();
    let dict = model.state_dict();
    assert!(names.iter().all(|name| dict.contains_key(name)), "{name}");
    model.load_state_dict(&dict).unwrap();
    let config = AdamConfig { lr: 1e-2, ..AdamConfig::default() };
    let mut adam = AdamW::new(&model, config).unwrap();
    let targets = tokens(3, 2, CONTEXT);
    let mut losses = Vec::new();
    for step in 0..8 {
        let (loss, grads) = model.loss_and_gradients(&x, &targets, &mut Pass::train(step));
        losses.push(loss);
        assert_eq!(grads.len(), names.len(), "{name}");
        adam.step(&grads).unwrap_or_else(|e| panic!("{name}: {e}"));
    }
    assert!(losses[7] < 0.9 * losses[0], "{name} does not learn: {losses:?}");

    // Recomputed blocks: the same bits, dropout included.
    let gradients = |recompute| {
        let config = GptConfig { recompute, dropout: 0.2, ..model.config().clone() };
        let (loss, grads) =
            self::model(config).loss_and_gradients(&x, &targets, &mut Pass::train(3));
        let grads: Vec<Tensor<f64>> = grads.iter().map(|(_, g)| g.clone()).collect();
        (loss, grads)
    };
    let usual = gradients(0);
    assert!((1..3).all(|blocks| gradients(blocks) == usual), "{name} with recomputed blocks");
}

#[test]
fn every_attention_variant() {
    for &kind in AttentionKind::ALL {
        check(kind.name(), small().with_attention(kind));
    }
}

#[test]
fn mixtures_of_variants_by_layer() {
    let rope = Positions::Rope(RopeConfig::default());
    let pattern = vec![AttentionKind::GatedDeltaNet, AttentionKind::Causal, AttentionKind::Rwkv7];
    let hybrid = GptConfig { pattern, layers: 4, positions: rope, qk_norm: true, ..small() };
    check("a pattern", hybrid.clone());
    let names = model(hybrid.clone()).state_dict();
    let of = |name: &str| names.keys().filter(|key| key.contains(name)).count();
    // The first and the last layer, the second one, and the third one.
    assert_eq!((of("attn.A_log"), of("attn.q_norm"), of("attn.w_lora.lora.0")), (2, 1, 1));
    let names = model(GptConfig { qk_norm: false, ..hybrid.clone() }).state_dict();
    assert!(!names.keys().any(|key| key.contains("q_norm")));
    let odd = GptConfig { heads: 1, width: 5, ..small().with_attention(AttentionKind::Retention) };
    assert!(odd.check().unwrap_err().to_string().contains("pairs of a head, got width 5"));
    let only_states = GptConfig { pattern: vec![AttentionKind::Mamba2], qk_norm: false, ..hybrid };
    assert!(only_states.check().unwrap_err().to_string().contains("its state has no positions"));
}

#[test]
fn every_attention_variant_with_every_option_it_supports() {
    let rope = Positions::Rope(RopeConfig::default());
    let grouped = GptConfig { key_heads: Some(2), ..small() };
    let (mut supported, mut rejected) = (0, 0);
    for (option, config) in [
        ("rope", GptConfig { positions: rope, ..small() }),
        ("alibi", GptConfig { positions: Positions::Alibi, ..small() }),
        ("t5", GptConfig { positions: Positions::T5, ..small() }),
        ("windows", GptConfig { windows: vec![Some(3), None], ..small() }),
        ("key heads", grouped),
        ("head width", GptConfig { head_width: Some(6), ..small() }),
        ("QK-norm", GptConfig { qk_norm: true, ..small() }),
    ] {
        for &attention in AttentionKind::ALL {
            let config = GptConfig { attention, ..config.clone() };
            match config.check() {
                Ok(()) => {
                    supported += 1;
                    check(&format!("{attention} with {option}"), config);
                }
                Err(e) => {
                    rejected += 1;
                    let text = e.to_string();
                    assert!(text.contains(attention.name()) && text.contains(": "), "{text}");
                }
            }
        }
    }
    assert!(supported > 150 && rejected > 30, "{supported} supported, {rejected} rejected");
}

#[test]
fn every_norm_feed_forward_layer_and_encoding_of_positions() {
    let rope = RopeConfig { base: 500.0, width: Some(2), ..RopeConfig::default() };
    for &norm in NormKind::ALL {
        check(&format!("{norm:?}"), GptConfig { norm, ..small() });
    }
    for &mlp in MlpKind::ALL {
        check(&format!("{mlp:?}"), GptConfig { mlp, ..small() });
        check(&format!("{mlp:?}"), GptConfig { mlp, hidden: Some(20), bias: false, ..small() });
    }
    for &positions in Positions::ALL.iter().chain(&[Positions::Rope(rope)]) {
        check(&format!("{positions:?}"), GptConfig { positions, ..small() });
    }
    check("softcap", GptConfig { logit_softcap: Some(5.0), tied: false, ..small() });
    check("dropout", GptConfig { dropout: 0.5, ..small() });
    for preset in [GptConfig::modern(), GptConfig::llama()] {
        let GptConfig { vocab, context, layers, heads, width, .. } = small();
        check("preset", GptConfig { vocab, context, layers, heads, width, ..preset });
    }
}

#[test]
fn impossible_configurations_are_errors() {
    let rope = |rope: RopeConfig| Positions::Rope(rope);
    let odd = RopeConfig { width: Some(3), ..RopeConfig::default() };
    let nan = RopeConfig { base: f64::NAN, ..RopeConfig::default() };
    for (config, text) in [
        (GptConfig { key_heads: Some(3), ..small() }, "3 key heads do not divide 4 heads"),
        (GptConfig { key_heads: Some(0), ..small() }, "key_heads must be at least 1"),
        (GptConfig { hidden: Some(0), ..small() }, "hidden must be at least 1"),
        (GptConfig { positions: rope(odd), ..small() }, "even width"),
        (GptConfig { positions: rope(nan), ..small() }, "base of RoPE"),
        (GptConfig { norm_eps: -1.0, ..small() }, "norm_eps"),
        (GptConfig { logit_softcap: Some(0.0), ..small() }, "logit_softcap"),
        (
            GptConfig { attention: AttentionKind::Linear, windows: vec![Some(2)], ..small() },
            "attention \"linear\" has no windows: it has no scores",
        ),
    ] {
        let error = config.check().unwrap_err().to_string();
        assert!(error.contains(text), "{error}");
    }
    assert!("best".parse::<AttentionKind>().unwrap_err().to_string().contains("talking-heads"));
}

#[test]
fn configurations_of_earlier_versions_can_be_read() {
    let json = r#"{"vocab":65,"context":64,"layers":4,"heads":4,"width":128,"dropout":0.0,
        "bias":false,"tied":true}"#;
    let mut file = retrograd_nn::checkpoint::Checkpoint::new();
    file.note("config", &serde_json::from_str::<serde_json::Value>(json).unwrap());
    let config: GptConfig = file.read_note("config").unwrap();
    assert_eq!(config, nanogpt_cpu());
    let all = GptConfig {
        windows: vec![None, Some(3)],
        positions: Positions::Rope(RopeConfig::default()),
        attention: AttentionKind::Entmax15,
        mlp: MlpKind::GeGlu,
        ..GptConfig::llama()
    };
    file.note("config", &all);
    assert_eq!(file.read_note::<GptConfig>("config").unwrap(), all);
    // It does not belong to the model.
    file.note("config", &GptConfig { recompute: 1, ..all.clone() });
    assert_eq!(file.read_note::<GptConfig>("config").unwrap(), all);
}

/// The values of the first layer are mixed into those of the others.
#[test]
fn value_residuals_use_the_first_layer() {
    let model = model(small().with_attention(AttentionKind::ValueResidual));
    let x = tokens(1, 1, 6);
    let before = logits(&model, &x);
    let named = model.named_parameters();
    let find = |name: &str| &named.iter().find(|(n, _)| n.ends_with(name)).expect("a parameter").1;
    find("h.1.attn.mix").set(Tensor::from([1.0, 0.0]));
    assert!(differs(&before, &logits(&model, &x)) > 1e-9);
}
