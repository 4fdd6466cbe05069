//! The fifth tutorial: weights on the left, and two exercises with their results.

use super::check::{Lesson, dictionary, distance, ids, size, vocabulary, words};
use retrograd::nn::torch_init::torch_embedding;
use retrograd::prelude::*;
use retrograd::tensor::torch_random::TorchRng;

const SENTENCE: &str = "Life is short, eat dessert first";

/// The weight matrices of one head, `[outputs, inputs]`, multiplied from the left.
struct Weights {
    query: Tensor,
    key: Tensor,
    value: Tensor,
}

/// Writes the tutorial to `l`.
pub fn run(l: &mut Lesson) {
    l.chapter(
        "s4  Self-attention from scratch (Sebastian Raschka): weights on the left",
        include_str!("s4.rs"),
    );
    l.say(
        "Attention was introduced for recurrent networks, which encoded a sentence as one vector \
         before translating it; the transformer of 2017 uses attention without recurrence. This \
         tutorial writes the equations with column vectors, so weight matrices are on the left, \
         and uses different sizes where possible. Its last two parts are left as exercises, \
         whose results are computed here.",
    );
    let x = embed(l);
    let (weights, rng) = one_word(l, &x);
    heads(l, &x, rng.clone());
    cross(l, &x, &weights, rng);
}

fn embed(l: &mut Lesson) -> Tensor {
    l.section("Words to vectors");
    //> words
    let words = words(SENTENCE);
    let vocabulary = vocabulary(&words);
    let ids = ids(&words, &vocabulary);
    l.code("words");
    let dict = "{'Life': 0, 'dessert': 1, 'eat': 2, 'first': 3, 'is': 4, 'short': 5}";
    l.same("dc", dictionary(&vocabulary), dict);
    l.same("sentence_int", &ids, "tensor([0, 4, 5, 2, 1, 3])");
    l.say("Six words, sixteen numbers each. Ninety-six normal numbers are drawn at once:");
    //> embedding
    let table = torch_embedding(6, 16, &mut TorchRng::manual_seed(123));
    let x = table.forward(&ids).into_value(); // [6, 16]
    l.code("embedding");
    l.table("s4.embedding", &x);
    l.same("embedded_sentence.shape:", size(x.shape()), "torch.Size([6, 16])");
    x
}

fn one_word(l: &mut Lesson, x: &Tensor) -> (Weights, TorchRng) {
    l.section("One query");
    l.formula(
        "q = Wq x,  k = Wk x,  v = Wv x\nω_ij = q_i · k_j,  α = softmax(ω / √d_k),  z = Σ α_j v_j",
    );
    l.say("Queries and keys have 24 elements, values 28, words 16.");
    //> weights
    let mut rng = TorchRng::manual_seed(123);
    let w =
        Weights { query: rng.rand([24, 16]), key: rng.rand([24, 16]), value: rng.rand([28, 16]) };
    let x_2 = x.select(0, 1); // the second word
    let query_2 = w.query.matmul(&x_2);
    let key_2 = w.key.matmul(&x_2);
    let value_2 = w.value.matmul(&x_2);
    l.code("weights");
    l.same("query_2.shape:", size(query_2.shape()), "torch.Size([24])");
    l.same("key_2.shape:", size(key_2.shape()), "torch.Size([24])");
    l.same("value_2.shape:", size(value_2.shape()), "torch.Size([28])");
    l.say("All keys and values; the transpose of W Xᵀ is X Wᵀ:");
    //> keys
    let keys = w.key.matmul(&x.t()).t();
    let values = w.value.matmul(&x.t()).t();
    l.code("keys");
    l.same("keys.shape:", size(keys.shape()), "torch.Size([6, 24])");
    l.same("values.shape:", size(values.shape()), "torch.Size([6, 28])");
    l.say("The score of the second word with the fifth, then with all:");
    //> omega
    let omega_24 = query_2.dot(&keys.select(0, 4));
    let omega_2 = query_2.matmul(&keys.t());
    l.code("omega");
    l.table("s4.omega24", &omega_24);
    l.table("s4.omega2", &omega_2);
    //> context
    let attention_weights_2 = (&omega_2 / 24f32.sqrt()).softmax(0);
    let context_vector_2 = attention_weights_2.matmul(&values);
    l.code("context");
    l.table("s4.weights2", &attention_weights_2);
    l.bars(&words(SENTENCE), &attention_weights_2.to_vec());
    l.same("context_vector_2.shape:", size(context_vector_2.shape()), "torch.Size([28])");
    l.table("s4.context2", &context_vector_2);
    l.wrong(
        "The tutorial says that scaling gives the weight vectors about the same Euclidean \
         length. It gives the scores a variance that does not grow with d_k (measured in s1). Without it the \
         scores above, up to 11, would give nearly all the weight to one word:",
    );
    l.bars(&words(SENTENCE), &omega_2.softmax(0).to_vec());
    l.wrong(
        "Where the context is printed, its shape and the word tensor( appear twice. The \
         tensors are printed without grad_fn although they are computed from Parameters, so \
         another version of the code must have printed them.",
    );
    (w, rng)
}

