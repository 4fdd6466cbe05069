"""A driver without work, which answers the requests of benches/compare. Arguments: the factor of all times, and
the names of the cases it knows, or `ends` on which it ends."""

import random
import sys

factor, *known = sys.argv[1:]
draw = random.Random(7)
for line in sys.stdin:
    word, _, rest = line.strip().partition(" ")
    if word == "about":
        print('{"version": "0", "threads": 1, "level": "scalar", "precision": "f32", "gflops": 1.0}', flush=True)
    elif word == "open":
        if "ends" in known:
            sys.exit(3)
        print("ok 1e3 0" if rest in known else "unknown", flush=True)
    elif word == "check":
        print("1.0 0.5", flush=True)
    elif word == "run":
        print(f"{1e-3 * float(factor) * draw.uniform(0.999, 1.001):e} 10", flush=True)
    else:
        print("ok", flush=True)
