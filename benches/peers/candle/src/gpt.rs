//! The language model, in candle.

use crate::DEV;
use candle_core::{D, DType, IndexOp, Result, Tensor, Var};
use candle_nn::{LayerNorm, Linear, Module, loss, ops};
use peer_common::{Config, VOCAB, data};

struct Block {
    ln_1: Var,
    qkv: Var,
    proj: Var,
    ln_2: Var,
    fc: Var,
    fc_proj: Var,
}

pub struct Gpt {
    config: Config,
    wte: Var, // and the head
    wpe: Var,
    blocks: Vec<Block>,
    ln_f: Var,
    mask: Tensor,
}

pub fn layer_norm(x: &Tensor, weight: &Tensor) -> Result<Tensor> {
    LayerNorm::new_no_bias(weight.clone(), 1e-5).forward(x)
}

fn linear(x: &Tensor, weight: &Var) -> Result<Tensor> {
    Linear::new(weight.as_tensor().clone(), None).forward(x)
}

fn dropout(x: Tensor, p: f32) -> Result<Tensor> {
    if p > 0.0 { ops::dropout(&x, p) } else { Ok(x) }
}

/// The causal mask as a bias: 0 on and below the diagonal, -∞ above.
pub fn causal_mask(t: usize) -> Result<Tensor> {
    let at = |i: usize| if i % t > i / t { f32::NEG_INFINITY } else { 0.0 };
    Tensor::from_vec((0..t * t).map(at).collect(), (t, t), DEV)
}

/// Attention over `[batch, heads, time, size]`, composed of differentiable operations.
pub fn attention(q: &Tensor, k: &Tensor, v: &Tensor, mask: &Tensor, p: f32) -> Result<Tensor> {
    let scale = 1.0 / (q.dim(D::Minus1)? as f64).sqrt();
    let scores = (q.matmul(&k.t()?)? * scale)?.broadcast_add(mask)?;
    dropout(ops::softmax(&scores, D::Minus1)?, p)?.matmul(v)
}

impl Gpt {
    pub fn new(config: Config) -> Result<Self> {
        let (width, residual) = (config.width, Some(config.layers));
        let mut count = 0;
        let mut param = |rows: usize, cols: usize, residual: Option<usize>| {
            count += 1;
            Var::from_vec(data::matrix(count - 1, rows * cols, residual), (rows, cols), DEV)
        };
        let ones = || Var::ones(width, DType::F32, DEV);
        let (wte, wpe) = (param(VOCAB, width, None)?, param(config.context, width, None)?);
        let mut block = |_| {
            Ok(Block {
                ln_1: ones()?,
                qkv: param(3 * width, width, None)?,
                proj: param(width, width, residual)?,
                ln_2: ones()?,
                fc: param(4 * width, width, None)?,
                fc_proj: param(width, 4 * width, residual)?,
            })
        };
        let blocks = (0..config.layers).map(&mut block).collect::<Result<_>>()?;
        let mask = causal_mask(config.context)?;
        Ok(Gpt { config, wte, wpe, blocks, ln_f: ones()?, mask })
    }

    pub fn vars(&self) -> Vec<Var> {
        let mut vars = vec![self.wte.clone(), self.wpe.clone(), self.ln_f.clone()];
        for b in &self.blocks {
            vars.extend([&b.ln_1, &b.qkv, &b.proj, &b.ln_2, &b.fc, &b.fc_proj].map(Var::clone));
        }
        vars
    }

    /// The mean cross-entropy of a batch of any number of sequences.
    pub fn loss(&self, tokens: &[u32], targets: &[u32]) -> Result<Tensor> {
        let Config { context: t, width, heads, dropout: p, .. } = self.config;
        let (b, p) = (tokens.len() / t, p as f32);
        let ids = Tensor::from_slice(tokens, b * t, DEV)?;
        let x = self.wte.embedding(&ids)?.reshape((b, t, width))?;
        let mut x = dropout(x.broadcast_add(self.wpe.as_tensor())?, p)?;
        for block in &self.blocks {
            let qkv = linear(&layer_norm(&x, &block.ln_1)?, &block.qkv)?
                .reshape((b, t, 3, heads, width / heads))?
                .permute((2, 0, 3, 1, 4))?
                .contiguous()?;
            let y = attention(&qkv.i(0)?, &qkv.i(1)?, &qkv.i(2)?, &self.mask, p)?;
            let y = linear(&y.transpose(1, 2)?.reshape((b, t, width))?, &block.proj)?;
            x = (x + dropout(y, p)?)?;
            let hidden = linear(&layer_norm(&x, &block.ln_2)?, &block.fc)?.gelu_erf()?;
            x = (x + dropout(linear(&hidden, &block.fc_proj)?, p)?)?;
        }
        let x = layer_norm(&x, &self.ln_f)?.reshape((b * t, width))?;
        loss::cross_entropy(&linear(&x, &self.wte)?, &Tensor::from_slice(targets, b * t, DEV)?)
    }
}
