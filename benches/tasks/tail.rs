//! The long tail: the cases of `tail.txt`.

use super::{Pass as Way, Run, Work, data, operand, timed};
use retrograd::autograd::grad;
use retrograd::nn::attention::{Bias, Mask, Spec, attend};
use retrograd::nn::{TransformerEncoderLayer, TransformerLayerConfig};
use retrograd::prelude::*;
use retrograd::tensor::Real;
use std::ops::Index;

/// `tail NAME fwd|fwd+bwd`.
pub fn work(words: &[&str]) -> Option<Work> {
    let ["tail", name, way] = words else { return None };
    let way = Way::named(way)?;
    let columns = |line: &'static str| line.split("  ").map(str::trim).filter(|x| !x.is_empty());
    let mut rows = include_str!("tail.txt").lines().map(|line| columns(line).collect::<Vec<_>>());
    let row = rows.find(|row| row.first() == Some(name))?;
    let case = Case { operands: row.get(2)?, way };
    Work::new(0.0, 0.0, move || {
        let op = row[0].split('.').next().expect("a name");
        let makers = [pointwise, reductions, views, selections, products, models, made];
        makers.iter().find_map(|make| make(op, case)).expect("a function for every row")
    })
}

/// The operands of a case as text, and the pass.
#[derive(Clone, Copy)]
struct Case {
    operands: &'static str,
    way: Way,
}

struct Operands<T: Real> {
    x: Vec<Var<T>>,
    constant: Var<T>,
    index: Tensor<i64>,
    mask: Tensor<bool>,
}

impl<T: Real> Index<usize> for Operands<T> {
    type Output = Var<T>;

    fn index(&self, i: usize) -> &Var<T> {
        &self.x[i]
    }
}

fn shape(text: &str) -> Vec<usize> {
    text.split('x').map(|n| n.parse().expect("a size")).collect()
}

/// The `i`-th operand.
fn converted<T: Real>(i: usize, shape: &[usize]) -> Tensor<T> {
    let numbers = operand(i, shape).to_vec();
    Tensor::from_vec(numbers.into_iter().map(|x| T::from_f64(x.into())).collect(), shape)
}

impl Case {
    fn shapes(self) -> impl Iterator<Item = Vec<usize>> {
        self.operands.split(' ').filter(|text| !text.contains([':', '-'])).map(shape)
    }

    fn operands<T: Real>(self) -> Operands<T> {
        let tracked = |x| if self.way == Way::Both { Var::leaf(x) } else { Var::constant(x) };
        let x = self.shapes().enumerate().map(|(i, shape)| tracked(converted(i, &shape)));
        let mut operands = Operands {
            x: x.collect(),
            constant: Var::scalar(T::ZERO),
            index: Tensor::zeros([0]),
            mask: Tensor::zeros([0]),
        };
        for (kind, text) in self.operands.split(' ').filter_map(|text| text.split_once(':')) {
            let shape = shape(text);
            match kind {
                "=" => operands.constant = Var::constant(converted(5, &shape)),
                "bool" => operands.mask = operand(7, &shape).gt(0.0),
                end => {
                    let end = end[1..].parse().expect("a bound");
                    let index = super::indices(shape.iter().product(), end);
                    operands.index = index.reshape(&shape[..]);
                }
            }
        }
        operands
    }

    fn pass(self, f: fn(&Operands<f32>) -> Var) -> Option<Run> {
        self.pass_in(f)
    }

    fn pass_f64(self, f: fn(&Operands<f64>) -> Var<f64>) -> Option<Run> {
        self.pass_in(f)
    }

    /// One pass through `f`.
    fn pass_in<T: Real>(self, f: fn(&Operands<T>) -> Var<T>) -> Option<Run> {
        let x = self.operands();
        if self.way == Way::Forward {
            return Some(timed(move || f(&x), |y| digest(y.value())));
        }
        let (g, leaves) = (converted(49, f(&x).shape()), x.x.clone());
        let gradient = |g: &Gradients<T>, x: &Var<T>| digest(g.get(x).expect("a leaf's"));
        Some(timed(
            move || f(&x).backward_with(&g),
            move |g| leaves.iter().flat_map(|x| gradient(g, x)).collect(),
        ))
    }

    /// The result of `f`, which has no gradient.
    fn value<R: Summary + 'static>(self, f: fn(&Operands<f32>) -> R) -> Option<Run> {
        let x = self.operands();
        Some(timed(move || f(&x), R::summary))
    }
}

