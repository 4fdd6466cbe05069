"""A page that draws the times and ratios of all cases over commits and dates, from files of records."""

import json
import os
import re
import sys
from pathlib import Path

from programs import ROOT
from records import is_number, read

HERE = Path(__file__).resolve().parent
KIT = ROOT / "study" / "assets"
# Each asset, by its placeholder in history.html.
ASSETS = {
    "KIT_STYLE": KIT / "kit.css",
    "KIT_SCRIPT": KIT / "kit.js",
    "STYLE": HERE / "history.css",
    "SCRIPT": HERE / "history.js",
}
MACHINE = ("cpu", "level", "precision", "threads", "cores", "governor", "turbo")


class Numbering:
    """Values in the order of their appearance, each once."""

    def __init__(self):
        self.values, self.places = [], {}

    def of(self, value):
        key = json.dumps(value, sort_keys=True)
        if key not in self.places:
            self.places[key] = len(self.values)
            self.values.append(value)
        return self.places[key]


def commit_of(side):
    dirty = bool(side.get("dirty"))
    return dict(sha=side["commit"], date=side["committed"], subject=str(side.get("subject") or ""), dirty=dirty)


def rounded(value):
    """A number with the digits that a chart can show, or None."""
    return float(f"{value:.5g}") if is_number(value) else None


def busiest(load):
    """The most cores that other processes used in a turn, or None."""
    found = [(load or {}).get(name) for name in ("others_before", "others_during")]
    most = [rounded(f.get("most")) for f in found if isinstance(f, dict)]
    return max((m for m in most if m is not None), default=None)


def page_data(records, faults):
    """What the page draws. Every record gives a point for its commit, and one for the commit it was compared
    with, which was measured in turns with it."""
    commits = {}
    for r in records:
        for side in filter(None, (r["now"], r.get("base"))):
            commit = commit_of(side)
            commits.setdefault((commit["date"], commit["sha"], commit["dirty"]), commit)
    places = {key: i for i, key in enumerate(sorted(commits))}
    machines, cases = Numbering(), {}
    for r in sorted(records, key=lambda r: r["date"]):
        machine = machines.of({key: r["machine"].get(key) for key in MACHINE})
        ratio, load = r.get("ratio") or {}, r.get("load")
        points = cases.setdefault((r["group"], r["case"]), [])
        for name in ("now", "base"):
            side = r.get(name)
            if not side:
                continue
            commit = commit_of(side)
            point = dict(
                machine=machine,
                commit=places[commit["date"], commit["sha"], commit["dirty"]],
                date=r["date"],
                seconds=rounded(side["seconds"]),
                low=rounded(side.get("low")),
                high=rounded(side.get("high")),
                turns=rounded(side.get("turns")),
                others=busiest(load),
                disturbed=bool((load or {}).get("disturbed")),
            )
            if name == "base":
                point["aside"] = True
            elif ratio and r.get("base"):
                base = commit_of(r["base"])
                point["base"] = places[base["date"], base["sha"], base["dirty"]]
                point["ratio"] = [rounded(ratio[key]) for key in ("median", "low", "high")]
                point["verdict"] = str(ratio.get("verdict") or "")
            points.append(point)
    return dict(
        commits=[commits[key] for key in sorted(commits)],
        machines=machines.values,
        cases=[dict(group=group, name=name, points=points) for (group, name), points in cases.items()],
        faults=faults,
    )


def embedded(data):
    """JSON that contains neither a tag nor the beginning of a comment."""
    return json.dumps(data, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")


def html(data):
    """The document: the data, and the scripts that draw it."""
    parts = {name: path.read_text("utf-8") for name, path in ASSETS.items()} | {"DATA": embedded(data)}
    # All at once, so that no part is searched for placeholders.
    return re.sub(r"\{\{(\w+)\}\}", lambda m: parts[m[1]], (HERE / "history.html").read_text("utf-8"))


def write(path, content):
    """Writes a file that at every moment has either its old or its new content."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        partial.write_text(content, "utf-8")
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def make(files, out):
    """Writes the page of these files; returns the exit code."""
    records, faults = read(files)
    for fault in faults:
        print(f"compare: {fault}", file=sys.stderr)
    if not records:
        print("compare: the files contain no records of benchmarks; no page is written", file=sys.stderr)
        return 2
    data = page_data(records, faults)
    try:
        write(out, html(data))
    except OSError as error:
        print(f"compare: {out} cannot be written: {error.strerror}", file=sys.stderr)
        return 2
    cases, commits = len(data["cases"]), len(data["commits"])
    print(f"{out}: {len(records)} records of {cases} cases and {commits} commits")
    return 0
