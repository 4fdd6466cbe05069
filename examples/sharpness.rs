//! Curvature of a loss during training, and the sentences that a prediction comes from.
//!
//! ```sh
//! cargo run --release --example sharpness
//! ```
//!
//! 1. A small GPT is trained by gradient descent on all sentences at once. The *sharpness*, the largest eigenvalue of the
//!    Hessian of the loss by all parameters, grows to about `2 / lr` and stays there: Cohen et al. 2021 (arXiv 2103.00065).
//! 2. How would a prediction change if a sentence had not been in the text? Influence functions estimate it: Koh, Liang
//!    2017 (arXiv 1703.04730). The model is also trained without each sentence, to show how good the estimates are.
//!
//! The Hessian would have 700 million elements. It is never formed: its products with vectors suffice.

use lexopt::prelude::*;
use retrograd::autograd::{Hessian, gauss_newton_product, lanczos, per_sample};
use retrograd::nn::functional_call;
use retrograd::prelude::*;
use retrograd::study::Page;
use retrograd::tensor::par;
use std::error::Error;
use std::path::PathBuf;

#[allow(dead_code, reason = "the figures of the book use the rest")]
#[path = "../tests/book/drawings/svg.rs"]
mod svg;

/// Animals, and what each of them does.
const KINDS: [(&str, [&str; 3]); 3] = [
    ("robin blackbird thrush wren", ["sings songs", "eats worms", "builds nests"]),
    ("owl fox weasel kestrel", ["hunts alone", "eats mice", "sleeps late"]),
    ("squirrel dormouse jay nuthatch", ["hides food", "eats nuts", "climbs trees"]),
];
/// The sentence that is not in the text, and whose last word is predicted.
const PREDICTED: &str = "the robin eats worms";
/// Words of a sentence.
const LENGTH: usize = 4;
const RATES: [f64; 3] = [0.02, 0.01, 0.005];
/// Steps between two measurements of the sharpness.
const EVERY: usize = 10;

const USAGE: &str = "usage: sharpness [--steps N (1500)] [--out FOLDER (out/sharpness)]";

fn main() -> Result<(), Box<dyn Error>> {
    retrograd::study::from_env();
    let (mut steps, mut out) = (1500usize, PathBuf::from("out/sharpness"));
    let mut parser = lexopt::Parser::from_env();
    while let Some(arg) = parser.next()? {
        match arg {
            Long("steps") => steps = parser.value()?.parse()?,
            Long("out") => out = parser.value()?.into(),
            Short('h') | Long("help") => {
                println!("{USAGE}");
                return Ok(());
            }
            other => return Err(other.unexpected().into()),
        }
    }
    if steps == 0 {
        return Err("--steps must be at least 1".into());
    }
    std::fs::create_dir_all(&out)
        .map_err(|e| format!("cannot make the folder {}: {e}", out.display()))?;

    let task = Task::new(steps);
    let (mut curves, mut models) = (Vec::new(), Vec::new());
    for lr in RATES {
        println!("\nlr {lr}, 2 / lr = {:.0}\n step    loss  sharpness", 2.0 / lr);
        let mut curve = Curve::default();
        models.push(task.train(&task.rows, lr, |step, model| {
            if step % EVERY == 0 {
                let (loss, sharpness) = sharpness(&task.loss(model, &task.rows), model);
                let columns = curve.iter_mut().zip([step as f64, loss, sharpness]);
                columns.for_each(|(column, x)| column.push(x));
                if step % (10 * EVERY) == 0 {
                    println!("{step:5}  {loss:.4}  {sharpness:9.1}");
                }
            }
        }));
        curves.push(curve);
    }

    let (model, lr) = (&models[1], RATES[1]);
    let p = (-task.predict(model).item()).exp();
    println!("\nlr {lr}, {PREDICTED}: the probability of the last word is {p:.3}");
    let estimates = task.influence(model, lr);
    let measured = task.left_out(model, lr);
    let r = correlation(&estimates, &measured);
    let both = task.sentences.iter().zip(estimates).zip(measured);
    let mut rows: Vec<_> = both.map(|((sentence, e), m)| (sentence, e, m)).collect();
    rows.sort_by(|a, b| b.1.total_cmp(&a.1));
    println!("without each sentence: estimates and measurements have a correlation of {r:.3}");

    let (picture, page) = (out.join("sharpness.svg"), out.join("sharpness.html"));
    std::fs::write(&picture, draw(&curves, steps as f64))
        .map_err(|e| format!("cannot write {}: {e}", picture.display()))?;
    let data = (RATES, curves, (PREDICTED, lr, p, r, rows));
    Page::new("Sharpness and influence", &data).script(SCRIPT).write(&page)?;
    println!("\n{}\n{}", picture.display(), page.display());
    Ok(())
}

/// Steps, and the loss and the sharpness before each.
type Curve = [Vec<f64>; 3];