fn digest<T: Real>(x: &Tensor<T>) -> Vec<f64> {
    let numbers: Vec<f32> = x.to_vec().into_iter().map(|x| x.to_f64() as f32).collect();
    data::digest(&numbers).to_vec()
}

/// A result, of which a few numbers are compared with other programs.
trait Summary {
    fn summary(&self) -> Vec<f64>;
}

macro_rules! summary {
    ($($t:ty: |$x:ident| $numbers:expr;)+) => {
        $(impl Summary for $t {
            fn summary(&self) -> Vec<f64> {
                let $x = self;
                $numbers
            }
        })+
    };
}

summary! {
    Tensor: |x| digest(x);
    Tensor<f64>: |x| digest(x);
    Tensor<i64>: |x| super::digest(&x.cast());
    Tensor<bool>: |x| super::digest(&x.cast());
    usize: |n| vec![*n as f64];
    f32: |x| vec![f64::from(*x)];
}

fn pointwise(op: &str, case: Case) -> Option<Run> {
    match op {
        "add" => case.pass(|x| &x[0] + &x[1]),
        "add_transposed" => case.pass(|x| &x[0] + &x[1].t()),
        "mul" => case.pass(|x| &x[0] * &x[1]),
        "mul_scalar" => case.pass(|x| &x[0] * 2.0),
        "div" => case.pass(|x| &x[0] / &x[1]),
        "maximum" => case.pass(|x| x[0].maximum(&x[1])),
        "remainder" => case.value(|x| x[0].value().remainder(x[1].value())),
        "pow" => case.pass(|x| x[0].square().pow(&x[1])),
        "powf" => case.pass(|x| x[0].square().powf(1.3)),
        "gt" => case.value(|x| x[0].value().gt(x[1].value())),
        "where" => case.pass(|x| Var::where_(&x.mask, &x[0], &x[1])),
        "masked_fill" => case.pass(|x| x[0].masked_fill(&x.mask, -1.0)),
        "clamp" => case.pass(|x| x[0].clamp(-1.0, 1.0)),
        "exp" => case.pass(|x| x[0].exp()),
        "exp_transposed" => case.pass(|x| x[0].t().exp()),
        "sin" => case.pass(|x| x[0].sin()),
        "erf" => case.pass(|x| x[0].erf()),
        "log1p" => case.pass(|x| x[0].square().log1p()),
        "tanh" => case.pass(|x| x[0].tanh()),
        "relu" => case.pass(|x| x[0].relu()),
        "sigmoid" => case.pass(|x| x[0].sigmoid()),
        "softplus" => case.pass(|x| x[0].softplus()),
        "mish" => case.pass(|x| x[0].mish()),
        "elu" => case.pass(|x| x[0].elu(1.0)),
        "swiglu" => case.pass(|x| x[0].silu() * &x[1]),
        "chain" => case.pass(|x| ((&x[0] * 0.5 + 1.0).exp() * &x[1]).sigmoid()),
        "exp_f64" => case.pass_f64(|x| x[0].exp()),
        "add_f64" => case.pass_f64(|x| &x[0] + &x[1]),
        "gelu_f64" => case.pass_f64(|x| x[0].gelu()),
        "to_f64" => case.value(|x| x[0].value().cast::<f64>()),
        "to_i64" => case.value(|x| x[0].value().cast::<i64>()),
        "to_f32" => case.value(|x| x.mask.cast::<f32>()),
        _ => None,
    }
}

