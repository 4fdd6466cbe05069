//! Pages of single steps, each of which shows one thing: forward and backward pass, event by event, with all values.
//!
//! Run it with `cargo run --release --example gallery`, then open the pages in `out/gallery`. `-- FOLDER` writes them
//! to another folder. [docs/gallery](../docs/gallery/README.md) has these pages, and what to look at.

use retrograd::prelude::*;
use retrograd::study::{RecordedStep, XRay};
use std::path::PathBuf;
use std::{env, fs, io};

/// Products, a sum and a power of three numbers.
fn expression() -> RecordedStep {
    let [a, b, c] = [2.0, 3.0, -4.0].map(|x: f64| Var::leaf(Tensor::scalar(x)));
    let xray = XRay::new("y = (a·b + c)²").leaf("a", &a).leaf("b", &b).leaf("c", &c);
    xray.record(|| (&(&a * &b) + &c).square().backward())
}

/// A result that is used twice: its gradient is a sum, and is complete before it is passed on.
fn diamond() -> RecordedStep {
    let x = Var::leaf(Tensor::scalar(3.0f64));
    XRay::new("A diamond: b = x², y = 2b + 3b").leaf("x", &x).record(|| {
        let b = x.square();
        (&b * 2.0 + &b * 3.0).backward()
    })
}

/// Two layers that learn whether a point is inside a circle.
fn network() -> RecordedStep {
    let mut rng = Rng::new(1);
    let model = Sequential::<f32>::new()
        .then(Linear::new(2, 8, &mut rng))
        .then(Activation::Tanh)
        .then(Linear::new(8, 2, &mut rng));
    let points = Tensor::randn([12, 2], &mut rng);
    let inside = points.square().sum(-1).to_vec().into_iter().map(|x| i64::from(x < 1.0));
    let inside = Tensor::from_vec(inside.collect(), [12]);
    let points = Var::constant(points);
    let xray = XRay::of(&model).title("A network of two layers, and a cross-entropy").checked(2);
    xray.record(|| {
        model
            .forward(&points, &mut Pass::train(0))
            .cross_entropy(&inside, CrossEntropy::default())
            .backward()
    })
}

/// Causal attention with two heads, composed of the operations of its formula.
fn attention() -> RecordedStep {
    let mut rng = Rng::new(1);
    let mut leaf = |shape: [usize; 2]| Var::leaf(Tensor::<f32>::randn(shape, &mut rng) * 0.5);
    let [wq, wk, wv, wo] = [[8, 8]; 4].map(&mut leaf);
    let x = leaf([5, 8]);
    let named = [("x", &x), ("wq", &wq), ("wk", &wk), ("wv", &wv), ("wo", &wo)];
    let xray = XRay::new("Causal attention with two heads");
    let xray = named.into_iter().fold(xray, |xray, (name, leaf)| xray.leaf(name, leaf));
    let past = Tensor::from_fn([5, 5], |at| at[1] <= at[0]);
    xray.record(|| {
        // [tokens, width] to [heads, tokens, width of a head]
        let heads = |w: &Var| x.matmul(w).reshape([5, 2, 4]).transpose(0, 1);
        let [q, k, v] = [&wq, &wk, &wv].map(heads);
        let scores = q.matmul(&k.transpose(1, 2)) * 0.5; // 1 / √4
        let weights = scores.masked_softmax(-1, &past);
        let mixed = weights.matmul(&v).transpose(0, 1).reshape([5, 8]).matmul(&wo);
        (&x + &mixed).square().mean(..).backward()
    })
}

/// The length of a vector of zeros, whose derivative does not exist. The loss is finite, a gradient is not.
fn nan() -> RecordedStep {
    let x = Var::leaf(Tensor::from([[3.0f32, 4.0], [0.0, 0.0]]));
    let w = Var::leaf(Tensor::from([[1.0f32, 0.5], [-0.5, 1.0]]));
    XRay::new("A NaN: the length of a vector of zeros").leaf("x", &x).leaf("w", &w).record(|| {
        let lengths = x.matmul(&w).square().sum(-1).sqrt();
        lengths.mean(..).backward()
    })
}

fn main() -> io::Result<()> {
    let folder = PathBuf::from(env::args_os().nth(1).unwrap_or("out/gallery".into()));
    fs::create_dir_all(&folder)?;
    let pages = [
        ("expression", expression()),
        ("diamond", diamond()),
        ("network", network()),
        ("attention", attention()),
        ("nan", nan()),
    ];
    for (name, step) in pages {
        let path = folder.join(format!("{name}.html"));
        step.write(&path)?;
        println!("{}", path.display());
    }
    Ok(())
}
