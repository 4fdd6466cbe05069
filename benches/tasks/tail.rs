//! The long tail: the cases of `tail.txt`.

use super::{
    Pass as Way, Run, Work, cotangent, digest, indices, one_pass, operand, operands, timed,
};
use retrograd::autograd::grad;
use retrograd::nn::attention::{Bias, Mask, Spec, attend};
use retrograd::nn::{TransformerEncoderLayer, TransformerLayerConfig};
use retrograd::prelude::*;
use retrograd::tensor::{Element, ops::compare::Cast};

/// `tail NAME fwd|fwd+bwd`.
pub fn work(words: &[&str]) -> Option<Work> {
    let ["tail", name, way] = words else { return None };
    let way = Way::named(way)?;
    let columns = |line: &'static str| line.split("  ").map(str::trim).filter(|x| !x.is_empty());
    let mut rows = include_str!("tail.txt").lines().map(|line| columns(line).collect::<Vec<_>>());
    let row = rows.find(|row| row.first() == Some(name))?;
    Work::new(0.0, 0.0, move || {
        let op = row[0].split('.').next().expect("a name");
        let op = if row[1].ends_with("64") { op.trim_end_matches("_f64") } else { op };
        let (op, numbers) = match op.find(|c: char| c.is_ascii_digit()) {
            Some(at) if op[..at].ends_with('_') => (&op[..at - 1], &op[at..]),
            _ => (op, ""),
        };
        let case = Case::new(way, row[2], numbers);
        let shapes = case.shapes.clone();
        if row[1].ends_with("64") {
            let f = function_f64(op).expect("a function for every row");
            return one_pass(way, &shapes, move |x| f(x, &case));
        }
        if let Some(f) = function(op) {
            return one_pass(way, &shapes, move |x| f(x, &case));
        }
        values(op, &case).or_else(|| stateful(op, &case)).expect("a function for every row")
    })
}

/// The passes, the shapes of operands with a gradient, operands without one, and the number at the end of a
/// name, whose digits are axes.
#[derive(Clone)]
struct Case {
    way: Way,
    shapes: Vec<Vec<usize>>,
    constant: Var,
    index: Tensor<i64>,
    mask: Tensor<bool>,
    number: usize,
    axes: Vec<isize>,
}

impl Case {
    fn new(way: Way, operands: &str, numbers: &str) -> Case {
        let mut case = Case {
            way,
            shapes: Vec::new(),
            constant: Var::scalar(0.0),
            index: Tensor::zeros([0]),
            mask: Tensor::zeros([0]),
            number: numbers.parse().unwrap_or(0),
            axes: numbers.chars().filter_map(|c| Some(c.to_digit(10)? as isize)).collect(),
        };
        for text in operands.split(' ').filter(|&text| text != "-") {
            let (kind, shape) = text.split_once(':').unwrap_or(("", text));
            let shape: Vec<usize> = shape.split('x').map(|n| n.parse().expect("a size")).collect();
            match kind {
                "" => case.shapes.push(shape),
                "=" => case.constant = Var::constant(operand(5, &shape)),
                "bool" => case.mask = operand::<f32>(7, &shape).gt(0.0),
                end => {
                    let end = end[1..].parse().expect("a bound");
                    case.index = indices(shape.iter().product(), end).reshape(&shape[..]);
                }
            }
        }
        if case.axes.is_empty() {
            case.axes = (0..case.shapes.first().map_or(0, Vec::len) as isize).collect();
        }
        case
    }

    /// The result of `f`, which has no gradient.
    fn value<R>(&self, f: fn(&[Tensor], &Case) -> Tensor<R>) -> Option<Run>
    where
        R: Element + Cast<f32>,
    {
        self.summarised(f, |y| digest::<f32>(&y.cast()))
    }

    fn summarised<R: 'static>(
        &self,
        f: fn(&[Tensor], &Case) -> R,
        summary: fn(&R) -> Vec<f64>,
    ) -> Option<Run> {
        let x = self.shapes.iter().enumerate().map(|(i, shape)| operand(i, shape));
        let (x, case) = (x.collect::<Vec<_>>(), self.clone());
        Some(timed(move || f(&x, &case), summary))
    }
}

/// A differentiable function of operands.
type Function<T> = fn(&[Var<T>], &Case) -> Var<T>;

fn function_f64(op: &str) -> Option<Function<f64>> {
    Some(match op {
        "add" => |x, _| &x[0] + &x[1],
        "exp" => |x, _| x[0].exp(),
        "gelu" => |x, _| x[0].gelu(),
        "sum" => |x, c| x[0].sum(&c.axes[..]),
        "softmax" => |x, c| x[0].softmax(c.axes[0]),
        "matmul" => |x, _| x[0].matmul(&x[1]),
        "linear" => |x, _| x[0].linear(&x[1], None),
        _ => return None,
    })
}

