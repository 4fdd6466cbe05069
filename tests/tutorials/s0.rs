//! The first tutorial: one sentence of twelve words, five kinds of attention.

use super::check::{Lesson, all, distance, size, words};
use retrograd::nn::torch_init::torch_linear;
use retrograd::prelude::*;
use retrograd::tensor::torch_random::TorchRng;

const SENTENCE: &str = "The chef prepared a delicious meal, and it was served with wine.";

/// The tutorial's embeddings: three invented numbers a word.
fn embeddings() -> Tensor {
    Tensor::from([
        [0.32, 0.68, 0.45], // The
        [0.71, 0.23, 0.89], // chef
        [0.55, 0.92, 0.37], // prepared
        [0.18, 0.79, 0.60], // a
        [0.84, 0.41, 0.13], // delicious
        [0.29, 0.63, 0.76], // meal
        [0.50, 0.15, 0.95], // and
        [0.67, 0.38, 0.82], // it
        [0.43, 0.91, 0.26], // was
        [0.75, 0.20, 0.58], // served
        [0.36, 0.72, 0.49], // with
        [0.88, 0.54, 0.11], // wine
    ])
}

/// The whole tutorial.
pub fn run(l: &mut Lesson) {
    l.chapter(
        "s0  Attention on Attention (Vipul Koti): twelve words, five kinds of attention",
        include_str!("s0.rs"),
    );
    l.say(
        "The meaning of a word depends on other words. In the sentence of this tutorial, \"it\" \
         may refer to the chef or to the meal. Attention computes a new vector for every word, \
         as a weighted mean over all words. The weights depend on parameters that are learned; \
         this tutorial shows only the arithmetic, with untrained numbers.",
    );
    l.formula(SENTENCE);
    without_weights(l);
    with_weights(l);
    causal(l);
    multi_head(l);
    cross(l);
}

fn without_weights(l: &mut Lesson) {
    l.section("Level 1: attention without weights");
    l.say(
        "A word is a vector x (here of three numbers). The score of two words is their dot \
         product. A softmax turns a row of scores into weights, which are positive and sum to \
         1. The context vector of a word is the sum of all vectors, each times its weight.",
    );
    l.formula("scores  = X Xᵀ\nweights = softmax(scores), by rows\ncontext = weights X");
    //> plain
    let x = embeddings(); // [12, 3], a row per word
    let scores = x.matmul(&x.t()); // [12, 12]
    let weights = scores.softmax(-1); // every row sums to 1
    let context = weights.matmul(&x); // [12, 3]
    l.code("plain");
    l.table("s0.plain", &context);

    let words = words(SENTENCE);
    let row = weights.select(0, 7).to_vec();
    l.say("The weights in the row of \"it\":");
    l.bars(&words, &row);
    l.wrong(
        "The tutorial says that \"it\" gives the highest score to \"meal\". With these \
         embeddings it does not: \"chef\" comes first (0.1094), then \"it\" itself, then \
         \"and\", and \"meal\" is fourth (0.0864). The embeddings are untrained, and dot \
         products are larger for long vectors.",
    );
    let order = weights.select(0, 7).argsort(-1, true).to_vec();
    l.holds("\"it\" attends to \"chef\" most", words[order[0] as usize] == "chef");
    l.wrong(
        "The text calls the result the weighted sum of all the other words. The word itself is \
         included, as in the tutorial's list of steps and in its code: \"it\" has its second \
         largest weight on itself.",
    );
    l.holds("\"it\" attends to itself second most", words[order[1] as usize] == "it");
    l.wrong(
        "The formula shown beside this step divides by √d_k; the code does not, and neither \
         does the code above, so that the numbers agree.",
    );
}

//> self
/// One head: three linear layers, without bias.
pub struct SelfAttention {
    w_query: Linear,
    w_key: Linear,
    w_value: Linear,
}

impl SelfAttention {
    /// Weights are drawn in the order of the fields, as in PyTorch.
    pub fn new(d_in: usize, d_out: usize, rng: &mut TorchRng) -> Self {
        SelfAttention {
            w_query: torch_linear(d_in, d_out, false, rng),
            w_key: torch_linear(d_in, d_out, false, rng),
            w_value: torch_linear(d_in, d_out, false, rng),
        }
    }

