#!/usr/bin/env bash
# Makes docs/loss.svg and docs/attention.svg from the default run of next_token, in about a minute on two
# cores. Results depend neither on the number of threads nor on whether the CPU has AVX2 or AVX-512.
set -euo pipefail
cd "$(dirname "$0")/.."
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

cargo run --release --example next_token -- --quiet --out "$out/run"

# Attributes with their default values make a third of a picture.
short() { sed -E 's/ (opacity="1"|stroke="none")//g' "$1" > "$2"; }
short "$out/run/loss.svg" docs/loss.svg
short "$out/run/attention-1.svg" docs/attention.svg
