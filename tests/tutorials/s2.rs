//! The third tutorial: attention on paper, then with masks, then with many heads.

use super::check::{Lesson, all, distance};
use retrograd::nn::torch_init::torch_linear;
use retrograd::prelude::*;
use retrograd::tensor::torch_random::TorchRng;

/// The whole tutorial.
pub fn run(l: &mut Lesson) {
    l.chapter(
        "s2  Attention, for Transformers (a post): two words on paper, masks, many heads",
        include_str!("s2.rs"),
    );
    l.say(
        "The notation: n words, d_model numbers per word, h heads, and d_k = d_model / h \
         numbers per key. Then an example that can be computed on paper.",
    );
    on_paper(l);
    masks(l);
    many_heads(l);
    names(l);
}

//> attention
/// `softmax(Q Kᵀ / √d_k) V` and the weights. Leading axes are batch and heads.
/// `keep` is true where a query attends to a key; `None` is everywhere.
pub fn scaled_dot_product_attention(
    q: &Var,
    k: &Var,
    v: &Var,
    keep: Option<&Tensor<bool>>,
    dropout: &Dropout,
    pass: &mut Pass,
) -> (Var, Var) {
    let scores = q.matmul(&k.t()) / (k.size(-1) as f32).sqrt();
    let weights = match keep {
        Some(keep) => scores.masked_softmax(-1, keep),
        None => scores.softmax(-1),
    };
    let weights = dropout.forward(&weights, pass);
    (weights.matmul(v), weights)
}
//<

fn on_paper(l: &mut Lesson) {
    l.section("A baseball bat");
    l.say(
        "A \"bat\" is a piece of wood or an animal. The three numbers of a word say how much it \
         relates to sports, to animals, and to anything else. \"Baseball\" relates to sports \
         only, \"bat\" to sports and animals equally. Queries, keys and values are the words \
         themselves.",
    );
    l.formula("            sports  animal  other\nbaseball     2       0       0\nbat          1       1       0");
    l.say(
        "On paper: the dot products are 4 and 2 for \"baseball\", 2 and 2 for \"bat\". Divided \
         by √3 = 1.732 they are",
    );
    //> paper
    let x = Tensor::from([[2.0, 0.0, 0.0], [1.0, 1.0, 0.0]]);
    let scores = x.matmul(&x.t()) / 3f32.sqrt();
    l.code("paper");
    l.table("s2.scores", &scores);
    l.say(
        "The text prints two digits, and as many are compared. (It calls these the attention \
         scores; others use the term for the dot products before scaling.) Equal scores give \
         equal weights, so \"bat\" attends to both words equally:",
    );
    //> paper weights
    let weights = scores.softmax(-1);
    let context = weights.matmul(&x);
    l.code("paper weights");
    l.table("s2.weights", &weights);
    l.table("s2.out", &context);
    l.say(
        "\"Bat\" was (1, 1, 0) and is now (1.5, 0.5, 0): attention moved it towards its \
         neighbour, so towards sports.",
    );
    l.say("The post reads the same sum as a kernel regression, with f the softmax over j:");
    l.formula("a_i = Σ_j f(x_i · x_j) x_j");
    let rows: Vec<Tensor> = (0..2).map(|i| x.select(0, i)).collect();
    let f = |i: usize| {
        let e = [0, 1].map(|j| (rows[i].dot(&rows[j]).item() / 3f32.sqrt()).exp());
        e.map(|x| x / (e[0] + e[1]))
    };
    let sum = |i: usize| {
        let [a, b] = f(i);
        &rows[0] * a + &rows[1] * b
    };
    let kernel = Tensor::stack(&[&sum(0), &sum(1)], 0);
    l.holds("the sum, term by term, is the context above", distance(&kernel, &context) < 1e-6);

    l.say("The same as a function that returns the output and the weights:");
    l.code("attention");
    //> call
    let q = Var::constant(x);
    let (none, pass) = (Dropout::new(0.0), &mut Pass::eval());
    let (out, weights) = scaled_dot_product_attention(&q, &q, &q, None, &none, pass);
    l.code("call");
    l.table("s2.forward", out.value());
    l.table("s2.forward.weights", weights.value());
    l.wrong(
        "The docstring says that values have the width d_k. The code does not require this: \
         values may have any width, which becomes the width of the output. The imports (math, \
         torch.nn, torch.nn.functional) are missing.",
    );
}

fn masks(l: &mut Lesson) {
    l.section("Masks, and fully masked rows");
    l.say(
        "This tutorial masks a score where the mask is 0; s0 masks one where the mask is 1. \
         Both use a plain tensor, so the two conventions are easily confused. Therefore the \
         parameter above is called keep and is a tensor of bool: true is visible.",
    );
    l.say(
        "A query may have no visible key, such as the padding in a batch of sentences of \
         different lengths. If all scores are -∞, the softmax is 0 divided by 0.",
    );
    //> nothing
    let scores = Tensor::from([[1.0f32, 2.0], [3.0, 4.0]]);
    let keep = Tensor::from([[true, false], [false, false]]);
    let filled = scores.masked_fill(&!&keep, f32::NEG_INFINITY).softmax(-1);
    let masked = scores.masked_softmax(-1, &keep);
    l.code("nothing");
    l.show("masked_fill and softmax", &filled);
    l.show("masked_softmax", &masked);
    l.wrong(
        "NaN propagates: after the next layer of attention all activations are NaN, and after \
         a training step all parameters. masked_softmax gives weights and gradients of 0.",
    );
    let nan = filled.select(0, 1);
    l.holds("filling gives NaN", all(&nan, f32::is_nan));
    l.holds("masked_softmax gives 0", all(&masked.select(0, 1), |x| x == 0.0));
}

