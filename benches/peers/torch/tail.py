"""The long tail: the cases of ../../tasks/tail.rs for PyTorch."""

import torch
import torch.nn.functional as F

from data import integers, numbers, one_pass

M, N = 4096, 1024
MATRIX, SMALL, SQUARE, CUBE = (M, N), (256, 256), (2048, 2048), (64, 256, 256)
NARROW, LONG, MILLION = (1 << 20, 3), (1 << 20,), (1024, 1024)


def half(shape):
    """About half of the elements of a matrix."""
    return numbers(8, *shape) > 0


def indices(shape, end):
    return integers(2, torch.Size(shape).numel(), end).view(shape)


def rnn(x, w, u):
    inputs, weight = (x @ w) * 0.05, u * 0.05
    h = inputs[:, 0].tanh()
    for t in range(1, 64):
        h = (inputs[:, t] + h @ weight).tanh()
    return h


def mlp(x, *layers):
    for i in range(0, len(layers), 2):
        x = F.linear(x if i == 0 else F.relu(x), layers[i], layers[i + 1])
    return x


def chunk_cat(x):
    a, b, c = x.chunk(3, 1)
    return torch.cat((c, a, b), 1)


def einsum(text):
    return lambda *operands: torch.einsum(text, *operands)


# Functions of one or two matrices.
ONE = {
    "exp": torch.exp,
    "tanh": torch.tanh,
    "sin": torch.sin,
    "erf": torch.erf,
    "relu": torch.relu,
    "sigmoid": torch.sigmoid,
    "softplus": F.softplus,
    "mish": F.mish,
    "elu": F.elu,
    "log1p": lambda x: x.square().log1p(),
    "powf": lambda x: x.square() ** 1.3,
    "clamp": lambda x: x.clamp(-1.0, 1.0),
    "times_2": lambda x: x * 2.0,
    "to_f64": lambda x: x.double(),
    "to_i64": lambda x: x.long(),
    "sum": torch.sum,
    "sum_0": lambda x: x.sum(0),
    "sum_1": lambda x: x.sum(1),
    "sum_transposed": lambda x: x.t().sum(0),
    "mean_1": lambda x: x.mean(1),
    "var_0": lambda x: x.var(0),
    "var_1": lambda x: x.var(1),
    "std": lambda x: x.std(),
    "max_0": lambda x: x.amax(0),
    "max_1": lambda x: x.amax(1),
    "prod_1": lambda x: (x * 0.01 + 1.0).prod(1),
    "logsumexp_0": lambda x: x.logsumexp(0),
    "logsumexp_1": lambda x: x.logsumexp(1),
    "norm": lambda x: x.norm(),
    "norm_1": lambda x: x.norm(dim=1),
    "normalize": lambda x: F.normalize(x, dim=1),
    "standardize": lambda x: (x - x.mean(1, keepdim=True)) / x.std(1, keepdim=True, correction=0),
    "softmax_0": lambda x: x.softmax(0),
    "softmax_1": lambda x: x.softmax(1),
    "cumsum_0": lambda x: x.cumsum(0),
    "cumsum_1": lambda x: x.cumsum(1),
    "cumprod_1": lambda x: (x * 0.01 + 1.0).cumprod(1),
    "argmax_0": lambda x: x.argmax(0),
    "argmax_1": lambda x: x.argmax(1),
    "every_second_column": lambda x: x[:, ::2].contiguous(),
    "every_second_row": lambda x: x[::2].contiguous(),
    "flip_1": lambda x: x.flip(1),
    "roll": lambda x: x.roll(5, 1),
    "pad": lambda x: F.pad(x, (3, 3)),
    "repeat_interleave": lambda x: x.repeat_interleave(4, 1),
    "tile": lambda x: x.repeat(1, 4),
    "columns": lambda x: x[:, 100:356].exp(),
    "row": lambda x: x[17].exp(),
    "topk_10": lambda x: x.topk(10, 1)[0],
    "dropout": lambda x: F.dropout(x, 0.2),
}
TWO = {
    "add": torch.add,
    "div": torch.div,
    "maximum": torch.maximum,
    "remainder": torch.remainder,
    "gt": torch.gt,
    "pow": lambda x, y: x.square() ** y,
    "swiglu": lambda x, y: F.silu(x) * y,
    "chain": lambda x, y: ((x * 0.5 + 1.0).exp() * y).sigmoid(),
    "mse": F.mse_loss,
    "l1": F.l1_loss,
    "cat_0": lambda x, y: torch.cat((x, y), 0),
    "cat_1": lambda x, y: torch.cat((x, y), 1),
    "stack_last": lambda x, y: torch.stack((x, y), 2),
    "einsum_rows": einsum("ij,ij->i"),
}
# Functions of operands of other shapes.
OTHERS = {
    "add_small": (torch.add, SMALL, SMALL),
    "exp_small": (torch.exp, SMALL),
    "sum_small": (torch.sum, SMALL),
    "times_column": (torch.mul, MATRIX, (M, 1)),
    "times_row": (torch.mul, MATRIX, (N,)),
    "add_middle": (torch.add, CUBE, (64, 1, 256)),
    "add_narrow": (torch.add, NARROW, (3,)),
    "times_column_narrow": (torch.mul, NARROW, (1 << 20, 1)),
    "add_outer": (torch.add, (2048, 1), (1, 2048)),
    "add_transposed": (lambda x, y: x + y.t(), SQUARE, SQUARE),
    "exp_transposed": (lambda x: x.t().exp(), SQUARE),
    "sum_middle": (lambda x: x.sum(1), CUBE),
    "sum_0_2": (lambda x: x.sum((0, 2)), CUBE),
    "sum_narrow": (lambda x: x.sum(1), NARROW),
    "max_middle": (lambda x: x.amax(1), CUBE),
    "softmax_middle": (lambda x: x.softmax(1), CUBE),
    "log_softmax_vocabulary": (lambda x: x.log_softmax(-1), (256, 50257)),
    "layer_norm": (lambda x, w, b: F.layer_norm(x, w.shape, w, b), (2048, 768), (768,), (768,)),
    "cumsum_long": (lambda x: x.cumsum(0), (1 << 22,)),
    "transpose": (lambda x: x.t().contiguous(), SQUARE),
    "permute_0213": (lambda x: x.permute(0, 2, 1, 3).contiguous(), (64, 256, 6, 64)),
    "permute_210": (lambda x: x.permute(2, 1, 0).contiguous(), (256, 64, 256)),
    "nchw_to_nhwc": (lambda x: x.permute(0, 2, 3, 1).contiguous(), (64, 3, 128, 128)),
    "chunk_cat": (chunk_cat, (4096, 1536)),
    "tril": (torch.tril, SQUARE),
    "slice_assign": (lambda x, y: x.slice_scatter(y, 1, 100, 356), MATRIX, (M, 256)),
    "unfold": (lambda x: x.unfold(1, 8, 1) * 2.0, MILLION),
    "histc": (lambda x: x.histc(100, -2.0, 2.0), LONG),
    "sort_0": (lambda x: x.sort(0)[0], MILLION),
    "sort_1": (lambda x: x.sort(1)[0], MILLION),
    "sort_long": (lambda x: x.sort(0)[0], LONG),
    "topk_vocabulary": (lambda x: x.topk(50, 1)[0], (64, 50257)),
    "topk_one_row": (lambda x: x.topk(200, 1)[0], (1, 50257)),
    "median_1": (lambda x: x.median(1)[0], MILLION),
    "quantile": (lambda x: x.quantile(0.5), LONG),
    "matmul": (torch.matmul, MILLION, MILLION),
    "matrix_column": (torch.matmul, (4096, 4096), (4096,)),
    "row_matrix": (torch.matmul, (4096,), (4096, 4096)),
    "matrix_column_batch": (torch.matmul, (1024, 64, 64), (1024, 64, 1)),
    "short_sums": (torch.matmul, (2048, 8), (8, 2048)),
    "batch_times_matrix": (torch.matmul, (32, 256, 384), (384, 384)),
    "matrix_times_batch": (torch.matmul, (384, 384), (32, 384, 256)),
    "strided": (lambda x, y: x[:, ::2] @ y, (1024, 2048), MILLION),
    "dot": (torch.dot, LONG, LONG),
    "outer": (torch.outer, (2048,), (2048,)),
    "einsum_heads": (einsum("bihd,bjhd->bhij"), (8, 256, 6, 64), (8, 256, 6, 64)),
    "einsum_three": (einsum("ij,jk,kl->il"), (256, 64), (64, 128), (128, 256)),
    "einsum_bilinear": (einsum("bi,ijk,bk->bj"), (512, 64), (64, 64, 64), (512, 64)),
    "last_logits": (F.linear, (1, 384), (50257, 384)),
    "mlp": (mlp, (512, 784), (512, 784), (512,), (256, 512), (256,), (10, 256), (10,)),
    "rnn": (rnn, (32, 64, 128), (128, 128), (128, 128)),
    "tiny_matmul": (torch.matmul, (8, 8), (8, 8)),
    "tiny_einsum": (einsum("ij,jk->ik"), (4, 4), (4, 4)),
    "tiny_softmax": (lambda x: x.softmax(-1), (4, 16)),
    "tiny_layer_norm": (lambda x, w, b: F.layer_norm(x, w.shape, w, b), (4, 16), (16,), (16,)),
    "tiny_sum": (torch.sum, (16,)),
    "tiny_item": (lambda x: x.sum().item(), (16,)),
    "tiny_slice": (lambda x: x[2:6, 3], (16, 16)),
    "tiny_reshape": (lambda x: x.reshape(4, 64), (16, 16)),
    "tiny_cat": (lambda x, y: torch.cat((x, y), 0), (4, 4), (4, 4)),
}
IN_F64 = {
    "exp_f64": (torch.exp, MATRIX),
    "gelu_f64": (F.gelu, MATRIX),
    "add_f64": (torch.add, MATRIX, MATRIX),
    "sum_0_f64": (lambda x: x.sum(0), MATRIX),
    "softmax_f64": (lambda x: x.softmax(-1), MATRIX),
    "bmm_f64": (torch.matmul, (4096, 16, 16), (4096, 16, 16)),
    "linear_f64": (F.linear, (768, 128), (512, 128)),
}
# Without operands.
MADE = {
    "zeros": lambda: torch.zeros(MATRIX),
    "full": lambda: torch.full(MATRIX, 2.5),
    "arange": lambda: torch.arange(0.0, float(M * N), 1.0),
    "rand": lambda: torch.rand(MATRIX),
    "randn": lambda: torch.randn(MATRIX),
    "bernoulli": lambda: torch.empty(MATRIX, dtype=torch.bool).bernoulli_(0.3),
    "randint": lambda: torch.randint(0, 1000, MATRIX),
    "randperm": lambda: torch.randperm(1 << 20),
}


