#!/usr/bin/env bash
# Measures whether the cost of a payment depends on how many accounts a node has: the processor time of the node per transfer, in batches of
# 1,000, and per balance, among 10,000 of its accounts and among all of them, in both orders, and its anonymous memory. Usage: flat.sh
# [ACCOUNTS] (1,000,000, a multiple of 10,000). Each figure is the median of all rounds. RONBOX is the binary, bin/ronbox without it; other
# variables RONBOX_... configure the node.
set -euo pipefail
accounts=${1:-1000000}
cd "$(dirname "$0")/../.."
ronbox=$(realpath "${RONBOX:-bin/ronbox}")
unset RONBOX
dir=$(mktemp -d "${TMPDIR:-/tmp}/flat.XXXXXX")
node=
stop() { [ -z "$node" ] || { kill "$node" && wait "$node"; } || true; node=; }
trap 'stop; rm -rf "$dir"' EXIT
export RONBOX_SERVER__BIND=127.0.0.1:0 RONBOX_LOG__LEVEL=off RONBOX_WALLET__LIMITS__RATE_PER_SECOND=1000000 RONBOX_WALLET__LIMITS__BURST=1000000 RONBOX_WALLET__LIMITS__READ_RPS=1000000
"${GO:-go}" build -o "$dir/flat" ./testdata/bench/flat
"$ronbox" --data-dir "$dir/d" init --dev -q
serve() {
  "$ronbox" --data-dir "$dir/d" serve & node=$!
  until "$ronbox" --data-dir "$dir/d" status --json 2>/dev/null | grep -q '"ready":true'; do kill -0 "$node"; sleep 0.1; done
  url=$("$ronbox" --data-dir "$dir/d" status --json | sed -n 's/.*"url":"\([^"]*\)".*/\1/p')
}
flat() { "$dir/flat" -url "$url" -token "$dir/d/admin.token" -pid "$node" -accounts "$accounts" "$@"; }
memory=0
anonymous() { local now; now=$(awk '/RssAnon/ {print int($2 / 1024)}' "/proc/$node/status"); [ "$now" -le $memory ] || memory=$now; }
serve; flat -fund; stop
serve; flat >"$dir/small"; anonymous; stop
serve; flat -large >"$dir/large"; anonymous; stop
median() { awk -v figure="$1" '$1 " " $2 == figure {print $3}' "${@:2}" | sort -n | awk '{v[NR] = $1} END {printf "%.1f", NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2}'; }
for figure in "batch 10k" "batch 1M" "balance 10k" "balance 1M"; do
  echo "$figure $(median "$figure" "$dir/small" "$dir/large") µs (small before large $(median "$figure" "$dir/small"), large before small $(median "$figure" "$dir/large"))"
done
echo "anonymous memory $memory MiB"
