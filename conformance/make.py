"""Fills in the expected values and gradients of cases.json. Needs NumPy; README.md describes the format.

Derivatives are computed in forward mode, by dual numbers of decimal numbers of 60 digits: nothing is shared with
the engines that are tested.
"""

import json
import math
from decimal import Decimal, Inexact, getcontext
from functools import reduce
from pathlib import Path

import numpy as np

import runners

CONTEXT = getcontext()
CONTEXT.prec = 60
CONTEXT.traps = dict.fromkeys(CONTEXT.traps, False)  # infinities and NaN as in IEEE 754
ZERO, ONE = Decimal(0), Decimal(1)
# The name of an accepted result is the convention for ties, or for kinks, that it follows.
TIES = {"first": slice(1), "last": slice(-1, None), "even": slice(None)}
KINKS = {"left": ONE, "middle": ONE / 2, "right": ZERO}  # the weight of the derivative from the left


class Dual:
    """`value + slope · ε` with `ε² = 0`. Each derivative has an `ε` of its own, a later one a higher level."""

    def __init__(self, level, value, slope):
        self.level, self.value, self.slope = level, value, slope

    def __add__(self, other):
        return binary(self, other, lambda a, b: a + b, lambda a, b, da, db: da + db)

    def __mul__(self, other):
        return binary(self, other, lambda a, b: a * b, lambda a, b, da, db: da * b + a * db)

    def __truediv__(self, other):
        return binary(self, other, lambda a, b: a / b, lambda a, b, da, db: (da - a / b * db) / b)

    def __rtruediv__(self, other):
        return Dual(self.level, other, ZERO) / self

    def __neg__(self):
        return Dual(self.level, -self.value, -self.slope)

    def __sub__(self, other):
        return self + -other

    def __rsub__(self, other):
        return -self + other

    __radd__, __rmul__ = __add__, __mul__


def parts(x, level):
    """The value and the slope of a level, which is at least that of `x`."""
    return (x.value, x.slope) if isinstance(x, Dual) and x.level == level else (x, ZERO)


def binary(a, b, value, slope):
    assert not isinstance(b, np.ndarray)  # NumPy applies operators to elements
    level = max(x.level for x in (a, b) if isinstance(x, Dual))
    (a, da), (b, db) = parts(a, level), parts(b, level)
    return Dual(level, value(a, b), slope(a, b, da, db))


def number(x):
    """The number without its slopes."""
    return number(x.value) if isinstance(x, Dual) else x


def elementwise(of_number, derivative):
    """A function of arrays, from that of a number and `dy/dx` in terms of `x` and `y`."""
    def f(x):
        if not isinstance(x, Dual):
            return of_number(x)
        y = f(x.value)
        return Dual(x.level, y, x.slope * derivative(x.value, y))

    return np.frompyfunc(f, 1, 1)


def kink(left, right):
    def derivative(x, _):
        weight = {-1: ONE, 0: KINKS.get(convention), 1: ZERO}[int(np.sign(number(x)))]
        return left * weight + right * (1 - weight)

    return derivative


def largest(line):
    ties = [x for x in line if number(x) == max(map(number, line))]
    chosen = ties[TIES[convention]]
    return np.array(sum(chosen) / Decimal(len(chosen)))


def set_item(x, value, at):
    x = x.copy()
    x[at] = value[()]
    return x