def selected(way, name):
    """Elements by mask and by index."""
    mask, index = half(MATRIX), None
    with_mask = {
        "where": (lambda x, y: torch.where(mask, x, y), MATRIX, MATRIX),
        "masked_fill": (lambda x: x.masked_fill(mask, -1.0), MATRIX),
        "masked_select": (lambda x: x.masked_select(mask), MATRIX),
        "bce_with_logits": (lambda x: F.binary_cross_entropy_with_logits(x, mask.float()), MATRIX),
        "bool_to_f32": (lambda: mask.float(),),
        "count_true": (lambda: float(mask.count_nonzero().item()),),
        "nonzero": (lambda: mask.nonzero(),),
        "any_0": (lambda: mask.any(0),),
    }
    if name in with_mask:
        return one_pass(way, *with_mask[name])
    table = (50257, 384)
    with_index = {
        "gather": ((M, 256), N, lambda x: x.gather(1, index), MATRIX),
        "gather_one": ((M, 1), N, lambda x: x.gather(1, index), MATRIX),
        "embedding_many": ((16384,), 50257, lambda x: F.embedding(index, x), table),
        "embedding_few": ((768,), 50257, lambda x: F.embedding(index, x), table),
        "index_select_0": ((M,), M, lambda x: x.index_select(0, index), MATRIX),
        "index_select_1": ((N,), N, lambda x: x.index_select(1, index), MATRIX),
        "scatter_add": (MATRIX, N, lambda x, y: x.scatter_add(1, index, y), MATRIX, MATRIX),
        "index_add": ((M,), M, lambda x, y: x.index_add(0, index, y), MATRIX, MATRIX),
        "one_hot": ((16384,), 512, lambda: F.one_hot(index, 512).float()),
        "bincount": (LONG, 1000, lambda: index.bincount(minlength=1000)),
        "tiny_index_select": ((4,), 16, lambda x: x.index_select(0, index), (16, 8)),
        "tiny_cross_entropy": ((4,), 16, lambda x: F.cross_entropy(x, index), (4, 16)),
        "head_loss": (
            (1024,),
            50257,
            lambda x, w: F.cross_entropy(F.linear(x, w * 0.02), index),
            (1024, 384),
            table,
        ),
    }
    shape, end, *rest = with_index[name]
    index = indices(shape, end)
    return one_pass(way, *rest)


