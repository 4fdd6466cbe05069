"""Products with derivatives of a language model's loss, by torch.func and by two backward passes."""

import torch
from torch.func import functional_call, grad, jvp, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel

from data import Text, numbers
from gpt import CONFIGS, VOCAB, Gpt


def norm(tensors):
    return torch.nn.utils.get_total_norm(tensors).item()


def derivative(name, batch, what):
    """Fused attention on a CPU has neither second derivatives nor tangents: these take the composed one."""
    model = Gpt(**CONFIGS[name]).eval()
    tokens, targets = Text(VOCAB).batch(batch, model.context)
    weights = dict(model.named_parameters())
    w = {name: p.detach() for name, p in weights.items()}
    v = {name: numbers(i + 1, *p.shape) for i, (name, p) in enumerate(w.items())}

    def loss(w, tokens=tokens, targets=targets):
        return functional_call(model, w, (tokens, targets))

    def gradient(create_graph=False):
        return torch.autograd.grad(model(tokens, targets), weights.values(), create_graph=create_graph)

    def hvp():
        return norm(torch.autograd.grad(gradient(create_graph=True), weights.values(), v.values()))

    def per_sample():
        each = vmap(grad(lambda w, x, y: loss(w, x[None], y[None])), (None, 0, 0))(w, tokens, targets)
        squares = torch.stack([g.square().flatten(1).sum(1) for g in each.values()]).sum(0)
        return squares.sqrt().norm().item()

    passes = {
        "forward": torch.no_grad()(lambda: model(tokens, targets).item()),
        "gradient": lambda: norm(gradient()),
        "jvp": torch.no_grad()(lambda: jvp(loss, (w,), (v,))[1].item()),
        "hvp": hvp,
        "per-sample-norms": per_sample,
    }
    if what in ("jvp", "hvp"):
        return sdpa_kernel(SDPBackend.MATH)(passes[what])
    return passes[what]
