"""Reads the path of a model and prompts, and prints what another program does with them."""
import json
import os
import sys

# Programs print notes: the result has a pipe of its own.
result = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
task = json.load(sys.stdin)
try:
    # `run` is that of the target.
    program, results = run(task["path"], task["prompts"], task["vocab"])  # noqa: F821
except Exception as error:
    sys.exit(f"{type(error).__name__}: {error}")
json.dump({"program": program, "results": results}, result)
result.close()
