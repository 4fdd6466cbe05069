//! The fourth tutorial: from a sentence to causal attention, in two ways.

use super::check::{Lesson, dictionary, distance, ids, size, vocabulary, words};
use super::s0::CrossAttention;
use retrograd::nn::torch_init::torch_embedding;
use retrograd::prelude::*;
use retrograd::tensor::torch_random::TorchRng;

const SENTENCE: &str = "The sun rises in the east";

/// The whole tutorial.
pub fn run(l: &mut Lesson) {
    l.chapter(
        "s3  The Clear Tutorial (after Tejaswi Kashyap): a sentence to causal attention",
        include_str!("s3.rs"),
    );
    l.say(
        "The tutorial starts with the text: from words to ids, from ids to vectors. Then comes \
         attention for one word, for all, with several heads, across two inputs, and causal \
         attention in two ways that must agree.",
    );
    let x = embed(l);
    one_word(l, &x);
    as_module(l, &x);
    heads(l, &x);
    cross(l, &x);
    causal(l, &x);
}

fn embed(l: &mut Lesson) -> Var {
    l.section("Words to vectors");
    l.say("Each different word gets a number, in alphabetical order, capitals first.");
    //> words
    let words = words(SENTENCE);
    let vocabulary = vocabulary(&words);
    let ids = ids(&words, &vocabulary);
    l.code("words");
    let dict = "{'The': 0, 'east': 1, 'in': 2, 'rises': 3, 'sun': 4, 'the': 5}";
    l.same("dc", dictionary(&vocabulary), dict);
    l.same("sentence_int", &ids, "tensor([0, 4, 3, 2, 5, 1])");
    l.say(
        "\"The\" and \"the\" are different words. An embedding is a table with a row per word. \
         This one has 50 000 rows of three normal random numbers, of which six rows are used.",
    );
    //> embedding
    let table = torch_embedding(50_000, 3, &mut TorchRng::manual_seed(123));
    let x = table.forward(&ids).detach(); // [6, 3]
    l.code("embedding");
    l.table("s3.embedding", x.value());
    l.same("embedded_sentence.shape:", size(x.shape()), "torch.Size([6, 3])");
    x
}

fn one_word(l: &mut Lesson, x: &Var) {
    l.section("One word");
    l.formula("q = x Wq,  k = x Wk,  v = x Wv");
    l.say(
        "Scores are dot products of queries and keys, which must have the same width \
         (d_q = d_k = 2). Values may have any width (d_v = 4), which becomes that of the result.",
    );
    //> weights
    let rng = &mut TorchRng::manual_seed(123);
    let w_query = Param::new(rng.rand([3, 2]));
    let w_key = Param::new(rng.rand([3, 2]));
    let w_value = Param::new(rng.rand([3, 4]));
    l.code("weights");
    l.same("W_query.shape:", size(&w_query.shape()), "torch.Size([3, 2])");
    l.wrong(
        "The text takes the second word as the query, the code the third (index 2), \
         \"rises\". Here it is as in the code.",
    );
    //> query
    let x_3 = x.select(0, 2);
    let query_3 = x_3.matmul(&w_query.to_var());
    let (key_3, value_3) = (x_3.matmul(&w_key.to_var()), x_3.matmul(&w_value.to_var()));
    l.code("query");
    l.same("Query shape:", size(query_3.shape()), "torch.Size([2])");
    l.same("Key shape:", size(key_3.shape()), "torch.Size([2])");
    l.same("Value shape:", size(value_3.shape()), "torch.Size([4])");
    //> all
    let keys = x.matmul(&w_key.to_var());
    let values = x.matmul(&w_value.to_var());
    let omega_3 = query_3.matmul(&keys.t()); // a vector times a matrix
    l.code("all");
    l.same("All keys shape:", size(keys.shape()), "torch.Size([6, 2])");
    l.same("All values shape:", size(values.shape()), "torch.Size([6, 4])");
    l.table("s3.omega3", omega_3.value());
    let (high, low) = (omega_3.max(-1).item(), omega_3.min(-1).item());
    let (at_high, at_low) = (omega_3.value().argmax(-1), omega_3.value().argmin(-1));
    l.same(
        "Highest compatibility:",
        format!("{high:.4} with input {}", at_high.item() + 1),
        "1.0740 with input 5",
    );
    l.same(
        "Lowest compatibility:",
        format!("{low:.4} with input {}", at_low.item() + 1),
        "-2.5037 with input 2",
    );
    l.same("omega_3.max()", omega_3.max(-1).value(), "tensor(1.0740)");
    l.same("max_index", at_high, "tensor(4)");
    l.say("Scaled by 1/√d_k and normalised:");
    //> normalise
    let attention_weights_3 = (omega_3 / 2f32.sqrt()).softmax(0);
    let context_vector_3 = attention_weights_3.matmul(&values);
    l.code("normalise");
    l.table("s3.weights3", attention_weights_3.value());
    let best = attention_weights_3.value().argmax(-1).item() + 1;
    let most = attention_weights_3.max(-1).item();
    l.same(
        "The tutorial's sentence:",
        format!("Input {best} has the highest attention weight: {most:.4}"),
        "Input 5 has the highest attention weight: 0.3102",
    );
    l.bars(&words(SENTENCE), &attention_weights_3.value().to_vec());
    l.same("Context vector shape:", size(context_vector_3.shape()), "torch.Size([4])");
    l.table("s3.context3", context_vector_3.value());
    l.wrong(
        "Scaling is said to prevent vanishing gradients in deeper models. It depends on the \
         width of the keys, not on depth: see the table in s1.",
    );
}

