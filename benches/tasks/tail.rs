//! The long tail: operations, shapes and layouts beside those of a training step, so that a slow one is found.
//! `../peers/torch/tail.py` has the same cases for PyTorch.

use super::{Pass, Work, cotangent, data, digest, numbers, operand, timed};
use retrograd::autograd::grad;
use retrograd::nn::attention::{Bias, Mask, Spec, attend};
use retrograd::nn::optim::{Muon, MuonConfig};
use retrograd::nn::{TransformerEncoderLayer, TransformerLayerConfig};
use retrograd::prelude::{Pass as Training, *};

/// The sizes of [`MATRIX`].
const M: usize = 4096;
const N: usize = 1024;
const MATRIX: &[usize] = &[M, N];
const SMALL: &[usize] = &[256, 256];
const SQUARE: &[usize] = &[2048, 2048];
const CUBE: &[usize] = &[64, 256, 256];
const NARROW: &[usize] = &[1 << 20, 3];
const LONG: &[usize] = &[1 << 20];
const MILLION: &[usize] = &[1024, 1024];

/// `tail NAME fwd|fwd+bwd SIZES..`, with the names below. Only a few have sizes.
pub fn work(words: &[&str]) -> Option<Work> {
    let ["tail", name, pass, sizes @ ..] = words else { return None };
    let pass = Pass::named(pass)?;
    match (*name, sizes) {
        (_, []) => {
            let makers =
                [pointwise, reductions, copies, selections, products, layers, others, tiny];
            makers.iter().find_map(|make| make(name, pass))
        }
        ("attention", [sizes @ .., mask]) => attention(pass, numbers(sizes)?, mask),
        ("optimizer", [kind, sizes @ ..]) => optimizer(kind, numbers(sizes)?),
        ("bmm", sizes) => {
            let [count, n] = numbers(sizes)?;
            on(pass, &twice(&[count, n, n]), |x| x[0].matmul(&x[1]))
        }
        ("matmul_f64", sizes) => {
            let [n] = numbers(sizes)?;
            in_f64(pass, &twice(&[n, n]), |x| x[0].matmul(&x[1]))
        }
        _ => None,
    }
}

fn twice(shape: &[usize]) -> [&[usize]; 2] {
    [shape; 2]
}

/// A pass through `f` on operands of these shapes.
fn on(pass: Pass, shapes: &[&[usize]], f: impl Fn(&[Var]) -> Var + 'static) -> Option<Work> {
    Work::pass(pass, (0.0, 0.0), shapes.iter().map(|shape| shape.to_vec()).collect(), f)
}

/// The same in `f64`.
fn in_f64(
    pass: Pass,
    shapes: &[&[usize]],
    f: impl Fn(&[Var<f64>]) -> Var<f64> + 'static,
) -> Option<Work> {
    let values: Vec<_> = shapes.iter().enumerate().map(|(i, s)| operand(i, s).cast()).collect();
    Work::new(0.0, 0.0, move || {
        if pass == Pass::Forward {
            let x: Vec<_> = values.into_iter().map(Var::constant).collect();
            return timed(move || f(&x), |y| digest(&y.value().cast()));
        }
        let x: Vec<_> = values.into_iter().map(Var::leaf).collect();
        let (g, of) = (cotangent(f(&x).shape()).cast(), x.clone());
        timed(
            move || f(&x).backward_with(&g),
            move |g| of.iter().flat_map(|x| digest(&g.get(x).expect("of a leaf").cast())).collect(),
        )
    })
}

/// The result of `f`, which has no gradient, on tensors of these shapes.
fn of<R: 'static>(
    shapes: &[&[usize]],
    mut f: impl FnMut(&[Tensor]) -> R + 'static,
    summary: impl Fn(&R) -> Vec<f64> + 'static,
) -> Option<Work> {
    let shapes: Vec<_> = shapes.iter().map(|shape| shape.to_vec()).collect();
    Work::new(0.0, 0.0, move || {
        let x: Vec<_> = shapes.iter().enumerate().map(|(i, shape)| operand(i, shape)).collect();
        timed(move || f(&x), summary)
    })
}

