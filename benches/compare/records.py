"""Results as JSON lines: one record for each case of each run, which can be appended and joined.

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

import json
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
