#!/usr/bin/env bash
# Has a real Prometheus scrape a node under load, evaluates each query of `ronbox dashboard`, and has Grafana's types decode it: see
# judge.go. It wants Debian's prometheus.
# RONBOX is the binary, bin/ronbox without it. SECONDS_OF_LOAD is the time of the load, 40 without it.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cd "$here/../../.."
ronbox=$(realpath "${RONBOX:-bin/ronbox}")
for tool in prometheus promtool; do command -v $tool >/dev/null || { echo "missing: apt-get install prometheus" >&2; exit 1; }; done
dir=$(mktemp -d /tmp/rj.XXXXXX)
pids=()
trap '[ ${#pids[@]} = 0 ] || kill "${pids[@]}" 2>/dev/null; wait 2>/dev/null; rm -rf "$dir"' EXIT
rb() { "$ronbox" --data-dir "$dir/d" "$@"; }
ready() {
  local end=$((SECONDS + 60))
  until "$ronbox" --data-dir "$1" status --json 2>/dev/null | grep -q '"ready":true'; do [ $SECONDS -lt $end ] || exit 1; sleep 0.1; done
}
url() { "$ronbox" --data-dir "$1" status --json | sed -n 's/.*"url":"\([^"]*\)".*/\1/p'; }
# A second node is the peer of the first in the index.
"$ronbox" --data-dir "$dir/p" init --dev -q
RONBOX_SERVER__BIND=127.0.0.1:0 RONBOX_LOG__LEVEL=off "$ronbox" --data-dir "$dir/p" serve &
pids+=($!)
ready "$dir/p"
"$ronbox" --data-dir "$dir/p" index put name:far.example b3:af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262 -q
identity=$("$ronbox" --data-dir "$dir/p" index identity --json | sed -n 's/.*"key":"\([^"]*\)".*/\1/p')
rb init --dev --packs testdata/packs -q
RONBOX_SERVER__BIND=127.0.0.1:0 RONBOX_LOG__LEVEL=off RONBOX_INDEX__PEERS=$(url "$dir/p") RONBOX_INDEX__TRUST="*=$identity" "$ronbox" --data-dir "$dir/d" serve &
pids+=($!)
ready "$dir/d"
node=$(url "$dir/d")
"$ronbox" --data-dir "$dir/q" init -q
RONBOX_SERVER__BIND=127.0.0.1:0 RONBOX_LOG__LEVEL=off "$ronbox" --data-dir "$dir/q" serve &
pids+=($!)
ready "$dir/q"
quiet=$(url "$dir/q")
cat > "$dir/prometheus.yml" <<END
global: {scrape_interval: 1s}
scrape_configs:
  - {job_name: ronbox, static_configs: [{targets: ['${node#http://}', '${quiet#http://}']}]}
END
promtool check config "$dir/prometheus.yml" >/dev/null
port=$((20000 + $$ % 20000))
prometheus --config.file="$dir/prometheus.yml" --storage.tsdb.path="$dir/tsdb" --web.listen-address=127.0.0.1:$port --log.level=error &
pids+=($!)
rb dashboard > "$dir/dashboard.json"
# What the load cannot make often: versions, a run of rewards, changes of the index.
sleep 3
rb wallet issue pool:protocol 5000000 -q
(
  sleep 5
  rb registry apply testdata/registry/0[123]*.ndjson --key "$dir/d/registry/dev-signer.key" -q
  rb rewarder run 2008 testdata/rewarder/flights-2008.csv --policy testdata/rewarder/policy.json --key "$dir/d/rewarder/dev-policy.key" --pool 1000000 -q
  rb index put name:docs.example b3:af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262 -q
) &
cd "$here"
go run . -node "$node" -quiet "${quiet#http://}" -token "$dir/d/admin.token" -prometheus "http://127.0.0.1:$port" -dashboard "$dir/dashboard.json" -seconds "${SECONDS_OF_LOAD:-40}"
