"""Runs cases.json on the engines that are installed, and prints a table in Markdown.

    python conformance/run.py [ENGINE [CASE]]

Every case has a process of its own, so that it may overflow the stack or take too long.
"""

import importlib.metadata
import json
import subprocess
import sys
from pathlib import Path

import numpy as np

from runners import ENGINES, NotExpressible, run

CASES = {c["name"]: c for c in json.loads(Path(__file__).with_name("cases.json").read_text(encoding="utf-8"))}
PACKAGES = {"pytorch": "torch"}
SECONDS = 1800


def agrees(got, want, case, single):
    """Whether the numbers are those expected, which are relative to the largest of the tensor."""
    want = np.array([float(v) for v in want])
    size = np.abs(want[np.isfinite(want)]).max(initial=0)
    tolerance = 1e-5 if single else 0 if case["exact"] else 1e-12
    return np.allclose(got.ravel(), want, rtol=0, atol=tolerance * size, equal_nan=True)


def judge(case, ops):
    """What is wrong, or the conventions that the engine follows."""
    inputs = {name: np.array([float(v) for v in x["values"]]).reshape(x["shape"])
              for name, x in case["inputs"].items()}
    gradients = {step["name"] for step in case["steps"] if step["op"] in ("grad", "backward")}
    try:
        env = run(ops, case["steps"], {name: ops["leaf"](x) for name, x in inputs.items()})
        results = {name: env[name] if env[name] is None else ops["numbers"](env[name]) for name in case["expect"]}
    except NotExpressible as e:
        return f"not expressible: {e}"
    except Exception as e:
        refusals = [want for want in case["expect"].values() if "refused" in want.get("accepted", ())]
        return "pass: refused" if refusals else f"error: {type(e).__name__}: {e}"
    conventions = []
    for name, want in case["expect"].items():
        got = np.zeros(want["shape"]) if results[name] is None else results[name]
        accepted = want.get("accepted", {"": want.get("values")})
        names = [c for c, v in accepted.items()
                 if v is not None and list(got.shape) == want["shape"] and agrees(got, v, case, ops.get("single"))]
        if not names:
            kind = "gradient" if name in gradients else "value"
            return f"wrong {kind}: {name} is {got.tolist()}"
        conventions += names[:1]
    return "pass: " + ", ".join(filter(None, conventions))


def result(engine, case):
    """The verdict of a process of its own."""
    command = [sys.executable, __file__, engine, case]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return f"error: no result after {SECONDS} s"
    return done.stdout.strip() if done.returncode == 0 else f"error: exit code {done.returncode}, {done.stderr[-300:]}"


def cell(verdict):
    """What the table says: of a case that passes, also its conventions."""
    kind, _, detail = verdict.partition(":")
    return "–" if kind == "not expressible" else f"{kind}{detail}" if kind == "pass" else kind


def main(engine=None, case=None):
    engines = {f.__name__: f for f in ENGINES}
    if case:
        print(judge(CASES[case], engines[engine]())[:300].replace("\n", " "))
        return
    columns = {}
    for name in [engine] if engine else engines:
        try:
            version = importlib.metadata.version(PACKAGES.get(name, name))
        except importlib.metadata.PackageNotFoundError:
            continue
        columns[f"{name} {version}"] = {case: result(name, case) for case in CASES}
    print("| case |", " | ".join(columns), "|")
    print("|---" * (len(columns) + 1) + "|")
    for case in CASES:
        print(f"| `{case}` |", " | ".join(cell(verdicts[case]) for verdicts in columns.values()), "|")
    for column, verdicts in columns.items():
        print(f"\n{column}: {sum(v.startswith('pass') for v in verdicts.values())} of {len(CASES)}")
        for case, verdict in verdicts.items():
            if not verdict.startswith(("pass", "not")):
                print(f"- `{case}`: {verdict}")


if __name__ == "__main__":
    main(*sys.argv[1:])
