"""Turns: the times of a case in one program, and whether the results of two programs agree."""

import statistics

TRIES = 3  # the largest number of attempts of a turn


class Side:
    """One case, executed by one program."""

    def __init__(self, label, program, work):
        self.label, self.program, self.work = label, program, work
        self.times, self.counts, self.numbers, self.disturbed = [], None, [], 0
        self.before, self.during = [], []  # cores that other processes used, by turn

    def open(self):
        self.counts = self.program.open(self.work)
        return self.counts is not None

    def prepare(self, case, seconds):
        """Opens the case, executes what is compared with other programs, and warms up."""
        if not self.open():
            return False
        if case.checked:
            self.numbers = self.program.check(case.calls)
        self.program.run(0 if case.slow else min(seconds, 0.1))
        return True

    def turn(self, seconds, watch, programs):
        """Measures one turn; repeats it if other processes used the cores during it.

        `programs` are all that run: between turns they are idle, though their threads may spin for a
        moment, which is no load of others.
        """
        for left in range(TRIES - 1, -1, -1):
            before = watch.quiet(programs)
            seconds_of_a_call, used = watch.during(lambda: self.program.run(seconds), [self.program])
            if not used.disturbs or not left:
                break
        self.times.append(seconds_of_a_call)
        self.before.append(before.cores)
        self.during.append(used.cores)
        self.disturbed += before.disturbs or used.disturbs


def load_of(sides):
    """The load of other processes beside the turns of these sides, and the share that it disturbed."""
    before, during = ([x for s in sides for x in getattr(s, name)] for name in ("before", "during"))
    load = {"disturbed": sum(s.disturbed for s in sides) / max(sum(len(s.times) for s in sides), 1)}
    for name, cores in (("before", before), ("during", during)):
        if cores:
            median, most = statistics.median(cores), max(cores)
            load[f"others_{name}"] = {"median": round(median, 3), "most": round(most, 3)}
    return load


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
