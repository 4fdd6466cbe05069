"""Compares the speed of retrograd with that of other libraries, in alternating turns.

    PYTHON=python-with-torch python3 benches/compare

Every case is measured in alternating turns: retrograd, the other library, retrograd, .., while all
other programs are idle. The result of a turn is the median time of its calls. The ratio is the other
library's median over all turns divided by retrograd's: above 1, retrograd is faster. The lowest and
highest ratio of neighbouring turns are printed beside it. A turn is repeated if other processes or
other virtual machines used more CPU time during it than 30 ms plus a twentieth of its duration (40
ms for a turn of 0.2 s). A case is marked with "!" if a turn was still disturbed at the third attempt. Before a case is timed, all
programs run it on the same operands, and their results must agree. A library that is missing or
does not build is skipped, with a message.

The results are printed and written to target/compare (target/compare-bf16 etc. with another matrix
multiplication precision, which is set in PyTorch as well; target/compare-mkl-as-intel), as
results.json, results.csv, ratios.svg and roofline.svg. The default run takes about twenty minutes
after everything is built.
"""

import argparse
import os
import sys
import time
from pathlib import Path

from cases import cases
from programs import PRECISIONS, PROGRAMS, ROOT, ProgramEnded, Programs, other_cpu_seconds
from report import read, report, write

SETTLE = 0.05  # seconds after which spinning threads of idle programs are asleep
TRIES = 3  # the largest number of attempts of a turn


def arguments():
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser("compare", description=__doc__, formatter_class=form)
    every = ",".join(PROGRAMS)
    parser.add_argument("--only", default="", help="groups, or prefixes of case names, separated by commas")
    parser.add_argument("--programs", default=every, help=f"programs to compare, of {every}")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="threads of every program")
    parser.add_argument("--precision", choices=PRECISIONS, default="f32", help="matmul precision")
    avx512 = "make PyTorch's MKL take its AVX-512 path on CPUs that are not Intel's; requires cc"
    parser.add_argument("--mkl-as-intel", action="store_true", help=avx512)
    parser.add_argument("--turns", type=int, default=5, help="turns per case and program")
    parser.add_argument("--seconds", type=float, default=0.2, help="seconds of a turn")
    parser.add_argument("--out", type=Path, help="output folder [target/compare..]")
    parser.add_argument("--add", action="store_true", help="add to the results in that folder")
    parser.add_argument("--build", action="store_true", help="build the required programs and exit")
    parser.add_argument("--show", action="store_true", help="print the results in that folder and exit")
    parser.add_argument("--list", action="store_true", help="list the cases and exit")
    args = parser.parse_args()
    suffix = "" if args.precision == "f32" else f"-{args.precision}"
    suffix += "-mkl-as-intel" if args.mkl_as_intel else ""
    args.out = args.out or ROOT / "target" / f"compare{suffix}"
    return args


class Side:
    """One case, executed by one program."""

    def __init__(self, label, program, work):
        self.label, self.program, self.work = label, program, work
        self.times, self.counts, self.numbers, self.disturbed = [], None, [], 0

    def open(self):
        self.counts = self.program.open(self.work)
        return self.counts is not None

    def turn(self, seconds):
        """Measures one turn; repeats it if other processes used the CPU during it."""
        for left in range(TRIES - 1, -1, -1):
            time.sleep(SETTLE)
            before, start = other_cpu_seconds(self.program), time.perf_counter()
            seconds_of_a_call = self.program.run(seconds)
            took = time.perf_counter() - start
            used = other_cpu_seconds(self.program) - before
            # CPU times are multiples of a clock tick, which is 10 ms for each processor.
            disturbed = used > 0.03 + 0.05 * took
            if not disturbed or not left:
                break
            time.sleep(0.5)
        self.times.append(seconds_of_a_call)
        self.disturbed += disturbed


def difference(case, ours, theirs):
    """The largest relative difference between two results; None if unknown."""
    pairs = list(zip(ours, theirs))
    if not pairs:
        return None
    if case.losses:
        return max(abs(a - b) / abs(a) for a, b in pairs)
    # Two numbers per tensor (`digest` in data.rs): the root mean square, and a random projection of
    # the same magnitude. Both differences are relative to the root mean square.
    sizes = [a for a, _ in pairs[::2] for _ in range(2)]
    return max(abs(a - b) / (size or 1) for (a, b), size in zip(pairs, sizes))


