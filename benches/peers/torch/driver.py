"""PyTorch: executes the requests of benches/compare; see ../../compare/protocol.rs.

usage: driver.py eager|fused|compile|numpy [--precision f32|bf16x6|bf16x3|bf16] [--mkl-as-intel LIBRARY]

`fused` uses AdamW(fused=True) in training steps, `compile` compiles the model, and `numpy` multiplies matrices by
NumPy, whose packages contain OpenBLAS. --precision sets the
matrix multiplication precision. LIBRARY (mkl_as_intel.c) makes MKL take its AVX-512 path on CPUs that
are not Intel's. OMP_NUM_THREADS sets the number of threads.
"""

import ctypes
import json
import os
import statistics
import sys
import time

AS_INTEL = "--mkl-as-intel" in sys.argv
if AS_INTEL:  # before MKL is loaded
    ctypes.CDLL(sys.argv[sys.argv.index("--mkl-as-intel") + 1], mode=ctypes.RTLD_GLOBAL)

import torch
import torch.nn.functional as F

from data import Text, digest, integers, numbers, one_pass
from derivatives import derivative
from gpt import CONFIGS, VOCAB, Gpt, adamw
from mixers import recurrence, score
from tail import mlp, open_tail

KIND = sys.argv[1]
if KIND == "numpy":
    import numpy as np
PRECISION = [*sys.argv, "f32"][3] if "--precision" in sys.argv else "f32"
THREADS = int(os.environ.get("OMP_NUM_THREADS", os.cpu_count()))


def gemm(form, *sizes):
    m, k, n = sizes[-3:]
    batch = sizes[:-3]

    def operand(seed, rows, cols, transposed):
        if transposed:
            return numbers(seed, *batch, cols, rows).transpose(-1, -2)
        return numbers(seed, *batch, rows, cols)

    a, b = operand(1, m, k, form[0] == "t"), operand(2, k, n, form[1] == "t")
    out = torch.empty(*batch, m, n)
    if KIND == "numpy":
        x, y, z = a.numpy(), b.numpy(), out.numpy()
        return lambda: np.matmul(x, y, out=z) is z and out
    return lambda: torch.matmul(a, b, out=out)


def attention(way, b, h, t, d, mask, dropout):
    keep = None
    if mask.startswith("window"):
        behind = torch.arange(t)[:, None] - torch.arange(t)
        keep = (behind >= 0) & (behind < int(mask[6:]))

    def attend(q, k, v):
        return F.scaled_dot_product_attention(q, k, v, keep, dropout, mask == "causal")

    return one_pass(way, attend, *[(b, h, t, d)] * 3)


def cross_entropy(rows, classes):
    x = numbers(1, rows, classes).requires_grad_()
    y = integers(2, rows, classes)
    return lambda: torch.autograd.grad(F.cross_entropy(x, y), x)


def head_loss(rows, width, classes):
    x = numbers(1, rows, width).requires_grad_()
    w = (numbers(2, classes, width) * 0.02).requires_grad_()
    y = integers(2, rows, classes)
    return lambda: torch.autograd.grad(F.cross_entropy(F.linear(x, w), y), (x, w))


def embedding(way, entries, width, indices):
    ids = integers(2, indices, entries)
    return one_pass(way, lambda w: F.embedding(ids, w), (entries, width))


def chain(x, w):
    for _ in range(1000):
        x = x + w
    return x


def tiny(name, way):
    f, *shapes = {
        "add": (torch.add, (16,), (16,)),
        "chain": (chain, (16,), (16,)),
        "mlp": (mlp, (1, 10), (24, 10), (24,), (24, 24), (24,), (10, 24), (10,)),
    }[name]
    if way == "fwd+bwd":
        return one_pass(way, f, *shapes)
    inputs = [numbers(i + 1, *s).requires_grad_() for i, s in enumerate(shapes)]
    return lambda: f(*inputs)


def with_gradients(model):
    """A model and its optimiser, after a backward pass."""
    model = Gpt(**CONFIGS[model])
    model(*Text(VOCAB).batch(1, model.context)).backward()
    return model, adamw(model, fused=True)


def optimizer_step(model):
    model, optimizer = with_gradients(model)

    def step():
        optimizer.step()
        return model.wte.weight

    return step


