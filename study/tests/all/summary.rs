//! Summaries: shapes, numbers of parameters, FLOPs and bytes against formulas.

use retrograd_autograd::{Var, no_grad};
use retrograd_nn::attention::{Mask, MultiHeadAttention, MultiHeadConfig, PlainSelfAttention};
use retrograd_nn::{
    Activation, AttentionKind, Dropout, Gpt, GptConfig, Layer, LayerNorm, Linear, MlpKind, Module,
    Param, Pass, Sequential, TransformerEncoderLayer, TransformerLayerConfig, Visitor,
};
use retrograd_study::{Summarize, Summary};
use retrograd_tensor::Tensor;
use retrograd_tensor::random::Rng;

fn ones(dims: &[usize]) -> Var {
    Var::constant(Tensor::ones(dims))
}

fn of(model: &impl Layer, dims: &[usize]) -> Summary {
    model.summary(|m| m.forward(&ones(dims), &mut Pass::eval()))
}

/// Path, output, parameters and FLOPs of each row.
fn lines(summary: &Summary) -> Vec<(&str, Option<Vec<usize>>, usize, u64)> {
    let rows = summary.rows.iter();
    rows.map(|r| (&r.path[..], r.output.map(|shape| shape.to_vec()), r.parameters, r.flops))
        .collect()
}

#[test]
fn linear() {
    let layer = Linear::<f32>::new(5, 3, &mut Rng::new(1));
    let summary = of(&layer, &[2, 7, 5]);
    assert_eq!(lines(&summary), [("", Some(vec![2, 7, 3]), 18, 2 * 14 * 5 * 3)]);
    assert_eq!((summary.output_bytes, summary.element_size), (4 * 14 * 3, 4));
    let summary = layer.summary(|m| m.forward(&ones(&[5]), &mut Pass::eval()));
    assert_eq!(summary.total().flops, 2 * 5 * 3);
    let layer = Linear::<f64>::without_bias(5, 3, &mut Rng::new(1));
    let x = Var::constant(Tensor::ones([4, 5]));
    let summary = layer.summary(|m| m.forward(&x, &mut Pass::eval()));
    assert_eq!((summary.total().parameters, summary.output_bytes), (15, 8 * 12));
}

fn mlp() -> Sequential {
    let rng = &mut Rng::new(1);
    Sequential::new()
        .then(Linear::new(4, 8, rng))
        .then(LayerNorm::new(8))
        .then(Activation::Gelu)
        .then(Dropout::new(0.5))
        .then(Linear::without_bias(8, 1500, rng))
}

#[test]
fn the_table_is_readable() {
    let expected = "\
module   type        output      parameters  FLOPs  weights  outputs
--------------------------------------------------------------------
(model)  Sequential  [10, 1500]      12,056  241 k  48.2 kB  60.0 kB
  0      Linear      [10, 8]             40    640    160 B    320 B
  1      LayerNorm   [10, 8]             16      -     64 B    320 B
  2      Activation  [10, 8]              -      -        -    320 B
  3      Dropout     [10, 8]              -      -        -    320 B
  4      Linear      [10, 1500]      12,000  240 k  48.0 kB  60.0 kB
--------------------------------------------------------------------
total: 12,056 parameters (48.2 kB); 241 k FLOPs; outputs of innermost modules: 61.3 kB";
    let summary = of(&mlp(), &[10, 4]);
    assert_eq!(summary.to_string(), expected);
    assert_eq!(summary.total().flops, 2 * 10 * (4 * 8 + 8 * 1500));
    // In training, where dropout is an operation.
    let training = mlp().summary(|m| m.forward(&ones(&[10, 4]), &mut Pass::train(1)));
    assert_eq!(training, summary);
    // Paths and numbers of GPT-2 fit into 100 columns.
    let (vocab, context, layers, heads, width) = (1000, 8, 2, 12, 768);
    let config = GptConfig { vocab, context, layers, heads, width, ..GptConfig::default() };
    let model = Gpt::<f32>::new(config, &mut Rng::new(1)).unwrap();
    let printed = model.summary(|m| m.forward(&tokens(2, 8), &mut Pass::eval())).to_string();
    assert!(printed.lines().all(|line| line.chars().count() <= 100), "{printed}");
}