fn heads(l: &mut Lesson, x: &Tensor, mut rng: TorchRng) {
    l.section("Three heads: an exercise");
    l.say(
        "Each head has its own matrices, stacked along a first axis. They are drawn from the \
         same generator, after the weights of the single head.",
    );
    //> stacked
    let w_query: Tensor = rng.rand([3, 24, 16]);
    let w_key: Tensor = rng.rand([3, 24, 16]);
    let w_value: Tensor = rng.rand([3, 28, 16]);
    let query_2 = w_query.matmul(&x.select(0, 1)); // [3, 24]
    l.code("stacked");
    l.same("multihead_query_2.shape:", size(query_2.shape()), "torch.Size([3, 24])");
    l.say(
        "The tutorial repeats the sentence three times to multiply it by three matrices. Here \
         a missing axis is repeated without a copy: broadcasting.",
    );
    //> batched
    let stacked = x.t().broadcast_to([3, 16, 6]); // a view; matmul broadcasts by itself
    let keys = w_key.matmul(&x.t()); // [3, 24, 16] · [16, 6]
    let values = w_value.matmul(&x.t());
    l.code("batched");
    l.same("stacked_inputs.shape:", size(stacked.shape()), "torch.Size([3, 16, 6])");
    l.same("multihead_keys.shape:", size(keys.shape()), "torch.Size([3, 24, 6])");
    l.same("multihead_values.shape:", size(values.shape()), "torch.Size([3, 28, 6])");
    //> permuted
    let keys = keys.permute([0, 2, 1]);
    let values = values.permute([0, 2, 1]);
    l.code("permuted");
    l.same("multihead_keys.shape:", size(keys.shape()), "torch.Size([3, 6, 24])");
    l.same("multihead_values.shape:", size(values.shape()), "torch.Size([3, 6, 28])");
    l.wrong(
        "Here the tutorial calls the query the third word, index 2; its code still uses x_2, the \
         second.",
    );
    l.say(
        "The tutorial leaves the remaining steps as an exercise. The query of each head, \
         [3, 1, 24], is multiplied with the keys of its head:",
    );
    //> exercise
    let omega = query_2.unsqueeze(1).matmul(&keys.t()); // [3, 1, 6]
    let weights = (omega / 24f32.sqrt()).softmax(-1);
    let z = weights.matmul(&values).squeeze(1); // [3, 28]
    l.code("exercise");
    l.table("s4.multi.weights", &weights.squeeze(1));
    l.table("s4.multi.context", &z);
    l.say(
        "(PyTorch and this library print in scientific notation if the largest magnitude is more \
         than a thousand times the smallest that is not 0.) The weights of the query \"is\" in each head:",
    );
    for head in 0..3 {
        l.say(&format!("head {}", head + 1));
        l.bars(&words(SENTENCE), &weights.select(0, head).flatten().to_vec());
    }
}

fn cross(l: &mut Lesson, x: &Tensor, w: &Weights, mut rng: TorchRng) {
    l.section("Cross-attention: another exercise");
    l.say(
        "The tutorial sets the seed again and draws the same matrices, which are reused here. A \
         second sentence of eight words, drawn after them, gives the keys and values.",
    );
    //> cross
    let second: Tensor = rng.rand([8, 16]);
    let query_2 = w.query.matmul(&x.select(0, 1));
    let keys = w.key.matmul(&second.t()).t();
    let values = w.value.matmul(&second.t()).t();
    l.code("cross");
    l.same("query.shape", size(query_2.shape()), "torch.Size([24])");
    l.same("keys.shape:", size(keys.shape()), "torch.Size([8, 24])");
    l.same("values.shape:", size(values.shape()), "torch.Size([8, 28])");
    l.wrong(
        "The code has a stray colon (shape:)) and is not valid Python; it prints query.shape \
         where the output says queries.shape; and the first pair of shapes in the output is \
         that of the first sentence, before the second exists.",
    );
    l.say("The other steps are the same as in the first part:");
    //> cross exercise
    let weights = (query_2.matmul(&keys.t()) / 24f32.sqrt()).softmax(0);
    let z = weights.matmul(&values); // [28]
    l.code("cross exercise");
    l.table("s4.cross.weights", &weights);
    l.table("s4.cross.context", &z);
    l.wrong(
        "The tutorial says that both sentences must have the same embedding width. As in s3, only queries and \
         keys must have the same width; Wk and Wv may have any number of columns.",
    );
    l.say("If the second sentence is the first, cross-attention is self-attention:");
    let keys = x.matmul(&w.key.t());
    let again = (query_2.matmul(&keys.t()) / 24f32.sqrt()).softmax(0);
    let again = again.matmul(&x.matmul(&w.value.t()));
    let plain = attend_all(x, w).select(0, 1);
    l.holds("it gives the context vector of the first part", distance(&again, &plain) < 1e-5);
}

/// Self-attention of all words at once.
fn attend_all(x: &Tensor, w: &Weights) -> Tensor {
    let [q, k, v] = [&w.query, &w.key, &w.value].map(|w| x.matmul(&w.t()));
    (q.matmul(&k.t()) / 24f32.sqrt()).softmax(-1).matmul(&v)
}