fn function(op: &str) -> Option<Function<f32>> {
    Some(match op {
        "add" => |x, _| &x[0] + &x[1],
        "add_transposed" => |x, _| &x[0] + &x[1].t(),
        "mul" => |x, _| &x[0] * &x[1],
        "mul_scalar" => |x, _| &x[0] * 2.0,
        "div" => |x, _| &x[0] / &x[1],
        "maximum" => |x, _| x[0].maximum(&x[1]),
        "pow" => |x, _| x[0].square().pow(&x[1]),
        "powf" => |x, _| x[0].square().powf(1.3),
        "where" => |x, c| Var::where_(&c.mask, &x[0], &x[1]),
        "masked_fill" => |x, c| x[0].masked_fill(&c.mask, -1.0),
        "clamp" => |x, _| x[0].clamp(-1.0, 1.0),
        "exp" => |x, _| x[0].exp(),
        "exp_transposed" => |x, _| x[0].t().exp(),
        "sin" => |x, _| x[0].sin(),
        "erf" => |x, _| x[0].erf(),
        "log1p" => |x, _| x[0].square().log1p(),
        "tanh" => |x, _| x[0].tanh(),
        "relu" => |x, _| x[0].relu(),
        "sigmoid" => |x, _| x[0].sigmoid(),
        "softplus" => |x, _| x[0].softplus(),
        "mish" => |x, _| x[0].mish(),
        "elu" => |x, _| x[0].elu(1.0),
        "swiglu" => |x, _| x[0].silu() * &x[1],
        "chain" => |x, _| ((&x[0] * 0.5 + 1.0).exp() * &x[1]).sigmoid(),

        "sum" => |x, c| x[0].sum(&c.axes[..]),
        "sum_transposed" => |x, _| x[0].t().sum(0),
        "mean" => |x, c| x[0].mean(&c.axes[..]),
        "var" => |x, c| x[0].var(&c.axes[..], 1),
        "std" => |x, c| x[0].std(&c.axes[..], 1),
        "max" => |x, c| x[0].max(&c.axes[..]),
        "prod" => |x, c| (&x[0] * 0.01 + 1.0).prod(&c.axes[..]),
        "logsumexp" => |x, c| x[0].logsumexp(&c.axes[..]),
        "norm" => |x, c| x[0].norm(&c.axes[..]),
        "normalize" => |x, _| x[0].normalize(1, 2.0, 1e-12),
        "standardize" => |x, _| (&x[0] - x[0].mean_keepdim(1)) / x[0].std_keepdim(1, 0),
        "softmax" => |x, c| x[0].softmax(c.axes[0]),
        "log_softmax" => |x, _| x[0].log_softmax(1),
        "layer_norm" => |x, _| x[0].layer_norm(Some(&x[1]), Some(&x[2]), 1e-5),
        "cumsum" => |x, c| x[0].cumsum(c.axes[0]),
        "cumprod" => |x, c| (&x[0] * 0.01 + 1.0).cumprod(c.axes[0]),
        "mse" => |x, _| x[0].mse_loss(&x[1], Reduction::Mean),
        "l1" => |x, _| x[0].l1_loss(&x[1], Reduction::Mean),
        "bce_with_logits" => {
            |x, c| x[0].binary_cross_entropy_with_logits(&c.constant, None, Reduction::Mean)
        }

        "cat" => |x, c| Var::cat(&[&x[0], &x[1]], c.axes[0]),
        "stack" => |x, c| Var::stack(&[&x[0], &x[1]], c.axes[0]),
        "chunk" => |x, _| {
            let parts = x[0].chunk(1, 3);
            Var::cat(&[&parts[2], &parts[1], &parts[0]], 1)
        },
        "roll" => |x, _| x[0].roll(1, 5),
        "pad" => |x, _| x[0].pad(1, 3, 3, 0.0),
        "repeat_interleave" => |x, _| x[0].repeat_interleave(1, 4),
        "tile" => |x, _| x[0].tile(&[1, 4]),
        "tril" => |x, _| x[0].tril(0),
        "slice_assign" => |x, _| x[0].slice_assign((.., 100..356), &x[1]),
        "columns" => |x, _| x[0].i((.., 100..356)).exp(),
        "row" => |x, _| x[0].i(17).exp(),
        "unfold" => |x, _| x[0].unfold(1, 8, 1) * 2.0,

        "gather" => |x, c| x[0].gather(1, &c.index),
        "embedding" => |x, c| x[0].embedding(&c.index),
        "index_select" => |x, c| x[0].index_select(c.axes[0], &c.index),
        "scatter_add" => |x, c| x[0].scatter_add(1, &c.index, &x[1]),
        "index_add" => |x, c| x[0].index_add(0, &c.index, &x[1]),
        "masked_select" => |x, c| x[0].masked_select(&c.mask),
        "cross_entropy" => |x, c| x[0].cross_entropy(&c.index, CrossEntropy::default()),
        "linear_cross_entropy" => {
            |x, c| x[0].linear_cross_entropy(&(&x[1] * 0.02), &c.index, CrossEntropy::default())
        }

        "matmul" => |x, _| x[0].matmul(&x[1]),
        "matmul_strided" => |x, _| x[0].slice_step(1, .., 2).matmul(&x[1]),
        "linear" => |x, _| x[0].linear(&x[1], None),
        "dot" => |x, _| x[0].dot(&x[1]),
        "outer" => |x, _| x[0].outer(&x[1]),
        "einsum_two" => |x, _| Var::einsum("ij,jk->ik", &[&x[0], &x[1]]),
        "einsum_heads" => |x, _| Var::einsum("bihd,bjhd->bhij", &[&x[0], &x[1]]),
        "einsum_rows" => |x, _| Var::einsum("ij,ij->i", &[&x[0], &x[1]]),
        "einsum_three" => |x, _| Var::einsum("ij,jk,kl->il", &[&x[0], &x[1], &x[2]]),
        "einsum_bilinear" => |x, _| Var::einsum("bi,ijk,bk->bj", &[&x[0], &x[1], &x[2]]),
        "attention" => |x, _| attend(&x[0], &x[1], &x[2], &Spec::new()),
        "attention_causal" => |x, _| attend(&x[0], &x[1], &x[2], &Spec::new().mask(Mask::causal())),
        "attention_bias" => |x, c| {
            let bias = Bias::Additive(c.constant.clone());
            attend(&x[0], &x[1], &x[2], &Spec::new().bias(bias))
        },
        "mlp" => |x, _| {
            let hidden = x[0].linear(&x[1], Some(&x[2])).relu();
            hidden.linear(&x[3], Some(&x[4])).relu().linear(&x[5], Some(&x[6]))
        },
        "rnn" => |x, _| {
            let (inputs, weight) = (x[0].matmul(&x[1]) * 0.05, &x[2] * 0.05);
            let step = |h: Var, t| (inputs.select(1, t) + h.matmul(&weight)).tanh();
            (1..64).fold(inputs.select(1, 0).tanh(), step)
        },
        _ => return None,
    })
}

