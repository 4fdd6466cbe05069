"""Reads the path of a model and prompts, and prints what another program appends to them."""
import json
import os
import sys
import time

# Programs print notes: the result has a pipe of its own.
result = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
task = json.load(sys.stdin)


def continued(prompt, begin, agrees, speed):
    """The most probable tokens after a prompt, and the logits of each."""
    step, new, tokens, rows = begin(), prompt["tokens"], [], []
    start = time.perf_counter()
    while len(rows) < prompt["count"] and (row := step(new)) is not None:
        rows.append(row)
        new = [row.index(max(row))]
        tokens += new
    seconds = speed(prompt) if speed else time.perf_counter() - start
    same = agrees(prompt["text"], prompt["tokens"]) if agrees and prompt["text"] is not None else None
    return {"tokens": tokens, "logits": rows, "seconds": seconds, "agrees": same}


try:
    # `load` is that of the target.
    program, *functions = load(task["path"], task["vocab"])  # noqa: F821
    results = [continued(prompt, *functions) for prompt in task["prompts"]]
except Exception as error:
    sys.exit(f"{type(error).__name__}: {error}")
json.dump({"program": program, "results": results}, result)
result.close()
