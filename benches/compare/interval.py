"""The median of ratios, an interval that contains it, and the verdict.

The interval is that of the sign test: from the k-th lowest to the k-th highest ratio. If ratios of turns are
independent, the probability that the true median lies below the k-th lowest of n is P(Bin(n, 1/2) < k),
whatever their distribution, and the same above. k is the largest number with which the interval contains the
median with a probability of at least 99 %. (W. J. Conover, Practical Nonparametric Statistics, section 3.2.)
"""

import math
import statistics
from dataclasses import dataclass

COVERAGE = 0.99
LEAST_TURNS = 8  # the smallest number with which the interval from lowest to highest has that coverage
FASTER, SLOWER = "faster", "slower"
NONE, TOO_FEW = "no difference found", "too few turns"


@dataclass(frozen=True)
class Interval:
    median: float
    low: float
    high: float
    coverage: float  # the probability that the interval contains the true median
    turns: int

    def verdict(self, least=0.0):
        """Whether the interval lies above 1 or below it, and its median by more than `least`."""
        if self.coverage < COVERAGE:
            return TOO_FEW
        if self.low > 1 and self.median > 1 + least:
            return FASTER
        if self.high < 1 and self.median < 1 - least:
            return SLOWER
        return NONE


def coverage(n, k):
    """The probability that the median lies between the k-th lowest and the k-th highest of n."""
    return 1 - 2 * sum(math.comb(n, i) for i in range(k)) / 2**n


def interval(ratios):
    """The median of the ratios and its interval. With fewer than eight, that is from the lowest to the
    highest, with less coverage."""
    if not ratios or not all(math.isfinite(r) and r > 0 for r in ratios):
        raise ValueError(f"ratios must be positive and finite: {ratios}")
    ordered, n = sorted(ratios), len(ratios)
    k = 1
    while 2 * (k + 1) <= n and coverage(n, k + 1) >= COVERAGE:
        k += 1
    return Interval(statistics.median(ordered), ordered[k - 1], ordered[-k], max(coverage(n, k), 0.0), n)
