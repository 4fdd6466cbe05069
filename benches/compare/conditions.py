"""The conditions of a measurement: date, CPU, clock settings, load average. No names of hosts or folders."""

import datetime
import os
import time


def utc(seconds):
    """The date and time of seconds since 1970."""
    date = datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc)
    return date.strftime("%Y-%m-%dT%H:%M:%SZ")


def now():
    return utc(int(time.time()))


def machine(watch, about, threads):
    """What a record says of the machine; `about` is the answer of retrograd's driver."""
    return dict(
        cpu=about.get("cpu") or "unknown CPU",
        cores=len(watch.cores),
        threads=threads,
        level=about.get("level"),
        precision=about.get("precision", "f32"),
        gflops=about.get("gflops"),
        governor=about.get("governor"),
        turbo=about.get("turbo"),
    )


def load_average():
    """The load average of the last minute."""
    return round(os.getloadavg()[0], 2)


def many(n, name):
    return f"{n} {name}" + ("" if n == 1 else "s")


def sentence(date, commit, machine, average):
    """The conditions in a line."""
    turbo = {True: "on", False: "off", None: "not readable"}[machine["turbo"]]
    clock = [f"governor {machine['governor'] or 'not readable'}", f"turbo {turbo}"]
    parts = [date, commit, machine["cpu"], machine["level"] or "unknown level"]
    parts += [f"{many(machine['threads'], 'thread')} on {many(machine['cores'], 'core')}", f"load average {average:.2f}", *clock]
    return ", ".join(parts)
