"""Results as JSON lines: one record for each case of each run, which can be appended, joined and cut.

A record contains all that is needed to judge it: date, commit, CPU, threads, load. It contains no name of a
host, user or folder.

    {"record": 1, "date": .., "group": .., "case": .., "now": {"commit": .., "committed": .., "subject": ..,
     "dirty": .., "seconds": .., "low": .., "high": .., "turns": ..}, "base": the same or null,
     "ratio": {"median": .., "low": .., "high": .., "coverage": .., "turns": .., "verdict": ..} or null,
     "machine": {"cpu": .., "cores": .., "threads": .., "level": .., "precision": .., "gflops": ..,
     "governor": .., "turbo": ..}, "load": {"average_before": .., "average_during": .., "others_before": ..,
     "others_during": .., "disturbed": ..}}

`seconds` is the median of the turns, `low` and `high` their quartiles.
"""

import datetime
import json
import math
import statistics

VERSION = 1


def timing(commit, times):
    """One side of a record."""
    low, _, high = statistics.quantiles(times, n=4, method="inclusive") if len(times) > 1 else times * 3
    seconds = dict(seconds=statistics.median(times), low=low, high=high, turns=len(times))
    return commit.record() | seconds


def record(case, date, machine, load, now, base=None, ratio=None):
    return dict(
        record=VERSION,
        date=date,
        group=case.group,
        case=case.name,
        now=now,
        base=base,
        ratio=ratio,
        machine=machine,
        load=load,
    )


def append(path, records):
    """Appends records to a file, each as one line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # A run that was killed may have left a line without its end.
    cut = path.exists() and path.stat().st_size > 0 and path.read_bytes()[-1:] != b"\n"
    with open(path, "a", encoding="utf-8") as file:
        file.write("\n" * cut + "".join(json.dumps(r, allow_nan=False) + "\n" for r in records))


def is_number(x):
    try:
        return isinstance(x, (int, float)) and not isinstance(x, bool) and math.isfinite(x)
    except OverflowError:  # an integer that is no float
        return False


def is_date(x):
    try:
        return isinstance(x, str) and len(x) == 20 and bool(datetime.datetime.strptime(x, "%Y-%m-%dT%H:%M:%SZ"))
    except ValueError:
        return False


def fault(r):
    """What is wrong with a record, or None."""
    if not isinstance(r, dict) or "record" not in r:
        return "it is no record of a benchmark"
    if r["record"] != VERSION:
        return f"it has version {r['record']!r}, this program reads version {VERSION}"
    if not is_date(r.get("date")):
        return "its date is missing or damaged"
    if not isinstance(r.get("case"), str) or not isinstance(r.get("group"), str):
        return "the name of its case or group is missing"
    machine, load, ratio = (r.get(key) for key in ("machine", "load", "ratio"))
    if not isinstance(machine, dict) or not isinstance(machine.get("cpu"), str):
        return "it does not say which CPU it was measured on"
    if load is not None and not isinstance(load, dict):
        return "its load is damaged"
    for name in ("now", "base"):
        side = r.get(name)
        if side is None and name == "base":
            continue
        if not isinstance(side, dict) or not isinstance(side.get("commit"), str) or not is_date(side.get("committed")):
            return f"the commit of {name!r} is missing or damaged"
        if not is_number(side.get("seconds")) or side["seconds"] <= 0:
            return f"the time of {name!r} is missing or not positive"
    if ratio is not None:
        if not isinstance(ratio, dict) or not all(is_number(ratio.get(key)) for key in ("median", "low", "high")):
            return "its ratio is damaged"
    return None


def read(paths):
    """The records of files, and a sentence for each line that cannot be read."""
    records, faults = [], []
    for path in paths:
        try:
            content = path.read_bytes()
        except OSError as error:
            faults.append(f"{path.name}: it cannot be read: {error.strerror}")
            continue
        for number, line in enumerate(content.split(b"\n"), 1):
            if not line.strip():
                continue
            try:
                found = json.loads(line.decode())
                why = fault(found)
            except (ValueError, RecursionError):  # also of bytes, and of integers with too many digits
                why = "it is damaged or cut off"
            if why:
                faults.append(f"{path.name}, line {number} is left out: {why}")
            else:
                records.append(found)
    return records, faults