//> self
/// One head, with values of a width of their own.
pub struct SelfAttention {
    w_query: Param,
    w_key: Param,
    w_value: Param,
}

impl SelfAttention {
    pub fn new(d_in: usize, d_out_kq: usize, d_out_v: usize, rng: &mut TorchRng) -> Self {
        SelfAttention {
            w_query: Param::new(rng.rand([d_in, d_out_kq])),
            w_key: Param::new(rng.rand([d_in, d_out_kq])),
            w_value: Param::new(rng.rand([d_in, d_out_v])),
        }
    }

    pub fn forward(&self, x: &Var) -> Var {
        let k = x.matmul(&self.w_key.to_var());
        let q = x.matmul(&self.w_query.to_var());
        let v = x.matmul(&self.w_value.to_var());
        let scores = q.matmul(&k.t()) / (k.size(-1) as f32).sqrt();
        scores.softmax(-1).matmul(&v)
    }
}
//<

fn as_module(l: &mut Lesson, x: &Var) {
    l.section("All words, as a module");
    l.code("self");
    //> self run
    let attention = SelfAttention::new(3, 2, 4, &mut TorchRng::manual_seed(123));
    let context = attention.forward(x); // [6, 4]
    l.code("self run");
    l.table("s3.self", context.value());
    l.say(
        "The third row is the context vector above. The third number of the fifth row is very \
         close to -0.26265, in the middle between two last digits: which one is printed depends \
         on the order of the additions.",
    );
}

//> wrapper
/// A list of heads, each with weights of its own.
pub struct MultiHeadAttentionWrapper {
    heads: Vec<SelfAttention>,
}

impl MultiHeadAttentionWrapper {
    pub fn new([d_in, d_kq, d_v]: [usize; 3], heads: usize, rng: &mut TorchRng) -> Self {
        let head = |_| SelfAttention::new(d_in, d_kq, d_v, rng);
        MultiHeadAttentionWrapper { heads: (0..heads).map(head).collect() }
    }

    /// The outputs of all heads, joined along an axis.
    pub fn forward(&self, x: &Var, axis: isize) -> Var {
        let outputs: Vec<Var> = self.heads.iter().map(|head| head.forward(x)).collect();
        Var::cat(&outputs.iter().collect::<Vec<_>>(), axis)
    }
}
//<

fn heads(l: &mut Lesson, x: &Var) {
    l.section("Several heads");
    l.say("Four heads of width 1, drawn one after the other, their outputs joined:");
    l.code("wrapper");
    //> wrapper run
    let rng = &mut TorchRng::manual_seed(123);
    let attention = MultiHeadAttentionWrapper::new([3, 2, 1], 4, rng);
    let below = attention.forward(x, 0); // [24, 1]
    let beside = attention.forward(x, -1); // [6, 4]
    l.code("wrapper run");
    l.say("Joined along axis 0, as the tutorial's code does:");
    l.same("context_vecs.shape:", size(below.shape()), "torch.Size([24, 1])");
    l.table("s3.multi", below.value());
    l.wrong(
        "torch.cat joins along axis 0 by default, so the heads are concatenated as rows: 24 \
         words of one number. The text describes six words with the heads concatenated as \
         columns, and then a linear layer, which is missing in the code. As columns, with \
         axis -1:",
    );
    l.table("s3.multi.features", beside.value());
    let transposed = below.value().reshape([4, 6]).t();
    l.holds("they are the same numbers in another order", &transposed == beside.value());
}