/// The table in docs/GUIDE.md.
#[test]
fn the_guide_shows_a_table() {
    let config = GptConfig { vocab: 65, context: 64, layers: 1, heads: 4, width: 128, ..small() };
    let model = Gpt::<f32>::new(config, &mut Rng::new(1)).unwrap();
    let x = Tensor::<i64>::zeros([1, 64]);
    let table = model.summary(|m| m.forward(&x, &mut Pass::eval())).to_string();
    assert!(include_str!("../../../docs/GUIDE.md").contains(&table), "now:\n{table}");
}

fn tokens(batch: usize, length: usize) -> Tensor<i64> {
    Tensor::from_fn([batch, length], |i| ((i[0] + 3 * i[1]) % 7) as i64)
}

fn small() -> GptConfig {
    GptConfig { vocab: 11, context: 6, layers: 2, heads: 2, width: 8, ..GptConfig::default() }
}

/// Sequences, and tokens in each.
const B: u64 = 3;
const L: u64 = 5;

fn gpt(config: GptConfig) -> Summary {
    let model = Gpt::<f32>::new(config, &mut Rng::new(1)).unwrap();
    model.summary(|m| m.forward(&tokens(B as usize, L as usize), &mut Pass::eval()))
}

#[test]
fn gpt_by_formula() {
    let config = GptConfig { bias: true, ..small() };
    assert!(config.tied);
    let summary = gpt(config);
    let (w, vocab, context, layers) = (8, 11, 6, 2);
    let norm = 2 * w;
    let attn = 4 * w * w + 4 * w;
    let mlp = 8 * w * w + 5 * w;
    let block = attn + mlp + 2 * norm;
    let all = vocab * w + context * w + layers * block + norm;
    let (w, vocab, layers) = (w as u64, vocab as u64, layers as u64);
    let projections = 2 * B * L * 4 * w * w;
    let attend = 2 * 2 * B * L * L * w;
    let feed_forward = 2 * B * L * 8 * w * w;
    let head = 2 * B * L * w * vocab;
    let row = |path: &str| {
        let row = summary.row(path).unwrap_or_else(|| panic!("no {path}"));
        (row.output.unwrap().to_vec(), row.parameters, row.flops, row.calls)
    };
    let (b, l, width) = (B as usize, L as usize, w as usize);
    let stream = || vec![b, l, width];
    let block_flops = projections + attend + feed_forward;
    assert_eq!(row(""), (vec![b, l, 11], all, layers * block_flops + head, 1));
    assert_eq!(row("transformer.wte"), (stream(), 11 * width, 0, 1));
    assert_eq!(row("transformer.wpe"), (vec![l, width], context * width, 0, 1));
    for i in 0..2 {
        let at = |rest: &str| row(&format!("transformer.h.{i}{rest}"));
        assert_eq!(at(""), (stream(), block, block_flops, 1));
        assert_eq!(at(".ln_1"), (stream(), norm, 0, 1));
        assert_eq!(at(".attn"), (stream(), attn, projections + attend, 1));
        let wide = 3 * w * w;
        assert_eq!(at(".attn.c_attn"), (vec![b, l, 24], 3 * 64 + 24, 2 * B * L * wide, 1));
        assert_eq!(at(".attn.c_proj"), (stream(), 64 + 8, 2 * B * L * w * w, 1));
        assert_eq!(at(".mlp"), (stream(), mlp, feed_forward, 1));
        let half = feed_forward / 2;
        assert_eq!(at(".mlp.c_fc"), (vec![b, l, 4 * width], 4 * 64 + 32, half, 1));
        assert_eq!(at(".mlp.c_proj"), (stream(), 4 * 64 + 8, half, 1));
    }
    assert_eq!(row("lm_head"), (vec![b, l, 11], 11 * width, head, 1));
    let tied: Vec<&str> =
        summary.rows.iter().filter(|row| row.tied).map(|row| row.path.as_str()).collect();
    assert_eq!(tied, ["lm_head"]);
    assert_eq!(summary.trainable, all);
    // PyTorch's FlopCounterMode says so of a GPT2LMHeadModel of this size.
    assert_eq!(summary.total().flops, 53520);
    assert_eq!(summary.clone().depth(0).rows.len(), 1);
    assert_eq!(summary.clone().depth(1).to_string().lines().count(), 5 + 6 + 1 - 1);
}

