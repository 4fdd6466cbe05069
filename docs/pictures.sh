#!/usr/bin/env bash
# Makes docs/loss.svg and docs/attention.svg, in about two minutes on two cores. Results depend neither
# on the number of threads nor on whether the CPU has AVX2 or AVX-512.
set -euo pipefail
cd "$(dirname "$0")/.."
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

cargo run --release --example next_token -- --quiet --out "$out/default"
# Two heads instead of four, so that labels stay readable at the width of a page.
cargo run --release --example next_token -- --quiet --heads 2 --out "$out/heads"

# Attributes with their default values make a third of a picture.
short() { sed -E 's/ (opacity="1"|stroke="none")//g' "$1" > "$2"; }
short "$out/default/loss.svg" docs/loss.svg
short "$out/heads/attention-1.svg" docs/attention.svg
