#!/usr/bin/env bash
# One node with data becomes a cluster of three on this machine: payments go on while the leader is killed, an unknown answer is settled at another
# node, a wiped node begins anew, an object is read without a quorum, and the cluster becomes one node again. RONBOX is the binary, by default
# bin/ronbox. It exits with 1 if a step fails.
set -euo pipefail
cd "$(dirname "$0")/../.."
ronbox=$(realpath "${RONBOX:-bin/ronbox}")
dir=$(mktemp -d /tmp/rc.XXXXXX)
declare -A pid http peer id
trap 'kill -9 "${pid[@]}" 2>/dev/null || true; rm -rf "$dir"' EXIT

step() { printf '\n== %s\n' "$*"; }
fail() { printf 'the tour ends here: %s\n' "$*" >&2; tail -n 5 "$dir"/*.log >&2; exit 1; }
settings() { # NODE: the environment of its commands
  printf '%s\n' RONBOX_SERVER__BIND="${http[$1]}" RONBOX_CLUSTER__BIND="${peer[$1]}" RONBOX_LOG__LEVEL=warn \
    RONBOX_WALLET__LIMITS__RATE_PER_SECOND=100000 RONBOX_WALLET__LIMITS__BURST=100000
}
on() { local n=$1; shift; env $(settings "$n") "$ronbox" --data-dir "$dir/$n" "$@"; }     # a command on a node
show() { printf '%s$ ronbox %s\n' "$1" "${*:2}"; on "$@"; }                               # a command with its output
at() { local n=$1; shift; "$ronbox" --url "http://${http[$n]}" --token-file "$dir/token" "$@"; } # a command of a client elsewhere
show_at() { printf '$ ronbox --url NODE-%s %s\n' "$1" "${*:2}"; at "$@"; }
member() { sed -n "s/.*\"$1\":\"\([^\"]*\)\".*/\1/p"; }                                   # a text member of a JSON document

# until_so WHAT CMD…: repeats a command until it succeeds, for a minute at most.
until_so() {
  local what=$1 end=$((SECONDS + 60)); shift
  until "$@" 2>/dev/null; do [ $SECONDS -lt $end ] || fail "$what: not within a minute"; sleep 0.05; done
}

# port N: a TCP port that nothing listens on, another one for each N from 0 to 5.
port() {
  local p
  while p=$((20000 + $1 * 2000 + RANDOM % 2000)); do (exec 3<>"/dev/tcp/127.0.0.1/$p") 2>/dev/null || { echo "127.0.0.1:$p"; return; }; done
}

serve() { # NODE
  env $(settings "$1") "$ronbox" --data-dir "$dir/$1" serve 2>>"$dir/$1.log" &
  pid[$1]=$!
  disown
  ready() { on "$1" status -q; }
  until_so "node $1 is ready" ready "$1"
}

# join NODE: a new node joins with a token that the leader mints.
join() {
  local ticket
  mint() { ticket=$(on "$(leader)" cluster token --json); }
  until_so "a token for $1" mint
  on "$1" cluster join "$(member url <<<"$ticket")" --token "$(member token <<<"$ticket")" -q
  serve "$1"
  until_so "$1 votes" voters "$2"
  id[$1]=$(on "$1" cluster status --json | member self)
}

# leader: the running node that leads, and takes writes.
leads() { curl -sf -m 2 -o /dev/null "http://${http[$1]}/readyz?role=leader"; }
leader() {
  local n end=$((SECONDS + 60))
  while [ $SECONDS -lt $end ]; do
    for n in a b c; do kill -0 "${pid[$n]:-0}" 2>/dev/null && leads "$n" 2>/dev/null && echo "$n" && return; done
    sleep 0.05
  done
  fail "no node leads"
}
others() { case $1 in a) echo b c ;; b) echo a c ;; c) echo a b ;; esac; }

# voters COUNT: so many voters answer.
voters() { [ "$(on "$(leader)" cluster status --json | grep -o '"role":"voter"[^}]*"answers":true' | wc -l)" = "$1" ]; }

balance() { until_so "the balance of $2" at "$1" wallet balance "$2" --json | member posted_minor; }

# send NODE KEY AMOUNT [FLAG…]: one request of alice to pay bob.
send() {
  curl -sf -o /dev/null -H "Authorization: Bearer $(<"$dir/token")" -H "Idempotency-Key: $2" -H 'Content-Type: application/json' "${@:4}" \
    -d "{\"from\":\"alice\",\"to\":\"bob\",\"asset\":\"ron\",\"amount_minor\":\"$3\"}" "http://${http[$1]}/v1/transfer"
}

# pay KEY NODE…: pays 1 under a key, at one node after the other until one acknowledges it.
pay() {
  local key=$1 n end=$((SECONDS + 60)); shift
  while [ $SECONDS -lt $end ]; do
    for n in "$@"; do send "$n" "$key" 1 -m 2 && return; sleep 0.1; done
  done
  fail "payment $key is not acknowledged"
}

http=([a]=$(port 0) [b]=$(port 1) [c]=$(port 2)) peer=([a]=$(port 3) [b]=$(port 4) [c]=$(port 5))