fn reductions(op: &str, case: Case) -> Option<Run> {
    match op {
        "sum" => case.pass(|x| x[0].sum(..)),
        "item" => case.value(|x| x[0].value().sum(..).item()),
        "sum_0" => case.pass(|x| x[0].sum(0)),
        "sum_1" => case.pass(|x| x[0].sum(1)),
        "sum_0_2" => case.pass(|x| x[0].sum([0, 2])),
        "sum_transposed" => case.pass(|x| x[0].t().sum(0)),
        "sum_0_f64" => case.pass_f64(|x| x[0].sum(0)),
        "mean_1" => case.pass(|x| x[0].mean(1)),
        "var_0" => case.pass(|x| x[0].var(0, 1)),
        "var_1" => case.pass(|x| x[0].var(1, 1)),
        "std" => case.pass(|x| x[0].std(.., 1)),
        "max_0" => case.pass(|x| x[0].max(0)),
        "max_1" => case.pass(|x| x[0].max(1)),
        "argmax_0" => case.value(|x| x[0].value().argmax(0)),
        "argmax_1" => case.value(|x| x[0].value().argmax(1)),
        "prod_1" => case.pass(|x| (&x[0] * 0.01 + 1.0).prod(1)),
        "logsumexp_0" => case.pass(|x| x[0].logsumexp(0)),
        "logsumexp_1" => case.pass(|x| x[0].logsumexp(1)),
        "norm" => case.pass(|x| x[0].norm(..)),
        "norm_1" => case.pass(|x| x[0].norm(1)),
        "normalize" => case.pass(|x| x[0].normalize(1, 2.0, 1e-12)),
        "standardize" => case.pass(|x| (&x[0] - x[0].mean_keepdim(1)) / x[0].std_keepdim(1, 0)),
        "any_0" => case.value(|x| x.mask.any(0)),
        "count_true" => case.value(|x| x.mask.count_true()),
        "softmax_0" => case.pass(|x| x[0].softmax(0)),
        "softmax_1" => case.pass(|x| x[0].softmax(1)),
        "softmax_1_f64" => case.pass_f64(|x| x[0].softmax(1)),
        "log_softmax" => case.pass(|x| x[0].log_softmax(1)),
        "layer_norm" => case.pass(|x| x[0].layer_norm(Some(&x[1]), Some(&x[2]), 1e-5)),
        "cumsum_0" => case.pass(|x| x[0].cumsum(0)),
        "cumsum_1" => case.pass(|x| x[0].cumsum(1)),
        "cumprod_1" => case.pass(|x| (&x[0] * 0.01 + 1.0).cumprod(1)),
        "mse" => case.pass(|x| x[0].mse_loss(&x[1], Reduction::Mean)),
        "l1" => case.pass(|x| x[0].l1_loss(&x[1], Reduction::Mean)),
        "bce_with_logits" => {
            case.pass(|x| x[0].binary_cross_entropy_with_logits(&x.constant, None, Reduction::Mean))
        }
        _ => None,
    }
}

fn views(op: &str, case: Case) -> Option<Run> {
    match op {
        "transpose" => case.value(|x| x[0].value().t().contiguous()),
        "permute_0213" => case.value(|x| x[0].value().permute([0, 2, 1, 3]).contiguous()),
        "permute_210" => case.value(|x| x[0].value().permute([2, 1, 0]).contiguous()),
        "permute_0231" => case.value(|x| x[0].value().permute([0, 2, 3, 1]).contiguous()),
        "every_second_column" => case.value(|x| x[0].value().slice_step(1, .., 2).contiguous()),
        "every_second_row" => case.value(|x| x[0].value().slice_step(0, .., 2).contiguous()),
        "flip" => case.value(|x| x[0].value().flip(1).contiguous()),
        "slice" => case.value(|x| x[0].value().i((2..6, 3))),
        "reshape" => case.value(|x| x[0].value().reshape([4, 64])),
        "cat_0" => case.pass(|x| Var::cat(&[&x[0], &x[1]], 0)),
        "cat_1" => case.pass(|x| Var::cat(&[&x[0], &x[1]], 1)),
        "stack_2" => case.pass(|x| Var::stack(&[&x[0], &x[1]], 2)),
        "chunk" => case.pass(|x| {
            let parts = x[0].chunk(1, 3);
            Var::cat(&[&parts[2], &parts[1], &parts[0]], 1)
        }),
        "roll" => case.pass(|x| x[0].roll(1, 5)),
        "pad" => case.pass(|x| x[0].pad(1, 3, 3, 0.0)),
        "repeat_interleave" => case.pass(|x| x[0].repeat_interleave(1, 4)),
        "tile" => case.pass(|x| x[0].tile(&[1, 4])),
        "tril" => case.pass(|x| x[0].tril(0)),
        "slice_assign" => case.pass(|x| x[0].slice_assign((.., 100..356), &x[1])),
        "columns" => case.pass(|x| x[0].i((.., 100..356)).exp()),
        "row" => case.pass(|x| x[0].i(17).exp()),
        "unfold" => case.pass(|x| x[0].unfold(1, 8, 1) * 2.0),
        _ => None,
    }
}