/// `f`, without operands, whose results are not compared.
fn unchecked<R: 'static>(f: impl FnMut() -> R + 'static) -> Option<Work> {
    Work::new(0.0, 0.0, move || timed(f, |_| Vec::new()))
}

/// About half of the elements of a matrix.
fn half(shape: &[usize]) -> Tensor<bool> {
    operand(7, shape).gt(0.0)
}

fn indices(shape: &[usize], end: usize) -> Tensor<i64> {
    super::indices(shape.iter().product(), end).reshape(shape)
}

fn pointwise(name: &str, pass: Pass) -> Option<Work> {
    let one = |f: fn(&Var) -> Var| on(pass, &[MATRIX], move |x| f(&x[0]));
    let two = |f: fn(&Var, &Var) -> Var| on(pass, &[MATRIX; 2], move |x| f(&x[0], &x[1]));
    match name {
        "exp" => one(Var::exp),
        "tanh" => one(Var::tanh),
        "sin" => one(Var::sin),
        "erf" => one(Var::erf),
        "relu" => one(Var::relu),
        "sigmoid" => one(Var::sigmoid),
        "softplus" => one(Var::softplus),
        "mish" => one(Var::mish),
        "elu" => one(|x| x.elu(1.0)),
        "log1p" => one(|x| x.square().log1p()),
        "powf" => one(|x| x.square().powf(1.3)),
        "clamp" => one(|x| x.clamp(-1.0, 1.0)),
        "times_2" => one(|x| x * 2.0),
        "add" => two(|x, y| x + y),
        "div" => two(|x, y| x / y),
        "maximum" => two(|x, y| x.maximum(y)),
        "pow" => two(|x, y| x.square().pow(y)),
        "swiglu" => two(|x, y| x.silu() * y),
        "chain" => two(|x, y| ((x * 0.5 + 1.0).exp() * y).sigmoid()),
        "mse" => two(|x, y| x.mse_loss(y, Reduction::Mean)),
        "l1" => two(|x, y| x.l1_loss(y, Reduction::Mean)),
        "bce_with_logits" => {
            let y = Var::constant(half(MATRIX).cast());
            let mean = Reduction::Mean;
            on(pass, &[MATRIX], move |x| x[0].binary_cross_entropy_with_logits(&y, None, mean))
        }
        "where" => {
            let mask = half(MATRIX);
            on(pass, &[MATRIX; 2], move |x| Var::where_(&mask, &x[0], &x[1]))
        }
        "masked_fill" => {
            let mask = half(MATRIX);
            on(pass, &[MATRIX], move |x| x[0].masked_fill(&mask, -1.0))
        }
        "remainder" => of(&[MATRIX; 2], |x| x[0].remainder(&x[1]), digest),
        "gt" => of(&[MATRIX; 2], |x| x[0].gt(&x[1]), |y| digest(&y.cast())),
        "to_f64" => of(&[MATRIX], |x| x[0].cast::<f64>(), |y| digest(&y.cast())),
        "to_i64" => of(&[MATRIX], |x| x[0].cast::<i64>(), |y| digest(&y.cast())),
        "bool_to_f32" => {
            let mask = half(MATRIX);
            of(&[], move |_| mask.cast::<f32>(), digest)
        }
        "add_assign" => {
            let (mut x, y) = (operand(0, MATRIX), operand(1, MATRIX).mul_scalar(1e-3));
            unchecked(move || x.add_assign(&y))
        }
        "add_small" => on(pass, &[SMALL; 2], |x| &x[0] + &x[1]),
        "exp_small" => on(pass, &[SMALL], |x| x[0].exp()),
        "times_column" => on(pass, &[MATRIX, &[M, 1]], |x| &x[0] * &x[1]),
        "times_row" => on(pass, &[MATRIX, &[N]], |x| &x[0] * &x[1]),
        "add_middle" => on(pass, &[CUBE, &[64, 1, 256]], |x| &x[0] + &x[1]),
        "add_narrow" => on(pass, &[NARROW, &[3]], |x| &x[0] + &x[1]),
        "times_column_narrow" => on(pass, &[NARROW, &[1 << 20, 1]], |x| &x[0] * &x[1]),
        "add_outer" => on(pass, &[&[2048, 1], &[1, 2048]], |x| &x[0] + &x[1]),
        "add_transposed" => on(pass, &[SQUARE; 2], |x| &x[0] + &x[1].t()),
        "exp_transposed" => on(pass, &[SQUARE], |x| x[0].t().exp()),
        "exp_f64" => in_f64(pass, &[MATRIX], |x| x[0].exp()),
        "gelu_f64" => in_f64(pass, &[MATRIX], |x| x[0].gelu()),
        "add_f64" => in_f64(pass, &[MATRIX; 2], |x| &x[0] + &x[1]),
        _ => None,
    }
}

