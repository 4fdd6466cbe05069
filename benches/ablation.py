"""The parts of the preset fast: each left out, and each alone, at equal training time.

usage: ablation.py TEXT [--seconds S] [--seeds N] [--threads N]

TEXT is the training text, such as tinyshakespeare. Build the program first:
cargo build --release -p retrograd-train. A configuration is first run for 40 steps; the median time of
a step gives the number of steps for the training time, by default that of the preset. Prints a Markdown
table with the mean held-out loss of the seeds, and its range.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "compare"))
import conditions  # noqa: E402
from load import warn_if_busy  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROGRAM = ROOT / "target/release/retrograd"
# Each part: its flags in fast, and those of nanoGPT's recipe.
PARTS = {
    "Muon": ("--optimizer muon --lr 0.02", "--optimizer adamw --lr 4e-3"),
    "decay to 0 (WSD)": ("--schedule wsd", "--schedule cosine"),
    "RMS norm": ("--norm rms-norm", "--norm layer-norm"),
    "rotary positions": ("--positions rope", "--positions learned"),
    "QK-norm": ("--qk-norm true", "--qk-norm false"),
    "ReLU": ("--mlp relu", "--mlp gelu"),
    "grouped queries": ("--attention grouped-query", "--attention causal"),
    "2 heads": ("--heads 2", "--heads 4"),
    "3 layers": ("--layers 3", "--layers 4"),
    "batch 16": ("--batch 16", "--batch 12"),
}


def flags(chosen):
    """The flags of a configuration with the chosen parts of fast."""
    sides = [fast if name in chosen else plain for name, (fast, plain) in PARTS.items()]
    return " ".join(sides).split()


def run(args, chosen, steps, seed):
    """The held-out loss, and the times of the steps in milliseconds."""
    with tempfile.TemporaryDirectory() as folder:
        command = [PROGRAM, "train", "--data", args.text, "--preset", "nanogpt-cpu", *flags(chosen)]
        command += ["--steps", str(steps), "--seed", str(seed), "--threads", str(args.threads)]
        command += ["--eval-every", "1000000", "--quiet", "--out", folder + "/run"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        lines = [json.loads(line) for line in open(folder + "/run/log.jsonl")]
    return lines[-1]["val_loss"], [line["ms"] for line in lines if "ms" in line]


def measure(args, name, chosen):
    _, times = run(args, chosen, 40, 1)
    ms = statistics.median(times[3:])
    steps = round(1e3 * args.seconds / ms)
    losses = [run(args, chosen, steps, seed)[0] for seed in range(1, args.seeds + 1)]
    mean = statistics.mean(losses)
    print(f"| {name} | {ms:.1f} | {steps} | {mean:.3f} | {min(losses):.3f} to {max(losses):.3f} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("text")
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    print(f"{conditions.now()}, {conditions.cpu()}, {args.threads} threads, load average {conditions.load_average():.2f}\n")
    warn_if_busy()
    print("| configuration | ms a step | steps | loss, mean | range |\n|---|---:|---:|---:|---|")
    every = set(PARTS)
    measure(args, "fast", every)
    for part in PARTS:
        measure(args, f"fast without {part}", every - {part})
    measure(args, "nanoGPT's recipe, learning rate 4e-3", set())
    for part in PARTS:
        measure(args, f"nanoGPT's recipe with {part}", {part})


main()
