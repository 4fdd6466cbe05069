//! The graph of a model: tokens and a cache of keys and values in, logits and the longer cache out.

use super::graph::Attribute::{Float, Integer, Integers, Text};
use super::graph::{Graph, element};
use crate::attention::{Pairing, SinusoidalPositions, alibi_slopes};
use crate::gpt::{GptConfig, MlpKind, NormKind, Positions};
use retrograd_tensor::Tensor;
use std::collections::BTreeMap;

/// A builder of a graph.
pub(super) struct Builder<'a> {
    pub config: &'a GptConfig,
    pub graph: Graph,
}

/// What layers share.
struct Shared {
    /// Positions of the new tokens, `[batch, length]`.
    positions: String,
    /// `position of the query - position of the key`, `[length, total]`.
    distance: String,
    /// Tables of cosines and sines.
    rope: Option<(String, String)>,
    /// The masks of windows, or what is added to scores.
    masks: BTreeMap<Option<usize>, String>,
}

impl Builder<'_> {
    /// Adds all nodes. Weights have the names of the state dict.
    pub(super) fn build(&mut self) {
        let c = self.config;
        let names = c.names.model();
        let (heads, width) = (c.key_heads().to_string(), c.head_width().to_string());
        let vocab = c.vocab.to_string();
        self.graph.input("input_ids", element::I64, &["batch", "length"]);
        for layer in 0..c.layers {
            for part in ["key", "value"] {
                let name = format!("past_key_values.{layer}.{part}");
                self.graph.input(&name, element::F32, &["batch", &heads, "past", &width]);
            }
        }
        self.graph.output("logits", element::F32, &["batch", "length", &vocab]);
        for layer in 0..c.layers {
            for part in ["key", "value"] {
                let name = format!("present.{layer}.{part}");
                self.graph.output(&name, element::F32, &["batch", &heads, "total", &width]);
            }
        }
        self.graph.scope = names.scope.into();
        let mut shared = self.shared();
        let tokens = format!("{}.{}.weight", names.scope, names.tokens);
        let mut x = self.graph.node("Gather", &[&tokens, "input_ids"], &[]);
        let table = match c.positions {
            Positions::Learned => Some(format!("{}.{}.weight", names.scope, names.positions)),
            Positions::Sinusoidal => {
                let table = SinusoidalPositions::default().table(0, c.context, c.width);
                Some(self.graph.floats("positions", &table))
            }
            _ => None,
        };
        if let Some(table) = table {
            let y = self.graph.node("Gather", &[&table, &shared.positions], &[]);
            x = self.graph.node("Add", &[&x, &y], &[]);
        }
        for layer in 0..c.layers {
            x = self.block(layer, &x, &mut shared);
        }
        x = self.norm(&format!("{}.{}", names.scope, names.norm), &x);
        self.graph.scope = names.head.into();
        let head = if c.tied { tokens } else { format!("{}.weight", names.head) };
        let transposed = self.graph.node("Transpose", &[&head], &[]);
        match c.logit_softcap {
            None => self.graph.node_of("MatMul", &[&x, &transposed], &["logits"], &[]),
            Some(cap) => {
                let logits = self.graph.node("MatMul", &[&x, &transposed], &[]);
                let cap = self.graph.float(cap);
                let x = self.graph.node("Div", &[&logits, &cap], &[]);
                let x = self.graph.node("Tanh", &[&x], &[]);
                self.graph.node_of("Mul", &[&x, &cap], &["logits"], &[]);
            }
        }
    }

    fn shared(&mut self) -> Shared {
        let c = self.config;
        let g = &mut self.graph;
        let (zero, one) = (g.integer(0), g.integer(1));
        let size = |g: &mut Graph, of: &str, axis: i64| {
            let shape = g.node("Shape", &[of], &[]);
            let axis = g.integer(axis);
            g.node("Gather", &[&shape, &axis], &[])
        };
        let length = size(g, "input_ids", 1);
        let past = size(g, "past_key_values.0.key", 2);
        let total = g.node("Add", &[&past, &length], &[]);
        let queries = g.node("Range", &[&past, &total, &one], &[]);
        let keys = g.node("Range", &[&zero, &total, &one], &[]);
        let column = g.integers(&[-1, 1]);
        let column = g.node("Reshape", &[&queries, &column], &[]);
        let distance = g.node("Sub", &[&column, &keys], &[]);
        let shape = g.node("Shape", &["input_ids"], &[]);
        let positions = g.node("Expand", &[&queries, &shape], &[]);
        let rope = c.rope().map(|rope| {
            let [cos, sin] = rope.tables(c.context);
            (g.floats("cos", &cos), g.floats("sin", &sin))
        });
        let masks = BTreeMap::new();
        Shared { positions, distance, rope, masks }
    }

    /// The mask of a window, or what is added to scores.
    fn mask(&mut self, window: Option<usize>, distance: &str) -> String {
        let c = self.config;
        let g = &mut self.graph;
        let zero = g.integer(0);
        let mut mask = g.node("GreaterOrEqual", &[distance, &zero], &[]);
        if let Some(window) = window {
            let window = g.integer(i64::try_from(window).unwrap_or(i64::MAX));
            let near = g.node("LessOrEqual", &[distance, &window], &[]);
            mask = g.node("And", &[&mask, &near], &[]);
        }
        if c.positions != Positions::Alibi {
            return mask;
        }
        let slopes = alibi_slopes(c.heads).into_iter().map(|slope| -slope as f32);
        let slopes = Tensor::from_vec(slopes.collect(), [1, c.heads, 1, 1]);
        let slopes = g.floats(&format!("slopes_{}", g.constants.len()), &slopes);
        let distance = g.node("Cast", &[distance], &[Integer("to", element::F32)]);
        let bias = g.node("Mul", &[&slopes, &distance], &[]);
        let masked = g.float(f64::NEG_INFINITY);
        g.node("Where", &[&mask, &bias, &masked], &[])
    }

    fn block(&mut self, layer: usize, x: &str, shared: &mut Shared) -> String {
        let names = self.config.names.block();
        let model = self.config.names.model();
        let block = format!("{}.{}.{layer}", model.scope, model.blocks);
        let normed = self.norm(&format!("{block}.{}", names.norm_1), x);
        let y = self.attention(&format!("{block}.{}", names.attention), layer, &normed, shared);
        let x = self.graph.node("Add", &[x, &y], &[]);
        let normed = self.norm(&format!("{block}.{}", names.norm_2), &x);
        let y = self.feed_forward(&format!("{block}.{}", names.mlp), &normed);
        self.graph.node("Add", &[&x, &y], &[])
    }

    fn norm(&mut self, module: &str, x: &str) -> String {
        let (weight, eps) = (format!("{module}.weight"), Float("epsilon", self.config.norm_eps));
        self.graph.scope = module.into();
        match self.config.norm {
            NormKind::None => x.into(),
            NormKind::RmsNorm => self.graph.node("RMSNormalization", &[x, &weight], &[eps]),
            NormKind::LayerNorm => {
                let bias = format!("{module}.bias");
                let both = [x, &weight, &bias];
                let inputs = if self.config.bias { &both[..] } else { &both[..2] };
                self.graph.node("LayerNormalization", inputs, &[eps])
            }
        }
    }

    fn linear(&mut self, module: &str, x: &str) -> String {
        self.graph.scope = module.into();
        let weight = self.graph.node("Transpose", &[&format!("{module}.weight")], &[]);
        let y = self.graph.node("MatMul", &[x, &weight], &[]);
        match self.config.bias {
            true => self.graph.node("Add", &[&y, &format!("{module}.bias")], &[]),
            false => y,
        }
    }

    fn attention(&mut self, module: &str, layer: usize, x: &str, shared: &mut Shared) -> String {
        let c = self.config;
        let [q, k, v] = match c.is_fused(layer) {
            true => {
                let qkv = self.linear(&format!("{module}.c_attn"), x);
                let names = ["q", "k", "v"].map(|name| format!("{module}/{name}"));
                let [q, k, v] = &names;
                let split = [Integer("axis", 2), Integer("num_outputs", 3)];
                self.graph.node_of("Split", &[&qkv], &[q, k, v], &split);
                names
            }
            false => ["q_proj", "k_proj", "v_proj"]
                .map(|name| self.linear(&format!("{module}.{name}"), x)),
        };
        let q = self.head(module, "q_norm", &q, c.heads, shared);
        let k = self.head(module, "k_norm", &k, c.key_heads(), shared);
        self.graph.scope = module.into();
        let v = self.split(&v, c.key_heads());
        let v = self.swap(&v);
        let window = c.window(layer);
        let mask = match shared.masks.get(&window) {
            Some(mask) => mask.clone(),
            None => {
                let mask = self.mask(window, &shared.distance);
                shared.masks.insert(window, mask.clone());
                mask
            }
        };
        let y = format!("{module}/Attention");
        let of = |name: &str, part: &str| format!("{name}.{layer}.{part}");
        let past = ["key", "value"].map(|part| of("past_key_values", part));
        let present = ["key", "value"].map(|part| of("present", part));
        let inputs: [&str; 6] = [&q, &k, &v, &mask, &past[0], &past[1]];
        self.graph.node_of("Attention", &inputs, &[&y, &present[0], &present[1]], &[]);
        let y = self.swap(&y);
        let joined = self.graph.integers(&[0, 0, -1]);
        let y = self.graph.node("Reshape", &[&y, &joined], &[]);
        let output = if c.is_fused(layer) { "c_proj" } else { "o_proj" };
        self.linear(&format!("{module}.{output}"), &y)
    }

    /// `[batch, length, heads, head width]`
    fn split(&mut self, x: &str, heads: usize) -> String {
        let shape = self.graph.integers(&[0, 0, heads as i64, self.config.head_width() as i64]);
        self.graph.node("Reshape", &[x, &shape], &[])
    }

    /// Exchanges the axes of positions and heads.
    fn swap(&mut self, x: &str) -> String {
        self.graph.node("Transpose", &[x], &[Integers("perm", &[0, 2, 1, 3])])
    }

    /// Queries or keys: normalised, rotated, `[batch, heads, length, head width]`.
    fn head(&mut self, module: &str, norm: &str, x: &str, heads: usize, shared: &Shared) -> String {
        let c = self.config;
        self.graph.scope = module.into();
        let mut x = self.split(x, heads);
        if c.qk_norm {
            let weight = format!("{module}.{norm}.weight");
            let eps = Float("epsilon", c.norm_eps);
            x = self.graph.node("RMSNormalization", &[&x, &weight], &[eps]);
        }
        x = self.swap(&x);
        let (Some((cos, sin)), Positions::Rope(rope)) = (&shared.rope, c.positions) else {
            return x;
        };
        let is_interleaved = rope.pairing == Pairing::Interleaved;
        let width = rope.width.filter(|&width| width != c.head_width()).unwrap_or(0);
        let options = [
            Integer("interleaved", is_interleaved.into()),
            Integer("rotary_embedding_dim", width as i64),
        ];
        self.graph.node("RotaryEmbedding", &[&x, cos, sin, &shared.positions], &options)
    }

    fn feed_forward(&mut self, module: &str, x: &str) -> String {
        let kind = self.config.mlp;
        let names = match kind.is_gated() {
            true => ("gate_proj", "down_proj"),
            false => ("c_fc", "c_proj"),
        };
        let hidden = self.linear(&format!("{module}.{}", names.0), x);
        let g = &mut self.graph;
        let mut y = match kind {
            MlpKind::Gelu | MlpKind::GeGlu => g.node("Gelu", &[&hidden], &[]),
            MlpKind::GeluTanh => g.node("Gelu", &[&hidden], &[Text("approximate", "tanh")]),
            MlpKind::Relu | MlpKind::ReGlu => g.node("Relu", &[&hidden], &[]),
            MlpKind::ReluSquared => {
                let y = g.node("Relu", &[&hidden], &[]);
                g.node("Mul", &[&y, &y], &[])
            }
            MlpKind::SwiGlu => {
                let y = g.node("Sigmoid", &[&hidden], &[]);
                g.node("Mul", &[&hidden, &y], &[])
            }
        };
        if kind.is_gated() {
            let up = self.linear(&format!("{module}.up_proj"), x);
            y = self.graph.node("Mul", &[&y, &up], &[]);
        }
        self.linear(&format!("{module}.{}", names.1), &y)
    }
}
