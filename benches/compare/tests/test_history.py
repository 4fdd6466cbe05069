"""Records, damaged files, and the page of their history."""

import json
import os
import re
import tempfile
import unittest
from contextlib import redirect_stderr, redirect_stdout
from html.parser import HTMLParser
from io import StringIO
from pathlib import Path
from xml.dom.minidom import parseString

import history
import picture
from cases import Case
from commits import Commit
from interval import interval
from programs import ROOT
from records import append, fault, read, record, timing
from tests import browser

NASTY = "</script><b>bold</b><!-- & \u2028"
OLD = Commit("a" * 40, "2026-11-20T17:05:35Z", "Before")
NEW = Commit("b" * 40, "2026-11-22T17:05:35Z", NASTY)
MACHINE = dict(cpu="CPU " + NASTY, cores=2, threads=2, level="avx2", precision="f32", governor=None, turbo=True)


def example(name="gemm nn 32 32 32", now=NEW, base=OLD, date="2026-11-23T17:05:35Z", machine=MACHINE, disturbed=0.0):
    times, theirs = [1e-3, 1.1e-3, 1.2e-3], [1.2e-3, 1.3e-3, 1.5e-3]
    found = interval([b / a for a, b in zip(times, theirs)])
    ratio = dict(median=found.median, low=found.low, high=found.high, verdict="faster") if base else None
    used = dict(median=0.1, most=0.2)
    load = dict(average_before=0.1, others_before=used, others_during=used, disturbed=disturbed)
    case, other = Case("group " + NASTY, name, ()), timing(base, theirs) if base else None
    return record(case, date, machine, load, timing(now, times), other, ratio)


class Folder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def make(self, *files):
        """The exit code, and what was printed and said."""
        printed, said = StringIO(), StringIO()
        with redirect_stdout(printed), redirect_stderr(said):
            code = history.make(files, self.folder / "history.html")
        return code, printed.getvalue(), said.getvalue()


class Records(Folder):
    def test_they_are_read_as_they_were_written(self):
        file = self.folder / "new" / "a.jsonl"
        append(file, [example()])
        append(file, [example("other")])
        records, faults = read([file])
        self.assertEqual(faults, [])
        self.assertEqual(records, [example(), example("other")])
        now = records[0]["now"]
        for key, seconds in (("low", 1.05e-3), ("seconds", 1.1e-3), ("high", 1.15e-3)):
            self.assertAlmostEqual(now[key], seconds, places=12)

    def test_one_turn_has_its_time_as_quartiles(self):
        found = timing(NEW, [2.0])
        self.assertEqual((found["low"], found["seconds"], found["high"]), (2.0, 2.0, 2.0))

    def test_appending_after_a_line_that_was_cut_off(self):
        file = self.folder / "a.jsonl"
        append(file, [example()])
        file.write_bytes(file.read_bytes()[:-40])
        append(file, [example("other")])
        records, faults = read([file])
        self.assertEqual([r["case"] for r in records], ["other"])
        self.assertEqual(faults, ["a.jsonl, line 1 is left out: it is damaged or cut off"])

    def test_damaged_lines_are_named_and_left_out(self):
        good = example()
        damaged = [
            b"{",
            b"\xff\xfe",
            b"[" * 100_000,
            b"3",
            b"null",
            b"[]",
            b'{"ms": 3, "step": 4}',
            json.dumps(good | {"record": 2}).encode(),
            json.dumps(good | {"date": "yesterday"}).encode(),
            json.dumps(good | {"date": "2026-99-23T17:05:35Z"}).encode(),
            json.dumps(good | {"now": good["now"] | {"committed": "yyyy-11-22T17:05:35Z"}}).encode(),
            json.dumps(good | {"now": good["now"] | {"seconds": 10**400}}).encode(),
            json.dumps(good).replace('"cores": 2', '"cores": ' + "9" * 5000).encode(),
            json.dumps(good | {"case": None}).encode(),
            json.dumps(good | {"machine": "epyc"}).encode(),
            json.dumps(good | {"load": 3}).encode(),
            json.dumps(good | {"now": None}).encode(),
            json.dumps(good | {"now": good["now"] | {"seconds": -1}}).encode(),
            json.dumps(good | {"now": good["now"] | {"seconds": True}}).encode(),
            json.dumps(good | {"now": good["now"] | {"commit": 3}}).encode(),
            json.dumps(good | {"base": {}}).encode(),
            json.dumps(good | {"base": good["base"] | {"seconds": 1e999}}).encode(),
            json.dumps(good | {"ratio": {"median": 1}}).encode(),
            json.dumps(good | {"ratio": 1}).encode(),
        ]
        file = self.folder / "bad.jsonl"
        file.write_bytes(b"\n".join([*damaged, b"", json.dumps(good).encode()]))
        records, faults = read([file, self.folder / "missing.jsonl", self.folder])
        self.assertEqual(records, [good])
        self.assertEqual(len(faults), len(damaged) + 2)
        for i, text in enumerate(faults[: len(damaged)], 1):
            self.assertRegex(text, rf"^bad.jsonl, line {i} is left out: \w+")
        self.assertTrue(faults[-2].startswith("missing.jsonl: it cannot be read"))
        self.assertNotIn(str(self.folder), " ".join(faults))

    def test_every_field_may_be_missing_without_an_exception(self):
        def without(value, path=()):
            if isinstance(value, dict):
                for key, inner in value.items():
                    yield {k: v for k, v in value.items() if k != key}
                    yield value | {key: "text"}
                    for changed in without(inner):
                        yield value | {key: changed}

        variants = list(without(example()))
        self.assertGreater(len(variants), 60)
        for variant in variants:
            if fault(variant) is None:
                data = history.page_data([variant], [])
                json.dumps(data, allow_nan=False)


