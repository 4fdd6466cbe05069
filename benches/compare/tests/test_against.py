"""Two programs in turns, the records of their results, and the exit code."""

import json
import sys
import tempfile
import unittest
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from types import SimpleNamespace

import against
import load
from against import Sides, blocks, run, turns_of
from cases import Case
from commits import Commit
from interval import LEAST_TURNS

FAKE = str(Path(__file__).with_name("fake_driver.py"))
COMMITS = {
    "now": Commit("a" * 40, "2026-11-23T17:05:35Z", "Now", dirty=True),
    "base": Commit("b" * 40, "2026-11-20T17:05:35Z", "Before"),
}


def case(name, slow=False):
    return Case("group", name, (), slow=slow)


class Turns(unittest.TestCase):
    def test_blocks_contain_every_turn_and_change_their_beginning(self):
        for turns in range(1, 40):
            found = list(blocks(turns))
            self.assertEqual(sum(count for count, _ in found), turns)
            self.assertEqual([order[0] for _, order in found], ["base" if i % 2 == 0 else "now" for i in range(len(found))])

    def test_slow_cases_keep_enough_turns(self):
        self.assertEqual(turns_of(case("a"), 15), 15)
        self.assertEqual(turns_of(case("a", slow=True), 15), LEAST_TURNS)
        self.assertEqual(turns_of(case("a", slow=True), 40), 20)
        self.assertEqual(turns_of(case("a", slow=True), 3), 3)


class Runs(unittest.TestCase):
    def setUp(self):
        self.window, load.WINDOW = load.WINDOW, 0.001
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.save = Path(folder.name) / "new" / "results.jsonl"

    def tearDown(self):
        load.WINDOW = self.window

    def run_of(self, now, base, cases, fail_below=None, turns=9):
        """The exit code, what was printed, the messages, and the records."""
        commands = {"now": [sys.executable, FAKE, *now], "base": [sys.executable, FAKE, *base]}
        args = SimpleNamespace(cores=None, wait=0, threads=1, turns=turns, seconds=0.01, least=0.01)
        args.save, args.fail_below = self.save, fail_below
        printed, said = StringIO(), StringIO()
        with redirect_stdout(printed), redirect_stderr(said):
            code = run(args, [case(name) for name in cases], Sides(COMMITS, commands, 1))
        lines = self.save.read_text().splitlines() if self.save.exists() else []
        return code, printed.getvalue(), said.getvalue(), [json.loads(line) for line in lines]

    def test_a_faster_working_tree(self):
        code, printed, _, records = self.run_of(["1", "one"], ["1.2", "one"], ["one"], fail_below=0.95)
        self.assertEqual(code, 0)
        self.assertIn("faster", printed)
        (found,) = records
        self.assertAlmostEqual(found["ratio"]["median"], 1.2, delta=0.01)
        self.assertEqual(found["ratio"]["verdict"], "faster")
        self.assertEqual((found["now"]["commit"], found["now"]["dirty"]), ("a" * 40, True))
        self.assertEqual((found["base"]["commit"], found["base"]["dirty"]), ("b" * 40, False))
        self.assertEqual(found["machine"]["level"], "scalar")
        for key in ("average_before", "average_during", "others_before", "others_during", "disturbed"):
            self.assertIn(key, found["load"])
        text = self.save.read_text()
        self.assertNotIn(str(Path.home()), text)
        self.assertNotIn(str(self.save.parent), text)

    def test_a_slower_working_tree_fails_below_the_limit_only(self):
        slow = (["1.04", "one"], ["1", "one"], ["one"])
        self.assertEqual(self.run_of(*slow, fail_below=0.98)[0], 1)
        self.assertEqual(self.run_of(*slow, fail_below=0.95)[0], 0)
        self.assertEqual(self.run_of(*slow)[0], 0)

    def test_equal_programs(self):
        code, printed, _, _ = self.run_of(["1", "one"], ["1", "one"], ["one"], fail_below=1.0)
        self.assertEqual(code, 0)
        self.assertIn("no difference found", printed)

    def test_few_turns_give_no_verdict(self):
        code, printed, _, records = self.run_of(["9", "one"], ["1", "one"], ["one"], fail_below=0.95, turns=3)
        self.assertEqual((code, records[0]["ratio"]["verdict"]), (0, "too few turns"))
        self.assertIn("there is no verdict", printed)

    def test_a_case_that_the_commit_lacks(self):
        code, printed, _, records = self.run_of(["1", "one", "two"], ["1", "one"], ["one", "two"])
        self.assertEqual((code, len(records)), (0, 1))
        self.assertIn("bbbbbbbbb has no such case", printed)

    def test_a_case_that_the_working_tree_lacks_is_an_error(self):
        code, printed, _, _ = self.run_of(["1", "one"], ["1", "one", "two"], ["one", "two"])
        self.assertEqual(code, 2)
        self.assertIn("not in the working tree", printed)

    def test_a_program_that_ends(self):
        code, printed, said, records = self.run_of(["1", "one"], ["1", "ends"], ["one"])
        self.assertEqual((code, records), (2, []))
        self.assertIn("ended unexpectedly", printed)
        self.assertIn("no case was measured", said)

    def test_a_program_that_is_none(self):
        commands = {"now": [sys.executable, "-c", "print('no driver')"], "base": []}
        args = SimpleNamespace(cores=None, wait=0, threads=1, save=self.save)
        said = StringIO()
        with redirect_stderr(said):
            code = run(args, [case("one")], Sides(COMMITS, commands, 1))
        self.assertEqual(code, against.FAILED)
        self.assertIn("the driver of the working tree does not answer", said.getvalue())
