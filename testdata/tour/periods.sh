#!/usr/bin/env bash
# A node closes the old records of its ledger: they leave the database into a file. Balances and an open hold stay, a reference stays used, and a new
# payment between the old accounts is proven. The file and the database together prove every record since the first, and a changed byte is found.
# RONBOX is the binary, by default bin/ronbox. It exits with 1 if a step fails.
set -euo pipefail
cd "$(dirname "$0")/../.."
ronbox=$(realpath "${RONBOX:-bin/ronbox}")
dir=$(mktemp -d /tmp/rg.XXXXXX)
pid=
trap 'kill -9 $pid 2>/dev/null || true; rm -rf "$dir"' EXIT

step() { printf '\n== %s\n' "$*"; }
fail() { printf 'the tour ends here: %s\n' "$*" >&2; tail -n 5 "$dir/log" >&2; exit 1; }
on() { "$ronbox" --data-dir "$dir/node" "$@"; }
show() { printf '$ ronbox %s\n' "$*" | sed "s|$dir/||g"; on "$@" | sed "s|$dir/||g"; }

# until_so WHAT CMD…: repeats a command until it succeeds, for a minute at most.
until_so() {
  local what=$1 end=$((SECONDS + 60)); shift
  until "$@" 2>/dev/null; do [ $SECONDS -lt $end ] || fail "$what: not within a minute"; sleep 0.05; done
}
refused() { # CODE TEXT CMD…: a command that ends with CODE and says TEXT
  local want=$1 text=$2 code=0; shift 2
  on "$@" >"$dir/said" 2>&1 || code=$?
  [ $code = "$want" ] && grep -q "$text" "$dir/said" || fail "$1 $2 ended with $code: $(<"$dir/said")"
}
member() { sed -n "s/.*\"$1\":\"\([^\"]*\)\".*/\1/p"; } # a text member of a JSON document
closed() { [ "$(on ledger close --status --json | member state)" = idle ]; }

step "A node with a ledger of 20 days ago: payments of the shop with references, and a hold"
go build -o "$dir/past" ./testdata/tour/past
"$dir/past" >"$dir/past.ndjson" 2>"$dir/hold"
on init -q
on ledger import "$dir/past.ndjson" -q
RONBOX_SERVER__BIND=127.0.0.1:0 RONBOX_LOG__LEVEL=warn "$ronbox" --data-dir "$dir/node" serve 2>>"$dir/log" &
pid=$!
disown
until_so "the node" on status -q
for n in $(seq 5); do on wallet transfer alice shop "$n" -q; done
on wallet balance alice --json >"$dir/before"
show wallet balance alice

step "All that is older than ten days leaves the database"
show ledger close --keep 10d --dry-run | grep -E '^(\$|records)' | sed 's/, the last of .*//'
on ledger close --keep 10d --fast --yes -q
until_so "the closing" closed
show ledger periods | sed -E 's/^(1 +[0-9]+-[0-9]+) .*/\1/'

step "Balances, the hold and the references are as before"
on wallet balance alice --json >"$dir/after"
[ "$(member posted_minor <"$dir/before")" = "$(member posted_minor <"$dir/after")" ] || fail "another balance"
echo "the balance is the same"
refused 1 period_closed wallet transfer alice shop 1 --reference order-001 --new
echo "order-001 is not paid twice: period_closed"
show wallet capture "$(<"$dir/hold")" 500 --idempotency-key checkout | grep -E '^(\$|amount|to )'

step "A new payment between old accounts is proven with what the node keeps of them"
on wallet transfer alice shop 3 --idempotency-key tea --json -q >"$dir/tea"
on ledger proof "$(member txid <"$dir/tea")" >"$dir/proof"
show ledger verify-proof "$dir/proof" --receipt "$dir/tea" | grep -E '^(\$|proven)'

step "The file and the database prove every record since the first"
kill -TERM $pid
until_so "the end of the node" sh -c "! kill -0 $pid"
show ledger verify --periods "$dir/node/periods"

step "A byte of the file is changed, and found"
file=$(ls "$dir"/node/periods/*)
old=$(od -An -tu1 -j150 -N1 "$file")
printf "\\x$(printf %02x $((old ^ 1)))" | dd of="$file" bs=1 seek=150 conv=notrunc status=none
refused 3 "${file##*/}" ledger verify --periods "$dir/node/periods"
echo "exit 3"
step "The tour has shown all it promised"
