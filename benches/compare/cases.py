"""The cases, the libraries that each is compared with, and the target ratio."""

from dataclasses import dataclass

from programs import ROOT


@dataclass(frozen=True)
class Rival:
    """A library that a case is compared with."""

    name: str  # the name in the table
    program: str  # a key of programs.PROGRAMS
    rename: tuple = ("", "")  # replaced in the case name, if the program names its work differently
    tolerance: float = 1e-3  # the largest relative difference of results


@dataclass(frozen=True)
class Case:
    group: str
    name: str  # of the work, see benches/tasks
    rivals: tuple  # the ratio is that of the fastest
    aim: float | None = None
    each: bool = True  # whether the target is for the case; else for the mean of its group
    memory: bool = False  # whether to compare peak memory as well
    slow: bool = False  # calls of seconds: one call per turn, fewer turns

    @property
    def losses(self):
        """Whether the results are losses of training steps, not digests of tensors."""
        return self.name.startswith("train ")

    @property
    def checked(self):
        """Whether results must agree: not with random dropout, a different mask, or a context that is
        shortened in another way."""
        if self.name.startswith("generate"):
            return self.name.split()[3] == "1"
        if self.group == "tail":
            return True
        last = self.name.split()[-1]
        random = self.name.startswith(("attention", "train")) and float(last) > 0
        return not random and self.group != "window attention"

    @property
    def calls(self):
        """The number of calls that are checked."""
        return 1 if not self.losses else 2 if self.slow else 10

    def named(self, start, groups):
        """Whether `start` is its group or, if there is no such group, a prefix of its group or name."""
        if start in groups:
            return self.group == start
        return self.group.startswith(start) or self.name.startswith(start)


TORCH = Rival("PyTorch", "torch")
TORCH_FUSED = Rival("PyTorch, fused AdamW", "torch-fused")
TORCH_COMPILE = Rival("torch.compile", "torch-compile")
OPENBLAS = Rival("OpenBLAS", "openblas")
# burn clips gradients per tensor, candle not at all.
RUST = tuple(
    Rival(name, program, tolerance=0.02)
    for name, program in (
        ("candle", "candle"),
        ("candle, AVX-512", "candle-best"),
        ("burn", "burn"),
        ("burn, AVX-512", "burn-best"),
    )
)
CRATES = tuple(
    Rival(name, "ours", ("gemm ", f"gemm@{name} "))
    for name in ("matrixmultiply", "gemm-avx2", "gemm-avx512", "gemmkit")
)


def layers(tokens, sizes):
    """The GEMMs of linear layers: forward, gradient of the input, gradient of the weight."""
    for i, o in sizes:
        yield f"gemm nt {tokens} {i} {o}"
        yield f"gemm nn {tokens} {o} {i}"
        yield f"gemm tn {o} {tokens} {i}"


def products():
    yield from (f"gemm nn {n} {n} {n}" for n in (32, 48, 64, 96, 128, 192, 256, 384, 512, 768))
    yield from (f"gemm nn {n} {n} {n}" for n in (1024, 2048))
    yield from layers(768, [(128, 384), (128, 128), (128, 512), (512, 128), (128, 65)])
    yield from layers(16384, [(384, 1152), (384, 384), (384, 1536), (1536, 384), (384, 65)])
    yield from ("gemm nt 1 4096 4096", "gemm nt 8 4096 4096", "gemm tn 128 16384 128")
    yield from ("gemm nt 1 1536 384", "gemm nt 4 1536 384")
    yield from ("bmm nt 48 64 32 64", "bmm nn 48 64 64 32")
    yield from ("bmm nt 384 256 64 256", "bmm nn 384 256 256 64")


