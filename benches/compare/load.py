"""The load of other processes on the cores that are used, and waiting until it has gone.

/proc/stat counts the busy time of every core; the CPU time of the programs that are measured is subtracted.
What remains is that of other processes and, as steal time, of other virtual machines.
"""

import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")  # CPU times are multiples of a tick, which is 10 ms, for each core
WINDOW = 0.1  # seconds that are watched before a turn; threads that spin when they are idle sleep then
PAUSE = 0.5  # seconds between two looks at a busy machine


def usable_cores():
    """The cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return frozenset(os.sched_getaffinity(0))
    return frozenset(range(os.cpu_count() or 1))


def disturbed(used, took):
    """Whether `used` CPU seconds of other processes within `took` seconds disturb a measurement."""
    return used > 0.03 + 0.05 * took


def busy_seconds(stat, cores):
    """CPU seconds of these cores so far, steal time included, from the text of /proc/stat."""
    ticks = 0
    for line in stat.splitlines():
        name, *fields = line.split()
        if name.startswith("cpu") and name[3:].isdigit() and int(name[3:]) in cores:
            user, nice, system, _idle, _waiting, interrupts, soft, stolen = map(int, fields[:8])
            ticks += user + nice + system + interrupts + soft + stolen
    return ticks / TICKS


def process_seconds(stat):
    """CPU seconds of a process, user and system, from the text of /proc/PID/stat."""
    fields = stat.rsplit(")", 1)[1].split()  # its name, in brackets, may contain anything
    return (int(fields[11]) + int(fields[12])) / TICKS


@dataclass(frozen=True)
class Used:
    """CPU seconds of other processes within some seconds."""

    seconds: float
    took: float

    @property
    def cores(self):
        """How many cores they used on average."""
        return max(self.seconds, 0) / self.took if self.took > 0 else 0.0

    @property
    def disturbs(self):
        return disturbed(self.seconds, self.took)


class Watch:
    """The load of others on the cores that this process and its children may use.

    `patience` is how many seconds it waits for a quiet machine, all turns together.
    """

    def __init__(self, patience=0.0):
        self.cores = usable_cores()
        self.patience, self.waited, self.noticed = patience, 0.0, False

    def others(self, programs):
        """CPU seconds so far of all processes but this one and `programs`, on the used cores."""
        own = [Path("/proc/self/stat"), *(Path(f"/proc/{p.process.pid}/stat") for p in programs)]
        busy = busy_seconds(Path("/proc/stat").read_text(), self.cores)
        return busy - sum(process_seconds(path.read_text()) for path in own)

    def during(self, do, programs):
        """What do() returns, and the load of others meanwhile."""
        before, start = self.others(programs), time.perf_counter()
        result = do()
        took = time.perf_counter() - start
        # Ticks may add up to a little more than there is.
        return result, Used(min(self.others(programs) - before, took * len(self.cores)), took)

    def quiet(self, programs):
        """Waits until the cores are quiet or patience ends; returns the load that was seen last."""
        while True:
            _, used = self.during(lambda: time.sleep(WINDOW), programs)
            if not used.disturbs:
                return used
            if not self.noticed:
                self.noticed = True
                print(self.warning(used), file=sys.stderr)
            if self.waited >= self.patience:
                return used
            time.sleep(PAUSE)
            self.waited += PAUSE + WINDOW

    def warning(self, used):
        first = f"warning: other processes use {used.cores:.1f} of the {len(self.cores)} cores that are used"
        if self.patience > 0:
            return f"{first}; turns wait for them, {self.patience:g} s in all, and are marked with ! after that"
        return f"{first}; cases that they disturb are marked with !"
