"""The interval of the median and the verdict."""

import math
import random
import unittest

from interval import COVERAGE, FASTER, LEAST_TURNS, NONE, SLOWER, TOO_FEW, coverage, interval


class Intervals(unittest.TestCase):
    def test_coverage_is_that_of_the_binomial_distribution(self):
        self.assertEqual(coverage(8, 1), 1 - 2 / 2**8)
        # 1 + 15 + 105 of 2^15 cases have at most 2 values below the median.
        self.assertAlmostEqual(coverage(15, 3), 1 - 2 * 121 / 2**15, places=15)

    def test_the_narrowest_interval_with_enough_coverage(self):
        for n in range(1, 60):
            found = interval([1 + i / 100 for i in range(n)])
            k = round((found.low - 1) * 100) + 1
            self.assertEqual(found.high, 1 + (n - k) / 100)
            self.assertEqual(found.coverage, max(coverage(n, k), 0))
            if n < LEAST_TURNS:
                self.assertEqual(k, 1)
                self.assertLess(found.coverage, COVERAGE)
            else:
                self.assertGreaterEqual(found.coverage, COVERAGE)
                self.assertTrue(2 * (k + 1) > n or coverage(n, k + 1) < COVERAGE)

    def test_order_does_not_matter(self):
        ratios = [1.02, 0.97, 1.3, 1.01, 1.05, 0.99, 1.0, 1.11, 1.04]
        found = interval(ratios)
        self.assertEqual(found.median, 1.02)
        self.assertEqual(interval(sorted(ratios)), found)

    def test_the_interval_contains_the_median_as_often_as_it_says(self):
        # Skewed ratios, as of times with rare disturbances; their true median is 1.
        draw, runs = random.Random(5), 4000
        missed = 0
        for _ in range(runs):
            ratios = [math.exp(0.05 * draw.gauss(0, 1) ** 3) for _ in range(15)]
            found = interval(ratios)
            missed += not found.low <= 1 <= found.high
        expected = (1 - coverage(15, 3)) * runs  # 29.5
        self.assertLess(abs(missed - expected), 4 * math.sqrt(expected))

    def test_verdicts(self):
        def of(center, spread=0.002, n=15):
            return interval([center + spread * (i - n // 2) / n for i in range(n)])

        self.assertEqual(of(1.05).verdict(0.01), FASTER)
        self.assertEqual(of(0.95).verdict(0.01), SLOWER)
        self.assertEqual(of(1.0).verdict(0.01), NONE)
        self.assertEqual(of(1.005).verdict(0.01), NONE)  # certain, but too small
        self.assertEqual(of(1.005).verdict(), FASTER)
        self.assertEqual(of(1.05, spread=0.5).verdict(0.01), NONE)  # too uncertain
        self.assertEqual(of(1.5, n=LEAST_TURNS - 1).verdict(0.01), TOO_FEW)
        self.assertEqual(interval([2.0]).verdict(), TOO_FEW)

    def test_ratios_that_are_none(self):
        for bad in ([], [1.0, math.nan], [1.0, 0.0], [-1.0], [math.inf]):
            with self.assertRaises(ValueError):
                interval(bad)