class Parser(HTMLParser):
    """The tags of a document, and the text in its scripts."""

    def __init__(self):
        super().__init__()
        self.tags, self.scripts, self.inside = [], [], None

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.inside = dict(attributes) if tag == "script" else None
        if tag == "script":
            self.scripts.append([self.inside, ""])

    def handle_endtag(self, tag):
        self.inside = None

    def handle_data(self, text):
        if self.inside is not None:
            self.scripts[-1][1] += text

    def handle_comment(self, text):
        self.tags.append("comment")


class Page(Folder):
    def page(self, *records):
        append(self.folder / "a.jsonl", records)
        self.assertEqual(self.make(self.folder / "a.jsonl")[0], 0)
        return (self.folder / "history.html").read_text("utf-8")

    def test_names_cannot_leave_the_data(self):
        parser = Parser()
        html = self.page(example(NASTY), example("{{KIT_SCRIPT}} \\1 \\g<0>"))
        parser.feed(html)
        self.assertNotIn("b", parser.tags)
        self.assertNotIn("comment", parser.tags)
        self.assertEqual(len(parser.scripts), 3)  # data, kit, page
        attributes, text = parser.scripts[0]
        self.assertEqual(attributes, {"type": "application/json", "id": "data"})
        data = json.loads(text)
        self.assertEqual([c["name"] for c in data["cases"]], [NASTY, "{{KIT_SCRIPT}} \\1 \\g<0>"])
        self.assertEqual(data["commits"][1]["subject"], NASTY)

    def test_nothing_is_loaded(self):
        html = self.page(example())
        self.assertEqual(set(re.findall(r"https?://[^\"']*", html)), {"http://www.w3.org/2000/svg"})
        # The policy is that of the pages of the crate `study`.
        policy = re.search(r'Content-Security-Policy" content="([^"]*)"', html)[1]
        rust = re.sub(r"\\\n\s*", "", (ROOT / "study/src/page.rs").read_text("utf-8"))
        self.assertIn(policy, rust)

    def test_points_of_a_comparison(self):
        other = MACHINE | {"cpu": "other"}
        records = [
            example(date="2026-11-23T17:00:00Z", machine=other),
            example(date="2026-11-22T17:00:00Z", disturbed=0.1),
            example("alone", base=None),
        ]
        data = history.page_data(records, [])
        self.assertEqual([c["sha"][0] for c in data["commits"]], ["a", "b"])  # by date
        self.assertEqual([m["cpu"] for m in data["machines"]], [MACHINE["cpu"], "other"])
        pair, alone = data["cases"]
        self.assertEqual([(p["commit"], p["machine"]) for p in pair["points"]], [(1, 0), (0, 0), (1, 1), (0, 1)])
        now, base = pair["points"][:2]
        self.assertEqual((now["base"], now["verdict"], now["disturbed"]), (0, "faster", True))
        self.assertNotIn("ratio", base)
        self.assertTrue(base["aside"])
        self.assertEqual(now["others"], 0.2)
        self.assertEqual([p["commit"] for p in alone["points"]], [1])

    def test_changed_trees_are_commits_of_their_own(self):
        changed = Commit(NEW.sha, NEW.date, NEW.subject, dirty=True)
        data = history.page_data([example(now=changed, base=NEW)], [])
        self.assertEqual([c["dirty"] for c in data["commits"]], [False, True])

    def test_files_without_records(self):
        empty = self.folder / "empty.jsonl"
        empty.write_text("\n\n")
        code, _, said = self.make(empty, self.folder / "missing.jsonl")
        self.assertEqual(code, 2)
        self.assertIn("missing.jsonl: it cannot be read", said)
        self.assertIn("no records", said)
        self.assertFalse((self.folder / "history.html").exists())

    def test_a_page_that_cannot_be_written(self):
        append(self.folder / "a.jsonl", [example()])
        said = StringIO()
        with redirect_stderr(said):
            code = history.make([self.folder / "a.jsonl"], self.folder / "no" / "history.html")
        self.assertEqual(code, 2)
        self.assertIn("cannot be written", said.getvalue())
        self.assertEqual(sorted(p.name for p in self.folder.iterdir()), ["a.jsonl"])


