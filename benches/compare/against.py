"""Pits the working tree against a commit: both drivers in alternating turns, case by case."""

import math
import os
import subprocess
import sys
import time
from dataclasses import asdict

import conditions
from commits import FOLDER, CommitError, driver_of, kept, resolve, working_tree
from interval import LEAST_TURNS, SLOWER, TOO_FEW, interval
from load import Watch
from programs import NO_WARNING, Program, ProgramEnded, ours
from records import append, record, timing
from report import lines_of, quantity
from turns import Side, difference, load_of

BLOCK = 5  # turns after which both programs are started again

TOLERANCES = {"bf16": 1e-2}  # of the relative difference of results, by precision; else 1e-3

GONE = "no such case"
ENDED = "ended unexpectedly"
FAILED = 2  # the exit code of errors; 1 is that of --fail-below


class Sides:
    """The drivers of the working tree and of the other commit."""

    def __init__(self, commits, commands, threads):
        self.commits, self.threads = commits, threads
        self.commands = commands

    def start(self, which, about=False):
        return Program(self.name(which), self.commands[which], self.threads, about)

    def name(self, which):
        return "the working tree" if which == "now" else self.commits["base"].short


def blocks(turns):
    """The turns in blocks, each with the side that begins: the working tree and the commit in turns."""
    for i, start in enumerate(range(0, turns, BLOCK)):
        yield min(BLOCK, turns - start), ("base", "now") if i % 2 == 0 else ("now", "base")


