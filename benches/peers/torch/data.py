"""Operands, equal in all programs; see ../../compare/data.rs."""

import math

import torch

MASK = 0xFFFFFFFF
CHUNK = 1 << 22  # numbers computed at once, which limits the memory of the 64-bit integers


def bits(seed, first, n):
    x = torch.arange(first, first + n, dtype=torch.int64)
    x = (x * 0x9E3779B1 + seed * 0x85EBCA6B) & MASK
    x = ((x ^ (x >> 16)) * 0x7FEB352D) & MASK
    x = ((x ^ (x >> 15)) * 0x846CA68B) & MASK
    return x ^ (x >> 16)


def chunks(n):
    return ((first, min(CHUNK, n - first)) for first in range(0, n, CHUNK))


def exact(seed, first, n):
    return (bits(seed, first, n).double() / 2**31 - 1) * math.sqrt(3)


def numbers(seed, *shape):
    out = torch.empty(math.prod(shape))
    for first, n in chunks(out.numel()):
        out[first : first + n] = exact(seed, first, n).float()
    return out.view(shape)


def integers(seed, n, end):
    return bits(seed, 0, n) % end


def one_pass(way, f, *shapes, dtype=torch.float32):
    """A forward pass of f on constants, or a forward and backward pass from a given cotangent."""
    x = [numbers(i + 1, *s).to(dtype) for i, s in enumerate(shapes)]
    if way == "fwd":
        return torch.no_grad()(lambda: f(*x))
    x = [x.requires_grad_() for x in x]
    g = numbers(50, *f(*x).shape).to(dtype)
    return lambda: torch.autograd.grad(f(*x), x, g)


def digest(x):
    x, square, product = x.detach().reshape(-1), 0.0, 0.0
    for first, n in chunks(x.numel()):
        part = x[first : first + n].double()
        square += part.square().sum().item()
        product += part.dot(exact(9, first, n)).item()
    n = max(x.numel(), 1)
    return [math.sqrt(square / n), product / math.sqrt(n)]


def matrix(i, shape, residual_of=None):
    std = 0.02 / (math.sqrt(2.0 * residual_of) if residual_of else 1.0)
    n = math.prod(shape)
    return (exact(100 + i, 0, n) * std).float().view(shape)


class Text:
    def __init__(self, vocab):
        token, tokens = 0, []
        for noise in integers(3, 1_000_000, 4).tolist():
            token = (7 * token + noise) % vocab
            tokens.append(token)
        self.tokens, self.batches = torch.tensor(tokens), 0

    def batch(self, batch, context):
        self.batches += 1
        starts = integers(1000 + self.batches, batch, len(self.tokens) - context - 1).tolist()
        return (
            torch.stack([self.tokens[s + shift : s + shift + context] for s in starts])
            for shift in (0, 1)
        )
