"""Wrong flags: a sentence and the exit code 2, never a traceback."""

import subprocess
import sys
import unittest
from pathlib import Path

PROGRAM = Path(__file__).resolve().parent.parent


class Usage(unittest.TestCase):
    def fails(self, text, *flags):
        done = subprocess.run([sys.executable, str(PROGRAM), *flags], capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn(text, done.stderr)
        self.assertNotIn("Traceback", done.stderr)

    def test_flags(self):
        self.fails("no group or case starts with nosuch", "--only", "gemm,nosuch")
        self.fails("there is no commit named 'nosuch'", "--against", "nosuch", "--only", "gemm")
        self.fails("--fail-below requires --against", "--fail-below", "0.9")
        self.fails("unknown programs: numpy", "--programs", "numpy")
        self.fails("0 is not positive", "--turns", "0")
        self.fails("nan is no time in seconds", "--seconds", "nan")
        self.fails("-1 is no time in seconds", "--wait=-1")
        self.fails("is no list of cores", "--cores", "all")
