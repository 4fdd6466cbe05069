//! The language model, in burn.

use burn::module::Module;
use burn::nn::{
    Embedding, EmbeddingConfig, Gelu, Initializer, LayerNorm, LayerNormConfig, Linear, LinearConfig,
};
use burn::tensor::module::attention;
use burn::tensor::ops::AttentionModuleOptions;
use burn::tensor::{Device, Int, Tensor};
use peer_common::{Config, VOCAB};

#[derive(Module, Debug)]
struct Block {
    ln_1: LayerNorm,
    qkv: Linear,
    proj: Linear,
    ln_2: LayerNorm,
    fc: Linear,
    fc_proj: Linear,
}

#[derive(Module, Debug)]
pub struct Gpt {
    wte: Embedding, // and the head
    wpe: Embedding,
    blocks: Vec<Block>,
    ln_f: LayerNorm,
    #[module(skip)]
    heads: usize,
}

pub fn causal() -> AttentionModuleOptions {
    AttentionModuleOptions { scale: None, softcap: None, is_causal: true }
}

fn normal(std: f64) -> Initializer {
    Initializer::Normal { mean: 0.0, std }
}

impl Block {
    fn new(c: &Config, device: &Device) -> Self {
        let (width, residual) = (c.width, c.residual_std());
        let linear = |inputs: usize, outputs: usize, std: f64| {
            let layer = LinearConfig::new(inputs, outputs).with_bias(false);
            layer.with_initializer(normal(std)).init(device)
        };
        let norm = || LayerNormConfig::new(width).with_bias(false).init(device);
        Block {
            ln_1: norm(),
            qkv: linear(width, 3 * width, 0.02),
            proj: linear(width, width, residual),
            ln_2: norm(),
            fc: linear(width, 4 * width, 0.02),
            fc_proj: linear(4 * width, width, residual),
        }
    }

    fn forward(&self, x: Tensor<3>, heads: usize) -> Tensor<3> {
        let [b, t, width] = x.dims();
        let qkv = self.qkv.forward(self.ln_1.forward(x.clone())).chunk(3, 2);
        let mut parts =
            qkv.into_iter().map(|p| p.reshape([b, t, heads, width / heads]).swap_dims(1, 2));
        let [q, k, v] = std::array::from_fn(|_| parts.next().expect("three parts"));
        let y = attention(q, k, v, None, None, causal()).swap_dims(1, 2).reshape([b, t, width]);
        let x = x + self.proj.forward(y);
        let hidden = Gelu::new().forward(self.fc.forward(self.ln_2.forward(x.clone())));
        x + self.fc_proj.forward(hidden)
    }
}

impl Gpt {
    pub fn new(c: &Config, device: &Device) -> Self {
        let embedding = |entries: usize| {
            EmbeddingConfig::new(entries, c.width).with_initializer(normal(0.02)).init(device)
        };
        Gpt {
            wte: embedding(VOCAB),
            wpe: embedding(c.context),
            blocks: (0..c.layers).map(|_| Block::new(c, device)).collect(),
            ln_f: LayerNormConfig::new(c.width).with_bias(false).init(device),
            heads: c.heads,
        }
    }

    /// Logits of tokens `[batch, time]`, one row each.
    pub fn logits(&self, tokens: Tensor<2, Int>) -> Tensor<2> {
        let [b, t] = tokens.dims();
        let mut x = self.wte.forward(tokens) + self.wpe.weight.val().unsqueeze::<3>();
        for block in &self.blocks {
            x = block.forward(x, self.heads);
        }
        let [_, _, width] = x.dims();
        let x = self.ln_f.forward(x).reshape([b * t, width]);
        x.matmul(self.wte.weight.val().transpose())
    }
}
