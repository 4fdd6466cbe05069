"""The language model in PyTorch, equal to nanoGPT's: tied head, no biases, exact GELU, fused
attention, weight decay of matrices only."""

import torch
from torch import nn
from torch.nn import functional as F

from data import matrix

VOCAB = 65
CONFIGS = {
    "nanogpt-cpu": dict(layers=4, heads=4, width=128, context=64),
    "baby": dict(layers=6, heads=6, width=384, context=256),
}


class Block(nn.Module):
    def __init__(self, width, heads, dropout):
        super().__init__()
        self.heads, self.p = heads, dropout
        self.ln_1 = nn.LayerNorm(width, bias=False)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.proj = nn.Linear(width, width, bias=False)
        self.ln_2 = nn.LayerNorm(width, bias=False)
        self.fc = nn.Linear(width, 4 * width, bias=False)
        self.fc_proj = nn.Linear(4 * width, width, bias=False)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        b, t, width = x.shape
        parts = self.qkv(self.ln_1(x)).split(width, dim=2)
        q, k, v = (z.view(b, t, self.heads, -1).transpose(1, 2) for z in parts)
        p = self.p if self.training else 0.0
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=p, is_causal=True)
        y = y.transpose(1, 2).contiguous().view(b, t, width)
        x = x + self.dropout(self.proj(y))
        return x + self.dropout(self.fc_proj(F.gelu(self.fc(self.ln_2(x)))))


class Gpt(nn.Module):
    def __init__(self, layers, heads, width, context, dropout=0.0):
        super().__init__()
        self.context = context
        self.wte = nn.Embedding(VOCAB, width)
        self.wpe = nn.Embedding(context, width)
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.Sequential(*(Block(width, heads, dropout) for _ in range(layers)))
        self.ln_f = nn.LayerNorm(width, bias=False)
        matrices = ((name, p) for name, p in self.named_parameters() if p.dim() == 2)
        for i, (name, p) in enumerate(matrices):
            residual_of = layers if name.endswith("proj.weight") else None
            p.data = matrix(i, p.shape, residual_of)

    def hidden(self, tokens):
        x = self.dropout(self.wte(tokens) + self.wpe.weight[: tokens.size(1)])
        return self.ln_f(self.blocks(x))

    def forward(self, tokens, targets):
        logits = F.linear(self.hidden(tokens), self.wte.weight)
        return F.cross_entropy(logits.view(-1, VOCAB), targets.view(-1))

    @torch.no_grad()
    def generate(self, tokens, count):
        """As nanoGPT: every token is computed from the last `context` tokens, without a cache; greedy."""
        for _ in range(count):
            x = self.hidden(tokens[:, -self.context :])
            logits = F.linear(x[:, -1], self.wte.weight)
            tokens = torch.cat([tokens, logits.argmax(-1, keepdim=True)], 1)
        return tokens[:, -count:]


def adamw(model, fused):
    groups = [
        dict(params=[p for p in model.parameters() if p.dim() >= 2], weight_decay=0.1),
        dict(params=[p for p in model.parameters() if p.dim() < 2], weight_decay=0.0),
    ]
    return torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.99), fused=fused)
