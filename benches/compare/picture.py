"""Two plots: a bar chart of all ratios, and the roofline. Axes have titles, colours a legend, and what is drawn
has a tooltip."""

import math
from html import escape

INK, MUTED, FAINT = "#20242c", "#68707c", "#eaecf0"
GOOD, FAIR, POOR, OTHER = "#2f7d5b", "#c08a1e", "#b3423a", "#5b6ea8"
BAR = 18


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


def circle(x, y, color, radius=3.5, hollow=False):
    paint = f'fill="#ffffff" stroke="{color}" stroke-width="1.5"' if hollow else f'fill="{color}"'
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius}" {paint}/>'


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


def ratios(groups):
    """A bar chart of the ratios on a logarithmic scale: a bar from 1 to the ratio, a line from the
    lowest to the highest ratio of neighbouring turns, and a mark at the target."""
    every = [f for group in groups.values() for f in group]
    low = min([0.5] + [f["low"] for f in every])
    high = max([2.0] + [f["high"] for f in every] + [f["aim"] or 0 for f in every]) * 1.1
    left, width = 360, 520

    def at(ratio):
        return left + width * math.log(ratio / low) / math.log(high / low)

    def swatch(color):
        return lambda x, y: box(x, y - 9, 12, 10, color)

    parts = [text(20, 28, "Speedup over the fastest other library", 16)]
    parts += legend(
        20,
        50,
        [
            (swatch(GOOD), "faster, and the target reached if there is one"),
            (swatch(FAIR), "faster, but below the target"),
            (swatch(POOR), "slower"),
            (lambda x, y: line(x, y - 4, x + 12, y - 4, INK), "lowest to highest ratio of neighbouring turns"),
            (lambda x, y: line(x + 6, y - 10, x + 6, y + 2, INK, 2), "target"),
        ],
    )
    y = 66
    top = y
    for name, facts in groups.items():
        y += 26
        parts.append(text(20, y - 6, name, 13, MUTED))
        for f in facts:
            aim = f["aim"] if f["each"] else None
            ratio = f["ratio"]
            color = POOR if ratio < 1 else FAIR if aim and ratio < aim else GOOD
            x, one = sorted((at(ratio), at(1)))
            middle = y + (BAR - 5) / 2
            # The whole row has the tooltip, since a bar may be one pixel wide.
            row = [box(left, y - 2, width, BAR, "#ffffff00"), box(x, y, max(one - x, 1), BAR - 5, color)]
            row.append(line(at(f["low"]), middle, at(f["high"]), middle, INK))
            if aim:
                row.append(line(at(aim), y - 2, at(aim), y + BAR - 3, INK, 2))
            row.append(text(left - 8, y + 11, f["name"], 11, INK, "end"))
            row.append(text(left + width + 8, y + 11, f"{ratio:.2f} × {f['rival']}", 11, MUTED))
            tip = f"{f['name']}: {ratio:.2f} times as fast as {f['rival']} ({f['low']:.2f} to {f['high']:.2f})"
            parts.append(group(row, tip + (f", target {aim:g}" if aim else "")))
            y += BAR
    scale = []
    for ratio in (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50):
        if low <= ratio <= high:
            scale.append(line(at(ratio), top, at(ratio), y, FAINT if ratio != 1 else INK))
            scale.append(text(at(ratio), y + 16, f"{ratio:g}", 11, MUTED, "middle"))
    title = "the other library's time divided by retrograd's (logarithmic scale)"
    scale.append(text(left + width / 2, y + 38, title, 12, INK, "middle"))
    return svg(left + width + 240, y + 52, scale + parts)


def roofline(facts, machine):
    """The roofline plot: GFLOP/s over arithmetic intensity, of retrograd and the fastest other library."""
    points = [f for f in facts if "intensity" in f]
    width, height, left = 760, 440, 80
    peak = machine["gflops"]
    xs = [f["intensity"] for f in points] + [0.25, 64]
    x_low, x_high = min(xs) / 1.5, max(xs) * 1.5
    low, high = peak / 300, peak * 2

    def x(intensity):
        return left + width * math.log(intensity / x_low) / math.log(x_high / x_low)

    def y(gflops):
        gflops = max(gflops, low)
        return 50 + height * (1 - math.log(gflops / low) / math.log(high / low))

    parts = [text(20, 28, "Roofline, all threads", 16)]
    for power in range(math.ceil(math.log2(x_low)), math.floor(math.log2(x_high)) + 1, 2):
        where = x(2.0**power)
        parts.append(line(where, 50, where, 50 + height, FAINT))
        parts.append(text(where, 50 + height + 18, f"{2.0**power:g}", 11, MUTED, "middle"))
    for gflops in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000):
        if low <= gflops <= high:
            parts.append(line(left, y(gflops), left + width, y(gflops), FAINT))
            parts.append(text(left - 8, y(gflops) + 4, f"{gflops}", 11, MUTED, "end"))
    for m in machine["memory"]:
        ridge = min(peak / m["gb"], x_high)
        start = max(x_low, low / m["gb"])
        parts.append(line(x(start), y(start * m["gb"]), x(ridge), y(ridge * m["gb"]), INK))
        label = f"{m['name']} {m['gb']:.0f} GB/s"
        parts.append(text(x(start) + 16, y(start * m["gb"]) + 6, label, 11, MUTED))
        parts.append(line(x(ridge), y(peak), x(x_high), y(peak), INK))
    parts.append(text(left + width, y(peak) - 6, f"{peak:.0f} GFLOP/s", 11, MUTED, "end"))
    for f in points:
        where = x(f["intensity"])
        for value, mark, who in ((f["their_gflops"], OTHER, f["rival"]), (f["gflops"], GOOD, "retrograd")):
            tip = f"{f['name']}: {who}, {value:.1f} GFLOP/s = {value / peak:.0%} of the peak"
            parts.append(group([circle(where, y(value), mark, hollow=who != "retrograd")], tip))
    below = 50 + height + 40
    title = "arithmetic intensity, FLOP per byte (logarithmic scale)"
    parts.append(text(left + width / 2, below, title, 12, INK, "middle"))
    parts.append(tall_text(18, 50 + height / 2, "GFLOP/s (logarithmic scale)"))
    marks = [
        (lambda x, y: circle(x + 6, y - 4, GOOD), "retrograd"),
        (lambda x, y: circle(x + 6, y - 4, OTHER, hollow=True), "the fastest other library"),
        (lambda x, y: line(x, y - 4, x + 12, y - 4, INK), "limit of the machine"),
    ]
    parts += legend(left, below + 24, marks)
    return svg(left + width + 30, below + 40, parts)