def attention(way, b, h, queries, keys, d, mask):
    bias = numbers(6, h, queries, keys).expand(b, h, queries, keys) if mask == "bias" else None

    def attend(q, k, v):
        return F.scaled_dot_product_attention(q, k, v, bias, is_causal=mask == "causal")

    return one_pass(way, attend, (b, h, queries, d), (b, h, keys, d), (b, h, keys, d))


def grouped_queries(way):
    def attend(q, k, v):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)

    return one_pass(way, attend, (4, 12, 512, 64), (4, 4, 512, 64), (4, 4, 512, 64))


def encoder(way):
    options = dict(dropout=0.0, norm_first=True, batch_first=True)
    layer = torch.nn.TransformerEncoderLayer(256, 4, 1024, **options)
    x = numbers(1, 16, 128, 256)
    if way == "fwd":
        layer.eval()
        return torch.no_grad()(lambda: layer(x))
    g, inputs = numbers(50, *x.shape), [x.requires_grad_(), *layer.parameters()]
    return lambda: torch.autograd.grad(layer(x), inputs, g)


def hessian_vector():
    x, direction = numbers(1, 128, 64), numbers(4, 64, 128)
    w1 = (numbers(2, 64, 128) * 0.1).requires_grad_()
    w2 = (numbers(3, 128, 64) * 0.1).requires_grad_()

    def product():
        loss = ((x @ w1).tanh() @ w2).square().mean()
        (g,) = torch.autograd.grad(loss, w1, create_graph=True)
        return torch.autograd.grad((g * direction).sum(), w1)

    return product