#[test]
fn a_modern_gpt_by_formula() {
    let config = GptConfig { key_heads: Some(1), mlp: MlpKind::SwiGlu, ..GptConfig::modern() };
    let config = GptConfig { vocab: 11, context: 6, layers: 1, heads: 2, width: 8, ..config };
    let tied = config.tied;
    let summary = gpt(config);
    let (w, d) = (8u64, 4);
    let projections = 2 * B * L * (2 * w * w + 2 * w * d);
    let attend = 2 * 2 * B * L * L * w;
    let name = |path: &str| summary.rows.iter().find(|r| r.path.ends_with(path)).unwrap();
    let inner = name("up_proj").output.unwrap()[2] as u64;
    let mlp = 2 * B * L * 3 * w * inner;
    let head = 2 * B * L * w * 11;
    assert_eq!(summary.total().flops, projections + attend + mlp + head, "\n{summary}");
    let head = summary.rows.last().unwrap();
    assert_eq!((head.tied, head.parameters), (tied, 88));
    assert_eq!(name("mlp").flops, mlp);
    assert!(name("h.0").type_name == "Block", "\n{summary}");
}

/// Whatever the attention, every module of the model is observed, and costs add up.
#[test]
fn every_attention_of_a_model() {
    for &kind in AttentionKind::ALL {
        let config = small().with_attention(kind);
        let Ok(model) = Gpt::<f32>::new(config, &mut Rng::new(1)) else { continue };
        let summary = model.summary(|m| m.forward(&tokens(2, 6), &mut Pass::eval()));
        let total = summary.total();
        assert_eq!(total.parameters, model.num_parameters(), "{kind:?}");
        let parts = [".attn", ".mlp", "lm_head"];
        let rows = summary.rows.iter().filter(|r| parts.iter().any(|part| r.path.ends_with(part)));
        let flops: u64 = rows.map(|r| r.flops).sum();
        assert_eq!(total.flops, flops, "{kind:?}\n{summary}");
        for row in &summary.rows {
            assert!(row.flops > 0 || !row.path.ends_with(".attn"), "{kind:?}\n{summary}");
            assert!(row.output.is_some(), "{kind:?}: {} has no output\n{summary}", row.path);
        }
    }
}

/// PyTorch's FlopCounterMode: `nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)` on
/// `[3, 5, 16]` has 66240 in training mode, where it calls no fused kernel.
#[test]
fn an_encoder_layer_as_pytorch_counts() {
    let config = TransformerLayerConfig { hidden: 32, ..TransformerLayerConfig::new(16, 2) };
    let layer = TransformerEncoderLayer::<f32>::new(config, &mut Rng::new(1));
    let x = ones(&[3, 5, 16]);
    let summary = layer.summary(|m| m.forward(&x, Mask::full(), &mut Pass::eval()));
    assert_eq!(summary.total().flops, 66240, "\n{summary}");
    assert_eq!(summary.row("self_attn").unwrap().output.unwrap(), [3, 5, 16]);
}

#[test]
fn paths_of_attention_cost_the_same() {
    let config = MultiHeadConfig::new(8, 2);
    let layer = MultiHeadAttention::<f32>::new(&config, &mut Rng::new(1));
    let x = ones(&[2, 5, 8]);
    let tiled = layer.summary(|m| m.forward(&x, &x, &x, Mask::causal(), &mut Pass::eval()));
    let composed =
        layer.summary(|m| m.forward_with_weights(&x, &x, &x, Mask::causal(), &mut Pass::eval()).0);
    assert_eq!(tiled.total().flops, 2 * 10 * 4 * 64 + 4 * 2 * 25 * 8);
    assert_eq!(composed.total().flops, tiled.total().flops);
    assert_eq!(tiled.row("out_proj").unwrap().flops, 2 * 10 * 64);
}

