#!/usr/bin/env bash
# Measures what an archive costs and what it gives: payments a second of a node with an archive and of one without, in turns, and the CPU time of
# one; the oldest change that was not in the target, asked each second; the bytes of log objects for those of their entries; and how long a restore
# takes of a database of 1 GiB and 360,000 payments after it, an hour of 100 a second. Usage: archive.sh [SECONDS [ROUNDS]]. It wants wrk. The
# files are in $TMPDIR. Run it on a machine that does nothing else. RONBOX is the binary, bin/ronbox without it.
set -euo pipefail
seconds=${1:-10} rounds=${2:-5}
cd "$(dirname "$0")/../.."
ronbox=$(realpath "${RONBOX:-bin/ronbox}")
unset RONBOX
command -v wrk >/dev/null || { echo "missing: apt-get install wrk" >&2; exit 1; }
dir=$(mktemp -d "${TMPDIR:-/var/tmp}/archive.XXXXXX")
declare -A node=() url=()
trap 'kill "${node[@]}" 2>/dev/null; wait 2>/dev/null; rm -rf "$dir"' EXIT
export RONBOX_SERVER__BIND=127.0.0.1:0 RONBOX_LOG__LEVEL=off RONBOX_WALLET__LIMITS__RATE_PER_SECOND=1000000 RONBOX_WALLET__LIMITS__BURST=1000000
await() { local end=$((SECONDS + 600)); until "$@" >/dev/null 2>&1; do [ $SECONDS -lt $end ] || { echo "not so: $*" >&2; exit 1; }; sleep 0.1; done; }
on() { local n=$1; shift; "$ronbox" --data-dir "$dir/$n" "$@"; }
number() { tr -d ' \n' | sed -n "s/.*\"$1\":\([0-9.]*\).*/\1\n/p"; }
median() { sort -n | awk '{v[NR] = $1} END {printf "%.2f", NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2}'; }

serve() { # NODE
  "$ronbox" --data-dir "$dir/$1" init --dev -q
  "$ronbox" --data-dir "$dir/$1" serve & node[$1]=$!
  ready() { on "$1" status --json | grep -q '"ready":true'; }
  await ready "$1"
  on "$1" wallet issue alice 1000000000000 -q
  url[$1]=$(on "$1" status --json | sed -n 's/.*"url":"\([^"]*\)".*/\1/p')
}
cat >"$dir/pay.lua" <<'END'
local n, head = 0, nil
function init(args)
  head = {["Content-Type"] = "application/json", ["Authorization"] = "Bearer " .. args[1]}
  run, ops = args[2], tonumber(args[3])
end
local function op(to) return '"from":"alice","to":"shop-' .. to .. '","asset":"ron","amount_minor":"1"}' end
function request()
  n = n + 1
  head["Idempotency-Key"] = run .. n
  if ops == 1 then return wrk.format("POST", "/v1/transfer", head, "{" .. op(math.random(10000))) end
  local all = {}
  for i = 1, ops do all[i] = '{"op":"transfer",' .. op(math.random(10000)) end
  return wrk.format("POST", "/v1/batch", head, '{"mode":"independent","ops":[' .. table.concat(all, ",") .. "]}")
end
END
# load NODE SECONDS CONNECTIONS OPS pays, and prints payments a second and the CPU time of one in µs.
load() {
  local before
  before=$(ticks "$1")
  wrk -t1 -c"$3" -d"$2s" -s "$dir/pay.lua" "${url[$1]}" -- "$(cat "$dir/$1/admin.token")" "$RANDOM$RANDOM-" "$4" >"$dir/wrk"
  awk -v ticks=$(($(ticks "$1") - before)) -v ops="$4" '/requests in/ {n = $1 * ops} /Requests\/sec/ {r = $2 * ops} /Non-2xx/ {bad = 1}
    END {if (bad) exit 1; printf "%d %.1f\n", r, ticks * 1e4 / n}' "$dir/wrk" || { cat "$dir/wrk" >&2; return 1; }
}
ticks() { awk '{print $14 + $15}' "/proc/${node[$1]}/stat"; }

mkdir "$dir/target"
recipient=$("$ronbox" archive keygen "$dir/key" --json | tr -d ' \n' | sed -n 's/.*"recipient":"\([^"]*\)".*/\1/p')
serve without
RONBOX_ARCHIVE__TARGET=file://$dir/target RONBOX_ARCHIVE__RECIPIENTS=$recipient serve with
sent() { on with archive status --json | tr -d ' \n' | grep -q '"state":"ok".*"seq":\([0-9]*\),"sent_seq":\1,'; }
await sent
watch() { while :; do on with archive status --json | number lag_seconds >>"$dir/lag"; sleep 1; done; }
watch & watcher=$!
for i in $(seq "$rounds"); do
  for who in with without; do
    load $who "$seconds" 32 1 >"$dir/now"
    echo "$i $who: $(cut -d' ' -f1 "$dir/now") payments/s, $(cut -d' ' -f2 "$dir/now") µs of CPU"
    cut -d' ' -f1 "$dir/now" >>"$dir/rate.$who"
    cut -d' ' -f2 "$dir/now" >>"$dir/cpu.$who"
  done
done
per() { awk -v a="$(median <"$dir/$1.with")" -v b="$(median <"$dir/$1.without")" 'BEGIN {printf "%.3f", a / b}'; }
echo "with an archive / without: $(per rate) of the payments a second, $(per cpu) of the CPU time (medians)"
await sent
kill $watcher
echo "oldest change that was not in the target: $(sort -n "$dir/lag" | tail -1) s at most"

while [ "$(stat -c %s "$dir/with/ronbox.db")" -lt $((1 << 30)) ]; do load with 5 4 1000 >/dev/null; done
on with archive base -q
await sent
log() { find "$dir/target" -path '*/log/*' -type f; }
log | sort >"$dir/before"
paid=0
while [ $paid -lt 360000 ]; do
  load with 5 32 1 >/dev/null
  paid=$((paid + $(awk '/requests in/ {print $1}' "$dir/wrk")))
done
await sent
log | sort | comm -13 "$dir/before" - >"$dir/after"
plain=0
while read -r object; do plain=$((plain + $(head -c 2000 "$object" | grep -ao '"bytes":[0-9]*' | head -1 | cut -d: -f2))); done <"$dir/after"
kept=$(xargs stat -c %s <"$dir/after" | awk '{n += $1} END {print n}')
echo "log objects: $(wc -l <"$dir/after") of $kept bytes for $plain of entries ($(awk -v a="$kept" -v b="$plain" 'BEGIN {printf "%.2f", a / b}'))"
began=$(date +%s%N)
"$ronbox" archive restore --target "file://$dir/target" --identity "$dir/key" --latest --to "$dir/restored" -q
echo "restore of $(($(stat -c %s "$dir"/restored/*.db) >> 20)) MiB and $paid payments: $((($(date +%s%N) - began) / 1000000)) ms"
"$ronbox" archive verify --target "file://$dir/target" --identity "$dir/key" --restore | tail -n 6