    /// `[.., L, d_in]` to `[.., L, d_out]`.
    pub fn forward(&self, x: &Var, pass: &mut Pass) -> Var {
        let q = self.w_query.forward(x, pass);
        let k = self.w_key.forward(x, pass);
        let v = self.w_value.forward(x, pass);
        let scores = q.matmul(&k.t()) / (k.size(-1) as f32).sqrt();
        scores.softmax(-1).matmul(&v)
    }
}
//<

fn with_weights(l: &mut Lesson) {
    l.section("Level 2: queries, keys and values");
    l.say(
        "Each word has three vectors: a query, a key and a value. Scores are dot products of \
         queries and keys, and the context is a weighted sum of values. Each of the three is a \
         linear map of the word, with trainable parameters. The tutorial compares them to a \
         search term, the index and the record found.",
    );
    l.formula("Q = X Wqᵀ,  K = X Wkᵀ,  V = X Wvᵀ\ncontext = softmax(Q Kᵀ / √d_k) V");
    l.say("The division by √d_k keeps the variance of scores independent of d_k: see s1.");
    l.code("self");
    //> self run
    let rng = &mut TorchRng::manual_seed(1240);
    let attention = SelfAttention::new(3, 2, rng);
    let x = Var::constant(embeddings());
    let context = attention.forward(&x, &mut Pass::eval()); // [12, 2]
    l.code("self run");
    l.table("s0.self", context.value());
    l.say(
        "The rows are nearly equal: small random parameters give small scores and nearly equal \
         weights, so every context vector is close to the mean of all values.",
    );
    l.wrong(
        "In the tutorial keys.T reverses all axes, which is correct for one sentence but not \
         for a batch. Our k.t() exchanges the last two axes, for any number of leading axes.",
    );
}

//> causal
/// One head with a causal mask.
pub struct CausalAttention {
    w_query: Linear,
    w_key: Linear,
    w_value: Linear,
    dropout: Dropout,
}

impl CausalAttention {
    pub fn new(d_in: usize, d_out: usize, dropout: f64, rng: &mut TorchRng) -> Self {
        CausalAttention {
            w_query: torch_linear(d_in, d_out, false, rng),
            w_key: torch_linear(d_in, d_out, false, rng),
            w_value: torch_linear(d_in, d_out, false, rng),
            dropout: Dropout::new(dropout),
        }
    }

    /// `[.., L, d_in]` to `[.., L, d_out]`.
    pub fn forward(&self, x: &Var, pass: &mut Pass) -> Var {
        let q = self.w_query.forward(x, pass);
        let k = self.w_key.forward(x, pass);
        let v = self.w_value.forward(x, pass);
        let weights = causal_weights(&q, &k);
        self.dropout.forward(&weights, pass).matmul(&v)
    }
}

/// `[.., L, d]` and `[.., L, d]` to `[.., L, L]`: word `i` attends to words `0..=i`.
fn causal_weights(q: &Var, k: &Var) -> Var {
    let length = q.size(-2);
    let future = Tensor::<bool>::ones([length, length]).triu(1);
    let scores = q.matmul(&k.t()).masked_fill(&future, f32::NEG_INFINITY);
    (scores / (k.size(-1) as f32).sqrt()).softmax(-1)
}
//<

fn causal(l: &mut Lesson) {
    l.section("Level 3: causal attention");
    l.say(
        "A model that predicts the next word must not use it. So the scores of later words are \
         set to minus infinity before the softmax, which gives them a weight of zero. The mask \
         is the upper triangle above the diagonal. Here the input is a batch: the sentence, \
         twice.",
    );
    l.formula("weights = softmax(mask(Q Kᵀ) / √d_k),  mask: -∞ where the key comes later");
    l.code("causal");
    //> causal run
    let x = embeddings();
    let batch = Var::constant(Tensor::stack(&[&x, &x], 0)); // [2, 12, 3]
    let rng = &mut TorchRng::manual_seed(1240);
    let attention = CausalAttention::new(3, 2, 0.0, rng);
    let context = attention.forward(&batch, &mut Pass::eval()); // [2, 12, 2]
    l.code("causal run");
    l.same("batch.shape:", size(batch.shape()), "torch.Size([2, 12, 3])");
    l.table("s0.causal", context.value());
    l.same("context_vectors.shape:", size(context.shape()), "torch.Size([2, 12, 2])");

    let (first, second) = (context.value().select(0, 0), context.value().select(0, 1));
    l.holds("both sentences of the batch give the same", first == second);
    let alone = SelfAttention::new(3, 2, &mut TorchRng::manual_seed(1240));
    let alone = alone.forward(&Var::constant(x.clone()), &mut Pass::eval());
    let last = distance(&alone.value().select(0, 11), &first.select(0, 11));
    l.holds("the last word attends to all words, so its row is that of level 2", last < 1e-6);
    let value = attention.w_value.forward(&Var::constant(x), &mut Pass::eval());
    let only = distance(&value.value().select(0, 0), &first.select(0, 0));
    l.holds("the first word attends only to itself, so its row is its own value", only < 1e-6);

    l.say(
        "The tutorial fills the scores in place (masked_fill_). Here masked_fill returns a new \
         tensor, so saved tensors of the graph cannot be modified. Masking before or after \
         scaling gives the same result, because -∞ divided by √d_k is -∞.",
    );
    l.wrong(
        "One sentence of the tutorial sets the scores of future words to zero. Zero is a score \
         like any other: e⁰ = 1, so a future word has a positive weight. It must be -∞, as in \
         the tutorial's code and in its list of steps.",
    );
    l.wrong(
        "As printed, the module is built a first time with context_length and dropout, which \
         nothing has defined yet: a NameError. In the author's notebook both are one cell, in \
         another order. The printed tensor opens with one bracket too many, and closes it behind \
         grad_fn instead of before it.",
    );
}

