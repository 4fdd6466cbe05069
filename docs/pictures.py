"""Draws the pictures of README.md, docs/ARENA.md and BENCHMARKS.md.

pictures.py gallery                     the pages in docs/gallery, with a picture of each, and docs/xray.png; needs Chromium
pictures.py arena [TABLE]               docs/arena.svg, from the table in docs/ARENA.md or another file
pictures.py quality NAME=FOLDER [..]    docs/quality.svg: held-out loss of runs against training time

In the last picture the time is that of the training steps, without evaluations. A curve is the loss of a part of the
held-out text, a dot that of all of it at the end of the run. --point adds a dot, such as the result of another
program, and --aim a horizontal line.
"""

import argparse
import json
import math
import pathlib
import shutil
import subprocess
import sys
import tempfile
from html import escape

DOCS = pathlib.Path(__file__).resolve().parent
INK, MUTED, FAINT = "#20242c", "#68707c", "#eaecf0"


def text(x, y, words, size=12, color=INK, anchor="start"):
    where = f'x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{color}" text-anchor="{anchor}"'
    return f"<text {where}>{escape(words)}</text>"


def line(x1, y1, x2, y2, color, width=1.0, dash=""):
    dash = f' stroke-dasharray="{dash}"' if dash else ""
    ends = f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
    return f'<line {ends} stroke="{color}" stroke-width="{width}"{dash}/>'


def tall_text(x, y, words, size=12, color=INK):
    """Text that runs upwards, centred at a point: the title of a vertical axis."""
    where = f'transform="rotate(-90 {x:.1f} {y:.1f})" x="{x:.1f}" y="{y:.1f}" font-size="{size}"'
    return f'<text {where} fill="{color}" text-anchor="middle">{escape(words)}</text>'


def group(parts, tip):
    """Parts with a tooltip."""
    return "\n".join(["<g>", f"<title>{escape(tip)}</title>", *parts, "</g>"])


def circle(x, y, color, radius):
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius}" fill="{color}"/>'


def box(x, y, width, height, color):
    size = f'width="{width:.1f}" height="{height:.1f}"'
    return f'<rect x="{x:.1f}" y="{y:.1f}" {size} fill="{color}"/>'


def legend(x, y, entries):
    """Marks with their names in a row. An entry is a function of a place that returns the mark, and a name."""
    parts = []
    for mark, name in entries:
        parts += [mark(x, y), text(x + 18, y, name, 11, MUTED)]
        x += 18 + 5.3 * len(name) + 16
    return parts


def svg(width, height, parts):
    size = f'width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}"'
    style = 'font-family="sans-serif"'
    back = f'<rect width="{width:.0f}" height="{height:.0f}" fill="#ffffff"/>'
    body = "\n".join([back, *parts])
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} {style}>\n{body}\n</svg>\n'


BLUES = [(255, 255, 255), (178, 216, 232), (70, 150, 200), (28, 84, 150), (12, 28, 66)]


def entries(path):
    return [json.loads(entry) for entry in open(path)]


def shade(part):
    """From white through blue to almost black."""
    i = min(int(part * (len(BLUES) - 1)), len(BLUES) - 2)
    rest = part * (len(BLUES) - 1) - i
    return "#" + "".join(f"{round(a + rest * (b - a)):02x}" for a, b in zip(BLUES[i], BLUES[i + 1]))


def photograph(page, name):
    """A picture of a page in Chromium. `page` may end with a state, as in `step.html#event=255`."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome") or sys.exit("no Chromium")
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--window-size=1280,720"]
    subprocess.run([chromium, *options, f"--screenshot={DOCS / name}", f"file://{page}"], check=True, stderr=subprocess.DEVNULL)


# The pages of docs/gallery in the states of their pictures.
STATES = {
    "expression": "event=10",
    "diamond": "event=10",
    "network": "event=12&open=0,1,2,3",
    "attention": "event=46",
    "nan": "",
    "run": "",
    "explorer": "layer=2&head=1",
}


def gallery():
    """The pages of the example `gallery`, that of the default run, and that of the heads of its model."""
    folder = DOCS / "gallery"
    cargo = ["cargo", "run", "--release", "--quiet", "--manifest-path", DOCS.parent / "Cargo.toml"]
    with tempfile.TemporaryDirectory() as place:
        # The page has the name of the folder as its title.
        run = ["--out", "default-run"]
        for arguments in (
            ["--example", "gallery", "--", folder],
            ["--", "train", *run],
            ["--", "attention", *run, "--page", folder / "explorer.html", "It was a brass key"],
            ["--", "xray", *run, "--page", "xray.html"],
        ):
            subprocess.run([*cargo, *arguments], check=True, cwd=place)
        shutil.copy(f"{place}/default-run/run.html", folder)
        photograph(f"{place}/xray.html#event=255", "xray.png")
    for name, state in STATES.items():
        photograph(f"{folder}/{name}.html#{state}", f"gallery/{name}.png")


def arena(table):
    """The table of the arena: the darker, the better. The cell of a failed run is empty."""
    lines = [line for line in open(table) if line.startswith("|")]
    header, _, *rows = [[cell.strip(" `\n") for cell in line.strip("|\n").split("|")] for line in lines]
    tasks = header.index("parameters")
    header, rows = header[:tasks], [row[:tasks] for row in rows]
    left, top, width, height = 140, 96, 80, 18
    parts = [text(16, 28, "Attention variants by task", 18)]
    parts.append(text(16, 54, "Accuracy in percent; text: loss in nats per character. Darker is better.", 12, MUTED))
    losses = [float(row[-1]) for row in rows if not row[-1].startswith("failed")]
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
            worst, best = (max(losses), min(losses)) if t == len(cells) - 1 else (0, 100)
            share = (float(cell) - worst) / ((best - worst) or 1)
            parts.append(box(x, y, width - 2, height - 2, shade(0.75 * share)))
            ink = "#ffffff" if share > 0.7 else INK
            parts.append(text(x + width / 2, y + 13, cell, 11, ink, "middle"))
    return svg(left + (tasks - 1) * width + 24, top + len(rows) * height + 24, parts)


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


def quality_of(curves, points, aims):
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
    kinds = parser.add_subparsers(dest="kind", required=True)
    kinds.add_parser("gallery")
    kinds.add_parser("arena").add_argument("table", nargs="?", default=DOCS / "ARENA.md")
    quality = kinds.add_parser("quality")
    quality.add_argument("runs", nargs="+", metavar="NAME=FOLDER")
    quality.add_argument("--point", nargs=3, action="append", default=[], metavar=("NAME", "S", "LOSS"))
    quality.add_argument("--aim", nargs=2, action="append", default=[], metavar=("NAME", "LOSS"))
    args = parser.parse_args()
    if args.kind == "gallery":
        gallery()
        pictures = {}
    elif args.kind == "arena":
        pictures = {"arena": arena(args.table)}
    else:
        curves = {name: curve(folder) for name, _, folder in (run.partition("=") for run in args.runs)}
        if unfinished := [name for name, (_, end) in curves.items() if end is None]:
            sys.exit(f"not finished: {', '.join(unfinished)}")
        points = [(name, float(s), float(loss)) for name, s, loss in args.point]
        pictures = {"quality": quality_of(curves, points, [(name, float(loss)) for name, loss in args.aim])}
    for name, picture in pictures.items():
        (DOCS / f"{name}.svg").write_text(picture, "utf-8")


if __name__ == "__main__":
    main()
