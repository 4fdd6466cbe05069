"""Compares retrograd with other libraries, in turns, and says by what factor it is faster.

    PYTHON=python-with-torch python3 benches/compare

Every case is measured in turns: ours, theirs, ours, theirs, while the other programs sleep. A turn
answers the median of its calls; the ratio is that of the medians over turns (theirs by ours: above
1 we are faster), and beside it stand the lowest and highest of the ratios of neighbouring turns.
What came out is printed, and written to target/compare as results.json, results.csv, ratios.svg
and roofline.svg.
"""

import argparse
import os
import sys
import time
from pathlib import Path

from cases import cases
from programs import PROGRAMS, ROOT, Programs
from report import read, table, write

SETTLE = 0.05  # seconds for threads that wait actively to give up


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    every = ",".join(PROGRAMS)
    parser.add_argument("--only", default="", help="cases whose group or name begins with this")
    parser.add_argument("--programs", default=every, help=f"whom to compare, of {every}")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.3, help="of a turn")
    parser.add_argument("--add", action="store_true", help="to the results of earlier runs")
    parser.add_argument("--build", action="store_true", help="build what is needed, and stop")
    parser.add_argument("--show", action="store_true", help="results of earlier runs, and stop")
    parser.add_argument("--out", type=Path, default=ROOT / "target" / "compare")
    return parser.parse_args()


def turn(programs, program, seconds):
    """One turn of one program, the others asleep: seconds of a call, and its result."""
    others = [p for p in programs.running.values() if p and p is not program]
    time.sleep(SETTLE)
    before, start = [p.cpu_seconds() for p in others], time.perf_counter()
    answer = program.run(seconds)
    took = time.perf_counter() - start
    for other, was in zip(others, before):
        # A clock tick is 10 ms.
        if (used := other.cpu_seconds() - was) > 0.02 + 0.01 * took:
            print(f"{other.name} used {used:.2f} s while {program.name} ran", file=sys.stderr)
    return answer


def compare(programs, case, turns, seconds):
    """The times of a case: a row of the results, or None if no rival is there."""
    ours = programs.get("ours")
    rivals = [(r, programs.get(r.program)) for r in case.rivals]
    rivals = [(r, p) for r, p in rivals if p]
    if not rivals:
        return None
    if case.slow:
        turns, seconds = max(turns // 2, 2), 0
    row = dict(group=case.group, name=case.name, aim=case.aim, each=case.each, times={}, results={})
    # The same program cannot hold two at once: then every turn opens its own.
    sides = [("ours", ours, case.name)]
    sides += [(r.name, p, case.name.replace(*r.rename)) for r, p in rivals]
    shared = sum(p is ours for _, p, _ in sides) > 1
    for label, program, work in sides:
        if (counts := program.open(work)) is None:
            continue
        if label == "ours":
            row["flops"], row["bytes"] = counts
        row["times"][label] = []
        if not shared:
            program.run(0)  # warms up
    for _ in range(turns):
        for label, program, work in sides:
            if label not in row["times"]:
                continue
            if shared:
                program.open(work)
                program.run(0)
            took, result = turn(programs, program, seconds)
            row["times"][label].append(took)
            if result is not None:
                row["results"][label] = result
    for program in {p for _, p, _ in sides}:
        program.close()
    return row if len(row["times"]) > 1 else None


def peak_memory(programs, case):
    """Peak resident memory beyond that of a program that has just started, a row as well."""
    row = dict(group=case.group, name=case.name, aim=case.aim, each=True, bytes_at_peak={})
    for label, name in [("ours", "ours"), *((r.name, r.program) for r in case.rivals)]:
        if not programs.get(name):
            continue
        program = programs.fresh(name)
        before = program.memory("VmRSS")
        if program.open(case.name) is not None:
            program.run(0)
            row["bytes_at_peak"][label] = program.memory("VmHWM") - before
        program.end()
    return row


def main():
    args = arguments()
    allowed = set(args.programs.split(",")) | {"ours"}
    wanted = [c for c in cases() if c.group.startswith(args.only) or c.name.startswith(args.only)]
    if args.show:
        print(table(read(args.out)))
        return
    programs = Programs(allowed, args.threads)
    if args.build:
        for name in sorted({"ours"} | {r.program for c in wanted for r in c.rivals}):
            programs.command(name)
        return
    results = read(args.out) if args.add else dict(rows=[])
    started = time.time()
    for i, case in enumerate(wanted):
        print(f"[{time.time() - started:4.0f} s] {i + 1}/{len(wanted)} {case.name}", file=sys.stderr)
        rows = [compare(programs, case, args.turns, args.seconds)]
        if case.memory:
            rows.append(peak_memory(programs, case))
        for row in filter(None, rows):
            same = (row["group"], row["name"], "times" in row)
            kept = [r for r in results["rows"] if (r["group"], r["name"], "times" in r) != same]
            results["rows"] = [*kept, row]
    results.setdefault("about", {})
    for name, program in programs.running.items():
        if program:
            results["about"][name] = program.about
    programs.end()
    order = {(c.group, c.name): i for i, c in enumerate(cases())}
    results["rows"].sort(key=lambda r: order.get((r["group"], r["name"]), len(order)))
    write(results, args.out)
    print(table(results))


main()
