"""Attention with rules of scores, and recurrences with a state: the work of benches/tasks/{score_rules,recurrence}.rs."""

import torch
import torch.nn.functional as F

from data import one_pass

CHUNK = 64


def steps(q, k, v, decay):
    """The gated delta rule token by token."""
    state = torch.zeros(*k.shape[:2], k.shape[-1], v.shape[-1])
    out = []
    for t in range(k.shape[2]):
        key = k[:, :, t, :, None]
        state = state * decay[:, :, t, :, None]
        state = state + key * (v[:, :, t, None, :] - key.transpose(-1, -2) @ state)
        out.append(q[:, :, t, None, :] @ state)
    return torch.cat(out, 2)


def chunked(q, k, v, decay):
    """The same by products of matrices over chunks, and a triangular system for what is written in each (Yang et al.
    2024, arXiv 2412.06464)."""
    b, h, t, d = k.shape
    q, k, v, decay = (x.reshape(b, h, t // CHUNK, CHUNK, -1) for x in (q, k, v, decay))
    logs = decay.log().cumsum(-2)
    ratios = (logs - logs.transpose(-1, -2)).exp()
    lower = (k @ k.transpose(-1, -2) * ratios).tril(-1)
    eye = torch.eye(CHUNK)
    solved = torch.linalg.solve_triangular(lower + eye, torch.cat([v, k * logs.exp()], -1), upper=False)
    written, minus = solved.split([v.shape[-1], d], -1)
    weights = (q @ k.transpose(-1, -2) * ratios).tril()
    q, last = q * logs.exp(), logs[..., -1:, :]
    k = (k * (last - logs).exp()).transpose(-1, -2)
    state, out = torch.zeros(b, h, d, v.shape[-1]), []
    for c in range(t // CHUNK):
        u = written[:, :, c] - minus[:, :, c] @ state
        out.append(q[:, :, c] @ state + weights[:, :, c] @ u)
        state = state * last[:, :, c].exp() + k[:, :, c] @ u
    return torch.cat(out, 2)


def recurrence(way, b, h, t, d, rule, form):
    run = {"kernel": chunked, "steps": steps}.get(form)
    if rule != "delta" or run is None:
        return None

    def delta(q, k, v, decay):
        return run(q, F.rms_norm(k, (d,), eps=1e-6) / d**0.5, v, decay.sigmoid())

    return one_pass(way, delta, *[(b, h, t, d)] * 3, (b, h, t, 1))


def score(way, rule, b, h, t, d, path):
    """FlexAttention, whose backward pass does not run on a CPU."""
    if way != "fwd" or path != "tiled":
        return None
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    mask = create_block_mask(lambda b, h, i, j: i >= j, None, None, t, t, device="cpu")
    compiled = torch.compile(flex_attention)

    def attend(q, k, v, *x):
        if rule == "slopes":
            modified = lambda s, b, h, i, j: s - x[0][h] * (i - j).abs()
        elif rule == "temperature":
            modified = lambda s, b, h, i, j: s * x[0][h]
        elif rule == "softcap":
            modified = lambda s, b, h, i, j: 30 * torch.tanh(s / 30)
        else:
            sums = F.logsigmoid(x[0]).cumsum(-1)
            modified = lambda s, b, h, i, j: s + sums[b, h, i] - sums[b, h, j]
        return compiled(q, k, v, score_mod=modified, block_mask=mask)

    shapes = {"slopes": [(h,)], "temperature": [(h,)], "softcap": [], "forget": [(b, h, t)]}
    if rule not in shapes:
        return None
    return one_pass(way, attend, *[(b, h, t, d)] * 3, *shapes[rule])