fn reductions(name: &str, pass: Pass) -> Option<Work> {
    let matrix = |f: fn(&Var) -> Var| on(pass, &[MATRIX], move |x| f(&x[0]));
    let cube = |f: fn(&Var) -> Var| on(pass, &[CUBE], move |x| f(&x[0]));
    match name {
        "sum" => matrix(|x| x.sum(..)),
        "sum_0" => matrix(|x| x.sum(0)),
        "sum_1" => matrix(|x| x.sum(1)),
        "sum_middle" => cube(|x| x.sum(1)),
        "sum_0_2" => cube(|x| x.sum([0, 2])),
        "sum_narrow" => on(pass, &[NARROW], |x| x[0].sum(1)),
        "sum_small" => on(pass, &[SMALL], |x| x[0].sum(..)),
        "sum_transposed" => matrix(|x| x.t().sum(0)),
        "sum_0_f64" => in_f64(pass, &[MATRIX], |x| x[0].sum(0)),
        "mean_1" => matrix(|x| x.mean(1)),
        "var_0" => matrix(|x| x.var(0, 1)),
        "var_1" => matrix(|x| x.var(1, 1)),
        "std" => matrix(|x| x.std(.., 1)),
        "max_0" => matrix(|x| x.max(0)),
        "max_1" => matrix(|x| x.max(1)),
        "max_middle" => cube(|x| x.max(1)),
        "prod_1" => matrix(|x| (x * 0.01 + 1.0).prod(1)),
        "logsumexp_0" => matrix(|x| x.logsumexp(0)),
        "logsumexp_1" => matrix(|x| x.logsumexp(1)),
        "norm" => matrix(|x| x.norm(..)),
        "norm_1" => matrix(|x| x.norm(1)),
        "normalize" => matrix(|x| x.normalize(1, 2.0, 1e-12)),
        "standardize" => matrix(|x| (x - x.mean_keepdim(1)) / x.std_keepdim(1, 0)),
        "softmax_0" => matrix(|x| x.softmax(0)),
        "softmax_1" => matrix(|x| x.softmax(1)),
        "softmax_middle" => cube(|x| x.softmax(1)),
        "softmax_f64" => in_f64(pass, &[MATRIX], |x| x[0].softmax(-1)),
        "log_softmax_vocabulary" => on(pass, &[&[256, 50257]], |x| x[0].log_softmax(-1)),
        "layer_norm" => on(pass, &[&[2048, 768], &[768], &[768]], |x| {
            x[0].layer_norm(Some(&x[1]), Some(&x[2]), 1e-5)
        }),
        "cumsum_0" => matrix(|x| x.cumsum(0)),
        "cumsum_1" => matrix(|x| x.cumsum(1)),
        "cumsum_long" => on(pass, &[&[1 << 22]], |x| x[0].cumsum(0)),
        "cumprod_1" => matrix(|x| (x * 0.01 + 1.0).cumprod(1)),
        "argmax_0" => of(&[MATRIX], |x| x[0].argmax(0), |y| digest(&y.cast())),
        "argmax_1" => of(&[MATRIX], |x| x[0].argmax(1), |y| digest(&y.cast())),
        "any_0" => {
            let mask = operand(0, MATRIX).gt(1.7);
            of(&[], move |_| mask.any(0), |y| digest(&y.cast()))
        }
        "count_true" => {
            let mask = half(MATRIX);
            of(&[], move |_| mask.count_true(), |&n| vec![n as f64])
        }
        _ => None,
    }
}

