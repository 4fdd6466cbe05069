"""Records, and pictures of results."""

import json
import tempfile
import unittest
from pathlib import Path
from xml.dom.minidom import parseString

import picture
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


class Pictures(unittest.TestCase):
    def test_legend_titles_and_tooltips(self):
        facts = dict(group="g", name=NASTY, aim=1.5, each=True, unit="s", rival="<other>", ours=1.0, theirs=2.0)
        facts |= dict(ratio=2.0, low=1.9, high=2.1, gflops=10.0, their_gflops=5.0, intensity=4.0)
        machine = dict(gflops=100.0, memory=[dict(name="L1", gb=100.0, bytes=1e30)])
        for svg in (picture.ratios({"g": [facts]}), picture.roofline([facts], machine)):
            document = parseString(svg)  # well-formed, whatever the names are
            titles = [t.firstChild.data for t in document.getElementsByTagName("title")]
            self.assertTrue(titles and all(NASTY in t for t in titles))
            words = " ".join(t.firstChild.data for t in document.getElementsByTagName("text"))
            self.assertIn("logarithmic scale", words)
            self.assertIn("other library", words)
