"""Compares the speed of retrograd with that of other libraries, or of another commit, in alternating turns.

    PYTHON=python-with-torch python3 benches/compare
    python3 benches/compare --against COMMIT

Every case is measured in alternating turns: retrograd, the other library, retrograd, .., while all
other programs are idle. The result of a turn is the median time of its calls. The ratio is the other
library's median over all turns divided by retrograd's: above 1, retrograd is faster. The lowest and
highest ratio of neighbouring turns are printed beside it. A turn begins when other processes and other
virtual machines leave the cores alone, or after --wait seconds, which all turns share. It is repeated if
they used more CPU time during it than 30 ms plus a twentieth of its duration (40 ms for a turn of 0.2 s).
A case is marked with "!" if a turn was still disturbed at the third attempt. Before a case is timed, all
programs run it on the same operands, and their results must agree. A library that is missing or
does not build is skipped, with a message.

The default run takes about twenty minutes after everything is built. --precision sets the precision of
matrix multiplication in PyTorch as well.

With --against, the other program is retrograd's own driver, built from that commit in a temporary worktree.
The table says of each case whether the working tree is faster, slower, or no difference was found;
benches/README.md explains the verdicts. The exit code is 0, or 1 if a case is slower than --fail-below, or 2
after an error.

Both append a record of each case, with date, commit, CPU and load, to a file of JSON lines.
"""

import argparse
import math
import os
import sys
import time
from pathlib import Path

import conditions
from against import pit
from cases import cases
from commits import CommitError, working_tree
from load import Watch, usable_cores
from programs import PRECISIONS, PROGRAMS, TARGET, ProgramEnded, Programs
from records import append, record, timing
from report import report
from turns import Side, difference, load_of


def core_list(text):
    """The cores in a list such as `2,3` or `0-3`."""
    cores = set()
    try:
        for part in text.split(","):
            first, _, last = part.partition("-")
            cores |= set(range(int(first), int(last or first) + 1))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no list of cores such as 2,3 or 0-3") from None
    if absent := cores - usable_cores():
        raise argparse.ArgumentTypeError(f"this process may not use core {min(absent)}")
    return cores


def positive(text):
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not positive")
    return value


def seconds(text):
    value = float(text)
    if not 0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is no time in seconds")
    return value


def fail(text):
    """Ends with the exit code of errors."""
    print(f"compare: {text}", file=sys.stderr)
    sys.exit(2)


def arguments():
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser("compare", description=__doc__, formatter_class=form)
    every = ",".join(PROGRAMS)
    parser.add_argument("--only", default="", help="groups, or prefixes of case names, separated by commas")
    parser.add_argument("--programs", default=every, help=f"programs to compare, of {every}")
    parser.add_argument("--cores", type=core_list, help="cores that all programs run on [all]")
    parser.add_argument("--threads", type=positive, help="threads of every program [as many as cores]")
    parser.add_argument("--precision", choices=PRECISIONS, default="f32", help="matmul precision")
    avx512 = "make PyTorch's MKL take its AVX-512 path on CPUs that are not Intel's; requires cc"
    parser.add_argument("--mkl-as-intel", action="store_true", help=avx512)
    parser.add_argument("--turns", type=positive, help="turns per case and program [5; 15 with --against]")
    parser.add_argument("--seconds", type=seconds, default=0.2, help="seconds of a turn")
    wait = "seconds, all turns together, to wait for other processes to leave the cores alone"
    parser.add_argument("--wait", type=seconds, default=60.0, help=wait)
    parser.add_argument("--against", metavar="COMMIT", help="compare the working tree with this commit")
    least = "the least difference that is called faster or slower, as a fraction [0.01]"
    parser.add_argument("--least", type=float, default=0.01, help=least)
    fail = "with --against: exit with 1 if a case is slower and its ratio below this"
    parser.add_argument("--fail-below", type=float, metavar="RATIO", help=fail)
    save = "file of JSON lines to append to [target/benches/results/DATE.jsonl]"
    parser.add_argument("--save", type=Path, metavar="FILE", help=save)
    parser.add_argument("--list", action="store_true", help="list the cases and exit")
    args = parser.parse_args()
    if args.fail_below is not None and args.against is None:
        parser.error("--fail-below requires --against")
    cores = args.cores or usable_cores()
    args.threads = args.threads or len(cores)
    args.turns = args.turns or (15 if args.against else 5)
    if args.save is None:
        args.save = TARGET / "benches" / "results" / f"{conditions.now().replace(':', '')}.jsonl"
    return args