//> multi
/// Several causal heads, and a projection of their outputs.
pub struct MultiHeadAttention {
    w_query: Linear,
    w_key: Linear,
    w_value: Linear,
    out_proj: Linear,
    dropout: Dropout,
    heads: usize,
}

impl MultiHeadAttention {
    pub fn new(d_in: usize, d_out: usize, heads: usize, dropout: f64, rng: &mut TorchRng) -> Self {
        assert!(d_out.is_multiple_of(heads), "{heads} heads do not divide {d_out}");
        MultiHeadAttention {
            w_query: torch_linear(d_in, d_out, false, rng),
            w_key: torch_linear(d_in, d_out, false, rng),
            w_value: torch_linear(d_in, d_out, false, rng),
            out_proj: torch_linear(d_out, d_out, true, rng),
            dropout: Dropout::new(dropout),
            heads,
        }
    }

    /// `[B, L, d_in]` to `[B, L, d_out]`.
    pub fn forward(&self, x: &Var, pass: &mut Pass) -> Var {
        let (batch, length) = (x.size(0), x.size(1));
        // [B, L, d_out] to [B, L, heads, head_dim] to [B, heads, L, head_dim]
        let split = |y: Var| {
            let head_dim = y.size(-1) / self.heads;
            y.reshape([batch, length, self.heads, head_dim]).transpose(1, 2)
        };
        let q = split(self.w_query.forward(x, pass));
        let k = split(self.w_key.forward(x, pass));
        let v = split(self.w_value.forward(x, pass));
        let weights = causal_weights(&q, &k); // [B, heads, L, L]
        let context = self.dropout.forward(&weights, pass).matmul(&v);
        // Heads side by side again: [B, L, heads · head_dim]
        let width = self.heads * context.size(-1);
        let joined = context.transpose(1, 2).reshape([batch, length, width]);
        self.out_proj.forward(&joined, pass)
    }
}

impl Module for MultiHeadAttention {
    fn visit(&self, v: &mut Visitor<'_, f32>) {
        v.module("W_query", &self.w_query);
        v.module("W_key", &self.w_key);
        v.module("W_value", &self.w_value);
        v.module("out_proj", &self.out_proj);
    }
}
//<

