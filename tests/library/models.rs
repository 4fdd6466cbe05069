//! Random models against a transcription in plain operations on matrices.

use crate::programs::{seeds, variable};
use retrograd::nn::attention::{Pairing, alibi_slopes};
use retrograd::nn::{AttentionKind as Kind, MlpKind, Names, NormKind, Positions, RopeConfig};
use retrograd::prelude::*;

fn matrix(n: usize, m: usize, f: impl Fn(usize, usize) -> f64) -> Var<f64> {
    Var::constant(Tensor::from_fn([n, m], |i| f(i[0], i[1])))
}

fn sigmoid(x: &Var<f64>) -> Var<f64> {
    ((-x).exp() + 1.0).recip()
}

/// The parameters of a model by name, with scores that are wrong by a part.
struct Transcript<'a> {
    model: &'a Gpt<f64>,
    wrong: f64,
}

impl Transcript<'_> {
    fn find(&self, name: &str) -> Option<Var<f64>> {
        let all = self.model.named_parameters();
        all.into_iter().find(|(known, _)| known == name).map(|(_, param)| param.to_var())
    }

    fn with_bias(&self, name: &str, x: Var<f64>) -> Var<f64> {
        self.find(&format!("{name}.bias")).map_or(x.clone(), |bias| x + bias)
    }

    fn linear(&self, name: &str, x: &Var<f64>) -> Var<f64> {
        let weight = self.find(&format!("{name}.weight")).expect("a weight");
        self.with_bias(name, x.matmul(&weight.t()))
    }

    /// The root mean square norm, if it has a weight.
    fn rms_norm(&self, name: &str, x: &Var<f64>, eps: f64) -> Var<f64> {
        let normed = x / ((x * x).mean_keepdim(-1) + eps).sqrt();
        self.find(&format!("{name}.weight")).map_or(x.clone(), |weight| normed * weight)
    }

    fn norm(&self, name: &str, x: &Var<f64>) -> Var<f64> {
        let GptConfig { norm, norm_eps, .. } = *self.model.config();
        let mean = if norm == NormKind::LayerNorm { 1.0 } else { 0.0 };
        let x = x - x.mean_keepdim(-1) * mean;
        self.with_bias(name, self.rms_norm(name, &x, norm_eps))
    }

    fn feed_forward(&self, name: &str, x: &Var<f64>) -> Var<f64> {
        let kind = self.model.config().mlp;
        let of = |part: &str, x: &Var<f64>| self.linear(&format!("{name}.{part}"), x);
        let h = of(if kind.is_gated() { "gate_proj" } else { "c_fc" }, x);
        let y = match kind {
            MlpKind::Gelu | MlpKind::GeGlu => &h * ((&h / 2f64.sqrt()).erf() + 1.0) * 0.5,
            MlpKind::GeluTanh => {
                let z = (&h + &h * &h * &h * 0.044715) * (2.0 / std::f64::consts::PI).sqrt();
                &h * (z.tanh() + 1.0) * 0.5
            }
            MlpKind::Relu | MlpKind::ReGlu => h.relu(),
            MlpKind::ReluSquared => h.relu() * h.relu(),
            MlpKind::SwiGlu => &h * sigmoid(&h),
        };
        if kind.is_gated() { of("down_proj", &(y * of("up_proj", x))) } else { of("c_proj", &y) }
    }

    /// Queries or keys `[L, D]`, rotated: each element times a cosine, and its partner times a sine.
    fn rotated(&self, x: Var<f64>) -> Var<f64> {
        let (n, width) = (x.size(0), x.size(1));
        let Positions::Rope(rope) = self.model.config().positions else { return x };
        let rotary = rope.width.unwrap_or(width);
        // The pair of an element, its partner, and the sign of the sine.
        let place = |i: usize| match rope.pairing {
            _ if i >= rotary => (0, i, 0.0),
            Pairing::Half if i < rotary / 2 => (i, i + rotary / 2, -1.0),
            Pairing::Half => (i - rotary / 2, i - rotary / 2, 1.0),
            Pairing::Interleaved => (i / 2, i ^ 1, if i.is_multiple_of(2) { -1.0 } else { 1.0 }),
        };
        let angle = |p: usize, i: usize| match i < rotary {
            true => p as f64 * rope.base.powf(-2.0 * place(i).0 as f64 / rotary as f64),
            false => 0.0,
        };
        let swap = matrix(width, width, |i, j| if place(j).1 == i { place(j).2 } else { 0.0 });
        let (cos, sin) = (|p, i| angle(p, i).cos(), |p, i| angle(p, i).sin());
        x.matmul(&swap) * matrix(n, width, sin) + x * matrix(n, width, cos)
    }

    /// Whether query `p` of a head may see the key `j`.
    fn sees(&self, kind: Kind, layer: usize, head: usize, p: usize, j: usize) -> bool {
        let GptConfig { context, windows, .. } = self.model.config();
        let window = windows.get(layer % windows.len().max(1)).copied().flatten();
        let (stride, chunk) = ((*context as f64).sqrt().round() as usize, (context / 4).max(1));
        j <= p
            && window.is_none_or(|window| p - j <= window)
            && match kind {
                Kind::SparseStrided if head.is_multiple_of(2) => p - j < stride,
                Kind::SparseStrided => (p - j).is_multiple_of(stride),
                Kind::SparseFixed if head.is_multiple_of(2) => p / stride == j / stride,
                Kind::SparseFixed => (j + 1).is_multiple_of(stride),
                Kind::ChunkedLocal => p / chunk == j / chunk,
                Kind::Streaming => j < 4 || p - j <= chunk,
                _ => true,
            }
    }

    fn attention(&self, layer: usize, name: &str, x: &Var<f64>) -> Var<f64> {
        let config = self.model.config();
        let kind = config.kinds()[layer % config.kinds().len()];
        let of = |part: &str| format!("{name}.{part}");
        let fused = self.find(&of("c_attn.weight")).is_some();
        let [q, k, v] = [0, 1, 2].map(|i| match fused {
            true => self.linear(&of("c_attn"), x).narrow(-1, i * config.width, config.width),
            false => self.linear(&of(["q_proj", "k_proj", "v_proj"][i]), x),
        });
        let (n, width) = (x.size(0), q.size(-1) / config.heads);
        let eps = if kind == Kind::QkRms { 1e-6 } else { config.norm_eps };
        let distance = |p: usize, j: usize| p.saturating_sub(j) as f64;
        let head = |h: usize| {
            let from = h * k.size(-1) / q.size(-1) * width;
            let part = |x: &Var<f64>, from: usize, norm: &str| {
                self.rotated(self.rms_norm(&of(norm), &x.narrow(-1, from, width), eps))
            };
            let (q, k) = (part(&q, h * width, "q_norm"), part(&k, from, "k_norm"));
            let own = |part: &str| self.find(&of(part)).map(|x| x.select(0, h));
            let mut s = q.matmul(&k.t()) * ((1.0 + self.wrong) / (width as f64).sqrt());
            if kind == Kind::Softcap {
                s = (s / 50.0).tanh() * 50.0;
            }
            let alibi = [kind == Kind::Alibi, config.positions == Positions::Alibi].map(f64::from);
            let slope = (alibi[0] + alibi[1]) * alibi_slopes(config.heads)[h];
            s = s - matrix(n, n, |p, j| slope * distance(p, j));
            if let Some(table) = own("relative_attention_bias") {
                let at = Tensor::from_fn([n * n], |i| distance(i[0] / n, i[0] % n) as i64);
                s = s + table.index_select(0, &at).reshape([n, n]);
            }
            s = own("slopes").map_or(s.clone(), |slope| &s - slope * matrix(n, n, distance));
            s = own("temperature").map_or(s.clone(), |factor| &s * factor);
            let kept = matrix(n, n, |p, j| f64::from(self.sees(kind, layer, h, p, j)));
            let w = if kind == Kind::Sigmoid {
                sigmoid(&(s - (config.context as f64).ln())) * &kept
            } else {
                let e = s.exp() * &kept;
                // The weights of a query that sees no key are 0.
                let blind =
                    matrix(n, 1, |p, _| f64::from(kept.value().select(0, p).sum(..).item() == 0.0));
                let sum = e.sum_keepdim(-1) + if kind == Kind::Quiet { 1.0 } else { 0.0 } + blind;
                &e / own("sinks").map_or(sum.clone(), |sink| sum + sink.exp())
            };
            let y = w.matmul(&v.narrow(-1, from, width));
            own("head_scale").map_or(y.clone(), |scale| y * scale)
        };
        let heads: Vec<Var<f64>> = (0..config.heads).map(head).collect();
        let mut y = Var::cat(&heads.iter().collect::<Vec<_>>(), -1);
        if kind == Kind::Gated {
            y = y * sigmoid(&self.linear(&of("gate_proj"), x));
        }
        self.linear(&of(if fused { "c_proj" } else { "o_proj" }), &y)
    }

    fn logits(&self, tokens: &Tensor<i64>) -> Var<f64> {
        let (config, n) = (self.model.config(), tokens.size(0));
        let names = match config.names {
            Names::Gpt2 => "transformer wte wpe h ln_1 attn ln_2 ln_f",
            Names::Llama => {
                "model embed_tokens embed_positions layers input_layernorm self_attn post_attention_layernorm norm"
            }
        };
        let names: Vec<&str> = names.split(' ').collect();
        let [scope, wte, wpe, blocks, norm_1, attention, norm_2, last] = names.try_into().unwrap();
        let table = self.find(&format!("{scope}.{wte}.weight")).expect("an embedding");
        let mut x = table.index_select(0, tokens);
        if let Some(learned) = self.find(&format!("{scope}.{wpe}.weight")) {
            x = x + learned.narrow(0, 0, n);
        } else if config.positions == Positions::Sinusoidal {
            let angle = |p, i| p as f64 / 10000f64.powf((i / 2 * 2) as f64 / config.width as f64);
            let sine = |p: usize, i: usize| {
                if i.is_multiple_of(2) { angle(p, i).sin() } else { angle(p, i).cos() }
            };
            x = x + matrix(n, config.width, sine);
        }
        for layer in 0..config.layers {
            let of = |part: &str| format!("{scope}.{blocks}.{layer}.{part}");
            x = &x + self.attention(layer, &of(attention), &self.norm(&of(norm_1), &x));
            x = &x + self.feed_forward(&of("mlp"), &self.norm(&of(norm_2), &x));
        }
        let head = self.find("lm_head.weight").unwrap_or(table);
        let y = self.norm(&format!("{scope}.{last}"), &x).matmul(&head.t());
        config.logit_softcap.map_or(y.clone(), |c| (y / c).tanh() * c)
    }
}