/// The loss of a large vocabulary does not store the logits, but computes them.
#[test]
fn a_fused_loss() {
    let config = GptConfig { vocab: 8192, ..small() };
    let model = Gpt::<f32>::new(config, &mut Rng::new(1)).unwrap();
    let x = tokens(2, 4);
    let forward = model.summary(|m| m.forward(&x, &mut Pass::eval()));
    let loss = model.summary(|m| m.loss(&x, &x, &mut Pass::eval()));
    assert_eq!(loss.total().flops, forward.total().flops);
    assert_eq!(loss.row("lm_head").unwrap().output.unwrap(), [2, 4, 8192]);
    assert_eq!(loss.total().output.unwrap(), []);
}

/// A layer with a weight of its own, `x · Wᵀ`, and an output that is no product.
struct Own {
    weight: Param,
    observed: bool,
}

impl Module for Own {
    fn visit(&self, v: &mut Visitor<'_, f32>) {
        v.param("weight", &self.weight);
    }
}

impl Layer for Own {
    fn forward(&self, x: &Var, _: &mut Pass) -> Var {
        let forward = || x.matmul(&self.weight.to_var().t()).sum(-1);
        if self.observed { self.observe(forward) } else { forward() }
    }
}

/// Modules of a user in one another.
struct Model {
    inner: Linear,
    plain: PlainSelfAttention,
    own: Own,
}

impl Module for Model {
    fn visit(&self, v: &mut Visitor<'_, f32>) {
        v.scope("level", |v| v.module("inner", &self.inner));
        v.module("plain", &self.plain);
        v.module("own", &self.own);
    }
}

impl Layer for Model {
    fn forward(&self, x: &Var, pass: &mut Pass) -> Var {
        let x = self.inner.forward(x, pass);
        let x = self.plain.forward(&x, pass);
        self.own.forward(&x.matmul(&x.t()).matmul(&x), pass)
    }
}

fn model(observed: bool) -> Model {
    let weight = Param::new(Tensor::ones([6, 3]));
    let inner = Linear::new(4, 3, &mut Rng::new(1));
    Model { inner, plain: PlainSelfAttention, own: Own { weight, observed } }
}

#[test]
fn a_struct_of_a_user() {
    let (inner, plain, own) = (2 * 5 * 4 * 3, 2 * 2 * 25 * 3, 2 * 5 * 3 * 6);
    let between = 2 * 2 * 25 * 3;
    let expected = |own_output| {
        [
            ("", Some(vec![5]), 33, inner + plain + own + between),
            ("level.inner", Some(vec![5, 3]), 15, inner),
            ("plain", Some(vec![5, 3]), 0, plain),
            ("own", own_output, 18, own),
        ]
    };
    let summary = of(&model(false), &[5, 4]);
    assert_eq!(lines(&summary), expected(None));
    assert!(summary.to_string().contains("level.inner"));
    let summary = of(&model(true), &[5, 4]);
    assert_eq!(lines(&summary), expected(Some(vec![5])));
    // Layers in a sequence are observed by it.
    let sequence = Sequential::new().then(model(false)).then(Activation::Relu);
    let summary = of(&sequence, &[5, 4]);
    assert_eq!(summary.row("0").unwrap().output.unwrap(), [5]);
    let modules = [
        ("", "Sequential"),
        ("0", "Model"),
        ("0.level.inner", "Linear"),
        ("0.plain", "PlainSelfAttention"),
        ("0.own", "Own"),
        ("1", "Activation"),
    ];
    assert_eq!(sequence.named_modules(), modules.map(|(path, kind)| (path.into(), kind.into())));
}