fn multi_head(l: &mut Lesson) {
    l.section("Level 4: several heads");
    l.say(
        "One softmax gives one set of weights, but a word may depend on several others in \
         different ways. So the width is divided into heads, each head computes attention on \
         its own part, and a final linear layer combines the outputs of the heads.",
    );
    l.formula(
        "head_i = softmax(mask(Q_i K_iᵀ) / √d_head) V_i,  Q_i: columns i·d_head.. of Q\n\
         context = concat(head_1 .. head_h) Woᵀ + b",
    );
    l.code("multi");
    //> multi run
    let x = embeddings();
    let batch = Var::constant(Tensor::stack(&[&x, &x], 0)); // [2, 12, 3]
    let rng = &mut TorchRng::manual_seed(1240);
    let attention = MultiHeadAttention::new(3, 2, 2, 0.0, rng); // two heads of width 1
    let context = attention.forward(&batch, &mut Pass::eval()); // [2, 12, 2]
    l.code("multi run");
    l.table("s0.multi", context.value());
    l.same("context_vecs.shape:", size(context.shape()), "torch.Size([2, 12, 2])");

    l.say("The module lists its parameters, so it can be saved and trained:");
    let params = attention.named_parameters();
    let names: Vec<&str> = params.iter().map(|(name, _)| name.as_str()).collect();
    l.show("parameters", names.join(", "));
    let grads = context.square().sum(..).backward();
    let reached = params.iter().all(|(_, param)| {
        grads.by_id(param.id()).is_some_and(|g| all(g, f32::is_finite) && g.norm(..).item() > 0.0)
    });
    l.holds("the gradient of Σ context² reaches each of them", reached);

    l.wrong(
        "qkv_bias has no default value, and the call leaves it out: a TypeError. The author's \
         notebook says qkv_bias=False, which gives the numbers above.",
    );
    l.wrong(
        "The printed tensor is closed with its third bracket and a parenthesis, and then once \
         more with a bracket that nothing has opened.",
    );
    l.wrong(
        "The list of steps says that attention scores are concatenated. Context vectors are \
         concatenated; scores are used within their head only.",
    );
}

//> cross
/// Queries from one sequence, keys and values from another. Weights `[d_in, d_out]` are
/// multiplied from the right.
pub struct CrossAttention {
    w_query: Param,
    w_key: Param,
    w_value: Param,
}

impl CrossAttention {
    pub fn new(d_in: usize, d_out_kq: usize, d_out_v: usize, rng: &mut TorchRng) -> Self {
        CrossAttention {
            w_query: Param::new(rng.rand([d_in, d_out_kq])),
            w_key: Param::new(rng.rand([d_in, d_out_kq])),
            w_value: Param::new(rng.rand([d_in, d_out_v])),
        }
    }

    /// `[L1, d_in]` and `[L2, d_in]` to `[L1, d_out_v]`.
    pub fn forward(&self, x1: &Var, x2: &Var) -> Var {
        let q = x1.matmul(&self.w_query.to_var());
        let k = x2.matmul(&self.w_key.to_var());
        let v = x2.matmul(&self.w_value.to_var());
        let scores = q.matmul(&k.t()) / (k.size(-1) as f32).sqrt();
        scores.softmax(-1).matmul(&v)
    }
}
//<

fn cross(l: &mut Lesson) {
    l.section("Bonus: cross-attention");
    l.say(
        "Queries and keys may come from different sequences, such as a translation and its \
         original, or a picture and its caption. The tutorial divides the sentence: the \
         queries are \"The chef prepared a delicious meal\", the keys and values \"and it was \
         served with wine\". There is no mask, because the second sequence is complete.",
    );
    l.formula("context = softmax(X1 Wq (X2 Wk)ᵀ / √d_k) (X2 Wv)");
    l.code("cross");
    //> cross run
    let x = Var::constant(embeddings());
    let (x1, x2) = (x.slice(0, ..6), x.slice(0, 6..));
    let attention = CrossAttention::new(3, 4, 2, &mut TorchRng::manual_seed(42));
    let context = attention.forward(&x1, &x2); // [6, 2]
    l.code("cross run");
    let shape = size(context.shape());
    l.same("Cross-attention result shape:", shape, "torch.Size([6, 2])");
    l.table("s0.cross", context.value());
    l.say("The tutorial prints the rows once more, with all their digits:");
    l.table("s0.cross.list", context.value());

    let mut misprint = embeddings();
    misprint.make_mut()[6 * 3] = 0.59;
    let misprint = Var::constant(misprint);
    let other = attention.forward(&misprint.slice(0, ..6), &misprint.slice(0, 6..));
    l.wrong(
        "Above this code the tutorial prints the embeddings again, and now \"and\" begins with \
         0.59 where it was 0.50 before. The results come from 0.50. With 0.59 the first row \
         would be",
    );
    l.formula(&other.value().select(0, 0).to_string());

    l.say(
        "The author's notebook, but not the text, also runs it on random inputs, drawn after \
         the same seed and before the weights: five queries and six keys.",
    );
    //> cross random
    let rng = &mut TorchRng::manual_seed(42);
    let (x1, x2) = (Var::constant(rng.rand([5, 3])), Var::constant(rng.rand([6, 3])));
    let context = CrossAttention::new(3, 4, 2, rng).forward(&x1, &x2); // [5, 2]
    l.code("cross random");
    l.table("s0.cross.random", context.value());
}