exp = elementwise(Decimal.exp, lambda x, y: y)
log = elementwise(Decimal.ln, lambda x, y: ONE / x)
OPS = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "neg": np.negative,
    "pow": lambda x, exponent: reduce(np.multiply, [x] * exponent, np.full(x.shape, ONE)),
    "exp": exp,
    "log": log,
    "sqrt": elementwise(Decimal.sqrt, lambda x, y: ONE / (y + y)),
    "tanh": elementwise(lambda x: ONE - 2 / ((2 * x).exp() + 1), lambda x, y: ONE - y * y),
    "relu": elementwise(lambda x: max(x, ZERO), kink(ZERO, ONE)),
    "abs": elementwise(abs, kink(-ONE, ONE)),
    "sum": lambda x, axis=None: np.sum(x, axis, initial=ZERO),
    "mean": lambda x, axis: np.sum(x, axis, initial=ZERO) / Decimal(x.shape[axis]),
    "max": lambda x, axis: np.apply_along_axis(largest, axis, x),
    "softmax": lambda x, axis: exp(x) / exp(x).sum(axis, keepdims=True),
    "logsumexp": lambda x, axis: log(exp(x).sum(axis)),
    "matmul": np.matmul,
    "reshape": np.reshape,
    "transpose": np.transpose,
    "broadcast": np.broadcast_to,
    "slice": lambda x, ranges: x[tuple(slice(*r) for r in ranges)],
    "where": lambda a, b, mask: np.where(mask, a, b),
    "detach": np.frompyfunc(number, 1, 1),
    "set_item": set_item,
}
ARRAYS = {name: lambda *of, f=f, **options: np.array(f(*of, **options), object) for name, f in OPS.items()}


def gradient(steps, inputs, y, x, level):
    """The derivative of the sum of `y` by each element of `x`."""
    out = np.full(inputs[x].shape, ZERO)
    for i in np.ndindex(out.shape):
        moved = inputs[x].copy()
        moved[i] = Dual(level, moved[i], ONE)
        result = run(steps, {**inputs, x: moved}, level + 1)[y]
        out[i] = parts(np.sum(result, initial=ZERO), level)[1]
    return out


def run(steps, inputs, level=0):
    """The variables by name, as arrays of numbers."""
    def grad(ys, x, _, steps, inputs):
        return np.array(sum(gradient(steps, inputs, y, x, level) for y in ys), object)

    return runners.run({**ARRAYS, "grad": grad, "backward": grad}, steps, inputs)


def values(x):
    """Elements as JSON: whole numbers without a point, and text for what is not finite."""
    floats = [float(number(v)) for v in np.ravel(x)]
    return [str(v) if not math.isfinite(v) else int(v) if v.is_integer() else v for v in floats]


def fill(case):
    """Computes what is expected, under each convention that is accepted. Results of other names are written by
    hand. `exact` says that no number was rounded, and that all are numbers of 32 bits."""
    global convention
    inputs = {n: np.array([Decimal(v) for v in x["values"]], object).reshape(x["shape"])
              for n, x in case["inputs"].items()}
    names = {c: None for want in case["expect"].values() for c in (want or {}).get("accepted", ())}
    CONTEXT.clear_flags()
    results, floats = {}, []
    for convention in [c for c in names if c in TIES | KINKS] or ["exact"]:
        results[convention] = run(case["steps"], inputs)
    for name, want in case["expect"].items():
        result = results[convention][name]
        case["expect"][name] = {"shape": list(result.shape), "values": values(result)}
        floats += map(float, values(result))
        if want and "accepted" in want:
            computed = {c: values(env[name]) for c, env in results.items() if c in want["accepted"]}
            case["expect"][name] = {"shape": list(result.shape), "accepted": want["accepted"] | computed}
    case["exact"] = not CONTEXT.flags[Inexact] and all(np.float32(v) == v or v != v for v in floats)


def written(cases):
    """JSON with a line for each step and each tensor."""
    def part(x):
        lines = map(json.dumps, x) if isinstance(x, list) else (f'"{n}": {json.dumps(v)}' for n, v in x.items())
        opening, closing = "[]" if isinstance(x, list) else "{}"
        return opening + ",".join(f"\n   {line}" for line in lines) + closing

    texts = [",\n  ".join(f'"{n}": {part(x) if isinstance(x, (list, dict)) else json.dumps(x)}'
                          for n, x in case.items()) for case in cases]
    return "[\n" + ",\n".join(f" {{{text}}}" for text in texts) + "\n]\n"


if __name__ == "__main__":
    path = Path(__file__).with_name("cases.json")
    cases = json.loads(path.read_text(encoding="utf-8"))
    for case in cases:
        fill(case)
    path.write_text(written(cases), encoding="utf-8")
