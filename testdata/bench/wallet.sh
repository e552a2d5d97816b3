#!/usr/bin/env bash
# Measures payments through a node over HTTP, and the same service written on PostgreSQL (see postgres.sh), one after the other on
# this machine and disk; and what any service over HTTP could do on it. Usage: wallet.sh [SECONDS]. Run it on a machine that does
# nothing else.
set -euo pipefail
seconds=${1:-10}
here=$(cd "$(dirname "$0")" && pwd)
go=${GO:-go}
all=$(mktemp) && trap 'rm -f "$all"' EXIT
"$here/postgres.sh" "$seconds" | tee "$all"
cd "$here/../.."
"$go" test ./engines/ledger -run '^$' -bench 'Pair/submitters' -benchtime "${seconds}x" |
  awk -f "$here/rows.awk" | sed 's|^BenchmarkPair/[^\t]*|ronbox/engine|' | tee -a "$all"
"$go" test ./cmd/ronbox/server/load -run '^$' -bench '^BenchmarkMoney$' -benchtime "${seconds}s" |
  awk -v before=ronbox/ -f "$here/rows.awk" | sed 's|^ronbox/bare|bare|' | tee -a "$all"
awk -F'\t' '
  {split($2, r, " "); rate[$1]=r[1]}
  {for (i = 3; i <= NF; i++) {split($i, m, " "); more[$1 " " m[2]]=m[1]}}
  /^postgres/ {k="best/" $1; sub(/\/[0-9]+$/, "", k); if (r[1]+0 > rate[k]+0) rate[k]=r[1]}
  function per(what, a, b) {if (a && b) printf "%s\t%.2f x\n", what, a/b}
  END {
    single=rate["ronbox/single/uniform"]; hot=rate["ronbox/single/hot"]; batch=rate["ronbox/batch/json"]; balance=rate["ronbox/balance"]
    service="best/postgres/service/"; engine="best/postgres/engine/"
    per("single / the same service on PostgreSQL", single, rate[service "single/uniform"])
    per("hot / the same service on PostgreSQL", hot, rate[service "single/hot"])
    per("batches of 1,000 / the same service on PostgreSQL", batch, rate[service "batch/json"])
    per("the engine / that of PostgreSQL, both without HTTP", rate["ronbox/engine"], rate[engine "uniform"])
    per("single over HTTP / the engine of PostgreSQL without", single, rate[engine "uniform"])
    per("hot over HTTP / the engine of PostgreSQL without", hot, rate[engine "hot"])
    per("batches over HTTP / the engine of PostgreSQL without", batch, rate[engine "batched"])
    per("balances / GET of a bare server", balance, rate["bare/get"])
    per("single / POST of a bare server", single, rate["bare/post"])
    per("p99 of single at 70 % / of a bare server at that rate", more["ronbox/single/70 p99-ms"], more["ronbox/single/70 bare-p99-ms"])
    per("batches / single", batch, single)
    per("balances / single", balance, single)
    per("receipts / balances", rate["ronbox/tx"], balance)
    per("replays / balances", rate["ronbox/replay"], balance)
  }' "$all"
