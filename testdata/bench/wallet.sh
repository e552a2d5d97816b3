#!/usr/bin/env bash
# Measures payments through a node over HTTP, and the same service written on PostgreSQL (see postgres.sh), one after the other on
# this machine and disk. Usage: wallet.sh [SECONDS]. Run it on a machine that does nothing else.
set -euo pipefail
seconds=${1:-10}
here=$(cd "$(dirname "$0")" && pwd)
all=$(mktemp) && trap 'rm -f "$all"' EXIT
"$here/postgres.sh" "$seconds" | tee "$all"
(cd "$here/../.." && ${GO:-go} test ./appliance -run '^$' -bench '^BenchmarkMoney$' -benchtime "${seconds}s") |
  awk '/^Benchmark/ {
    name=$1; sub(/^BenchmarkMoney\//, "", name); sub(/-[0-9]+$/, "", name); line=""
    for (i=4; i<=NF; i+=2) { v[$i]=$(i-1); if ($i ~ /^(transfers|reads)\/s$/) rate=sprintf("%.0f %s", $(i-1), $i); else if ($i != "ns/op") line=line "\t" $(i-1) " " $i }
    print "ronbox/" name "\t" rate line; fflush(); next }
  /FAIL|_test.go/ {print > "/dev/stderr"; bad=1} END {exit bad}' | tee -a "$all"
awk -F'\t' '{split($2, r, " "); rate[$1]=r[1]}
  /^postgres/ {split($1, n, "/"); k="best/" n[2]; if (r[1]+0 > rate[k]+0) rate[k]=r[1]}
  function per(what, a, b) {if (rate[a] && rate[b]) printf "%s\t%.2f x\n", what, rate[a]/rate[b]}
  END {
    per("single / PostgreSQL, 10,000 accounts", "ronbox/single/uniform", "best/uniform")
    per("single / PostgreSQL, 10 accounts", "ronbox/single/hot", "best/hot")
    per("batches of 1,000 / PostgreSQL", "ronbox/batch/json", "best/batched")
    per("single / the same over a ledger in RAM", "ronbox/single/uniform", "ronbox/single/uniform/ram")
    per("batches / single", "ronbox/batch/json", "ronbox/single/uniform")
    per("balances / single", "ronbox/balance", "ronbox/single/uniform")
    per("balances while the disk stalls / balances", "ronbox/balance/stalled", "ronbox/balance")
    per("receipts / balances", "ronbox/tx", "ronbox/balance")
    per("replays / balances", "ronbox/replay", "ronbox/balance")
  }' "$all"