def compare(programs, case, turns, seconds):
    """A row of the results: the times of a case, or None if no other library is available."""
    sides = [Side("ours", programs.get("ours"), case.name)]
    for rival in case.rivals:
        if program := programs.get(rival.program):
            sides.append(Side(rival.name, program, case.name.replace(*rival.rename)))
    if len(sides) == 1:
        return None
    if case.slow:
        turns, seconds = (turns + 1) // 2, 0
    # A program has one open case at a time: if it is on two sides, every turn opens its case again.
    shared = sum(s.program is sides[0].program for s in sides) > 1

    def each(do):
        """Calls do(side) for every side. Removes sides whose program ends or does not support the case."""
        for side in list(sides):
            try:
                if not do(side):
                    sides.remove(side)
            except ProgramEnded as ended:
                print(ended, file=sys.stderr)
                programs.discard(ended.program)
                sides.remove(side)

    def prepare(side):
        if not side.open():
            return False
        if case.checked:
            side.numbers = side.program.check(case.calls)
        side.program.run(0 if case.slow else min(seconds, 0.1))  # warms up
        return True

    def turn(side):
        if shared:
            side.open()
            side.program.run(0)
        side.turn(seconds)
        return True

    each(prepare)
    for _ in range(turns):
        each(turn)
    for program in {side.program for side in sides}:
        program.close()
    if len(sides) < 2 or sides[0].label != "ours":
        return None
    ours, *others = sides
    digits = {"bf16": 10}.get(programs.precision, 1)  # bf16 results agree to one digit less
    tolerances = {rival.name: rival.tolerance * digits for rival in case.rivals}
    differences = {}
    for side in others:
        apart = difference(case, ours.numbers, side.numbers)
        differences[side.label] = apart
        # The comparison is negated, so that NaN is an error.
        if apart is not None and not apart <= tolerances[side.label]:
            message = f"{case.name}: results of {side.label} differ by {apart:.1e}"
            print(message, ours.numbers, side.numbers, sep="\n", file=sys.stderr)
    return dict(
        group=case.group,
        name=case.name,
        aim=case.aim,
        each=case.each,
        flops=ours.counts[0],
        bytes=ours.counts[1],
        times={side.label: side.times for side in sides},
        disturbed=sum(side.disturbed for side in sides) / sum(len(side.times) for side in sides),
        differences=differences,
        wrong=[k for k, d in differences.items() if d is not None and not d <= tolerances[k]],
    )


def peak_memory(programs, case):
    """A row of the results: peak resident memory minus that of the program after its start."""
    row = dict(group=case.group, name=case.name, aim=case.aim, each=True, bytes_at_peak={})
    for label, name in [("ours", "ours"), *((r.name, r.program) for r in case.rivals)]:
        if not programs.get(name):
            continue
        program = programs.start_program(name)
        try:
            program.reset_peak()
            before = program.memory("VmRSS")
            if program.open(case.name) is not None:
                program.run(0)
                row["bytes_at_peak"][label] = program.memory("VmHWM") - before
        except ProgramEnded as ended:
            print(ended, file=sys.stderr)
        program.end()
    found = row["bytes_at_peak"]
    return row if len(found) > 1 and "ours" in found else None


def merge_limits(earlier, now):
    """The limits of the machine: the higher values of this run and of an earlier run with as many
    threads, since other load only lowers measured values."""
    levels = [m["name"] for m in now["memory"]]
    if not earlier or earlier["threads"] != now["threads"]:
        return now
    if levels != [m["name"] for m in earlier["memory"]]:
        return now
    pairs = zip(earlier["memory"], now["memory"])
    memory = [new | {"gb": max(old["gb"], new["gb"])} for old, new in pairs]
    return now | {"gflops": max(earlier["gflops"], now["gflops"]), "memory": memory}


def main():
    args = arguments()
    wanted = args.only.split(",")
    groups = {c.group for c in cases()}
    chosen = [c for c in cases() if any(c.named(start, groups) for start in wanted)]
    if not chosen:
        sys.exit(f"no group or case starts with {args.only}; --list lists all cases")
    if args.list:
        for case in chosen:
            print(f"{case.group:24} {case.name}")
        return
    if args.show:
        print(report(read(args.out)))
        return
    unknown = set(args.programs.split(",")) - set(PROGRAMS)
    if unknown:
        sys.exit(f"unknown programs: {', '.join(unknown)}; choose from {', '.join(PROGRAMS)}")
    chosen_programs = {*args.programs.split(","), "ours"}
    programs = Programs(chosen_programs, args.threads, args.precision, args.mkl_as_intel)
    needed = {"ours", *(r.program for c in chosen for r in c.rivals)}
    for name in PROGRAMS:
        if name in needed:
            programs.command(name)
    if args.build:
        return
    if not programs.get("ours"):
        sys.exit("the driver of retrograd did not build or start")
    earlier = args.add and (args.out / "results.json").exists()
    results = read(args.out) if earlier else dict(about={}, rows=[])
    before = results["about"].get("ours")
    if before and before.get("precision", "f32") != args.precision:
        sys.exit(f"{args.out} contains results with another precision")
    if earlier and results.get("mkl_as_intel", False) != args.mkl_as_intel:
        sys.exit(f"{args.out} contains results with the other setting of --mkl-as-intel")
    results["mkl_as_intel"] = args.mkl_as_intel
    limits = merge_limits(before, programs.about["ours"])
    order = {(c.group, c.name): i for i, c in enumerate(cases())}
    results["rows"] = [r for r in results["rows"] if (r["group"], r["name"]) in order]
    started = time.time()
    try:
        for i, case in enumerate(chosen):
            seconds = time.time() - started
            print(f"[{seconds:4.0f} s] {i + 1}/{len(chosen)} {case.name}", file=sys.stderr)
            rows = [compare(programs, case, args.turns, args.seconds)]
            if case.memory:
                rows.append(peak_memory(programs, case))
            for row in filter(None, rows):
                same = (row["group"], row["name"], "times" in row)
                kept = [r for r in results["rows"] if (r["group"], r["name"], "times" in r) != same]
                results["rows"] = sorted([*kept, row], key=lambda r: order[r["group"], r["name"]])
                results["about"] |= programs.about | {"ours": limits}
                write(results, args.out)  # after each case, so that an interrupted run has results
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
    programs.end()
    if not results["rows"]:
        sys.exit("no other library is available: see benches/peers/README.md")
    print(report(results))
    print(f"\nwritten to {args.out}: results.json, results.csv, ratios.svg, roofline.svg")


main()
