"""Records of results."""

import json
import tempfile
import unittest
from pathlib import Path

from commits import Commit
from records import append, timing

NASTY = "</script><b>bold</b><!-- & \u2028"


class Records(unittest.TestCase):
    def test_one_turn_has_its_time_as_quartiles(self):
        found = timing(Commit("b" * 40, "2026-11-22T17:05:35Z", NASTY), [2.0])
        self.assertEqual((found["low"], found["seconds"], found["high"]), (2.0, 2.0, 2.0))

    def test_appending_after_a_line_that_was_cut_off(self):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "new" / "a.jsonl"
            append(file, [{"case": "one"}])
            file.write_bytes(file.read_bytes()[:-4])
            append(file, [{"case": "other"}])
            self.assertEqual(json.loads(file.read_text().splitlines()[1]), {"case": "other"})
