//! Programs of public operations as data; `tests/fixtures/make_programs.py` runs them in PyTorch.

use retrograd::autograd::{hvp, jvp, recompute};
use retrograd::nn::attention::{Path, Spec, attend};
use retrograd::prelude::*;
use retrograd::tensor::ops::activation::Gelu;
use retrograd::tensor::settings::level;
use retrograd::tensor::{IntoShape, Real, threads};
use std::ops::Range;

/// An operation, its operands (earlier steps; `-1 - k` is the input `k`), and its numbers.
pub type Step = (String, Vec<isize>, Vec<isize>);

/// Its results are those of the steps that no step uses.
#[derive(Clone, Debug, Default)]
pub struct Program {
    pub seed: u64,
    pub inputs: Vec<Vec<usize>>,
    pub steps: Vec<Step>,
}

/// How a program is run: by a path of attention, with some steps recomputed in the backward pass, with operands and
/// gradients `x + noise · u · (x + 1)` for `u` from -2 to 2, and with a gradient that is wrong by a thousandth at an
/// operation, path, level, number of threads, or where steps are recomputed ("again").
#[derive(Clone, Default)]
pub struct How {
    pub path: Path,
    pub again: Range<usize>,
    pub noise: f64,
    pub wrong: String,
}

/// The elements of the results, the gradient of the loss `Σ (y + w)² / 2` with numbers `w`, the product of
/// its Hessian and a direction, and the derivatives of the results in this direction.
pub type Outcome = [Vec<f64>; 4];

/// A multiple of 2^-22 from -2 to 2, which f32 represents exactly; by splitmix64.
pub fn number(seed: u64, stream: u64, i: u64) -> f64 {
    const FACTORS: [u64; 3] = [0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB];
    let terms = [seed, stream, i].into_iter().zip(FACTORS);
    let mut z = terms.fold(0u64, |z, (x, factor)| z.wrapping_add(x.wrapping_mul(factor)));
    z = (z ^ z >> 30).wrapping_mul(FACTORS[1]);
    z = (z ^ z >> 27).wrapping_mul(FACTORS[2]);
    ((z ^ z >> 31) >> 40) as f64 / (1 << 22) as f64 - 2.0
}

pub fn numbers<T: Real>(seed: u64, stream: u64, shape: impl IntoShape) -> Tensor<T> {
    let shape = shape.into();
    let all = (0..shape.numel() as u64).map(|i| T::from_f64(number(seed, stream, i)));
    Tensor::from_vec(all.collect(), shape)
}

/// Methods of variables by name.
macro_rules! table {
    ($table:ident, $call:ident($($arg:ident: $type:ty)?) $passed:tt $($name:ident)*) => {
        pub const $table: &[&str] = &[$(stringify!($name)),*];

        pub fn $call<T: Real>(op: &str, x: &Var<T>, $($arg: $type)?) -> Option<Var<T>> {
            match op { $(stringify!($name) => Some(x.$name $passed),)* _ => None }
        }
    };
}
table!(UNARY, unary() () neg abs square sqrt rsqrt recip exp expm1 ln log1p sin cos erf relu
    relu_squared sigmoid tanh silu mish softplus log_sigmoid softsign hardswish gelu gelu_tanh);
table!(BINARY, binary(y: &Var<T>) (y) add sub mul div maximum minimum pow);
table!(REDUCE, reduce(axes: &[isize]) (axes) sum sum_keepdim mean mean_keepdim max max_keepdim min
    min_keepdim logsumexp logsumexp_keepdim norm norm_keepdim);
table!(ALONG, along(axis: isize) (axis) cumsum cumprod softmax log_softmax);

impl Program {
    /// The result of a step.
    pub fn apply<T: Real>(&self, at: usize, x: &[&Var<T>], path: Path) -> Var<T> {
        let ((op, _, n), a, c) = (&self.steps[at], x[0], T::from_f64);
        let (size, stream) = (|k: usize| n[k] as usize, 1000 + at as u64);
        let sizes = || n.iter().map(|&n| n as usize).collect::<Vec<_>>();
        let mask = |shape: &[usize]| numbers::<f64>(self.seed, stream, shape).gt(0.0);
        let index = |shape: &[usize]| {
            let part = a.size(n[0]) as f64 / 4.0;
            let all = numbers::<f64>(self.seed, stream, shape).to_vec().into_iter();
            Tensor::from_vec(all.map(|x| ((x + 2.0) * part) as i64).collect(), shape)
        };
        match op.as_str() {
            "reshape" => a.reshape(sizes()),
            "permute" => a.permute(n),
            "broadcast_to" => a.broadcast_to(&sizes()[..]),
            "unsqueeze" => a.unsqueeze(n[0]),
            "slice_step" => a.slice_step(n[0], size(1)..size(2), [1, 2, -1, -2][size(3)]),
            "flip" => a.flip(&n[..]),
            "select" => a.select(n[0], size(1)),
            "unfold" => a.unfold(n[0], size(1), size(2)),
            "pad" => a.pad(n[0], size(1), size(2), c(0.5)),
            "matmul" => a.matmul(x[1]),
            "linear" => a.linear(x[1], Some(x[2])),
            "linear_gelu" => a.linear_activation(x[1], Some(x[2]), Gelu),
            "layer_norm" => a.layer_norm(Some(x[1]), Some(x[2]), 0.125),
            "rms_norm" => a.rms_norm(Some(x[1]), 0.125),
            "gather" => a.gather(n[0], &index(x[1].shape())),
            "scatter_add" => a.scatter_add(n[0], &index(x[1].shape()), x[1]),
            "index_select" => a.index_select(n[0], &index(&[size(1)])),
            "cat" => Var::cat(x, n[0]),
            "stack" => Var::stack(x, n[0]),
            "where" => Var::where_(&mask(a.shape()), a, x[1]),
            "masked_fill" => a.masked_fill(&mask(a.shape()), c(-0.5)),
            "attention" => {
                let spec = Spec::new().path(path);
                attend(a, x[1], x[2], &if n[0] == 0 { spec } else { spec.causal_top_left() })
            }
            op => unary(op, a)
                .or_else(|| reduce(op, a, n))
                .or_else(|| along(op, a, *n.first()?))
                .or_else(|| binary(op, a, x[1]))
                .unwrap_or_else(|| panic!("there is no operation {op}")),
        }
    }

