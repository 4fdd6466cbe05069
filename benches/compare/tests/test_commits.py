"""Commits and the working tree."""

import unittest
from contextlib import redirect_stderr
from io import StringIO
from types import SimpleNamespace

import against
import commits
from commits import Commit, CommitError, changed_files, driver_of, resolve


def has_commits():
    try:
        commits.git("rev-parse", "HEAD")
        return True
    except CommitError:
        return False


class Changes(unittest.TestCase):
    def test_files_that_differ(self):
        self.assertEqual(changed_files(""), [])
        status = " M tensor/src/lib.rs\0?? new file\0R  b.rs\0a.rs\0A  c.rs\0"
        self.assertEqual(changed_files(status), ["tensor/src/lib.rs", "new file", "b.rs", "c.rs"])

    def test_labels(self):
        commit = Commit("0123456789abcdef", "2026-11-23T17:05:35Z", "Title", dirty=True)
        self.assertEqual(commit.label, "012345678 with changes")
        self.assertEqual(commit.record()["commit"], "0123456789abcdef")


@unittest.skipUnless(has_commits(), "there is no git repository")
class Names(unittest.TestCase):
    def test_head(self):
        head = resolve("HEAD")
        self.assertRegex(head.sha, r"^[0-9a-f]{40}$")
        self.assertRegex(head.date, r"^20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ$")
        self.assertTrue(head.subject)
        self.assertEqual(resolve(head.short), head)

    def test_unknown_names(self):
        for name in ("no-such-branch", "--all", "", "0" * 40, "HEAD; true"):
            with self.assertRaisesRegex(CommitError, "there is no commit named"):
                resolve(name)

    def test_an_unknown_commit_ends_with_its_own_code(self):
        said = StringIO()
        with redirect_stderr(said):
            code = against.pit(SimpleNamespace(against="no-such-branch"), [])
        self.assertEqual(code, 2)
        self.assertEqual(said.getvalue(), "compare: there is no commit named 'no-such-branch'\n")

    def test_a_commit_without_the_driver(self):
        # A tree without files, and a commit of it, which no branch has.
        tree = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
        names = ("-c", "user.name=test", "-c", "user.email=test")
        sha = commits.git(*names, "commit-tree", tree, "-m", "empty").strip()
        with self.assertRaisesRegex(CommitError, "has no benches/driver.rs"):
            driver_of(Commit(sha, "2026-11-23T17:05:35Z", "empty"))
