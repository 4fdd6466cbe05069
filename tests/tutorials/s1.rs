//! The second tutorial: trainable weights, and a measurement of the scaling of scores.

use super::check::{Lesson, distance, size};
use retrograd::prelude::*;
use retrograd::tensor::torch_random::TorchRng;

const WORDS: [&str; 6] = ["Your", "journey", "starts", "with", "one", "step"];

/// The tutorial's embeddings.
fn inputs() -> Tensor {
    Tensor::from([
        [0.43, 0.15, 0.89], // Your
        [0.55, 0.87, 0.66], // journey
        [0.57, 0.85, 0.64], // starts
        [0.22, 0.58, 0.33], // with
        [0.77, 0.25, 0.10], // one
        [0.05, 0.80, 0.55], // step
    ])
}

/// Writes the tutorial to `l`.
pub fn run(l: &mut Lesson) {
    l.chapter("s1  A notebook on self-attention with trainable weights", include_str!("s1.rs"));
    l.say(
        "Six words of three numbers each, one head, step by step; then the same as a module. \
         The author asks why scores are divided by √d, and leaves the question open. Here it \
         is answered by a measurement.",
    );
    by_hand(l);
    why_divide(l);
    as_module(l);
}

fn by_hand(l: &mut Lesson) {
    l.section("Step by step");
    l.say(
        "The weight matrices are [inputs, outputs] and multiplied from the right. They are \
         drawn uniformly from [0, 1), so all elements are positive.",
    );
    //> draw
    let rng = &mut TorchRng::manual_seed(123);
    let w_query: Tensor = rng.rand([3, 2]);
    let w_key: Tensor = rng.rand([3, 2]);
    let w_value: Tensor = rng.rand([3, 2]);
    l.code("draw");
    l.table("s1.wq", &w_query);
    //> project
    let x = inputs(); // [6, 3]
    let (q, k, v) = (x.matmul(&w_query), x.matmul(&w_key), x.matmul(&w_value));
    l.code("project");
    l.same("Keys:", size(k.shape()), "torch.Size([6, 2])");
    l.same("Queries:", size(q.shape()), "torch.Size([6, 2])");
    l.same("Values:", size(v.shape()), "torch.Size([6, 2])");
    l.say("The scores of every query and every key; row i is the query of word i.");
    //> scores
    let scores = q.matmul(&k.t());
    l.code("scores");
    l.same("Attention Scores:", size(scores.shape()), "torch.Size([6, 6])");
    l.table("s1.scores", &scores);
    l.say("The softmax of the scores divided by √2, as keys have two elements:");
    //> weights
    let weights = (scores / 2f32.sqrt()).softmax(-1);
    l.code("weights");
    l.table("s1.weights", &weights);
    l.say(&format!(
        "The tutorial keeps the name attention_scores for the weights. The second row has \
         the weights of the query \"{}\":",
        WORDS[1]
    ));
    l.bars(&WORDS, &weights.select(0, 1).to_vec());
    l.say("Every row of the context is the mean of the values, weighted by a row of the weights.");
    //> context
    let context = weights.matmul(&v);
    l.code("context");
    l.same("Attention shape:", size(context.shape()), "torch.Size([6, 2])");
    l.table("s1.context", &context);
}

//> variance
/// Statistics of dot products of random vectors with `d` elements, and of the softmax over 16
/// products.
struct Measured {
    variance: f32,
    largest_weight: f32,
    slope: f32,
}

/// The statistics without and with the division by `√d`.
fn measure(d: usize, rng: &mut Rng) -> [Measured; 2] {
    let q = Tensor::<f32>::randn([1024, 1, d], rng); // independent, mean 0, variance 1
    let k = Tensor::randn([1024, 16, d], rng);
    let scores = q.matmul(&k.t()); // [1024, 1, 16]
    [1.0, (d as f32).sqrt()].map(|divisor| {
        let scores = &scores / divisor;
        let weights = scores.softmax(-1);
        // Σ ∂wᵢ/∂sᵢ = Σ wᵢ (1 - wᵢ): the sensitivity of the weights to the scores
        let slope = (&weights - &weights.square()).sum(-1).mean(..);
        Measured {
            variance: scores.var(.., 1).item(),
            largest_weight: weights.max(-1).mean(..).item(),
            slope: slope.item(),
        }
    })
}
//<