/// One layer, used twice under one name, and a clone, which shares its parameters.
struct Shared(Linear, Linear);

impl Module for Shared {
    fn visit(&self, v: &mut Visitor<'_, f32>) {
        v.module("a", &self.0);
        v.module("b", &self.1);
    }
}

#[test]
fn shared_layers() {
    let rng = &mut Rng::new(1);
    let separate = Shared(Linear::new(3, 3, rng), Linear::new(3, 3, rng));
    let x = ones(&[2, 3]);
    let pass = &mut Pass::eval();
    let summary = separate.summary(|m| {
        let x = m.0.forward(&x, pass);
        m.0.forward(&m.1.forward(&x, pass), pass)
    });
    let (a, b) = (summary.row("a").unwrap(), summary.row("b").unwrap());
    assert_eq!((a.calls, a.flops, a.output_bytes), (2, 2 * 36, 2 * 24));
    assert_eq!((b.calls, b.flops, summary.total().flops), (1, 36, 3 * 36));
    assert!(summary.to_string().contains("2 x [2, 3]"));

    let layer = Linear::new(3, 3, rng);
    let tied = Shared(layer.clone(), layer);
    let summary = tied.summary(|m| m.1.forward(&m.0.forward(&x, pass), pass));
    let (a, b) = (summary.row("a").unwrap(), summary.row("b").unwrap());
    assert_eq!((a.calls, b.calls, a.flops, b.flops), (1, 1, 36, 36));
    assert_eq!((a.tied, b.tied, summary.total().parameters), (false, true, 12));
    assert!(summary.to_string().contains("(12)"));
}

/// Layers without fields, which have no address of their own.
struct Sum;

impl Module for Sum {
    fn visit(&self, _: &mut Visitor<'_, f32>) {}
}

impl Layer for Sum {
    fn forward(&self, x: &Var, _: &mut Pass) -> Var {
        x.sum(-1)
    }
}

#[test]
fn layers_without_fields() {
    let summary = of(&Sequential::new().then(Sum).then(Sum), &[4, 3, 2]);
    let outputs: Vec<_> = lines(&summary).into_iter().map(|line| line.1.unwrap()).collect();
    assert_eq!(outputs, [vec![4], vec![4, 3], vec![4]]);
}

#[test]
fn frozen_parameters_and_no_grad() {
    let model = mlp();
    let summary = of(&model, &[10, 4]);
    assert_eq!(no_grad(|| of(&model, &[10, 4])), summary);
    model.set_trainable(false);
    let frozen = of(&model, &[10, 4]);
    assert_eq!(frozen.rows, summary.rows);
    assert_eq!(frozen.trainable, 0);
    assert!(frozen.to_string().contains("12,056 of them frozen"));
    // Nothing is left behind.
    assert!(!model.forward(&ones(&[10, 4]), &mut Pass::eval()).is_tracked());
}

#[test]
fn numbers_are_short() {
    let mut summary = of(&Linear::<f32>::new(5, 3, &mut Rng::new(1)), &[2, 5]);
    let cases = [(0, "0 B"), (999, "999 B"), (1000, "1.00 kB"), (999_949, "1.00 MB")];
    for (n, text) in cases.into_iter().chain([(12_345, "12.3 kB"), (123_456_789, "123 MB")]) {
        summary.output_bytes = n;
        assert!(summary.to_string().ends_with(&format!("modules: {text}")), "{summary}");
    }
    summary.rows[0].flops = 9_995;
    assert!(summary.to_string().contains("; 10.0 k FLOPs;"), "{summary}");
}

#[test]
fn long_types_are_cut() {
    let mut summary = of(&Linear::<f32>::new(5, 3, &mut Rng::new(1)), &[2, 5]);
    for (type_name, shown) in
        [("t".repeat(26), "t".repeat(26)), ("t".repeat(27), "t".repeat(24) + "..")]
    {
        summary.rows[0].type_name = type_name;
        assert!(summary.to_string().contains(&format!("  {shown}  ")), "{summary}");
    }
}
