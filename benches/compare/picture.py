"""Two plots: a bar chart of all ratios, and the roofline."""

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


def svg(width, height, parts):
    size = f'width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}"'
    style = 'font-family="sans-serif"'
    back = f'<rect width="{width:.0f}" height="{height:.0f}" fill="#ffffff"/>'
    body = "\n".join([back, *parts])
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} {style}>\n{body}\n</svg>\n'


def ratios(groups):
    """Bars of the ratios on a logarithmic scale, with a mark at the target."""
    every = [f for group in groups.values() for f in group]
    low = min([0.5] + [f["low"] for f in every])
    high = max([2.0] + [f["high"] for f in every] + [f["aim"] or 0 for f in every]) * 1.1
    left, width = 360, 520

    def at(ratio):
        return left + width * math.log(ratio / low) / math.log(high / low)

    parts, y = [text(20, 30, "Speedup over the fastest other library", 16)], 50
    top = y
    for name, group in groups.items():
        y += 26
        parts.append(text(20, y - 6, name, 13, MUTED))
        for f in group:
            aim = f["aim"] if f["each"] else None
            ratio = f["ratio"]
            color = POOR if ratio < 1 else FAIR if aim and ratio < aim else GOOD
            x, one = sorted((at(ratio), at(1)))
            box = f'x="{x:.1f}" y="{y:.1f}" width="{max(one - x, 1):.1f}" height="{BAR - 5}"'
            parts.append(f'<rect {box} fill="{color}"/>')
            middle = y + (BAR - 5) / 2
            parts.append(line(at(f["low"]), middle, at(f["high"]), middle, INK))
            if aim:
                parts.append(line(at(aim), y - 2, at(aim), y + BAR - 3, INK, 2))
            parts.append(text(left - 8, y + 11, f["name"], 11, INK, "end"))
            parts.append(text(left + width + 8, y + 11, f"{ratio:.2f} × {f['rival']}", 11, MUTED))
            y += BAR
    scale = [line(at(1), top, at(1), y, INK)]
    for ratio in (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50):
        if low <= ratio <= high:
            scale.append(line(at(ratio), top, at(ratio), y, FAINT if ratio != 1 else INK))
            scale.append(text(at(ratio), y + 16, f"{ratio:g}", 11, MUTED, "middle"))
    return svg(left + width + 200, y + 30, scale + parts)


def roofline(facts, machine):
    """The roofline plot: GFLOP/s over arithmetic intensity, of retrograd and the fastest other library."""
    points = [f for f in facts if "intensity" in f]
    width, height, left, bottom = 760, 440, 70, 60
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
        parts.append(text(x(start) + 4, y(start * m["gb"]) - 6, label, 11, MUTED))
        parts.append(line(x(ridge), y(peak), x(x_high), y(peak), INK))
    parts.append(text(left + width, y(peak) - 6, f"{peak:.0f} GFLOP/s", 11, MUTED, "end"))
    for f in points:
        where = f'cx="{x(f["intensity"]):.1f}"'
        name = f"<title>{escape(f['name'])}: {f['gflops']:.1f}, {f['their_gflops']:.1f}</title>"
        theirs = f'{where} cy="{y(f["their_gflops"]):.1f}" r="3" fill="none" stroke="{OTHER}"'
        parts.append(f"<circle {theirs}>{name}</circle>")
        ours = f'{where} cy="{y(f["gflops"]):.1f}" r="3.5" fill="{GOOD}" fill-opacity="0.8"'
        parts.append(f"<circle {ours}>{name}</circle>")
    parts.append(text(left, 50 + height + 40, "arithmetic intensity, FLOP per byte", 12, MUTED))
    parts.append(text(left + 240, 50 + height + 40, "● retrograd", 12, GOOD))
    parts.append(text(left + 340, 50 + height + 40, "○ the fastest other library", 12, OTHER))
    return svg(left + width + 30, 50 + height + bottom, parts)
