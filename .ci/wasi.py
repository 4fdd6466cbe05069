"""Runs a test program for WebAssembly, each test in an instance of its own, because a panic ends an instance:

CARGO_TARGET_WASM32_WASIP1_RUNNER="python3 .ci/wasi.py" cargo test --target wasm32-wasip1 ..

Needs the package wasmtime.
"""

import os
import re
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import wasmtime

CANNOT_CATCH = 77  # that of `retrograd_support::panics`

program, *arguments = sys.argv[1:]
engine = wasmtime.Engine()
module = wasmtime.Module.from_file(engine, program)
linker = wasmtime.Linker(engine)
linker.define_wasi()


def run(arguments):
    """The exit code of the program with these arguments, and what it prints."""
    with tempfile.TemporaryDirectory() as folder:
        output = os.path.join(folder, "output")
        wasi = wasmtime.WasiConfig()
        wasi.argv = [program, *arguments]
        wasi.env = os.environ.items()
        wasi.preopen_dir("/", "/")
        wasi.stdout_file = output
        wasi.inherit_stderr()
        store = wasmtime.Store(engine)
        store.set_wasi(wasi)
        try:
            linker.instantiate(store, module).exports(store)["_start"](store)
            code = 0
        except wasmtime.ExitTrap as exit:
            code = exit.code
        except wasmtime.Trap as trap:
            code = trap.message
        del store
        with open(output, encoding="utf-8") as file:
            return code, file.read()


def test(name):
    began = time.monotonic()
    code, text = run(["--exact", name, "--nocapture", "--test-threads=1"])
    result = "failed"
    if code == CANNOT_CATCH:
        result = "cannot catch panics"
    elif code == 0:
        result = "ignored" if " 1 ignored;" in text else "passed"
    if result == "failed" or "--nocapture" in arguments:
        print(text, code, sep="\n")
    print(f"test {name} ... {result}, {time.monotonic() - began:.1f} s", flush=True)
    return result


code, text = run(["--list", *(word for word in arguments if not word.startswith("-"))])
if code != 0:
    sys.exit(f"{text}\nthe program cannot list its tests: {code}")
with ThreadPoolExecutor(os.cpu_count()) as pool:
    counts = Counter(pool.map(test, re.findall(r"^(.*): test$", text, re.MULTILINE)))
print("WebAssembly:", ", ".join(f"{count} {result}" for result, count in counts.items()))
sys.exit(counts["failed"] > 0)