fn copies(name: &str, pass: Pass) -> Option<Work> {
    let copy = |shape, view: fn(&Tensor) -> Tensor| {
        of(&[shape], move |x| view(&x[0]).contiguous(), digest)
    };
    let matrix = |f: fn(&Var) -> Var| on(pass, &[MATRIX], move |x| f(&x[0]));
    let two = |f: fn(&Var, &Var) -> Var| on(pass, &[MATRIX; 2], move |x| f(&x[0], &x[1]));
    match name {
        "transpose" => copy(SQUARE, |x| x.t()),
        "permute_0213" => copy(&[64, 256, 6, 64], |x| x.permute([0, 2, 1, 3])),
        "permute_210" => copy(&[256, 64, 256], |x| x.permute([2, 1, 0])),
        "nchw_to_nhwc" => copy(&[64, 3, 128, 128], |x| x.permute([0, 2, 3, 1])),
        "every_second_column" => copy(MATRIX, |x| x.slice_step(1, .., 2)),
        "every_second_row" => copy(MATRIX, |x| x.slice_step(0, .., 2)),
        "flip_1" => copy(MATRIX, |x| x.flip(1)),
        "cat_0" => two(|x, y| Var::cat(&[x, y], 0)),
        "cat_1" => two(|x, y| Var::cat(&[x, y], 1)),
        "stack_last" => two(|x, y| Var::stack(&[x, y], 2)),
        "chunk_cat" => on(pass, &[&[4096, 1536]], |x| {
            let parts = x[0].chunk(1, 3);
            Var::cat(&[&parts[2], &parts[0], &parts[1]], 1)
        }),
        "roll" => matrix(|x| x.roll(1, 5)),
        "pad" => matrix(|x| x.pad(1, 3, 3, 0.0)),
        "repeat_interleave" => matrix(|x| x.repeat_interleave(1, 4)),
        "tile" => matrix(|x| x.tile(&[1, 4])),
        "tril" => on(pass, &[SQUARE], |x| x[0].tril(0)),
        "slice_assign" => {
            on(pass, &[MATRIX, &[M, 256]], |x| x[0].slice_assign((.., 100..356), &x[1]))
        }
        "columns" => matrix(|x| x.i((.., 100..356)).exp()),
        "row" => matrix(|x| x.i(17).exp()),
        "unfold" => on(pass, &[MILLION], |x| x[0].unfold(1, 8, 1) * 2.0),
        "from_vec" => {
            let numbers = data::numbers(1, M * N);
            of(&[], move |_| Tensor::from_vec(numbers.clone(), MATRIX), digest)
        }
        "zeros" => of(&[], |_| Tensor::zeros(MATRIX), digest),
        "full" => of(&[], |_| Tensor::full(MATRIX, 2.5), digest),
        "arange" => of(&[], |_| Tensor::arange(0.0, (M * N) as f64, 1.0), digest),
        _ => None,
    }
}