//> multi
/// Several heads; queries, keys and values may come from different sequences.
pub struct MultiHeadAttention {
    w_q: Linear,
    w_k: Linear,
    w_v: Linear,
    w_o: Linear,
    dropout: Dropout,
    heads: usize,
}

impl MultiHeadAttention {
    pub fn new(d_model: usize, heads: usize, dropout: f64, rng: &mut TorchRng) -> Self {
        assert!(d_model.is_multiple_of(heads), "{heads} heads do not divide {d_model}");
        MultiHeadAttention {
            w_q: torch_linear(d_model, d_model, true, rng),
            w_k: torch_linear(d_model, d_model, true, rng),
            w_v: torch_linear(d_model, d_model, true, rng),
            w_o: torch_linear(d_model, d_model, true, rng),
            dropout: Dropout::new(dropout),
            heads,
        }
    }

    /// The output `[B, Lq, d_model]` and the weights `[B, heads, Lq, Lk]`.
    pub fn forward(
        &self,
        [query, key, value]: [&Var; 3],
        keep: Option<&Tensor<bool>>,
        pass: &mut Pass,
    ) -> (Var, Var) {
        let q = self.split(self.w_q.forward(query, pass));
        let k = self.split(self.w_k.forward(key, pass));
        let v = self.split(self.w_v.forward(value, pass));
        let (out, weights) = scaled_dot_product_attention(&q, &k, &v, keep, &self.dropout, pass);
        let joined = out.transpose(1, 2).reshape(query.shape());
        (self.w_o.forward(&joined, pass), weights)
    }

    /// `[B, L, d_model]` to `[B, heads, L, d_k]`.
    fn split(&self, x: Var) -> Var {
        let (batch, length, width) = (x.size(0), x.size(1), x.size(2));
        x.reshape([batch, length, self.heads, width / self.heads]).transpose(1, 2)
    }
}

impl Module for MultiHeadAttention {
    fn visit(&self, v: &mut Visitor<'_, f32>) {
        v.module("W_q", &self.w_q);
        v.module("W_k", &self.w_k);
        v.module("W_v", &self.w_v);
        v.module("W_o", &self.w_o);
    }
}
//<

fn many_heads(l: &mut Lesson) {
    l.section("Many heads");
    l.formula(
        "MultiHead(Q, K, V) = concat(head_1 .. head_h) Wo\n\
         head_i = attention(Q Wq_i, K Wk_i, V Wv_i)",
    );
    l.say(
        "The tutorial prints nothing here. Its module is run with the sizes of the original \
         paper, width 512 and 8 heads, on two sentences of five words. Ours returns the weights \
         instead of storing those of the last call in a field.",
    );
    l.code("multi");
    //> multi run
    let rng = &mut TorchRng::manual_seed(0);
    let attention = MultiHeadAttention::new(512, 8, 0.1, rng);
    let x = Var::constant(rng.randn([2, 5, 512]));
    let pass = &mut Pass::eval();
    let (out, weights) = attention.forward([&x, &x, &x], None, pass);
    l.code("multi run");
    l.show("output", format!("{:?}", out.shape()));
    l.show("weights", format!("{:?}", weights.shape()));
    l.show("number of parameters", attention.num_parameters());

    let columns = x.matmul(&attention.w_q.weight.to_var().t().slice(1, 64..128));
    let bias = attention.w_q.bias.as_ref().expect("with bias").to_var().slice(0, 64..128);
    let split = attention.split(attention.w_q.forward(&x, pass)).select(1, 1);
    let apart = distance((columns + bias).value(), split.value());
    l.wrong(
        "The text splits the input into chunks and projects each chunk; its formula projects \
         the whole input once per head; its code projects the whole input once and splits the \
         result. The last two are equal (see below), the first is not: a head would depend \
         only on its own part of each word.",
    );
    l.holds("columns 64..128 of one projection are the projection of head 2", apart < 1e-5);
    l.wrong(
        "The sizes in the formula clash: Q is said to be n × d_q with d_q = d_model / h, but \
         is multiplied by a matrix with d_model rows. Q, K and V are n × d_model.",
    );
    l.wrong(
        "The weights are said to start by Xavier's rule. nn.Linear starts them uniformly on \
         ±1/√d_model, a form of Kaiming's rule; so does torch_linear.",
    );
    let per_sentence = Tensor::<bool>::ones([2, 5, 5]).tril(0);
    let (masked, _) = attention.forward([&x, &x, &x], Some(&per_sentence.unsqueeze(1)), pass);
    let causal = Tensor::<bool>::ones([5, 5]).tril(0);
    let (same, _) = attention.forward([&x, &x, &x], Some(&causal), pass);
    l.wrong(
        "A mask for each sentence is [B, n, n]; the scores are [B, h, n, n]. Aligned from the \
         right, B is broadcast with h: an error or, if B = h, a wrong result without an error. \
         The mask needs an axis of size 1 for the heads: mask.unsqueeze(1).",
    );
    let apart = distance(masked.value(), same.value());
    l.holds("masks of [2, 1, 5, 5] and [5, 5] give equal results", apart == 0.0);
}

fn names(l: &mut Lesson) {
    l.section("Other kinds of attention");
    l.say(
        "Additive attention (arXiv 1409.0473), sparse attention (1904.10509), a sliding window \
         (Longformer, 2004.05150), grouped queries (2305.13245).",
    );
    l.wrong(
        "Paper 1508.04025 is called the scaled attention paper. It compares dot-product, \
         general and concatenated scores, none of them scaled: scaling came with the \
         transformer, in 1706.03762.",
    );
    l.wrong(
        "Grouped-query attention is said to share keys and values between all heads. That is \
         multi-query attention. Groups of heads share them, and with as many groups as heads \
         it is ordinary multi-head attention.",
    );
}
