"""Draws the held-out loss of runs against training time.

usage: quality.py NAME=FOLDER [NAME=FOLDER ..] [--point NAME SECONDS LOSS] [--aim NAME LOSS] --out FILE

FOLDER is the folder of a run; its log.jsonl has the time of each step and the losses. The time is that of
the training steps, without evaluations. The curve is the loss of a part of the held-out text, the dot that of
all of it at the end of the run. --point adds a dot, such as the result of another program, and --aim a
horizontal line. The picture is an SVG file; its points have tooltips.
"""

import argparse
import json
import math
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "compare"))
from picture import FAINT, INK, MUTED, circle, group, legend, line, svg, tall_text, text  # noqa: E402

COLORS = ["#5b6ea8", "#c08a1e", "#2f7d5b", "#b3423a", "#7a4f9c"]
LEFT, TOP, WIDTH, HEIGHT = 70, 66, 620, 330
TIMES = [0.5, 1, 2, 5, 10, 20, 60, 120, 300, 600, 1200, 3600, 7200, 18000]  # of ticks, seconds


def curve(folder):
    """Pairs of training time in seconds and held-out loss: those of the curve, and that of the end."""
    seconds, points, end = {0: 0.0}, {}, None
    for entry in map(json.loads, open(pathlib.Path(folder) / "log.jsonl")):
        if "ms" in entry:
            seconds[entry["step"]] = seconds[entry["step"] - 1] + entry["ms"] / 1e3
        elif "val_loss" in entry and entry.get("step", 0) > 0:
            points[entry["step"]] = entry["val_loss"]
        elif "done" in entry:
            end = (seconds[entry["steps"]], entry["val_loss"])
    # Older logs have the loss of the whole text as the last evaluation, too.
    every = [(seconds[step], loss) for step, loss in sorted(points.items())]
    return [p for p in every if p != end], end


def duration(seconds):
    return f"{seconds:.2g} s" if seconds < 60 else f"{seconds / 60:.2g} min"


def draw(curves, points, aims):
    every = [p for c, end in curves.values() for p in [*c, end]] + [p[1:] for p in points]
    seconds = [s for s, _ in every]
    losses = [loss for _, loss in every] + [loss for _, loss in aims]
    low, high = min(seconds) * 0.8, max(seconds) * 1.25
    bottom, top = math.floor(min(losses) * 10 - 0.5) / 10, min(math.ceil(max(losses) * 10) / 10, 2.6)

    def x(s):
        return LEFT + WIDTH * math.log(s / low) / math.log(high / low)

    def y(loss):
        return TOP + HEIGHT * (1 - (min(loss, top) - bottom) / (top - bottom))

    parts = [text(LEFT, 26, "Held-out loss against training time", 16)]
    for i in range(round((top - bottom) * 10) + 1):
        loss = bottom + i / 10
        if i % 2 == 0:
            parts += [line(LEFT, y(loss), LEFT + WIDTH, y(loss), FAINT)]
            parts += [text(LEFT - 8, y(loss) + 4, f"{loss:.1f}", 11, MUTED, "end")]
    for t in [t for t in TIMES if low < t < high]:
        parts += [line(x(t), TOP, x(t), TOP + HEIGHT, FAINT)]
        parts += [text(x(t), TOP + HEIGHT + 18, duration(t), 11, MUTED, "middle")]
    title = "training time (logarithmic scale)"
    parts.append(text(LEFT + WIDTH / 2, TOP + HEIGHT + 40, title, 12, INK, "middle"))
    parts.append(tall_text(20, TOP + HEIGHT / 2, "held-out loss, nats per character"))

    def stroke(color):
        return lambda x, y: line(x, y - 4, x + 12, y - 4, color, 2)

    marks = [(stroke(color), name) for color, name in zip(COLORS, curves)]
    marks.append((lambda x, y: circle(x + 6, y - 4, INK, 4), "loss of all of the held-out text"))
    parts += legend(LEFT, 48, marks)
    for name, loss in aims:
        parts.append(line(LEFT, y(loss), LEFT + WIDTH, y(loss), MUTED, 1, "5 4"))
        parts.append(text(LEFT + 6, y(loss) - 5, f"{name}: {loss:g}", 11, MUTED))
    for color, (name, (c, _)) in zip(COLORS, curves.items()):
        for (s, a), (t, b) in zip(c, c[1:]):
            parts.append(line(x(s), y(a), x(t), y(b), color, 2))
        for s, a in c:
            tip = f"{name}: {a:.3f} nats per character after {duration(s)} of training"
            parts.append(group([circle(x(s), y(a), color, 2)], tip))
    ends = [(name, *end, color, 16) for color, (name, (_, end)) in zip(COLORS, curves.items())]
    for name, s, loss, color, dy in [*ends, *((*point, INK, -8) for point in points)]:
        label = f"{name}: {loss:.3f}, {duration(s)}"
        tip = f"{name}: {loss:.3f} nats per character, all of the held-out text, after {duration(s)}"
        parts.append(group([circle(x(s), y(loss), color, 4)], tip))
        fits = x(s) + 7 * len(label) < LEFT + WIDTH
        anchor, dx = ("start", 8) if fits else ("end", -8)
        parts.append(text(x(s) + dx, y(loss) + dy, label, 12, color, anchor))
    return svg(LEFT + WIDTH + 30, TOP + HEIGHT + 60, parts)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("runs", nargs="+", metavar="NAME=FOLDER")
    parser.add_argument("--point", nargs=3, action="append", default=[], metavar=("NAME", "S", "LOSS"))
    parser.add_argument("--aim", nargs=2, action="append", default=[], metavar=("NAME", "LOSS"))
    parser.add_argument("--out", required=True, metavar="FILE")
    args = parser.parse_args()
    curves = {}
    for run in args.runs:
        name, _, folder = run.partition("=")
        curves[name] = curve(folder)
        if curves[name][1] is None:
            sys.exit(f"{folder}: the run is not finished")
    points = [(name, float(s), float(loss)) for name, s, loss in args.point]
    aims = [(name, float(loss)) for name, loss in args.aim]
    pathlib.Path(args.out).write_text(draw(curves, points, aims))


if __name__ == "__main__":
    main()