/// Elements by index, by mask and by order.
fn selections(name: &str, pass: Pass) -> Option<Work> {
    let by = |shape: &[usize], index: Tensor<i64>, f: fn(&Var, &Tensor<i64>) -> Var| {
        on(pass, &[shape], move |x| f(&x[0], &index))
    };
    let add = |index: Tensor<i64>, f: fn(&Var, &Tensor<i64>, &Var) -> Var| {
        on(pass, &[MATRIX; 2], move |x| f(&x[0], &index, &x[1]))
    };
    let table = &[50257, 384];
    match name {
        "gather" => by(MATRIX, indices(&[M, 256], N), |x, i| x.gather(1, i)),
        "gather_one" => by(MATRIX, indices(&[M, 1], N), |x, i| x.gather(1, i)),
        "embedding_many" => by(table, indices(&[16384], 50257), Var::embedding),
        "embedding_few" => by(table, indices(&[768], 50257), Var::embedding),
        "index_select_0" => by(MATRIX, indices(&[M], M), |x, i| x.index_select(0, i)),
        "index_select_1" => by(MATRIX, indices(&[N], N), |x, i| x.index_select(1, i)),
        "scatter_add" => add(indices(MATRIX, N), |x, i, y| x.scatter_add(1, i, y)),
        "index_add" => add(indices(&[M], M), |x, i, y| x.index_add(0, i, y)),
        "masked_select" => {
            let mask = half(MATRIX);
            on(pass, &[MATRIX], move |x| x[0].masked_select(&mask))
        }
        "nonzero" => {
            let mask = half(MATRIX);
            of(&[], move |_| mask.nonzero(), |y| digest(&y.cast()))
        }
        "one_hot" => {
            let index = indices(&[16384], 512);
            of(&[], move |_| Tensor::<f32>::one_hot(&index, 512), digest)
        }
        "bincount" => {
            let index = indices(LONG, 1000);
            of(&[], move |_| index.bincount(1000), |y| digest(&y.cast()))
        }
        "histc" => of(&[LONG], |x| x[0].histc(100, -2.0, 2.0), |y| digest(&y.cast())),
        "sort_0" => of(&[MILLION], |x| x[0].sort(0, false).0, digest),
        "sort_1" => of(&[MILLION], |x| x[0].sort(1, false).0, digest),
        "sort_long" => of(&[LONG], |x| x[0].sort(0, false).0, digest),
        "topk_10" => of(&[MATRIX], |x| x[0].topk(1, 10, true).0, digest),
        "topk_vocabulary" => of(&[&[64, 50257]], |x| x[0].topk(1, 50, true).0, digest),
        "topk_one_row" => of(&[&[1, 50257]], |x| x[0].topk(1, 200, true).0, digest),
        "median_1" => of(&[MILLION], |x| x[0].median(1), digest),
        "quantile" => of(&[LONG], |x| x[0].quantile(.., 0.5), digest),
        _ => None,
    }
}

fn products(name: &str, pass: Pass) -> Option<Work> {
    let matmul = |shapes: [&[usize]; 2]| on(pass, &shapes, |x| x[0].matmul(&x[1]));
    let einsum = |shapes: &[&[usize]], text: &'static str| {
        on(pass, shapes, move |x| Var::einsum(text, &x.iter().collect::<Vec<_>>()))
    };
    match name {
        "matmul" => matmul(twice(MILLION)),
        "matrix_column" => matmul([&[4096, 4096], &[4096]]),
        "row_matrix" => matmul([&[4096], &[4096, 4096]]),
        "matrix_column_batch" => matmul([&[1024, 64, 64], &[1024, 64, 1]]),
        "short_sums" => matmul([&[2048, 8], &[8, 2048]]),
        "batch_times_matrix" => matmul([&[32, 256, 384], &[384, 384]]),
        "matrix_times_batch" => matmul([&[384, 384], &[32, 384, 256]]),
        "strided" => {
            on(pass, &[&[1024, 2048], MILLION], |x| x[0].slice_step(1, .., 2).matmul(&x[1]))
        }
        "bmm_f64" => in_f64(pass, &twice(&[4096, 16, 16]), |x| x[0].matmul(&x[1])),
        "linear_f64" => in_f64(pass, &[&[768, 128], &[512, 128]], |x| x[0].linear(&x[1], None)),
        "dot" => on(pass, &[LONG; 2], |x| x[0].dot(&x[1])),
        "outer" => on(pass, &twice(&[2048]), |x| x[0].outer(&x[1])),
        "einsum_heads" => einsum(&twice(&[8, 256, 6, 64]), "bihd,bjhd->bhij"),
        "einsum_rows" => einsum(&[MATRIX; 2], "ij,ij->i"),
        "einsum_three" => einsum(&[&[256, 64], &[64, 128], &[128, 256]], "ij,jk,kl->il"),
        "einsum_bilinear" => einsum(&[&[512, 64], &[64, 64, 64], &[512, 64]], "bi,ijk,bk->bj"),
        "last_logits" => on(pass, &[&[1, 384], &[50257, 384]], |x| x[0].linear(&x[1], None)),
        _ => None,
    }
}