def compare(programs, case, turns, seconds, watch):
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

    def turn(side):
        if shared:
            side.open()
            side.program.run(0)
        side.turn(seconds, watch, programs.all())
        return True

    each(lambda side: side.prepare(case, seconds))
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
        **load_of(sides),
        differences=differences,
        wrong=[k for k, d in differences.items() if d is not None and not d <= tolerances[k]],
    )


def peak_memory(programs, case):
    """A row of the results: peak resident memory minus that of the program after its start."""
    row = dict(group=case.group, name=case.name, aim=case.aim, each=True, bytes_at_peak={})
    rivals = ((r.name, r.program, case.name.replace(*r.rename)) for r in case.rivals)
    for label, name, work in [("ours", "ours", case.name), *rivals]:
        if not programs.get(name):
            continue
        program = programs.start_program(name)
        try:
            program.reset_peak()
            before = program.memory("VmRSS")
            if program.open(work) is not None:
                program.run(0)
                row["bytes_at_peak"][label] = program.memory("VmHWM") - before
        except ProgramEnded as ended:
            print(ended, file=sys.stderr)
        program.end()
    found = row["bytes_at_peak"]
    return row if len(found) > 1 and "ours" in found else None


def here():
    """The commit of the working tree, or None where there is no repository."""
    try:
        return working_tree()[0]
    except CommitError as error:
        print(f"the commit is unknown, and no records are written: {error}", file=sys.stderr)
        return None


def record_of(case, row, commit, conditions_of, average):
    """The record of a row of times; other libraries are named, but no commit is compared with."""
    date, machine, before = conditions_of
    load = dict(average_before=before, average_during=average)
    load |= {key: row[key] for key in ("disturbed", "others_before", "others_during") if key in row}
    return record(case, date, machine, load, timing(commit, row["times"]["ours"]))


def main():
    args = arguments()
    wanted = args.only.split(",")
    groups = {c.group for c in cases()}
    chosen = [c for c in cases() if any(c.named(start, groups) for start in wanted)]
    unknown = [start for start in wanted if not any(c.named(start, groups) for c in cases())]
    if unknown:
        fail(f"no group or case starts with {', '.join(unknown)}; --list lists all cases")
    if args.list:
        for case in chosen:
            print(f"{case.group:24} {case.name}")
        return
    if args.against is not None:
        # A case may be in two groups, with other libraries to compare with.
        names = [c.name for c in chosen]
        sys.exit(pit(args, [c for i, c in enumerate(chosen) if c.name not in names[:i]]))
    unknown = set(args.programs.split(",")) - set(PROGRAMS)
    if unknown:
        fail(f"unknown programs: {', '.join(unknown)}; choose from {', '.join(PROGRAMS)}")
    chosen_programs = {*args.programs.split(","), "ours"}
    programs = Programs(chosen_programs, args.threads, args.precision, args.mkl_as_intel)
    needed = {"ours", *(r.program for c in chosen for r in c.rivals)}
    for name in PROGRAMS:
        if name in needed:
            programs.command(name)
    if args.cores:
        os.sched_setaffinity(0, args.cores)
    watch, commit = Watch(args.wait), here()
    if not programs.get("ours"):
        fail("the driver of retrograd did not build or start")
    machine = conditions.machine(watch, programs.about["ours"], args.threads)
    results = []
    name = f"commit {commit.label}" if commit else "unknown commit"
    measured = conditions.sentence(conditions.now(), name, machine, conditions.load_average())
    started = time.time()
    try:
        for i, case in enumerate(chosen):
            seconds = time.time() - started
            print(f"[{seconds:4.0f} s] {i + 1}/{len(chosen)} {case.name}", file=sys.stderr)
            now = conditions.now(), machine, conditions.load_average()
            rows = [compare(programs, case, args.turns, args.seconds, watch)]
            if rows[0] and commit:
                average = conditions.load_average()
                append(args.save, [record_of(case, rows[0], commit, now, average)])
            if case.memory:
                rows.append(peak_memory(programs, case))
            results += filter(None, rows)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
    programs.end()
    if not results:
        fail("no other library is available: see benches/peers/README.md")
    print(report(results, programs.about, measured))
    if commit:
        print(f"\nrecords of these results: {args.save}")


main()