/// Elements by index, by mask and by order.
fn selections(op: &str, case: Case) -> Option<Run> {
    match op {
        "gather" => case.pass(|x| x[0].gather(1, &x.index)),
        "embedding" => case.pass(|x| x[0].embedding(&x.index)),
        "index_select_0" => case.pass(|x| x[0].index_select(0, &x.index)),
        "index_select_1" => case.pass(|x| x[0].index_select(1, &x.index)),
        "scatter_add" => case.pass(|x| x[0].scatter_add(1, &x.index, &x[1])),
        "index_add" => case.pass(|x| x[0].index_add(0, &x.index, &x[1])),
        "masked_select" => case.pass(|x| x[0].masked_select(&x.mask)),
        "nonzero" => case.value(|x| x.mask.nonzero()),
        "one_hot" => case.value(|x| Tensor::<f32>::one_hot(&x.index, 512)),
        "bincount" => case.value(|x| x.index.bincount(1000)),
        "histc" => case.value(|x| x[0].value().histc(100, -2.0, 2.0)),
        "sort_0" => case.value(|x| x[0].value().sort(0, false).0),
        "sort_1" => case.value(|x| x[0].value().sort(1, false).0),
        "argsort_1" => case.value(|x| x[0].value().argsort(1, false)),
        "topk_10" => case.value(|x| x[0].value().topk(1, 10, true).0),
        "topk_50" => case.value(|x| x[0].value().topk(1, 50, true).0),
        "topk_200" => case.value(|x| x[0].value().topk(1, 200, true).0),
        "median_1" => case.value(|x| x[0].value().median(1)),
        "quantile" => case.value(|x| x[0].value().quantile(.., 0.5)),
        "cross_entropy" => case.pass(|x| x[0].cross_entropy(&x.index, CrossEntropy::default())),
        "linear_cross_entropy" => case.pass(|x| {
            x[0].linear_cross_entropy(&(&x[1] * 0.02), &x.index, CrossEntropy::default())
        }),
        _ => None,
    }
}

fn products(op: &str, case: Case) -> Option<Run> {
    match op {
        "matmul" => case.pass(|x| x[0].matmul(&x[1])),
        "matmul_strided" => case.pass(|x| x[0].slice_step(1, .., 2).matmul(&x[1])),
        "matmul_f64" => case.pass_f64(|x| x[0].matmul(&x[1])),
        "linear" => case.pass(|x| x[0].linear(&x[1], None)),
        "linear_f64" => case.pass_f64(|x| x[0].linear(&x[1], None)),
        "dot" => case.pass(|x| x[0].dot(&x[1])),
        "outer" => case.pass(|x| x[0].outer(&x[1])),
        "einsum_two" => case.pass(|x| Var::einsum("ij,jk->ik", &[&x[0], &x[1]])),
        "einsum_heads" => case.pass(|x| Var::einsum("bihd,bjhd->bhij", &[&x[0], &x[1]])),
        "einsum_rows" => case.pass(|x| Var::einsum("ij,ij->i", &[&x[0], &x[1]])),
        "einsum_three" => case.pass(|x| Var::einsum("ij,jk,kl->il", &[&x[0], &x[1], &x[2]])),
        "einsum_bilinear" => case.pass(|x| Var::einsum("bi,ijk,bk->bj", &[&x[0], &x[1], &x[2]])),
        "attention" => case.pass(|x| attend(&x[0], &x[1], &x[2], &Spec::new())),
        "attention_causal" => {
            case.pass(|x| attend(&x[0], &x[1], &x[2], &Spec::new().mask(Mask::causal())))
        }
        "attention_bias" => case.pass(|x| {
            let bias = Bias::Additive(x.constant.clone());
            attend(&x[0], &x[1], &x[2], &Spec::new().bias(bias))
        }),
        _ => None,
    }
}