/// The loss, and the largest eigenvalue of its Hessian by all parameters.
fn sharpness(loss: &Var, model: &Gpt) -> (f64, f64) {
    let hessian = Hessian::of(loss, model.named_parameters().iter().map(|(_, p)| p.id()));
    let start = hessian.gradient().randn_like(&mut Rng::new(2));
    let values = lanczos(|v| hessian.times(v), &start, 20).eigenvalues();
    (f64::from(loss.item()), values[values.len() - 1])
}

/// The sentences, the position of each word among all words, and the steps of a training.
struct Task {
    steps: usize,
    words: Vec<String>,
    sentences: Vec<String>,
    rows: Tensor<i64>,
}

impl Task {
    fn new(steps: usize) -> Task {
        let mut sentences = Vec::new();
        for (animals, facts) in KINDS {
            let about = |a| facts.map(|fact| format!("the {a} {fact}"));
            sentences.extend(animals.split(' ').flat_map(about).filter(|s| s != PREDICTED));
        }
        let all = sentences.join(" ");
        let mut words: Vec<String> = all.split(' ').map(String::from).collect();
        words.sort();
        words.dedup();
        let rows = encode(&words, &all);
        Task { steps, words, sentences, rows }
    }

    /// The sum of the losses of these sentences, divided by the number of all. The loss of a sentence is the mean over
    /// the words after the first.
    fn loss(&self, model: &Gpt, rows: &Tensor<i64>) -> Var {
        let sum = CrossEntropy { reduction: Reduction::Sum, ..Default::default() };
        let logits = model.forward(&rows.i((.., ..-1)), &mut Pass::eval());
        let count = self.sentences.len() * (LENGTH - 1);
        logits.cross_entropy(&rows.i((.., 1..)), sum) / count as f32
    }

    /// A model after gradient descent on these sentences; `watch` is called before each step.
    fn train(&self, rows: &Tensor<i64>, lr: f64, mut watch: impl FnMut(usize, &Gpt)) -> Gpt {
        let (vocab, context) = (self.words.len(), LENGTH - 1);
        let config =
            GptConfig { vocab, context, layers: 2, heads: 2, width: 32, ..Default::default() };
        let model = Gpt::new(config, &mut Rng::new(1)).expect("a valid configuration");
        let sgd = Sgd::new(&model, SgdConfig { lr, ..Default::default() });
        let mut sgd = sgd.expect("a valid learning rate");
        for step in 0..self.steps {
            watch(step, &model);
            sgd.step(&self.loss(&model, rows).backward()).expect("a gradient for each parameter");
        }
        model
    }

    /// The loss of the last word of the predicted sentence.
    fn predict(&self, model: &Gpt) -> Var {
        let row = encode(&self.words, PREDICTED);
        let logits = model.forward(&row.i((.., ..-1)), &mut Pass::eval());
        logits.i((.., -1)).cross_entropy(&row.i((.., -1)), CrossEntropy::default())
    }

    /// Estimates of how the loss of the prediction changes without each sentence: `∇predict · (G + λ)⁻¹ ∇loss`.
    ///
    /// Without a sentence, the minimum of the loss moves by the product of the inverse Hessian and the gradient of its
    /// loss. Before the minimum the Hessian has negative eigenvalues, so the damped Gauss-Newton matrix replaces it, as
    /// in Bae et al. 2022 (arXiv 2209.05364). `λ = 1 / (lr · steps)` leaves out directions in which training has not
    /// gone far.
    fn influence(&self, model: &Gpt, lr: f64) -> Vec<f64> {
        let params: Vec<Param> = model.named_parameters().into_iter().map(|(_, p)| p).collect();
        let weights: Vec<Var> = params.iter().map(Param::to_var).collect();
        let (inputs, targets) = (self.rows.i((.., ..-1)), self.rows.i((.., 1..)));
        let logits =
            |w: &Vec<Var>| functional_call(model, w, |m| m.forward(&inputs, &mut Pass::eval()));
        let loss = |y: &Var| y.cross_entropy(&targets, CrossEntropy::default());
        let times = |v: &Gradients| -> Gradients {
            let part = |p| Var::constant(v.get(p).expect("of all parameters").clone());
            let v = params.iter().map(part).collect();
            let product = no_grad(|| gauss_newton_product(logits, loss, &weights, &v));
            params.iter().zip(product).map(|(p, x)| (p.id(), x.into_value())).collect()
        };
        let damping = 1.0 / (lr * self.steps as f64);
        let direction = solve(times, damping, &self.predict(model).backward());
        let one = |i| self.loss(model, &self.rows.narrow(0, i, 1));
        per_sample(self.sentences.len(), one, |gradient| gradient.dot(&direction))
    }

    /// How the loss of the prediction changes if the model is trained without each sentence.
    fn left_out(&self, model: &Gpt, lr: f64) -> Vec<f64> {
        let all = self.sentences.len();
        par::shards(all, |i| {
            let others = Tensor::from_iter((0..all as i64).filter(|&other| other != i as i64));
            let without = self.train(&self.rows.index_select(0, &others), lr, |_, _| ());
            f64::from(self.predict(&without).item() - self.predict(model).item())
        })
    }
}