/// The shape of new tensors.
const SHAPE: [usize; 2] = [4096, 1024];

/// Operations without a gradient.
fn values(op: &str, case: &Case) -> Option<Run> {
    match op {
        "remainder" => case.value(|x, _| x[0].remainder(&x[1])),
        "gt" => case.value(|x, _| x[0].gt(&x[1])),
        "to_f64" => case.value(|x, _| x[0].cast::<f64>()),
        "to_i64" => case.value(|x, _| x[0].cast::<i64>()),
        "to_f32" => case.value(|_, c| c.mask.cast::<f32>()),
        "item" => case.summarised(|x, _| x[0].sum(..).item(), |&sum| vec![sum.into()]),
        "argmax" => case.value(|x, c| x[0].argmax(&c.axes[..])),
        "any" => case.value(|_, c| c.mask.any(&c.axes[..])),
        "count_true" => case.summarised(|_, c| c.mask.count_true(), |&n| vec![n as f64]),
        "transpose" => case.value(|x, _| x[0].t().contiguous()),
        "permute" => case.value(|x, c| x[0].permute(&c.axes[..]).contiguous()),
        "every_second_column" => case.value(|x, _| x[0].slice_step(1, .., 2).contiguous()),
        "every_second_row" => case.value(|x, _| x[0].slice_step(0, .., 2).contiguous()),
        "flip" => case.value(|x, _| x[0].flip(1).contiguous()),
        "slice" => case.value(|x, _| x[0].i((2..6, 3))),
        "reshape" => case.value(|x, _| x[0].reshape([4, 64])),
        "nonzero" => case.value(|_, c| c.mask.nonzero()),
        "one_hot" => case.value(|_, c| Tensor::<f32>::one_hot(&c.index, 512)),
        "bincount" => case.value(|_, c| c.index.bincount(1000)),
        "histc" => case.value(|x, _| x[0].histc(100, -2.0, 2.0)),
        "sort" => case.value(|x, c| x[0].sort(c.axes[0], false).0),
        "argsort" => case.value(|x, c| x[0].argsort(c.axes[0], false)),
        "topk" => case.value(|x, c| x[0].topk(1, c.number, true).0),
        "median" => case.value(|x, c| x[0].median(&c.axes[..])),
        "quantile" => case.value(|x, _| x[0].quantile(.., 0.5)),
        "from_vec" => case.value(|x, _| Tensor::from_vec(x[0].to_vec(), SHAPE)),
        "zeros" => case.value(|_, _| Tensor::<f32>::zeros(SHAPE)),
        "full" => case.value(|_, _| Tensor::full(SHAPE, 2.5f32)),
        "arange" => case.value(|_, _| Tensor::<f32>::arange(0.0, 4194304.0, 1.0)),
        _ => None,
    }
}

