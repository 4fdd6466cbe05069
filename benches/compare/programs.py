"""The programs that execute the work: building, starting, communicating, measuring."""

import functools
import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TARGET = Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target").resolve()
PEERS = ROOT / "benches" / "peers"
TORCH = [os.environ.get("PYTHON", sys.executable), str(PEERS / "torch" / "driver.py")]
# Builds retrograd's program, benches/driver.rs.
DRIVER = ["cargo", "bench", "--package", "retrograd-benches", "--features", "peers", "--bench", "driver", "--no-run"]


def ours():
    return [built(DRIVER, "driver")]


def peer(package, target, *features):
    """Builds the driver of another library, and returns its command.

    Each has its own target folder, since builds with different features would overwrite each other.
    """
    command = ["cargo", "build", "--release", "--package", package, *features]
    command += ["--manifest-path", str(PEERS / "Cargo.toml")]
    command += ["--target-dir", str(TARGET / "peers" / target)]
    return [built(command, package)]


# The functions that return the command of each program, and build it if necessary.
PROGRAMS = {
    "ours": ours,
    "torch": lambda: [*TORCH, "eager"],
    "torch-fused": lambda: [*TORCH, "fused"],
    "torch-compile": lambda: [*TORCH, "compile"],
    "openblas": lambda: [*TORCH, "numpy"],
    "candle": lambda: peer("peer-candle", "candle"),
    "candle-best": lambda: peer("peer-candle", "candle-best", "--features", "best"),
    "burn": lambda: peer("peer-burn", "burn"),
    "burn-best": lambda: peer("peer-burn", "burn-best", "--features", "best"),
}

# Matrix multiplication precisions, and the programs that have the setting. In PyTorch it is
# set_float32_matmul_precision, with "highest", "highest", "high" and "medium" in this order.
PRECISIONS = ("f32", "bf16x6", "bf16x3", "bf16")
WITH_PRECISION = ("ours", "torch", "torch-fused", "torch-compile")

# Makes retrograd's driver silent about the load of other processes, which is watched here.
NO_WARNING = "--no-warning"


def built(command, target, cwd=ROOT, target_folder=None):
    """Builds a target and returns the path of its executable."""
    command = [*command, "--message-format", "json-render-diagnostics"]
    env = os.environ | ({"CARGO_TARGET_DIR": str(target_folder)} if target_folder else {})
    done = subprocess.run(command, cwd=cwd, env=env, stdout=subprocess.PIPE, text=True, check=True)
    for line in done.stdout.splitlines():
        message = json.loads(line)
        if message.get("executable") and message["target"]["name"] == target:
            return message["executable"]
    raise FileNotFoundError(target)


@functools.cache
def mkl_as_intel():
    """Builds the library that makes MKL take its AVX-512 path on CPUs that are not Intel's."""
    library = TARGET / "peers" / "mkl_as_intel.so"
    library.parent.mkdir(parents=True, exist_ok=True)
    source = PEERS / "torch" / "mkl_as_intel.c"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    return str(library)


class ProgramEnded(Exception):
    """A program ended unexpectedly."""

    def __init__(self, program, line):
        super().__init__(f"{program.name} ended unexpectedly on: {line}")
        self.program = program


class Program:
    """A running program, idle between requests. `about` asks it for the limits of the machine."""

    def __init__(self, name, command, threads, about=True):
        counts = ("RAYON_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
        env = os.environ | {variable: str(threads) for variable in counts}
        self.name = name
        self.process = subprocess.Popen(
            command,
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # so that Ctrl-C is not sent to the program
        )
        self.about = json.loads(self.request("about")) if about else None

    def request(self, line):
        """Sends a request and returns the response."""
        try:
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()
        except OSError:
            raise ProgramEnded(self, line) from None
        answer = self.process.stdout.readline()
        if not answer:
            raise ProgramEnded(self, line)
        return answer.strip()

    def open(self, work):
        """Operations and bytes of the work, or None if the program has no such work."""
        answer = self.request(f"open {work}").split()
        return None if answer[0] == "unknown" else tuple(map(float, answer[1:]))

    def check(self, calls):
        """A few numbers that summarise the results of `calls` calls."""
        return [float(x) for x in self.request(f"check {calls}").split()]

    def run(self, seconds):
        """The median time of a call over about `seconds` seconds, in seconds."""
        return float(self.request(f"run {seconds}").split()[0])

    def close(self):
        self.request("close")

    def memory(self, which):
        """`VmRSS`, the resident memory, or `VmHWM`, its peak; bytes."""
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(int(x.split()[1]) * 1024 for x in lines if x.startswith(which + ":"))

    def reset_peak(self):
        """Resets the peak memory, since measuring the machine allocates large blocks."""
        Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")

    def end(self):
        try:
            self.process.stdin.close()
        except OSError:
            pass  # it has ended already
        try:
            self.process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self.process.kill()  # it is executing a request
            self.process.wait()


class Programs:
    """The selected programs; each is started when it is first used."""

    def __init__(self, allowed, threads, precision, mkl_as_intel):
        self.allowed, self.threads, self.precision = allowed, threads, precision
        self.mkl_as_intel = mkl_as_intel
        self.commands, self.running, self.about = {}, {}, {}

    def command(self, name):
        """The command of a program, or None if it is not available."""
        if name not in self.commands:
            command = None
            if name in self.allowed:
                try:
                    command = PROGRAMS[name]()
                    if name in WITH_PRECISION:
                        command = [*command, "--precision", self.precision]
                    if name == "ours":
                        command = [*command, NO_WARNING]
                    if self.mkl_as_intel and name.startswith("torch"):
                        command = [*command, "--mkl-as-intel", mkl_as_intel()]
                except (subprocess.CalledProcessError, FileNotFoundError) as error:
                    print(f"{name} is skipped: it does not build: {error}", file=sys.stderr)
            self.commands[name] = command
        return self.commands[name]

    def start_program(self, name):
        return Program(name, self.command(name), self.threads)

    def get(self, name):
        """The running program of that name, or None."""
        if name not in self.running:
            try:
                self.running[name] = self.start_program(name) if self.command(name) else None
            except (OSError, ProgramEnded) as error:
                print(f"{name} is skipped: {error}", file=sys.stderr)
                self.running[name] = None
            if program := self.running[name]:
                self.about[name] = program.about
        return self.running[name]

    def all(self):
        """The programs that run."""
        return list(filter(None, self.running.values()))

    def discard(self, program):
        """Removes a program that ended; it is started again when it is next used."""
        program.end()
        del self.running[program.name]

    def end(self):
        for program in self.all():
            program.end()
