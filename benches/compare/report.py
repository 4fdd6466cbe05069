"""Results as a table."""

import math
import statistics


def best_rival(times):
    """The other library with the lowest median time."""
    rivals = [name for name in times if name != "ours"]
    return min(rivals, key=lambda name: statistics.median(times[name]))


def least_seconds(machine, row):
    """As `Machine::least_seconds`."""
    holding = next(m for m in machine["memory"] if m["bytes"] >= row["bytes"])
    return max(row["flops"] / machine["gflops"], row["bytes"] / holding["gb"]) / 1e9


def facts(row, machine):
    """The values of a row of the table."""
    fact = dict(group=row["group"], name=row["name"], aim=row["aim"], each=row["each"])
    if "bytes_at_peak" in row:
        peaks = row["bytes_at_peak"]
        rival = min((name for name in peaks if name != "ours"), key=peaks.get)
        fact |= dict(name=row["name"] + ", peak memory", unit="MB", rival=rival)
        fact |= dict(ours=peaks["ours"] / 1e6, theirs=peaks[rival] / 1e6)
        fact["ratio"] = fact["low"] = fact["high"] = peaks[rival] / max(peaks["ours"], 1)
        return fact
    times = row["times"]
    rival = best_rival(times)
    ours, theirs = (statistics.median(times[name]) for name in ("ours", rival))
    pairs = [b / a for a, b in zip(times["ours"], times[rival])]
    fact |= dict(unit="s", rival=rival, ours=ours, theirs=theirs, ratio=theirs / ours)
    fact |= dict(low=min(pairs), high=max(pairs))
    fact["differs"] = ", ".join(row["wrong"])
    fact["disturbed"] = row["disturbed"]
    if row["flops"] or row["bytes"]:
        fact["limit"] = least_seconds(machine, row) / ours
    if row["flops"]:
        fact["peak"] = row["flops"] / ours / 1e9 / machine["gflops"]
    return fact


def groups(rows, machine):
    """Facts by group, in order."""
    found = {}
    for row in rows:
        found.setdefault(row["group"], []).append(facts(row, machine))
    return found


def mean(group):
    return math.exp(statistics.fmean(math.log(f["ratio"]) for f in group))


def quantity(x, unit):
    if unit == "MB":
        return f"{x:.0f} MB"
    for scale, name in ((1, "s"), (1e-3, "ms"), (1e-6, "us")):
        if x >= scale:
            return f"{x / scale:.3g} {name}" if x < 100 * scale else f"{x / scale:.0f} {name}"
    return f"{x * 1e9:.0f} ns"


def share(fact, of):
    return f"{fact[of] * 100:.0f} %" if of in fact else ""


def slower_cases(rows, machine):
    """The cases slower than the fastest other library, and the largest difference of results."""
    every = [f for group in groups(rows, machine).values() for f in group]
    behind = sorted((f for f in every if f["ratio"] < 1), key=lambda f: f["ratio"])
    lines = [f"{len(behind)} of {len(every)} cases are slower than the fastest other library:"]
    for f in behind:
        lines.append(f"  {f['ratio']:.2f}  {f['name']} ({f['rival']})")
    found = [d for r in rows for d in r.get("differences", {}).values() if d is not None]
    wrong = [f for f in every if f.get("differs")]
    lines.append(
        f"{len(found)} results were compared, largest difference {max(found, default=0):.0e}; "
        f"{len(wrong)} exceed the tolerance"
    )
    if disturbed := sum(bool(f.get("disturbed")) for f in every):
        lines.append(f"{disturbed} cases, marked with !, were disturbed by other processes")
    return lines


def report(rows, about, conditions):
    """The rows of a run as text; `about` has what the programs say of themselves and of the machine."""
    machine = about["ours"]
    others = [f"{name}: {a['version']}" for name, a in about.items() if name != "ours"]
    note = (
        "of FMA peak: required operations per second, divided by the f32 FMA peak of all threads; for\n"
        "training, the model FLOP utilisation (MFU). of the roofline: the lower bound of the time, from\n"
        "the FMA peak and from moving inputs and outputs once, divided by retrograd's time."
    )
    head = [conditions, machine["report"], *others]
    return "\n".join([*head, "", table(rows, machine), "", note, "", *slower_cases(rows, machine)])


def table(rows, machine):
    head = ["case", "retrograd", "of FMA peak", "of the roofline"]
    head += ["fastest other", "its time", "ratio", "target", ""]
    lines = [head]
    for name, group in groups(rows, machine).items():
        for f in group:
            aim = f["aim"] if f["each"] else None
            verdict = "" if aim is None else "reached" if f["ratio"] >= aim else "missed"
            if f.get("differs"):
                verdict = "results differ"
            lines.append(
                [
                    f["name"] + (" !" if f.get("disturbed") else ""),
                    quantity(f["ours"], f["unit"]),
                    share(f, "peak"),
                    share(f, "limit"),
                    f["rival"],
                    quantity(f["theirs"], f["unit"]),
                    f"{f['ratio']:.2f} ({f['low']:.2f} to {f['high']:.2f})",
                    f"{aim:g}" if aim else "",
                    verdict,
                ]
            )
        if not group[0]["each"]:
            aim, got = group[0]["aim"], mean(group)
            low = min(group, key=lambda f: f["ratio"])
            name = f"{name}: geometric mean of {len(group)}, lowest {low['ratio']:.2f}"
            verdict = "reached" if got >= aim else "missed"
            lines.append([name, *[""] * 5, f"{got:.2f}", f"{aim:g}", verdict])
    return lines_of(lines)


def lines_of(lines):
    """A Markdown table of lines of cells, of which the first is the head."""
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    rows = ["| " + " | ".join(c.ljust(w) for c, w in zip(x, widths)) + " |" for x in lines]
    rows.insert(1, "|" + "|".join("-" * (w + 2) for w in widths) + "|")
    return "\n".join(rows)