/// Operations with a state, and results that are not compared.
fn stateful(op: &str, case: &Case) -> Option<Run> {
    let (both, mut x) = (case.way == Way::Both, operands::<f32>(case.way, &case.shapes));
    let mut rng = Rng::new(1);
    match op {
        "add_assign" => {
            let y = x.pop()?.value().mul_scalar(1e-3);
            let mut x = x.pop()?.into_value();
            unchecked(move || x.add_assign(&y))
        }
        "dropout" => {
            let g = cotangent(&SHAPE);
            unchecked(move || {
                let y = x[0].dropout(0.2, rng.key());
                both.then(|| y.backward_with(&g));
            })
        }
        "rand" => unchecked(move || drop(Tensor::<f32>::rand(SHAPE, &mut rng))),
        "randn" => unchecked(move || drop(Tensor::<f32>::randn(SHAPE, &mut rng))),
        "bernoulli" => unchecked(move || drop(Tensor::<bool>::bernoulli(SHAPE, 0.3, &mut rng))),
        "randint" => unchecked(move || drop(Tensor::<i64>::randint(0, 1000, SHAPE, &mut rng))),
        "randperm" => unchecked(move || drop(Tensor::<i64>::randperm(1 << 20, &mut rng))),
        "encoder" => {
            let config = TransformerLayerConfig::new(256, 4);
            let config = TransformerLayerConfig { dropout: 0.0, norm_first: true, ..config };
            let layer = TransformerEncoderLayer::<f32>::new(config, &mut rng);
            let g = cotangent(x[0].shape());
            unchecked(move || match both {
                false => no_grad(|| drop(layer.forward(&x[0], Mask::full(), &mut Pass::eval()))),
                true => {
                    let y = layer.forward(&x[0], Mask::full(), &mut Pass::train(1));
                    drop(y.backward_with(&g));
                }
            })
        }
        // The Hessian of the loss of a small network, times a vector.
        "hessian_vector" => {
            let [w1, w2] = [1, 2].map(|i| Var::leaf(x[i].value().mul_scalar(0.1)));
            let gradient = |y: &Var, of: &Var| grad(&[(y, None)], &[of])[0].clone().expect("used");
            let product = move || {
                let loss = x[0].matmul(&w1).tanh().matmul(&w2).square().mean(..);
                gradient(&(gradient(&loss, &w1) * &x[3]).sum(..), &w1)
            };
            Some(timed(product, |y| digest(y.value())))
        }
        _ => parameters(op, &case.shapes),
    }
}

/// What changes its operands or is random.
fn unchecked(mut f: impl FnMut() + 'static) -> Option<Run> {
    Some(timed(move || f(), |()| Vec::new()))
}

/// Parameters of equal size.
struct Parameters(Vec<Param>);

impl Module for Parameters {
    fn visit(&self, visitor: &mut Visitor<'_, f32>) {
        for (i, parameter) in self.0.iter().enumerate() {
            visitor.param(&format!("p{i}"), parameter);
        }
    }
}

impl Parameters {
    /// The gradients of the sum of all squares.
    fn gradients(&self) -> Gradients {
        let add = |sum: Var, p: &Param| sum + p.to_var().square().sum(..);
        self.0.iter().fold(Var::scalar(0.0), add).backward()
    }
}

/// Operations on as many parameters as the first size says, of the others.
fn parameters(op: &str, shapes: &[Vec<usize>]) -> Option<Run> {
    const VALID: &str = "valid hyperparameters";
    let [count, shape @ ..] = &shapes.first()?[..] else { return None };
    let parameters = (0..*count).map(|i| Param::new(operand(i % 40, shape)));
    let parameters = Parameters(parameters.collect());
    let mut gradients = parameters.gradients();
    let mut optimizer: Box<dyn Optimizer> = match op {
        "adamw" => Box::new(AdamW::new(&parameters, AdamConfig::default()).expect(VALID)),
        "muon" => Box::new(Muon::new(&parameters, MuonConfig::default()).expect(VALID)),
        "sgd" => {
            let config = SgdConfig { momentum: 0.9, lr: 1e-6, ..Default::default() };
            Box::new(Sgd::new(&parameters, config).expect(VALID))
        }
        "many_leaves" => return unchecked(move || drop(parameters.gradients())),
        "gradient_norm" => return Some(timed(move || gradients.norm(), |&norm| vec![norm])),
        "clip" => return unchecked(move || _ = gradients.clip_norm(1.0)),
        _ => return None,
    };
    unchecked(move || optimizer.step(&gradients).expect("finite gradients of every parameter"))
}