def parameters(count, *shape):
    return [torch.nn.Parameter(numbers(i % 40 + 1, *shape)) for i in range(count)]


def sum_of_squares(tensors):
    return sum((x.square().sum() for x in tensors), torch.zeros(()))


def optimizer(kind, count, rows, cols):
    tensors = parameters(count, rows, cols)
    sum_of_squares(tensors).backward()
    if kind == "norm":
        gradients = [x.grad for x in tensors]
        return lambda: torch.nn.utils.get_total_norm(gradients).item()
    if kind == "clip":
        return lambda: torch.nn.utils.clip_grad_norm_(tensors, 1.0)
    makers = {
        "adamw": lambda: torch.optim.AdamW(tensors, 1e-3, fused=True),
        "sgd": lambda: torch.optim.SGD(tensors, 1e-6, momentum=0.9, fused=True),
        "muon": lambda: torch.optim.Muon(tensors, 1e-3),
    }
    return makers[kind]().step


def open_tail(name, way, *sizes):
    if name in ONE:
        return one_pass(way, ONE[name], MATRIX)
    if name in TWO:
        return one_pass(way, TWO[name], MATRIX, MATRIX)
    if name in OTHERS:
        return one_pass(way, *OTHERS[name])
    if name in IN_F64:
        return one_pass(way, *IN_F64[name], dtype=torch.float64)
    if name in MADE:
        return MADE[name]
    if name == "bmm":
        return one_pass(way, torch.matmul, *[(*sizes, sizes[1])] * 2)
    if name == "matmul_f64":
        return one_pass(way, torch.matmul, *[sizes * 2] * 2, dtype=torch.float64)
    if name == "add_assign":
        x, y = numbers(1, *MATRIX), numbers(2, *MATRIX) * 1e-3
        return lambda: x.add_(y)
    if name == "from_vec":
        x = numbers(1, *MATRIX)
        return lambda: x.clone()
    if name == "many_leaves":
        tensors = parameters(1000, 16, 16)
        return lambda: torch.autograd.grad(sum_of_squares(tensors), tensors)
    if name == "optimizer":
        return optimizer(*sizes)
    if name == "hessian_vector":
        return hessian_vector()
    layers = {"attention": attention, "grouped_queries": grouped_queries, "encoder": encoder}
    return layers[name](way, *sizes) if name in layers else selected(way, name)