fn cross(l: &mut Lesson, x: &Var) {
    l.section("Cross-attention");
    l.say(
        "The class is that of s0. The second input is eight random rows, drawn after the \
         weights: six queries and eight keys.",
    );
    //> cross
    let rng = &mut TorchRng::manual_seed(123);
    let attention = CrossAttention::new(3, 2, 4, rng);
    let second = Var::constant(rng.rand([8, 3]));
    let context = attention.forward(x, &second); // [6, 4]
    l.code("cross");
    l.same("First input shape:", size(x.shape()), "torch.Size([6, 3])");
    l.same("Second input shape:", size(second.shape()), "torch.Size([8, 3])");
    l.table("s3.cross", context.value());
    l.same("Output shape:", size(context.shape()), "torch.Size([6, 4])");
    l.wrong(
        "Both inputs are said to need the same width. They do here, because all three matrices \
         have d_in rows. Attention itself only requires that queries and keys have the same \
         width: if Wk and Wv have as many rows as the second input is wide, a sentence of width \
         3 can attend to a picture of width 7:",
    );
    //> widths
    let picture: Tensor = rng.rand([8, 7]);
    let (w_query, w_key, w_value) = (rng.rand([3, 2]), rng.rand([7, 2]), rng.rand([7, 4]));
    let (q, k) = (x.value().matmul(&w_query), picture.matmul(&w_key));
    let out = q.matmul(&k.t()).softmax(-1).matmul(&picture.matmul(&w_value));
    l.code("widths");
    l.show("out.shape", size(out.shape()));
}

fn causal(l: &mut Lesson, x: &Var) {
    l.section("Causal attention, in two ways");
    l.say(
        "A word may attend to itself and to the words before it. The tutorial's example of \
         generation: after \"The\" comes \"cat\", after \"The cat\" comes \"sits\", and so on; \
         every row of the weights is one such prefix. Scores and weights again:",
    );
    //> scores
    let rng = &mut TorchRng::manual_seed(123);
    let (w_query, w_key) = (Param::new(rng.rand([3, 2])), Param::new(rng.rand([3, 2])));
    let scores = x.matmul(&w_query.to_var()).matmul(&x.matmul(&w_key.to_var()).t());
    let weights = (&scores / 2f32.sqrt()).softmax(1);
    l.code("scores");
    l.table("s3.scores", scores.value());
    l.same("attn_scores.shape:", size(scores.shape()), "torch.Size([6, 6])");
    l.table("s3.weights", weights.value());

    l.say("First way: set the weights above the diagonal to 0, then renormalise the rows.");
    //> multiply
    let mask = Tensor::ones([6, 6]).tril(0);
    let multiplied = &weights * &Var::constant(mask.clone());
    let renormalised = &multiplied / &multiplied.sum_keepdim(1);
    l.code("multiply");
    l.table("s3.tril", &mask);
    l.table("s3.multiplied", multiplied.value());
    l.say("The rows no longer sum to 1; divided by their sums they do:");
    l.table("s3.renormalised", renormalised.value());

    l.say("Second way: set the scores to -∞ where the mask is true, then take the softmax.");
    //> fill
    let future = Tensor::<bool>::ones([6, 6]).triu(1);
    let masked = scores.masked_fill(&future, f32::NEG_INFINITY);
    let causal = (&masked / 2f32.sqrt()).softmax(1);
    l.code("fill");
    l.table("s3.masked", masked.value());
    l.table("s3.causal", causal.value());
    l.say(
        "They agree because a softmax is a ratio: factors common to a row cancel. With e_j for \
         e to the scaled score of key j, which is q · k_j / √d_k, and sums over all keys or the \
         visible ones,",
    );
    l.formula("(e_i / Σ_all e) / (Σ_visible e / Σ_all e)  =  e_i / Σ_visible e");
    let apart = distance(renormalised.value(), causal.value());
    l.holds("both ways agree to rounding", apart < 1e-6);
    let in_one = (&scores / 2f32.sqrt()).masked_softmax(1, &!&future);
    let apart = distance(in_one.value(), causal.value());
    l.holds("and so does masked_softmax, in one step and without -∞", apart < 1e-6);

    let (all, used) = (6 * 6, 6 * 7 / 2);
    l.wrong(
        "The second way is said to avoid unnecessary computation for masked positions. It \
         avoids the renormalisation; but the masked scores are computed, the exponentials of \
         their -∞ too, and their weights of zero are multiplied with values. To save work, \
         whole blocks above the diagonal must be skipped before they are computed.",
    );
    l.formula(&format!(
        "scores computed here:  {all}, needed: {used}\n\
         for 4096 words:        {}, needed: {}",
        4096 * 4096,
        4096 * 4097 / 2
    ));
    l.say(
        "Another advantage: a huge masked score has no influence. In the first way the visible \
         weights of its row underflow, and the result is 0 divided by 0:",
    );
    //> underflow
    let huge = Tensor::from([[0.0f32, 200.0]]);
    let keep = Tensor::from([[true, false]]);
    let cut = huge.softmax(-1) * keep.cast::<f32>();
    let first_way = &cut / &cut.sum_keepdim(-1);
    let second_way = huge.masked_softmax(-1, &keep);
    l.code("underflow");
    l.show("first way", &first_way);
    l.show("second way", &second_way);
    l.holds("the first way fails here", first_way.at(&[0, 0]).is_nan());
    l.holds("the second does not", second_way.at(&[0, 0]) == 1.0);
}