fn layers(name: &str, pass: Pass) -> Option<Work> {
    match name {
        "mlp" => {
            let x: &[usize] = &[512, 784];
            on(pass, &[x, x, &[512], &[256, 512], &[256], &[10, 256], &[10]], |x| {
                let hidden = x[0].linear(&x[1], Some(&x[2])).relu();
                hidden.linear(&x[3], Some(&x[4])).relu().linear(&x[5], Some(&x[6]))
            })
        }
        "rnn" => on(pass, &[&[32, 64, 128], &[128, 128], &[128, 128]], |x| {
            let (inputs, weight) = (x[0].matmul(&x[1]) * 0.05, &x[2] * 0.05);
            let step = |h: Var, t| (inputs.select(1, t) + h.matmul(&weight)).tanh();
            (1..64).fold(inputs.select(1, 0).tanh(), step)
        }),
        "grouped_queries" => {
            let keys: &[usize] = &[4, 4, 512, 64];
            on(pass, &[&[4, 12, 512, 64], keys, keys], |x| {
                attend(&x[0], &x[1], &x[2], &Spec::new().mask(Mask::causal()))
            })
        }
        "encoder" => encoder(pass),
        "head_loss" => {
            let y = indices(&[1024], 50257);
            on(pass, &[&[1024, 384], &[50257, 384]], move |x| {
                x[0].linear_cross_entropy(&(&x[1] * 0.02), &y, CrossEntropy::default())
            })
        }
        "hessian_vector" => hessian_vector(),
        _ => None,
    }
}

/// `attention PASS BATCH HEADS QUERIES KEYS SIZE causal|full|bias`.
fn attention(pass: Pass, [b, h, queries, keys, d]: [usize; 5], mask: &str) -> Option<Work> {
    let spec = match mask {
        "causal" => Spec::new().mask(Mask::causal()),
        "full" => Spec::new(),
        "bias" => Spec::new().bias(Bias::Additive(Var::constant(operand(5, &[h, queries, keys])))),
        _ => return None,
    };
    let (q, kv): (&[usize], &[usize]) = (&[b, h, queries, d], &[b, h, keys, d]);
    on(pass, &[q, kv, kv], move |x| attend(&x[0], &x[1], &x[2], &spec))
}

fn encoder(pass: Pass) -> Option<Work> {
    let config = TransformerLayerConfig::new(256, 4);
    let config = TransformerLayerConfig { dropout: 0.0, norm_first: true, ..config };
    let layer: TransformerEncoderLayer = TransformerEncoderLayer::new(config, &mut Rng::new(1));
    let x = Var::leaf(operand(0, &[16, 128, 256]));
    if pass == Pass::Forward {
        let mut eval = Training::eval();
        return unchecked(move || no_grad(|| layer.forward(&x, Mask::full(), &mut eval)));
    }
    let g = cotangent(x.shape());
    let mut train = Training::train(1);
    unchecked(move || layer.forward(&x, Mask::full(), &mut train).backward_with(&g))
}

/// The Hessian of the loss of a small network, times a vector.
fn hessian_vector() -> Option<Work> {
    let x = Var::constant(operand(0, &[128, 64]));
    let w1 = Var::leaf(operand(1, &[64, 128]).mul_scalar(0.1));
    let w2 = Var::leaf(operand(2, &[128, 64]).mul_scalar(0.1));
    let direction = Var::constant(operand(3, &[64, 128]));
    let gradient = move |y: &Var, of: &Var| grad(&[(y, None)], &[of])[0].clone().expect("used");
    Work::new(0.0, 0.0, move || {
        let product = move || {
            let loss = x.matmul(&w1).tanh().matmul(&w2).square().mean(..);
            gradient(&(gradient(&loss, &w1) * &direction).sum(..), &w1)
        };
        timed(product, |y| digest(y.value()))
    })
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
    fn new([count, rows, cols]: [usize; 3]) -> Parameters {
        Parameters((0..count).map(|i| Param::new(operand(i % 40, &[rows, cols]))).collect())
    }

    /// The gradients of the sum of all squares.
    fn gradients(&self) -> Gradients {
        let add = |sum: Var, p: &Param| sum + p.to_var().square().sum(..);
        self.0.iter().fold(Var::scalar(0.0), add).backward()
    }
}