def grad_norm(model):
    model, _ = with_gradients(model)
    grads = [p.grad for p in model.parameters()]
    return lambda: torch.nn.utils.get_total_norm(grads).item()


def train(name, batch, dropout):
    model = Gpt(**CONFIGS[name], dropout=dropout)
    optimizer = adamw(model, fused=KIND == "fused")
    run = torch.compile(model) if KIND == "compile" else model
    text, context = Text(VOCAB), model.context

    def step():
        loss = run(*text.batch(batch, context))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.item()

    return step


def generate(name, batch, prompt, count):
    model = Gpt(**CONFIGS[name]).eval()
    tokens = integers(2, batch * prompt, VOCAB).view(batch, prompt)
    return lambda: model.generate(tokens, count)


ROWS = {
    "softmax": lambda x: F.softmax(x, -1),
    "log_softmax": lambda x: F.log_softmax(x, -1),
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "exp": torch.exp,
}
NORMS = {
    "layer_norm": lambda x, w: F.layer_norm(x, w.shape, w),
    "rms_norm": lambda x, w: F.rms_norm(x, w.shape, w, 1e-5),
}


def open_work(op, *words):
    words = [int(w) if w.isdigit() else w for w in words]
    if op in ("gemm", "bmm"):
        return gemm(*words)
    if op == "tail":
        return open_tail(*words)
    if op in ROWS:
        return one_pass(words[0], ROWS[op], tuple(words[1:]))
    if op in NORMS:
        return one_pass(words[0], NORMS[op], tuple(words[1:]), (words[2],))
    if op == "linear_gelu":
        way, rows, inputs, outputs = words
        shapes = (rows, inputs), (outputs, inputs), (outputs,)
        return one_pass(way, lambda x, w, b: F.gelu(F.linear(x, w, b)), *shapes)
    if op in ("attention", "train"):
        *words, dropout = words
        return {"attention": attention, "train": train}[op](*words, float(dropout))
    if op in ("cross_entropy", "head_loss"):
        return {"cross_entropy": cross_entropy, "head_loss": head_loss}[op](*words[1:])
    others = {"embedding": embedding, "tiny": tiny, "adamw": optimizer_step, "grad_norm": grad_norm}
    others |= {"generate": generate, "derivative": derivative, "recurrence": recurrence, "score": score}
    return others[op](*words) if op in others else None


def run(f, seconds):
    """The equivalent of `run` in protocol.rs."""
    start, samples, calls, at_once = time.perf_counter(), [], 0, 1
    while not samples or time.perf_counter() - start < seconds:
        before = time.perf_counter()
        for _ in range(at_once):
            f()
        took = time.perf_counter() - before
        calls += at_once
        if took < 20e-6 and seconds > 0:
            at_once *= 2
        else:
            samples.append(took / at_once)
    return f"{statistics.median(samples):e} {calls}"


def check(f, calls):
    """The equivalent of `check` in protocol.rs."""
    found = []
    for _ in range(calls):
        result = f()
        if isinstance(result, float):
            found.append(result)
        else:
            tensors = result if isinstance(result, tuple) else [result]
            found += [x for x in tensors if isinstance(x, torch.Tensor) for x in digest(x)]
    return " ".join(map("{:e}".format, found))


def about():
    cpu = torch.backends.cpu.get_cpu_capability()
    mkl = ", MKL as on Intel's" if AS_INTEL else ""
    version = f"PyTorch {torch.__version__}, {cpu}{mkl}, {KIND}, {PRECISION}"
    if KIND == "numpy":
        version = f"NumPy {np.__version__}, {np.show_config('dicts')['Build Dependencies']['blas']['name']}"
    return json.dumps({"version": version})


def main():
    torch.set_num_threads(THREADS)
    named = {"f32": "highest", "bf16x6": "highest", "bf16x3": "high", "bf16": "medium"}
    torch.set_float32_matmul_precision(named[PRECISION])
    torch.manual_seed(1)
    work = None
    for line in sys.stdin:
        word, *rest = line.split()
        if word == "about":
            answer = about()
        elif word == "open":
            work = None
            work = open_work(*rest)
            answer = "ok 0 0" if work else "unknown"
        elif word == "check":
            answer = check(work, int(rest[0]))
        elif word == "run":
            answer = run(work, float(rest[0]))
        elif word == "close":
            work, answer = None, "ok"
        else:
            raise ValueError(line)
        print(answer, flush=True)


main()
