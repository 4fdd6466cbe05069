//! The model on scalars: every number is a `Value` of `examples/scalar.rs`.

use crate::scalar::Value;
use crate::sizes::{ADAM, EPS, HEAD, HEADS};
use retrograd::prelude::Tensor;

type Vector = Vec<Value>;
type Matrix = Vec<Vector>;

/// Names, weights and the state of Adam.
pub(crate) struct ScalarGpt {
    wte: Matrix,
    wpe: Matrix,
    wq: Matrix,
    wk: Matrix,
    wv: Matrix,
    wo: Matrix,
    fc1: Matrix,
    fc2: Matrix,
    head: Matrix,
    /// The averages of the gradient and of its square, for each parameter.
    averages: Vec<(f64, f64)>,
    steps: i32,
}

impl ScalarGpt {
    /// A model with these weights, in the order of the fields.
    pub(crate) fn new(weights: &[Tensor<f64>; 9]) -> ScalarGpt {
        let rows = |x: &Tensor<f64>| -> Matrix {
            let row = |i| x.select(0, i).to_vec().into_iter().map(Value::new).collect();
            (0..x.size(0)).map(row).collect()
        };
        let [wte, wpe, wq, wk, wv, wo, fc1, fc2, head] = weights.each_ref().map(rows);
        let averages = vec![];
        let mut gpt = ScalarGpt { wte, wpe, wq, wk, wv, wo, fc1, fc2, head, averages, steps: 0 };
        gpt.averages = vec![(0.0, 0.0); gpt.parameters()];
        gpt
    }

    fn all(&self) -> Vec<Value> {
        let all = [
            &self.wte, &self.wpe, &self.wq, &self.wk, &self.wv, &self.wo, &self.fc1, &self.fc2,
            &self.head,
        ];
        all.into_iter().flatten().flatten().cloned().collect()
    }

    /// The number of parameters.
    pub(crate) fn parameters(&self) -> usize {
        self.all().len()
    }

    /// The logits of the token after `token`, which is at position `at`. The keys and values of earlier
    /// positions are given, and those of this one are added.
    fn logits(&self, token: usize, at: usize, keys: &mut Matrix, values: &mut Matrix) -> Vector {
        let x = rms_norm(&add(&self.wte[token], &self.wpe[at]));

        let h = rms_norm(&x);
        let q = linear(&self.wq, &h);
        keys.push(linear(&self.wk, &h));
        values.push(linear(&self.wv, &h));
        let mut heads = Vector::new();
        for head in 0..HEADS {
            let part = head * HEAD..(head + 1) * HEAD;
            let scale = Value::new(1.0 / (HEAD as f64).sqrt());
            let score = |k: &Vector| &dot(&q[part.clone()], &k[part.clone()]) * &scale;
            let weights = softmax(&keys.iter().map(score).collect::<Vector>());
            for i in part {
                let column: Vector = values.iter().map(|v| v[i].clone()).collect();
                heads.push(dot(&weights, &column));
            }
        }
        let x = add(&x, &linear(&self.wo, &heads));

        let hidden = linear(&self.fc1, &rms_norm(&x));
        let hidden: Vector = hidden.iter().map(|h| h.relu().powf(2.0)).collect();
        let x = add(&x, &linear(&self.fc2, &hidden));

        linear(&self.head, &x)
    }

    /// The mean loss of the tokens after the first.
    fn loss(&self, tokens: &[usize]) -> Value {
        let (mut keys, mut values) = (Matrix::new(), Matrix::new());
        let mut sum = Value::new(0.0);
        for (at, pair) in tokens.windows(2).enumerate() {
            let p = softmax(&self.logits(pair[0], at, &mut keys, &mut values));
            sum = &sum - &p[pair[1]].ln();
        }
        &sum / &Value::new((tokens.len() - 1) as f64)
    }

    /// A step of Adam on one name; returns the loss before it.
    pub(crate) fn step(&mut self, tokens: &[usize], lr: f64) -> f64 {
        let loss = self.loss(tokens);
        let grads = loss.gradients::<f64>();
        self.steps += 1;
        let (beta1, beta2) = ADAM.betas;
        for (w, (m, v)) in self.all().iter().zip(&mut self.averages) {
            let g = grads.get(w);
            *m = beta1 * *m + (1.0 - beta1) * g;
            *v = beta2 * *v + (1.0 - beta2) * g * g;
            let m = *m / (1.0 - beta1.powi(self.steps));
            let v = *v / (1.0 - beta2.powi(self.steps));
            w.set(w.data() - lr * m / (v.sqrt() + ADAM.eps));
        }
        loss.data()
    }
}

fn add(x: &[Value], y: &[Value]) -> Vector {
    x.iter().zip(y).map(|(x, y)| x + y).collect()
}

fn dot(x: &[Value], y: &[Value]) -> Value {
    let products = x.iter().zip(y).map(|(x, y)| x * y);
    products.reduce(|sum, product| &sum + &product).expect("at least one element")
}

/// Rows of weights, one for each output.
fn linear(weights: &Matrix, x: &[Value]) -> Vector {
    weights.iter().map(|row| dot(row, x)).collect()
}

/// `x / √(mean(x²) + eps)`.
fn rms_norm(x: &[Value]) -> Vector {
    let mean = &dot(x, x) / &Value::new(x.len() as f64);
    let scale = (&mean + &Value::new(EPS)).powf(-0.5);
    x.iter().map(|x| x * &scale).collect()
}

/// Exponentials divided by their sum. The largest number is subtracted first, as a constant.
fn softmax(x: &[Value]) -> Vector {
    let max = Value::new(x.iter().map(Value::data).fold(f64::NEG_INFINITY, f64::max));
    let powers: Vector = x.iter().map(|x| (x - &max).exp()).collect();
    let sum = powers.iter().skip(1).fold(powers[0].clone(), |sum, x| &sum + x);
    powers.iter().map(|x| x / &sum).collect()
}
