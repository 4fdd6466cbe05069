"""Draws docs/loss.svg and docs/attention.svg from a run of retrograd, and docs/arena.svg from docs/ARENA.md.

usage: pictures.py FOLDER [TABLE], after cargo run --release -- train --quiet --out FOLDER
TABLE is a file with another table of the arena.
"""

import base64
import json
import pathlib
import sys

DOCS = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(DOCS.parent / "benches" / "compare"))
from picture import FAINT, INK, MUTED, box, circle, legend, line, svg, tall_text, text  # noqa: E402

TRAIN, PALE, HELD_OUT = "#2670b0", "#b6cee2", "#d66020"
BLUES = [(255, 255, 255), (178, 216, 232), (70, 150, 200), (28, 84, 150), (12, 28, 66)]


def entries(path):
    return [json.loads(entry) for entry in open(path)]


def shade(part):
    """From white through blue to almost black."""
    i = min(int(part * (len(BLUES) - 1)), len(BLUES) - 2)
    rest = part * (len(BLUES) - 1) - i
    return "#" + "".join(f"{round(a + rest * (b - a)):02x}" for a, b in zip(BLUES[i], BLUES[i + 1]))


def loss(run):
    """The loss of each step, its centred mean, and the loss on held-out text."""
    log = entries(run / "log.jsonl")
    steps = [(e["step"], e["loss"]) for e in log if "ms" in e]
    held_out = [(e["step"], e["val_loss"]) for e in log if "val_loss" in e and "step" in e]
    reach = max(len(steps) // 60, 2)

    def mean(i):
        near = min(reach, i, len(steps) - 1 - i)
        return sum(loss for _, loss in steps[i - near : i + near + 1]) / (2 * near + 1)

    left, top, width, height = 60, 84, 860, 400
    every = [loss for _, loss in steps + held_out]
    low, high, end = max(min(every) - 0.2, 0), max(every) + 0.2, steps[-1][0]

    def at(step, loss):
        return left + width * step / end, top + height * (high - loss) / (high - low)

    def path(points, color, size):
        places = " ".join("{:.1f},{:.1f}".format(*at(*point)) for point in points)
        return f'<polyline points="{places}" fill="none" stroke="{color}" stroke-width="{size}"/>'

    parts = [text(28, 36, "Training and held-out loss", 18)]
    parts.append(text(28, 58, f"Nats per token; at the end {held_out[-1][1]:.3f} on the held-out windows.", 12, MUTED))
    for y in range(int(low) + 1, int(high) + 1):
        parts.append(line(*at(0, y), *at(end, y), FAINT))
        parts.append(text(left - 8, at(0, y)[1] + 4, f"{y}", 11, MUTED, "end"))
    for step in range(0, end + 1, max(end // 10, 1)):
        parts.append(text(at(step, 0)[0], top + height + 18, f"{step}", 11, MUTED, "middle"))
    parts.append(text(left + width / 2, top + height + 40, "step", 12, INK, "middle"))
    parts.append(tall_text(20, top + height / 2, "loss"))
    parts.append(path(steps, PALE, 1))
    parts.append(path([(step, mean(i)) for i, (step, _) in enumerate(steps)], TRAIN, 2))
    parts.append(path(held_out, HELD_OUT, 2))
    parts += [circle(*at(*point), HELD_OUT, 4) for point in held_out]

    def stroke(color):
        return lambda x, y: line(x, y - 4, x + 12, y - 4, color, 3)

    training = (stroke(TRAIN), "training batches (pale: each; dark: moving average)")
    parts += legend(left + 420, 36, [training, (stroke(HELD_OUT), "held-out text")])
    return svg(960, 560, parts)


def attention(run):
    """The weights of the heads of the first layer within a sentence, at the end of the run."""
    looks = entries(run / "looks.jsonl")
    start = next(look["start"] for look in looks if "start" in look)
    heads = [look["look"] for look in looks if "look" in look][-1]["heads"][: start["layers"][0]]
    labels = [token.translate({32: "␣", 10: "⏎", 9: "⇥"})[:8] for token in start["sentence"]]
    cell, gap, left, top = 11, 30, 40, 136
    side = cell * len(labels)
    parts = [text(left, 36, "Attention weights of layer 1", 18)]
    parts.append(text(left, 58, "Row: query token. Column: key token. Masked pairs are grey.", 12, MUTED))
    right = left + len(heads) * (side + gap)
    parts += [box(right - 160 + i, 26, 1, 12, shade(i / 159)) for i in range(160)]
    parts += [text(right - 160 + 160 * w**0.5, 50, f"{w:g}", 10, MUTED, "middle") for w in (0, 0.1, 0.3, 0.6, 1)]
    parts.append(text(right - 172, 36, "attention weight", 10, MUTED, "end"))
    for h, head in enumerate(heads):
        x = left + gap + h * (side + gap)
        parts.append(text(x, top - 30, f"head {h + 1}", 12))
        parts.append(box(x, top, side, side, FAINT))
        weights = iter(base64.b64decode(head["weights"]))
        for i, label in enumerate(labels):
            parts.append(text(x + (i + 0.5) * cell, top - 4, label, 9, MUTED, "middle"))
            parts.append(text(x - 6, top + (i + 0.8) * cell, label, 9, MUTED, "end"))
            # A byte is the root of a weight.
            parts += [box(x + j * cell, top + i * cell, cell, cell, shade(next(weights) / 255)) for j in range(i + 1)]
    return svg(right + left, top + side + 40, parts)


def arena(table):
    """The table of the arena: the darker, the better. The cell of a failed run is empty."""
    lines = [line for line in open(table) if line.startswith("|")]
    header, _, *rows = [[cell.strip(" `\n") for cell in line.strip("|\n").split("|")][:6] for line in lines]
    left, top, width, height = 140, 96, 96, 18
    parts = [text(16, 28, "Attention variants by task", 18)]
    parts.append(text(16, 54, "Accuracy in percent; text: loss in nats per character. Darker is better.", 12, MUTED))
    losses = [float(row[5]) for row in rows if not row[5].startswith("failed")]
    for t, title in enumerate(header[1:]):
        parts.append(text(left + (t + 0.5) * width, top - 8, title.split(",")[0].removesuffix(" %"), 11, INK, "middle"))
    for r, (name, *cells) in enumerate(rows):
        y = top + r * height
        parts.append(text(left - 8, y + 13, name, 11, INK, "end"))
        for t, cell in enumerate(cells):
            x = left + t * width
            if cell.startswith("failed"):
                parts.append(text(x + width / 2, y + 13, "failed", 11, MUTED, "middle"))
                continue
            worst, best = (max(losses), min(losses)) if t == 4 else (0, 100)
            share = (float(cell) - worst) / ((best - worst) or 1)
            parts.append(box(x, y, width - 2, height - 2, shade(0.75 * share)))
            ink = "#ffffff" if share > 0.7 else INK
            parts.append(text(x + width / 2, y + 13, cell, 11, ink, "middle"))
    return svg(left + 5 * width + 24, top + len(rows) * height + 24, parts)


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    run, table = pathlib.Path(sys.argv[1]), (sys.argv[2:] or [DOCS / "ARENA.md"])[0]
    for name, picture in [("loss", loss(run)), ("attention", attention(run)), ("arena", arena(table))]:
        (DOCS / f"{name}.svg").write_text(picture, "utf-8")


if __name__ == "__main__":
    main()