fn why_divide(l: &mut Lesson) {
    l.section("The open question: why divide by √d?");
    l.say(
        "The tutorial says that the variance grows with the dimension and that dividing by √d \
         brings it near 1, and asks why. The score is a sum,",
    );
    l.formula("q·k = q_1 k_1 + q_2 k_2 + ... + q_d k_d");
    l.say(
        "If all q_i and k_i are independent with mean 0 and variance 1, every product has \
         mean 0 and variance 1 · 1 = 1. Variances of independent terms add up: the variance of \
         the sum is d, and the magnitude of a typical score is √d. Divided by √d, the variance \
         is d / (√d)² = 1 for every d. It is not the variance of the vector that grows, as the \
         tutorial suggests, but that of the sum over its elements.",
    );
    l.code("variance");
    l.say(
        "1024 random queries with 16 keys each. \"Largest\" is the mean of the largest of the \
         16 weights (1/16 = 0.06 if all are equal, 1 if one key has all the weight). \"Slope\" \
         is the sum of the derivatives of each weight with respect to its score, which scales \
         the gradient that is propagated through the softmax.",
    );
    let rng = &mut Rng::new(1);
    let mut table = String::from(
        "       q·k as it is                  q·k / √d\n  \
         d    variance  largest  slope     variance  largest  slope\n",
    );
    let (mut grows, mut stays) = (true, true);
    for d in [2, 4, 8, 16, 32, 64, 128, 256, 512] {
        let [raw, scaled] = measure(d, rng);
        grows &= (raw.variance / d as f32 - 1.0).abs() < 0.1;
        stays &= (scaled.variance - 1.0).abs() < 0.1;
        let columns =
            |m: &Measured| format!("{:8.2}  {:7.3}  {:5.3}", m.variance, m.largest_weight, m.slope);
        table += &format!("{d:3}    {}     {}\n", columns(&raw), columns(&scaled));
    }
    l.formula(&table);
    l.holds("unscaled, the variance is d, to within 10 %", grows);
    l.holds("scaled, it is 1, to within 10 %", stays);
    l.say(
        "Unscaled, at d = 512 nearly all the weight is on one key before any training, and the \
         gradient through the softmax is small. Scaled, the weights and the gradient do not \
         depend on d. (In this tutorial the premises do not hold: queries and keys are computed \
         from the same words, and their elements are positive, so their mean is not 0. The \
         variance is not 1 here; but the division removes its growth with d.)",
    );
}

//> module
/// Self-attention as a module, with weights of shape `[d_in, d_out]`.
pub struct SelfAttentionV1 {
    w_query: Param,
    w_key: Param,
    w_value: Param,
}

impl SelfAttentionV1 {
    pub fn new(d_in: usize, d_out: usize, rng: &mut TorchRng) -> Self {
        SelfAttentionV1 {
            w_query: Param::new(rng.rand([d_in, d_out])),
            w_key: Param::new(rng.rand([d_in, d_out])),
            w_value: Param::new(rng.rand([d_in, d_out])),
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

fn as_module(l: &mut Lesson) {
    l.section("The same as a module");
    l.say(
        "A Param is a trainable tensor; param.to_var() is a variable, and operations on it are \
         recorded in the graph. The same seed must give the same numbers.",
    );
    l.code("module");
    //> module run
    let attention = SelfAttentionV1::new(3, 2, &mut TorchRng::manual_seed(123));
    let context = attention.forward(&Var::constant(inputs()));
    l.code("module run");
    l.table("s1.module", context.value());
    let made_by = context.node().map_or("nothing", |node| node.name());
    l.say(&format!(
        "PyTorch prints grad_fn=<MmBackward0> after it, the backward rule of the operation. \
         Here context.node() is the operation, and its name is \"{made_by}\"."
    ));
    let x = inputs();
    let rng = &mut TorchRng::manual_seed(123);
    let [q, k, v] = [(); 3].map(|()| x.matmul(&rng.rand([3, 2])));
    let by_hand = (q.matmul(&k.t()) / 2f32.sqrt()).softmax(-1).matmul(&v);
    l.holds("the module and the steps agree", distance(&by_hand, context.value()) < 1e-6);
}