/// Sentences as rows of the positions of their words.
fn encode(words: &[String], sentences: &str) -> Tensor<i64> {
    let at = |w: &str| words.binary_search_by(|x| x.as_str().cmp(w)).expect("a known word") as i64;
    let tokens: Vec<i64> = sentences.split(' ').map(at).collect();
    let rows = tokens.len() / LENGTH;
    Tensor::from_vec(tokens, [rows, LENGTH])
}

/// `(A + damping)⁻¹ b` by conjugate gradients, for a symmetric positive semidefinite `A`, to 1 % of the norm of `b`.
/// Hestenes, Stiefel 1952.
fn solve(mut times: impl FnMut(&Gradients) -> Gradients, damping: f64, b: &Gradients) -> Gradients {
    let (mut x, mut rest, mut direction) = (Gradients::empty(), b.clone(), b.clone());
    let mut square = rest.dot(&rest);
    let enough = 1e-4 * square;
    while square > enough {
        let mut product = times(&direction);
        product.axpy(damping, &direction);
        let step = square / direction.dot(&product);
        x.axpy(step, &direction);
        rest.axpy(-step, &product);
        let before = std::mem::replace(&mut square, rest.dot(&rest));
        direction.scale((square / before) as f32);
        direction.axpy(1.0, &rest);
    }
    x
}

fn correlation(x: &[f64], y: &[f64]) -> f64 {
    let [x, y] = [x, y].map(|x| Tensor::from_vec(x.to_vec(), [x.len()]));
    let [x, y] = [&x, &y].map(|x| x - x.mean(..));
    x.dot(&y).item() / (x.norm(..) * y.norm(..)).item()
}

/// The sharpness of all trainings, and `2 / lr`.
fn draw(curves: &[Curve], steps: f64) -> String {
    use svg::{BLUE, GREEN, INK, ORANGE, Plot, Svg};
    let mut picture = Svg::new(640.0, 330.0, "Sharpness during training, and 2 / lr");
    let (at, size) = ((52.0, 30.0), (490.0, 250.0));
    let plot = Plot { at, size, x: (0.0, steps), y: (10.0, 1000.0), log: true };
    let ticks = [0.0, 1.0, 2.0, 3.0].map(|part| (part * steps / 3.0).round());
    plot.axes(&mut picture, (&ticks, "step"), (&[10.0, 30.0, 100.0, 300.0, 1000.0], "sharpness"));
    for ((curve, lr), color) in curves.iter().zip(RATES).zip([BLUE, ORANGE, GREEN]) {
        let level = [plot.point(0.0, 2.0 / lr), plot.point(steps, 2.0 / lr)];
        picture.path(&level, (INK, 0.8), true);
        let name = format!("2 / {lr} = {:.0}", 2.0 / lr);
        let beside = (level[1].0 + 6.0, level[1].1 + 4.0);
        picture.styled((beside, svg::Anchor::Start), (11.5, color), name);
        let points: Vec<_> = curve[0].iter().copied().zip(curve[2].clone()).collect();
        plot.line(&mut picture, &points, (color, 1.6));
    }
    picture.finish()
}

/// The page, from `[rates, curves, [predicted, lr, p, correlation, rows]]`.
const SCRIPT: &str = r#"
kit.start(([rates, curves, [predicted, lr, p, correlation, rows]]) => {
  const { h, number } = kit;
  const named = i => `lr ${rates[i]}, 2 / lr = ${number(2 / rates[i])}`;
  const chart = (title, column, levels, log) => kit.lineChart({
    height: 320, x: { title: "step" }, y: { title, log }, levels,
    series: curves.map((c, i) => ({ name: named(i), x: c[0], y: c[column] })),
  }).element;
  const change = (title, at) => ({ title, num: true, value: r => r[at], text: r => r[at].toFixed(4) });
  return kit.page("Sharpness and influence", "A small GPT, trained by gradient descent on all sentences at once", [
    kit.panel("sharpness", "Sharpness", "The largest eigenvalue of the Hessian of the loss by all parameters. A step multiplies the distance from the minimum along its eigenvector by 1 - lr · sharpness. Above 2 / lr the distance grows, until the loss is flatter there.", body =>
      body.append(chart("sharpness", 2, rates.map(lr => ({ y: 2 / lr, name: "" })), true))),
    kit.panel("loss", "Loss", "The mean over all words but the first of each sentence.", body =>
      body.append(chart("loss", 1, [], false))),
    kit.panel("influence", "Influence of sentences", "How the loss of the last word changes if a sentence is not in the text: estimated with the inverse of the damped Gauss-Newton matrix, and measured by training again. Positive: the sentence supports the prediction.", body =>
      body.append(h("p", {}, `${predicted}: the text does not contain it. At lr ${lr} the probability of the last word is ${number(p, 3)}. The correlation of estimates and measurements is ${number(correlation, 3)}.`),
        kit.table([{ title: "sentence", value: r => r[0] }, change("estimated", 1), change("measured", 2)], rows, { by: 1 }))),
  ]);
});
"#;
