"""The load of other processes, and the conditions of a measurement."""

import os
import subprocess
import sys
import time
import types
import unittest
from contextlib import redirect_stderr
from io import StringIO
from pathlib import Path

import conditions
import load
from load import Used, Watch, busy_seconds, disturbed, process_seconds

STAT = "cpu  99 99 99 99 99 99 99 99 0 0\ncpu0 100 20 3 1000 50 4 5 6 70 80\ncpu1 7 0 0 1000 0 0 0 0 0 0\nintr 12\n"


class Loads(unittest.TestCase):
    def test_busy_time_is_that_of_the_chosen_cores(self):
        self.assertAlmostEqual(busy_seconds(STAT, {0}) * load.TICKS, 138)
        self.assertAlmostEqual(busy_seconds(STAT, {0, 1}) * load.TICKS, 145)

    def test_a_process_may_have_any_name(self):
        stat = "17 (a) b (c)) R 1 17 17 0 -1 4194304 100 0 0 0 250 31 0 0 20 0 1 0"
        self.assertAlmostEqual(process_seconds(stat) * load.TICKS, 281)

    def test_a_twentieth_disturbs(self):
        self.assertFalse(disturbed(0.07, 1.0))
        self.assertTrue(disturbed(0.09, 1.0))
        self.assertEqual(Used(-0.01, 0.1).cores, 0)
        self.assertAlmostEqual(Used(0.3, 0.2).cores, 1.5)

    def test_the_time_of_own_programs_does_not_count(self):
        # The same busy process, once as a stranger and once as an own program, on one core.
        before = os.sched_getaffinity(0)
        os.sched_setaffinity(0, {min(before)})
        busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
        try:
            watch = Watch()
            own = types.SimpleNamespace(process=busy)
            time.sleep(0.2)

            def time_of_the_process():
                return process_seconds(Path(f"/proc/{busy.pid}/stat").read_text())

            begin, until = time_of_the_process(), time.monotonic() + 30

            def work():
                while time_of_the_process() < begin + 0.4 and time.monotonic() < until:
                    time.sleep(0.05)

            (_, used), theirs = watch.during(lambda: watch.during(work, [own]), [])
            stranger, mine = theirs.seconds, used.seconds
        finally:
            busy.kill()
            busy.wait()
            os.sched_setaffinity(0, before)
        # It used 0.4 s. Whatever else runs there uses the core as well, and is in both.
        self.assertGreater(stranger - mine, 0.2)

    def test_waiting_ends_with_patience(self):
        watch = Watch(patience=0.3)
        seconds = iter(range(100))
        watch.others = lambda programs: next(seconds)  # all cores are busy in every window
        old, load.PAUSE, load.WINDOW = (load.PAUSE, load.WINDOW), 0.1, 0.1
        said = StringIO()
        try:
            with redirect_stderr(said):
                used = watch.quiet([])
                again = watch.quiet([])
        finally:
            load.PAUSE, load.WINDOW = old
        self.assertTrue(used.disturbs and again.disturbs)
        self.assertLess(watch.waited, 0.5)
        self.assertEqual(said.getvalue().count("warning: other processes use"), 1)

    def test_a_quiet_machine_does_not_wait(self):
        watch = Watch(patience=100)
        watch.others = lambda programs: 0.0
        self.assertFalse(watch.quiet([]).disturbs)
        self.assertEqual(watch.waited, 0)


class Conditions(unittest.TestCase):
    def test_dates_are_in_utc(self):
        self.assertEqual(conditions.utc(1795453535), "2026-11-23T17:05:35Z")
        self.assertRegex(conditions.now(), r"^20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ$")

    def test_the_machine_has_no_name(self):
        machine = conditions.machine(Watch(), {"level": "avx2"}, 2)
        self.assertNotIn(os.uname().nodename, [v for v in machine.values() if isinstance(v, str)])
        self.assertEqual((machine["level"], machine["threads"]), ("avx2", 2))
        sentence = conditions.sentence("2026-11-23T17:05:35Z", "1234567", machine, 0.5)
        self.assertIn("2 threads on", sentence)
        self.assertIn("load average 0.50", sentence)
