#!/usr/bin/env bash
# The main job of the index, with four nodes of one binary on this machine: names and providers, peers that hang and die, and what is said then.
# RONBOX is the binary, bin/ronbox without it. A step that does not hold ends the tour with 1.
set -euo pipefail
cd "$(dirname "$0")/../.."
ronbox=$(realpath "${RONBOX:-bin/ronbox}")
dir=$(mktemp -d /tmp/rt.XXXXXX)
hedge=${RONBOX_INDEX__DHT__HEDGE_MS:-150} deadline=${RONBOX_INDEX__DHT__DEADLINE_MS:-1200}   # the nodes have them too
declare -A pid url
trap 'kill -9 "${pid[@]}" 2>/dev/null || true; rm -rf "$dir"' EXIT

step() { printf '\n== %s\n' "$*"; }
fail() { printf 'the tour ends here: %s\n' "$*" >&2; exit 1; }
on() { local n=$1; shift; "$ronbox" --data-dir "$dir/$n" "$@"; }                       # a verb, on a node
show() { printf '%s$ ronbox %s\n' "$1" "${*:2}"; on "$@"; }                            # the same, seen
member() { sed -n "s/.*\"$1\":\"\([^\"]*\)\".*/\1/p"; }                                 # a text of a JSON document
source_of() { on "$@" --json 2>/dev/null | member source; }
took() { local t=$EPOCHREALTIME; "$@" >/dev/null 2>&1 || true; echo $(((${EPOCHREALTIME/./} - ${t/./}) / 1000)) ms; }  # a command, its process included

# until WHAT CMD…: a minute at most.
until_so() {
  local what=$1 end=$((SECONDS + 60)); shift
  until "$@"; do [ $SECONDS -lt $end ] || fail "$what has not come about"; sleep 0.05; done
}

# start NODE [SETTING…]: init, serve, wait.
start() {
  local n=$1; shift
  on "$n" init --dev -q
  env RONBOX_SERVER__BIND=127.0.0.1:0 RONBOX_LOG__LEVEL=off "$@" "$ronbox" --data-dir "$dir/$n" serve 2>>"$dir/$n.log" &
  pid[$n]=$!
  disown
  ready() { on "$n" status -q 2>/dev/null; }
  until_so "node $n" ready
  url[$n]=$(on "$n" status --json | member url)
}

step "Four nodes: a asks b, c and d; c asks b, and believes its names"
start b
id=$(on b index identity --json | member peer)
start c "RONBOX_INDEX__PEERS=${url[b]}#eu-west-3" "RONBOX_INDEX__TRUST=example=$id" RONBOX_INDEX__CACHE__TTL_MS=1000
start d
start a "RONBOX_INDEX__PEERS=${url[b]}#eu-west-3,${url[c]}#eu-west-1,${url[d]}#us-east-1" RONBOX_INDEX__DHT__ALPHA=1 RONBOX_INDEX__BREAKER__COOLDOWN_S=1
show a index peers

step "Real names: the service endpoints of eight releases of an SDK, each the BLAKE3 of what the release says of it"
go build -o "$dir/names" ./testdata/tour/names
for f in testdata/registry/*.ndjson; do
  version=${f##*-v}; version=${version%.ndjson}
  "$dir/names" "$f" "$version" >"$dir/$version.txt"
  printf '%6d names @%s\n' "$(wc -l <"$dir/$version.txt")" "$version"
  on a index put -q -f "$dir/$version.txt"
done
sed 's/@[^ ]*//' "$dir/$version.txt" >"$dir/newest.txt"
on a index put -q -f "$dir/newest.txt"
name=name:s3.eu-west-3.amazonaws.com
show a index resolve "$name"
show a index resolve "$name@1.20.0"
content=$(on a index resolve "$name" --json | member manifest)

step "Three nodes announce that they serve it; a asks one at a time, and takes the first good answer"
on b index announce "$content" --addr /ip4/192.0.2.2/tcp/443/https --region eu-west-3 -q
on c index announce "$content" --addr /ip4/192.0.2.3/tcp/443/https --region eu-west-1 -q
on d index announce "$content" --addr /ip4/192.0.2.4/tcp/443/https --region us-east-1 -q
show a index providers "$content" --region eu-west-3
[ "$(source_of a index providers "$content" --region eu-west-3 --fresh)" = peer ] || fail "no peer was asked"

step "The peer that is asked first hangs (kill -STOP): others are asked after $hedge ms, and its breaker opens"
first=$(on a index peers --json | sed 's/.*"peers":\[//; s/},{/}\n{/g' | sed -n '/"asked":[1-9]/{s/.*"target":"\([^"]*\)".*/\1/p;q}')
for n in b c d; do [ "${url[$n]}" = "http://$first" ] && stopped=$n; done
kill -STOP "${pid[$stopped]}"
printf 'one lookup took %s\n' "$(took on a index providers "$content" --region eu-west-3 --fresh)"
breaker() { on a index peers --json | sed 's/},{/}\n{/g' | grep "\"$first\"" | member state; }
opens() { source_of a index providers "$content" --region eu-west-3 --fresh >>"$dir/hedged.txt"; [ "$(breaker)" = open ]; }
until_so "an open breaker" opens
[ "$(sort -u "$dir/hedged.txt")" = peer ] || fail "a lookup was not answered by a peer"
printf '%d lookups, each answered by another peer; then the breaker of the one that hangs was open\n' "$(wc -l <"$dir/hedged.txt")"

step "It goes on (kill -CONT): a few calls are let through after a while, and the breaker closes"
kill -CONT "${pid[$stopped]}"
closes() { source_of a index providers "$content" --region eu-west-3 --fresh >/dev/null; [ "$(breaker)" = closed ]; }
until_so "a closed breaker" closes
show a index peers

step "A name of b is read through c, which trusts b's key"
show b index put name:docs.example "$content"
show c index resolve name:docs.example
step "b hangs: c says what it knew, and that it is stale"
kill -STOP "${pid[b]}"
stale() { [ "$(source_of c index resolve name:docs.example)" = stale ]; }
until_so "a stale answer" stale
show c index resolve name:docs.example
kill -CONT "${pid[b]}"
step "It is removed on b, and gone on c once that has asked again"
show b index remove name:docs.example
gone() { ! on c index resolve name:docs.example -q 2>/dev/null; }
until_so "its end on c" gone
printf 'c$ ronbox index resolve name:docs.example\n'; on c index resolve name:docs.example 2>&1 || true

step "All three hang: a lookup of what nobody here knows ends after $deadline ms"
kill -STOP "${pid[b]}" "${pid[c]}" "${pid[d]}"
unknown=b3:0000000000000000000000000000000000000000000000000000000000000001
printf 'one lookup took %s\n' "$(took on a index providers $unknown)"
printf 'a$ ronbox index providers %s\n' $unknown; on a index providers $unknown 2>&1 && fail "somebody knows it" || true

step "They are killed: a says who served the content, and that this is stale"
kill -9 "${pid[b]}" "${pid[c]}" "${pid[d]}"
stale() { [ "$(source_of a index providers "$content" --fresh)" = stale ]; }
until_so "a stale answer" stale
show a index providers "$content" --fresh
step "The tour has shown all it promised"