fn models(op: &str, case: Case) -> Option<Run> {
    match op {
        "mlp" => case.pass(|x| {
            let hidden = x[0].linear(&x[1], Some(&x[2])).relu();
            hidden.linear(&x[3], Some(&x[4])).relu().linear(&x[5], Some(&x[6]))
        }),
        "rnn" => case.pass(|x| {
            let (inputs, weight) = (x[0].matmul(&x[1]) * 0.05, &x[2] * 0.05);
            let step = |h: Var, t| (inputs.select(1, t) + h.matmul(&weight)).tanh();
            (1..64).fold(inputs.select(1, 0).tanh(), step)
        }),
        "encoder" => {
            let config = TransformerLayerConfig::new(256, 4);
            let config = TransformerLayerConfig { dropout: 0.0, norm_first: true, ..config };
            let layer = TransformerEncoderLayer::<f32>::new(config, &mut Rng::new(1));
            let (x, training) = (case.operands(), case.way == Way::Both);
            let g = super::cotangent(x[0].shape());
            unchecked(move || match training {
                false => no_grad(|| drop(layer.forward(&x[0], Mask::full(), &mut Pass::eval()))),
                true => {
                    let y = layer.forward(&x[0], Mask::full(), &mut Pass::train(1));
                    drop(y.backward_with(&g));
                }
            })
        }
        // The Hessian of the loss of a small network, times a vector.
        "hessian_vector" => {
            let x = case.operands::<f32>();
            let [w1, w2] = [1, 2].map(|i| Var::leaf(x[i].value().mul_scalar(0.1)));
            let gradient = |y: &Var, of: &Var| grad(&[(y, None)], &[of])[0].clone().expect("used");
            let product = move || {
                let loss = x[0].matmul(&w1).tanh().matmul(&w2).square().mean(..);
                gradient(&(gradient(&loss, &w1) * &x[3]).sum(..), &w1)
            };
            Some(timed(product, |y| digest(y.value())))
        }
        "many_leaves" => {
            let parameters = Parameters::new(&[1000, 16, 16]);
            unchecked(move || drop(parameters.gradients()))
        }
        _ => optimizer(op, &Parameters::new(&case.shapes().next()?)),
    }
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
    /// As many as the first size says, of the others.
    fn new(sizes: &[usize]) -> Parameters {
        Parameters((0..sizes[0]).map(|i| Param::new(operand(i % 40, &sizes[1..]))).collect())
    }

    /// The gradients of the sum of all squares.
    fn gradients(&self) -> Gradients {
        let add = |sum: Var, p: &Param| sum + p.to_var().square().sum(..);
        self.0.iter().fold(Var::scalar(0.0), add).backward()
    }
}

fn optimizer(op: &str, parameters: &Parameters) -> Option<Run> {
    const VALID: &str = "valid hyperparameters";
    let mut gradients = parameters.gradients();
    let mut optimizer: Box<dyn Optimizer> = match op {
        "adamw" => Box::new(AdamW::new(parameters, AdamConfig::default()).expect(VALID)),
        "muon" => Box::new(Muon::new(parameters, MuonConfig::default()).expect(VALID)),
        "sgd" => {
            let config = SgdConfig { momentum: 0.9, lr: 1e-6, ..Default::default() };
            Box::new(Sgd::new(parameters, config).expect(VALID))
        }
        "gradient_norm" => return Some(timed(move || gradients.norm(), |&norm| vec![norm])),
        "clip" => return unchecked(move || _ = gradients.clip_norm(1.0)),
        _ => return None,
    };
    unchecked(move || optimizer.step(&gradients).expect("finite gradients of every parameter"))
}

/// What changes its operands or is random.
fn unchecked(mut f: impl FnMut() + 'static) -> Option<Run> {
    Some(timed(move || f(), |()| Vec::new()))
}

/// New tensors, and results that are not compared.
fn made(op: &str, case: Case) -> Option<Run> {
    const SHAPE: [usize; 2] = [4096, 1024];
    let mut rng = Rng::new(1);
    match op {
        "from_vec" => {
            let numbers = data::numbers(1, 4096 * 1024);
            Some(timed(move || Tensor::from_vec(numbers.clone(), SHAPE), digest))
        }
        "zeros" => case.value(|_| Tensor::<f32>::zeros(SHAPE)),
        "full" => case.value(|_| Tensor::full(SHAPE, 2.5f32)),
        "arange" => case.value(|_| Tensor::<f32>::arange(0.0, 4194304.0, 1.0)),
        "add_assign" => {
            let mut x = case.operands::<f32>().x;
            let y = x.pop()?.value().mul_scalar(1e-3);
            let mut x = x.pop()?.into_value();
            unchecked(move || x.add_assign(&y))
        }
        "dropout" => {
            let (x, g) = (case.operands::<f32>(), super::cotangent(&SHAPE));
            unchecked(move || {
                let y = x[0].dropout(0.2, rng.key());
                (case.way == Way::Both).then(|| y.backward_with(&g));
            })
        }
        "rand" => unchecked(move || drop(Tensor::<f32>::rand(SHAPE, &mut rng))),
        "randn" => unchecked(move || drop(Tensor::<f32>::randn(SHAPE, &mut rng))),
        "bernoulli" => unchecked(move || drop(Tensor::<bool>::bernoulli(SHAPE, 0.3, &mut rng))),
        "randint" => unchecked(move || drop(Tensor::<i64>::randint(0, 1000, SHAPE, &mut rng))),
        "randperm" => unchecked(move || drop(Tensor::<i64>::randperm(1 << 20, &mut rng))),
        _ => None,
    }
}
