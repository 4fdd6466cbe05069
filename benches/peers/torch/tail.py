"""The long tail: the cases of ../../tasks/tail.txt."""

import re
from pathlib import Path

import torch
import torch.nn.functional as F

from data import integers, numbers, one_pass

TABLE = Path(__file__).resolve().parents[2] / "tasks" / "tail.txt"
attend = F.scaled_dot_product_attention


def mlp(x, *layers):
    for i in range(0, len(layers), 2):
        x = F.linear(x if i == 0 else F.relu(x), layers[i], layers[i + 1])
    return x


def rnn(x, w, u):
    inputs, weight = (x @ w) * 0.05, u * 0.05
    h = inputs[:, 0].tanh()
    for t in range(1, 64):
        h = (inputs[:, t] + h @ weight).tanh()
    return h


def encoder(way, shape):
    options = dict(dropout=0.0, norm_first=True, batch_first=True)
    layer = torch.nn.TransformerEncoderLayer(256, 4, 1024, **options)
    if way == "fwd":
        return one_pass(way, layer.eval(), shape)
    x, g = numbers(1, *shape).requires_grad_(), numbers(50, *shape)
    return lambda: torch.autograd.grad(layer(x), [x, *layer.parameters()], g)


def hessian_vector(*shapes):
    x, w1, w2, direction = (numbers(i + 1, *shape) for i, shape in enumerate(shapes))
    w1, w2 = ((w * 0.1).requires_grad_() for w in (w1, w2))

    def product():
        loss = ((x @ w1).tanh() @ w2).square().mean()
        (g,) = torch.autograd.grad(loss, w1, create_graph=True)
        return torch.autograd.grad((g * direction).sum(), w1)

    return product


def parameters(name, count, *shape):
    """An operation on parameters of equal size."""
    tensors = [torch.nn.Parameter(numbers(i % 40 + 1, *shape)) for i in range(count)]

    def sum_of_squares():
        return sum((x.square().sum() for x in tensors), torch.zeros(()))

    sum_of_squares().backward()
    match name.split(".")[0]:
        case "adamw":
            return torch.optim.AdamW(tensors, 1e-3, fused=True).step
        case "sgd":
            return torch.optim.SGD(tensors, 1e-6, momentum=0.9, fused=True).step
        case "muon":
            return torch.optim.Muon(tensors, 1e-3).step
        case "many_leaves":
            return lambda: torch.autograd.grad(sum_of_squares(), tensors)
        case "gradient_norm":
            gradients = [x.grad for x in tensors]
            return lambda: torch.nn.utils.get_total_norm(gradients).item()
        case "clip":
            return lambda: torch.nn.utils.clip_grad_norm_(tensors, 1.0)


def add_assign(*shapes):
    x, y = (numbers(i + 1, *shape) for i, shape in enumerate(shapes))
    y *= 1e-3
    return lambda: x.add_(y)


def shape_of(text):
    return tuple(map(int, text.split("x")))


def constant(kind, shape):
    """An operand without a gradient."""
    shape = shape_of(shape)
    if kind == "=":
        return numbers(6, *shape)
    if kind == "bool":
        return numbers(8, *shape) > 0
    return integers(2, torch.Size(shape).numel(), int(kind[1:])).view(shape)


def open_tail(name, way):
    rows = (re.split(r"\s{2,}", line.strip()) for line in TABLE.read_text().splitlines())
    row = next((row for row in rows if row[0] == name), None)
    if row is None:
        return None
    _, passes, operands, expression = row
    operands = [] if operands == "-" else operands.split(" ")
    shapes = [shape_of(x) for x in operands if ":" not in x]
    own = {
        "add_assign": lambda: add_assign(*shapes),
        "encoder": lambda: encoder(way, *shapes),
        "hessian_vector": lambda: hessian_vector(*shapes),
        "parameters": lambda: parameters(name, *shapes[0]),
    }
    if expression in own:
        return own[expression]()
    # Operands with gradients are first.
    constants = [constant(*x.split(":")) for x in operands if ":" in x]
    function = eval(f"lambda {', '.join('xyzwabc'[: len(operands)])}: {expression}")
    dtype = torch.float64 if "64" in passes else torch.float32
    return one_pass(way, lambda *x: function(*x, *constants), *shapes, dtype=dtype)