def turns_of(case, turns):
    """Turns of a case: half for those with calls of seconds, yet enough for a verdict."""
    return min(turns, max(LEAST_TURNS, turns // 2)) if case.slow else turns


def measure(sides, case, turns, seconds, watch):
    """A dict with the times of a case in both programs, or with `why` there are none."""
    joined = {which: Side(which, None, case.name) for which in ("now", "base")}
    seconds = 0 if case.slow else seconds
    for count, order in blocks(turns_of(case, turns)):
        programs = {}
        try:
            for which in order:
                programs[which] = sides.start(which)
                joined[which].program = programs[which]
                if not joined[which].prepare(case, seconds):
                    return {"why": GONE, "side": which}
            for _ in range(count):
                for which in order:
                    joined[which].turn(seconds, watch, list(programs.values()))
        except ProgramEnded as ended:
            print(ended, file=sys.stderr)
            return {"why": ENDED, "side": which}
        finally:
            for program in programs.values():
                program.end()
    return joined


def row(case, commits, machine, joined, least, averages, date):
    """The record of a case that both programs measured."""
    now, base = joined["now"], joined["base"]
    found = interval([b / a for a, b in zip(now.times, base.times)])
    apart = difference(case, now.numbers, base.numbers)
    ratio = asdict(found) | dict(
        least=least,
        verdict=found.verdict(least),
        # NaN is a difference; JSON has none.
        difference=apart if apart is None or math.isfinite(apart) else None,
        agree=None if apart is None else apart <= TOLERANCES.get(machine["precision"], 1e-3),
    )
    load = dict(average_before=averages[0], average_during=averages[1]) | load_of([now, base])
    timings = [timing(commits[which], joined[which].times) for which in ("now", "base")]
    return record(case, date, machine, load, timings[0], timings[1], ratio)


def missing(sides, side, why):
    if why == GONE:
        return f"{sides.name(side)} has no such case" if side == "base" else "not in the working tree"
    return f"{sides.name(side)} {why}"


def table(rows, sides):
    """Rows are records, or pairs of a case and why it has none."""
    base = sides.commits["base"].short
    head = ["case", "working tree", base, "ratio", "verdict", "others' load"]
    lines = [head]
    for found in rows:
        if isinstance(found, tuple):
            case, why = found
            lines.append([case.name, "", "", "", why, ""])
            continue
        ratio, load = found["ratio"], found["load"]
        verdict = ratio["verdict"]
        if ratio["agree"] is False:
            apart = ratio["difference"]
            verdict += "; results differ" + (f" by {apart:.0e}" if apart is not None else "")
        most = max(load["others_before"]["most"], load["others_during"]["most"])
        lines.append(
            [
                found["case"] + (" !" if load["disturbed"] else ""),
                quantity(found["now"]["seconds"], "s"),
                quantity(found["base"]["seconds"], "s"),
                f"{ratio['median']:.3f} ({ratio['low']:.3f} to {ratio['high']:.3f})",
                verdict,
                f"{most:.2f}",
            ]
        )
    return lines_of(lines)


def summary(rows, machine, least):
    """What the table means."""
    records = [r for r in rows if not isinstance(r, tuple)]
    lines = [
        "ratio: the commit's time divided by the working tree's, the median over pairs of neighbouring turns; above",
        "1, the working tree is faster. In brackets the interval of the sign test, which contains the true median",
        "with a probability of at least 99 %. A verdict needs the whole interval on one side of 1, and a median ratio that",
        f"differs from 1 by more than {least:.1%}. others' load: the most cores that other processes used in a turn,",
        f"of {machine['cores']}.",
    ]
    if any(r["ratio"]["verdict"] == TOO_FEW for r in records):
        lines.append(f"With fewer than {LEAST_TURNS} turns the interval is from the lowest to the highest ratio; there is no verdict.")
    if disturbed := sum(r["load"]["disturbed"] > 0 for r in records):
        lines.append(f"{disturbed} of {len(records)} cases, marked with !, were disturbed by other processes.")
    return "\n".join(lines)


def below(rows, limit):
    """The records that are slower than the limit, beyond doubt."""
    records = [r for r in rows if not isinstance(r, tuple)]
    return [r for r in records if r["ratio"]["verdict"] == SLOWER and r["ratio"]["median"] < limit]


def pit(args, chosen):
    """Compares the working tree with args.against; returns the exit code."""
    try:
        base, (head, changed) = resolve(args.against), working_tree()
    except CommitError as error:
        print(f"compare: {error}", file=sys.stderr)
        return FAILED
    if changed:
        some = ", ".join(changed[:5]) + (", .." if len(changed) > 5 else "")
        print(f"The working tree is {head.short} with changes in {len(changed)} files: {some}", file=sys.stderr)
    elif head.sha == base.sha:
        print(f"The working tree is {base.short} itself: differences are those of the method.", file=sys.stderr)
    options = ["--precision", args.precision, NO_WARNING]
    try:
        theirs = driver_of(base)
        commands = {"now": ours()[0], "base": str(theirs)}
    except CommitError as error:
        print(f"compare: {error}", file=sys.stderr)
        return FAILED
    except subprocess.CalledProcessError:
        print("compare: the driver of the working tree does not build; cargo says why above", file=sys.stderr)
        return FAILED
    except FileNotFoundError as error:
        print(f"compare: the driver of the working tree was not built: {error}", file=sys.stderr)
        return FAILED
    commands["now"] = str(kept(commands["now"], FOLDER / "driver-now"))
    commands = {which: [command, *options] for which, command in commands.items()}
    return run(args, chosen, Sides({"now": head, "base": base}, commands, args.threads))


def run(args, chosen, sides):
    if args.cores:
        os.sched_setaffinity(0, args.cores)
    watch, rows, code = Watch(args.wait), [], 0
    commits = sides.commits
    try:
        about = {}
        for which in ("now", "base"):
            program = sides.start(which, about=True)
            about[which] = program.about
            program.end()
    except (ProgramEnded, ValueError) as error:
        print(f"compare: the driver of {sides.name(which)} does not answer: {error}", file=sys.stderr)
        return FAILED
    levels = {which: a.get("level") for which, a in about.items()}
    if None not in levels.values() and len(set(levels.values())) > 1:
        text = f"levels differ: {levels['now']} in the working tree, {levels['base']} in {commits['base'].short}"
        print(text, file=sys.stderr)
    machine = conditions.machine(watch, about["now"], args.threads)
    title = f"{commits['now'].label} against {commits['base'].short}"
    print(conditions.sentence(conditions.now(), title, machine, conditions.load_average()), file=sys.stderr)
    started = time.time()
    try:
        for i, case in enumerate(chosen):
            print(f"[{time.time() - started:4.0f} s] {i + 1}/{len(chosen)} {case.name}", file=sys.stderr)
            date, before = conditions.now(), conditions.load_average()
            joined = measure(sides, case, args.turns, args.seconds, watch)
            if "why" in joined:
                rows.append((case, missing(sides, joined["side"], joined["why"])))
                if joined["side"] == "now":
                    code = FAILED
                continue
            averages = (before, conditions.load_average())
            rows.append(row(case, commits, machine, joined, args.least, averages, date))
            append(args.save, rows[-1:])  # after each case, so that an interrupted run has results
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        code = FAILED
    print(table(rows, sides), "", summary(rows, machine, args.least), sep="\n")
    if all(isinstance(r, tuple) for r in rows):
        print("compare: no case was measured", file=sys.stderr)
        return FAILED
    print(f"written to {args.save}")
    if args.fail_below is not None and (failed := below(rows, args.fail_below)):
        for r in failed:
            print(f"slower than {args.fail_below:g}: {r['case']}, {r['ratio']['median']:.3f}", file=sys.stderr)
        code = code or 1
    return code