    /// Adds the results of steps to those before.
    fn extend<T: Real>(&self, y: &mut Vec<Var<T>>, x: &[Var<T>], how: &How, steps: Range<usize>) {
        for at in steps {
            let (op, of, _) = &self.steps[at];
            let (seed, noise) = (self.seed, T::from_f64(how.noise));
            let moved = move |x: &Var<T>, stream| {
                let noise = Var::constant(numbers(seed, stream, x.shape()).mul_scalar(noise));
                x.mul(&noise.add_scalar(T::ONE)).add(&noise)
            };
            let operand = |(&i, stream): (&isize, u64)| {
                let x = if i < 0 { &x[!i as usize] } else { &y[i as usize] };
                if how.noise == 0.0 { x.clone() } else { moved(x, stream) }
            };
            let of: Vec<Var<T>> = of.iter().zip(5000 + 9 * at as u64..).map(operand).collect();
            let mut result = self.apply(at, &of.iter().collect::<Vec<_>>(), how.path);
            if how.noise != 0.0 {
                result = result.map_gradient(move |g| moved(g, 9000 + at as u64));
            }
            let path = if op == "attention" { format!("{:?}", how.path) } else { String::new() };
            let again = if how.again.contains(&at) { "again" } else { "" };
            let here = [op, level().name(), &threads().to_string(), &path, again];
            if here.iter().any(|name| !name.is_empty() && *name == how.wrong) {
                result = result.map_gradient(|g| g * T::from_f64(1.001));
            }
            y.push(result);
        }
    }

    /// The results of all steps.
    pub fn values<T: Real>(&self, x: &[Var<T>], how: &How) -> Vec<Var<T>> {
        let (mut y, again, n) = (Vec::new(), how.again.clone(), x.len());
        self.extend(&mut y, x, how, 0..again.start);
        if !again.is_empty() {
            let known: Vec<&Var<T>> = x.iter().chain(&y).collect();
            let (program, how, steps) = (self.clone(), how.clone(), again.clone());
            y.extend(recompute(&known, move |known| {
                let mut y = known[n..].to_vec();
                program.extend(&mut y, &known[..n], &how, steps.clone());
                y.split_off(steps.start)
            }));
        }
        self.extend(&mut y, x, how, again.end..self.steps.len());
        y
    }

    /// Numbers of the shapes of the inputs.
    pub fn inputs<T: Real>(&self, stream: u64) -> Vec<Var<T>> {
        let shapes = self.inputs.iter().zip(stream..);
        shapes.map(|(shape, k)| Var::leaf(numbers(self.seed, k, &shape[..]))).collect()
    }

    pub fn outcome<T: Real>(&self, how: &How) -> Outcome {
        let (x, v) = (self.inputs::<T>(0), self.inputs::<T>(100));
        let f = |x: &Vec<Var<T>>| {
            let unused = |at: isize| !self.steps.iter().any(|(_, of, _)| of.contains(&at));
            let all = self.values(x, how).into_iter().zip(0..);
            all.filter(|(_, at)| unused(*at)).map(|(y, _)| y).collect::<Vec<_>>()
        };
        let loss = |x: &Vec<Var<T>>| {
            let terms = f(x).into_iter().zip(200..).map(|(y, k)| {
                let w = Var::constant(numbers(self.seed, k, y.shape()));
                (y + w).square().sum(..) * T::from_f64(0.5)
            });
            terms.reduce(|a, b| a + b).expect("a result")
        };
        let grads = loss(&x).backward();
        let of = |x: &Var<T>| grads.get(x).cloned().unwrap_or_else(|| x.value().zeros_like());
        let gradient = x.iter().map(of).map(Var::constant).collect();
        let (y, tangents) = jvp(f, &x, &v);
        [y, gradient, hvp(loss, &x, &v).1, tangents]
            .map(|part| part.iter().flat_map(|x| x.value().to_vec()).map(|x| x.to_f64()).collect())
    }
}
