#!/usr/bin/env bash
# Measures whether a file whose ledger closes periods stays one size. Usage: flat-file.sh [PAYMENTS [RATE]] (200,000 in each of ten windows, 6,000 a
# second: 15 minutes). It prints for each window the used bytes, also less 16 for each reference, and payments a second, their median time and the
# bytes that each writes, without a closing and beside one; then what a lone payment writes before the first closing and while rows are dropped, and a
# closing without payments. It does so again for five shorter windows with as many payments as there can be, to compare those beside a closing with
# those without, and for windows of a file that was full before its first closing. The file is in $TMPDIR.
set -euo pipefail
payments=${1:-200000} rate=${2:-6000}
cd "$(dirname "$0")/../.."
dir=$(mktemp -d "${TMPDIR:-/var/tmp}/flat-file.XXXXXX")
trap 'rm -rf "$dir"' EXIT
"${GO:-go}" build -o "$dir/flatfile" ./testdata/bench/flatfile
flat() { rm -rf "$dir/file"; mkdir "$dir/file"; "$dir/flatfile" -dir "$dir/file" "$@"; }
flat -payments "$payments" -rate "$rate" -lone
half=$((payments / 2)) quarter=$((payments / 4))
flat -payments $half -windows 5
flat -payments $quarter -windows 5 -rate "$rate" -max-bytes $((quarter * 3000 + (160 << 20)))
