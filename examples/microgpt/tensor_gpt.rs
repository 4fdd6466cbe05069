//! The model on tensors: all positions of a name at once.

use crate::sizes::{CONTEXT, EPS, HEAD, HEADS, HIDDEN, WIDTH};
use crate::text::Names;
use retrograd::nn::attention::{Spec, attend};
use retrograd::nn::init::Init;
use retrograd::prelude::*;

/// The weights; matrices are `[outputs, inputs]`.
pub(crate) struct TensorGpt {
    wte: Param<f64>,
    wpe: Param<f64>,
    wq: Param<f64>,
    wk: Param<f64>,
    wv: Param<f64>,
    wo: Param<f64>,
    fc1: Param<f64>,
    fc2: Param<f64>,
    head: Param<f64>,
}

impl Module<f64> for TensorGpt {
    fn visit(&self, v: &mut Visitor<'_, f64>) {
        for (name, param) in self.params() {
            v.param(name, param);
        }
    }
}

impl TensorGpt {
    /// A model with normal weights of standard deviation 0.08.
    pub(crate) fn new(vocab: usize, seed: u64) -> TensorGpt {
        let mut rng = Rng::new(seed);
        let mut matrix = |outputs, inputs| {
            Param::new(Init::Normal { std: 0.08 }.sample([outputs, inputs], &mut rng))
        };
        TensorGpt {
            wte: matrix(vocab, WIDTH),
            wpe: matrix(CONTEXT, WIDTH),
            wq: matrix(WIDTH, WIDTH),
            wk: matrix(WIDTH, WIDTH),
            wv: matrix(WIDTH, WIDTH),
            wo: matrix(WIDTH, WIDTH),
            fc1: matrix(HIDDEN, WIDTH),
            fc2: matrix(WIDTH, HIDDEN),
            head: matrix(vocab, WIDTH),
        }
    }

    fn params(&self) -> [(&'static str, &Param<f64>); 9] {
        let TensorGpt { wte, wpe, wq, wk, wv, wo, fc1, fc2, head } = self;
        [
            ("wte", wte),
            ("wpe", wpe),
            ("wq", wq),
            ("wk", wk),
            ("wv", wv),
            ("wo", wo),
            ("fc1", fc1),
            ("fc2", fc2),
            ("head", head),
        ]
    }

    /// The values of all weights.
    pub(crate) fn weights(&self) -> [Tensor<f64>; 9] {
        self.params().map(|(_, param)| param.value())
    }

    /// The logits `[length, vocab]` of the tokens after these.
    fn logits(&self, tokens: &[usize]) -> Var<f64> {
        let [wte, wpe, wq, wk, wv, wo, fc1, fc2, head] = self.params().map(|(_, p)| p.to_var());
        let length = tokens.len();
        let index: Vec<i64> = tokens.iter().map(|&t| t as i64).collect();
        let positions = wpe.narrow(0, 0, length);
        let x = wte.embedding(&Tensor::from_vec(index, [length])).add(&positions);
        let x = x.rms_norm(None, EPS);

        let h = x.rms_norm(None, EPS);
        let split = |w: &Var<f64>| {
            h.linear(w, None).reshape([length, HEADS, HEAD]).transpose(0, 1) // heads first
        };
        let heads = attend(&split(&wq), &split(&wk), &split(&wv), &Spec::new().causal());
        let x = &x + heads.transpose(0, 1).reshape([length, WIDTH]).linear(&wo, None);

        let hidden = x.rms_norm(None, EPS).linear(&fc1, None).relu_squared();
        let x = &x + hidden.linear(&fc2, None);

        x.linear(&head, None)
    }

    /// A step of Adam on one name; returns the loss before it.
    pub(crate) fn step(
        &self,
        tokens: &[usize],
        adam: &mut Adam<f64>,
        lr: f64,
    ) -> Result<f64, String> {
        let (inputs, targets) = (&tokens[..tokens.len() - 1], &tokens[1..]);
        let targets: Vec<i64> = targets.iter().map(|&t| t as i64).collect();
        let targets = Tensor::from_vec(targets, [inputs.len()]);
        let loss = self.logits(inputs).cross_entropy(&targets, CrossEntropy::default());
        adam.set_lr(lr);
        adam.step(&loss.backward()).map_err(|e| e.to_string())?;
        Ok(loss.item())
    }

    /// A new name. `random` returns numbers in `[0, 1)`.
    pub(crate) fn sample(
        &self,
        names: &Names,
        temperature: f64,
        mut random: impl FnMut() -> f64,
    ) -> String {
        let mut tokens = vec![names.end()];
        while tokens.len() <= CONTEXT {
            let logits = no_grad(|| self.logits(&tokens).select(0, tokens.len() - 1));
            let p = (logits.value() / temperature).softmax(-1).to_vec();
            let mut rest = random();
            let next = p.iter().position(|p| {
                rest -= p;
                rest < 0.0
            });
            match next.unwrap_or(p.len() - 1) {
                next if next == names.end() => break,
                next => tokens.push(next),
            }
        }
        tokens[1..].iter().map(|&token| names.character(token)).collect()
    }
}