/// The variants that are transcribed.
const KINDS: &str =
    "causal grouped-query multi-query sparse-strided sparse-fixed chunked-local streaming
    alibi alibi-learned temperature softcap qk-rms sink quiet gated head-scale sigmoid";

/// A configuration of transcribed parts.
fn draw(rng: &mut Rng) -> GptConfig {
    let kinds: Vec<Kind> = KINDS.split_whitespace().map(|name| name.parse().unwrap()).collect();
    let mut of = |n: usize| rng.below(n);
    let (heads, pairing) = (1 + of(4), [Pairing::Half, Pairing::Interleaved][of(2)]);
    let rope =
        RopeConfig { base: 100.0, width: [None, Some(2)][of(2)], pairing, ..RopeConfig::default() };
    let positions = Positions::ALL[of(Positions::ALL.len())];
    let config = GptConfig {
        vocab: 2 + of(9),
        context: 1 + of(12),
        layers: 1 + of(3),
        heads,
        width: 2 * heads * (1 + of(3)),
        bias: of(2) == 0,
        tied: of(2) == 0,
        attention: kinds[of(kinds.len())],
        pattern: (0..of(3)).map(|_| kinds[of(kinds.len())]).collect(),
        key_heads: [None, None, Some(1), Some(2)][of(4)],
        head_width: [None, None, Some(2), Some(6)][of(4)],
        qk_norm: of(3) == 0,
        windows: (0..of(3)).map(|_| [None, Some(of(5))][of(2)]).collect(),
        norm: NormKind::ALL[of(3)],
        norm_eps: [1e-5, 1e-3][of(2)],
        mlp: MlpKind::ALL[of(7)],
        hidden: [None, Some(1 + of(20))][of(2)],
        positions: if let Positions::Rope(_) = positions {
            Positions::Rope(rope)
        } else {
            positions
        },
        logit_softcap: [None, Some(3.0)][of(2)],
        names: [Names::Gpt2, Names::Llama][of(2)],
        ..GptConfig::default()
    };
    if config.check().is_ok() { config } else { draw(rng) }
}