/// `optimizer fwd adamw|sgd|muon|norm|clip COUNT ROWS COLS`: a step, or the norm, or clipping.
fn optimizer(kind: &str, sizes: [usize; 3]) -> Option<Work> {
    let parameters = Parameters::new(sizes);
    let mut gradients = parameters.gradients();
    const VALID: &str = "valid hyperparameters";
    let mut step: Box<dyn FnMut(&Gradients) -> Result<(), _>> = match kind {
        "adamw" => {
            let mut adamw = AdamW::new(&parameters, AdamConfig::default()).expect(VALID);
            Box::new(move |g| adamw.step(g))
        }
        "sgd" => {
            let config = SgdConfig { momentum: 0.9, lr: 1e-6, ..Default::default() };
            let mut sgd = Sgd::new(&parameters, config).expect(VALID);
            Box::new(move |g| sgd.step(g))
        }
        "muon" => {
            let mut muon = Muon::new(&parameters, MuonConfig::default()).expect(VALID);
            Box::new(move |g| muon.step(g))
        }
        "norm" => return unchecked(move || gradients.norm()),
        "clip" => return unchecked(move || gradients.clip_norm(1.0)),
        _ => return None,
    };
    unchecked(move || step(&gradients).expect("finite gradients of every parameter"))
}

/// Random numbers, and a graph of many leaves.
fn others(name: &str, pass: Pass) -> Option<Work> {
    let mut rng = Rng::new(1);
    match name {
        "dropout" => {
            let (x, g, mut rng) = (Var::leaf(operand(0, MATRIX)), cotangent(MATRIX), rng);
            unchecked(move || {
                let y = x.dropout(0.2, rng.key());
                (pass == Pass::Both).then(|| y.backward_with(&g))
            })
        }
        "rand" => unchecked(move || Tensor::<f32>::rand(MATRIX, &mut rng)),
        "randn" => unchecked(move || Tensor::<f32>::randn(MATRIX, &mut rng)),
        "bernoulli" => unchecked(move || Tensor::<bool>::bernoulli(MATRIX, 0.3, &mut rng)),
        "randint" => unchecked(move || Tensor::<i64>::randint(0, 1000, MATRIX, &mut rng)),
        "randperm" => unchecked(move || Tensor::<i64>::randperm(1 << 20, &mut rng)),
        "many_leaves" => {
            let parameters = Parameters::new([1000, 16, 16]);
            unchecked(move || parameters.gradients())
        }
        _ => None,
    }
}

/// Tensors of a few elements, for which the time of a call counts.
fn tiny(name: &str, pass: Pass) -> Option<Work> {
    let four = &[4, 4];
    match name {
        "tiny_matmul" => on(pass, &twice(&[8, 8]), |x| x[0].matmul(&x[1])),
        "tiny_einsum" => on(pass, &twice(four), |x| Var::einsum("ij,jk->ik", &[&x[0], &x[1]])),
        "tiny_softmax" => on(pass, &[&[4, 16]], |x| x[0].softmax(-1)),
        "tiny_layer_norm" => {
            on(pass, &[&[4, 16], &[16], &[16]], |x| x[0].layer_norm(Some(&x[1]), Some(&x[2]), 1e-5))
        }
        "tiny_sum" => on(pass, &[&[16]], |x| x[0].sum(..)),
        "tiny_item" => of(&[&[16]], |x| x[0].sum(..).item(), |&y| vec![y.into()]),
        "tiny_slice" => on(pass, &[&[16, 16]], |x| x[0].i((2..6, 3))),
        "tiny_reshape" => on(pass, &[&[16, 16]], |x| x[0].reshape([4, 64])),
        "tiny_cat" => on(pass, &twice(four), |x| Var::cat(&[&x[0], &x[1]], 0)),
        "tiny_index_select" => {
            let index = indices(&[4], 16);
            on(pass, &[&[16, 8]], move |x| x[0].index_select(0, &index))
        }
        "tiny_cross_entropy" => {
            let y = indices(&[4], 16);
            on(pass, &[&[4, 16]], move |x| x[0].cross_entropy(&y, CrossEntropy::default()))
        }
        _ => None,
    }
}
