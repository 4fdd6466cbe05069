"""The conditions of a measurement: date, CPU, clock settings, load average. No names of hosts or folders."""

import datetime
import os
import time
from pathlib import Path

CPUS = Path("/sys/devices/system/cpu")


def utc(seconds):
    """The date and time of seconds since 1970."""
    date = datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc)
    return date.strftime("%Y-%m-%dT%H:%M:%SZ")


def now():
    return utc(int(time.time()))


def first_line(path):
    try:
        return path.read_text().strip().split("\n", 1)[0] or None
    except (OSError, UnicodeDecodeError):
        return None


def cpu_model(text):
    """The name of the CPU in the text of /proc/cpuinfo."""
    for key in ("model name", "Model", "CPU part"):
        for line in text.splitlines():
            name, _, value = line.partition(":")
            if name.strip() == key and value.strip():
                return " ".join(value.split())
    return "unknown CPU"


def cpu():
    """The name of the CPU of this machine."""
    try:
        return cpu_model(Path("/proc/cpuinfo").read_text())
    except OSError:
        return cpu_model("")


def governor(cores, cpus=CPUS):
    """The frequency governors of the cores, or None if they are not readable, as on virtual machines."""
    found = {first_line(cpus / f"cpu{core}" / "cpufreq" / "scaling_governor") for core in cores}
    return ", ".join(sorted(found - {None})) or None


def turbo(cpus=CPUS):
    """Whether the CPU may exceed its nominal clock rate, or None if that is not readable."""
    off = first_line(cpus / "intel_pstate" / "no_turbo")
    if off in ("0", "1"):
        return off == "0"
    on = first_line(cpus / "cpufreq" / "boost")
    return on == "1" if on in ("0", "1") else None


def machine(watch, about, threads):
    """What a record says of the machine; `about` is the answer of retrograd's driver."""
    return dict(
        cpu=cpu(),
        cores=len(watch.cores),
        threads=threads,
        level=about.get("level"),
        precision=about.get("precision", "f32"),
        gflops=about.get("gflops"),
        governor=governor(watch.cores),
        turbo=turbo(),
    )


def load_average():
    """The load average of the last minute."""
    return round(os.getloadavg()[0], 2)


def many(n, name):
    return f"{n} {name}" + ("" if n == 1 else "s")


def sentence(date, commit, machine, average):
    """The conditions in a line."""
    clock = [f"governor {machine['governor']}" if machine["governor"] else "governor not readable"]
    if machine["turbo"] is not None:
        clock.append(f"turbo {'on' if machine['turbo'] else 'off'}")
    else:
        clock.append("turbo not readable")
    parts = [date, commit, machine["cpu"], machine["level"] or "unknown level"]
    parts += [f"{many(machine['threads'], 'thread')} on {many(machine['cores'], 'core')}", f"load average {average:.2f}", *clock]
    return ", ".join(parts)
