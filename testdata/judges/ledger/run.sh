#!/usr/bin/env bash
# Has a node close two periods of an old ledger, and verifies their files with Python, zstd and BLAKE3 alone. Then flips bits of them: in the files, in
# their lines, and in the bytes of records, headers and rows without a list of digests to compare with. Each is found. It wants Debian's b3sum, zstd and
# python3. RONBOX is the binary, bin/ronbox without it. A step that does not hold ends with 1.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cd "$here/../../.."
ronbox=$(realpath "${RONBOX:-bin/ronbox}")
for tool in b3sum zstd python3; do command -v $tool >/dev/null || { echo "missing: apt-get install b3sum zstd python3" >&2; exit 1; }; done
dir=$(mktemp -d /tmp/rl.XXXXXX)
pid=
trap '[ -z "$pid" ] || kill -9 $pid 2>/dev/null; rm -rf "$dir"' EXIT
step() { printf '\n== %s\n' "$*"; }
fail() { printf 'it ends here: %s\n' "$*" >&2; exit 1; }
until_so() { local what=$1 end=$((SECONDS + 60)); shift; until "$@"; do [ $SECONDS -lt $end ] || fail "$what has not come about"; sleep 0.1; done; }
rb() { "$ronbox" --data-dir "$dir/d" "$@"; }
judge() { python3 "$here/periods.py" "$@"; }

step "A node closes two periods of a ledger of 20 days ago"
go run ./testdata/tour/past >"$dir/past.ndjson" 2>"$dir/hold"
rb init -q
rb ledger import "$dir/past.ndjson" -q
RONBOX_SERVER__BIND=127.0.0.1:0 RONBOX_LOG__LEVEL=warn "$ronbox" --data-dir "$dir/d" serve 2>"$dir/log" &
pid=$!
disown
until_so "the node" rb status -q 2>/dev/null
closed() { rb ledger close --status --json | grep -q '"state":"idle"'; }
middle=$(sed -n 's/.*"batch":150,.*"ts":"\([^"]*\)".*/\1/p' "$dir/past.ndjson" | head -1)
rb ledger close --before "$middle" --fast --yes -q
until_so "the first closing" closed
rb ledger close --keep 10d --fast --yes -q
until_so "the second closing" closed
rb ledger periods
rb ledger periods --json >"$dir/list"
files=("$dir"/d/periods/*)
[ ${#files[@]} = 2 ] || fail "there are ${#files[@]} files"

step "Statements, roots, sums and states"
judge --list "$dir/list" "${files[@]}"
judge "${files[@]}" >/dev/null

step "Flipped bits"
# flip FILE BYTE: flips a bit of a byte.
flip() { python3 -c 'import sys; b = bytearray(open(sys.argv[1], "rb").read()); b[int(sys.argv[2])] ^= 4; open(sys.argv[1], "wb").write(b)' "$1" "$2"; }
found() { # HOW FILE…
  local how=$1 code=0; shift
  judge "$@" >"$dir/said" 2>&1 || code=$?
  [ $code = 3 ] || fail "$how: the judge ends with $code: $(<"$dir/said")"
  code=0
  "$ronbox" ledger verify "$dir/1" "$dir/2" -q >"$dir/said" 2>&1 || code=$?
  [ $code = 3 ] || fail "$how: ronbox ledger verify ends with $code: $(<"$dir/said")"
}
fresh() { cp "${files[0]}" "$dir/1"; cp "${files[1]}" "$dir/2"; }
for n in 1 2; do
  size=$(stat -c %s "${files[n - 1]}")
  for at in $((RANDOM % size)) $((size / 2)) $((size - 1)); do
    fresh
    flip "$dir/$n" $at
    found "byte $at of file $n" --list "$dir/list" "$dir/1" "$dir/2"
  done
  zstd -dcq "${files[n - 1]}" >"$dir/lines"
  # a byte of the last row, record and header, and of the statement
  for of in '"row":"' '"record":"' '"header":"' 'state_root\":\"b3:'; do
    if ! at=$(grep -obaF -- "$of" "$dir/lines" | tail -1 | cut -d: -f1); then
      [ $n = 1 ] && [ "$of" = '"row":"' ] || fail "file $n has no $of"
      continue # the first period begins with no rows
    fi
    fresh
    flip "$dir/lines" $((at + ${#of} + 30))
    zstd -qc "$dir/lines" >"$dir/$n"
    found "$of of file $n" "$dir/1" "$dir/2"
    cp "${files[n - 1]}" "$dir/$n"
    zstd -dcq "$dir/$n" >"$dir/lines"
  done
done
echo "the judge and \`ronbox ledger verify\` find each"
