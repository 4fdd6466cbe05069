"""Tests of benches/compare: `python3 -m unittest discover -s benches/compare -t benches/compare`."""