def tail():
    """The cases of the long tail: a name and a pass of each row of the table."""
    for line in (ROOT / "benches" / "tasks" / "tail.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            name, passes = line.split()[:2]
            yield from (f"tail {name} {way}" for p, way in (("f", "fwd"), ("b", "fwd+bwd")) if p in passes)


def cases():
    for name in products():
        yield Case("gemm", name, (TORCH, OPENBLAS), 1.0, each=False)
    for name in products():
        if name.startswith("gemm "):
            yield Case("Rust gemm", name, CRATES, 1.4, each=False)
    for name in ("softmax", "layer_norm", "cross_entropy"):
        yield Case("rows", f"{name} fwd+bwd 16384 65", (TORCH,), 1.3)
    yield Case("rows", "layer_norm fwd+bwd 16384 384", (TORCH,))
    yield Case("rows", "rms_norm fwd+bwd 16384 384", (TORCH,))
    yield Case("rows", "softmax fwd+bwd 16384 256", (TORCH,))
    yield Case("rows", "cross_entropy fwd+bwd 1024 50257", (TORCH,))
    yield Case("rows", "embedding fwd+bwd 65 384 16384", (TORCH,))
    yield Case("gelu", "gelu fwd+bwd 16384 1536", (TORCH,), 2.0)
    yield Case("gelu", "linear_gelu fwd+bwd 768 128 512", (TORCH,), 2.0)
    yield Case("gelu", "linear_gelu fwd+bwd 16384 384 1536", (TORCH,), 2.0)
    for width in (128, 384):
        name = f"head_loss fwd+bwd 4096 {width} 50257"
        yield Case("head", name, (TORCH,), 3.0, memory=True, slow=True)
    for sizes in ("12 4 64 32", "64 6 256 64"):
        for dropout, aim in (("0", 1.5), ("0.2", 2.5)):
            name = f"attention fwd+bwd {sizes} causal {dropout}"
            yield Case("attention", name, (TORCH,), aim)
    window = "attention fwd+bwd 1 12 4096 64 window256 0"
    wider = (Rival(f"ours, {mask}", "ours", ("window256", mask)) for mask in ("full", "causal"))
    yield Case("window attention", window, tuple(wider), 5.0)
    composed = Rival("ours, composed", "ours", ("tiled", "composed"))
    for length, aim in ((1024, 2.0), (64, 1.0)):
        for rule in ("none", "softcap", "buckets", "slopes", "temperature", "forget", "gaussian", "shaw", "transformer-xl", "cope"):
            name = f"score fwd+bwd {rule} 1 4 {length} 64 tiled"
            yield Case("score rules", name, (composed,), aim, memory=length == 1024)
    for rule in ("softcap", "slopes", "temperature", "forget"):
        yield Case("FlexAttention", f"score fwd {rule} 1 4 1024 64 tiled", (TORCH_COMPILE,))
    others = (Rival(f"ours, {form}", "ours", ("kernel", form)) for form in ("weights", "steps"))
    loop = Rival("PyTorch, a loop", "torch", ("kernel", "steps"))
    rivals = (*others, Rival("PyTorch, chunked", "torch"), loop)
    yield Case("state rules", "recurrence fwd+bwd 1 4 1024 64 delta kernel", rivals, 2.0, memory=True)
    for model, aim in (("nanogpt-cpu", None), ("baby", 1.0)):
        yield Case("optimiser", f"adamw {model}", (TORCH,), aim)
        yield Case("optimiser", f"grad_norm {model}", (TORCH,))
    steps = (TORCH, TORCH_FUSED, TORCH_COMPILE)
    yield Case("training", "train nanogpt-cpu 12 0", steps, 1.8)
    yield Case("training", "train nanogpt-cpu 12 0.2", steps)
    yield Case("training", "train baby 64 0", (TORCH,), 1.35, slow=True)
    yield Case("training", "train baby 64 0.2", (TORCH,), 1.8, slow=True)
    for sizes in ("baby 1 1 255", "baby 32 1 63", "baby 1 256 32", "nanogpt-cpu 1 64 128"):
        yield Case("generation", f"generate {sizes}", (TORCH,), slow=True)
    yield Case("Rust training", "train nanogpt-cpu 12 0", RUST, 5.0)
    yield Case("Rust training", "train baby 8 0", RUST, 4.0, slow=True)
    yield Case("Rust libraries", "gemm nt 768 128 512", RUST)
    yield Case("Rust libraries", "softmax fwd+bwd 16384 65", RUST)
    yield Case("Rust libraries", "layer_norm fwd+bwd 16384 384", RUST)
    yield Case("Rust libraries", "cross_entropy fwd+bwd 16384 65", RUST)
    yield Case("Rust libraries", "gelu fwd+bwd 768 512", RUST)
    yield Case("Rust libraries", "attention fwd+bwd 12 4 64 32 causal 0", RUST)
    yield Case("dispatch", "tiny add fwd", (TORCH,), 3.0)
    for name in ("chain fwd", "chain fwd+bwd", "mlp fwd", "mlp fwd+bwd"):
        yield Case("dispatch", f"tiny {name}", (TORCH,))
    for what in ("forward", "gradient", "jvp", "hvp", "per-sample-norms"):
        yield Case("derivatives", f"derivative nanogpt-cpu 12 {what}", (TORCH,))
    for name in tail():
        yield Case("tail", name, (TORCH,), 1.8, each=False)