needs_browser = os.environ.get("RETROGRAD_NEEDS_BROWSER") == "1"


@unittest.skipUnless(browser.program() or needs_browser, "there is no Chromium")
class InChromium(Folder):
    @classmethod
    def setUpClass(cls):
        cls.chromium = browser.Browser()
        cls.addClassCleanup(cls.chromium.close)

    def write(self, html):
        path = self.folder / "history.html"
        path.write_text(html, "utf-8")
        return path.as_uri()

    def address(self):
        other = MACHINE | {"cpu": "Another CPU with a long name @ 2.10GHz", "turbo": False}
        records = []
        for i, name in enumerate((NASTY, "gemm nn 32 32 32", "attention fwd+bwd 12 4 64 32 causal 0.2")):
            for day in range(10, 20, 1 + i):
                before = Commit(f"{day:040x}", f"2026-11-{day:02d}T10:00:00Z", "Before")
                now = Commit(f"{day + 1:040x}", f"2026-11-{day + 1:02d}T10:00:00Z", NASTY, dirty=day == 19)
                for machine in (MACHINE, other):
                    records.append(example(name, now, before, f"2026-12-{day:02d}T10:00:00Z", machine, day == 12))
        return self.write(history.html(history.page_data(records, ["a.jsonl, line 3 is left out: it is damaged"])))

    def test_the_page_tests_itself(self):
        address = self.address()
        for width in (400, 900, 1440):
            for dark in (False, True):
                with self.subTest(width=width, dark=dark):
                    self.chromium.console.clear()
                    self.chromium.view(width, dark=dark)
                    self.chromium.open(address + "#selftest")
                    self.chromium.wait("document.querySelector('#selftest')")
                    found = self.chromium.value("document.querySelector('#selftest').textContent")
                    self.assertRegex(found, r"^selftest: \d+ ok$")
                    self.assertEqual(self.chromium.console, [])

    def test_points_by_real_keys_and_a_real_pointer(self):
        page = self.chromium
        page.view(900)
        page.open(self.address())
        page.wait("document.querySelector('.case svg[tabindex]')")
        page.value("document.querySelector('.case svg[tabindex]').focus()")
        page.key("ArrowRight", 39)
        first = page.value("document.getElementById('tip').textContent")
        page.key("ArrowRight", 39)
        second = page.value("document.getElementById('tip').textContent")
        self.assertIn("time of a call: 1.3 ms", first)
        self.assertNotEqual(first, second)
        self.assertIn(NASTY, second)
        circle = "document.querySelector('.case circle')"
        page.value(f"document.activeElement.blur(), {circle}.scrollIntoView({{block: 'center'}})")
        box = page.value(f"(() => {{ const b = {circle}.getBoundingClientRect(); return [b.x + 3, b.y + 3]; }})()")
        page.move(*box)
        page.wait("!document.getElementById('tip').hidden")
        self.assertEqual(page.value("document.getElementById('tip').textContent"), first)

    def test_damaged_data_gives_a_sentence(self):
        html = history.html(history.page_data([example()], []))
        start, end = html.index('id="data">') + 10, html.index("</script>")
        for data in ("", '{"commits":[', "{}", "3", '{"cases":[{"name":"a"}],"commits":[],"machines":[]}'):
            self.chromium.open(self.write(html[:start] + data + html[end:]))
            self.chromium.wait("document.querySelector('.message')")
            self.assertIn("cannot be shown", self.chromium.value("document.querySelector('.message').textContent"))


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