/// The largest difference of the logits and of each gradient, relative to the largest element, of which the smallest
/// that counts is a thousandth of the largest of all gradients: some consist of rounding errors.
fn difference(seed: u64, wrong: f64) -> (f64, GptConfig) {
    let mut rng = Rng::new(seed);
    let config = draw(&mut rng);
    let model = Gpt::<f64>::new(config.clone(), &mut rng).unwrap();
    let params = model.named_parameters();
    // Without norms, larger scores overflow where no maximum is subtracted.
    let scale = if config.norm == NormKind::None { 0.15 } else { 0.4 };
    params.iter().for_each(|(_, p)| p.set(Tensor::randn(p.shape(), &mut rng).mul_scalar(scale)));
    let length = 1 + rng.below(config.context);
    let tokens = Tensor::<i64>::randint(0, config.vocab as i64, [length], &mut rng);
    let weights = Tensor::randn([length, config.vocab], &mut rng);
    let of = |logits: Var<f64>| {
        let grads = logits.backward_with(&weights);
        let of = |(_, p): &(String, Param<f64>)| {
            grads.get(p).map_or(p.value().zeros_like(), Clone::clone)
        };
        (logits.into_value(), params.iter().map(of).collect::<Vec<_>>())
    };
    let ours = of(model.forward(&tokens, &mut Pass::eval()));
    let want = of(Transcript { model: &model, wrong }.logits(&tokens));
    let size = |x: &Tensor<f64>| x.abs().max(..).item();
    let floor = 1e-3 * want.1.iter().map(size).fold(0.0, f64::max);
    let part = |(a, b): (&Tensor<f64>, &Tensor<f64>)| size(&a.sub(b)) / size(b).max(floor);
    let gradients = ours.1.iter().zip(&want.1).map(part);
    let all = gradients.chain([size(&ours.0.sub(&want.0)) / size(&want.0)]);
    (all.fold(0.0, |a, b| if b > a || b.is_nan() { b } else { a }), config)
}

/// A tenth as many models as programs.
#[test]
fn random_models_agree_with_a_transcription() {
    let (n, mut worst) = (variable("PROPTEST_CASES").unwrap_or(400) / 10, 0.0f64);
    for seed in seeds(400).take(n as usize) {
        let (part, config) = difference(seed, 0.0);
        assert!(part <= 1e-10, "{part:e}: {config:?}");
        worst = worst.max(part);
    }
    println!("{n} models, largest relative difference {worst:.1e}");
}

/// Scores that are wrong by 1e-7 are found in most models.
#[test]
fn wrong_scores_are_found() {
    let found = (0..20).filter(|&seed| difference(seed, 1e-7).0 > 1e-10).count();
    assert!(found > 10, "{found} of 20");
}