step "One node with data"
on a init --dev -q
serve a
cp "$dir/a/admin.token" "$dir/token"
on a wallet transfer alice bob 100 -q
on a registry apply testdata/registry/*.ndjson --key "$dir/a/registry/dev-signer.key" -q
show a wallet balance bob
show a registry head

step "It becomes a cluster of one: its data stay where they are"
show a cluster init
id[a]=$(on a cluster status --json | member self)

step "Two empty machines join"
show a cluster token | sed 's/[A-Za-z0-9_-]\{80,\}/TOKEN/g'
join b 2
join c 3
show a cluster status
show_at c wallet balance bob
show_at b registry head

step "402 payments, at one node after the other; the leader is killed meanwhile"
killed=$(leader)
{ for i in $(seq 134); do pay "run-$i-a" a b c; pay "run-$i-b" b c a; pay "run-$i-c" c a b; echo >>"$dir/paid"; done; } &
paying=$!
paid() { [ "$(wc -l <"$dir/paid")" -ge 40 ]; }
until_so "120 payments" paid
from=$EPOCHREALTIME
kill -9 "${pid[$killed]}"
read -r left _ < <(others "$killed")
again() { at "$left" wallet balance bob -q --timeout 1s; }
until_so "the others answer" again
printf 'the leader is killed; the others answer after %s ms\n' $(((${EPOCHREALTIME/./} - ${from/./}) / 1000))
wait $paying || fail "a payment failed"
printf '402 payments are acknowledged, and bob has %s\n' "$(balance "$left" bob)"
serve "$killed"
until_so "three voters" voters 3

step "An unknown answer: the leader hangs (kill -STOP) while a payment is under way"
hung=$(leader)
read -r asked next < <(others "$hung")
kill -STOP "${pid[$hung]}"
code=0
send "$asked" rent 7 -m 1 || code=$?
[ $code = 28 ] || fail "curl ended with $code"
printf 'no answer within a second (curl: %s): it may be made or not\n' $code
kill -9 "${pid[$hung]}"

step "The same key settles it at another node, and again gets the same receipt"
settled() { at "$next" wallet transfer alice bob 7 --key rent --json -q >"$dir/first"; }
until_so "the payment is settled" settled
at "$asked" wallet transfer alice bob 7 --key rent --json -q >"$dir/second"
cmp "$dir/first" "$dir/second" || fail "two receipts"
printf 'one receipt at two nodes; bob has %s\n' "$(balance "$asked" bob)"
serve "$hung"
until_so "three voters" voters 3

step "Nothing is lost and nothing is doubled"
at "$asked" ledger export >"$dir/journal"
for i in $(seq 134); do printf '%s\n' "run-$i-a" "run-$i-b" "run-$i-c"; done | sort >"$dir/sent"
sed -n 's/.*"op":"transfer".*"idem":"\(run-[^"]*\)".*/\1/p' "$dir/journal" | sort >"$dir/made"
cmp "$dir/sent" "$dir/made" || fail "the journal has other payments"
printf 'the journal has %d of these payments, each once\n' "$(wc -l <"$dir/made")"
"$ronbox" ledger verify "$dir/journal" | tail -1
[ "$(balance a bob)" = 509 ] || fail "bob has $(balance a bob)"

step "A machine loses its disk, but for its certificate, and begins anew"
read -r lost _ < <(others "$(leader)")
kill -9 "${pid[$lost]}"
rm -rf "$dir/$lost"/ronbox.db "$dir/$lost/raft"
printf '$ ronbox cluster rejoin --wipe\n'
on "$lost" cluster rejoin --wipe
serve "$lost"
until_so "three voters" voters 3
id[$lost]=$(on "$lost" cluster status --json | member self)
show "$(leader)" cluster status | tail -1

step "An object goes to all members, and all files are equal"
printf 'a picture of the market\n' >"$dir/picture"
spread() { on "$(leader)" edge put "$dir/picture" --json >"$dir/put" && grep -q '"copies":3' "$dir/put"; }
until_so "three copies" spread
same() {
  local n
  rm -rf "$dir/snap"
  for n in a b c; do on $n db snapshot "$dir/snap/$n" -q && "$ronbox" db verify "$dir/snap/$n"/*.db --json | member state_hash; done | sort -u >"$dir/hashes"
  [ "$(wc -l <"$dir/hashes")" = 1 ]
}
until_so "equal state hashes" same
printf 'three snapshots are verified, and have one state hash: %s\n' "$(<"$dir/hashes")"

step "Two of three are lost: the third serves an object by its hash, without a quorum"
lost=$(leader)
read -r left gone < <(others "$lost")
kill -9 "${pid[$lost]}" "${pid[$gone]}"
from=$EPOCHREALTIME
curl -sf -m 10 -o "$dir/got" "http://${http[$left]}$(member path <"$dir/put")" || fail "the object is not served"
printf 'the object is served %s ms after the kill\n' $(((${EPOCHREALTIME/./} - ${from/./}) / 1000))
cmp "$dir/picture" "$dir/got"
aged() { curl -sf -m 1 -o /dev/null -D - "http://${http[$left]}/edge/catalog" | tr -d '\r' | grep '^Ronbox-Age: '; }
until_so "the catalog with its age" aged >"$dir/age"
printf 'the catalog of packs says how old it is: %s\n' "$(<"$dir/age")"
[ "$(curl -s -m 10 -o /dev/null -w '%{http_code}' "http://${http[$left]}/registry/head")" = 503 ] || fail "the head is served"
code=0
printf '$ ronbox cluster status --check\n'
on "$left" cluster status --check >"$dir/seen" || code=$?
tail -1 "$dir/seen"
[ $code = 21 ] || fail "status --check ended with $code"
serve "$lost"
serve "$gone"
until_so "three voters" voters 3

step "Back to one node"
stays=$(leader)
for n in $(others "$stays"); do
  printf '$ ronbox cluster remove %s --yes\n' "${id[$n]}"
  on "$stays" cluster remove "${id[$n]}" --yes
  kill -9 "${pid[$n]}"
done
printf '$ ronbox cluster leave --last\n'
on "$stays" cluster leave --last
show_at "$stays" wallet balance bob | sed "s/NODE-$stays/NODE/"
printf '$ ronbox cluster status\n'
on "$stays" cluster status 2>&1 && fail "it is still a cluster" || true
step "The tour has shown all it promised"
