//! The language model, in burn.

use burn::module::{Module, Param};
use burn::nn::{
    Embedding, EmbeddingConfig, Gelu, LayerNorm, LayerNormConfig, Linear, LinearConfig,
};
use burn::tensor::module::attention;
use burn::tensor::ops::AttentionModuleOptions;
use burn::tensor::{Device, Int, Tensor, TensorData};
use peer_common::{Config, VOCAB, data};

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

/// The initial matrices, the same in every program.
struct Matrices<'a> {
    count: usize,
    device: &'a Device,
}

impl Matrices<'_> {
    fn next(&mut self, n: usize, residual_of: Option<usize>) -> Vec<f32> {
        self.count += 1;
        data::matrix(self.count - 1, n, residual_of)
    }

    fn param(&self, values: Vec<f32>, shape: [usize; 2]) -> Param<Tensor<2>> {
        let values = TensorData::new(values, shape);
        Param::from_tensor(Tensor::from_data(values, self.device))
    }

    fn embedding(&mut self, entries: usize, width: usize) -> Embedding {
        let values = self.next(entries * width, None);
        let mut layer = EmbeddingConfig::new(entries, width).init(self.device);
        layer.weight = self.param(values, [entries, width]);
        layer
    }

    /// burn stores `[inputs, outputs]`, the other libraries `[outputs, inputs]`.
    fn linear(&mut self, inputs: usize, outputs: usize, residual_of: Option<usize>) -> Linear {
        let values = self.next(inputs * outputs, residual_of);
        let turned = (0..inputs * outputs).map(|i| values[i % outputs * inputs + i / outputs]);
        let mut layer = LinearConfig::new(inputs, outputs).with_bias(false).init(self.device);
        layer.weight = self.param(turned.collect(), [inputs, outputs]);
        layer
    }
}

impl Block {
    fn new(c: &Config, matrices: &mut Matrices<'_>) -> Self {
        let (width, residual, device) = (c.width, Some(c.layers), matrices.device);
        let mut linear = |inputs, outputs, of| matrices.linear(inputs, outputs, of);
        let norm = || LayerNormConfig::new(width).with_bias(false).init(device);
        Block {
            ln_1: norm(),
            qkv: linear(width, 3 * width, None),
            proj: linear(width, width, residual),
            ln_2: norm(),
            fc: linear(width, 4 * width, None),
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
        let mut matrices = Matrices { count: 0, device };
        Gpt {
            wte: matrices.embedding(VOCAB, c.width),
            wpe: matrices.embedding(c.context, c.width),
            blocks: (0..c.layers).map(|_| Block::new(c, &mut matrices)).collect(),
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
